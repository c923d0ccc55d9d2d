//! The bytes of a failed attempt that are kept.
//!
//! A lost connection says nothing against the bytes that arrived: TCP delivered them, and the next
//! attempt goes on after them. A refusal (a 4xx or 5xx after the data), a 226 beside data that did not
//! end, and an end without 226 do: there a count of bytes proves nothing. Such bytes are kept only
//! where a checksum of the whole will judge them, and are sent again where none will.

use proto::ranges::RangeSet;

use crate::journal::{Journal, StoredRanges};
use crate::transfer::TransferConfirmation;

/// The verdict on the bytes of a failed attempt.
#[derive(Debug, PartialEq, Eq)]
enum KeptRanges {
    /// These ranges are safe.
    Safe(RangeSet),
    /// These ranges are there, but only a checksum can call them safe.
    Disputed(RangeSet),
    /// Only these ranges are safe: the attempt's unconfirmed bytes are sent again.
    Dropped(RangeSet),
}

/// How a destination stands, over the attempts of a copy.
#[derive(Debug, Default)]
pub(super) struct DestinationState {
    /// Tells a later run what is safe; `None` where nothing is to be told.
    pub(super) journal: Option<Journal>,
    /// Safe at the destination.
    pub(super) have: RangeSet,
    /// Some of it is from an earlier run.
    pub(super) resumed: bool,
    /// Nothing of an earlier run is to be used.
    pub(super) distrust: bool,
    /// Some of what is safe came in an attempt that a peer did not stand by: a checksum must judge it.
    pub(super) disputed: bool,
    /// The last attempt's bytes are sent again.
    pub(super) in_vain: bool,
    /// A mismatch has led to a new beginning once.
    started_over: bool,
}

impl DestinationState {
    /// Weighs a failed attempt, as [`after_failure`]; `Some` of what alone is safe where the attempt's
    /// bytes do not count.
    pub(super) fn weigh(
        &mut self,
        arrived: &RangeSet,
        said: &TransferConfirmation,
        size: Option<u64>,
        judged: bool,
    ) -> Option<RangeSet> {
        match after_failure(&self.have, arrived, said, size, judged) {
            KeptRanges::Safe(all) => self.have = all,
            KeptRanges::Disputed(all) => {
                self.have = all;
                self.disputed = true;
            }
            KeptRanges::Dropped(safe) => return Some(safe),
        }
        None
    }

    /// Nothing but `safe` counts any more.
    pub(super) fn take_back(&mut self, safe: RangeSet) {
        self.in_vain = true;
        if let Some(journal) = &mut self.journal
            && let Err(error) = journal.retract_to(&StoredRanges::safe_only(safe.clone()))
        {
            tracing::debug!("journal: {error}");
        }
        self.have = safe;
    }

    /// Removes the journal: there is nothing to go on from any more, or everything is in place.
    pub(super) fn forget_journal(&mut self) {
        if let Some(journal) = self.journal.take() {
            journal.remove();
        }
    }

    /// Gives up what was resumed, or once what was disputed; `false` when nothing was.
    pub(super) fn forget_resumed(&mut self) -> bool {
        let resumed = std::mem::take(&mut self.resumed);
        let disputed = std::mem::take(&mut self.disputed) && !self.started_over;
        if !resumed && !disputed {
            return false;
        }
        self.started_over = true;
        self.distrust = true;
        self.journal = None;
        self.have = RangeSet::new();
        true
    }
}

/// Weighs a failed attempt: `before` was safe when it began, `arrived` came in it, `size` is that of
/// the whole; `judged`: a checksum of the whole will be compared at the end.
fn after_failure(
    before: &RangeSet,
    arrived: &RangeSet,
    said: &TransferConfirmation,
    size: Option<u64>,
    judged: bool,
) -> KeptRanges {
    let mut all = before.clone();
    all.extend(arrived);
    // Nothing is left to be sent that a 226 could confirm.
    let whole = size.is_some_and(|size| all.contains(0, size));
    if !said.was_refused() && !whole {
        return KeptRanges::Safe(all);
    }
    if judged {
        return KeptRanges::Disputed(all);
    }
    let mut safe = before.clone();
    safe.extend(&said.confirmed());
    KeptRanges::Dropped(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(text: &str) -> RangeSet {
        RangeSet::parse(text).unwrap()
    }

    fn kept(arrived: &str, said: &TransferConfirmation, judged: bool) -> KeptRanges {
        after_failure(&ranges("0-10"), &ranges(arrived), said, Some(100), judged)
    }

    #[test]
    fn a_lost_connection_keeps_what_arrived() {
        let said = TransferConfirmation::default();
        for judged in [false, true] {
            assert_eq!(
                kept("10-60", &said, judged),
                KeptRanges::Safe(ranges("0-60"))
            );
        }
    }

    #[test]
    fn a_refusal_takes_back_what_nothing_will_judge() {
        let said = TransferConfirmation::default();
        said.mark_refused();
        let sums = kept("10-60", &said, true);
        assert_eq!(sums, KeptRanges::Disputed(ranges("0-60")));
        assert_eq!(
            kept("10-60", &said, false),
            KeptRanges::Dropped(ranges("0-10"))
        );
        assert_eq!(
            kept("10-100", &said, false),
            KeptRanges::Dropped(ranges("0-10"))
        );
    }

    #[test]
    fn all_bytes_without_a_226_are_not_a_file() {
        let said = TransferConfirmation::default();
        assert_eq!(
            kept("10-100", &said, false),
            KeptRanges::Dropped(ranges("0-10"))
        );
        let sums = kept("10-100", &said, true);
        assert_eq!(sums, KeptRanges::Disputed(ranges("0-100")));
    }

    #[test]
    fn chunks_that_ended_with_226_survive_the_refusal_of_another() {
        let said = TransferConfirmation::default();
        said.confirm_range(10, 40);
        said.mark_refused();
        let left = kept("10-60", &said, false);
        assert_eq!(left, KeptRanges::Dropped(ranges("0-40")));
    }
}
