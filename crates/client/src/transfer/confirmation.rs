//! Which bytes of an attempt the peers and this machine's store vouched for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use proto::ranges::RangeSet;

use super::outcome::FailedTransfer;

/// Word of the peers on an attempt, for whoever decides what of it is kept. A checksum outvotes a
/// refusal; a count of bytes never does.
#[derive(Debug, Default)]
pub struct TransferConfirmation {
    refused: AtomicBool,
    store_failed: AtomicBool,
    confirmed: Mutex<RangeSet>,
}

impl TransferConfirmation {
    /// A peer refused, or contradicted itself: bytes that it did not confirm need a proof.
    pub(crate) fn mark_refused(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// Notes how an exchange failed.
    pub(super) fn record_failure(&self, ended: &FailedTransfer) {
        if ended.disputed {
            self.mark_refused();
        }
        if ended.store_failed {
            self.store_failed.store(true, Ordering::Relaxed);
        }
    }

    /// A chunk ended with 226: these bytes of the destination are confirmed.
    pub(crate) fn confirm_range(&self, start: u64, end: u64) {
        let mut confirmed = self
            .confirmed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        confirmed.insert(start, end);
    }

    /// Whether a peer refused.
    pub(crate) fn was_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Whether this machine's store refused to be read or written: what it took before may be lost.
    pub(crate) fn has_store_failed(&self) -> bool {
        self.store_failed.load(Ordering::Relaxed)
    }

    /// Bytes of the destination in chunks that ended with 226.
    pub(crate) fn confirmed(&self) -> RangeSet {
        self.confirmed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
