//! The scoreboard of RFC 6675: the state of every segment in flight, in constant time per segment.

use std::collections::VecDeque;
use std::time::Duration;

use super::reno::LossRecovery;
use super::segment_set::{SegmentRange, SegmentSet};

/// Number of later SACKed segments after which a segment counts as lost (RFC 6675 `DupThresh`).
pub(super) const DUP_THRESH: u64 = 3;

/// A segment that was sent and is not yet cumulatively acknowledged.
#[derive(Debug, Clone, Copy)]
struct SegmentState {
    sent_at: Duration,
    bytes: u32,
    /// Copies that are probably in flight.
    copies: u8,
    sacked: bool,
    lost: bool,
    /// Retransmitted, and the retransmission is not considered lost.
    resent: bool,
    /// Was ever retransmitted: it gives no RTT sample (Karn's algorithm, RFC 6298 section 3).
    ambiguous: bool,
}

/// The effect of an acknowledgement.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AckResult {
    /// Newly cumulatively acknowledged segments.
    pub(super) acked: u64,
    /// Payload of these segments, bytes.
    pub(super) acked_bytes: u64,
    /// Newly selectively acknowledged segments.
    pub(super) sacked: u64,
    /// Send times of the earliest and of the latest of all these segments, without retransmitted ones.
    pub(super) sent: Option<(Duration, Duration)>,
}

impl AckResult {
    fn note(&mut self, state: &SegmentState) {
        // A SACKed segment gave its RTT sample when it was SACKed.
        if state.sacked || state.ambiguous {
            return;
        }
        let at = state.sent_at;
        self.sent = Some(match self.sent {
            None => (at, at),
            Some((earliest, latest)) => (earliest.min(at), latest.max(at)),
        });
    }
}

/// The segments from the first unacknowledged one to the last one sent.
#[derive(Debug, Default)]
pub(super) struct Scoreboard {
    first: u64,
    segments: VecDeque<SegmentState>,
    sacked: SegmentSet,
    /// Copies of all segments that are probably in flight (RFC 6675 `pipe`).
    pipe: u64,
    bytes: u64,
    /// All unSACKed segments before it are marked as lost.
    loss_edge: u64,
    /// Every segment before it is SACKed, or retransmitted and not lost again.
    resend_cursor: u64,
    /// Retransmitted segments, each with the next new segment at that time.
    retransmissions: VecDeque<(u64, u64)>,
    /// A retransmission that is lost waits for the timer.
    leaves_repeats_to_timer: bool,
}

impl Scoreboard {
    pub(super) fn new(recovery: LossRecovery) -> Self {
        Self {
            leaves_repeats_to_timer: recovery == LossRecovery::SackAndTimer,
            ..Self::default()
        }
    }

    /// The first segment that is not cumulatively acknowledged (RFC 6675 `HighACK` + 1).
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// The next new segment (RFC 6675 `HighData` + 1).
    pub(super) fn next(&self) -> u64 {
        self.first + self.outstanding()
    }

    /// Number of segments sent and not cumulatively acknowledged (RFC 5681 `FlightSize`).
    pub(super) fn outstanding(&self) -> u64 {
        self.segments.len() as u64
    }

    /// Payload of these segments, bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of copies that are probably in flight (RFC 6675 `pipe`).
    pub(super) fn pipe(&self) -> u64 {
        self.pipe
    }

    /// Records the transmission of the next new segment; returns its number.
    pub(super) fn send(&mut self, now: Duration, bytes: u32) -> u64 {
        let segment = self.next();
        self.segments.push_back(SegmentState {
            sent_at: now,
            bytes,
            copies: 1,
            sacked: false,
            lost: false,
            resent: false,
            ambiguous: false,
        });
        self.pipe += 1;
        self.bytes += u64::from(bytes);
        segment
    }

    /// Records a retransmission of `segment`; returns its payload.
    pub(super) fn resend(&mut self, now: Duration, segment: u64) -> u32 {
        self.pipe += 1;
        // The next new segment marks the time of the retransmission; see `mark_lost_again`.
        if !self.leaves_repeats_to_timer {
            self.retransmissions.push_back((segment, self.next()));
        }
        let state = self.state(segment);
        state.sent_at = now;
        state.copies = state.copies.saturating_add(1);
        state.resent = true;
        state.ambiguous = true;
        state.bytes
    }

    /// Processes an acknowledgement of all segments before `next`, with the SACK `blocks`.
    pub(super) fn acknowledge(&mut self, next: u64, blocks: &[SegmentRange]) -> AckResult {
        let mut delivered = AckResult::default();
        while self.first < next
            && let Some(state) = self.segments.pop_front()
        {
            delivered.note(&state);
            delivered.acked += 1;
            delivered.acked_bytes += u64::from(state.bytes);
            self.pipe -= u64::from(state.copies);
            self.first += 1;
        }
        self.bytes -= delivered.acked_bytes;
        self.sacked.forget_before(self.first);
        self.loss_edge = self.loss_edge.max(self.first);
        self.resend_cursor = self.resend_cursor.max(self.first);
        for block in blocks {
            self.sack(*block, &mut delivered);
        }
        self.mark_losses();
        delivered
    }

    fn sack(&mut self, block: SegmentRange, delivered: &mut AckResult) {
        let known = SegmentRange {
            start: block.start.max(self.first),
            end: block.end.min(self.next()),
        };
        let (first, segments, pipe) = (self.first, &mut self.segments, &mut self.pipe);
        self.sacked.insert(known, |fresh| {
            for segment in fresh.start..fresh.end {
                let Some(state) = segments.get_mut(index(first, segment)) else {
                    continue;
                };
                delivered.note(state);
                delivered.sacked += 1;
                *pipe -= u64::from(state.copies);
                state.copies = 0;
                state.sacked = true;
            }
        });
    }

    /// Marks segments as lost (RFC 6675 `IsLost`): those with at least [`DUP_THRESH`] later SACKed
    /// segments.
    fn mark_losses(&mut self) {
        let Some(edge) = self.sacked.nth_highest(DUP_THRESH) else {
            return;
        };
        for segment in self.loss_edge..edge {
            let state = self.state(segment);
            if !state.sacked && !state.lost {
                state.lost = true;
                // Only the original leaves the pipe; a retransmission may still be in flight.
                let original = state.copies.min(1);
                state.copies -= original;
                self.pipe -= u64::from(original);
            }
        }
        self.loss_edge = self.loss_edge.max(edge);
        self.mark_lost_again(edge);
    }

    /// Marks a retransmission as lost if [`DUP_THRESH`] new segments that were sent after it are SACKed.
    /// RFC 6675 leaves this case to the timer; Linux and ns-2 do not.
    fn mark_lost_again(&mut self, edge: u64) {
        while let Some(&(segment, next)) = self.retransmissions.front()
            && next <= edge
        {
            self.retransmissions.pop_front();
            if segment < self.first {
                continue;
            }
            let state = self.state(segment);
            if state.sacked {
                continue;
            }
            // All copies are gone: the SACKed segments were sent after the retransmission.
            let copies = std::mem::take(&mut state.copies);
            state.lost = true;
            state.resent = false;
            self.pipe -= u64::from(copies);
            self.resend_cursor = self.resend_cursor.min(segment);
        }
    }

    /// Whether the first outstanding segment is considered lost.
    pub(super) fn is_first_lost(&self) -> bool {
        self.segments.front().is_some_and(|state| state.lost)
    }

    /// Marks all unSACKed segments as lost, after a retransmission timeout.
    pub(super) fn mark_all_lost(&mut self) {
        for state in &mut self.segments {
            state.lost = !state.sacked;
            state.resent = false;
            state.copies = 0;
        }
        // After a timeout nothing is assumed to be in flight (RFC 6675 section 5.1).
        self.pipe = 0;
        self.loss_edge = self.next();
        self.resend_cursor = self.first;
        self.retransmissions.clear();
    }

    /// The first outstanding segment, lost or not, if it is not retransmitted yet.
    pub(super) fn head_to_resend(&self) -> Option<u64> {
        let head = self.segments.front()?;
        (!head.resent && !head.sacked).then_some(self.first)
    }

    /// The next lost segment to retransmit (RFC 6675 `NextSeg` rule 1).
    pub(super) fn next_lost(&mut self) -> Option<u64> {
        self.next_unresent(self.loss_edge)
    }

    /// The next segment with a later SACKed one, lost or not (RFC 6675 `NextSeg` rule 3).
    pub(super) fn next_hole(&mut self) -> Option<u64> {
        let highest = self.sacked.nth_highest(1)?;
        self.next_unresent(highest)
    }

    /// The last segment that is not SACKed (RFC 6675 `NextSeg` rule 4).
    pub(super) fn last_unsacked(&self) -> Option<u64> {
        let back = self.segments.iter().rev().position(|state| !state.sacked)?;
        Some(self.next() - 1 - back as u64)
    }

    fn next_unresent(&mut self, end: u64) -> Option<u64> {
        while self.resend_cursor < end {
            let segment = self.resend_cursor;
            let state = self.state(segment);
            if !state.sacked && !state.resent {
                return Some(segment);
            }
            self.resend_cursor += 1;
        }
        None
    }

    /// The state of `segment`, which must be outstanding.
    fn state(&mut self, segment: u64) -> &mut SegmentState {
        &mut self.segments[index(self.first, segment)]
    }
}

/// The index of `segment` in the segments from `first` on.
fn index(first: u64, segment: u64) -> usize {
    usize::try_from(segment - first).unwrap_or(usize::MAX)
}
