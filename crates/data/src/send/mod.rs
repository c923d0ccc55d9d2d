//! Store to wire.

pub mod body;
mod modes;
mod sender_threads;
mod stream_sender;
mod zerocopy;

use std::sync::Arc;

use proto::command::{DataType, TransferMode};
use proto::ranges::RangeSet;
use tune::limiter::Role;

use crate::ascii::AsciiSource;
use crate::channel::SessionDataChannel;
use crate::error::DataError;
use crate::job::{TransferControl, TransferReport, TransferSettings};
use crate::send_cursor::SendCursor;
use crate::sizing;
use crate::store::Source;
use crate::transfer::ActiveTransfer;
use crate::transfer_checksum::{MIN_FOLLOWER_BYTES, TransferChecksum};

/// Plan of what to send.
#[derive(Debug, Clone)]
pub struct SendPlan {
    /// File ranges to send, ascending; ignored for sequential sources (pipes), which are sent to
    /// their end. In TYPE A only where the first range starts and the last ends counts.
    pub ranges: RangeSet,
    /// Subtracted from file offsets to make wire offsets (ERET P: start of the part). No range
    /// may start before it.
    pub origin: u64,
}

/// Sends the planned ranges over the channel; blocks until all is handed to the kernel and the end
/// marks are sent. In MODE S, and with `close_after`, the connections are shut down and the call
/// waits until the peer's kernel has acknowledged every byte.
/// The channel keeps reusable MODE E connections.
///
/// A transfer that fails is broken off with a reset, so that no receiver takes it for whole.
pub fn run(
    channel: &mut SessionDataChannel,
    source: &Arc<dyn Source>,
    plan: &SendPlan,
    settings: &TransferSettings,
    control: &Arc<TransferControl>,
) -> Result<TransferReport, DataError> {
    let transfer = ActiveTransfer::new(Role::Sender, settings, control)?;
    let result =
        transfer
            .check()
            .and_then(|()| SendTask::new(source, plan, settings, &transfer))
            .and_then(|task| {
                sizing::run_with_sizing(&transfer, settings, Role::Sender, task.bytes, || {
                    match settings.mode {
                        TransferMode::Stream => modes::stream(channel, task),
                        TransferMode::Extended => modes::extended(channel, task),
                    }
                })
            });
    transfer.finish(result)
}

/// A transfer that is ready to start.
struct SendTask<'t> {
    source: Arc<dyn Source>,
    supply: SendCursor,
    /// All that is to be sent, if that is known.
    bytes: Option<u64>,
    /// Subtracted from the supply's offsets to make wire offsets.
    origin: u64,
    sum: TransferChecksum,
    settings: &'t TransferSettings,
    transfer: &'t ActiveTransfer,
}

impl<'t> SendTask<'t> {
    fn new(
        source: &Arc<dyn Source>,
        plan: &SendPlan,
        settings: &'t TransferSettings,
        transfer: &'t ActiveTransfer,
    ) -> Result<Self, DataError> {
        let first = plan.ranges.iter().next();
        if let Some(range) = first.filter(|r| r.start < plan.origin) {
            return Err(DataError::OutOfRange {
                offset: range.start,
                count: range.len(),
                limit: plan.origin,
            });
        }
        let size = source.len().map_err(|e| DataError::read(&**source, e))?;
        let task = |source, supply: SendCursor, origin, sum| Self {
            source,
            bytes: matches!(supply, SendCursor::Ranges { .. }).then(|| plan.ranges.byte_count()),
            supply,
            origin,
            sum,
            settings,
            transfer,
        };
        if settings.type_ == DataType::Ascii {
            let start = first.map_or(0, |r| r.start);
            let end = size.map_or(u64::MAX, |_| plan.ranges.end().max(start));
            let text = AsciiSource::new(Arc::clone(source), start, end);
            return Ok(task(
                Arc::new(text),
                SendCursor::sequential(),
                0,
                TransferChecksum::Off,
            ));
        }
        let supply = match size {
            Some(_) => SendCursor::ranges(&plan.ranges),
            None => SendCursor::sequential(),
        };
        // Bytes that are handed out in order by one hand pass in order whatever their streams.
        let most = settings.streams.max(settings.max_streams);
        let one_stream = settings.mode == TransferMode::Stream || most <= 1 || size.is_none();
        let ordered = settings.checksum.is_some_and(|a| !a.is_combinable());
        let many =
            !one_stream || (size.is_some() && plan.ranges.byte_count() >= MIN_FOLLOWER_BYTES);
        let view = (ordered && many).then(|| Arc::clone(source));
        let sum = TransferChecksum::read_back(settings.checksum, view, plan.origin);
        let origin = if size.is_some() { plan.origin } else { 0 };
        Ok(task(Arc::clone(source), supply, origin, sum))
    }

    /// Connections to open first, for each target.
    fn first_streams(&self) -> usize {
        let settings = self.settings;
        let known = settings.prior.streams_for(self.bytes);
        match known.and_then(|streams| usize::try_from(streams).ok()) {
            Some(streams) if self.adapts() => {
                streams.min(settings.max_streams).max(settings.min_streams)
            }
            _ => settings.streams,
        }
        .max(1)
    }

    /// Whether the number of its lanes may change.
    fn adapts(&self) -> bool {
        let settings = self.settings;
        settings.adapt && settings.max_streams > 1 && sizing::is_worth_a_thread(self.bytes)
    }
}
