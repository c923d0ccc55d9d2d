//! A GridFTP transfer on the simulated clock, controlled by the code that controls real transfers.
//!
//! A control connection measures the RTT, `tune::streams` decides how many streams to open, they share
//! the file block by block, and `tune::diagnosis` derives the limiter at the end. On every tick the
//! streams are sampled as TCP_INFO would show them, and the policy's new settings are applied before
//! the simulation goes on.

mod control;
mod running;

use std::time::Duration;

use tune::Evidence;
use tune::diagnosis::LimiterShare;
use tune::limiter::Role;

use crate::world::{FlowSpec, FlowStats, Scenario};
pub(crate) use control::SimControlConnection;
use running::RunningSimTransfer;

/// The transfer of one file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimTransfer {
    /// Size of the file, bytes.
    pub bytes: u64,
    /// Bytes that a stream takes from the file at a time, at least 1.
    pub block: u64,
    /// Initial number of streams.
    pub streams: InitialStreams,
    /// TCP configuration, access links and jitter of each stream. Its start, source and stop are ignored:
    /// streams start with the transfer and take blocks of the file.
    pub stream: FlowSpec,
    /// Interval, above zero, at which the control connection sends a command, the streams are sampled and
    /// the policy is called.
    pub tick: Duration,
    /// Time since the start of the run at which an unfinished transfer is abandoned.
    pub deadline: Duration,
}

/// Initial number of streams of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InitialStreams {
    /// The number that [`tune::streams::prior_from_rtt`] gives for the control connection's RTT.
    Automatic,
    /// This number, at least 1.
    Fixed(u32),
}

/// Settings that a policy can change while a transfer runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimSettings {
    /// Number of streams, at least 1. A stream that is closed still sends the data it has written and the
    /// block it has taken.
    pub streams: u32,
    /// Send buffer of each stream, bytes.
    pub send_buffer: u64,
    /// Receive buffer of each stream, bytes.
    pub receive_buffer: u64,
    /// Pacing rate of all streams together, bytes of payload per second; each stream gets an equal part.
    /// `None`: no pacing.
    pub pace: Option<u64>,
}

/// A sample of a simulated transfer, taken every tick.
#[derive(Debug, Clone, PartialEq)]
pub struct SimTransferSample {
    /// Time since the start of the run.
    pub at: Duration,
    /// Time since the previous sample, or since the start of the transfer.
    pub interval: Duration,
    /// Payload that has arrived since the start, bytes.
    pub delivered_bytes: u64,
    /// Payload that arrived in the interval, bytes.
    pub interval_bytes: u64,
    /// Bytes of the file that no stream has taken yet.
    pub unassigned_bytes: u64,
    /// RTT of a command that was answered in the interval, while data flows. `None`: no command was
    /// answered, or TCP had to retransmit it.
    pub control_rtt: Option<Duration>,
    /// The current settings.
    pub settings: SimSettings,
    /// Statistics of each open stream in the interval ([`FlowStats::since`]), in order of opening.
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

/// The result of a simulated transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct SimTransferOutcome {
    /// Whether the whole file has arrived.
    pub complete: bool,
    /// Payload that has arrived, bytes.
    pub bytes: u64,
    /// Time from the opening of the first stream to the arrival of the last byte, or to the deadline.
    pub elapsed: Duration,
    /// Payload per second, bit/s.
    pub goodput: f64,
    /// RTT of the control connection before the first stream was opened.
    pub control_rtt: Option<Duration>,
    /// Largest number of concurrent streams.
    pub streams_max: u32,
    /// Retransmitted segments.
    pub retransmits: u64,
    /// Expirations of retransmission timers.
    pub timeouts: u64,
    /// The limiter, derived from the sender's statistics.
    pub limited_by: LimiterShare,
    /// Statistics of each stream, in order of opening.
    pub flows: Vec<FlowStats>,
}

impl SimTransfer {
    /// Runs the transfer in the scenario, together with the scenario's own flows. `policy` gets a sample
    /// every tick and returns new settings; `None` keeps the current ones.
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

/// The evidence of `flows` that moved `bytes` in `elapsed`, at most `streams` of them at a time, each
/// with a socket buffer of `buffer` bytes.
///
/// Each limited time is the longest of all flows, as in real transfers. Simulated threads need no time
/// for files or computation, so all their time is spent waiting for the wire.
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
