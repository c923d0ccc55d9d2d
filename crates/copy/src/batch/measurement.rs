//! Measurements of a successful transfer.

use std::time::Duration;

use tune::Evidence;
use tune::limiter::Role;

use crate::batch::why::ThirdPartyStats;
use ftp::transfer::{HostRemark, TransferAttempt};

/// Measurements of a transfer and the remarks of the hosts that took part.
#[derive(Debug)]
pub(crate) struct TransferMeasurement {
    pub(crate) source: MeasurementSource,
    /// Name of the buffer policy.
    pub(crate) buffer_policy: &'static str,
    /// Remarks of hosts on the limits that slowed the transfer down.
    pub(crate) remarks: Vec<HostRemark>,
}

/// Measurements of a transfer, by the end that made them.
#[derive(Debug)]
pub(crate) enum MeasurementSource {
    /// Measured by this end.
    ThisEnd(Box<Evidence>),
    /// Derived from the replies and markers of both servers.
    ThirdParty(ThirdPartyStats),
}

impl TransferMeasurement {
    /// For a transfer that this end received.
    pub(crate) fn of_received(attempt: TransferAttempt) -> Self {
        Self::of_this_end(Role::Receiver, attempt)
    }

    /// For a transfer that this end sent.
    pub(crate) fn of_sent(attempt: TransferAttempt) -> Self {
        Self::of_this_end(Role::Sender, attempt)
    }

    /// For a transfer between two servers.
    pub(crate) fn of_third_party(attempt: TransferAttempt, elapsed: Duration) -> Self {
        Self {
            source: MeasurementSource::ThirdParty(ThirdPartyStats {
                bytes: attempt.report.evidence.bytes,
                elapsed,
                streams: attempt.streams,
                markers: attempt.extended_mode,
            }),
            buffer_policy: attempt.buffers.name(),
            remarks: attempt.remarks,
        }
    }

    /// The role is set even if no bytes were moved.
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
