//! A transfer chunk by chunk, as Ito, Ohsaki and Imase (2008) describe it, steered by the tuners that
//! steer real ones (`tune::streams::chunked`).
//!
//! A command asks for a chunk; when it has reached the server, the streams share the chunk block by
//! block; when the last byte has arrived the tuner is told, and its next command is sent. So the pipe
//! drains between chunks, and each costs a round trip. Connections are kept from chunk to chunk.

mod running;

use std::time::Duration;

use tune::diagnosis::LimiterShare;
use tune::streams::chunked::{ChunkTuner, RttCommands};

use crate::world::{FlowSpec, FlowStats, Scenario};
use running::RunningChunked;

/// A file to send in chunks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChunkedSpec {
    /// Size of the file, bytes.
    pub bytes: u64,
    /// Bytes of a chunk that a stream takes at a time, at least 1.
    pub block: u64,
    /// Ends, access links and host of each stream; its start, source and stop do not
    /// matter. W is the smaller one of its buffers.
    pub stream: FlowSpec,
    /// When commands are sent whose answers give R.
    pub round_trips: RttCommands,
    /// How often that is while data flows, above zero.
    pub tick: Duration,
    /// ρ: weight of a new round trip in R, above 0, below 1.
    pub rho: f64,
    /// When to give up, since the start of the run.
    pub deadline: Duration,
}

/// Facts known before the first chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitialPath {
    /// W, bytes.
    pub window: u64,
    /// R: the round trip of a command on the idle path.
    pub rtt: Duration,
}

/// A chunk that was transferred.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkReport {
    /// When its last byte had arrived, since the first command.
    pub at: Duration,
    /// N.
    pub streams: u32,
    /// X, bytes.
    pub bytes: u64,
    /// T: from its command to its last byte.
    pub time: Duration,
    /// R then.
    pub rtt: Duration,
    /// Mean wait of a packet in the bottleneck's queue.
    pub wait: Duration,
    /// Why the tuner asked for it.
    pub reason: String,
    /// The tuner had settled when it asked for it.
    pub settled: bool,
}

impl ChunkReport {
    /// G = X/T, bit/s.
    pub fn goodput(&self) -> f64 {
        per_second(self.bytes, self.time)
    }
}

/// How a transfer in chunks went.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkedOutcome {
    /// All of the file arrived.
    pub complete: bool,
    /// Payload that arrived, bytes.
    pub bytes: u64,
    /// From the first command to the last byte's arrival, or to the giving up.
    pub elapsed: Duration,
    /// Payload per second, bit/s.
    pub goodput: f64,
    /// Chunks that arrived whole, in order.
    pub chunks: Vec<ChunkReport>,
    /// Limiter, judged from the sender's accounts.
    pub limited_by: LimiterShare,
    /// Statistics of each connection, in the order in which they were opened.
    pub flows: Vec<FlowStats>,
}

impl ChunkedOutcome {
    /// Chunks of the tuner's own size: all but the last, which is what was left of the file.
    pub fn full_chunks(&self) -> &[ChunkReport] {
        match self.chunks.as_slice() {
            [whole @ .., _] if self.complete && !whole.is_empty() => whole,
            all => all,
        }
    }
}

impl ChunkedSpec {
    /// Runs the transfer over the scenario's network, beside its flows, with the tuner that `make`
    /// makes when the path's round trip is known.
    pub fn run(
        &self,
        scenario: &Scenario,
        make: impl FnOnce(InitialPath) -> Box<dyn ChunkTuner>,
    ) -> ChunkedOutcome {
        let mut live = RunningChunked::begin(self, scenario);
        let mut tuner = make(live.start());
        let mut last = None;
        while live.has_work() {
            let chunk = tuner.next(last.as_ref());
            let (reason, settled) = (tuner.reason(), tuner.is_settled());
            match live.transfer(chunk) {
                Some(done) => {
                    live.record_chunk(&done, reason, settled);
                    last = Some(done);
                }
                None => break,
            }
        }
        live.outcome()
    }
}

/// Bit/s; of no time at all, 0.
fn per_second(bytes: u64, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 {
        bytes as f64 * 8.0 / seconds
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests;
