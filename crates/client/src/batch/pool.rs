//! Sessions that are open and idle, for the next file.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::location::StorageId;
use crate::session::SessionOpening;
use crate::storage::StorageAccess;
use crate::storage::contract::Storage;
use crate::{CopyFailure, Exit};

/// Idle sessions by storage.
#[derive(Debug)]
pub(crate) struct StorageSessionPool {
    access: StorageAccess,
    idle: Mutex<HashMap<StorageId, Vec<Box<dyn Storage>>>>,
    /// Storages that refuse to rename: files are stored under their final names there.
    no_rename: Mutex<HashSet<StorageId>>,
    /// Storages that a session was had with in this run.
    met: Mutex<HashSet<StorageId>>,
    /// Servers that say they take commands ahead, and are better not taken at their word.
    wary: Mutex<HashSet<StorageId>>,
}

impl StorageSessionPool {
    /// No sessions; new ones are opened so.
    pub(crate) fn new(access: StorageAccess) -> Self {
        Self {
            access,
            idle: Mutex::default(),
            no_rename: Mutex::default(),
            met: Mutex::default(),
            wary: Mutex::default(),
        }
    }

    /// An idle session with `storage`, or a new one. A server that was met in this run and cannot be
    /// reached now is lost, not misnamed: another attempt is worth it.
    pub(crate) async fn take(&self, id: &StorageId) -> Result<Box<dyn Storage>, CopyFailure> {
        self.take_for(id, None).await
    }

    /// As [`StorageSessionPool::take`], for somebody who will ask for the facts of `look_at` first.
    pub(crate) async fn take_for(
        &self,
        id: &StorageId,
        look_at: Option<&[u8]>,
    ) -> Result<Box<dyn Storage>, CopyFailure> {
        let idle = lock(&self.idle).get_mut(id).and_then(Vec::pop);
        match idle {
            Some(session) => Ok(session),
            None => self.open(id, look_at).await,
        }
    }

    async fn open(
        &self,
        id: &StorageId,
        look_at: Option<&[u8]>,
    ) -> Result<Box<dyn Storage>, CopyFailure> {
        let opening = SessionOpening {
            avoid_pipelining: lock(&self.wary).contains(id),
            first_path: look_at,
        };
        match self.access.open(id, opening).await {
            Ok(session) => {
                lock(&self.met).insert(id.clone());
                Ok(session)
            }
            Err(mut failure) => {
                failure.transient |=
                    failure.exit == Exit::Unreachable && lock(&self.met).contains(id);
                Err(failure)
            }
        }
    }

    /// Puts a session back. One whose last command was not answered is dropped instead.
    pub(crate) fn give(&self, id: &StorageId, mut session: Box<dyn Storage>) {
        if session.needs_lockstep() {
            lock(&self.wary).insert(id.clone());
        }
        if !session.is_usable() {
            return;
        }
        // Questions of a transfer that did not begin are not the next one's.
        session.clear_follow_ups();
        lock(&self.idle)
            .entry(id.clone())
            .or_default()
            .push(session);
    }

    /// Drops the idle sessions with a storage.
    pub(crate) fn forget(&self, id: &StorageId) {
        let dropped = lock(&self.idle).remove(id);
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

    /// Remembers that the storage refuses to rename.
    pub(crate) fn forbid_rename(&self, id: &StorageId) {
        lock(&self.no_rename).insert(id.clone());
    }

    /// Whether files can be stored under a partial name first. Not where a URL's query goes with every
    /// request: a signature is of the one name that it was made for.
    pub(crate) fn renames(&self, id: &StorageId) -> bool {
        !id.has_query() && !lock(&self.no_rename).contains(id)
    }
}

/// The maps are whole after every statement, so a panic elsewhere does not spoil them.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use data::store::durability::SyncPolicy;

    use super::*;
    use crate::session::scripted_server::{
        LONGHAUL_GREETING, ScriptedAction, ScriptedFtpServer, login_script, pipelined_login_script,
    };

    #[test]
    fn a_signed_url_is_stored_under_its_own_name() {
        let pool = StorageSessionPool::new(StorageAccess {
            timeout: Duration::from_secs(5),
            foreign_data: false,
            sync_policy: SyncPolicy::default(),
        });
        let id = |url| crate::location::Location::parse(url).unwrap().storage_id();
        assert!(pool.renames(&id("https://h/f")));
        assert!(!pool.renames(&id("https://h/f?signature=1")));
        pool.forbid_rename(&id("https://h/f"));
        assert!(!pool.renames(&id("https://h/g")));
    }

    #[tokio::test]
    async fn who_is_better_asked_with_care_is_remembered() {
        let mut careful = login_script();
        careful[0] = ScriptedAction::SendLine(LONGHAUL_GREETING);
        let at_once = pipelined_login_script("500 what?", &[]);
        let fake = ScriptedFtpServer::start_sessions(vec![at_once, careful.clone(), careful]).await;
        let pool = StorageSessionPool::new(StorageAccess {
            timeout: Duration::from_secs(5),
            foreign_data: false,
            sync_policy: SyncPolicy::default(),
        });
        let id = StorageId::Server(fake.server.clone());
        let session: Box<dyn std::any::Any> = pool.take(&id).await.unwrap();
        let mut session = session.downcast::<crate::session::ClientSession>().unwrap();
        session.reopen_without_pipelining().await.unwrap();
        pool.give(&id, session);
        let _idle = pool.take(&id).await.unwrap();
        pool.take(&id).await.unwrap();
        fake.finish().await;
    }
}
