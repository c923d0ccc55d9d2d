//! Servers of a batch that cannot connect to each other: what moves between them passes through this machine.

use std::collections::HashSet;

use ftp::location::StorageId;
use parking_lot::Mutex;

use crate::storage::contract::Storage;

/// The pairs of servers that are known to be apart, each the source first.
#[derive(Debug, Default)]
pub(crate) struct ServersApart(Mutex<HashSet<(StorageId, StorageId)>>);

impl ServersApart {
    /// Two servers have failed to connect to each other.
    pub(crate) fn add(&self, from: &StorageId, to: &StorageId) {
        self.0.lock().insert((from.clone(), to.clone()));
    }

    /// Whether two servers have failed to connect to each other.
    pub(crate) fn contains(&self, from: &StorageId, to: &StorageId) -> bool {
        let pairs = self.0.lock();
        !pairs.is_empty() && pairs.contains(&(from.clone(), to.clone()))
    }

    /// Whether two storages can move bytes between themselves, as far as known.
    pub(crate) fn may_connect(
        &self,
        (from_id, from): (&StorageId, &dyn Storage),
        (to_id, to): (&StorageId, &dyn Storage),
    ) -> bool {
        let protocol = from.capabilities().third_party;
        protocol.is_some()
            && protocol == to.capabilities().third_party
            && !self.contains(from_id, to_id)
    }
}
