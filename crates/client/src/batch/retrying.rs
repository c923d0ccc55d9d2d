//! Sessions of a batch, and questions to its storages, repeated while one is lost, busy or away.

use std::time::{Duration, Instant};

use proto::listing::ListedEntry;

use super::{BatchContext, lock};
use crate::location::StorageId;
use crate::retry::RetryBudget;
use crate::storage::contract::Storage;
use crate::{AwayPeer, CopyEvent, CopyFailure, Exit};

/// Longest wait that a server can ask for. A copy that would have to wait longer fails.
const MAX_ASKED_WAIT: Duration = Duration::from_secs(600);

impl BatchContext {
    /// A session for planning. Lost connections are retried as for transfers.
    pub(crate) async fn session(&self, id: &StorageId) -> Result<Box<dyn Storage>, CopyFailure> {
        self.session_for_path(id, None).await
    }

    /// Like [`BatchContext::session`]. The caller will ask for the facts of `first_path` first, so
    /// the server can be asked for them along with the login.
    pub(crate) async fn session_for_path(
        &self,
        id: &StorageId,
        first_path: Option<&[u8]>,
    ) -> Result<Box<dyn Storage>, CopyFailure> {
        let mut retries = RetryBudget::new(&self.options, self.seed);
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
            self.wait_for_retry(&id.to_string(), (&mut retries, 0), failure)
                .await?;
        }
    }

    /// The facts of a path, over one session after the other. Lost connections are retried as for transfers.
    pub(super) async fn stat(
        &self,
        id: &StorageId,
        path: &[u8],
    ) -> Result<ListedEntry, CopyFailure> {
        self.examine(id, path, false).await
    }

    /// As [`BatchContext::stat`], of a path that is to be read ([`Storage::stat_to_read`]).
    pub(super) async fn stat_to_read(
        &self,
        id: &StorageId,
        path: &[u8],
    ) -> Result<ListedEntry, CopyFailure> {
        self.examine(id, path, true).await
    }

    async fn examine(
        &self,
        id: &StorageId,
        path: &[u8],
        to_read: bool,
    ) -> Result<ListedEntry, CopyFailure> {
        let mut retries = RetryBudget::new(&self.options, self.seed);
        loop {
            let mut session = self.session_for_path(id, Some(path)).await?;
            let found = match to_read {
                true => session.stat_to_read(path).await,
                false => session.stat(path).await,
            };
            self.return_session(id, session, &found);
            match found {
                Err(failure) if failure.transient => {
                    self.wait_for_retry(&id.to_string(), (&mut retries, 0), failure)
                        .await?;
                }
                found => return found,
            }
        }
    }

    /// Waits before the next try of `source`, and reports it. `moved`: bytes since the last one.
    ///
    /// # Errors
    /// The failure, if there is no further try.
    pub(super) async fn wait_for_retry(
        &self,
        source: &str,
        (retries, moved): (&mut RetryBudget, u64),
        failure: CopyFailure,
    ) -> Result<(), CopyFailure> {
        let away = match failure.away {
            true => self.pool.outage(),
            false => None,
        };
        // One that was never reached is misspelled, or does not run.
        let is_first_contact = failure.away && away.is_none();
        let next = match is_first_contact {
            true => None,
            false => retries.next_attempt(&failure, moved, away),
        };
        let Some((attempt, after)) = next else {
            self.pool.give_up(self.options.patience, &failure);
            return Err(failure);
        };
        let until = *lock(&self.asked_to_wait);
        let asked = until.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(Instant::now())
        });
        if asked > MAX_ASKED_WAIT {
            return Err(failure);
        }
        let after = after.max(asked);
        let patience = self.options.patience;
        let away = away.filter(|_| !patience.is_zero());
        self.observer.on_event(CopyEvent::Retrying {
            source: source.to_owned(),
            reason: failure.message,
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
    pub(super) fn return_session<T>(
        &self,
        id: &StorageId,
        session: Box<dyn Storage>,
        result: &Result<T, CopyFailure>,
    ) {
        if let (Err(_), Some(wait)) = (result, session.retry_after()) {
            let until = Instant::now().checked_add(wait);
            let mut asked = lock(&self.asked_to_wait);
            *asked = until.max(*asked);
        }
        let is_usable = result.as_ref().err().is_none_or(|failure| {
            !failure.transient && matches!(failure.exit, Exit::NotFound | Exit::Refused)
        });
        let is_away = result.as_ref().is_err_and(|failure| failure.away);
        self.pool.note_use(id, &*session, is_away);
        self.pool.learn(id, &*session);
        if is_usable {
            self.pool.release(id, session);
        } else if result
            .as_ref()
            .is_err_and(|f| f.transient && !f.is_destination_busy())
        {
            // The failure that ended this session has probably ended the idle ones too.
            self.pool.drop_idle(id);
        }
    }
}
