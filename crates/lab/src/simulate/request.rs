//! The request for a simulation: its network, its connections, and how long it runs.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use link::{Loss, Queue};
use sim::tcp::{CongestionAlgorithm, HEADERS, LossRecovery, WindowGrowth};
use tune::streams::chunked::{ChunkParameters, ChunkTuningMode};
use units::Rate;

use crate::LabError;

/// Largest number of parallel connections in one simulation.
const MAX_FLOWS: u32 = 1024;
/// Size of a MODE E block, bytes: the default of `longhaul cp --block`.
pub(super) const BLOCK: usize = 1 << 20;
/// Largest number of transfers that share a path.
const MAX_SESSIONS: u32 = 64;
/// Largest packet, bytes: the limit of IPv4's 16-bit total length (RFC 791, section 3.1).
const MAX_PACKET: u32 = 65_535;
/// Largest initial window, segments.
const MAX_INITIAL_WINDOW: u32 = 1000;
/// Longest simulated time: one day.
const MAX_TIME: Duration = Duration::from_secs(86_400);
/// Longest one-way delay.
const MAX_DELAY: Duration = Duration::from_secs(600);
/// Size of the file of a [`StreamFinder`] if the request has none, bytes: the 10 Gbyte of the paper.
pub(super) const DEFAULT_FILE: u64 = 10_000_000_000;

/// The algorithm that finds the number of connections while a file is transferred in chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamFinder {
    /// A mode of Ito, Ohsaki and Imase (2008): `mi`, `mi+`, `aimd`.
    Mode(ChunkTuningMode),
    /// `probe`: longhaul's algorithm for senders whose sockets it cannot sample.
    Probe,
}

/// The numbers of parallel connections to simulate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlowCounts {
    /// One simulation for each of these numbers, in this order; each 1 to 1024.
    Each(Vec<u32>),
    /// The number that longhaul chooses for this path (`tune::streams`).
    Auto,
    /// The number that this algorithm finds while a file is transferred in chunks.
    Found(StreamFinder),
}

/// A simulation: N connections from a server to a client over two routers. The path between the routers
/// is the bottleneck.
///
/// The default is the base setting of Ito, Ohsaki and Imase (2008).
#[derive(Debug, Clone, PartialEq)]
pub struct SimRequest {
    /// Numbers of parallel connections. Default: each of 1 to 64.
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
    /// Whether all connections share the access links, as those between two hosts do, instead of each having
    /// its own. Default: no.
    pub shared_access: bool,
    /// Drop-tail queue before the bottleneck, in the data's direction. Default: 1000 packets.
    pub queue: Queue,
    /// Random loss of data packets behind the bottleneck. Default: none.
    pub loss: Loss,
    /// Receive buffer of each connection, bytes of payload: the limit of its data in flight, rounded down
    /// to whole segments. The sender's buffer never limits. Default: 64 KiB.
    pub window: u64,
    /// How the receive window follows the data, up to [`window`](Self::window). Default: it is all of that from
    /// the start.
    pub receiver: WindowGrowth,
    /// Congestion control algorithm. Default: NewReno.
    pub congestion: CongestionAlgorithm,
    /// How senders recover lost segments; that of ns-2 needs NewReno. Default: SACK.
    pub recovery: LossRecovery,
    /// Initial congestion window, segments. `None`: see
    /// [`effective_initial_window`](Self::effective_initial_window).
    pub initial_window: Option<u32>,
    /// Whether the receiver acknowledges every other segment (RFC 1122, section 4.2.3.2) instead of each.
    /// Default: no.
    pub delayed_ack: bool,
    /// Size of the IP packet of a full segment, bytes, of which 40 are headers. Default: 1500.
    pub packet: u32,
    /// Measured time after the warm-up; with [`bytes`](Self::bytes), the deadline of the transfer.
    /// Default: 60 s.
    pub duration: Duration,
    /// Time before measurements begin; not used with [`bytes`](Self::bytes). Default: 20 s.
    pub warm_up: Duration,
    /// Size of a file that all connections transfer together, as in longhaul's MODE E: a connection takes
    /// the next block when it is free. `None` (default): the connections send without end.
    pub bytes: Option<u64>,
    /// Number of transfers that share the bottleneck, 1 to 64, each of which finds its number of connections. They
    /// send without end and are measured together. With them [`FlowCounts::Auto`] is `tune::streams::auto`. `None`
    /// (default): one transfer.
    pub sessions: Option<u32>,
    /// Time from the start of one of the [`sessions`](Self::sessions) to the next. Default: none.
    pub stagger: Duration,
    /// Rate of the cross traffic over the bottleneck: datagrams of the same size at a constant rate.
    /// Default: none.
    pub cross_traffic: Option<Rate>,
    /// Upper bound of the random time for which the sending host delays each packet, as in ns-2's
    /// `overhead_`. Packets keep their order. Default: none.
    pub jitter: Duration,
    /// Parameters of [`FlowCounts::Found`]. Default: those of the paper.
    pub autopar: ChunkParameters,
    /// Seed of all random events: the same seed gives the same events. Default: 1.
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
            shared_access: false,
            queue: Queue::Packets(1000),
            loss: Loss::Never,
            window: 64 << 10,
            receiver: WindowGrowth::Fixed,
            congestion: CongestionAlgorithm::NewReno,
            recovery: LossRecovery::Sack,
            initial_window: None,
            delayed_ack: false,
            packet: 1500,
            duration: Duration::from_secs(60),
            warm_up: Duration::from_secs(20),
            bytes: None,
            sessions: None,
            stagger: Duration::ZERO,
            cross_traffic: None,
            jitter: Duration::ZERO,
            autopar: ChunkParameters::default(),
            seed: 1,
        }
    }
}

impl StreamFinder {
    /// Finds the algorithm of this name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "probe" => Some(Self::Probe),
            mode => ChunkTuningMode::parse(mode).map(Self::Mode),
        }
    }

    /// The name on the command line: `mi`, `mi+`, `aimd`, `probe`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mode(mode) => mode.name(),
            Self::Probe => "probe",
        }
    }
}

impl SimRequest {
    /// Propagation delay of a round trip, without queueing and transmission.
    pub fn base_rtt(&self) -> Duration {
        2 * (self.delay + 2 * self.access_delay)
    }

    /// The initial congestion window that is simulated, segments. Default: 2, as in ns-2; 10 (RFC 6928)
    /// for a file that is not sent in chunks.
    pub fn effective_initial_window(&self) -> u32 {
        // Endless connections and chunks are compared with ns-2, whose default is 2.
        let plain_file = self.bytes.is_some() && self.finder().is_none();
        let default = if plain_file { 10 } else { 2 };
        self.initial_window.unwrap_or(default)
    }

    /// The algorithm that finds the number of connections; `None`: the number is fixed.
    pub fn finder(&self) -> Option<StreamFinder> {
        match self.flows {
            FlowCounts::Found(finder) => Some(finder),
            FlowCounts::Each(_) | FlowCounts::Auto => None,
        }
    }

    /// Size of the transferred file, bytes: 10 Gbyte, as in the paper, if the number of connections is to be
    /// found and the request has no size. `None`: the connections send without end.
    pub fn file(&self) -> Option<u64> {
        let found = self.finder().filter(|_| self.sessions.is_none());
        self.bytes.or(found.map(|_| DEFAULT_FILE))
    }

    /// Whether another seed can give another result.
    pub fn is_random(&self) -> bool {
        let disturbed = !self.jitter.is_zero() || self.loss != Loss::Never;
        // Endless connections start at times that depend on the seed; those of a file start at once.
        self.file().is_none() || disturbed || self.cross_traffic.is_some()
    }

    /// The number of connections with which longhaul begins on this path and for this file if the user gives
    /// none (`tune::streams`).
    pub fn automatic_flows(&self) -> u32 {
        let prior = tune::streams::prior_from_rtt(self.base_rtt(), self.bytes, BLOCK, u32::MAX);
        prior.streams.unwrap_or(1)
    }

    /// Checks that every field is within its limits.
    ///
    /// # Errors
    /// [`LabError::Usage`]: a field is not; the message names its option of the command line.
    pub fn check(&self) -> Result<(), LabError> {
        let payload = u64::from(self.packet.saturating_sub(HEADERS));
        let initial_window = self.initial_window.unwrap_or(1);
        let why = if self.rate.as_bits_per_second() == 0 {
            "--rate: a bottleneck of rate 0 carries no packets"
        } else if self.access_rate.as_bits_per_second() == 0 {
            "--access-rate: an access link of rate 0 carries no packets"
        } else if !(HEADERS + 1..=MAX_PACKET).contains(&self.packet) {
            "--packet: must be 41 to 65535 bytes, of which 40 are headers"
        } else if matches!(self.queue, Queue::Packets(0) | Queue::Bytes(0)) {
            // The link counts the packet in transmission as queued.
            "--queue: must hold at least one packet, the one that is being sent"
        } else if self.window < payload {
            "--window: must be at least the payload of one packet"
        } else if self.recovery == LossRecovery::Ns2Reno
            && self.congestion != CongestionAlgorithm::NewReno
        {
            "--sender: ns2-reno has the congestion control newreno"
        } else if !(1..=MAX_INITIAL_WINDOW).contains(&initial_window) {
            "--initial-window: must be 1 to 1000 segments"
        } else if self.duration.is_zero() || self.duration > MAX_TIME {
            "--time: must be more than 0 and at most a day"
        } else if self.warm_up > MAX_TIME {
            "--warm-up: must be at most a day"
        } else if self.delay > MAX_DELAY || self.access_delay > MAX_DELAY {
            "--delay, --access-delay, --rtt: must be at most ten minutes one way"
        } else if self.bytes == Some(0) {
            "--bytes: must be at least one byte"
        } else if self
            .sessions
            .is_some_and(|n| !(1..=MAX_SESSIONS).contains(&n))
        {
            "--sessions: must be 1 to 64"
        } else if self.sessions.is_some() && matches!(self.flows, FlowCounts::Each(_)) {
            "--sessions: needs --flows mi, mi+, aimd, probe or auto"
        } else if self.sessions.is_some() && self.bytes.is_some() {
            "--sessions: they send without end, so that --bytes has no meaning"
        } else if self.stagger * self.sessions.unwrap_or(1).saturating_sub(1) > self.warm_up {
            "--stagger: the last session must begin before the end of --warm-up"
        } else if self.jitter > Duration::from_secs(1) {
            "--jitter: must be at most one second"
        } else {
            return Ok(());
        };
        Err(LabError::Usage(why.to_owned()))
    }
}

/// The error for a value of `option` that is not accepted.
pub(super) fn refused(option: &str, why: impl fmt::Display) -> LabError {
    LabError::Usage(format!("--{option}: {why}"))
}

impl FromStr for FlowCounts {
    type Err = LabError;

    /// Parses `auto`, `mi`, `mi+`, `aimd`, `probe`, a number, a range `1..64` (both ends included), or a
    /// list of numbers and ranges: `1,2,4..8`.
    fn from_str(text: &str) -> Result<Self, LabError> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        if let Some(finder) = StreamFinder::named(text) {
            return Ok(Self::Found(finder));
        }
        let number = |part: &str| {
            let number = part.trim().parse().ok();
            let number = number.filter(|n| (1..=MAX_FLOWS).contains(n));
            number.ok_or_else(|| {
                let why = format!(
                    "'{text}' is not a number from 1 to {MAX_FLOWS}, a range such as 1..64, a list of \
                     them, auto, mi, mi+, aimd, or probe"
                );
                refused("flows", why)
            })
        };
        let mut counts: Vec<u32> = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once("..").unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                let why = format!("the range '{part}' ends below its start");
                return Err(refused("flows", why));
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
    fn flows_are_numbers_ranges_lists_or_the_name_of_a_finder() {
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
