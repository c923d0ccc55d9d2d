//! Bandwidth of the bottleneck from the dispersion of packet trains (Dovrolis, Ramanathan and Moore, "What Do
//! Packet-Dispersion Techniques Measure?", Infocom 2001).
//!
//! Packets that are sent back to back leave the bottleneck one transmission time apart. Their arrival times
//! are those of echo replies or of a receiver. Hosts and emulators deliver packets in batches, a millisecond
//! apart at worst, so that single gaps mean nothing: a train is made longer until it takes many batches,
//! and its rate is that of many overlapping parts of it.

mod rate;

use std::time::Duration;

pub use rate::Arrival;
use rate::{MIN_PACKETS, TrainRate, TrainTiming, arrived, batch_ends, train_rate};

/// A train to send: packets without gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrainShape {
    /// Packets.
    pub packets: u32,
    /// Size of each packet, bytes on the wire (with the IP header).
    pub packet_bytes: u32,
}

impl TrainShape {
    /// Bytes on the wire.
    pub fn bytes(&self) -> u64 {
        u64::from(self.packets) * u64::from(self.packet_bytes)
    }
}

/// Bounds of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrainLimits {
    /// Most packets in one train.
    pub max_packets: u32,
    /// Most bytes of all trains.
    pub max_bytes: u64,
    /// Trains of the final length. Twice as many are sent if they disagree.
    pub trains: u32,
}

impl Default for TrainLimits {
    /// Trains of at most 2 000 packets (24 ms of 1 Gbit/s), 14 MB together, three of the final length.
    fn default() -> Self {
        Self {
            max_packets: 2000,
            max_bytes: 14_000_000,
            trains: 3,
        }
    }
}

/// Bandwidth of a bottleneck, bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BandwidthEstimate {
    /// The median of the trains.
    pub bps: u64,
    /// Smallest and largest bandwidth that the trains allow, with the uncertainty of batched arrivals and with half of
    /// the parts of each train.
    pub spread: (u64, u64),
    /// Trains that it rests on.
    pub trains: u32,
    /// The sender was no faster than this, so that the bottleneck may be.
    pub is_lower_bound: bool,
}

impl BandwidthEstimate {
    /// Half of the spread, as a part of the estimate.
    pub fn relative_error(&self) -> f64 {
        let (low, high) = self.spread;
        high.saturating_sub(low) as f64 / 2.0 / self.bps.max(1) as f64
    }
}

/// Packets in the first train.
const FIRST_PACKETS: u32 = 10;
/// Spread from which on a train is long enough.
const LONG_ENOUGH: Duration = Duration::from_millis(15);
/// Spread of a train that is to confirm a known bandwidth: it may be some percent higher now.
const CONFIRMING: Duration = Duration::from_millis(18);
/// Spread of a train in batches of several packets: so many times the usual gap between them.
const BATCHES: u32 = 12;
/// A train is not made longer than this for the sake of its batches.
const LONGEST: Duration = Duration::from_millis(100);
/// Lost packets of a train that do not mean that it overflows a queue.
const FEW_LOST: usize = 2;
/// Trains of which hardly a packet arrived, after which the measurement ends: nobody answers.
const UNANSWERED: u32 = 3;
/// Trains whose rates differ by less than this part of their median agree.
const AGREEMENT: f64 = 0.1;

/// A measurement: which train to send next, and the estimate from all of them.
///
/// ```
/// use std::time::Duration;
/// use tune::path::dispersion::{Arrival, TrainLimits, TrainPlan};
///
/// let mut plan = TrainPlan::new(1500, TrainLimits::default());
/// while let Some(train) = plan.next_train() {
///     // The program sends the train. Here every packet takes 120 us, at 100 Mbit/s.
///     let arrival = |sequence| Arrival {
///         sequence,
///         sent: None,
///         at: Duration::from_micros(20_000 + 120 * u64::from(sequence)),
///     };
///     let arrivals: Vec<Arrival> = (0..train.packets).map(arrival).collect();
///     plan.on_train(&arrivals);
/// }
/// assert_eq!(plan.estimate().unwrap().bps, 100_000_000);
/// ```
#[derive(Debug, Clone)]
pub struct TrainPlan {
    limits: TrainLimits,
    packet_bytes: u32,
    packets: u32,
    sent_bytes: u64,
    results: Vec<TrainRate>,
    /// Trains sent at the final length; `None` while the length still grows.
    at_final_length: Option<u32>,
    /// Trains of which hardly a packet arrived.
    unanswered: u32,
    /// The bandwidth by earlier measurements, bits per second. One train that confirms it is enough.
    known_bps: Option<u64>,
}

impl TrainPlan {
    /// A measurement with packets of `packet_bytes` on the wire, 64 to 65 535.
    pub fn new(packet_bytes: u32, limits: TrainLimits) -> Self {
        let limits = TrainLimits {
            max_packets: limits.max_packets.clamp(MIN_PACKETS, 100_000),
            trains: limits.trains.clamp(1, 100),
            ..limits
        };
        Self {
            limits,
            packet_bytes: packet_bytes.clamp(64, 65_535),
            packets: FIRST_PACKETS.min(limits.max_packets),
            sent_bytes: 0,
            results: Vec::new(),
            at_final_length: None,
            unanswered: 0,
            known_bps: None,
        }
    }

    /// The same for a path whose bandwidth was measured before, in bits per second: it begins with a train that is
    /// long enough for it, and ends with that train if it agrees. A path that has changed is measured as a new one.
    #[must_use]
    pub fn confirming(self, known_bps: u64) -> Self {
        let bytes = units::bytes_in(known_bps / 8, CONFIRMING);
        let packets = u32::try_from(bytes / u64::from(self.packet_bytes)).unwrap_or(u32::MAX);
        Self {
            packets: packets.clamp(self.packets, self.limits.max_packets),
            known_bps: Some(known_bps),
            ..self
        }
    }

    /// The train to send next; `None` when the measurement is over.
    pub fn next_train(&self) -> Option<TrainShape> {
        let shape = TrainShape {
            packets: self.packets,
            packet_bytes: self.packet_bytes,
        };
        let is_enough = self.at_final_length.is_some_and(|trains| {
            let is_measured =
                trains >= self.limits.trains && (self.agree() || trains >= 2 * self.limits.trains);
            is_measured || self.confirms()
        });
        let is_affordable = self.sent_bytes.saturating_add(shape.bytes()) <= self.limits.max_bytes;
        (!is_enough && is_affordable && self.unanswered < UNANSWERED).then_some(shape)
    }

    /// Takes the arrivals of the train that [`next_train`](Self::next_train) gave, in any order. Duplicates and
    /// packets that were not sent do not count.
    pub fn on_train(&mut self, arrivals: &[Arrival]) {
        let shape = TrainShape {
            packets: self.packets,
            packet_bytes: self.packet_bytes,
        };
        self.sent_bytes = self.sent_bytes.saturating_add(shape.bytes());
        let train = arrived(arrivals, self.packets);
        self.unanswered += u32::from(train.len() < MIN_PACKETS as usize);
        let result = train_rate(&train, self.packet_bytes);
        self.results.extend(result);
        if let Some(trains) = &mut self.at_final_length {
            *trains += 1;
            return;
        }
        let lost = (self.packets as usize).saturating_sub(train.len());
        let TrainTiming { spread, usual_gap } = TrainTiming::of(&train);
        let is_batched = batch_ends(&train).len() * 2 <= train.len();
        // A few lost packets are the path's and not the train's fault. A train too short to be of use goes on:
        // the bottleneck stays busy while its queue overflows.
        let overflows = lost > FEW_LOST.max(self.packets as usize / 20)
            && result.is_some()
            && spread >= LONG_ENOUGH / 3;
        let is_long = result.is_some()
            && spread >= LONG_ENOUGH
            && (spread >= LONGEST || !is_batched || spread >= usual_gap * BATCHES);
        if is_long || overflows || self.packets >= self.limits.max_packets {
            self.at_final_length = Some(1);
        } else {
            self.packets = self.packets.saturating_mul(2).min(self.limits.max_packets);
        }
    }

    /// The bandwidth from the longest trains and those of three quarters of their length, without those that were
    /// sent no faster than they arrived, if there are others; `None` if no train was of use.
    pub fn estimate(&self) -> Option<BandwidthEstimate> {
        let long = self.longest();
        let median = long.get(long.len() / 2)?;
        let low = |rate: &TrainRate| rate.bps * (1.0 - rate.error).max(0.0);
        let high = |rate: &TrainRate| rate.bps * (1.0 + rate.error);
        let lowest = long.iter().map(low).fold(f64::INFINITY, f64::min);
        let highest = long.iter().map(high).fold(0.0, f64::max);
        Some(BandwidthEstimate {
            bps: super::facts::whole(median.bps.round()),
            spread: (
                super::facts::whole(lowest.floor()),
                super::facts::whole(highest.ceil()),
            ),
            trains: u32::try_from(long.len()).unwrap_or(u32::MAX),
            is_lower_bound: median.is_lower_bound,
        })
    }

    /// The trains that the estimate rests on, the slowest first.
    fn longest(&self) -> Vec<TrainRate> {
        let longest = self.results.iter().map(|rate| rate.packets).max();
        // Losses make trains of one length unequal.
        let is_long = |rate: &&TrainRate| rate.packets >= longest.unwrap_or(0) / 4 * 3;
        let mut long: Vec<TrainRate> = self.results.iter().filter(is_long).copied().collect();
        if long.iter().any(|rate| !rate.is_lower_bound) {
            long.retain(|rate| !rate.is_lower_bound);
        }
        long.sort_by(|a, b| a.bps.total_cmp(&b.bps));
        long
    }

    /// Whether the trains show the known bandwidth.
    fn confirms(&self) -> bool {
        let (Some(known), Some(found)) = (self.known_bps, self.estimate()) else {
            return false;
        };
        let difference = found.bps.abs_diff(known) as f64;
        !found.is_lower_bound && difference <= AGREEMENT * known as f64
    }

    fn agree(&self) -> bool {
        let long = self.longest();
        let (Some(slowest), Some(fastest)) = (long.first(), long.last()) else {
            return true;
        };
        let is_enough = long.len() >= self.limits.trains as usize;
        is_enough && fastest.bps - slowest.bps <= AGREEMENT * long[long.len() / 2].bps
    }

    /// Bytes sent so far.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }
}

/// The bandwidth from trains of packets of `packet_bytes`, all received completely or in part; `None` if none
/// is of use.
pub fn estimate<'a>(
    trains: impl IntoIterator<Item = &'a [Arrival]>,
    packet_bytes: u32,
) -> Option<BandwidthEstimate> {
    let mut plan = TrainPlan::new(packet_bytes, TrainLimits::default());
    for train in trains {
        let train = arrived(train, u32::MAX);
        plan.results.extend(train_rate(&train, plan.packet_bytes));
    }
    plan.estimate()
}

#[cfg(test)]
mod tests;
