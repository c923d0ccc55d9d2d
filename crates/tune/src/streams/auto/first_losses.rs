//! The first losses of a transfer, judged within a few round trips: where several streams lose
//! segments early and nothing has queued before or since, the path loses them by itself. A slow start
//! that overran the path shows the queue that it has filled, or loses a large part of what it sent.

use std::collections::BTreeMap;
use std::time::Duration;

use super::pacing::HARMLESS_QUEUE;
use super::transfer_meter::TransferCounters;
use crate::observation::Rtt;
use crate::sample::{StreamId, TcpSample};

/// Losses that are apart: on another stream, or a round trip later.
const MIN_LOSS_EVENTS: u32 = 3;
/// Who loses more of what it sent may have overrun a queue that is too short to be seen.
const MAX_LOSS_RATIO: f64 = 0.12;
/// Round trips (and at least this time) without a loss, after which a transfer is not limited by losses at
/// the start.
const WATCHED_ROUND_TRIPS: u32 = 25;
const LONGEST: Duration = Duration::from_secs(2);

/// A stream that was seen to lose segments.
#[derive(Debug, Clone, Copy, Default)]
struct LosingStream {
    retransmits: u64,
    /// Its last loss that was one by itself.
    at: Option<Duration>,
}

/// Watches the beginning of a transfer.
#[derive(Debug, Clone, Default)]
pub(super) struct FirstLossDetector {
    begun: Option<Duration>,
    streams: BTreeMap<StreamId, LosingStream>,
    /// Packets queued when it was last seen.
    queued: Option<Duration>,
    /// When something was first lost.
    first: Option<Duration>,
    events: u32,
    over: bool,
}

/// Size of the first losses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LossEstimate {
    /// Of what was sent, 0..=1.
    pub(super) ratio: f64,
    /// The largest ratio that is likely: few losses say little.
    pub(super) upper_bound: f64,
}

impl FirstLossDetector {
    /// Takes a scene; an answer once, if the losses are plain. `mark`: how far all streams are.
    pub(super) fn on_sample(
        &mut self,
        mark: TransferCounters,
        looks: &[TcpSample],
        trip: Rtt,
    ) -> Option<LossEstimate> {
        if self.over {
            return None;
        }
        let at = mark.at;
        let begun = *self.begun.get_or_insert(at);
        let longest = LONGEST.max(trip.min * WATCHED_ROUND_TRIPS);
        if at.saturating_sub(begun) >= longest {
            self.stop();
            return None;
        }
        if trip.has_queue() || trip.smoothed.saturating_sub(trip.min) > HARMLESS_QUEUE {
            self.queued = Some(at);
        }
        for look in looks {
            self.note_stream(at, look, trip.smoothed);
        }
        let first = self.first?;
        // A queue that is overrun is there for a round trip before that is known.
        if self
            .queued
            .is_some_and(|queued| queued + trip.smoothed * 2 >= first)
        {
            self.stop();
            return None;
        }
        let lossy = LossEstimate::from_counters(mark, segment(looks));
        let plain = self.events >= MIN_LOSS_EVENTS
            && self.have_most_left_slow_start(looks)
            && at.saturating_sub(first) >= trip.min
            && lossy.ratio <= MAX_LOSS_RATIO;
        if !plain {
            return None;
        }
        self.stop();
        Some(lossy)
    }

    /// Ends the beginning: sights from now on do not count.
    pub(super) fn stop(&mut self) {
        *self = Self {
            over: true,
            ..Self::default()
        };
    }

    fn note_stream(&mut self, at: Duration, look: &TcpSample, rtt: Duration) {
        let stream = self.streams.entry(look.stream).or_default();
        if look.retransmits <= stream.retransmits {
            return;
        }
        stream.retransmits = look.retransmits;
        if stream.at.is_none_or(|last| at.saturating_sub(last) >= rtt) {
            stream.at = Some(at);
            self.events += 1;
            self.first.get_or_insert(at);
        }
    }

    /// Losses have ended the slow start of half of the streams.
    fn have_most_left_slow_start(&self, looks: &[TcpSample]) -> bool {
        let lost = |look: &&TcpSample| {
            let known = self.streams.get(&look.stream);
            !look.in_slow_start && known.is_some_and(|stream| stream.at.is_some())
        };
        looks.iter().filter(lost).count() * 2 >= looks.len()
    }
}

impl LossEstimate {
    /// Of what was sent until `mark` in segments of so many bytes.
    fn from_counters(mark: TransferCounters, segment: u64) -> Self {
        let ratio = mark.loss_ratio_since(&TransferCounters::default());
        let lost = mark.bytes_retransmitted as f64 / segment as f64;
        // Two standard deviations of a Poisson count.
        let doubt = (lost.sqrt() * 2.0 + 1.0) / lost.max(1.0);
        Self {
            ratio,
            upper_bound: (ratio * (1.0 + doubt)).min(1.0),
        }
    }
}

/// Rate of loss-based control with the windows that it has, bytes per second: a rate in
/// slow start is behind them.
pub(super) fn cwnd_rate(looks: &[TcpSample], trip: Rtt) -> u64 {
    let windows = looks.iter().map(|look| look.cwnd);
    units::bytes_per_second(windows.fold(0, u64::saturating_add), trip.smoothed)
}

fn segment(looks: &[TcpSample]) -> u64 {
    looks.iter().map(|look| look.mss).max().unwrap_or(0).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: Duration = Duration::from_millis(100);

    fn trip(queue: u64) -> Rtt {
        Rtt {
            min: TRIP,
            smoothed: TRIP + Duration::from_millis(queue),
        }
    }

    /// Looks every half round trip, of streams that double their windows until they lose something:
    /// `(scene, queue in ms, lost by each stream)`.
    fn onset(scenes: &[(u64, [u64; 4])]) -> Option<(Duration, LossEstimate)> {
        let mut onset = FirstLossDetector::default();
        let mut lost = [0; 4];
        let mut moved = 0;
        for (n, (queue, more)) in (1_u32..).zip(scenes) {
            let at = TRIP / 2 * n;
            moved += 4 * 1448 * 20 * u64::from(n);
            let looks: Vec<TcpSample> = (0..4)
                .map(|stream| {
                    lost[stream] += more[stream];
                    TcpSample {
                        stream: stream as u64,
                        at,
                        retransmits: lost[stream],
                        in_slow_start: lost[stream] == 0,
                        mss: 1448,
                        ..TcpSample::default()
                    }
                })
                .collect();
            let mark = TransferCounters {
                at,
                bytes_moved: moved,
                bytes_retransmitted: lost.iter().sum::<u64>() * 1448,
            };
            if let Some(lossy) = onset.on_sample(mark, &looks, trip(*queue)) {
                return Some((at, lossy));
            }
        }
        None
    }

    #[test]
    fn losses_of_several_streams_without_a_queue_are_plain_within_a_round_trip() {
        let none = (1, [0; 4]);
        let (at, lossy) = onset(&[
            none,
            none,
            none,
            none,
            (1, [1, 0, 0, 0]),
            (1, [0, 1, 0, 1]),
            (1, [0, 0, 1, 0]),
        ])
        .unwrap();
        assert_eq!(at, TRIP / 2 * 7);
        assert!(lossy.ratio > 0.001 && lossy.ratio < 0.01, "{lossy:?}");
        assert!(lossy.upper_bound > lossy.ratio * 2.0, "{lossy:?}");
    }

    #[test]
    fn a_queue_before_or_after_the_first_loss_ends_it() {
        let lost = |queue| (queue, [1; 4]);
        let none = |queue| (queue, [0; 4]);
        assert!(onset(&[none(1), lost(1), lost(1), lost(1)]).is_some());
        assert_eq!(onset(&[none(6), lost(1), lost(1), lost(1), lost(1)]), None);
        assert_eq!(onset(&[none(1), lost(1), lost(6), lost(1), lost(1)]), None);
    }

    #[test]
    fn one_stream_of_four_or_a_burst_is_not_enough() {
        let one = (1, [1, 0, 0, 0]);
        assert_eq!(onset(&[one; 12]), None);
        // A queue too short to be seen.
        let burst = (1, [60, 60, 60, 60]);
        assert_eq!(onset(&[(1, [0; 4]), burst, burst, burst]), None);
    }
}
