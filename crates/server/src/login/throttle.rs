//! Attempts to log in, counted while they last.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::{AttemptResult, LoginAttempt, LoginPenalties, LoginQueueFull};

/// The penalties of a server.
#[derive(Debug, Default)]
pub(super) struct LoginThrottle(Mutex<LoginPenalties>);

/// An attempt under way. One that is checked and dropped has failed: who goes away before the
/// answer has guessed all the same.
#[derive(Debug)]
pub(super) struct ThrottledAttempt {
    throttle: Arc<LoginThrottle>,
    attempt: LoginAttempt,
    end: AttemptResult,
}

impl LoginThrottle {
    /// Counts an attempt.
    pub(super) fn begin(
        self: &Arc<Self>,
        peer: IpAddr,
        user: &str,
    ) -> Result<ThrottledAttempt, LoginQueueFull> {
        let attempt = self.penalties().begin(peer, user, Instant::now())?;
        Ok(ThrottledAttempt {
            throttle: Arc::clone(self),
            attempt,
            end: AttemptResult::Unchecked,
        })
    }

    fn penalties(&self) -> MutexGuard<'_, LoginPenalties> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ThrottledAttempt {
    /// How long to wait before the check.
    pub(super) fn wait(&self) -> Duration {
        self.attempt.wait
    }

    /// The password is being checked.
    pub(super) fn mark_checked(&mut self) {
        self.end = AttemptResult::Failed;
    }

    /// It is right.
    pub(super) fn mark_granted(mut self) {
        self.end = AttemptResult::Granted;
    }
}

impl Drop for ThrottledAttempt {
    fn drop(&mut self) {
        let mut penalties = self.throttle.penalties();
        penalties.end(self.attempt, self.end, Instant::now());
    }
}
