//! A file in chunks, with the number of connections found on the way: the modes of Ito, Ohsaki and
//! Imase (2008), and what longhaul does where it can only measure chunks.

use std::time::Duration;

use sim::chunked::{ChunkReport, ChunkedSpec, InitialPath};
use tune::streams::chunked::{self, ChunkParameters, ChunkTuner};

use super::outcome::{SimChunk, SimPoint};
use super::point;
use super::request::{FILE, SimRequest, Tuned};
use crate::LabError;

/// Bytes that a connection takes of a chunk at a time: few, so that all end together.
const BLOCK: u64 = 16 << 10;
/// How often a command measures the round trip while data flows.
const TICK: Duration = Duration::from_millis(100);

fn tuner(tuned: Tuned, parameters: ChunkParameters, start: InitialPath) -> Box<dyn ChunkTuner> {
    match tuned {
        Tuned::Mode(mode) => chunked::mode_tuner(mode, parameters, start.window, start.rtt),
        Tuned::Probe => chunked::probe_tuner(
            parameters.initial_streams,
            parameters.max_streams,
            start.rtt,
        ),
    }
}

/// Simulates the transfer of a file.
///
/// # Errors
/// [`LabError::Usage`]: not one chunk arrives in the time that is given.
pub(super) fn simulate(request: &SimRequest, tuned: Tuned) -> Result<SimPoint, LabError> {
    let parameters = request.autopar;
    let mut stream = point::flow(request);
    stream.tcp.not_sent_lowat = stream.tcp.mss.into();
    let transfer = ChunkedSpec {
        bytes: request.file().unwrap_or(FILE),
        block: BLOCK,
        stream,
        round_trips: parameters.rtt_commands,
        tick: TICK,
        rho: parameters.rho,
        deadline: request.duration,
    };
    let outcome = transfer.run(&point::scenario(request), |start| {
        tuner(tuned, parameters, start)
    });
    let limiter = outcome.limited_by.limiter;
    if outcome.chunks.is_empty() {
        return Err(LabError::Usage(format!(
            "--time: not one chunk of the file arrives in {} s, so that no number of connections can be \
             said; give it more time",
            request.duration.as_secs_f64()
        )));
    }
    let own = outcome.full_chunks().len();
    let chunks: Vec<SimChunk> = outcome.chunks.iter().map(chunk).collect();
    let end = own.checked_sub(1).and_then(|last| chunks.get(last));
    Ok(SimPoint {
        flows: end.map_or(0, |end| end.streams),
        seconds: outcome.complete.then_some(outcome.elapsed.as_secs_f64()),
        end: end.cloned(),
        chunks,
        ..point::point(&outcome.flows, outcome.elapsed, limiter)
    })
}

fn chunk(part: &ChunkReport) -> SimChunk {
    SimChunk {
        time: part.at.as_secs_f64(),
        seconds: part.time.as_secs_f64(),
        streams: part.streams,
        bytes: part.bytes,
        goodput_mbps: part.goodput() / 1e6,
        rtt_ms: part.rtt.as_secs_f64() * 1e3,
        queueing_ms: part.wait.as_secs_f64() * 1e3,
        settled: part.settled,
        reason: part.reason.clone(),
    }
}

#[cfg(test)]
mod tests;
