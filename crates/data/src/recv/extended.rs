//! MODE E: blocks from any number of connections until EOF and every EOD have arrived (GFD.20
//! §3.4).

use std::sync::Arc;

use super::ReceiveTask;
use super::acceptor::StreamAcceptor;
use super::extended_receive::ExtendedReceive;
use super::receiver_threads::ReceiverThreads;
use crate::budget::StreamPermit;
use crate::channel::SessionDataChannel;
use crate::error::DataError;
use crate::stream::DataStream;

/// Receives over the cached connections and all that arrive. Caches those that may be reused.
pub(super) fn receive(
    channel: &mut SessionDataChannel,
    task: &ReceiveTask<'_>,
) -> Result<Option<String>, DataError> {
    let receive = ExtendedReceive::new(task.checksum(true), channel.senders())?;
    // Cached connections already hold permits.
    let reused = channel.has_cached(false);
    let permit = if reused {
        None
    } else {
        Some(channel.permit()?)
    };
    let existing = channel
        .open_extended(task.transfer, task.settings, false, 1)?
        .open;
    let go_on = || task.transfer.check().is_ok();
    receive.checksum.run_with_follower(go_on, || {
        receive_blocks(channel, task, &receive, existing, permit);
    });
    let (checksum, parked) = receive.into_parts();
    // After an early end the connections carry what nobody wants, so they are closed.
    if !task.transfer.has_ended_early() {
        // Readers have recorded their errors by now.
        task.transfer.check()?;
        channel.keep_streams(false, parked);
    }
    Ok(checksum.finish())
}

/// Runs the readers, and in the caller's thread the acceptor, until all have ended. A failure is
/// recorded in the transfer.
fn receive_blocks(
    channel: &SessionDataChannel,
    task: &ReceiveTask<'_>,
    receive: &ExtendedReceive,
    existing: Vec<Arc<DataStream>>,
    permit: Option<StreamPermit>,
) {
    let transfer = task.transfer;
    std::thread::scope(|scope| {
        let readers = ReceiverThreads::new(scope, task, receive);
        let mut acceptor = StreamAcceptor::new(channel, readers, permit);
        let taken = acceptor.adopt(existing).and_then(|()| acceptor.run());
        if let Err(error) = taken {
            transfer.fail(error);
        }
        acceptor.join();
    });
}
