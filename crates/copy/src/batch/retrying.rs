//! Sessions of a batch, and questions to its storages, repeated while one is lost, busy or away.

use std::time::Duration;

use proto::checksum::ChecksumAlgorithm;
use proto::listing::ListedEntry;

use crate::batch::BatchContext;
use crate::batch::retry::RetryBudget;
use crate::events::{AwayPeer, CopyEvent};
use crate::storage::contract::Storage;
use ftp::location::StorageId;
use ftp::{Failure, FailureKind};

/// Longest wait that a server can ask for. A copy that would have to wait longer fails.
const MAX_ASKED_WAIT: Duration = Duration::from_secs(600);

/// A request that is made again after a lost connection, as transfers are. What was lost with a connection may have been
/// carried out: a request that is made twice must have the effect of one.
pub(crate) struct RepeatedRequest<'c> {
    ctx: &'c BatchContext,
    id: &'c StorageId,
    /// The path that the request asks about first, so that the server can be asked along with the login.
    first_path: Option<&'c [u8]>,
    retries: RetryBudget,
}

impl RepeatedRequest<'_> {
    /// The session for the next try.
    ///
    /// # Errors
    /// As [`BatchContext::session`].
    pub(crate) async fn session(&self) -> Result<Box<dyn Storage>, Failure> {
        self.ctx.session_for_path(self.id, self.first_path).await
    }

    /// Ends a try. `None`: the connection was lost, and the request is to be made again.
    ///
    /// # Errors
    /// The refusal. The failure, if there is no further try.
    pub(crate) async fn end<T>(
        &mut self,
        session: Box<dyn Storage>,
        result: Result<T, Failure>,
    ) -> Result<Option<T>, Failure> {
        self.ctx.return_session(self.id, session, &result);
        match result {
            Err(failure) if failure.may_retry() => {
                let retries = &mut self.retries;
                self.ctx.wait_for_storage(self.id, retries, failure).await?;
                Ok(None)
            }
            result => result.map(Some),
        }
    }

    /// As [`RepeatedRequest::end`], of a removal. What is missing when it is made again was removed by the lost one.
    ///
    /// # Errors
    /// As [`RepeatedRequest::end`].
    pub(crate) async fn end_removal(
        &mut self,
        session: Box<dyn Storage>,
        removed: Result<(), Failure>,
    ) -> Result<Option<()>, Failure> {
        let is_repeated = self.retries.is_retry();
        self.end(session, removed).await.or_else(|failure| {
            let is_gone = is_repeated && failure.is_missing();
            is_gone.then_some(Some(())).ok_or(failure)
        })
    }
}

impl BatchContext {
    /// A session for planning. Lost connections are retried as for transfers.
    pub(crate) async fn session(&self, id: &StorageId) -> Result<Box<dyn Storage>, Failure> {
        self.session_for_path(id, None).await
    }

    /// Like [`BatchContext::session`]. The caller will ask for the facts of `first_path` first, so
    /// the server can be asked for them along with the login.
    pub(crate) async fn session_for_path(
        &self,
        id: &StorageId,
        first_path: Option<&[u8]>,
    ) -> Result<Box<dyn Storage>, Failure> {
        let mut retries = RetryBudget::new(self.options.retry, self.seed);
        // A service that the user has named is asked while the session opens.
        self.advice.ask(None);
        loop {
            let failure = match self.pool.acquire_for_path(id, first_path).await {
                Ok(session) => {
                    self.advice.ask(session.advice_service());
                    return Ok(session);
                }
                Err(failure) => failure,
            };
            self.wait_for_storage(id, &mut retries, failure).await?;
        }
    }

    /// A request to a storage, made over one session after the other.
    pub(crate) fn request<'c>(&'c self, id: &'c StorageId) -> RepeatedRequest<'c> {
        RepeatedRequest {
            ctx: self,
            id,
            first_path: None,
            retries: RetryBudget::new(self.options.retry, self.seed),
        }
    }

    /// The facts of a path. Lost connections are retried as for transfers.
    pub(crate) async fn stat(&self, id: &StorageId, path: &[u8]) -> Result<ListedEntry, Failure> {
        self.examine(id, path, false).await
    }

    /// As [`BatchContext::stat`], of a path that is to be read ([`Storage::stat_to_read`]).
    pub(crate) async fn stat_to_read(
        &self,
        id: &StorageId,
        path: &[u8],
    ) -> Result<ListedEntry, Failure> {
        self.examine(id, path, true).await
    }

    async fn examine(
        &self,
        id: &StorageId,
        path: &[u8],
        to_read: bool,
    ) -> Result<ListedEntry, Failure> {
        let mut request = self.request(id);
        request.first_path = Some(path);
        loop {
            let mut session = request.session().await?;
            let found = match to_read {
                true => session.stat_to_read(path).await,
                false => session.stat(path).await,
            };
            if let Some(found) = request.end(session, found).await? {
                return Ok(found);
            }
        }
    }

    /// Checksum of a file or of a part (offset and length). Lost connections are retried as for transfers.
    pub(crate) async fn checksum(
        &self,
        id: &StorageId,
        path: &[u8],
        algorithm: ChecksumAlgorithm,
        offset: u64,
        length: Option<u64>,
    ) -> Result<String, Failure> {
        let mut request = self.request(id);
        loop {
            let mut session = request.session().await?;
            let checksum = session.checksum(algorithm, offset, length, path).await;
            if let Some(checksum) = request.end(session, checksum).await? {
                return Ok(checksum);
            }
        }
    }

    /// Waits before the next request to a storage.
    ///
    /// # Errors
    /// As [`BatchContext::wait_for_retry`].
    pub(crate) async fn wait_for_storage(
        &self,
        id: &StorageId,
        retries: &mut RetryBudget,
        failure: Failure,
    ) -> Result<(), Failure> {
        let of = (id.to_string(), std::slice::from_ref(id));
        self.wait_for_retry(&of.0, of.1, retries, 0, failure).await
    }

    /// Waits before the next try of `source`, which needs `storages`, and reports it. `moved`: bytes since the last one.
    ///
    /// # Errors
    /// The failure, if there is no further try.
    pub(crate) async fn wait_for_retry(
        &self,
        source: &str,
        storages: &[StorageId],
        retries: &mut RetryBudget,
        moved: u64,
        failure: Failure,
    ) -> Result<(), Failure> {
        let (outages, patience) = (&self.pool.outages, self.options.retry.patience);
        let away = match failure.kind() == FailureKind::Away {
            true => outages.longest_of(storages),
            false => None,
        };
        // One that was never reached is misspelled, or does not run.
        let is_first_contact = failure.kind() == FailureKind::Away && away.is_none();
        let next = match is_first_contact {
            true => None,
            false => retries.next_attempt(&failure, moved, away),
        };
        let Some((attempt, after)) = next else {
            outages.give_up(storages, patience);
            return Err(failure);
        };
        let asked = outages.wait_asked_for(storages);
        if asked > MAX_ASKED_WAIT {
            return Err(failure);
        }
        let after = after.max(asked);
        let away = away.filter(|_| !patience.is_zero());
        self.observer.on_event(CopyEvent::Retrying {
            source: source.to_owned(),
            reason: failure.to_string(),
            attempt,
            after,
            away: away.map(|since| AwayPeer {
                since,
                left: patience.saturating_sub(since),
            }),
        });
        tokio::time::sleep(after).await;
        Ok(())
    }

    /// Returns a usable session to the pool: after success, and after a refusal that left nothing
    /// running.
    pub(crate) fn return_session<T>(
        &self,
        id: &StorageId,
        session: Box<dyn Storage>,
        result: &Result<T, Failure>,
    ) {
        let is_usable = result.as_ref().err().is_none_or(|failure| {
            !failure.may_retry()
                && matches!(
                    failure.kind(),
                    FailureKind::NotFound
                        | FailureKind::Refused
                        | FailureKind::LoginLimit
                        | FailureKind::NameTooLong
                )
        });
        if !is_usable {
            return self.drop_session(id, &*session, result);
        }
        self.note_session(id, &*session, result);
        self.pool.release(id, session);
    }

    /// Learns from a session that is not used any more.
    pub(crate) fn drop_session<T>(
        &self,
        id: &StorageId,
        session: &dyn Storage,
        result: &Result<T, Failure>,
    ) {
        self.note_session(id, session, result);
        let lost = |failure: &Failure| {
            failure.may_retry() && failure.kind() != FailureKind::DestinationBusy
        };
        if result.as_ref().is_err_and(lost) {
            // The failure that ended this session has probably ended the idle ones too.
            self.pool.drop_idle(id);
        }
    }

    fn note_session<T>(&self, id: &StorageId, session: &dyn Storage, result: &Result<T, Failure>) {
        if let (Err(_), Some(wait)) = (result, session.retry_after()) {
            self.pool.outages.asked_to_wait(id, wait);
        }
        self.pool.note_use(id, session, result);
        self.pool.learn(id, session);
    }
}
