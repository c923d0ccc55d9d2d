//! A transfer in chunks, as Ito, Ohsaki and Imase (2008) describe it, controlled by the tuners that
//! control real ones (`tune::streams::chunked`).
//!
//! A command requests a chunk. When it reaches the server, the streams share the chunk block by block.
//! When the last byte has arrived, the tuner decides, and the next command is sent. So the path
//! drains between chunks, and each chunk costs one round trip. Connections are kept from chunk to
//! chunk.

mod session;

use std::time::Duration;

use tune::diagnosis::LimiterShare;
use tune::streams::chunked::{ChunkTuner, RttCommands};

use crate::sessions::run_sessions;
use crate::world::{FlowSpec, FlowStats, Scenario, Simulation};

pub use session::{ChunkedSession, MakeTuner};

/// The transfer of a file in chunks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChunkedSpec {
    /// Size of the file, bytes.
    pub bytes: u64,
    /// Bytes that a stream takes from a chunk at a time, at least 1.
    pub block: u64,
    /// TCP configuration, access links and jitter of each stream; its start, source and stop are ignored.
    /// W is the smaller one of its buffers.
    pub stream: FlowSpec,
    /// When commands are sent to measure R.
    pub round_trips: RttCommands,
    /// Interval of these commands while data flows, above zero.
    pub tick: Duration,
    /// ρ: weight of a new RTT sample in R, above 0, below 1.
    pub rho: f64,
    /// Time since the start of the run at which an unfinished transfer is abandoned.
    pub deadline: Duration,
}

/// Properties of the path that are known before the first chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitialPath {
    /// W, bytes.
    pub window: u64,
    /// R: the RTT of a command on the idle path.
    pub rtt: Duration,
}

/// The report of a transferred chunk.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkReport {
    /// Arrival of its last byte, since the first command.
    pub at: Duration,
    /// N: number of streams.
    pub streams: u32,
    /// X: size, bytes.
    pub bytes: u64,
    /// T: time from its command to its last byte.
    pub time: Duration,
    /// R at the end of the chunk.
    pub rtt: Duration,
    /// Mean queueing delay of packets at the bottleneck.
    pub wait: Duration,
    /// The tuner's reason for the chunk.
    pub reason: String,
    /// Whether the tuner had settled on a number of streams when it requested the chunk.
    pub settled: bool,
}

impl ChunkReport {
    /// G = X/T: goodput, bit/s.
    pub fn goodput(&self) -> f64 {
        per_second(self.bytes, self.time)
    }
}

/// The result of a transfer in chunks.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkedOutcome {
    /// Whether the whole file has arrived.
    pub complete: bool,
    /// Payload that has arrived, bytes.
    pub bytes: u64,
    /// Time from the first command to the arrival of the last byte, or to the deadline.
    pub elapsed: Duration,
    /// Payload per second, bit/s.
    pub goodput: f64,
    /// The chunks that arrived completely, in order.
    pub chunks: Vec<ChunkReport>,
    /// The limiter, derived from the sender's statistics.
    pub limited_by: LimiterShare,
    /// Statistics of each connection, in order of opening.
    pub flows: Vec<FlowStats>,
}

impl ChunkedOutcome {
    /// The chunks of the size that the tuner chose: all except the last one, which holds the rest of the
    /// file.
    pub fn full_chunks(&self) -> &[ChunkReport] {
        match self.chunks.as_slice() {
            [whole @ .., _] if self.complete && !whole.is_empty() => whole,
            all => all,
        }
    }
}

impl ChunkedSpec {
    /// Runs the transfer in the scenario, together with the scenario's own flows. `make` creates the tuner
    /// when the RTT of the path is known.
    pub fn run(
        &self,
        scenario: &Scenario,
        make: impl FnOnce(InitialPath) -> Box<dyn ChunkTuner>,
    ) -> ChunkedOutcome {
        let mut simulation = Simulation::new(scenario);
        let delay = scenario.reverse.delay;
        let mut session = [ChunkedSession::begin(
            self,
            delay,
            &mut simulation,
            Box::new(make),
        )];
        run_sessions(&mut simulation, &mut session, Duration::MAX);
        let [session] = session;
        session.outcome(&simulation)
    }
}

/// Rate in bit/s; 0 if the time is zero.
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
