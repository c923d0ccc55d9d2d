//! Schedule and content of performance markers (112) and restart markers (111) (GFD.20 §3.8).
//!
//! A 112 is sent with the first progress report, then periodically, and at the end. A 111 is sent
//! periodically and at the end, and lists only ranges that no earlier 111 has listed. The progress
//! reports carry the time.

use super::{TransferProgress, TransferRequest};
use crate::marker::{PerformanceMarker, range_marker_replies};
use crate::ranges::RangeSet;
use crate::reply::Reply;

/// The markers of one transfer.
#[derive(Debug)]
pub(super) struct MarkerSchedule {
    perf: Option<MarkerTimer>,
    range: Option<MarkerTimer>,
    /// At least one 112 was sent.
    sent_performance_marker: bool,
    /// Ranges listed in earlier 111 markers.
    reported: RangeSet,
    /// Bytes transferred, from the last progress report.
    bytes: u64,
    /// Those of each stripe; empty: there is one.
    stripes: Vec<u64>,
    /// Ranges stored, from the last progress report; empty after a 111 has listed them.
    stored: RangeSet,
}

/// Timer of periodic markers.
#[derive(Debug)]
struct MarkerTimer {
    seconds: f64,
    /// Time of the next marker; `None` before the first progress report.
    due: Option<f64>,
}

impl MarkerTimer {
    fn new(seconds: u32) -> Option<Self> {
        (seconds > 0).then(|| Self {
            seconds: f64::from(seconds),
            due: None,
        })
    }

    /// Takes the marker that is due, if any; returns whether there is one. The first call only starts the
    /// timer. Missed periods are skipped, and the timer restarts when the clock was set back.
    fn take_due(&mut self, now: f64) -> bool {
        let next = now + self.seconds;
        match self.due {
            // A due time beyond one period shows that the clock was set back. NaN fails both comparisons.
            Some(due) if now < due && due <= next => false,
            Some(due) => {
                let is_due = now >= due;
                // A slightly late progress report must not shift all later markers.
                let next_in_phase = due + self.seconds;
                self.due = Some(if is_due && next_in_phase > now {
                    next_in_phase
                } else {
                    next
                });
                is_due
            }
            None => {
                self.due = Some(next);
                false
            }
        }
    }
}

impl MarkerSchedule {
    /// Markers of a transfer, with the periods of its request.
    pub(super) fn new(request: &TransferRequest) -> Self {
        Self {
            perf: MarkerTimer::new(request.perf_marker_seconds),
            range: MarkerTimer::new(request.range_marker_seconds),
            sent_performance_marker: false,
            reported: RangeSet::new(),
            bytes: 0,
            stripes: Vec::new(),
            stored: RangeSet::new(),
        }
    }

    /// Bytes transferred, from the last progress report.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Handles a progress report; returns the markers that are due.
    pub(super) fn on_progress(&mut self, progress: TransferProgress) -> Vec<Reply> {
        let now = progress.now;
        self.bytes = progress.bytes;
        self.stripes = progress.stripes;
        self.stored = progress.stored;
        let mut replies = Vec::new();
        // The first marker is sent at once, so that a client can measure the rate from the start.
        let first = !self.sent_performance_marker;
        if let Some(perf) = &mut self.perf {
            self.sent_performance_marker = true;
            if perf.take_due(now) || first {
                replies.extend(perf_replies(now, self.bytes, &self.stripes));
            }
        }
        if self.range.as_mut().is_some_and(|range| range.take_due(now)) {
            replies.extend(self.report_ranges());
        }
        replies
    }

    /// The transfer is complete: returns a last 112, and a 111 with the ranges not listed yet.
    pub(super) fn on_complete(&mut self, last: TransferProgress) -> Vec<Reply> {
        self.bytes = last.bytes;
        self.stripes = last.stripes;
        self.stored = last.stored;
        let mut replies = Vec::new();
        if self.perf.is_some() {
            // A transfer shorter than one progress period still gets a first marker with 0 bytes.
            if !self.sent_performance_marker {
                let none = vec![0; self.stripes.len()];
                replies.extend(perf_replies(last.now, 0, &none));
            }
            replies.extend(perf_replies(last.now, last.bytes, &self.stripes));
        }
        replies.extend(self.on_failure());
        replies
    }

    /// The transfer has failed: returns a 111 with the safe ranges not listed yet, so that a restart
    /// need not send them again.
    pub(super) fn on_failure(&mut self) -> Vec<Reply> {
        match self.range {
            Some(_) => self.report_ranges(),
            None => Vec::new(),
        }
    }

    fn report_ranges(&mut self) -> Vec<Reply> {
        let new = difference(&self.stored, &self.reported);
        if new.is_empty() {
            return Vec::new();
        }
        // `stored` holds all ranges of the transfer, so it replaces the earlier ones.
        self.reported = std::mem::take(&mut self.stored);
        range_marker_replies(&new)
    }
}

/// A marker for each stripe (GFD.20 §3.8); one if there are none.
fn perf_replies(timestamp: f64, bytes: u64, stripes: &[u64]) -> Vec<Reply> {
    let stripes = if stripes.is_empty() {
        &[bytes]
    } else {
        stripes
    };
    let stripe_count = u32::try_from(stripes.len()).unwrap_or(u32::MAX);
    let marker = |(stripe_index, stripe_bytes): (u32, &u64)| PerformanceMarker {
        timestamp,
        stripe_index,
        stripe_bytes: *stripe_bytes,
        stripe_count,
    };
    let markers = (0..).zip(stripes).map(marker);
    markers.map(PerformanceMarker::to_reply).collect()
}

/// The bytes of `all` that are not in `reported`. One pass over both, since a store over many streams can
/// have tens of thousands of ranges.
fn difference(all: &RangeSet, reported: &RangeSet) -> RangeSet {
    let mut new = RangeSet::new();
    let mut reported = reported.iter().peekable();
    for range in all.iter() {
        let mut start = range.start;
        while let Some(k) = reported.peek().copied() {
            if k.start >= range.end {
                break;
            }
            if k.end > start {
                new.insert(start, k.start);
                start = k.end;
            }
            if k.end > range.end {
                break;
            }
            reported.next();
        }
        new.insert(start, range.end);
    }
    new
}

#[cfg(test)]
mod tests {
    use super::{MarkerSchedule, MarkerTimer, difference};
    use crate::command::{DataType, TransferMode};
    use crate::path::VPath;
    use crate::ranges::RangeSet;
    use crate::server::{StoreDisposition, TransferKind, TransferProgress, TransferRequest};
    use crate::sizing::SocketBuffers;

    use proptest::prelude::*;

    fn markers(perf: u32, range: u32) -> MarkerSchedule {
        MarkerSchedule::new(&TransferRequest {
            protection: crate::security::DataChannelProtection::default(),
            kind: TransferKind::Store {
                path: VPath::root(),
                disposition: StoreDisposition::Truncate,
                announced_size: None,
                checksum_algorithm: None,
                expected_checksum: None,
                modified: None,
            },
            mode: TransferMode::Extended,
            type_: DataType::Image,
            streams: crate::streams::ParallelismRange::fixed(1),
            layout: Default::default(),
            congestion_control: String::new(),
            delayed_passive: None,
            buffers: SocketBuffers::default(),
            perf_marker_seconds: perf,
            range_marker_seconds: range,
        })
    }

    fn set(ranges: &[(u64, u64)]) -> RangeSet {
        let mut set = RangeSet::new();
        for (start, end) in ranges {
            set.insert(*start, *end);
        }
        set
    }

    fn at(now: f64, stored: &[(u64, u64)]) -> TransferProgress {
        at_time(now, &set(stored))
    }

    fn at_time(now: f64, stored: &RangeSet) -> TransferProgress {
        TransferProgress {
            now,
            bytes: stored.byte_count(),
            stripes: Vec::new(),
            stored: stored.clone(),
        }
    }

    fn codes(replies: &[crate::reply::Reply]) -> Vec<u16> {
        replies.iter().map(|r| r.code).collect()
    }

    #[test]
    fn a_timer_keeps_its_phase_and_skips_missed_periods() {
        let mut period = MarkerTimer::new(5).unwrap();
        assert!(!period.take_due(100.0), "the first call starts the timer");
        assert!(!period.take_due(104.9));
        assert!(period.take_due(105.3));
        assert!(!period.take_due(109.9));
        assert!(
            period.take_due(110.0),
            "the phase is kept, not shifted by 0.3 s"
        );
        assert!(period.take_due(131.0));
        assert!(!period.take_due(131.1), "four missed periods are one");
        assert!(!period.take_due(135.9));
        assert!(period.take_due(136.0));
    }

    #[test]
    fn a_clock_that_is_set_back_or_nan_restarts_the_timer() {
        let mut period = MarkerTimer::new(5).unwrap();
        assert!(!period.take_due(1000.0));
        assert!(!period.take_due(10.0));
        assert!(period.take_due(15.0));
        assert!(!period.take_due(f64::NAN));
        assert!(!period.take_due(16.0));
        assert!(period.take_due(21.0));
    }

    #[test]
    fn periods_of_zero_send_no_markers() {
        let mut markers = markers(0, 0);
        assert!(markers.on_progress(at(0.0, &[])).is_empty());
        assert!(markers.on_progress(at(100.0, &[(0, 5)])).is_empty());
        assert!(markers.on_complete(at(200.0, &[(0, 9)])).is_empty());
        assert_eq!(markers.bytes(), 9);
    }

    #[test]
    fn a_transfer_without_progress_reports_has_a_first_and_a_last_marker() {
        let replies = markers(5, 5).on_complete(at(7.0, &[(0, 12)]));
        assert_eq!(codes(&replies), [112, 112, 111]);
    }

    #[test]
    fn each_stripe_has_its_markers() {
        let mut markers = markers(5, 0);
        let progress = TransferProgress {
            stripes: vec![5, 7],
            ..at(0.0, &[(0, 12)])
        };
        let replies = markers.on_progress(progress);
        let parsed = replies
            .iter()
            .map(|reply| crate::marker::PerformanceMarker::from_reply(reply).unwrap());
        let parsed: Vec<_> = parsed
            .map(|marker| {
                (
                    marker.stripe_index,
                    marker.stripe_bytes,
                    marker.stripe_count,
                )
            })
            .collect();
        assert_eq!(parsed, [(0, 5, 2), (1, 7, 2)]);
    }

    #[test]
    fn an_empty_file_has_no_restart_marker() {
        let replies = markers(5, 5).on_complete(at(7.0, &[]));
        assert_eq!(codes(&replies), [112, 112]);
    }

    #[test]
    fn a_failure_reports_ranges_once() {
        let mut markers = markers(0, 5);
        markers.on_progress(at(0.0, &[(0, 10)]));
        assert_eq!(codes(&markers.on_failure()), [111]);
        assert!(markers.on_failure().is_empty());
    }

    proptest! {
        /// The union of all 111 markers is exactly the stored ranges, and no byte is listed twice.
        #[test]
        fn restart_markers_list_every_byte_once(
            ticks in prop::collection::vec((0.0..7.0f64, 0u64..2000, 1u64..300), 1..40),
        ) {
            let mut markers = markers(5, 5);
            let (mut now, mut stored, mut reported, mut reported_bytes) = (0.0, RangeSet::new(), RangeSet::new(), 0);
            let mut replies = Vec::new();
            for (wait, start, length) in ticks {
                now += wait;
                stored.insert(start, start + length);
                let progress = at_time(now, &stored);
                replies.extend(markers.on_progress(progress));
            }
            let last = at_time(now, &stored);
            replies.extend(markers.on_complete(last));
            for reply in replies.iter().filter(|r| r.code == 111) {
                let ranges = crate::marker::parse_range_marker(reply).unwrap();
                reported_bytes += ranges.byte_count();
                reported.extend(&ranges);
            }
            prop_assert_eq!(&reported, &stored);
            prop_assert_eq!(reported_bytes, stored.byte_count());
        }

        #[test]
        fn the_difference_equals_that_of_a_naive_implementation(
            all in prop::collection::vec((0u64..200, 1u64..30), 0..20),
            known in prop::collection::vec((0u64..200, 1u64..30), 0..20),
        ) {
            let build = |list: &[(u64, u64)]| {
                let list: Vec<_> = list.iter().map(|(s, l)| (*s, s + l)).collect();
                set(&list)
            };
            let (all, known) = (build(&all), build(&known));
            let mut naive = all.clone();
            for range in known.iter() {
                naive.remove(range.start, range.end);
            }
            prop_assert_eq!(difference(&all, &known), naive);
        }
    }
}
