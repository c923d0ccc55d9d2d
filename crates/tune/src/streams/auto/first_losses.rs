//! Detects within a few round trips that the first losses of a transfer are the path's own: several
//! streams lose segments while nothing queues. A slow start that overruns the path shows the queue that it
//! has filled, or loses a large part of its data.

use std::collections::BTreeMap;
use std::time::Duration;

use super::pacing::HARMLESS_QUEUE;
use super::transfer_meter::TransferCounters;
use crate::observation::Rtt;
use crate::sample::{StreamId, TcpSample};

/// Separate losses that are needed: each on another stream, or a round trip later.
const MIN_LOSS_EVENTS: u32 = 3;
/// Largest loss ratio of the path itself. More may come from a queue too short to be seen.
const MAX_LOSS_RATIO: f64 = 0.12;
/// The detector gives up after so many round trips, and at least [`LONGEST`].
const WATCHED_ROUND_TRIPS: u32 = 25;
const LONGEST: Duration = Duration::from_secs(2);

/// Losses of one stream.
#[derive(Debug, Clone, Copy, Default)]
struct LosingStream {
    retransmits: u64,
    /// Last loss that counts as a separate one.
    at: Option<Duration>,
}

/// Detector for the first round trips of a transfer.
#[derive(Debug, Clone, Default)]
pub(super) struct FirstLossDetector {
    begun: Option<Duration>,
    streams: BTreeMap<StreamId, LosingStream>,
    /// Last time at which packets queued.
    queued: Option<Duration>,
    /// Time of the first loss.
    first: Option<Duration>,
    events: u32,
    over: bool,
}

/// Loss ratio of the first losses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LossEstimate {
    /// Part of the sent segments that was lost, 0..=1.
    pub(super) ratio: f64,
    /// Upper bound of the ratio: few losses make it uncertain.
    pub(super) upper_bound: f64,
}

impl FirstLossDetector {
    /// Takes the samples of all streams; returns an estimate once, if the losses are the path's own.
    /// `mark`: counters of the transfer.
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
        // A queue overflows a round trip before the sender notices the loss.
        if self
            .queued
            .is_some_and(|queued| queued + trip.smoothed * 2 >= first)
        {
            self.stop();
            return None;
        }
        let lossy = LossEstimate::from_counters(mark, segment(looks));
        // A full round trip after the first loss must pass without a queue.
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

    /// Stops the detector for the rest of the transfer.
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

    /// Whether losses have ended the slow start of half of the streams.
    fn have_most_left_slow_start(&self, looks: &[TcpSample]) -> bool {
        let lost = |look: &&TcpSample| {
            let known = self.streams.get(&look.stream);
            !look.in_slow_start && known.is_some_and(|stream| stream.at.is_some())
        };
        looks.iter().filter(lost).count() * 2 >= looks.len()
    }
}

impl LossEstimate {
    /// Loss ratio of all that was sent so far, in segments of `segment` bytes.
    fn from_counters(mark: TransferCounters, segment: u64) -> Self {
        let ratio = mark.since(&TransferCounters::default()).loss_ratio();
        let lost = mark.bytes_retransmitted as f64 / segment as f64;
        // Two standard deviations of a Poisson count, relative to the count.
        let doubt = (lost.sqrt() * 2.0 + 1.0) / lost.max(1.0);
        Self {
            ratio,
            upper_bound: (ratio * (1.0 + doubt)).min(1.0),
        }
    }
}

/// Rate that the present congestion windows allow, bytes per second. The measured rate lags behind it in
/// slow start.
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

    /// Samples every half round trip of streams in slow start until they lose a segment. Each entry:
    /// queueing delay in ms, and segments lost by each stream.
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
    fn losses_of_several_streams_without_a_queue_are_detected_within_a_round_trip() {
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
    fn a_queue_before_or_after_the_first_loss_stops_the_detector() {
        let lost = |queue| (queue, [1; 4]);
        let none = |queue| (queue, [0; 4]);
        assert!(onset(&[none(1), lost(1), lost(1), lost(1)]).is_some());
        assert_eq!(onset(&[none(6), lost(1), lost(1), lost(1), lost(1)]), None);
        assert_eq!(onset(&[none(1), lost(1), lost(6), lost(1), lost(1)]), None);
    }

    #[test]
    fn losses_of_one_stream_or_a_burst_are_not_enough() {
        let one = (1, [1, 0, 0, 0]);
        assert_eq!(onset(&[one; 12]), None);
        // Bursts of losses come from a queue that is too short to be seen.
        let burst = (1, [60, 60, 60, 60]);
        assert_eq!(onset(&[(1, [0; 4]), burst, burst, burst]), None);
    }
}
