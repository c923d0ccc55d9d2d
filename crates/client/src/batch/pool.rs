//! Sessions that are logged in and idle, for the next file.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::location::Server;
use crate::session::{Opening, Session};
use crate::{Exit, Failure};

/// Idle sessions by server.
#[derive(Debug)]
pub(crate) struct Pool {
    timeout: Duration,
    foreign_data: bool,
    idle: Mutex<HashMap<Server, Vec<Session>>>,
    /// Servers that refuse to rename: files are stored under their final names there.
    no_rename: Mutex<HashSet<Server>>,
    /// Servers that a session was had with in this run.
    met: Mutex<HashSet<Server>>,
    /// Servers that say they take commands ahead, and are better not taken at their word.
    wary: Mutex<HashSet<Server>>,
}

impl Pool {
    /// No sessions; new ones get this time-out.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            foreign_data: false,
            idle: Mutex::default(),
            no_rename: Mutex::default(),
            met: Mutex::default(),
            wary: Mutex::default(),
        }
    }

    /// Sessions may have data connections with other hosts than their server's.
    pub(crate) fn allow_foreign_data(self, allowed: bool) -> Self {
        Self {
            foreign_data: allowed,
            ..self
        }
    }

    /// An idle session of `server`, or a new one. A server that was met in this run and cannot be
    /// reached now is lost, not misnamed: another attempt is worth it.
    pub(crate) async fn take(&self, server: &Server) -> Result<Session, Failure> {
        self.take_for(server, None).await
    }

    /// As [`Pool::take`], for somebody who will ask for the facts of `look_at` first.
    pub(crate) async fn take_for(
        &self,
        server: &Server,
        look_at: Option<&[u8]>,
    ) -> Result<Session, Failure> {
        let idle = lock(&self.idle).get_mut(server).and_then(Vec::pop);
        match idle {
            Some(session) => Ok(session),
            None => self.open(server, look_at).await,
        }
    }

    async fn open(&self, server: &Server, look_at: Option<&[u8]>) -> Result<Session, Failure> {
        let opening = Opening {
            careful: lock(&self.wary).contains(server),
            look_at,
        };
        match Session::begin(server, self.timeout, opening).await {
            Ok(mut session) => {
                session.allow_foreign_data(self.foreign_data);
                lock(&self.met).insert(server.clone());
                Ok(session)
            }
            Err(mut failure) => {
                failure.transient |=
                    failure.exit == Exit::Unreachable && lock(&self.met).contains(server);
                Err(failure)
            }
        }
    }

    /// Puts a session back. One whose last command was not answered is dropped instead.
    pub(crate) fn give(&self, server: &Server, mut session: Session) {
        if session.is_wary() {
            lock(&self.wary).insert(server.clone());
        }
        if !session.is_usable() {
            return;
        }
        // Questions of a transfer that did not begin are not the next one's.
        session.then.clear();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::fake::{Act, Fake, LONGHAUL, login, login_at_once};

    #[tokio::test]
    async fn who_is_better_asked_with_care_is_remembered() {
        let mut careful = login();
        careful[0] = Act::Say(LONGHAUL);
        let at_once = login_at_once("500 what?", &[]);
        let fake = Fake::start_each(vec![at_once, careful.clone(), careful]).await;
        let pool = Pool::new(Duration::from_secs(5));
        let mut session = pool.take(&fake.server).await.unwrap();
        session.begin_carefully().await.unwrap();
        pool.give(&fake.server, session);
        let _idle = pool.take(&fake.server).await.unwrap();
        pool.take(&fake.server).await.unwrap();
        fake.finish().await;
    }
}
