//! Receiving: wire to store.

mod acceptor;
mod block_reader;
mod extended;
mod extended_receive;
mod pending_connections;
mod receiver_threads;
mod stream_mode;
mod stream_receiver;

use std::sync::Arc;

use proto::command::{DataType, TransferMode};
use tune::limiter::Role;

use crate::ascii::AsciiSink;
use crate::channel::SessionDataChannel;
use crate::checkpoint;
use crate::error::DataError;
use crate::job::{TransferControl, TransferReport, TransferSettings};
use crate::store::Sink;
use crate::transfer::ActiveTransfer;
use crate::transfer_checksum::{MIN_FOLLOWER_BYTES, TransferChecksum};
use crate::tuning;

/// Where received bytes go.
#[derive(Debug, Clone, Copy)]
pub struct ReceivePlan {
    /// Added to wire offsets to get file offsets (MODE E: ESTO A, REST parts; MODE S: where the
    /// stream starts, less `stream_start`).
    pub origin: u64,
    /// MODE S with REST n: wire offset of the first byte, for the ranges in the report.
    pub stream_start: u64,
    /// A block that ends beyond this wire offset is refused ([`DataError::OutOfRange`]), and in
    /// MODE S a stream that continues beyond it.
    pub limit: Option<u64>,
}

/// Receives one transfer. Returns when MODE E is complete (EOF and all EODs) or the MODE S
/// connection has ended, and every byte was handed to the sink. [`TransferControl::synced`] tells
/// which ranges are on disk meanwhile; the whole file is on disk only after [`Sink::sync`].
///
/// In TYPE A bytes are stored in order from `origin + stream_start` on, and MODE E text must come
/// over one stream.
pub fn run(
    channel: &mut SessionDataChannel,
    sink: &Arc<dyn Sink>,
    plan: &ReceivePlan,
    settings: &TransferSettings,
    control: &Arc<TransferControl>,
) -> Result<TransferReport, DataError> {
    let transfer = ActiveTransfer::new(Role::Receiver, settings, control)?;
    // A cancel before the start must not open a connection.
    let result = transfer.check().and_then(|()| {
        let max_bytes = plan.limit;
        let receive = || match settings.type_ {
            DataType::Image => checkpoint::run_with_checkpoints(&transfer, sink, || {
                receive(channel, sink, plan, settings, &transfer)
            }),
            // Text counts bytes on the wire, which are no ranges of the file that could be safe.
            DataType::Ascii => receive_text(channel, sink, plan, settings, &transfer),
        };
        tuning::run_with_tuning(&transfer, settings, Role::Receiver, max_bytes, receive)
    });
    transfer.finish(result)
}

fn receive(
    channel: &mut SessionDataChannel,
    sink: &Arc<dyn Sink>,
    plan: &ReceivePlan,
    settings: &TransferSettings,
    transfer: &ActiveTransfer,
) -> Result<Option<String>, DataError> {
    let task = ReceiveTask {
        sink,
        plan,
        settings,
        transfer,
    };
    match settings.mode {
        TransferMode::Stream => stream_mode::receive(channel, &task),
        TransferMode::Extended => extended::receive(channel, &task),
    }
}

fn receive_text(
    channel: &mut SessionDataChannel,
    sink: &Arc<dyn Sink>,
    plan: &ReceivePlan,
    settings: &TransferSettings,
    transfer: &ActiveTransfer,
) -> Result<Option<String>, DataError> {
    let start = match settings.mode {
        TransferMode::Stream => plan.origin.saturating_add(plan.stream_start),
        TransferMode::Extended => plan.origin,
    };
    let text = Arc::new(AsciiSink::new(Arc::clone(sink), start));
    let as_sink: Arc<dyn Sink> = Arc::clone(&text) as Arc<dyn Sink>;
    // The bytes on the wire differ from those of the file, so their checksum would be meaningless.
    let settings = TransferSettings {
        checksum: None,
        ..settings.clone()
    };
    receive(channel, &as_sink, plan, &settings, transfer)?;
    text.finish().map_err(|e| DataError::write(&**sink, e))?;
    Ok(None)
}

/// A transfer that is ready to start.
struct ReceiveTask<'t> {
    sink: &'t Arc<dyn Sink>,
    plan: &'t ReceivePlan,
    settings: &'t TransferSettings,
    transfer: &'t ActiveTransfer,
}

impl ReceiveTask<'_> {
    /// How the bytes of this task are checksummed. An algorithm that needs the bytes in order gets
    /// a follower, unless the bytes are few and come in one stream.
    fn checksum(&self, many_streams: bool) -> TransferChecksum {
        let ordered = self.settings.checksum.is_some_and(|a| !a.is_combinable());
        let few = self
            .plan
            .limit
            .is_some_and(|limit| limit < MIN_FOLLOWER_BYTES);
        // A sink that cannot be read back has no view; the checksum then needs the bytes in order.
        let view = (ordered && (many_streams || !few))
            .then(|| self.sink.open_reader())
            .flatten();
        TransferChecksum::read_back(self.settings.checksum, view, self.plan.origin)
    }

    /// Whether the transfer ends before wire offset `offset`, so that bytes there are not wanted.
    fn is_beyond_early_end(&self, offset: u64) -> bool {
        let end = self.transfer.control().early_end();
        end.is_some_and(|end| offset >= end)
    }

    /// Most bytes of `count` at `offset` that lie before an early end.
    fn before_early_end(&self, offset: u64, count: u64) -> u64 {
        let end = self.transfer.control().early_end().unwrap_or(u64::MAX);
        count.min(end.saturating_sub(offset))
    }

    /// Ends the transfer if everything up to its early end is stored.
    fn end_early_if_complete(&self) {
        let control = self.transfer.control();
        if let Some(end) = control.early_end()
            && control.has_stored(self.plan.stream_start, end)
        {
            self.transfer.end_early();
        }
    }

    /// Fails with [`DataError::OutOfRange`] if `count` bytes at `offset` are not all below the
    /// limit.
    fn check_limit(&self, offset: u64, count: u64) -> Result<(), DataError> {
        match self.plan.limit {
            Some(limit) if count > 0 && offset.saturating_add(count) > limit => {
                Err(DataError::OutOfRange {
                    offset,
                    count,
                    limit,
                })
            }
            _ => Ok(()),
        }
    }
}
