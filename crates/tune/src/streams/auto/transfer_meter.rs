//! Measures a transfer over all its streams: bottleneck, rate, round trip and losses.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::min_rtt::MinRttFilter;
use super::thresholds::LIMITS;
use super::transfer_sample::TransferSample;
use crate::limiter::Role;
use crate::observation::{Bottleneck, BottleneckClassifier, ClassifiedInterval, Rtt};
use crate::sample::{IntervalStats, StreamId, TcpSample};

/// Shortest interval: differences over less are noise.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(50);
/// Fewest samples in an interval.
const FEWEST_SAMPLES: u32 = 3;
/// Length of the history of counters.
const HISTORY_LENGTH: Duration = Duration::from_secs(60);
/// Shortest time between two entries of the history.
const HISTORY_STEP: Duration = Duration::from_millis(20);

/// Counters of a whole transfer at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TransferCounters {
    pub(super) at: Duration,
    /// Payload moved, bytes.
    pub(super) bytes_moved: u64,
    /// Payload retransmitted, bytes.
    pub(super) bytes_retransmitted: u64,
}

impl TransferCounters {
    /// Difference to earlier counters.
    pub(super) fn since(&self, from: &Self) -> IntervalStats {
        IntervalStats {
            time: self.at.saturating_sub(from.at),
            bytes: self.bytes_moved.saturating_sub(from.bytes_moved),
            retransmitted: self
                .bytes_retransmitted
                .saturating_sub(from.bytes_retransmitted),
            ..IntervalStats::default()
        }
    }
}

/// Measurements of a transfer over two round trips, at least 50 ms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TransferInterval {
    /// End of the interval.
    pub(super) at: Duration,
    pub(super) stats: IntervalStats,
    /// Bottleneck of the streams that together carry most.
    pub(super) bottleneck: Bottleneck,
    /// Minimum and mean round trip.
    pub(super) rtt: Rtt,
    /// Segments were lost in this interval or the one before it. The count of acknowledged bytes then
    /// stands still and jumps.
    pub(super) is_recovering: bool,
    /// A stream is in its first slow start.
    pub(super) in_slow_start: bool,
}

impl TransferInterval {
    /// Mean goodput, bytes per second.
    pub(super) fn rate(&self) -> u64 {
        self.stats.rate()
    }

    /// Queueing delay.
    pub(super) fn queueing_delay(&self) -> Duration {
        self.rtt.smoothed.saturating_sub(self.rtt.min)
    }
}

/// Measurements of one stream.
#[derive(Debug, Clone, Copy, Default)]
struct MeteredStream {
    classifier: BottleneckClassifier,
    classified: Option<(Duration, ClassifiedInterval)>,
    last: Option<TcpSample>,
}

/// An interval that has not ended.
#[derive(Debug, Clone, Copy)]
struct OpenInterval {
    from: TransferCounters,
    samples_taken: u32,
    rtt_sum: Duration,
}

/// Turns samples of a transfer into intervals.
#[derive(Debug, Clone, Default)]
pub(super) struct TransferMeter {
    min_rtt_filter: MinRttFilter,
    streams: BTreeMap<StreamId, MeteredStream>,
    latest: TransferCounters,
    history: VecDeque<TransferCounters>,
    open: Option<OpenInterval>,
    latest_rtt: Duration,
    has_sample: bool,
    /// The last interval had losses.
    had_losses: bool,
    /// It had so many that round trips were longer without a queue.
    is_very_lossy: bool,
    /// The route became longer since the last [`TransferMeter::take_path_lengthened`].
    path_lengthened: bool,
}

impl TransferMeter {
    /// Takes a sample; false if it is not newer than the last one or has no stream.
    pub(super) fn on_sample(&mut self, sample: &TransferSample<'_>) -> bool {
        if (self.has_sample && sample.at <= self.latest.at) || sample.streams.is_empty() {
            return false;
        }
        self.has_sample = true;
        self.latest_rtt = mean_rtt(sample.streams).unwrap_or(self.latest_rtt);
        self.path_lengthened |=
            self.min_rtt_filter
                .on_samples(sample.at, sample.streams, self.latest_rtt);
        let min_rtt = self.min_rtt_filter.get();
        self.latest_rtt = self.latest_rtt.max(min_rtt);
        if self.is_very_lossy
            && min_rtt < LIMITS.long_path
            && self.latest_rtt - min_rtt <= LIMITS.harmless_queue
        {
            self.latest_rtt = min_rtt;
        }
        let mut retransmitted_bytes = self.latest.bytes_retransmitted;
        self.streams
            .retain(|id, _| sample.streams.iter().any(|tcp| tcp.stream == *id));
        for tcp in sample.streams {
            retransmitted_bytes =
                retransmitted_bytes.saturating_add(self.on_stream_sample(sample.at, tcp));
        }
        self.latest = TransferCounters {
            at: sample.at,
            // A sum over streams may fall for a moment when a stream closes.
            bytes_moved: self.latest.bytes_moved.max(sample.bytes_moved),
            bytes_retransmitted: retransmitted_bytes,
        };
        self.remember_counters();
        true
    }

    /// Takes the sample of one stream; returns how many bytes it has retransmitted since the last one.
    fn on_stream_sample(&mut self, at: Duration, tcp: &TcpSample) -> u64 {
        let tcp = TcpSample {
            at,
            // The kernel's minimum may be five minutes old and belong to a shorter route.
            min_rtt: self.min_rtt_filter.get(),
            ..*tcp
        };
        let stream = self.streams.entry(tcp.stream).or_default();
        if let Some(classified) = stream.classifier.on_sample(Role::Sender, &tcp) {
            stream.classified = Some((at, classified));
        }
        // Retransmissions before the first sample belong to an earlier transfer.
        let last = stream.last.replace(tcp).unwrap_or(tcp);
        tcp.since(&last, Role::Sender).retransmitted
    }

    fn remember_counters(&mut self) {
        let last = self.history.back();
        if last.is_none_or(|last| self.latest.at.saturating_sub(last.at) >= HISTORY_STEP) {
            self.history.push_back(self.latest);
        }
        let old = self.latest.at.saturating_sub(HISTORY_LENGTH);
        // One entry at or before the start of the history stays, so that rates over all of it have a
        // start.
        while self.history.len() > 1 && self.history[1].at <= old {
            self.history.pop_front();
        }
    }

    /// Ends the interval if it is long enough. To be called after each sample.
    pub(super) fn take_interval(&mut self, samples: &[TcpSample]) -> Option<TransferInterval> {
        let Some(open) = &mut self.open else {
            self.restart_interval();
            return None;
        };
        open.samples_taken += 1;
        open.rtt_sum += self.latest_rtt;
        let stats = self.latest.since(&open.from);
        if open.samples_taken < FEWEST_SAMPLES
            || stats.time < SHORTEST_INTERVAL.max(self.latest_rtt * 2)
        {
            return None;
        }
        let open = *open;
        let had_losses = stats.has_losses();
        let min_rtt = self.min_rtt_filter.get();
        self.is_very_lossy = stats.loss_ratio() >= LIMITS.delaying_loss;
        let interval = TransferInterval {
            at: self.latest.at,
            stats,
            bottleneck: match self.dominant_bottleneck(stats.time) {
                Bottleneck::Link if self.is_very_lossy && self.latest_rtt == min_rtt => {
                    Bottleneck::Loss
                }
                // Losses that are rare on each of many streams are frequent on all together.
                Bottleneck::Cwnd if had_losses || self.had_losses => Bottleneck::Loss,
                bottleneck => bottleneck,
            },
            rtt: Rtt {
                min: min_rtt,
                smoothed: (open.rtt_sum / open.samples_taken).max(min_rtt),
            },
            is_recovering: had_losses || self.had_losses,
            in_slow_start: samples.iter().any(|tcp| tcp.in_slow_start),
        };
        self.had_losses = had_losses;
        self.restart_interval();
        Some(interval)
    }

    /// Begins a new interval, because a setting was changed.
    pub(super) fn restart_interval(&mut self) {
        self.open = Some(OpenInterval {
            from: self.latest,
            samples_taken: 0,
            rtt_sum: Duration::ZERO,
        });
    }

    /// The bottleneck whose streams together carry most.
    fn dominant_bottleneck(&self, time: Duration) -> Bottleneck {
        // A stream that has moved nothing for three intervals keeps an outdated bottleneck.
        let fresh = self.latest.at.saturating_sub(time * 3);
        let mut sums: Vec<(Bottleneck, u64)> = Vec::new();
        for stream in self.streams.values() {
            let Some((_, classified)) = stream.classified.filter(|(at, _)| *at >= fresh) else {
                continue;
            };
            match sums
                .iter_mut()
                .find(|(bottleneck, _)| *bottleneck == classified.bottleneck)
            {
                Some((_, rate)) => *rate = rate.saturating_add(classified.stats.rate()),
                None => sums.push((classified.bottleneck, classified.stats.rate())),
            }
        }
        let most = sums.into_iter().max_by_key(|(_, rate)| *rate);
        most.map_or(Bottleneck::Unknown, |(bottleneck, _)| bottleneck)
    }

    /// The time from `from` to the last sample as one interval, outside the sequence of intervals.
    pub(super) fn since(&self, from: Duration) -> TransferInterval {
        TransferInterval {
            at: self.latest.at,
            stats: self.latest.since(&self.counters_at(from)),
            bottleneck: Bottleneck::Unknown,
            rtt: self.current_rtt(),
            is_recovering: self.had_losses,
            in_slow_start: false,
        }
    }

    /// Whether the route became longer since the last call.
    pub(super) fn take_path_lengthened(&mut self) -> bool {
        std::mem::take(&mut self.path_lengthened)
    }

    /// A drain has shown that the current round trip holds no queue.
    pub(super) fn adopt_rtt(&mut self) {
        self.min_rtt_filter.adopt(self.latest_rtt);
    }

    /// Smallest round trip of the last seconds.
    pub(super) fn recent_min_rtt(&self) -> Duration {
        self.min_rtt_filter.recent()
    }

    /// Minimum and current round trip.
    pub(super) fn current_rtt(&self) -> Rtt {
        Rtt {
            min: self.min_rtt_filter.get(),
            smoothed: self.latest_rtt,
        }
    }

    /// Counters at the last sample.
    pub(super) fn counters(&self) -> TransferCounters {
        self.latest
    }

    /// Counters at this time, or at the next time in the history.
    pub(super) fn counters_at(&self, at: Duration) -> TransferCounters {
        let next = self.history.partition_point(|counters| counters.at < at);
        self.history.get(next).copied().unwrap_or(self.latest)
    }
}

/// Mean round trip of all streams, weighted by the bytes in flight: an idle stream shows an old value.
fn mean_rtt(samples: &[TcpSample]) -> Option<Duration> {
    let known = || samples.iter().filter(|tcp| !tcp.smoothed_rtt.is_zero());
    let weight = |tcp: &TcpSample| u128::from(tcp.in_flight).saturating_add(1);
    let all: u128 = known().map(weight).sum();
    let sum: u128 = known()
        .map(|tcp| tcp.smoothed_rtt.as_micros().saturating_mul(weight(tcp)))
        .fold(0, u128::saturating_add);
    let mean = sum.checked_div(all)?;
    u64::try_from(mean).ok().map(Duration::from_micros)
}
