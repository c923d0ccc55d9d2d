//! MODE E: blocks from any number of connections until EOF and every EOD are in (GFD.20 §3.4).

use std::sync::Arc;

use super::ReceiveTask;
use super::acceptor::StreamAcceptor;
use super::extended_receive::ExtendedReceive;
use super::receiver_threads::ReceiverThreads;
use crate::budget::StreamPermit;
use crate::channel::SessionDataChannel;
use crate::error::DataError;
use crate::stream::DataStream;

/// Receives over the cached connections and all that arrive; keeps those that may be used again.
pub(super) fn receive(
    channel: &mut SessionDataChannel,
    task: &ReceiveTask<'_>,
) -> Result<Option<String>, DataError> {
    let gathering = ExtendedReceive::new(task.sum(true))?;
    // Kept connections have theirs.
    let reused = channel.has_cached(false);
    let permit = if reused {
        None
    } else {
        Some(channel.permit()?)
    };
    let present = channel
        .open_extended(task.transfer, task.settings, false, 1)?
        .open;
    let go_on = || task.transfer.check().is_ok();
    gathering
        .checksum
        .run_with_follower(go_on, || gather(channel, task, &gathering, present, permit));
    task.transfer.check()?;
    let (sum, parked) = gathering.into_parts();
    channel.keep_streams(false, parked);
    Ok(sum.finish())
}

/// Runs the readers, and in the caller's thread the intake of further connections, until all
/// have ended. A failure is noted in the transfer.
fn gather(
    channel: &SessionDataChannel,
    task: &ReceiveTask<'_>,
    gathering: &ExtendedReceive,
    present: Vec<Arc<DataStream>>,
    permit: Option<StreamPermit>,
) {
    let transfer = task.transfer;
    std::thread::scope(|scope| {
        let crew = ReceiverThreads::new(scope, task, gathering);
        let mut intake = StreamAcceptor::new(channel, crew, permit);
        let taken = intake.adopt(present).and_then(|()| intake.run());
        if let Err(error) = taken {
            transfer.fail(error);
        }
        intake.join();
    });
}
