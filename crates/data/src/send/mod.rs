//! Sending: store to wire.

pub mod body;
mod modes;
mod range_supply;
mod sender_threads;
mod stream_sender;
mod target_units;
#[cfg(test)]
mod tests;
mod zerocopy;

pub use range_supply::RangeSupply;

use std::sync::Arc;

use proto::command::{DataType, TransferMode};
use proto::ranges::RangeSet;
use tune::limiter::Role;

use self::target_units::TargetUnits;
use crate::ascii::AsciiSource;
use crate::channel::SessionDataChannel;
use crate::cursor::TransferCursor;
use crate::error::DataError;
use crate::job::{TransferControl, TransferReport, TransferSettings};
use crate::store::Source;
use crate::transfer::ActiveTransfer;
use crate::transfer_checksum::{MIN_FOLLOWER_BYTES, TransferChecksum};
use crate::tuning;

/// Ranges to send, and where their offsets count from.
#[derive(Debug, Clone)]
pub struct SendPlan {
    /// File ranges to send, ascending. Ignored for sequential sources (pipes), which are sent to
    /// their end. In TYPE A only the start of the first and the end of the last range count.
    pub ranges: RangeSet,
    /// Subtracted from file offsets to get wire offsets (ERET P: start of the part). No range may
    /// start before it.
    pub origin: u64,
    /// Ranges that come later (MODE E); `None`: there are none.
    pub supply: Option<Arc<RangeSupply>>,
    /// Of several targets, one gets all bytes from a multiple of so many to the next, counted from `origin` (MODE E, without a supply);
    /// `None`: each gets what comes next.
    pub unit: Option<u64>,
}

/// Sends the planned ranges over the channel. Blocks until everything is handed to the kernel and
/// the end marks are sent. In MODE S, and with `close_after`, the connections are shut down, and
/// the call waits until the peer's kernel has acknowledged every byte. The channel caches reusable
/// MODE E connections.
///
/// A failed transfer ends with a reset, so that no receiver takes it for complete.
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
                tuning::run_with_tuning(&transfer, settings, Role::Sender, task.bytes, || {
                    match settings.mode {
                        TransferMode::Stream => modes::stream(channel, task),
                        TransferMode::Extended => modes::extended(channel, task),
                    }
                })
            });
    transfer.finish(result)
}

impl SendPlan {
    /// These ranges and no others; `origin` is subtracted from their offsets.
    pub fn new(ranges: RangeSet, origin: u64) -> Self {
        Self {
            ranges,
            origin,
            supply: None,
            unit: None,
        }
    }
}

/// A transfer that is ready to start.
struct SendTask<'t> {
    source: Arc<dyn Source>,
    cursor: TransferCursor,
    /// Number of bytes to send, if it is known.
    bytes: Option<u64>,
    /// Subtracted from the cursor's offsets to get wire offsets.
    origin: u64,
    checksum: TransferChecksum,
    supply: Option<Arc<RangeSupply>>,
    units: Option<TargetUnits>,
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
        // A subtraction below would wrap around.
        if let Some(range) = first.filter(|r| r.start < plan.origin) {
            return Err(DataError::OutOfRange {
                offset: range.start,
                count: range.len(),
                limit: plan.origin,
            });
        }
        let size = source.len().map_err(|e| DataError::read(&**source, e))?;
        let task = |source, cursor: TransferCursor, origin, checksum| Self {
            source,
            bytes: (matches!(cursor, TransferCursor::Ranges { .. }) && plan.supply.is_none())
                .then(|| plan.ranges.byte_count()),
            cursor,
            origin,
            checksum,
            supply: plan.supply.clone(),
            units: plan.unit.map(|unit| TargetUnits::new(unit, plan.origin)),
            settings,
            transfer,
        };
        if settings.type_ == DataType::Ascii {
            // Line ends shift later offsets, so only one contiguous part can be translated.
            let start = first.map_or(0, |r| r.start);
            let end = size.map_or(u64::MAX, |_| plan.ranges.end().max(start));
            let text = AsciiSource::new(Arc::clone(source), start, end);
            return Ok(task(
                Arc::new(text),
                TransferCursor::sequential(),
                0,
                TransferChecksum::Off,
            ));
        }
        let cursor = match size {
            Some(_) => TransferCursor::ranges(&plan.ranges),
            None => TransferCursor::sequential(),
        };
        if let (TransferCursor::Ranges { left, .. }, Some(supply)) = (&cursor, &plan.supply) {
            supply.attach(left, source);
        }
        // Bytes that one cursor hands out in order pass in order, over any number of streams.
        let max_streams = settings.streams.max(settings.max_streams);
        let one_stream =
            settings.mode == TransferMode::Stream || max_streams <= 1 || size.is_none();
        let ordered = settings.checksum.is_some_and(|a| !a.is_combinable());
        let many =
            !one_stream || (size.is_some() && plan.ranges.byte_count() >= MIN_FOLLOWER_BYTES);
        let view = (ordered && many).then(|| Arc::clone(source));
        let checksum = TransferChecksum::read_back(settings.checksum, view, plan.origin);
        // The offsets of a sequential source count from its own start.
        let origin = if size.is_some() { plan.origin } else { 0 };
        Ok(task(Arc::clone(source), cursor, origin, checksum))
    }

    /// Number of connections to open first for each target.
    fn first_streams(&self) -> usize {
        let settings = self.settings;
        // Prior knowledge of the path replaces the configured start value only if the number may
        // change.
        if !self.adapts() {
            return settings.streams.max(1);
        }
        let usual = u32::try_from(settings.streams).unwrap_or(u32::MAX);
        let streams = settings.prior.first_streams(self.bytes, usual);
        let streams = usize::try_from(streams).unwrap_or(usize::MAX);
        streams
            .min(settings.max_streams)
            .max(settings.min_streams)
            .max(1)
    }

    /// Whether the number of its streams may change.
    fn adapts(&self) -> bool {
        let settings = self.settings;
        settings.adapt && settings.max_streams > 1 && tuning::is_worth_a_thread(self.bytes)
    }
}
