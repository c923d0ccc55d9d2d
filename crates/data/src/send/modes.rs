//! The two ways of sending a job: MODE S and MODE E.

use std::sync::atomic::AtomicBool;

use super::Job;
use super::crew::{Crew, Post};
use super::outlet::Outlet;
use crate::channel::Channel;
use crate::connect::Connected;
use crate::error::DataError;
use crate::wire::Wire;

/// Sends the job in MODE S, where the file is the connection (RFC 959 §3.4.1): over one connection, in the caller's thread, and closes it.
pub(super) fn stream(channel: &mut Channel, job: Job<'_>) -> Result<Option<String>, DataError> {
    let stream = channel.open_single(job.transfer, job.settings)?;
    let go_on = || job.transfer.check().is_ok();
    let sent = job.sum.beside(go_on, || {
        let mut outlet = Outlet::new(Wire::new(job.transfer, stream.clone()), &job);
        outlet.send_supply(false, &AtomicBool::new(false))?;
        outlet.wire().finish_sending()
    });
    if sent.is_err() {
        stream.break_off();
    }
    sent.map(|()| job.sum.digest())
}

/// Sends the job in MODE E, as blocks over any number of connections (GFD.20 §3.4): the cached ones, or
/// new ones. Keeps them unless told to close.
pub(super) fn extended(channel: &mut Channel, job: Job<'_>) -> Result<Option<String>, DataError> {
    let first = open(channel, &job)?;
    let go_on = || job.transfer.check().is_ok();
    let sent = job
        .sum
        .beside(go_on, || Crew::new(channel, &job)?.run(first));
    let streams = job.transfer.lanes().streams();
    if sent.is_err() {
        for stream in &streams {
            stream.break_off();
        }
    }
    sent?;
    job.transfer.check()?;
    if !job.settings.close_after {
        channel.keep(true, streams);
    }
    Ok(job.sum.digest())
}

/// Opens the first connections, or takes those that are there, and decides how many there shall be.
fn open<'t>(channel: &mut Channel, job: &Job<'t>) -> Result<Vec<Post<'t>>, DataError> {
    let wanted = job.settings.streams.max(1);
    let reused = channel.has_cached(true);
    let opened = channel.open_extended(job.transfer, job.settings, true, wanted)?;
    let first = enlist(job, opened);
    let lanes = job.transfer.lanes();
    let most = job.settings.most_connections.max(lanes.targets());
    let (there, wanted) = (first.len(), (wanted * lanes.targets()).min(most));
    match (reused, job.settings.adapt) {
        // Even for a small file: a larger one may follow.
        (true, true) => lanes.aim(there.min(job.settings.most_streams).max(wanted)),
        (true, false) => lanes.aim(wanted),
        (false, _) => lanes.aim(there),
    }
    if !reused && there < wanted {
        lanes.make_do();
    }
    Ok(first)
}

/// The first lanes.
fn enlist<'t>(job: &Job<'t>, opened: Connected) -> Vec<Post<'t>> {
    let lanes = job.transfer.lanes();
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
