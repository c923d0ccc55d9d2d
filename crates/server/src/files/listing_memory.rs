//! A memory budget for listings in replies, shared by all sessions. A listing is held until the client
//! has read it, and the client decides how fast it reads.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory of all listings together, MiB.
const BUDGET_MIB: usize = 1024;

/// One MiB. The first MiB of each listing is not counted, so large listings never make small ones
/// fail.
const MIB: usize = 1 << 20;

/// The memory budget, one permit per MiB.
#[derive(Debug, Clone)]
pub struct ListingMemory(Arc<Semaphore>);

impl Default for ListingMemory {
    fn default() -> Self {
        Self::new(BUDGET_MIB)
    }
}

impl ListingMemory {
    /// A budget of `mib` MiB.
    pub fn new(mib: usize) -> Self {
        Self(Arc::new(Semaphore::new(mib)))
    }

    /// A share that reserves nothing yet.
    pub(super) fn share(&self) -> ListingMemoryShare {
        ListingMemoryShare {
            listing_memory: self.clone(),
            taken: None,
        }
    }
}

/// The memory reserved for one listing; dropping it returns the memory.
#[derive(Debug)]
pub struct ListingMemoryShare {
    listing_memory: ListingMemory,
    taken: Option<OwnedSemaphorePermit>,
}

impl ListingMemoryShare {
    /// Extends the reservation to `bytes`; `false` if the budget is exhausted.
    pub(super) fn reserve(&mut self, bytes: usize) -> bool {
        while self
            .taken
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits)
            < bytes / MIB
        {
            let Ok(more) = Arc::clone(&self.listing_memory.0).try_acquire_owned() else {
                return false;
            };
            match &mut self.taken {
                Some(taken) => taken.merge(more),
                None => self.taken = Some(more),
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_shared_and_dropping_a_share_returns_it() {
        let listing_memory = ListingMemory::default();
        let mut large = listing_memory.share();
        assert!(large.reserve(BUDGET_MIB * MIB));
        let mut other = listing_memory.share();
        assert!(other.reserve(MIB - 1), "the first MiB is always free");
        assert!(!other.reserve(MIB));
        drop(large);
        assert!(other.reserve(MIB));
    }
}
