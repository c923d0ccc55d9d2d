//! Memory for listings, shared by all sessions: a listing is held until the client has read it, and
//! how fast that goes is the client's choice.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// All listings together, MiB.
const ROOM: usize = 1024;

/// One MiB is free of charge, so that small listings never wait for large ones.
const MIB: usize = 1 << 20;

/// Memory left for listings, one permit per MiB.
#[derive(Debug, Clone)]
pub struct ListingMemory(Arc<Semaphore>);

impl Default for ListingMemory {
    fn default() -> Self {
        Self::new(ROOM)
    }
}

impl ListingMemory {
    /// Of so many MiB.
    pub fn new(mib: usize) -> Self {
        Self(Arc::new(Semaphore::new(mib)))
    }

    /// A share with nothing in it yet.
    pub(super) fn share(&self) -> ListingMemoryShare {
        ListingMemoryShare {
            room: self.clone(),
            taken: None,
        }
    }
}

/// Memory of one listing; given back when dropped.
#[derive(Debug)]
pub struct ListingMemoryShare {
    room: ListingMemory,
    taken: Option<OwnedSemaphorePermit>,
}

impl ListingMemoryShare {
    /// Makes room for a listing of so many bytes; `false` when there is none.
    pub(super) fn reserve(&mut self, bytes: usize) -> bool {
        while self
            .taken
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits)
            < bytes / MIB
        {
            let Ok(more) = Arc::clone(&self.room.0).try_acquire_owned() else {
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
    fn is_shared_and_given_back() {
        let room = ListingMemory::default();
        let mut large = room.share();
        assert!(large.reserve(ROOM * MIB));
        let mut other = room.share();
        assert!(other.reserve(MIB - 1), "small ones always fit");
        assert!(!other.reserve(MIB));
        drop(large);
        assert!(other.reserve(MIB));
    }
}
