//! The bytes of an attempt that the peers confirmed or refused.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use proto::ranges::RangeSet;

use super::outcome::FailedTransfer;

/// Reports of the peers and of this machine's store about an attempt, which decide which bytes are kept.
/// A checksum overrules a refusal; a count of bytes never does.
#[derive(Debug, Default)]
pub struct TransferConfirmation {
    refused: AtomicBool,
    store_failed: AtomicBool,
    misplaced: AtomicBool,
    confirmed: Mutex<RangeSet>,
}

impl TransferConfirmation {
    /// Records that a peer refused, or contradicted itself: bytes that it did not confirm need a
    /// checksum.
    pub fn mark_refused(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// Records that bytes may be at other offsets than their own, also confirmed ones.
    pub fn mark_misplaced(&self) {
        self.misplaced.store(true, Ordering::Relaxed);
    }

    /// Records how an exchange failed.
    pub(super) fn record_failure(&self, failed: &FailedTransfer) {
        if failed.disputed {
            self.mark_refused();
        }
        if failed.store_failed {
            self.store_failed.store(true, Ordering::Relaxed);
        }
        if failed.overrun {
            self.mark_misplaced();
        }
    }

    /// Records that a chunk ended with 226, which confirms these bytes of the destination.
    pub fn confirm_range(&self, start: u64, end: u64) {
        let mut confirmed = self.confirmed.lock();
        confirmed.insert(start, end);
    }

    /// Whether a peer refused.
    pub fn was_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Whether reading or writing this machine's store failed: bytes that it accepted before may be
    /// lost.
    pub fn has_store_failed(&self) -> bool {
        self.store_failed.load(Ordering::Relaxed)
    }

    /// Whether bytes may be at other offsets than their own, so that nothing of the attempt counts.
    pub fn has_misplaced(&self) -> bool {
        self.misplaced.load(Ordering::Relaxed)
    }

    /// Bytes of the destination in chunks that ended with 226.
    pub fn confirmed(&self) -> RangeSet {
        self.confirmed.lock().clone()
    }
}
