//! Measurements of a transfer that ended well.

use std::time::Duration;

use data::job::WireStats;
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
    Here(Here),
    /// By listening to both servers.
    Between(Between),
}

/// Measurements of this end.
#[derive(Debug)]
pub(super) struct Here {
    pub(super) role: Role,
    pub(super) bytes: u64,
    pub(super) elapsed: Duration,
    pub(super) wire: WireStats,
    /// Congestion control of this end's streams.
    pub(super) congestion: Option<String>,
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

    fn here(role: Role, attempt: Attempt) -> Self {
        let report = &attempt.report;
        Self {
            seen: Seen::Here(Here {
                role,
                bytes: report.bytes,
                elapsed: report.elapsed,
                wire: report.wire,
                congestion: report.congestion.clone(),
            }),
            buffers: attempt.buffers.name(),
            remarks: attempt.remarks,
        }
    }
}
