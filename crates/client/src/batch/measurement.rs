//! Measurements of a transfer that ended well.

use tune::Evidence;
use tune::limiter::Role;

use crate::transfer::{HostRemark, TransferAttempt};
use crate::why::ThirdPartyStats;

/// Measurements of a transfer, and who had a hand in it.
#[derive(Debug)]
pub(super) struct TransferMeasurement {
    pub(super) source: MeasurementSource,
    /// Who sized the buffers.
    pub(super) buffer_policy: &'static str,
    /// Limits of hosts that held it back.
    pub(super) remarks: Vec<HostRemark>,
}

/// Measurements of a transfer, by the end that made them.
#[derive(Debug)]
pub(super) enum MeasurementSource {
    /// By this end of it.
    ThisEnd(Box<Evidence>),
    /// By listening to both servers.
    ThirdParty(ThirdPartyStats),
}

impl TransferMeasurement {
    /// Of a transfer whose bytes came here.
    pub(super) fn of_received(attempt: TransferAttempt) -> Self {
        Self::of_this_end(Role::Receiver, attempt)
    }

    /// Of a transfer whose bytes went from here.
    pub(super) fn of_sent(attempt: TransferAttempt) -> Self {
        Self::of_this_end(Role::Sender, attempt)
    }

    /// The role is this end's also where nothing was left to be moved.
    fn of_this_end(role: Role, attempt: TransferAttempt) -> Self {
        Self {
            source: MeasurementSource::ThisEnd(Box::new(Evidence {
                role: Some(role),
                ..attempt.report.evidence
            })),
            buffer_policy: attempt.buffers.name(),
            remarks: attempt.remarks,
        }
    }
}
