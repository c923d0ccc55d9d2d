//! MODE E: blocks over any number of connections (GFD.20 §3.4).

use std::sync::Arc;

use proto::eblock::Header;

use super::Job;
use super::outlet::Outlet;
use crate::channel::Channel;
use crate::error::DataError;
use crate::stream::Stream;
use crate::wire::Wire;

/// A connection at work, with its last header.
struct Lane<'t> {
    wire: Wire<'t>,
    end: Header,
}

/// Sends the job over the cached connections, or over new ones, and keeps them unless told to
/// close.
pub(super) fn send(channel: &mut Channel, job: Job<'_>) -> Result<Option<String>, DataError> {
    let lanes = open(channel, &job)?;
    let streams: Vec<_> = lanes.iter().map(|l| Arc::clone(l.wire.stream())).collect();
    let go_on = || job.transfer.check().is_ok();
    let sent = job.sum.beside(go_on, || send_over(lanes, &job));
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

/// Opens the connections and decides how each ends: every one with EOD, and per target one with
/// EOF and the count of them all (GFD.20 §3.4.2).
fn open<'t>(channel: &mut Channel, job: &Job<'t>) -> Result<Vec<Lane<'t>>, DataError> {
    let wanted = job.settings.streams.max(1);
    let mut permits = vec![channel.permit()?];
    permits.extend((1..wanted).map_while(|_| channel.permit().ok()));
    let streams = channel.open_extended(job.transfer, job.settings, true, permits.len())?;
    // More targets or cached connections than permits: each needs its own thread to end.
    while permits.len() < streams.len() {
        permits.push(channel.permit()?);
    }
    let close = job.settings.close_after;
    let ends: Vec<_> = streams
        .iter()
        .enumerate()
        .map(|(i, stream)| {
            let same = |other: &&Arc<Stream>| other.peer() == stream.peer();
            if streams[..i].iter().any(|s| same(&s)) {
                return Header::eod(close);
            }
            Header::eof(streams.iter().filter(same).count() as u64, close)
        })
        .collect();
    let lanes = streams.into_iter().zip(ends).zip(permits);
    Ok(lanes
        .map(|((stream, end), permit)| Lane {
            wire: Wire::new(job.transfer, stream, permit),
            end,
        })
        .collect())
}

/// Runs every lane, each in its own thread unless there is just one.
fn send_over(mut lanes: Vec<Lane<'_>>, job: &Job<'_>) -> Result<(), DataError> {
    if lanes.len() <= 1 {
        return lanes.pop().map_or(Ok(()), |lane| send_lane(lane, job));
    }
    let all_ended = std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (n, lane) in lanes.into_iter().enumerate() {
            let spawned = std::thread::Builder::new()
                .name(format!("send-{n}"))
                .spawn_scoped(scope, move || {
                    send_lane(lane, job).unwrap_or_else(|error| job.transfer.fail(error));
                });
            match spawned {
                Ok(thread) => running.push(thread),
                Err(e) => job.transfer.fail(DataError::setup("a stream thread", e)),
            }
        }
        let ended = running.into_iter().map(|t| t.join().is_ok());
        ended.fold(true, |all, one| all & one)
    });
    if all_ended {
        job.transfer.check()
    } else {
        Err(DataError::Aborted)
    }
}

fn send_lane(lane: Lane<'_>, job: &Job<'_>) -> Result<(), DataError> {
    let mut outlet = Outlet::new(lane.wire, job);
    outlet.send_supply(true)?;
    outlet.wire().send_all(&lane.end.encode(), &[], false)?;
    if job.settings.close_after {
        outlet.wire().finish_sending()?;
    }
    Ok(())
}
