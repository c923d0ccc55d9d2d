//! Which session fetches which range of a file. A session that is free takes the end of the range that
//! would be complete last; the session that fetches it stops there.

use std::collections::BTreeMap;
use std::time::Duration;

use proto::ranges::{ByteRange, RangeSet};

/// Smallest range worth a command, bytes.
const MIN_TAKEN: u64 = 1 << 20;
/// Shortest time for which a range is taken: less than a command and the start of its data cost.
const MIN_TAKEN_TIME: Duration = Duration::from_millis(200);
const MIN_TAKEN_ROUND_TRIPS: u32 = 4;
/// Bytes that may be on the way to a session when the end of its range moves down: those of so many round
/// trips, and this many.
const IN_FLIGHT_ROUND_TRIPS: u32 = 2;
const IN_FLIGHT_MARGIN: u64 = 4 << 20;

/// How far a session is with its range.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RangeProgress {
    /// Bytes of the range that are stored.
    pub(super) stored: u64,
    /// End of the last byte that is stored, offset in the destination.
    pub(super) reached: u64,
    /// Time since the range was taken.
    pub(super) elapsed: Duration,
}

impl RangeProgress {
    /// Bytes per second.
    fn rate(self) -> f64 {
        let rate = self.stored as f64 / self.elapsed.as_secs_f64();
        if rate.is_finite() { rate } else { 0.0 }
    }
}

/// A session that asks for a range.
#[derive(Debug, Clone, Copy)]
pub(super) struct RangeRequest {
    pub(super) session: u32,
    pub(super) streams: u32,
    /// Further sessions that will soon ask for a range, too.
    pub(super) others_coming: u32,
    pub(super) rtt: Duration,
}

/// A range for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TakenRange {
    pub(super) range: ByteRange,
    /// The session whose range now ends where this one begins.
    pub(super) taken_from: Option<u32>,
}

#[derive(Debug, Clone, Copy)]
struct RunningRange {
    range: ByteRange,
    /// Where the range ended when it was taken: the server still sends up to there.
    sent_until: u64,
    streams: u32,
}

/// The ranges that are missing.
#[derive(Debug)]
pub(super) struct RangeBoard {
    /// Ranges of no session.
    free: RangeSet,
    running: BTreeMap<u32, RunningRange>,
}

impl RangeBoard {
    pub(super) fn new(missing: RangeSet) -> Self {
        Self {
            free: missing,
            running: BTreeMap::new(),
        }
    }

    /// A range for a session, if one is worth its command: a free one, or the end of a running one.
    /// `progress` tells how far a session is.
    pub(super) fn take(
        &mut self,
        request: RangeRequest,
        progress: impl Fn(u32) -> RangeProgress,
    ) -> Option<TakenRange> {
        let taken = self.take_free().or_else(|| self.split(request, progress))?;
        let running = RunningRange {
            range: taken.range,
            sent_until: taken.range.end,
            streams: request.streams,
        };
        self.running.insert(request.session, running);
        Some(taken)
    }

    fn take_free(&mut self) -> Option<TakenRange> {
        let range = self.free.iter().next()?;
        self.free.remove(range.start, range.end);
        Some(TakenRange {
            range,
            taken_from: None,
        })
    }

    /// Takes the end of the running range that would be complete last.
    fn split(
        &mut self,
        request: RangeRequest,
        progress: impl Fn(u32) -> RangeProgress,
    ) -> Option<TakenRange> {
        let time_left = |(session, running): (&u32, &RunningRange)| {
            let progress = progress(*session);
            let left = running.range.len().saturating_sub(progress.stored);
            // Before the first bytes all rates count as equal.
            let rate = progress.rate().max(1.0);
            (*session, left, rate, left as f64 / rate, progress)
        };
        let (session, left, rate, _, progress) = self
            .running
            .iter()
            .map(time_left)
            .max_by(|a, b| a.3.total_cmp(&b.3))?;
        let running = self.running.get_mut(&session)?;
        let own_rate = rate / f64::from(running.streams.max(1)) * f64::from(request.streams);
        // Both end at the same time; before that, as many others as are coming take their share.
        let share = own_rate / (rate + own_rate * f64::from(1 + request.others_coming));
        let wanted = whole(left as f64 * share);
        let in_flight = bytes_in(rate, request.rtt * IN_FLIGHT_ROUND_TRIPS) + IN_FLIGHT_MARGIN;
        let earliest = progress.reached.max(running.range.start) + in_flight;
        let start = running.range.end.saturating_sub(wanted).max(earliest);
        let worth = bytes_in(
            own_rate,
            MIN_TAKEN_TIME.max(request.rtt * MIN_TAKEN_ROUND_TRIPS),
        );
        if start.saturating_add(worth.max(MIN_TAKEN)) > running.range.end {
            return None;
        }
        let end = std::mem::replace(&mut running.range.end, start);
        Some(TakenRange {
            range: ByteRange { start, end },
            taken_from: Some(session),
        })
    }

    /// The range that a session fetches now.
    #[cfg(test)]
    pub(super) fn range_of(&self, session: u32) -> Option<ByteRange> {
        self.running.get(&session).map(|running| running.range)
    }

    /// A session has ended its range: `stored` has what is stored of the destination. What is missing
    /// becomes free. Returns the range.
    pub(super) fn end(&mut self, session: u32, stored: &RangeSet) -> Option<ByteRange> {
        let range = self.running.remove(&session)?.range;
        self.free.extend(&stored.gaps(range.start, range.end));
        Some(range)
    }

    /// A session could not begin its range. The session that it was taken from, or one that has taken
    /// over since, gets it back if its server still sends it; otherwise the range becomes free. Returns
    /// that session and the end of its range.
    pub(super) fn give_back(&mut self, session: u32) -> Option<(u32, u64)> {
        let range = self.running.remove(&session)?.range;
        let before = self.running.iter_mut().find(|(_, running)| {
            running.range.end == range.start && running.sent_until >= range.end
        });
        match before {
            Some((session, running)) => {
                running.range.end = range.end;
                Some((*session, range.end))
            }
            None => {
                self.free.insert(range.start, range.end);
                None
            }
        }
    }

    /// Whether ranges wait for a session.
    #[cfg(test)]
    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Whether every range has been fetched.
    pub(super) fn is_complete(&self) -> bool {
        self.free.is_empty() && self.running.is_empty()
    }
}

fn bytes_in(rate: f64, time: Duration) -> u64 {
    whole(rate * time.as_secs_f64())
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative; beyond the range it saturates"
)]
fn whole(bytes: f64) -> u64 {
    bytes as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;
    const RTT: Duration = Duration::from_millis(50);

    fn board(size: u64) -> RangeBoard {
        let mut missing = RangeSet::new();
        missing.insert(0, size);
        RangeBoard::new(missing)
    }

    fn request(session: u32, streams: u32, others_coming: u32) -> RangeRequest {
        RangeRequest {
            session,
            streams,
            others_coming,
            rtt: RTT,
        }
    }

    fn nothing_yet(_: u32) -> RangeProgress {
        RangeProgress::default()
    }

    #[test]
    fn sessions_that_start_together_share_the_file_equally() {
        let mut board = board(800 * MIB);
        assert_eq!(
            board
                .take(request(0, 1, 7), nothing_yet)
                .unwrap()
                .range
                .len(),
            800 * MIB
        );
        for (session, others) in (1..8).zip((0..7).rev()) {
            let taken = board
                .take(request(session, 1, others), nothing_yet)
                .unwrap();
            assert_eq!(taken.taken_from, Some(0));
            let share = taken.range.len() / MIB;
            assert!((99..=101).contains(&share), "{share}");
        }
        assert!((99..=101).contains(&(board.range_of(0).unwrap().len() / MIB)));
    }

    #[test]
    fn a_session_with_as_many_streams_takes_half_of_what_is_left() {
        let mut board = board(1000 * MIB);
        board.take(request(0, 16, 0), nothing_yet).unwrap();
        let progress = |_| RangeProgress {
            stored: 200 * MIB,
            reached: 210 * MIB,
            elapsed: Duration::from_secs(10),
        };
        let taken = board.take(request(1, 16, 0), progress).unwrap();
        assert_eq!(
            (taken.range.start, taken.range.end),
            (600 * MIB, 1000 * MIB)
        );
        assert_eq!(board.range_of(0).unwrap().end, 600 * MIB);
    }

    #[test]
    fn the_end_of_a_range_that_is_nearly_complete_is_not_taken() {
        let mut board = board(100 * MIB);
        board.take(request(0, 1, 0), nothing_yet).unwrap();
        let progress = |_| RangeProgress {
            stored: 94 * MIB,
            reached: 96 * MIB,
            elapsed: Duration::from_secs(10),
        };
        assert_eq!(board.take(request(1, 1, 0), progress), None);
        let ByteRange { start, end } = board.range_of(0).unwrap();
        assert_eq!((start, end), (0, 100 * MIB));
    }

    #[test]
    fn what_a_lost_session_has_not_stored_is_free_again() {
        let mut board = board(100 * MIB);
        board.take(request(0, 1, 1), nothing_yet).unwrap();
        board.take(request(1, 1, 0), nothing_yet).unwrap();
        let lost = board.range_of(1).unwrap();
        let mut stored = RangeSet::new();
        stored.insert(lost.start, lost.start + 10);
        board.end(1, &stored);
        assert!(board.has_free());
        let again = board.take(request(2, 1, 0), nothing_yet).unwrap();
        assert_eq!(
            (again.range.start, again.range.end),
            (lost.start + 10, lost.end)
        );
        assert_eq!(again.taken_from, None);
    }

    #[test]
    fn a_range_that_could_not_begin_goes_back_to_where_it_came_from() {
        let mut board = board(100 * MIB);
        board.take(request(0, 1, 1), nothing_yet).unwrap();
        board.take(request(1, 1, 0), nothing_yet).unwrap();
        assert_eq!(board.give_back(1), Some((0, 100 * MIB)));
        assert_eq!(board.range_of(0).unwrap().end, 100 * MIB);
        assert!(!board.has_free());
    }

    proptest! {
        #[test]
        fn the_ranges_cover_the_file_without_overlap(
            size in 1_u64..1 << 40,
            steps in prop::collection::vec((0_u32..6, 1_u32..32, 0_u64..100, 1_u64..20), 1..60),
        ) {
            let mut board = board(size);
            for (session, streams, percent, seconds) in steps {
                if board.range_of(session).is_some() {
                    continue;
                }
                let ranges: BTreeMap<u32, ByteRange> =
                    (0..6).filter_map(|s| Some((s, board.range_of(s)?))).collect();
                let progress = |s: u32| {
                    let stored = ranges[&s].len() / 100 * percent;
                    RangeProgress {
                        stored,
                        reached: ranges[&s].start + stored,
                        elapsed: Duration::from_secs(seconds),
                    }
                };
                board.take(request(session, streams, 0), progress);
                let mut all: Vec<ByteRange> = (0..6).filter_map(|s| board.range_of(s)).collect();
                all.sort_unstable_by_key(|range| range.start);
                prop_assert_eq!(all.first().map(|range| range.start), Some(0));
                prop_assert_eq!(all.last().map(|range| range.end), Some(size));
                prop_assert!(all.windows(2).all(|pair| pair[0].end == pair[1].start));
            }
        }
    }
}
