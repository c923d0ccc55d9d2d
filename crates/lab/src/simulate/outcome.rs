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
#[derive(Debug, Clone, Copy)]
pub struct SimMeasure {
    /// The name in an experiment's file.
    pub name: &'static str,
    /// `Mbit/s`, `ms`, `s`, or empty.
    pub unit: &'static str,
    value: fn(&SimPoint) -> Option<f64>,
}

impl SimMeasure {
    /// All of them. `end_goodput` and `end_queueing` (mean wait of a packet in the bottleneck's queue) are of
    /// the last chunk that was not just what was left; `settled` is when the number of connections had
    /// been found.
    pub const ALL: [Self; 6] = [
        Self::new("goodput", "Mbit/s", |point| Some(point.goodput_mbps)),
        Self::new("mean_rtt", "ms", |point| point.mean_rtt_ms),
        Self::new("streams", "", |point| Some(point.flows.into())),
        Self::new("end_goodput", "Mbit/s", |point| {
            Some(point.end.as_ref()?.goodput_mbps)
        }),
        Self::new("end_queueing", "ms", |point| {
            Some(point.end.as_ref()?.queueing_ms)
        }),
        Self::new("settled", "s", |point| {
            let first = point.chunks.iter().position(|chunk| chunk.settled)?;
            Some(point.chunks.get(first.checked_sub(1)?)?.time)
        }),
    ];

    const fn new(
        name: &'static str,
        unit: &'static str,
        value: fn(&SimPoint) -> Option<f64>,
    ) -> Self {
        Self { name, unit, value }
    }

    /// The measure of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|measure| measure.name == name)
    }

    /// Its value at `point`; `None`: nothing arrived, or the number of connections was not to be found.
    pub fn of(self, point: &SimPoint) -> Option<f64> {
        (self.value)(point)
    }
}
