//! Pool of open, idle storage sessions.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

use proto::client::CommandLead;

use super::outages::KnownOutages;
use crate::storage::contract::Storage;
use crate::storage_access::StorageAccess;
use ftp::location::StorageId;
use ftp::session::{ServerHabits, SessionOpening};
use ftp::{Failure, FailureKind};

/// How soon to look again for a session at a server that lets no further one in.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Idle sessions by storage.
#[derive(Debug)]
pub(crate) struct StorageSessionPool {
    access: StorageAccess,
    idle: Mutex<HashMap<StorageId, Vec<Box<dyn Storage>>>>,
    /// Which of them can be reached.
    pub(crate) outages: KnownOutages,
    /// Sessions that live, by storage.
    leases: Mutex<HashMap<StorageId, Vec<Weak<()>>>>,
    /// Notified when a session is returned.
    returned: Notify,
    /// Sessions that are being opened ahead of their use, by storage.
    pending: Mutex<HashMap<StorageId, usize>>,
    /// Habits of servers that sessions have found out.
    habits: Mutex<HashMap<StorageId, ServerHabits>>,
    /// How far commands may go ahead of replies in a series, where that is less than the most.
    series_leads: Mutex<HashMap<StorageId, CommandLead>>,
}

impl StorageSessionPool {
    /// An empty pool. New sessions are opened with `access`.
    pub(crate) fn new(access: StorageAccess) -> Self {
        Self {
            access,
            idle: Mutex::default(),
            outages: KnownOutages::default(),
            leases: Mutex::default(),
            returned: Notify::new(),
            pending: Mutex::default(),
            habits: Mutex::default(),
            series_leads: Mutex::default(),
        }
    }

    /// Returns an idle session with `id`, or opens a new one. A server that this run has reached
    /// before and cannot reach now is a transient failure, not a misspelled name. Where the server lets
    /// no further session in, waits for one that is returned.
    pub(crate) async fn acquire(&self, id: &StorageId) -> Result<Box<dyn Storage>, Failure> {
        self.acquire_for_path(id, None).await
    }

    /// Like [`StorageSessionPool::acquire`]. The caller will ask for the facts of `first_path`
    /// first, so the server can be asked for them along with the login.
    pub(crate) async fn acquire_for_path(
        &self,
        id: &StorageId,
        first_path: Option<&[u8]>,
    ) -> Result<Box<dyn Storage>, Failure> {
        loop {
            let returned = self.returned.notified();
            tokio::pin!(returned);
            // Before the look at what is idle, so that no return is missed.
            returned.as_mut().enable();
            let idle = self.take_idle(id);
            if idle.is_none() && self.is_coming(id) {
                returned.await;
                continue;
            }
            match self.idle_or_new(idle, id, first_path).await {
                // A session that is lost gives no notice.
                Err(failure) if self.may_be_at_limit(id, &failure) => {
                    let _ = timeout(LOOK_AGAIN, returned).await;
                }
                acquired => return acquired,
            }
        }
    }

    /// A session with each end of a copy.
    pub(crate) async fn acquire_both(
        &self,
        from: &StorageId,
        to: &StorageId,
    ) -> Result<[Box<dyn Storage>; 2], Failure> {
        if from != to {
            let (from, to) = tokio::try_join!(self.acquire(from), self.acquire(to))?;
            return Ok([from, to]);
        }
        let from = self.acquire(from).await?;
        Ok([from, self.acquire_further(to).await?])
    }

    /// Like [`StorageSessionPool::acquire`], for one who has a session with the server, or can do without: does not wait for
    /// one that is returned.
    pub(crate) async fn acquire_further(
        &self,
        id: &StorageId,
    ) -> Result<Box<dyn Storage>, Failure> {
        self.idle_or_new(self.take_idle(id), id, None).await
    }

    /// Opens one more session for a use that is about to come. Whoever acquires a session meanwhile waits for this one. If the
    /// server lets no further one in, nothing is lost.
    pub(crate) async fn open_ahead(&self, id: &StorageId) {
        let pending = PendingSession::new(self, id);
        if let Ok(session) = self.open(id, None).await {
            self.release(id, session);
        }
        drop(pending);
    }

    fn take_idle(&self, id: &StorageId) -> Option<Box<dyn Storage>> {
        self.idle.lock().get_mut(id).and_then(Vec::pop)
    }

    /// Longest round trip of the servers with an idle session.
    pub(crate) fn longest_idle_rtt(&self) -> Duration {
        let idle = self.idle.lock();
        let sessions = idle.values().flatten();
        let longest = sessions.map(|session| session.capabilities().rtt).max();
        longest.unwrap_or_default()
    }

    fn is_coming(&self, id: &StorageId) -> bool {
        self.pending.lock().contains_key(id)
    }

    async fn idle_or_new(
        &self,
        idle: Option<Box<dyn Storage>>,
        id: &StorageId,
        first_path: Option<&[u8]>,
    ) -> Result<Box<dyn Storage>, Failure> {
        match idle {
            Some(session) => Ok(session),
            None => self.open(id, first_path).await,
        }
    }

    /// Whether somebody has a session with the storage.
    fn has_lent(&self, id: &StorageId) -> bool {
        let idle = self.idle.lock().get(id).map_or(0, Vec::len);
        self.living(id) > idle
    }

    /// Whether a session may be had when another one is returned. A server that does not answer while somebody has a session
    /// is at a limit, or is away: the holder of that session finds it out.
    fn may_be_at_limit(&self, id: &StorageId, failure: &Failure) -> bool {
        let kind = failure.kind();
        let is_refused =
            kind.is_session_limit() || kind.is_unreachable() && self.outages.was_reached(id);
        is_refused && self.has_lent(id)
    }

    /// Whether there is a session with the storage, used or idle.
    fn has_any(&self, id: &StorageId) -> bool {
        self.living(id) > 0
    }

    fn living(&self, id: &StorageId) -> usize {
        let mut leases = self.leases.lock();
        let leases = leases.entry(id.clone()).or_default();
        leases.retain(|lease| lease.strong_count() > 0);
        leases.len()
    }

    fn habits(&self, id: &StorageId) -> ServerHabits {
        self.habits.lock().get(id).copied().unwrap_or_default()
    }

    /// Notes whether a use of a session could make its connections. A session that has, or had, one has reached its
    /// storage.
    pub(crate) fn note_use<T>(
        &self,
        id: &StorageId,
        session: &dyn Storage,
        result: &Result<T, Failure>,
    ) {
        // One that is lost was opened when the storage could be reached, and says nothing of now.
        let shows = session.is_usable() && !session.is_away();
        if session.has_connected() && (shows || !self.outages.was_reached(id)) {
            self.outages.reached(id);
        }
        if let Err(failure) = result
            && session.is_away()
        {
            self.outages.missed(id, failure);
        }
    }

    async fn open(
        &self,
        id: &StorageId,
        first_path: Option<&[u8]>,
    ) -> Result<Box<dyn Storage>, Failure> {
        if let Some(failure) = self.outages.given_up(id) {
            return Err(failure);
        }
        let lease = Arc::new(());
        let opening = SessionOpening {
            habits: self.habits(id),
            is_further: self.has_any(id),
            first_path,
            lease: Some(&lease),
        };
        match self.access.open(id, opening).await {
            Ok(session) => {
                let known = Arc::downgrade(&lease);
                self.leases
                    .lock()
                    .entry(id.clone())
                    .or_default()
                    .push(known);
                if session.has_connected() {
                    self.outages.reached(id);
                }
                Ok(session)
            }
            Err(failure) if failure.kind().is_unreachable() && self.outages.was_reached(id) => {
                // A host that was reached before is not misspelled, so the failure is temporary.
                let failure = failure.retried(true);
                if failure.kind() == FailureKind::SessionLimit {
                    return Err(failure);
                }
                // While somebody has a session, the server may just not serve a further one.
                if self.has_lent(id) {
                    return Err(failure.of_kind(FailureKind::Unreachable));
                }
                let failure = failure.of_kind(FailureKind::Away);
                self.outages.missed(id, &failure);
                Err(failure)
            }
            Err(failure) => {
                if failure.kind().is_unreachable() && !failure.may_retry() {
                    self.outages.not_there(id, &failure);
                }
                Err(failure)
            }
        }
    }

    /// Returns a session to the pool. A session with an unanswered command is dropped.
    pub(crate) fn release(&self, id: &StorageId, mut session: Box<dyn Storage>) {
        self.learn(id, &*session);
        if !session.is_usable() {
            return;
        }
        // Queries queued for a transfer that did not start must not be sent with the next one.
        session.clear_follow_ups();
        self.idle
            .lock()
            .entry(id.clone())
            .or_default()
            .push(session);
        self.returned.notify_waiters();
    }

    /// Remembers what a session has found out about its server.
    pub(crate) fn learn(&self, id: &StorageId, session: &dyn Storage) {
        let mut habits = self.habits.lock();
        let known = habits.entry(id.clone()).or_default();
        *known = known.or(session.habits());
    }

    /// Drops the idle sessions with a storage.
    pub(crate) fn drop_idle(&self, id: &StorageId) {
        let dropped = self.idle.lock().remove(id);
        drop(dropped);
    }

    /// Closes all idle sessions (QUIT), concurrently.
    #[expect(
        clippy::mutable_key_type,
        reason = "a server's hash is that of its options, which never change"
    )]
    pub(crate) async fn close(&self) {
        let all = std::mem::take(&mut *self.idle.lock());
        let mut closing = tokio::task::JoinSet::new();
        for session in all.into_values().flatten() {
            // QUIT waits for a reply; all servers at the same time take one round trip.
            closing.spawn(session.close());
        }
        while closing.join_next().await.is_some() {}
    }

    /// How far commands may go ahead of replies in a series with a server.
    pub(crate) fn series_lead(&self, id: &StorageId) -> CommandLead {
        match self.habits(id).lockstep {
            true => CommandLead::Lockstep,
            false => self
                .series_leads
                .lock()
                .get(id)
                .copied()
                .unwrap_or_default(),
        }
    }

    /// Remembers how far commands may go ahead in later series.
    pub(crate) fn limit_series_lead(&self, id: &StorageId, lead: CommandLead) {
        let mut leads = self.series_leads.lock();
        let known = leads.entry(id.clone()).or_default();
        *known = lead.min(*known);
    }
}

/// Counts a session that is being opened ahead, until it is there or is not to be had.
struct PendingSession<'a>(&'a StorageSessionPool, &'a StorageId);

impl<'a> PendingSession<'a> {
    fn new(pool: &'a StorageSessionPool, id: &'a StorageId) -> Self {
        *pool.pending.lock().entry(id.clone()).or_default() += 1;
        Self(pool, id)
    }
}

impl Drop for PendingSession<'_> {
    fn drop(&mut self) {
        let mut pending = self.0.pending.lock();
        let left = pending.remove(self.1).unwrap_or(1) - 1;
        if left > 0 {
            pending.insert(self.1.clone(), left);
        }
        drop(pending);
        self.0.returned.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use data::store::durability::SyncPolicy;

    use super::*;
    use ftp::location::Location;
    use ftp::session::ListingUse;
    use ftp::session::scripted_server::{
        LONGHAUL_GREETING, ScriptedAction, ScriptedFtpServer, login_script, pipelined_login_script,
    };

    fn pool(timeout: Duration) -> StorageSessionPool {
        StorageSessionPool::new(StorageAccess {
            timeout,
            foreign_data: false,
            listing_use: ListingUse::Reading,
            sync_policy: SyncPolicy::default(),
            trees: Arc::default(),
        })
    }

    #[tokio::test]
    async fn the_pool_remembers_servers_that_fail_at_pipelining() {
        let mut careful = login_script();
        careful[0] = ScriptedAction::SendLine(LONGHAUL_GREETING);
        let at_once = pipelined_login_script("500 what?", &[]);
        let fake = ScriptedFtpServer::start_sessions(vec![at_once, careful.clone(), careful]).await;
        let pool = pool(Duration::from_secs(5));
        let id = StorageId::Server(fake.server.clone());
        let session: Box<dyn std::any::Any> = pool.acquire(&id).await.unwrap();
        let mut session = session.downcast::<ftp::session::ClientSession>().unwrap();
        session.reopen_without_pipelining().await.unwrap();
        pool.release(&id, session);
        let _idle = pool.acquire(&id).await.unwrap();
        pool.acquire(&id).await.unwrap();
        fake.finish().await;
    }

    #[tokio::test]
    async fn a_session_that_is_coming_is_not_opened_twice() {
        // A second connection would find no script.
        let fake = ScriptedFtpServer::start_sessions(vec![login_script()]).await;
        let pool = pool(Duration::from_secs(5));
        let id = StorageId::Server(fake.server.clone());
        let (_, session) = tokio::join!(pool.open_ahead(&id), pool.acquire(&id));
        session.unwrap();
        fake.finish().await;
    }

    #[tokio::test]
    async fn a_session_that_is_not_to_be_had_ahead_is_asked_for_when_it_is_needed() {
        let refused = vec![ScriptedAction::SendLine("421 Too many connections")];
        let fake = ScriptedFtpServer::start_sessions(vec![refused, login_script()]).await;
        let pool = pool(Duration::from_secs(5));
        let id = StorageId::Server(fake.server.clone());
        let (_, session) = tokio::join!(pool.open_ahead(&id), pool.acquire(&id));
        session.unwrap();
        fake.finish().await;
    }

    #[tokio::test]
    async fn a_server_that_leaves_a_further_session_without_a_greeting_is_at_its_limit() {
        // It serves one session after the other.
        let sessions = vec![[login_script(), vec![ScriptedAction::ExpectEof]].concat()];
        let fake = ScriptedFtpServer::start_sessions(sessions).await;
        let pool = pool(Duration::from_secs(2));
        let id = StorageId::Server(fake.server.clone());
        let first = pool.acquire(&id).await.unwrap();
        let failure = pool.acquire_further(&id).await.unwrap_err();
        assert!(
            failure.kind() == FailureKind::SessionLimit && failure.may_retry(),
            "{failure}"
        );
        drop(first);
        fake.finish().await;
    }

    #[tokio::test]
    async fn a_server_at_its_limit_is_not_away() {
        let refused = vec![ScriptedAction::SendLine("421 Too many connections")];
        let sessions = vec![login_script(), refused.clone(), refused];
        let fake = ScriptedFtpServer::start_sessions(sessions).await;
        let pool = pool(Duration::from_secs(5));
        let id = StorageId::Server(fake.server.clone());
        let first = pool.acquire(&id).await.unwrap();
        let failure = pool.acquire_further(&id).await.unwrap_err();
        assert!(
            failure.may_retry() && failure.kind() != FailureKind::Away,
            "{failure}"
        );
        drop(first);
        // Also when nobody has a session any more.
        let failure = pool.acquire(&id).await.unwrap_err();
        assert!(failure.kind() == FailureKind::SessionLimit, "{failure}");
        assert_eq!(pool.outages.longest(), None);
        fake.finish().await;
    }

    #[tokio::test]
    async fn a_server_is_away_when_nobody_has_a_session_with_it() {
        let fake = ScriptedFtpServer::start_sessions(vec![login_script()]).await;
        let pool = pool(Duration::from_secs(5));
        let id = StorageId::Server(fake.server.clone());
        let first = pool.acquire(&id).await.unwrap();
        // Nobody listens any more, but the connection of the session may be alive.
        fake.finish().await;
        let failure = pool.acquire_further(&id).await.unwrap_err();
        assert!(
            failure.may_retry() && failure.kind() != FailureKind::Away,
            "{failure}"
        );
        let waiting = pool.acquire(&id);
        let losing = async { drop(first) };
        let (acquired, ()) = tokio::join!(waiting, losing);
        let failure = acquired.unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Away, "{failure}");
        assert!(pool.outages.longest_of(&[id]).is_some());
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_tried_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let pool = pool(Duration::from_secs(5));
        let id = Location::parse(&format!("ftp://{address}/"));
        let id = id.unwrap().storage_id();
        let first = pool.acquire(&id).await.unwrap_err();
        let listener = TcpListener::bind(address).unwrap();
        let second = pool.acquire(&id).await.unwrap_err();
        assert_eq!(first, second);
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err());
    }
}
