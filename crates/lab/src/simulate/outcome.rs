//! The outcome of a simulation, and the measures that an experiment takes from it.

use serde::Serialize;

/// The outcome of one simulation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimPoint {
    /// Number of parallel connections; for a file in chunks, that of [`end`](Self::end).
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
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Jain's fairness index of the connections' goodputs, or of the sessions', 1/N..=1; 1: all are equal.
    pub fairness: f64,
    /// Goodput of each session, Mbit/s; empty: the request has no sessions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub session_mbps: Vec<f64>,
    /// Mean queueing delay of a packet at the bottleneck, milliseconds; `None`: not measured.
    #[serde(skip)]
    pub queueing_ms: Option<f64>,
    /// Time that the file took, seconds; `None`: there is no file, or it was not complete at the deadline.
    pub seconds: Option<f64>,
    /// Receive buffer of each connection, bytes ([`SimRequest::window`](super::SimRequest::window)).
    #[serde(skip)]
    pub window_bytes: u64,
    /// The limiter of the connections, as `tune::diagnosis` infers it from the sender's accounts.
    pub limited_by: String,
    /// The last chunk whose size the tuner chose: a later one is only the rest of the file.
    #[serde(skip)]
    pub end: Option<SimChunk>,
    /// Samples of the first connection over time; empty unless a file is transferred whole.
    #[serde(skip)]
    pub samples: Vec<SimSample>,
    /// Chunks of the file in their order; empty for a file that is not sent in chunks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub chunks: Vec<SimChunk>,
}

/// A connection at one time of a simulation. The fields that it shares with `longhaul cp --trace` have their names.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimSample {
    /// Time since the connection was opened, seconds.
    pub time: f64,
    /// Window that the receiver advertises, bytes.
    pub peer_window: u64,
    /// Congestion window, bytes.
    pub window: f64,
    /// Sent and not acknowledged, bytes.
    pub in_flight: u64,
    /// Segments sent again until then.
    pub retransmits: u64,
}

/// A chunk of a simulated transfer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimChunk {
    /// Time of its complete arrival, seconds since the first command.
    pub time: f64,
    /// Time that it took, including its command, seconds.
    pub seconds: f64,
    /// Number of connections.
    pub streams: u32,
    /// Size, bytes.
    pub bytes: u64,
    /// Goodput, Mbit/s.
    pub goodput_mbps: f64,
    /// Running average of the commands' round trips at its end, milliseconds.
    pub rtt_ms: f64,
    /// Mean queueing delay of a packet at the bottleneck, milliseconds.
    pub queueing_ms: f64,
    /// Whether the tuner had already found the number of connections when this chunk began.
    pub settled: bool,
    /// The tuner's reason for this number of connections.
    pub reason: String,
}

/// A measure that an experiment takes from a simulation.
#[derive(Debug, Clone, Copy)]
pub struct SimMeasure {
    /// Name in an experiment's file.
    pub name: &'static str,
    /// Unit: `Mbit/s`, `ms`, `s`, `MB`, `segments`, or empty.
    pub unit: &'static str,
    value: fn(&SimPoint) -> Option<f64>,
}

impl SimMeasure {
    /// All measures. `end_goodput` and `end_queueing` (mean queueing delay at the bottleneck) are those of
    /// [`SimPoint::end`]. `settled` is the time at which the number of connections was found.
    pub const ALL: [Self; 12] = [
        Self::new("goodput", "Mbit/s", |point| Some(point.goodput_mbps)),
        Self::new("mean_rtt", "ms", |point| point.mean_rtt_ms),
        Self::new("seconds", "s", |point| point.seconds),
        Self::new("retransmits", "segments", |point| {
            Some(point.retransmits as f64)
        }),
        Self::new("fairness", "", |point| Some(point.fairness)),
        Self::new("least", "Mbit/s", |point| {
            point.session_mbps.iter().copied().reduce(f64::min)
        }),
        Self::new("queueing", "ms", |point| point.queueing_ms),
        Self::new("window", "MB", |point| {
            Some(point.window_bytes as f64 / 1e6)
        }),
        Self::new("streams", "", |point| Some(point.flows.into())),
        Self::new("end_goodput", "Mbit/s", |point| {
            Some(point.end.as_ref()?.goodput_mbps)
        }),
        Self::new("end_queueing", "ms", |point| {
            Some(point.end.as_ref()?.queueing_ms)
        }),
        Self::new("settled", "s", |point| {
            let first = point.chunks.iter().position(|chunk| chunk.settled)?;
            // The results of the chunk before it decided.
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

    /// Finds the measure of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|measure| measure.name == name)
    }

    /// The value at `point`; `None`: the point has none, such as a mean RTT if nothing arrived, or a
    /// measure of chunks if the file was not sent in chunks.
    pub fn of(self, point: &SimPoint) -> Option<f64> {
        (self.value)(point)
    }
}
