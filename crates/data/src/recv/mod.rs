//! Wire to store.

mod accept;
mod crew;
mod extended;
mod gathering;
mod inlet;
mod reader;
mod stream_mode;
mod waiting;

use std::sync::Arc;

use proto::command::{Mode, Type};
use tune::limiter::Role;

use crate::ascii::AsciiSink;
use crate::channel::Channel;
use crate::checkpoint;
use crate::error::DataError;
use crate::job::{Control, Report, Settings};
use crate::sizing;
use crate::store::Sink;
use crate::sum::{Sum, WORTH_A_FOLLOWER};
use crate::transfer::Transfer;

/// Where received bytes go.
#[derive(Debug, Clone, Copy)]
pub struct RecvPlan {
    /// Added to wire offsets to make file offsets (MODE E: ESTO A, REST parts; MODE S: where the
    /// stream starts, less `stream_start`).
    pub origin: u64,
    /// MODE S with REST n: wire offset of the first byte, for the ranges in the report.
    pub stream_start: u64,
    /// A block that ends beyond this wire offset is refused ([`DataError::Outside`]); in MODE S
    /// a stream that goes on past it too.
    pub limit: Option<u64>,
}

/// Receives one transfer; returns when MODE E is complete (EOF and all EODs) or the MODE S
/// connection ended, and every byte was handed to the sink. What of it is on disk meanwhile,
/// [`Control::synced`] tells; the whole is only after [`Sink::sync`].
///
/// In TYPE A bytes are stored in order from `origin + stream_start` on, and MODE E text must come
/// over one stream.
pub fn run(
    channel: &mut Channel,
    sink: &Arc<dyn Sink>,
    plan: &RecvPlan,
    settings: &Settings,
    control: &Arc<Control>,
) -> Result<Report, DataError> {
    let transfer = Transfer::new(Role::Receiver, settings, control)?;
    let result = transfer.check().and_then(|()| {
        let most = plan.limit;
        let receive = || match settings.type_ {
            Type::Image => checkpoint::beside(&transfer, sink, || {
                receive(channel, sink, plan, settings, &transfer)
            }),
            // What is counted of text are bytes on the wire: no ranges of the file that could be safe.
            Type::Ascii => receive_text(channel, sink, plan, settings, &transfer),
        };
        sizing::beside(&transfer, settings, Role::Receiver, most, receive)
    });
    transfer.finish(result)
}

fn receive(
    channel: &mut Channel,
    sink: &Arc<dyn Sink>,
    plan: &RecvPlan,
    settings: &Settings,
    transfer: &Transfer,
) -> Result<Option<String>, DataError> {
    let task = ReceiveTask {
        sink,
        plan,
        settings,
        transfer,
    };
    match settings.mode {
        Mode::Stream => stream_mode::receive(channel, &task),
        Mode::Extended => extended::receive(channel, &task),
    }
}

fn receive_text(
    channel: &mut Channel,
    sink: &Arc<dyn Sink>,
    plan: &RecvPlan,
    settings: &Settings,
    transfer: &Transfer,
) -> Result<Option<String>, DataError> {
    let start = match settings.mode {
        Mode::Stream => plan.origin.saturating_add(plan.stream_start),
        Mode::Extended => plan.origin,
    };
    let text = Arc::new(AsciiSink::new(Arc::clone(sink), start));
    let as_sink: Arc<dyn Sink> = Arc::clone(&text) as Arc<dyn Sink>;
    let settings = Settings {
        sum: None,
        ..settings.clone()
    };
    receive(channel, &as_sink, plan, &settings, transfer)?;
    text.finish().map_err(|e| DataError::write(&**sink, e))?;
    Ok(None)
}

/// A transfer that is ready to start.
struct ReceiveTask<'t> {
    sink: &'t Arc<dyn Sink>,
    plan: &'t RecvPlan,
    settings: &'t Settings,
    transfer: &'t Transfer,
}

impl ReceiveTask<'_> {
    /// How this task's bytes are summed: those that need their order by a follower, unless they
    /// are few and come in one stream.
    fn sum(&self, many_streams: bool) -> Sum {
        let ordered = self.settings.sum.is_some_and(|a| !a.combines());
        let few = self
            .plan
            .limit
            .is_some_and(|limit| limit < WORTH_A_FOLLOWER);
        let view = (ordered && (many_streams || !few))
            .then(|| self.sink.reread())
            .flatten();
        Sum::read_back(self.settings.sum, view, self.plan.origin)
    }

    /// [`DataError::Outside`] if `count` bytes at `offset` are not all below the limit.
    fn check_limit(&self, offset: u64, count: u64) -> Result<(), DataError> {
        match self.plan.limit {
            Some(limit) if count > 0 && offset.saturating_add(count) > limit => {
                Err(DataError::Outside {
                    offset,
                    count,
                    limit,
                })
            }
            _ => Ok(()),
        }
    }
}
