//! Memory for bytes on their way, shared by all transfers of a server.

use std::sync::atomic::{AtomicU64, Ordering};

/// Memory of all transfers together, besides what each has of its own, bytes.
const SHARED: u64 = 1 << 30;

/// The memory that is free. A transfer takes from it what lets it go ahead; with what it has of its own it goes on without.
#[derive(Debug)]
pub(super) struct TransferMemoryBudget {
    free: AtomicU64,
}

impl Default for TransferMemoryBudget {
    fn default() -> Self {
        Self::of(SHARED)
    }
}

impl TransferMemoryBudget {
    /// A budget of so many bytes.
    pub(super) fn of(bytes: u64) -> Self {
        Self {
            free: AtomicU64::new(bytes),
        }
    }

    /// Takes memory; `false`: there is not so much.
    pub(super) fn try_take(&self, bytes: u64) -> bool {
        let taken = self
            .free
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |free| {
                free.checked_sub(bytes)
            });
        taken.is_ok()
    }

    /// Gives memory back.
    pub(super) fn give_back(&self, bytes: u64) {
        self.free.fetch_add(bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_taken_is_free_again_when_it_is_given_back() {
        let budget = TransferMemoryBudget::of(10);
        assert!(budget.try_take(6));
        assert!(!budget.try_take(5));
        budget.give_back(6);
        assert!(budget.try_take(10));
    }
}
