//! Request for a simulation.

use std::str::FromStr;
use std::time::Duration;

use sim::link::{Loss, Queue};
use sim::tcp::{CongestionAlgorithm, HEADERS};
use tune::streams::chunked::{ChunkParameters, ChunkTuningMode};
use units::Rate;

use super::options;
use crate::LabError;

/// Most parallel connections in one simulation.
const MOST_FLOWS: u32 = 1024;
/// MODE E block: the default of `longhaul cp --block`.
pub(super) const BLOCK: usize = 1 << 20;
/// Longest packet: what IPv4's length field can say.
const MOST_PACKET: u32 = 65_535;
/// Largest initial window, segments.
const MOST_INITIAL_WINDOW: u32 = 1000;
/// Longest simulated time.
const LONGEST: Duration = Duration::from_secs(86_400);
/// Longest one-way delay.
const MOST_DELAY: Duration = Duration::from_secs(600);
/// The file if no size is given: the paper's 10 Gbyte.
pub(super) const FILE: u64 = 10_000_000_000;

/// The way in which the number of connections is found while a file is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamFinder {
    /// One of the paper's modes: `mi`, `mi+`, `aimd`.
    Mode(ChunkTuningMode),
    /// `probe`: longhaul's own, of chunks from a sender that it cannot look at.
    Probe,
}

/// How many parallel connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlowCounts {
    /// One simulation for each of these numbers, in this order; each 1 to 1024.
    Each(Vec<u32>),
    /// The number that longhaul opens by itself on this path (`tune::streams`).
    Auto,
    /// A number that is found while a file is transferred in chunks.
    Found(StreamFinder),
}

/// A simulation: N connections from a server to a client over two routers, and the path between
/// the routers is the bottleneck.
///
/// The default is the base setting of Ito, Ohsaki and Imase (2008).
#[derive(Debug, Clone, PartialEq)]
pub struct SimRequest {
    /// Parallel connections. Default: 1 to 64, each.
    pub flows: FlowCounts,
    /// Bottleneck rate. Default: 100 Mbit/s.
    pub rate: Rate,
    /// One-way propagation delay of the bottleneck. Default: 10 ms.
    pub delay: Duration,
    /// One-way delay of each of the two access links, so that the round trip without queues is
    /// `2 * (delay + 2 * access_delay)`. Default: 1 ms.
    pub access_delay: Duration,
    /// Rate of the access links. Default: 1 Gbit/s.
    pub access_rate: Rate,
    /// Drop-tail queue before the bottleneck, in the data's direction. Default: 1000 packets.
    pub queue: Queue,
    /// Random loss of data packets behind the bottleneck. Default: none.
    pub loss: Loss,
    /// Receiver's socket buffer of each connection, bytes of payload: no more is ever outstanding
    /// (rounded down to whole segments). The sender's buffer does not limit. Default: 64 KiB.
    pub window: u64,
    /// CongestionAlgorithm control; recovery is by SACK in both. Default: NewReno.
    pub congestion: CongestionAlgorithm,
    /// Initial congestion window, segments. Default: ns-2's 2 for endless connections, and for a
    /// file the 10 of RFC 6928; a file in chunks has the former, as in the paper.
    pub initial_window: Option<u32>,
    /// The receiver acknowledges every other segment (RFC 1122) instead of each. Default: no.
    pub delayed_ack: bool,
    /// IP packet of a full segment, bytes, of which 40 are headers. Default: 1500.
    pub packet: u32,
    /// Measured time after the warm-up; with [`bytes`](Self::bytes), the longest that a transfer
    /// may take. Default: 60 s.
    pub duration: Duration,
    /// Time before measurements begin; not used with [`bytes`](Self::bytes). Default: 20 s.
    pub warm_up: Duration,
    /// Transfer a file of this size over all connections together (longhaul's MODE E: each takes
    /// the next block as it becomes free), instead of sending without end. Default: none.
    pub bytes: Option<u64>,
    /// Rate of cross traffic over the bottleneck: datagrams of the same size at a constant rate.
    /// Default: none.
    pub cross_traffic: Option<Rate>,
    /// The sending host holds each packet back for a random time up to this, as ns-2's
    /// `overhead_`; order is kept. Default: none.
    pub jitter: Duration,
    /// ChunkParameters of [`FlowCounts::Found`]. Default: the paper's.
    pub autopar: ChunkParameters,
    /// Random events repeat with the same seed. Default: 1.
    pub seed: u64,
}

impl Default for SimRequest {
    fn default() -> Self {
        Self {
            flows: FlowCounts::Each((1..=64).collect()),
            rate: Rate::bits_per_second(100_000_000),
            delay: Duration::from_millis(10),
            access_delay: Duration::from_millis(1),
            access_rate: Rate::bits_per_second(1_000_000_000),
            queue: Queue::Packets(1000),
            loss: Loss::Never,
            window: 64 << 10,
            congestion: CongestionAlgorithm::NewReno,
            initial_window: None,
            delayed_ack: false,
            packet: 1500,
            duration: Duration::from_secs(60),
            warm_up: Duration::from_secs(20),
            bytes: None,
            cross_traffic: None,
            jitter: Duration::ZERO,
            autopar: ChunkParameters::default(),
            seed: 1,
        }
    }
}

impl StreamFinder {
    /// The one of that name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "probe" => Some(Self::Probe),
            mode => ChunkTuningMode::parse(mode).map(Self::Mode),
        }
    }

    /// `mi`, `mi+`, `aimd`, `probe`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mode(mode) => mode.name(),
            Self::Probe => "probe",
        }
    }
}

impl SimRequest {
    /// Round trip without queues and without the time to send.
    pub fn base_rtt(&self) -> Duration {
        2 * (self.delay + 2 * self.access_delay)
    }

    /// The initial congestion window that is simulated, segments.
    pub fn effective_initial_window(&self) -> u32 {
        let plain_file = self.bytes.is_some() && self.finder().is_none();
        let default = if plain_file { 10 } else { 2 };
        self.initial_window.unwrap_or(default)
    }

    /// How the number of connections is found, if it is.
    pub fn finder(&self) -> Option<StreamFinder> {
        match self.flows {
            FlowCounts::Found(finder) => Some(finder),
            FlowCounts::Each(_) | FlowCounts::Auto => None,
        }
    }

    /// Size of the file that is transferred, bytes: the paper's 10 Gbyte if the number of connections
    /// is to be found and no size is said. `None`: no file.
    pub fn file(&self) -> Option<u64> {
        self.bytes.or(self.finder().map(|_| FILE))
    }

    /// Whether another seed can give another result: a file over an undisturbed path meets nothing
    /// that is random.
    pub fn is_random(&self) -> bool {
        let disturbed = !self.jitter.is_zero() || self.loss != Loss::Never;
        self.file().is_none() || disturbed || self.cross_traffic.is_some()
    }

    /// Number that longhaul begins with when none is given (`tune::streams`), on this path and for this file.
    pub fn automatic_flows(&self) -> u32 {
        let prior = tune::streams::prior_from_rtt(self.base_rtt(), self.bytes, BLOCK, u32::MAX);
        prior.streams.unwrap_or(1)
    }

    /// Refuses what cannot be simulated; options are named as on the command line.
    ///
    /// # Errors
    /// [`LabError::Usage`].
    pub fn check(&self) -> Result<(), LabError> {
        let payload = u64::from(self.packet.saturating_sub(HEADERS));
        let initial_window = self.initial_window.unwrap_or(1);
        let why = if self.rate.as_bits_per_second() == 0 {
            "--rate: nothing gets through a bottleneck of rate 0"
        } else if self.access_rate.as_bits_per_second() == 0 {
            "--access-rate: nothing gets through an access link of rate 0"
        } else if !(HEADERS + 1..=MOST_PACKET).contains(&self.packet) {
            "--packet: 41 to 65535 bytes, of which 40 are headers"
        } else if matches!(self.queue, Queue::Packets(0) | Queue::Bytes(0)) {
            "--queue: room for one packet at least, the one that is being sent"
        } else if self.window < payload {
            "--window: the socket buffer must hold one packet's payload"
        } else if !(1..=MOST_INITIAL_WINDOW).contains(&initial_window) {
            "--initial-window: 1 to 1000 segments"
        } else if self.duration.is_zero() || self.duration > LONGEST {
            "--time: more than nothing, and a day at most"
        } else if self.warm_up > LONGEST {
            "--warm-up: a day at most"
        } else if self.delay > MOST_DELAY || self.access_delay > MOST_DELAY {
            "--delay, --access-delay, --rtt: ten minutes one way at most"
        } else if self.bytes == Some(0) {
            "--bytes: a file of at least one byte"
        } else if self.jitter > Duration::from_secs(1) {
            "--jitter: a second at most"
        } else {
            return Ok(());
        };
        Err(LabError::Usage(why.to_owned()))
    }
}

impl FromStr for FlowCounts {
    type Err = LabError;

    /// `auto`, `mi`, `mi+`, `aimd`, `probe`, a number, a range `1..64` (both ends included), or a list
    /// of either: `1,2,4..8`.
    fn from_str(text: &str) -> Result<Self, LabError> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        if let Some(finder) = StreamFinder::named(text) {
            return Ok(Self::Found(finder));
        }
        let number = |part: &str| {
            let number = part.trim().parse().ok();
            let number = number.filter(|n| (1..=MOST_FLOWS).contains(n));
            number.ok_or_else(|| {
                let why = format!(
                    "'{text}' is not a number from 1 to {MOST_FLOWS}, a range such as 1..64, a list of \
                     them, auto, mi, mi+, aimd, or probe"
                );
                options::refused("flows", why)
            })
        };
        let mut counts: Vec<u32> = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once("..").unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(options::refused(
                    "flows",
                    format!("the range '{part}' runs backwards"),
                ));
            }
            counts.extend(first..=last);
        }
        Ok(Self::Each(counts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_ranges_lists_and_finders() {
        let counts = |text: &str| text.parse::<FlowCounts>().unwrap();
        assert_eq!(counts("1,8..9, 64"), FlowCounts::Each(vec![1, 8, 9, 64]));
        assert_eq!(counts("auto"), FlowCounts::Auto);
        let mode = StreamFinder::Mode(ChunkTuningMode::MiPlus);
        assert_eq!(counts("mi+"), FlowCounts::Found(mode));
        assert_eq!(counts("probe"), FlowCounts::Found(StreamFinder::Probe));
        for bad in [
            "", "0", "mi++", "1025", "4..2", "1..", "..", "1;2", "auto,1", "-1", "1.5",
        ] {
            let error = bad.parse::<FlowCounts>().unwrap_err();
            assert!(error.to_string().starts_with("--flows: "), "{bad}: {error}");
        }
    }
}
