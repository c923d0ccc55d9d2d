//! The data side of a transfer: it blocks, on a thread of its own.

use std::net::IpAddr;
use std::sync::Arc;

use data::channel::SessionDataChannel;
use data::drs::DrsEndpoint;
use data::error::DataError;
use data::job::{TransferControl, TransferReport, TransferSettings};
use data::recv::{self, ReceivePlan};
use data::send::{self, SendPlan};
use data::store::{Sink, Source};
use proto::stripes::StripeAddresses;
use tokio::task::JoinHandle;

/// This end's part of a transfer.
#[derive(Debug)]
pub enum LocalTransfer {
    /// Receives the file.
    Receive {
        /// Destination of the bytes.
        sink: Arc<dyn Sink>,
        /// Offsets of the bytes.
        plan: ReceivePlan,
        /// The server sends beyond the plan's limit, so this end closes the connection.
        server_overruns: bool,
    },
    /// Sends the file.
    Send {
        /// Source of the bytes.
        source: Arc<dyn Source>,
        /// Ranges to send.
        plan: SendPlan,
    },
}

/// Result of the blocking thread.
pub(super) struct DataResult {
    pub(super) channel: SessionDataChannel,
    pub(super) result: Result<TransferReport, DataError>,
    /// This end had all it wanted and closed the data connection.
    pub(super) closed_early: bool,
    /// The host of the alternative address, if that was used.
    pub(super) alternative_host: Option<IpAddr>,
}

/// Addresses to try when the first ones do not answer.
pub(super) struct AlternativeAddresses {
    pub(super) targets: StripeAddresses,
    /// Local address to connect from.
    pub(super) local: Option<IpAddr>,
    /// The DRS channel, at the host of the data connections.
    pub(super) drs: Option<Arc<DrsEndpoint>>,
}

/// Starts the data side.
pub(super) fn start_data_side(
    local_end: LocalTransfer,
    channel: SessionDataChannel,
    alternative: Option<AlternativeAddresses>,
    settings: TransferSettings,
    control: Arc<TransferControl>,
) -> JoinHandle<DataResult> {
    tokio::task::spawn_blocking(move || {
        let (mut channel, mut settings) = (channel, settings);
        let mut result = local_end.run(&mut channel, &settings, &control);
        let mut alternative_host = None;
        // Only a failed connect is retried: no byte has moved yet, and the sink is unchanged.
        if let (Err(DataError::Connect { .. }), Some(other)) = (&result, alternative) {
            channel =
                SessionDataChannel::connect_to(other.targets.as_slice().to_vec(), other.local);
            settings.drs = other.drs;
            alternative_host = Some(other.targets.first().ip());
            result = local_end.run(&mut channel, &settings, &control);
        }
        let closed_early = result.as_ref().is_ok_and(|report| report.ended_early);
        DataResult {
            channel,
            result,
            closed_early,
            alternative_host,
        }
    })
}

impl LocalTransfer {
    /// Moves the bytes. Blocks.
    pub(super) fn run(
        &self,
        channel: &mut SessionDataChannel,
        settings: &TransferSettings,
        control: &Arc<TransferControl>,
    ) -> Result<TransferReport, DataError> {
        match self {
            Self::Receive {
                sink,
                plan,
                server_overruns,
            } => {
                if let Some(limit) = plan.limit.filter(|_| *server_overruns) {
                    // Another session may have taken the end of the range before.
                    control.end_at_latest(limit);
                }
                recv::run(channel, sink, plan, settings, control)
            }
            Self::Send { source, plan } => send::run(channel, source, plan, settings, control),
        }
    }
}
