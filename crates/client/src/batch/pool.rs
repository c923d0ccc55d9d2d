//! Sessions that are logged in and idle, for the next file.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Failure;
use crate::location::Server;
use crate::session::Session;

/// Idle sessions by server.
#[derive(Debug)]
pub(crate) struct Pool {
    timeout: Duration,
    idle: Mutex<HashMap<Server, Vec<Session>>>,
    /// Servers that refuse to rename: files are stored under their final names there.
    no_rename: Mutex<HashSet<Server>>,
}

impl Pool {
    /// No sessions; new ones get this time-out.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            idle: Mutex::default(),
            no_rename: Mutex::default(),
        }
    }

    /// An idle session of `server`, or a new one.
    pub(crate) async fn take(&self, server: &Server) -> Result<Session, Failure> {
        let idle = lock(&self.idle).get_mut(server).and_then(Vec::pop);
        match idle {
            Some(session) => Ok(session),
            None => Session::open(server, self.timeout).await,
        }
    }

    /// Puts a session back whose last command was answered. After a failure it is dropped
    /// instead.
    pub(crate) fn give(&self, server: &Server, session: Session) {
        lock(&self.idle)
            .entry(server.clone())
            .or_default()
            .push(session);
    }

    /// Drops the idle sessions of a server.
    pub(crate) fn forget(&self, server: &Server) {
        let dropped = lock(&self.idle).remove(server);
        drop(dropped);
    }

    /// Says goodbye on all sessions.
    pub(crate) async fn close(&self) {
        let all = std::mem::take(&mut *lock(&self.idle));
        let mut goodbyes = tokio::task::JoinSet::new();
        for session in all.into_values().flatten() {
            goodbyes.spawn(session.close());
        }
        while goodbyes.join_next().await.is_some() {}
    }

    /// Remembers that the server refuses to rename.
    pub(crate) fn forbid_rename(&self, server: &Server) {
        lock(&self.no_rename).insert(server.clone());
    }

    /// Whether files can be stored under a partial name first.
    pub(crate) fn renames(&self, server: &Server) -> bool {
        !lock(&self.no_rename).contains(server)
    }
}

/// The maps are whole after every statement, so a panic elsewhere does not spoil them.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
