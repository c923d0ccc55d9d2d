//! Measurements of a transfer that ended well.

use tune::Evidence;
use tune::limiter::Role;

use crate::transfer::{Attempt, Remark};
use crate::why::Between;

/// Measurements of a transfer, and who had a hand in it.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) seen: Seen,
    /// Who sized the buffers.
    pub(super) buffers: &'static str,
    /// Limits of hosts that held it back.
    pub(super) remarks: Vec<Remark>,
}

/// Measurements of a transfer, by the end that made them.
#[derive(Debug)]
pub(super) enum Seen {
    /// By this end of it.
    Here(Box<Evidence>),
    /// By listening to both servers.
    Between(Between),
}

impl Measured {
    /// Of a transfer whose bytes came here.
    pub(super) fn received(attempt: Attempt) -> Self {
        Self::here(Role::Receiver, attempt)
    }

    /// Of a transfer whose bytes went from here.
    pub(super) fn sent(attempt: Attempt) -> Self {
        Self::here(Role::Sender, attempt)
    }

    /// The role is this end's also where nothing was left to be moved.
    fn here(role: Role, attempt: Attempt) -> Self {
        Self {
            seen: Seen::Here(Box::new(Evidence {
                role: Some(role),
                ..attempt.report.evidence
            })),
            buffers: attempt.buffers.name(),
            remarks: attempt.remarks,
        }
    }
}
