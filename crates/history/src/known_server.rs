//! A server at the end of a path, about which something is known.

use serde::{Deserialize, Serialize};

use crate::path_key::PathKey;

/// A server, and when it was seen so: `time` is seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownServer {
    #[serde(flatten)]
    pub(crate) key: PathKey,
    pub(crate) port: u16,
    pub(crate) time: u64,
}

impl KnownServer {
    /// Whether this program can have written it. A file may hold anything.
    pub(crate) fn is_sound(&self) -> bool {
        self.key.is_canonical()
    }

    /// Whether it is that with this key and port.
    pub(crate) fn is_of(&self, key: &PathKey, port: u16) -> bool {
        self.key == *key && self.port == port
    }

    /// Whether it was seen within so many seconds before `now`.
    pub(crate) fn is_of_last(&self, seconds: u64, now: u64) -> bool {
        now.checked_sub(self.time).is_some_and(|age| age <= seconds)
    }
}
