//! Repeated attempts to send.

use std::time::Duration;

/// How often, and with which pauses, a message is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendRetry {
    /// Attempts in all, at least one.
    pub attempts: u32,
    /// Pause after the first failure; it doubles with each.
    pub first_pause: Duration,
}

impl Default for SendRetry {
    /// Three attempts within some seconds.
    fn default() -> Self {
        Self {
            attempts: 3,
            first_pause: Duration::from_secs(2),
        }
    }
}

/// The end of an attempt without success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SendFailure {
    /// Another attempt may succeed.
    Passing(String),
    /// Another attempt would fail as well.
    Lasting(String),
}

/// A message that could not be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot notify {receiver} ({attempts} attempts): {reason}")]
pub struct NotifyError {
    /// Host of the webhook or mail server.
    pub receiver: String,
    /// Attempts made.
    pub attempts: u32,
    /// The last failure.
    pub reason: String,
}

impl SendRetry {
    pub(super) fn run(
        self,
        receiver: &str,
        mut attempt: impl FnMut() -> Result<(), SendFailure>,
    ) -> Result<(), NotifyError> {
        let mut pause = self.first_pause;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let reason = match attempt() {
                Ok(()) => return Ok(()),
                Err(SendFailure::Passing(_)) if attempts < self.attempts => {
                    std::thread::sleep(pause);
                    pause = pause.saturating_mul(2);
                    continue;
                }
                Err(SendFailure::Passing(reason) | SendFailure::Lasting(reason)) => reason,
            };
            return Err(NotifyError {
                receiver: receiver.to_owned(),
                attempts,
                reason,
            });
        }
    }
}
