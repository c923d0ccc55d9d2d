//! A GridFTP transfer on the simulated clock, steered by the code that steers real ones.
//!
//! A control connection measures the path, `tune::streams` says how many streams to open, they
//! share the file block by block, and `tune::diagnosis` tells at the end what held them back. On
//! every tick the streams are sampled as TCP_INFO would show them; what the policy makes of a sample
//! is applied before time goes on.

mod control;
mod running;

use std::time::Duration;

use tune::Evidence;
use tune::diagnosis::LimiterShare;
use tune::limiter::Role;

use crate::world::{FlowSpec, FlowStats, Scenario};
pub(crate) use control::SimControlConnection;
use running::RunningSimTransfer;

/// A file to send, and how.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimTransfer {
    /// Size of the file, bytes.
    pub bytes: u64,
    /// Bytes that a stream takes of it at a time, at least 1.
    pub block: u64,
    /// How many streams to begin with.
    pub streams: InitialStreams,
    /// Ends, access links and host of each stream; it starts when the transfer does,
    /// and its source and stop do not matter.
    pub stream: FlowSpec,
    /// How often the control connection asks something, the streams are sampled, and the policy
    /// decides; above zero.
    pub tick: Duration,
    /// When to give up, since the start of the run.
    pub deadline: Duration,
}

/// How many streams a transfer begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InitialStreams {
    /// The number that [`tune::streams::first`] gives for the control connection's round trip.
    Automatic,
    /// So many, at least 1.
    Fixed(u32),
}

/// Settings that can change while a transfer runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimSettings {
    /// Streams, at least 1. One that is closed still sends what it wrote and the block it has begun.
    pub streams: u32,
    /// Send buffer of each, bytes.
    pub send_buffer: u64,
    /// Receive buffer of each, bytes.
    pub receive_buffer: u64,
    /// Bytes of payload per second that all of them together may send, the same part of it each;
    /// `None`: as their windows allow.
    pub pace: Option<u64>,
}

/// A transfer at one tick.
#[derive(Debug, Clone, PartialEq)]
pub struct SimTransferSample {
    /// Since the start of the run.
    pub at: Duration,
    /// Since the sample before, or since the transfer's start.
    pub interval: Duration,
    /// Payload that has arrived so far, bytes.
    pub delivered_bytes: u64,
    /// Of that, in the interval.
    pub interval_bytes: u64,
    /// Bytes that no stream has begun to send.
    pub unassigned_bytes: u64,
    /// Round trip of a command that was answered in the interval, while data flows: what the
    /// control connection sees. `None`: none was, or it had to be sent again.
    pub control_rtt: Option<Duration>,
    /// Settings in force.
    pub settings: SimSettings,
    /// Each stream in use, in the order of opening: what it did in the interval
    /// ([`FlowStats::since`]).
    pub streams: Vec<FlowStats>,
}

impl SimTransferSample {
    /// Payload per second in the interval, bit/s.
    pub fn goodput(&self) -> f64 {
        let seconds = self.interval.as_secs_f64();
        if seconds > 0.0 {
            self.interval_bytes as f64 * 8.0 / seconds
        } else {
            0.0
        }
    }
}

/// How a transfer went.
#[derive(Debug, Clone, PartialEq)]
pub struct SimTransferOutcome {
    /// All of the file arrived.
    pub complete: bool,
    /// Payload that arrived, bytes.
    pub bytes: u64,
    /// From the first stream's opening to the last byte's arrival, or to the giving up.
    pub elapsed: Duration,
    /// Payload per second, bit/s.
    pub goodput: f64,
    /// Round trip of the control connection before the first stream.
    pub control_rtt: Option<Duration>,
    /// Most streams at a time.
    pub streams_max: u32,
    /// Segments sent again.
    pub retransmits: u64,
    /// Retransmission timers that ran out.
    pub timeouts: u64,
    /// Limiter, judged from the sender's accounts.
    pub limited_by: LimiterShare,
    /// Statistics of each stream, in the order in which they were opened.
    pub flows: Vec<FlowStats>,
}

impl SimTransfer {
    /// Runs the transfer over the scenario's network, beside its flows. `policy` is told a sample
    /// every tick and returns the settings to go on with; `None`: leave them.
    pub fn run(
        &self,
        scenario: &Scenario,
        mut policy: impl FnMut(&SimTransferSample) -> Option<SimSettings>,
    ) -> SimTransferOutcome {
        let mut live = RunningSimTransfer::begin(self, scenario);
        while live.run_tick() {
            if let Some(settings) = policy(&live.sample()) {
                live.apply(settings);
            }
        }
        live.outcome()
    }
}

/// The account of `flows`, which moved `bytes` in `elapsed`, `streams` of them at a time, each with a
/// socket buffer of `buffer` bytes.
///
/// Waits are the longest of any flow's, as from a real transfer. Simulated threads need no time for
/// the store and none to compute, so all they do is wait for the wire.
pub fn evidence(
    flows: &[FlowStats],
    bytes: u64,
    elapsed: Duration,
    streams: u32,
    buffer: u64,
) -> Evidence {
    let longest = |field: fn(&FlowStats) -> Duration| flows.iter().map(field).max();
    Evidence {
        bytes,
        elapsed,
        streams: streams.into(),
        stream_time: elapsed * streams,
        retransmits: flows.iter().map(|f| f.sender.retransmits).sum(),
        min_rtt: flows
            .iter()
            .filter_map(FlowStats::min_rtt)
            .min()
            .unwrap_or_default(),
        buffer_bytes: buffer,
        busy_time: longest(|f| f.sender.limited_times.busy).unwrap_or_default(),
        rwnd_limited: longest(|f| f.sender.limited_times.rwnd_limited).unwrap_or_default(),
        sndbuf_limited: longest(|f| f.sender.limited_times.sndbuf_limited).unwrap_or_default(),
        wire_time: elapsed * streams,
        ..Evidence::for_role(Role::Sender)
    }
}

#[cfg(test)]
mod tests;
