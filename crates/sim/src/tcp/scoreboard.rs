//! Knowledge of a sender about every segment in flight: RFC 6675's scoreboard, in constant time a
//! segment.

use std::collections::VecDeque;
use std::time::Duration;

use super::segment_set::{SegmentRange, SegmentSet};

/// Segments that must have overtaken one before it counts as lost (RFC 6675: `DupThresh`).
pub(super) const DUP_THRESH: u64 = 3;

/// One segment that was sent and not yet cumulatively acknowledged.
#[derive(Debug, Clone, Copy)]
struct SegmentState {
    sent_at: Duration,
    bytes: u32,
    /// Copies believed to be on the way.
    copies: u8,
    sacked: bool,
    lost: bool,
    /// Sent again, and that copy is not believed to be lost.
    resent: bool,
    /// Ever sent again: no round trip can be told from it (Karn).
    ambiguous: bool,
}

/// News of an acknowledgement.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AckResult {
    /// Segments that are cumulatively acknowledged now and were not before.
    pub(super) acked: u64,
    /// Payload of them.
    pub(super) acked_bytes: u64,
    /// Segments that were selectively acknowledged for the first time.
    pub(super) sacked: u64,
    /// When the earliest and the latest of them were sent, those sent more than once left out.
    pub(super) sent: Option<(Duration, Duration)>,
}

impl AckResult {
    fn note(&mut self, slot: &SegmentState) {
        if slot.sacked || slot.ambiguous {
            return;
        }
        let at = slot.sent_at;
        self.sent = Some(match self.sent {
            None => (at, at),
            Some((earliest, latest)) => (earliest.min(at), latest.max(at)),
        });
    }
}

/// The segments from the first unacknowledged to the last that was sent.
#[derive(Debug, Default)]
pub(super) struct Scoreboard {
    first: u64,
    slots: VecDeque<SegmentState>,
    sacked: SegmentSet,
    /// Copies believed to be on the way, of all segments.
    pipe: u64,
    bytes: u64,
    /// Segments before it that were not SACKed are marked as lost.
    loss_edge: u64,
    /// Every segment before it was SACKed, or sent again and not lost again.
    cursor: u64,
    /// Segments that were sent again, each with the next new one at that time.
    retransmissions: VecDeque<(u64, u64)>,
}

impl Scoreboard {
    /// The first segment that is not cumulatively acknowledged (RFC 6675: `HighACK` + 1).
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// The next segment to be sent for the first time (`HighData` + 1).
    pub(super) fn next(&self) -> u64 {
        self.first + self.outstanding()
    }

    /// Segments sent and not cumulatively acknowledged (`FlightSize`).
    pub(super) fn outstanding(&self) -> u64 {
        self.slots.len() as u64
    }

    /// Payload of them.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Segments believed to be on the way.
    pub(super) fn pipe(&self) -> u64 {
        self.pipe
    }

    /// Records that the next segment goes out for the first time.
    pub(super) fn send(&mut self, now: Duration, bytes: u32) -> u64 {
        let segment = self.next();
        self.slots.push_back(SegmentState {
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

    /// Records that `segment` goes out again; its payload.
    pub(super) fn resend(&mut self, now: Duration, segment: u64) -> u32 {
        self.pipe += 1;
        self.retransmissions.push_back((segment, self.next()));
        let slot = self.slot(segment);
        slot.sent_at = now;
        slot.copies = slot.copies.saturating_add(1);
        slot.resent = true;
        slot.ambiguous = true;
        slot.bytes
    }

    /// Takes an acknowledgement of everything before `next`, and of `blocks`.
    pub(super) fn acknowledge(&mut self, next: u64, blocks: &[SegmentRange]) -> AckResult {
        let mut delivered = AckResult::default();
        while self.first < next
            && let Some(slot) = self.slots.pop_front()
        {
            delivered.note(&slot);
            delivered.acked += 1;
            delivered.acked_bytes += u64::from(slot.bytes);
            self.pipe -= u64::from(slot.copies);
            self.first += 1;
        }
        self.bytes -= delivered.acked_bytes;
        self.sacked.forget_before(self.first);
        self.loss_edge = self.loss_edge.max(self.first);
        self.cursor = self.cursor.max(self.first);
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
        let (first, slots, pipe) = (self.first, &mut self.slots, &mut self.pipe);
        self.sacked.insert(known, |fresh| {
            for segment in fresh.start..fresh.end {
                let Some(slot) = slots.get_mut(index(first, segment)) else {
                    continue;
                };
                delivered.note(slot);
                delivered.sacked += 1;
                *pipe -= u64::from(slot.copies);
                slot.copies = 0;
                slot.sacked = true;
            }
        });
    }

    /// RFC 6675 `IsLost`: at least [`DUP_THRESH`] segments after it have been SACKed.
    fn mark_losses(&mut self) {
        let Some(edge) = self.sacked.nth_highest(DUP_THRESH) else {
            return;
        };
        for segment in self.loss_edge..edge {
            let slot = self.slot(segment);
            if !slot.sacked && !slot.lost {
                slot.lost = true;
                let original = slot.copies.min(1);
                slot.copies -= original;
                self.pipe -= u64::from(original);
            }
        }
        self.loss_edge = self.loss_edge.max(edge);
        self.mark_lost_again(edge);
    }

    /// A retransmission is lost if [`DUP_THRESH`] segments that were first sent after it have been
    /// SACKed. RFC 6675 leaves it to the timer; Linux and ns-2 do not.
    fn mark_lost_again(&mut self, edge: u64) {
        while let Some(&(segment, next)) = self.retransmissions.front()
            && next <= edge
        {
            self.retransmissions.pop_front();
            if segment < self.first {
                continue;
            }
            let slot = self.slot(segment);
            if slot.sacked {
                continue;
            }
            let copies = std::mem::take(&mut slot.copies);
            slot.lost = true;
            slot.resent = false;
            self.pipe -= u64::from(copies);
            self.cursor = self.cursor.min(segment);
        }
    }

    /// The first outstanding segment is believed to be lost.
    pub(super) fn is_first_lost(&self) -> bool {
        self.slots.front().is_some_and(|slot| slot.lost)
    }

    /// The retransmission timer expired: all that was not SACKed is lost.
    pub(super) fn mark_all_lost(&mut self) {
        for slot in &mut self.slots {
            slot.lost = !slot.sacked;
            slot.resent = false;
            slot.copies = 0;
        }
        self.pipe = 0;
        self.loss_edge = self.next();
        self.cursor = self.first;
        self.retransmissions.clear();
    }

    /// The first segment, lost or not, if it was not sent again yet.
    pub(super) fn head_to_resend(&self) -> Option<u64> {
        let head = self.slots.front()?;
        (!head.resent && !head.sacked).then_some(self.first)
    }

    /// The next lost segment to send again (RFC 6675 `NextSeg` rule 1).
    pub(super) fn next_lost(&mut self) -> Option<u64> {
        self.next_unresent(self.loss_edge)
    }

    /// The next segment with a SACKed one after it, lost or not (rule 3).
    pub(super) fn next_hole(&mut self) -> Option<u64> {
        let highest = self.sacked.nth_highest(1)?;
        self.next_unresent(highest)
    }

    /// The last segment that was not SACKed (rule 4).
    pub(super) fn last_unsacked(&self) -> Option<u64> {
        let back = self.slots.iter().rev().position(|slot| !slot.sacked)?;
        Some(self.next() - 1 - back as u64)
    }

    fn next_unresent(&mut self, end: u64) -> Option<u64> {
        while self.cursor < end {
            let segment = self.cursor;
            let slot = self.slot(segment);
            if !slot.sacked && !slot.resent {
                return Some(segment);
            }
            self.cursor += 1;
        }
        None
    }

    /// `segment` is outstanding.
    fn slot(&mut self, segment: u64) -> &mut SegmentState {
        &mut self.slots[index(self.first, segment)]
    }
}

/// Where `segment` is among the slots.
fn index(first: u64, segment: u64) -> usize {
    usize::try_from(segment - first).unwrap_or(usize::MAX)
}
