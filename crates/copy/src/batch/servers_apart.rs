//! Servers of a batch that cannot connect to each other: what moves between them passes through this machine.

use std::collections::HashMap;

use ftp::Failure;
use ftp::location::StorageId;
use parking_lot::Mutex;

use crate::storage::contract::Storage;

/// The pairs of servers that have tried to connect to each other, each the source first.
#[derive(Debug, Default)]
pub(crate) struct ServersApart(Mutex<HashMap<(StorageId, StorageId), ServerPairLink>>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum ServerPairLink {
    /// Data has moved between them.
    Connected,
    /// None has, for this reason.
    Apart(String),
}

impl ServersApart {
    /// Two servers have failed to connect to each other. Returns whether they are apart: those that have connected before may
    /// again.
    pub(crate) fn add(&self, from: &StorageId, to: &StorageId, failure: &Failure) -> bool {
        let mut pairs = self.0.lock();
        let pair = (from.clone(), to.clone());
        let found = || ServerPairLink::Apart(failure.reason().to_string());
        *pairs.entry(pair).or_insert_with(found) != ServerPairLink::Connected
    }

    /// Data has moved between two servers.
    pub(crate) fn note_connected(&self, from: &StorageId, to: &StorageId) {
        let pair = (from.clone(), to.clone());
        self.0.lock().insert(pair, ServerPairLink::Connected);
    }

    /// Why two servers are apart; `None`: they are not known to be.
    pub(crate) fn reason(&self, from: &StorageId, to: &StorageId) -> Option<String> {
        let pairs = self.0.lock();
        // Most batches have none.
        let pair = (!pairs.is_empty()).then(|| (from.clone(), to.clone()))?;
        match pairs.get(&pair)? {
            ServerPairLink::Connected => None,
            ServerPairLink::Apart(reason) => Some(reason.clone()),
        }
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
            && self.reason(from_id, to_id).is_none()
    }
}
