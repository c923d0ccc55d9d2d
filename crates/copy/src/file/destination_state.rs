//! Decides which bytes of a failed attempt are kept.
//!
//! A lost connection does not cast doubt on the bytes that arrived: TCP delivered them, and the
//! next attempt continues after them. Three other endings do: a refusal (a 4xx or 5xx reply after
//! the data), a 226 although the data did not end properly, and a connection that ends without a
//! 226. In these cases a byte count proves nothing. The bytes are kept only if a checksum of the
//! whole file will be compared, and are sent again otherwise.

use proto::ranges::RangeSet;

use crate::local::journal::{Journal, StoredRanges};
use ftp::transfer::TransferConfirmation;

/// Verdict on the bytes of a failed attempt.
#[derive(Debug, PartialEq, Eq)]
enum KeptRanges {
    /// These ranges are safe.
    Safe(RangeSet),
    /// These ranges have arrived, but only a checksum can prove them.
    Unconfirmed(RangeSet),
    /// Only these ranges are safe. The unconfirmed bytes of the attempt are sent again.
    ConfirmedOnly(RangeSet),
}

/// State of a destination over the attempts of a copy.
#[derive(Debug, Default)]
pub(crate) struct DestinationState {
    /// Tells a later run which bytes are safe. `None` if no journal is written.
    pub(crate) journal: Option<Journal>,
    /// Ranges that are safe at the destination.
    pub(crate) safe: RangeSet,
    /// Some of the safe ranges are from an earlier run.
    pub(crate) resumed: bool,
    /// Nothing of an earlier run may be used.
    pub(crate) ignore_leftovers: bool,
    /// Some of the safe ranges came in an attempt that a peer did not confirm. A checksum must
    /// prove them.
    pub(crate) unconfirmed: bool,
    /// The bytes of the last attempt are sent again.
    pub(crate) attempt_wasted: bool,
    /// The file was restarted once after a mismatch.
    started_over: bool,
}

impl DestinationState {
    /// Records a failed attempt according to [`ranges_after_failure`]. Returns the ranges that
    /// remain safe if the attempt's bytes do not count.
    pub(crate) fn record_failed_attempt(
        &mut self,
        stored: &RangeSet,
        confirmation: &TransferConfirmation,
        size: Option<u64>,
        has_checksum: bool,
    ) -> Option<RangeSet> {
        match ranges_after_failure(&self.safe, stored, confirmation, size, has_checksum) {
            KeptRanges::Safe(all) => self.safe = all,
            KeptRanges::Unconfirmed(all) => {
                self.safe = all;
                self.unconfirmed = true;
            }
            KeptRanges::ConfirmedOnly(safe) => return Some(safe),
        }
        None
    }

    /// Keeps only the ranges `safe`.
    pub(crate) fn retract_to(&mut self, safe: RangeSet) {
        self.attempt_wasted = true;
        if let Some(journal) = &mut self.journal
            && let Err(error) = journal.retract_to(&StoredRanges::safe_only(safe.clone()))
        {
            tracing::debug!("journal: {error}");
        }
        self.safe = safe;
    }

    /// Takes ranges that differ from the source out of the safe ones. `synced`: those of the safe ranges that are on
    /// disk. What was resumed is proved or out by now.
    pub(crate) fn remove_wrong(&mut self, wrong: &RangeSet, synced: &RangeSet) {
        for range in wrong.iter() {
            self.safe.remove(range.start, range.end);
        }
        self.resumed = false;
        let ranges = StoredRanges {
            safe: self.safe.clone(),
            synced: synced.clone(),
        };
        if let Some(journal) = &mut self.journal
            && let Err(error) = journal.retract_to(&ranges)
        {
            tracing::debug!("journal: {error}");
        }
    }

    /// Removes the journal: there is nothing to resume, or the file is complete.
    pub(crate) fn remove_journal(&mut self) {
        if let Some(journal) = self.journal.take() {
            journal.remove();
        }
    }

    /// Discards all ranges if some were resumed, or once if some are unconfirmed or the copy `differs` from its source
    /// and nothing shows where. Returns `false` otherwise.
    pub(crate) fn start_over(&mut self, differs: bool) -> bool {
        let resumed = std::mem::take(&mut self.resumed);
        let doubtful = std::mem::take(&mut self.unconfirmed) || differs;
        if !resumed && (!doubtful || self.started_over) {
            return false;
        }
        self.started_over = true;
        self.ignore_leftovers = true;
        // The file stays: `Journal::start_new` removes it durably before anything is written.
        self.journal = None;
        self.safe = RangeSet::new();
        true
    }
}

/// Decides what counts after a failed attempt. `before` was safe when it began, `stored` came
/// during it, `size` is that of the whole file. `has_checksum`: a checksum of the whole file will
/// be compared at the end.
fn ranges_after_failure(
    before: &RangeSet,
    stored: &RangeSet,
    confirmation: &TransferConfirmation,
    size: Option<u64>,
    has_checksum: bool,
) -> KeptRanges {
    if confirmation.has_misplaced() {
        return KeptRanges::ConfirmedOnly(before.clone());
    }
    let mut all = before.clone();
    all.extend(stored);
    // All bytes are there, so no further data transfer can bring the missing 226.
    let is_complete = size.is_some_and(|size| all.contains(0, size));
    if !confirmation.was_refused() && !is_complete {
        return KeptRanges::Safe(all);
    }
    if has_checksum {
        return KeptRanges::Unconfirmed(all);
    }
    let mut safe = before.clone();
    safe.extend(&confirmation.confirmed());
    KeptRanges::ConfirmedOnly(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(text: &str) -> RangeSet {
        RangeSet::parse(text).unwrap()
    }

    fn kept(stored: &str, confirmation: &TransferConfirmation, has_checksum: bool) -> KeptRanges {
        ranges_after_failure(
            &ranges("0-10"),
            &ranges(stored),
            confirmation,
            Some(100),
            has_checksum,
        )
    }

    #[test]
    fn a_lost_connection_keeps_the_bytes_that_arrived() {
        let confirmation = TransferConfirmation::default();
        for has_checksum in [false, true] {
            assert_eq!(
                kept("10-60", &confirmation, has_checksum),
                KeptRanges::Safe(ranges("0-60"))
            );
        }
    }

    #[test]
    fn a_refusal_drops_bytes_that_no_checksum_will_verify() {
        let confirmation = TransferConfirmation::default();
        confirmation.mark_refused();
        let with_checksum = kept("10-60", &confirmation, true);
        assert_eq!(with_checksum, KeptRanges::Unconfirmed(ranges("0-60")));
        assert_eq!(
            kept("10-60", &confirmation, false),
            KeptRanges::ConfirmedOnly(ranges("0-10"))
        );
        assert_eq!(
            kept("10-100", &confirmation, false),
            KeptRanges::ConfirmedOnly(ranges("0-10"))
        );
    }

    #[test]
    fn all_bytes_without_a_226_are_not_a_complete_file() {
        let confirmation = TransferConfirmation::default();
        assert_eq!(
            kept("10-100", &confirmation, false),
            KeptRanges::ConfirmedOnly(ranges("0-10"))
        );
        let with_checksum = kept("10-100", &confirmation, true);
        assert_eq!(with_checksum, KeptRanges::Unconfirmed(ranges("0-100")));
    }

    #[test]
    fn chunks_confirmed_by_226_survive_the_refusal_of_another_chunk() {
        let confirmation = TransferConfirmation::default();
        confirmation.confirm_range(10, 40);
        confirmation.mark_refused();
        let left = kept("10-60", &confirmation, false);
        assert_eq!(left, KeptRanges::ConfirmedOnly(ranges("0-40")));
    }
}
