//! Measurements of a transfer that ended well.

use tune::Evidence;
use tune::limiter::Role;

use crate::transfer::{HostRemark, TransferAttempt};
use crate::why::ThirdPartyStats;

/// Measurements of a transfer, and who had a hand in it.
#[derive(Debug)]
pub(super) struct TransferMeasurement {
    pub(super) seen: MeasurementSource,
    /// Who sized the buffers.
    pub(super) buffers: &'static str,
    /// Limits of hosts that held it back.
    pub(super) remarks: Vec<HostRemark>,
}

/// Measurements of a transfer, by the end that made them.
#[derive(Debug)]
pub(super) enum MeasurementSource {
    /// By this end of it.
    Here(Box<Evidence>),
    /// By listening to both servers.
    Between(ThirdPartyStats),
}

impl TransferMeasurement {
    /// Of a transfer whose bytes came here.
    pub(super) fn received(attempt: TransferAttempt) -> Self {
        Self::here(Role::Receiver, attempt)
    }

    /// Of a transfer whose bytes went from here.
    pub(super) fn sent(attempt: TransferAttempt) -> Self {
        Self::here(Role::Sender, attempt)
    }

    /// The role is this end's also where nothing was left to be moved.
    fn here(role: Role, attempt: TransferAttempt) -> Self {
        Self {
            seen: MeasurementSource::Here(Box::new(Evidence {
                role: Some(role),
                ..attempt.report.evidence
            })),
            buffers: attempt.buffers.name(),
            remarks: attempt.remarks,
        }
    }
}
