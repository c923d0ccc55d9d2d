//! The number of sessions that a server was seen to allow.

use serde::{Deserialize, Serialize};

use crate::known_server::KnownServer;

/// A server lets a user have other limits later: how long one is obeyed, seconds.
const EXPIRES_AFTER: u64 = 14 * 86_400;
/// Most sessions that a file may name; more is nonsense.
const MAX_SESSIONS: u64 = 10_000;

/// A limit of one server, as the file holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionLimit {
    #[serde(flatten)]
    pub(crate) server: KnownServer,
    pub(crate) sessions: u64,
}

impl SessionLimit {
    /// Whether this program can have written it. A file may hold anything.
    pub(crate) fn is_sound(&self) -> bool {
        self.server.is_sound() && (1..=MAX_SESSIONS).contains(&self.sessions)
    }

    /// Whether it still counts.
    pub(crate) fn counts_at(&self, now: u64) -> bool {
        self.server.is_of_last(EXPIRES_AFTER, now)
    }
}
