//! Outcome of a simulation, and the measures that an experiment takes from it.

use serde::Serialize;

/// One simulation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimPoint {
    /// Parallel connections; where the number is found on the way, of the last chunk that was not
    /// just what was left.
    pub flows: u32,
    /// Payload that arrived in order, Mbit/s.
    pub goodput_mbps: f64,
    /// Mean of all round-trip samples, milliseconds; `None`: no sample.
    pub mean_rtt_ms: Option<f64>,
    /// Packets of these connections dropped at the full queue.
    pub drops: u64,
    /// Packets of these connections lost at random.
    pub losses: u64,
    /// Segments sent again.
    pub retransmits: u64,
    /// Retransmission timers that ran out.
    pub timeouts: u64,
    /// Jain's index of the connections' goodputs, 1/N..=1; 1: all have the same.
    pub fairness: f64,
    /// How long the file took, seconds; `None`: endless, or not done in time.
    pub seconds: Option<f64>,
    /// Limiter of the connections, as `tune::judge` judges it from the sender's accounts.
    pub limited_by: String,
    /// The last chunk that was not just what was left of the file.
    #[serde(skip)]
    pub end: Option<SimChunk>,
    /// Of a file in chunks, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub chunks: Vec<SimChunk>,
}

/// A chunk of a simulated transfer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimChunk {
    /// When it had arrived, seconds since the first command.
    pub time: f64,
    /// How long it took, with its command, seconds.
    pub seconds: f64,
    /// Connections.
    pub streams: u32,
    /// Its size.
    pub bytes: u64,
    /// Mbit/s.
    pub goodput_mbps: f64,
    /// The running average of the commands' round trips then, milliseconds.
    pub rtt_ms: f64,
    /// Mean wait of a packet in the bottleneck's queue, milliseconds.
    pub queueing_ms: f64,
    /// The number had been found when it was asked for.
    pub settled: bool,
    /// Why it had so many connections.
    pub reason: String,
}

/// Measure that an experiment takes from a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// `goodput`: payload that arrived in order, Mbit/s.
    Goodput,
    /// `mean_rtt`: mean round trip, milliseconds.
    MeanRtt,
    /// `streams`: connections at the end.
    Streams,
    /// `end_goodput`: of the last chunk that was not just what was left, Mbit/s.
    EndGoodput,
    /// `end_queueing`: mean wait of its packets in the bottleneck's queue, milliseconds.
    EndQueueing,
    /// `settled`: when the number of connections had been found, seconds.
    Settled,
}

impl Measure {
    /// The measure of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|m| m.name() == name)
    }

    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Goodput,
        Self::MeanRtt,
        Self::Streams,
        Self::EndGoodput,
        Self::EndQueueing,
        Self::Settled,
    ];

    /// The name in an experiment's file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Goodput => "goodput",
            Self::MeanRtt => "mean_rtt",
            Self::Streams => "streams",
            Self::EndGoodput => "end_goodput",
            Self::EndQueueing => "end_queueing",
            Self::Settled => "settled",
        }
    }

    /// Its value at `point`; `None`: nothing arrived, or the number of connections was not to be found.
    pub fn of(self, point: &SimPoint) -> Option<f64> {
        match self {
            Self::Goodput => Some(point.goodput_mbps),
            Self::MeanRtt => point.mean_rtt_ms,
            Self::Streams => Some(point.flows.into()),
            Self::EndGoodput => point.end.as_ref().map(|end| end.goodput_mbps),
            Self::EndQueueing => point.end.as_ref().map(|end| end.queueing_ms),
            Self::Settled => settled(&point.chunks),
        }
    }

    /// `Mbit/s`, `ms`, `s`, or empty.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Goodput | Self::EndGoodput => "Mbit/s",
            Self::MeanRtt | Self::EndQueueing => "ms",
            Self::Streams => "",
            Self::Settled => "s",
        }
    }
}

/// When the number of connections had been found, seconds; `None`: it never was.
fn settled(chunks: &[SimChunk]) -> Option<f64> {
    let first = chunks.iter().position(|chunk| chunk.settled)?;
    let before = first.checked_sub(1)?;
    chunks.get(before).map(|chunk| chunk.time)
}
