//! MODE E: blocks from any number of connections until EOF and every EOD are in (GFD.20 §3.4).

use std::sync::Arc;

use super::ReceiveTask;
use super::accept::Intake;
use super::crew::Crew;
use super::gathering::Gathering;
use crate::budget::Permit;
use crate::channel::Channel;
use crate::error::DataError;
use crate::stream::Stream;

/// Receives over the cached connections and all that arrive; keeps those that may be used again.
pub(super) fn receive(
    channel: &mut Channel,
    task: &ReceiveTask<'_>,
) -> Result<Option<String>, DataError> {
    let gathering = Gathering::new(task.sum(true))?;
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
        .sum
        .beside(go_on, || gather(channel, task, &gathering, present, permit));
    task.transfer.check()?;
    let (sum, parked) = gathering.into_parts();
    channel.keep(false, parked);
    Ok(sum.digest())
}

/// Runs the readers, and in the caller's thread the intake of further connections, until all
/// have ended. A failure is noted in the transfer.
fn gather(
    channel: &Channel,
    task: &ReceiveTask<'_>,
    gathering: &Gathering,
    present: Vec<Arc<Stream>>,
    permit: Option<Permit>,
) {
    let transfer = task.transfer;
    std::thread::scope(|scope| {
        let crew = Crew::new(scope, task, gathering);
        let mut intake = Intake::new(channel, crew, permit);
        let taken = intake.adopt(present).and_then(|()| intake.run());
        if let Err(error) = taken {
            transfer.fail(error);
        }
        intake.join();
    });
}
