//! The two ways of sending a task: MODE S and MODE E.

use std::sync::atomic::AtomicBool;

use super::SendTask;
use super::sender_threads::{SenderThreads, StreamStart};
use super::stream_sender::StreamSender;
use crate::channel::SessionDataChannel;
use crate::connect::OpenedConnections;
use crate::error::DataError;
use crate::stream_io::StreamIo;

/// Sends the task in MODE S, where the file is the connection (RFC 959 §3.4.1): over one connection, in the caller's thread, and closes it.
pub(super) fn stream(
    channel: &mut SessionDataChannel,
    task: SendTask<'_>,
) -> Result<Option<String>, DataError> {
    let stream = channel.open_single(task.transfer, task.settings)?;
    let go_on = || task.transfer.check().is_ok();
    let sent = task.sum.run_with_follower(go_on, || {
        let mut outlet = StreamSender::new(StreamIo::new(task.transfer, stream.clone()), &task)?;
        outlet.send_supply(false, &AtomicBool::new(false))?;
        outlet.wire().finish_sending()
    });
    if sent.is_err() {
        stream.reset();
    }
    sent.map(|()| task.sum.finish())
}

/// Sends the task in MODE E, as blocks over any number of connections (GFD.20 §3.4): the cached ones, or
/// new ones. Keeps them unless told to close.
pub(super) fn extended(
    channel: &mut SessionDataChannel,
    task: SendTask<'_>,
) -> Result<Option<String>, DataError> {
    let first = open(channel, &task)?;
    let go_on = || task.transfer.check().is_ok();
    let sent = task
        .sum
        .run_with_follower(go_on, || SenderThreads::new(channel, &task)?.run(first));
    let streams = task.transfer.stream_set().streams();
    if sent.is_err() {
        for stream in &streams {
            stream.reset();
        }
    }
    sent?;
    task.transfer.check()?;
    if !task.settings.close_after {
        channel.keep_streams(true, streams);
    }
    Ok(task.sum.finish())
}

/// Opens the first connections, or takes those that are there, and decides how many there shall be.
fn open<'t>(
    channel: &mut SessionDataChannel,
    task: &SendTask<'t>,
) -> Result<Vec<StreamStart<'t>>, DataError> {
    let wanted = task.first_streams();
    let reused = channel.has_cached(true);
    let opened = channel.open_extended(task.transfer, task.settings, true, wanted)?;
    let first = add_first_streams(task, opened);
    let lanes = task.transfer.stream_set();
    let most = task.settings.max_connections.max(lanes.target_count());
    let (there, wanted) = (first.len(), (wanted * lanes.target_count()).min(most));
    match (reused, task.settings.adapt) {
        // Even for a small file: a larger one may follow.
        (true, true) => lanes.set_wanted(there.min(task.settings.max_streams).max(wanted)),
        (true, false) => lanes.set_wanted(wanted),
        (false, _) => lanes.set_wanted(there),
    }
    if !reused && there < wanted {
        lanes.accept_current_count();
    }
    Ok(first)
}

/// The first lanes.
fn add_first_streams<'t>(task: &SendTask<'t>, opened: OpenedConnections) -> Vec<StreamStart<'t>> {
    let lanes = task.transfer.stream_set();
    let seated = opened.open.into_iter().map(|stream| {
        let seat = lanes.add(lanes.target_index(stream.peer()), &stream);
        StreamStart::Connected(seat, stream)
    });
    let awaited = opened.pending.into_iter().map(|attempt| {
        let ticket = lanes.add_pending(lanes.target_index(attempt.to()));
        StreamStart::Connecting(ticket, attempt)
    });
    seated.chain(awaited).collect()
}
