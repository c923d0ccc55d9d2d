//! The two ways to send a task: MODE S and MODE E.

use std::sync::atomic::AtomicBool;

use super::SendTask;
use super::sender_threads::{SenderThreads, StreamStart};
use super::stream_sender::StreamSender;
use crate::channel::SessionDataChannel;
use crate::connect::OpenedConnections;
use crate::error::DataError;
use crate::stream_io::StreamIo;

/// Sends the task in MODE S, where the connection is the file (RFC 959 §3.4.1), over one connection
/// in the caller's thread, and closes it.
pub(super) fn stream(
    channel: &mut SessionDataChannel,
    task: SendTask<'_>,
) -> Result<Option<String>, DataError> {
    let stream = channel.open_single(task.transfer, task.settings)?;
    let go_on = || task.transfer.check().is_ok();
    let result = task.checksum.run_with_follower(go_on, || {
        let io = StreamIo::new(task.transfer, stream.clone());
        io.handshake()?;
        let mut sender = StreamSender::new(io, &task);
        sender.send_from_cursor(false, &AtomicBool::new(false))?;
        sender.io().finish_sending()
    });
    if result.is_err() {
        // A FIN would tell the receiver that the file is complete.
        stream.reset();
    }
    result.map(|()| task.checksum.finish())
}

/// Sends the task in MODE E, as blocks over any number of connections (GFD.20 §3.4): the cached
/// ones, or new ones. Caches them unless told to close.
pub(super) fn extended(
    channel: &mut SessionDataChannel,
    task: SendTask<'_>,
) -> Result<Option<String>, DataError> {
    let first = open(channel, &task)?;
    let go_on = || task.transfer.check().is_ok();
    let result = task
        .checksum
        .run_with_follower(go_on, || SenderThreads::new(channel, &task)?.run(first));
    let streams = task.transfer.stream_set().streams();
    if result.is_err() {
        // All streams are reset, so that no receiver sees the missing EODs as a clean end.
        for stream in &streams {
            stream.reset();
        }
    }
    result?;
    task.transfer.check()?;
    if !task.settings.close_after {
        channel.keep_streams(true, streams);
    }
    Ok(task.checksum.finish())
}

/// Opens the first connections, or takes the cached ones, and sets the wanted number of streams.
fn open<'t>(
    channel: &mut SessionDataChannel,
    task: &SendTask<'t>,
) -> Result<Vec<StreamStart<'t>>, DataError> {
    let wanted = task.first_streams();
    let reused = channel.has_cached(true);
    let opened = channel.open_extended(task.transfer, task.settings, true, wanted)?;
    let first = add_first_streams(task, opened);
    let set = task.transfer.stream_set();
    let max = task.settings.max_connections.max(set.target_count());
    let (existing, wanted) = (first.len(), (wanted * set.target_count()).min(max));
    match (reused, task.settings.adapt) {
        // Even for a small file, because a larger one may follow.
        // Cached connections are already past slow start, so all that are permitted are used.
        (true, true) => set.set_wanted(existing.min(task.settings.max_streams).max(wanted)),
        (true, false) => set.set_wanted(wanted),
        (false, _) => set.set_wanted(existing),
    }
    // No more streams are wanted than the receiver accepts.
    if !reused && existing < wanted {
        set.accept_current_count();
    }
    Ok(first)
}

/// Adds the first streams to the set.
fn add_first_streams<'t>(task: &SendTask<'t>, opened: OpenedConnections) -> Vec<StreamStart<'t>> {
    let set = task.transfer.stream_set();
    let connected = opened.open.into_iter().map(|stream| {
        let active = set.add(set.target_index(stream.peer()), &stream);
        StreamStart::Connected(active, stream)
    });
    let connecting = opened.pending.into_iter().map(|attempt| {
        let pending = set.add_pending(set.target_index(attempt.to()));
        StreamStart::Connecting(pending, attempt)
    });
    connected.chain(connecting).collect()
}
