//! The number of sessions that a server was seen to allow.

use serde::{Deserialize, Serialize};

use crate::path_key::PathKey;

/// A server lets a user have other limits later: how long one is obeyed, seconds.
const EXPIRES_AFTER: u64 = 14 * 86_400;
/// Most sessions that a file may name; more is nonsense.
const MAX_SESSIONS: u64 = 10_000;

/// A limit of one server, as the file holds it. `time` is seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionLimit {
    #[serde(flatten)]
    pub(crate) key: PathKey,
    pub(crate) port: u16,
    pub(crate) sessions: u64,
    pub(crate) time: u64,
}

impl SessionLimit {
    /// Whether this program can have written it. A file may hold anything.
    pub(crate) fn is_sound(&self) -> bool {
        self.key.is_canonical() && (1..=MAX_SESSIONS).contains(&self.sessions)
    }

    /// Whether it is that of the server with this key and port.
    pub(crate) fn is_of(&self, key: &PathKey, port: u16) -> bool {
        self.key == *key && self.port == port
    }

    /// Whether it still counts.
    pub(crate) fn counts_at(&self, now: u64) -> bool {
        now.checked_sub(self.time)
            .is_some_and(|age| age <= EXPIRES_AFTER)
    }
}
