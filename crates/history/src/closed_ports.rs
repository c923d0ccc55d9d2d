//! Hosts of which no port could be reached beside that of ssh.

use serde::{Deserialize, Serialize};

use crate::path_key::PathKey;

/// A firewall changes rarely, and each run searches again, with less patience alone: how long that counts, seconds.
const EXPIRES_AFTER: u64 = 7 * 86_400;

/// A host without open ports, as the file holds it. `time` is seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClosedPorts {
    #[serde(flatten)]
    pub(crate) key: PathKey,
    /// That of ssh.
    pub(crate) port: u16,
    pub(crate) time: u64,
}

impl ClosedPorts {
    /// Whether this program can have written it. A file may hold anything.
    pub(crate) fn is_sound(&self) -> bool {
        self.key.is_canonical()
    }

    /// Whether it is that of the host with this key and port.
    pub(crate) fn is_of(&self, key: &PathKey, port: u16) -> bool {
        self.key == *key && self.port == port
    }

    /// Whether it still counts.
    pub(crate) fn counts_at(&self, now: u64) -> bool {
        now.checked_sub(self.time)
            .is_some_and(|age| age <= EXPIRES_AFTER)
    }
}
