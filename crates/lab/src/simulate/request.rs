//! What to simulate.

use std::str::FromStr;
use std::time::Duration;

use sim::link::{Loss, Queue};
use sim::rate::Rate;

use crate::LabError;

/// Most parallel connections in one simulation.
pub const MOST_FLOWS: u32 = 1024;

/// How many parallel connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flows {
    /// One simulation for each of these numbers, in this order; each 1..=[`MOST_FLOWS`].
    Counts(Vec<u32>),
    /// The number that longhaul opens by itself on this path (`tune::streams`).
    Auto,
}

/// Congestion control of the simulated connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Congestion {
    /// RFC 5681 with SACK-based recovery (RFC 6675).
    NewReno,
    /// RFC 9438.
    Cubic,
}

/// A simulation: N connections from a server to a client over two routers, and the path between
/// the routers is the bottleneck.
///
/// The default is the base setting of Ito, Ohsaki and Imase (2008).
#[derive(Debug, Clone, PartialEq)]
pub struct SimRequest {
    /// Parallel connections. Default: 1 to 64, each.
    pub flows: Flows,
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
    /// Socket buffer of each connection, bytes of payload: it never has more outstanding (rounded
    /// down to whole segments). Default: 64 KiB.
    pub window: u64,
    /// Congestion control. Default: NewReno.
    pub congestion: Congestion,
    /// The receiver acknowledges every other segment (RFC 1122) instead of each. Default: no.
    pub delayed_ack: bool,
    /// IP packet of a full segment, bytes, of which 40 are headers. Default: 1500.
    pub packet: u32,
    /// Measured time after the warm-up; with [`bytes`](Self::bytes), the longest that a transfer
    /// may take. Default: 100 s.
    pub duration: Duration,
    /// Time before measurements begin; not used with [`bytes`](Self::bytes). Default: 20 s.
    pub warm_up: Duration,
    /// Transfer a file of this size over all connections together (longhaul's MODE E: each takes
    /// the next block as it becomes free), instead of sending without end. Default: none.
    pub bytes: Option<u64>,
    /// Rate of cross traffic over the bottleneck: packets of the same size at random (Poisson)
    /// times that do not react to loss. Default: none.
    pub cross_traffic: Option<Rate>,
    /// The sending host holds each packet back for a random time up to this, as ns-2's
    /// `overhead_`; order is kept. Default: none.
    pub jitter: Duration,
    /// Random events repeat with the same seed. Default: 1.
    pub seed: u64,
}

impl Default for SimRequest {
    fn default() -> Self {
        Self {
            flows: Flows::Counts((1..=64).collect()),
            rate: Rate::bits_per_second(100_000_000),
            delay: Duration::from_millis(10),
            access_delay: Duration::from_millis(1),
            access_rate: Rate::bits_per_second(1_000_000_000),
            queue: Queue::Packets(1000),
            loss: Loss::Never,
            window: 64 << 10,
            congestion: Congestion::NewReno,
            delayed_ack: false,
            packet: 1500,
            duration: Duration::from_secs(100),
            warm_up: Duration::from_secs(20),
            bytes: None,
            cross_traffic: None,
            jitter: Duration::ZERO,
            seed: 1,
        }
    }
}

impl SimRequest {
    /// Round trip without queues and without the time to send.
    pub fn base_rtt(&self) -> Duration {
        2 * (self.delay + 2 * self.access_delay)
    }
}

impl FromStr for Flows {
    type Err = LabError;

    /// `auto`, a number, a range `1..64` (both ends included), or a list of either: `1,2,4..8`.
    fn from_str(text: &str) -> Result<Self, LabError> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let mut counts = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once("..").unwrap_or((part, part));
            let (first, last) = (count(first, text)?, count(last, text)?);
            if first > last {
                return Err(LabError::Usage(format!(
                    "connections: the range '{part}' runs backwards"
                )));
            }
            counts.extend(first..=last);
        }
        Ok(Self::Counts(counts))
    }
}

fn count(part: &str, whole: &str) -> Result<u32, LabError> {
    part.trim()
        .parse()
        .ok()
        .filter(|n| (1..=MOST_FLOWS).contains(n))
        .ok_or_else(|| {
            LabError::Usage(format!(
                "connections: '{whole}' is not a number from 1 to {MOST_FLOWS}, a range such as \
                 1..64, a list of them, or auto"
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(text: &str) -> Vec<u32> {
        match text.parse().unwrap() {
            Flows::Counts(counts) => counts,
            Flows::Auto => panic!("{text}: auto"),
        }
    }

    #[test]
    fn numbers_ranges_and_lists() {
        assert_eq!(counts("4"), [4]);
        assert_eq!(counts("1..3"), [1, 2, 3]);
        assert_eq!(counts("1,8..9, 64"), [1, 8, 9, 64]);
        assert_eq!("auto".parse::<Flows>().unwrap(), Flows::Auto);
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            "", "0", "1025", "4..2", "1..", "..", "1;2", "auto,1", "-1", "1.5",
        ] {
            let error = bad.parse::<Flows>().unwrap_err();
            assert!(
                error.to_string().starts_with("connections: "),
                "{bad}: {error}"
            );
        }
    }
}
