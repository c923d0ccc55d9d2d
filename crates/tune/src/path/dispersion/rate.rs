//! The rate of one train.
//!
//! A train is judged by overlapping parts of an eighth of its batches, each from the last packet of one batch to the last
//! packet of a later one. The rate is the mean of the parts between the quartiles, so that a few interruptions change
//! nothing: a receiver that waited for its processor (one slow part, and one fast part that makes up for it), a sender that
//! did (one slow part), or a short burst of other traffic. A part that was sent no faster than it arrived shows the sender
//! and not the path.

use std::time::Duration;

/// One packet of a train that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Number of the packet in its train, from 0.
    pub sequence: u32,
    /// Time of sending, of any clock that does not go back; `None` if it is unknown.
    pub sent: Option<Duration>,
    /// Arrival time, of any clock that does not go back.
    pub at: Duration,
}

/// Fewest packets in a train.
pub(super) const MIN_PACKETS: u32 = 4;
/// Part of the packets at the head that is discarded: a token bucket or an idle queue lets them pass faster than
/// the bottleneck's rate.
const HEAD_PART: usize = 10;
/// Gaps of a train that may be interruptions.
const INTERRUPTIONS: usize = 2;
/// A part has this share of the batches of its train.
const PARTS: usize = 8;
/// Fewest batches in a part of a train that has twice as many: a batch may hold a packet more or less.
const BATCHES_IN_PART: usize = 4;
/// A part that took at most so many times as long to arrive as to send was not slowed by the path.
const NOT_SLOWED: f64 = 1.05;
/// Largest rate that is believed: 10 Tbit/s.
const LARGEST_BPS: f64 = 1e13;

/// Result of one train.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TrainRate {
    /// Bits per second.
    pub(super) bps: f64,
    /// Uncertainty of the rate, 0 to 1 as a part of it.
    pub(super) error: f64,
    /// Most of the train was sent no faster than it arrived.
    pub(super) is_lower_bound: bool,
    /// Packets that arrived.
    pub(super) packets: u32,
}

/// The packets of a train of `packets`, without duplicates, in order of time.
pub(super) fn arrived(arrivals: &[Arrival], packets: u32) -> Vec<Arrival> {
    let mut known: Vec<Arrival> = arrivals
        .iter()
        .filter(|arrival| arrival.sequence < packets)
        .copied()
        .collect();
    known.sort_by_key(|arrival| (arrival.sequence, arrival.at));
    known.dedup_by_key(|arrival| arrival.sequence);
    known.sort_by_key(|arrival| arrival.at);
    known
}

/// The time structure of a train, without its interruptions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TrainTiming {
    /// Time from the first arrival to the last.
    pub(super) spread: Duration,
    /// The gap at which half of this time is in shorter gaps: the time between two batches, or between two packets that
    /// arrive one by one.
    pub(super) usual_gap: Duration,
}

impl TrainTiming {
    /// The timing of packets in order of arrival. The longest gaps may be interruptions, and count as usual ones.
    pub(super) fn of(train: &[Arrival]) -> Self {
        let gaps = train.windows(2).map(|pair| pair[1].at - pair[0].at);
        let mut gaps: Vec<Duration> = gaps.collect();
        gaps.sort_unstable();
        let usual = gaps.len() - INTERRUPTIONS.min(gaps.len() / 3);
        let longest = gaps.split_off(usual);
        let spread: Duration = gaps.iter().sum();
        let mut passed = Duration::ZERO;
        let is_beyond = |gap: &Duration| {
            passed += *gap;
            passed * 2 >= spread
        };
        let usual_gap = gaps.iter().copied().find(is_beyond).unwrap_or_default();
        let most = |gap: &Duration| (*gap).min(usual_gap);
        Self {
            spread: spread + longest.iter().map(most).sum::<Duration>(),
            usual_gap,
        }
    }
}

/// Index of the last packet of each batch.
pub(super) fn batch_ends(train: &[Arrival]) -> Vec<usize> {
    let together = TrainTiming::of(train).usual_gap / 2;
    (0..train.len())
        .filter(|&n| {
            train
                .get(n + 1)
                .is_none_or(|next| next.at - train[n].at > together)
        })
        .collect()
}

/// Rate of one train, whose packets are in order of arrival; `None` if it is too short to have one.
pub(super) fn train_rate(train: &[Arrival], packet_bytes: u32) -> Option<TrainRate> {
    if train.len() < MIN_PACKETS as usize {
        return None;
    }
    let mut ends = batch_ends(train);
    let head = train.len() / HEAD_PART;
    ends.retain(|end| *end >= head);
    // The last batch is delivered with a delay of its own: a timer fires although the train is over.
    if ends.len() > 4 {
        ends.pop();
    }
    let parts = parts(train, &ends);
    let free: Vec<TrainPart> = parts
        .iter()
        .filter(|part| !part.is_of_sender)
        .copied()
        .collect();
    let is_lower_bound = free.len() * 2 < parts.len();
    let (bps, deviation) = rate_between_quartiles(match is_lower_bound {
        true => parts,
        false => free,
    })?;
    let bps = bps * f64::from(packet_bytes) * 8.0;
    let packets = ends.last()?.checked_sub(*ends.first()?)?;
    // Each end of a part is uncertain by a batch at most, and the parts in a row share their ends.
    let error = (2.0 / (ends.len() - 1) as f64).max(2.0 / packets as f64);
    Some(TrainRate {
        bps: bps.min(LARGEST_BPS),
        error: error.max(deviation).min(1.0),
        is_lower_bound,
        packets: u32::try_from(train.len()).unwrap_or(u32::MAX),
    })
}

/// A part of a train.
#[derive(Debug, Clone, Copy)]
struct TrainPart {
    packets: f64,
    seconds: f64,
    /// It was sent no faster than it arrived.
    is_of_sender: bool,
}

impl TrainPart {
    fn rate(&self) -> f64 {
        self.packets / self.seconds
    }
}

/// The parts of a train between batches that end at `ends`.
fn parts(train: &[Arrival], ends: &[usize]) -> Vec<TrainPart> {
    let batches = (ends.len() / PARTS).max(BATCHES_IN_PART.min(ends.len() / 2));
    let batches = batches.max(1);
    let part = |(from, to): (&usize, &usize)| part(train, *from, *to);
    let later = ends.iter().skip(batches);
    ends.iter().zip(later).filter_map(part).collect()
}

fn part(train: &[Arrival], from: usize, to: usize) -> Option<TrainPart> {
    let (begin, end) = (train.get(from)?, train.get(to)?);
    let seconds = end.at.checked_sub(begin.at)?.as_secs_f64();
    let sent = begin.sent.zip(end.sent);
    let sent = sent.and_then(|(begin, end)| end.checked_sub(begin));
    (seconds > 0.0).then(|| TrainPart {
        packets: (to - from) as f64,
        seconds,
        is_of_sender: sent.is_some_and(|sent| seconds <= sent.as_secs_f64() * NOT_SLOWED),
    })
}

/// Packets per second of the parts between the quartiles, and half of the distance of the quartiles as a part of it.
fn rate_between_quartiles(mut parts: Vec<TrainPart>) -> Option<(f64, f64)> {
    parts.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
    let quarter = parts.len() / 4;
    let middle = parts.get(quarter..parts.len() - quarter)?;
    let (slowest, fastest) = (middle.first()?.rate(), middle.last()?.rate());
    let packets: f64 = middle.iter().map(|part| part.packets).sum();
    let seconds: f64 = middle.iter().map(|part| part.seconds).sum();
    let rate = packets / seconds;
    Some((rate, (fastest - slowest) / 2.0 / rate))
}
