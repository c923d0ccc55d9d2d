//! The key sets of issuers, kept between logins.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use security::token::KeySet;

use super::fetch::{FetchedKeys, KeyFetcher};
use crate::config::KeySource;

/// Time for which keys serve while the issuer cannot be reached.
const STALE_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// Shortest time between two fetches for unknown keys: anybody can send a token with a strange `kid`.
const REFETCH_INTERVAL: Duration = Duration::from_secs(60);

/// Time after a failed fetch in which no other is tried: logins must not wait for a dead issuer, each
/// in turn.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// The keys of one issuer. Logins that need them at the same time share one fetch.
#[derive(Debug)]
pub(super) struct IssuerKeys {
    issuer: String,
    source: KeySource,
    fetcher: Arc<dyn KeyFetcher>,
    state: Mutex<KeyState>,
    /// Held during a fetch.
    fetching: tokio::sync::Mutex<()>,
}

/// The keys that are known, and the last attempt to fetch them. Pure: time is an argument.
#[derive(Debug, Default)]
struct KeyState {
    known: Option<KnownKeys>,
    last_attempt: Option<Instant>,
    /// The reason why the last attempt failed.
    failure: Option<String>,
}

#[derive(Debug, Clone)]
struct KnownKeys {
    keys: Arc<KeySet>,
    fetched: Instant,
    fresh_for: Duration,
}

/// The reason for a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FetchReason {
    /// The keys are missing or too old.
    Needed,
    /// They will soon be too old.
    Soon,
    /// A token names a key that is not among them.
    UnknownKey,
}

impl KeyState {
    /// The keys, if they are fresh.
    fn fresh(&self, now: Instant) -> Option<&KnownKeys> {
        let known = self.known.as_ref();
        known.filter(|known| now.duration_since(known.fetched) < known.fresh_for)
    }

    /// The keys, if they may serve while the issuer cannot be reached.
    fn stale(&self, now: Instant) -> Option<&KnownKeys> {
        let known = self.known.as_ref();
        known.filter(|known| now.duration_since(known.fetched) < STALE_LIMIT)
    }

    /// Whether a fetch may begin now.
    fn may_fetch(&self, reason: FetchReason, now: Instant) -> bool {
        let since = self.last_attempt.map(|last| now.duration_since(last));
        let has_waited = |interval| since.is_none_or(|since| since >= interval);
        let may_retry = self.failure.is_none() || has_waited(RETRY_INTERVAL);
        match reason {
            FetchReason::Needed => self.fresh(now).is_none() && may_retry,
            FetchReason::Soon => self.is_old(now) && may_retry,
            FetchReason::UnknownKey => has_waited(REFETCH_INTERVAL),
        }
    }

    /// Whether three quarters of the freshness are over.
    fn is_old(&self, now: Instant) -> bool {
        let known = self.known.as_ref();
        known.is_none_or(|known| now.duration_since(known.fetched) >= known.fresh_for / 4 * 3)
    }

    fn record(&mut self, result: Result<FetchedKeys, String>, now: Instant) {
        match result {
            Ok(fetched) => {
                self.failure = None;
                self.known = Some(KnownKeys {
                    keys: Arc::new(fetched.keys),
                    fetched: now,
                    fresh_for: fetched.fresh_for,
                });
            }
            Err(reason) => self.failure = Some(reason),
        }
    }
}

impl IssuerKeys {
    pub(super) fn new(issuer: String, source: KeySource, fetcher: Arc<dyn KeyFetcher>) -> Self {
        Self {
            issuer,
            source,
            fetcher,
            state: Mutex::default(),
            fetching: tokio::sync::Mutex::default(),
        }
    }

    /// Where the keys come from.
    pub(super) fn source(&self) -> &KeySource {
        &self.source
    }

    /// The keys: fresh ones, fetched now if needed, or else older ones while the issuer cannot be
    /// reached.
    ///
    /// # Errors
    /// The reason why there are none, for the log.
    pub(super) async fn get(self: &Arc<Self>) -> Result<Arc<KeySet>, String> {
        let now = Instant::now();
        let (fresh, begin_soon) = {
            let state = self.state.lock();
            let fresh = state.fresh(now).map(|known| Arc::clone(&known.keys));
            (fresh, state.may_fetch(FetchReason::Soon, now))
        };
        match fresh {
            Some(keys) => {
                // One fetch at a time: the next login finds the lock taken.
                if begin_soon && self.fetching.try_lock().is_ok() {
                    drop(self.start_fetch(FetchReason::Soon));
                }
                return Ok(keys);
            }
            None => self.wait_for_fetch(FetchReason::Needed).await,
        }
        let now = Instant::now();
        let state = self.state.lock();
        if let Some(known) = state.fresh(now) {
            return Ok(Arc::clone(&known.keys));
        }
        let reason = state.failure.as_deref().unwrap_or("internal error");
        match state.stale(now) {
            Some(known) => {
                let hours = now.duration_since(known.fetched).as_secs() / 3600;
                tracing::warn!(issuer = %self.issuer, reason, hours, "keys of an issuer cannot be fetched; older ones are used");
                Ok(Arc::clone(&known.keys))
            }
            None => Err(reason.to_owned()),
        }
    }

    /// The keys after another fetch, because a token names one that is not known; the known ones if the
    /// last fetch was less than a minute ago.
    ///
    /// # Errors
    /// See [`Self::get`].
    pub(super) async fn get_with_new_keys(self: &Arc<Self>) -> Result<Arc<KeySet>, String> {
        if self
            .state
            .lock()
            .may_fetch(FetchReason::UnknownKey, Instant::now())
        {
            self.wait_for_fetch(FetchReason::UnknownKey).await;
        }
        self.get().await
    }

    async fn wait_for_fetch(self: &Arc<Self>, reason: FetchReason) {
        // A task of its own: if the client of this login leaves, the others still get the keys. It fails
        // only if the fetcher panicked; the panic hook has logged that.
        let _ = self.start_fetch(reason).await;
    }

    fn start_fetch(self: &Arc<Self>, reason: FetchReason) -> tokio::task::JoinHandle<()> {
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let _alone = this.fetching.lock().await;
            {
                let now = Instant::now();
                let mut state = this.state.lock();
                // Another login may have fetched them while this one waited.
                if !state.may_fetch(reason, now) {
                    return;
                }
                state.last_attempt = Some(now);
            }
            let fetching = Arc::clone(&this);
            let fetched = tokio::task::spawn_blocking(move || {
                fetching.fetcher.fetch(&fetching.issuer, &fetching.source)
            });
            let result = fetched
                .await
                .unwrap_or_else(|_| Err("internal error".to_owned()));
            match &result {
                Ok(fetched) => {
                    tracing::debug!(issuer = %this.issuer, keys = fetched.keys.len(), "keys of an issuer fetched");
                }
                Err(reason) => {
                    tracing::warn!(issuer = %this.issuer, reason, "keys of an issuer cannot be fetched");
                }
            }
            this.state.lock().record(result, Instant::now());
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn fetched() -> Result<FetchedKeys, String> {
        Ok(FetchedKeys {
            keys: KeySet::default(),
            fresh_for: HOUR,
        })
    }

    /// A state after an attempt at `now`.
    fn after(state: &mut KeyState, result: Result<FetchedKeys, String>, now: Instant) {
        state.last_attempt = Some(now);
        state.record(result, now);
    }

    #[test]
    fn keys_are_fetched_before_they_are_too_old() {
        let start = Instant::now();
        let mut state = KeyState::default();
        assert!(state.may_fetch(FetchReason::Needed, start));
        after(&mut state, fetched(), start);
        assert!(state.fresh(start + HOUR / 2).is_some());
        assert!(!state.may_fetch(FetchReason::Soon, start + HOUR / 2));
        assert!(state.may_fetch(FetchReason::Soon, start + HOUR / 4 * 3));
        assert!(!state.may_fetch(FetchReason::Needed, start + HOUR / 4 * 3));
        assert!(state.fresh(start + HOUR).is_none());
        assert!(state.may_fetch(FetchReason::Needed, start + HOUR));
    }

    #[test]
    fn old_keys_serve_for_a_day_while_the_issuer_is_down() {
        let start = Instant::now();
        let mut state = KeyState::default();
        after(&mut state, fetched(), start);
        let down = start + 2 * HOUR;
        after(&mut state, Err("down".to_owned()), down);
        assert!(state.fresh(down).is_none() && state.stale(down).is_some());
        assert!(!state.may_fetch(FetchReason::Needed, down + RETRY_INTERVAL / 2));
        assert!(state.may_fetch(FetchReason::Needed, down + RETRY_INTERVAL));
        assert!(
            state
                .stale(start + 24 * HOUR - Duration::from_secs(1))
                .is_some()
        );
        assert!(state.stale(start + 24 * HOUR).is_none());
    }

    #[test]
    fn unknown_keys_cause_one_fetch_a_minute() {
        let start = Instant::now();
        let mut state = KeyState::default();
        after(&mut state, fetched(), start);
        let second = Duration::from_secs(1);
        assert!(!state.may_fetch(FetchReason::UnknownKey, start));
        assert!(!state.may_fetch(FetchReason::UnknownKey, start + 59 * second));
        assert!(state.may_fetch(FetchReason::UnknownKey, start + 60 * second));
        // Also after a failure, which otherwise allows an earlier attempt.
        let later = start + 60 * second;
        after(&mut state, Err("down".to_owned()), later);
        assert!(!state.may_fetch(FetchReason::UnknownKey, later + 59 * second));
    }
}
