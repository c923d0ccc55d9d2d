//! Attempts to log in, counted while they last.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::{Attempt, AttemptEnd, LoginPenalties, TooMany};

/// The penalties of a server.
#[derive(Debug, Default)]
pub(super) struct Throttle(Mutex<LoginPenalties>);

/// An attempt under way. One that is checked and dropped has failed: who goes away before the
/// answer has guessed all the same.
#[derive(Debug)]
pub(super) struct UnderWay {
    throttle: Arc<Throttle>,
    attempt: Attempt,
    end: AttemptEnd,
}

impl Throttle {
    /// Counts an attempt.
    pub(super) fn begin(self: &Arc<Self>, peer: IpAddr, user: &str) -> Result<UnderWay, TooMany> {
        let attempt = self.penalties().begin(peer, user, Instant::now())?;
        Ok(UnderWay {
            throttle: Arc::clone(self),
            attempt,
            end: AttemptEnd::Unchecked,
        })
    }

    fn penalties(&self) -> MutexGuard<'_, LoginPenalties> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnderWay {
    /// How long to wait before the check.
    pub(super) fn wait(&self) -> Duration {
        self.attempt.wait
    }

    /// The password is being checked.
    pub(super) fn check(&mut self) {
        self.end = AttemptEnd::Failed;
    }

    /// It is right.
    pub(super) fn grant(mut self) {
        self.end = AttemptEnd::Granted;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut penalties = self.throttle.penalties();
        penalties.end(self.attempt, self.end, Instant::now());
    }
}
