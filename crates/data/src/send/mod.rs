//! Store to wire.

pub mod body;
mod crew;
mod modes;
mod outlet;
mod zerocopy;

use std::sync::Arc;

use proto::command::{Mode, Type};
use proto::ranges::RangeSet;
use tune::limiter::Role;

use crate::ascii::AsciiSource;
use crate::channel::Channel;
use crate::cursor::Supply;
use crate::error::DataError;
use crate::job::{Control, Report, Settings};
use crate::sizing;
use crate::store::Source;
use crate::sum::{Sum, WORTH_A_FOLLOWER};
use crate::transfer::Transfer;

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
    channel: &mut Channel,
    source: &Arc<dyn Source>,
    plan: &SendPlan,
    settings: &Settings,
    control: &Arc<Control>,
) -> Result<Report, DataError> {
    let transfer = Transfer::new(Role::Sender, settings, control)?;
    let result = transfer
        .check()
        .and_then(|()| SendTask::new(source, plan, settings, &transfer))
        .and_then(|task| {
            sizing::beside(
                &transfer,
                settings,
                Role::Sender,
                task.bytes,
                || match settings.mode {
                    Mode::Stream => modes::stream(channel, task),
                    Mode::Extended => modes::extended(channel, task),
                },
            )
        });
    transfer.finish(result)
}

/// A transfer that is ready to start.
struct SendTask<'t> {
    source: Arc<dyn Source>,
    supply: Supply,
    /// All that is to be sent, if that is known.
    bytes: Option<u64>,
    /// Subtracted from the supply's offsets to make wire offsets.
    origin: u64,
    sum: Sum,
    settings: &'t Settings,
    transfer: &'t Transfer,
}

impl<'t> SendTask<'t> {
    fn new(
        source: &Arc<dyn Source>,
        plan: &SendPlan,
        settings: &'t Settings,
        transfer: &'t Transfer,
    ) -> Result<Self, DataError> {
        let first = plan.ranges.iter().next();
        if let Some(range) = first.filter(|r| r.start < plan.origin) {
            return Err(DataError::Outside {
                offset: range.start,
                count: range.len(),
                limit: plan.origin,
            });
        }
        let size = source.len().map_err(|e| DataError::read(&**source, e))?;
        let task = |source, supply: Supply, origin, sum| Self {
            source,
            bytes: matches!(supply, Supply::Ranges { .. }).then(|| plan.ranges.bytes()),
            supply,
            origin,
            sum,
            settings,
            transfer,
        };
        if settings.type_ == Type::Ascii {
            let start = first.map_or(0, |r| r.start);
            let end = size.map_or(u64::MAX, |_| plan.ranges.end().max(start));
            let text = AsciiSource::new(Arc::clone(source), start, end);
            return Ok(task(Arc::new(text), Supply::in_order(), 0, Sum::Off));
        }
        let supply = match size {
            Some(_) => Supply::ranges(&plan.ranges),
            None => Supply::in_order(),
        };
        // Bytes that are handed out in order by one hand pass in order whatever their streams.
        let most = settings.streams.max(settings.most_streams);
        let one_stream = settings.mode == Mode::Stream || most <= 1 || size.is_none();
        let ordered = settings.sum.is_some_and(|a| !a.combines());
        let many = !one_stream || (size.is_some() && plan.ranges.bytes() >= WORTH_A_FOLLOWER);
        let view = (ordered && many).then(|| Arc::clone(source));
        let sum = Sum::read_back(settings.sum, view, plan.origin);
        let origin = if size.is_some() { plan.origin } else { 0 };
        Ok(task(Arc::clone(source), supply, origin, sum))
    }

    /// Connections to open first, for each target.
    fn first_streams(&self) -> usize {
        let settings = self.settings;
        let known = settings.prior.streams_for(self.bytes);
        match known.and_then(|streams| usize::try_from(streams).ok()) {
            Some(streams) if self.adapts() => streams
                .min(settings.most_streams)
                .max(settings.least_streams),
            _ => settings.streams,
        }
        .max(1)
    }

    /// Whether the number of its lanes may change.
    fn adapts(&self) -> bool {
        let settings = self.settings;
        settings.adapt && settings.most_streams > 1 && sizing::is_worth_a_thread(self.bytes)
    }
}
