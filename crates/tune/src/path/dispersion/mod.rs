//! Bandwidth of the bottleneck from the dispersion of packet trains (Dovrolis, Ramanathan and Moore, "What Do
//! Packet-Dispersion Techniques Measure?", Infocom 2001).
//!
//! Packets that are sent back to back leave the bottleneck one transmission time apart. Their arrival times
//! are those of echo replies or of a receiver. Hosts and emulators deliver packets in batches, a millisecond
//! apart at worst, so that single gaps mean nothing: a train is made longer until it takes many batches,
//! and rates are taken from the last packet of one batch to the last packet of a later one.

use std::time::Duration;

/// One packet of a train that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Number of the packet in its train, from 0.
    pub sequence: u32,
    /// Arrival time, of any clock that does not go back.
    pub at: Duration,
}

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
    /// Trains of the final length.
    pub trains: u32,
}

impl Default for TrainLimits {
    /// Trains of at most 2 000 packets (24 ms of 1 Gbit/s), 16 MB together, three of the final length.
    fn default() -> Self {
        Self {
            max_packets: 2000,
            max_bytes: 16_000_000,
            trains: 3,
        }
    }
}

/// Bandwidth of a bottleneck, bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BandwidthEstimate {
    /// The median of the trains.
    pub bps: u64,
    /// Smallest and largest bandwidth that the trains allow, with the uncertainty of batched arrivals.
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
/// Fewest packets in a train.
const MIN_PACKETS: u32 = 4;
/// Spread from which on a train is long enough.
const LONG_ENOUGH: Duration = Duration::from_millis(15);
/// Spread of a train in batches of several packets: so many times the largest gap between them.
const BATCHES: u32 = 12;
/// A train is not made longer than this for the sake of its batches.
const LONGEST: Duration = Duration::from_millis(100);
/// Lost packets of a train that do not mean that it overflows a queue.
const FEW_LOST: usize = 2;
/// Trains of which hardly a packet arrived, after which the measurement ends: nobody answers.
const UNANSWERED: u32 = 3;
/// Part of the packets at the head that is discarded: a token bucket or an idle queue lets them pass faster than
/// the bottleneck's rate.
const HEAD_PART: usize = 10;
/// Packets whose gap is below this part of the mean gap were delivered together.
const SAME_BATCH: f64 = 0.5;
/// A train that took at most so many times as long to arrive as to send was not slowed by the path.
const NOT_SLOWED: f64 = 1.05;
/// Largest rate that is believed: 10 Tbit/s.
const LARGEST_BPS: f64 = 1e13;

/// Result of one train.
#[derive(Debug, Clone, Copy, PartialEq)]
struct TrainResult {
    bps: f64,
    /// Uncertainty of the rate, as a part of it.
    error: f64,
    is_lower_bound: bool,
    packets: u32,
}

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
///         at: Duration::from_micros(20_000 + 120 * u64::from(sequence)),
///     };
///     let arrivals: Vec<Arrival> = (0..train.packets).map(arrival).collect();
///     plan.on_train(&arrivals, None);
/// }
/// assert_eq!(plan.estimate().unwrap().bps, 100_000_000);
/// ```
#[derive(Debug, Clone)]
pub struct TrainPlan {
    limits: TrainLimits,
    packet_bytes: u32,
    packets: u32,
    sent_bytes: u64,
    results: Vec<TrainResult>,
    /// Trains sent at the final length; `None` while the length still grows.
    at_final_length: Option<u32>,
    /// Trains of which hardly a packet arrived.
    unanswered: u32,
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
        }
    }

    /// The train to send next; `None` when the measurement is over.
    pub fn next_train(&self) -> Option<TrainShape> {
        let shape = TrainShape {
            packets: self.packets,
            packet_bytes: self.packet_bytes,
        };
        let is_enough = self
            .at_final_length
            .is_some_and(|trains| trains >= self.limits.trains);
        let is_affordable = self.sent_bytes.saturating_add(shape.bytes()) <= self.limits.max_bytes;
        (!is_enough && is_affordable && self.unanswered < UNANSWERED).then_some(shape)
    }

    /// Takes the arrivals of the train that [`next_train`](Self::next_train) gave, in any order. `sent_in`: time
    /// that the sender took from the first packet to the last, if known. Duplicates and packets that were not
    /// sent do not count.
    pub fn on_train(&mut self, arrivals: &[Arrival], sent_in: Option<Duration>) {
        let shape = TrainShape {
            packets: self.packets,
            packet_bytes: self.packet_bytes,
        };
        self.sent_bytes = self.sent_bytes.saturating_add(shape.bytes());
        let times = arrival_times(arrivals, self.packets);
        self.unanswered += u32::from(times.len() < MIN_PACKETS as usize);
        let result = train_result(&times, self.packet_bytes, sent_in);
        self.results.extend(result);
        if let Some(trains) = &mut self.at_final_length {
            *trains += 1;
            return;
        }
        let lost = (self.packets as usize).saturating_sub(times.len());
        let spread = spread_of(&times);
        // A few lost packets are the path's and not the train's fault. A train too short to be of use goes on:
        // the bottleneck stays busy while its queue overflows.
        let overflows = lost > FEW_LOST.max(self.packets as usize / 20)
            && result.is_some()
            && spread >= LONG_ENOUGH / 3;
        let is_long = result.is_some()
            && spread >= LONG_ENOUGH
            && (spread >= LONGEST || spread >= largest_batch_gap(&times) * BATCHES);
        if is_long || overflows || self.packets >= self.limits.max_packets {
            self.at_final_length = Some(1);
        } else {
            self.packets = self.packets.saturating_mul(2).min(self.limits.max_packets);
        }
    }

    /// The bandwidth from the longest trains and those of three quarters of their length; `None` if no train was
    /// of use.
    pub fn estimate(&self) -> Option<BandwidthEstimate> {
        let longest = self.results.iter().map(|result| result.packets).max()?;
        let mut long: Vec<TrainResult> = self
            .results
            .iter()
            // Losses make trains of one length unequal.
            .filter(|result| result.packets >= longest / 4 * 3)
            .copied()
            .collect();
        long.sort_by(|a, b| a.bps.total_cmp(&b.bps));
        let median = long[long.len() / 2];
        let low = |result: &TrainResult| result.bps * (1.0 - result.error).max(0.0);
        let high = |result: &TrainResult| result.bps * (1.0 + result.error);
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
        let times = arrival_times(train, u32::MAX);
        plan.results
            .extend(train_result(&times, plan.packet_bytes, None));
    }
    plan.estimate()
}

/// Arrival times of the packets of a train, without duplicates, in order of time.
fn arrival_times(arrivals: &[Arrival], packets: u32) -> Vec<Duration> {
    let mut known: Vec<Arrival> = arrivals
        .iter()
        .filter(|arrival| arrival.sequence < packets)
        .copied()
        .collect();
    known.sort_by_key(|arrival| (arrival.sequence, arrival.at));
    known.dedup_by_key(|arrival| arrival.sequence);
    let mut times: Vec<Duration> = known.iter().map(|arrival| arrival.at).collect();
    times.sort_unstable();
    times
}

fn spread_of(times: &[Duration]) -> Duration {
    match times {
        [first, .., last] => last.saturating_sub(*first),
        _ => Duration::ZERO,
    }
}

/// Index of the last packet of each batch.
fn batch_ends(times: &[Duration]) -> Vec<usize> {
    let gaps = times.len().saturating_sub(1).max(1);
    let together = spread_of(times).as_secs_f64() / gaps as f64 * SAME_BATCH;
    (0..times.len())
        .filter(|&n| {
            times
                .get(n + 1)
                .is_none_or(|next| (*next - times[n]).as_secs_f64() > together)
        })
        .collect()
}

/// Largest gap between batches of several packets; zero if packets arrive one by one.
fn largest_batch_gap(times: &[Duration]) -> Duration {
    let ends = batch_ends(times);
    if ends.len() * 2 > times.len() {
        return Duration::ZERO;
    }
    ends.windows(2)
        .map(|pair| times[pair[1]] - times[pair[0]])
        .max()
        .unwrap_or_default()
}

/// Rate of one train, from the end of an early batch to the end of the last complete one.
fn train_result(
    times: &[Duration],
    packet_bytes: u32,
    sent_in: Option<Duration>,
) -> Option<TrainResult> {
    if times.len() < MIN_PACKETS as usize {
        return None;
    }
    let ends = batch_ends(times);
    let head = times.len() / HEAD_PART;
    let first = ends.iter().position(|&end| end >= head)?;
    // The last batch is delivered with a delay of its own: a timer fires although the train is over.
    let last = if ends.len() - first > 3 {
        ends.len() - 2
    } else {
        ends.len() - 1
    };
    let (from, to) = (ends[first], ends[last]);
    let time = (times[to] - times[from]).as_secs_f64();
    if to <= from || time <= 0.0 {
        return None;
    }
    let bits = (to - from) as f64 * f64::from(packet_bytes) * 8.0;
    let batches = (last - first) as f64;
    // Either end of the train is uncertain by some part of a batch, which together make one batch at most.
    let error = (1.0 / batches).max(1.0 / (to - from) as f64);
    let spread = spread_of(times).as_secs_f64();
    Some(TrainResult {
        bps: (bits / time).min(LARGEST_BPS),
        error: error.min(1.0),
        is_lower_bound: sent_in
            .is_some_and(|sent| spread > 0.0 && spread <= sent.as_secs_f64() * NOT_SLOWED),
        packets: u32::try_from(times.len()).unwrap_or(u32::MAX),
    })
}

#[cfg(test)]
mod tests;
