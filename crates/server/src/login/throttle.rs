//! Login attempts that count as failures while they are in progress.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::limits::{AttemptResult, LoginAttempt, LoginPenalties, LoginQueueFull};

/// The login penalties of a server, shared by all sessions.
#[derive(Debug, Default)]
pub(super) struct LoginThrottle(Mutex<LoginPenalties>);

/// A login attempt in progress. If it is dropped after its check began, it counts as failed: a client
/// that leaves before the answer has made a guess all the same.
#[derive(Debug)]
pub(super) struct ThrottledAttempt {
    throttle: Arc<LoginThrottle>,
    attempt: LoginAttempt,
    end: AttemptResult,
}

impl LoginThrottle {
    /// Counts a new attempt.
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
        self.0.lock()
    }
}

impl ThrottledAttempt {
    /// Wait before the password may be checked.
    pub(super) fn wait(&self) -> Duration {
        self.attempt.wait
    }

    /// The check of the password begins; without a success the attempt counts as failed.
    pub(super) fn mark_checked(&mut self) {
        self.end = AttemptResult::Failed;
    }

    /// The check had no result, so it counts as if it had not begun.
    pub(super) fn mark_unanswered(mut self) {
        self.end = AttemptResult::Unchecked;
    }

    /// The password is right.
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
