//! Servers of a batch that cannot connect to each other: what moves between them passes through this machine.

use std::collections::HashMap;

use ftp::location::StorageId;
use parking_lot::Mutex;

use crate::storage::contract::Storage;

/// The pairs of servers that have tried to connect to each other, each the source first.
#[derive(Debug, Default)]
pub(crate) struct ServersApart(Mutex<HashMap<(StorageId, StorageId), ServerPairLink>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerPairLink {
    /// Data has moved between them.
    Connected,
    Apart,
}

impl ServersApart {
    /// Two servers have failed to connect to each other. Returns whether they are apart: those that have connected before may
    /// again.
    pub(crate) fn add(&self, from: &StorageId, to: &StorageId) -> bool {
        let mut pairs = self.0.lock();
        let pair = (from.clone(), to.clone());
        *pairs.entry(pair).or_insert(ServerPairLink::Apart) == ServerPairLink::Apart
    }

    /// Data has moved between two servers.
    pub(crate) fn note_connected(&self, from: &StorageId, to: &StorageId) {
        let pair = (from.clone(), to.clone());
        self.0.lock().insert(pair, ServerPairLink::Connected);
    }

    /// Whether two servers are known to be apart.
    pub(crate) fn contains(&self, from: &StorageId, to: &StorageId) -> bool {
        let pairs = self.0.lock();
        // Most batches have none.
        !pairs.is_empty() && pairs.get(&(from.clone(), to.clone())) == Some(&ServerPairLink::Apart)
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
