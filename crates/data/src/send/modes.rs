//! The two ways of sending a task: MODE S and MODE E.

use std::sync::atomic::AtomicBool;

use super::SendTask;
use super::crew::{Crew, Post};
use super::outlet::Outlet;
use crate::channel::Channel;
use crate::connect::Connected;
use crate::error::DataError;
use crate::wire::Wire;

/// Sends the task in MODE S, where the file is the connection (RFC 959 §3.4.1): over one connection, in the caller's thread, and closes it.
pub(super) fn stream(
    channel: &mut Channel,
    task: SendTask<'_>,
) -> Result<Option<String>, DataError> {
    let stream = channel.open_single(task.transfer, task.settings)?;
    let go_on = || task.transfer.check().is_ok();
    let sent = task.sum.beside(go_on, || {
        let mut outlet = Outlet::new(Wire::new(task.transfer, stream.clone()), &task)?;
        outlet.send_supply(false, &AtomicBool::new(false))?;
        outlet.wire().finish_sending()
    });
    if sent.is_err() {
        stream.break_off();
    }
    sent.map(|()| task.sum.digest())
}

/// Sends the task in MODE E, as blocks over any number of connections (GFD.20 §3.4): the cached ones, or
/// new ones. Keeps them unless told to close.
pub(super) fn extended(
    channel: &mut Channel,
    task: SendTask<'_>,
) -> Result<Option<String>, DataError> {
    let first = open(channel, &task)?;
    let go_on = || task.transfer.check().is_ok();
    let sent = task
        .sum
        .beside(go_on, || Crew::new(channel, &task)?.run(first));
    let streams = task.transfer.lanes().streams();
    if sent.is_err() {
        for stream in &streams {
            stream.break_off();
        }
    }
    sent?;
    task.transfer.check()?;
    if !task.settings.close_after {
        channel.keep(true, streams);
    }
    Ok(task.sum.digest())
}

/// Opens the first connections, or takes those that are there, and decides how many there shall be.
fn open<'t>(channel: &mut Channel, task: &SendTask<'t>) -> Result<Vec<Post<'t>>, DataError> {
    let wanted = task.first_streams();
    let reused = channel.has_cached(true);
    let opened = channel.open_extended(task.transfer, task.settings, true, wanted)?;
    let first = enlist(task, opened);
    let lanes = task.transfer.lanes();
    let most = task.settings.most_connections.max(lanes.targets());
    let (there, wanted) = (first.len(), (wanted * lanes.targets()).min(most));
    match (reused, task.settings.adapt) {
        // Even for a small file: a larger one may follow.
        (true, true) => lanes.aim(there.min(task.settings.most_streams).max(wanted)),
        (true, false) => lanes.aim(wanted),
        (false, _) => lanes.aim(there),
    }
    if !reused && there < wanted {
        lanes.make_do();
    }
    Ok(first)
}

/// The first lanes.
fn enlist<'t>(task: &SendTask<'t>, opened: Connected) -> Vec<Post<'t>> {
    let lanes = task.transfer.lanes();
    let seated = opened.open.into_iter().map(|stream| {
        let seat = lanes.join(lanes.target(stream.peer()), &stream);
        Post::Seated(seat, stream)
    });
    let awaited = opened.waiting.into_iter().map(|attempt| {
        let ticket = lanes.expect(lanes.target(attempt.to()));
        Post::Awaited(ticket, attempt)
    });
    seated.chain(awaited).collect()
}
