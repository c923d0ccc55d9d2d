//! All streams of a transfer read together: what limits it, how fast it is, what it loses.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use units::bytes_per_second;

use super::TransferSample;
use super::min_rtt::MinRttFilter;
use crate::limiter::Role;
use crate::observation::{Bottleneck, BottleneckClassifier, ClassifiedInterval, Rtt};
use crate::sample::{StreamId, TcpSample};

/// Differences over less are chance.
const SHORTEST: Duration = Duration::from_millis(100);
/// Nor do fewer scenes tell anything.
const FEWEST: u32 = 3;
/// Time that is remembered.
const MEMORY: Duration = Duration::from_secs(60);
/// Marks are kept no closer than this.
const STEP: Duration = Duration::from_millis(20);
/// The payload of a segment where nobody tells.
const SEGMENT: u64 = 1448;

/// How far a transfer was at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TransferCounters {
    pub(super) at: Duration,
    /// Payload, bytes.
    pub(super) bytes_moved: u64,
    /// Sent again, bytes.
    pub(super) bytes_retransmitted: u64,
}

impl TransferCounters {
    /// From there to here, bytes per second.
    pub(super) fn rate_since(&self, from: &Self) -> u64 {
        bytes_per_second(
            self.bytes_moved.saturating_sub(from.bytes_moved),
            self.at.saturating_sub(from.at),
        )
    }

    /// Part of all that was sent from there to here that was sent again, 0..=1.
    pub(super) fn loss_ratio_since(&self, from: &Self) -> f64 {
        let moved = self.bytes_moved.saturating_sub(from.bytes_moved) as f64;
        let resent = self
            .bytes_retransmitted
            .saturating_sub(from.bytes_retransmitted) as f64;
        if resent > 0.0 {
            resent / (moved + resent)
        } else {
            0.0
        }
    }
}

/// Findings of two round trips, at least a tenth of a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TransferInterval {
    /// Its end.
    pub(super) at: Duration,
    pub(super) time: Duration,
    /// Of the streams that carry most.
    pub(super) bottleneck: Bottleneck,
    /// Bytes per second.
    pub(super) rate: u64,
    /// The round trip without and with queues, the mean.
    pub(super) rtt: Rtt,
    /// Segments were sent again.
    pub(super) has_losses: bool,
    /// Or had been in the sight before: what is acknowledged stands still and jumps.
    pub(super) is_recovering: bool,
    /// A stream is still in its first slow start.
    pub(super) in_slow_start: bool,
}

impl TransferInterval {
    /// How long packets wait.
    pub(super) fn queueing_delay(&self) -> Duration {
        self.rtt.smoothed.saturating_sub(self.rtt.min)
    }
}

/// A stream as it was read so far.
#[derive(Debug, Clone, Copy, Default)]
struct MeteredStream {
    tally: BottleneckClassifier,
    verdict: Option<(Duration, ClassifiedInterval)>,
    seen: bool,
    retransmits: u64,
}

/// Scenes since a sight.
#[derive(Debug, Clone, Copy)]
struct OpenInterval {
    from: TransferCounters,
    scenes: u32,
    trips: Duration,
}

/// Reads scenes.
#[derive(Debug, Clone, Default)]
pub(super) struct TransferMeter {
    base: MinRttFilter,
    streams: BTreeMap<StreamId, MeteredStream>,
    now: TransferCounters,
    marks: VecDeque<TransferCounters>,
    window: Option<OpenInterval>,
    live: Duration,
    seen: bool,
    /// The last sight showed losses.
    lost: bool,
    /// The path has become longer since that was asked.
    longer: bool,
}

impl TransferMeter {
    /// Takes a scene; false: it is not newer than the last, or shows no stream.
    pub(super) fn on_sample(&mut self, scene: &TransferSample<'_>) -> bool {
        if (self.seen && scene.at <= self.now.at) || scene.streams.is_empty() {
            return false;
        }
        self.seen = true;
        self.live = mean_rtt(scene.streams).unwrap_or(self.live);
        self.longer |= self.base.on_samples(scene.at, scene.streams, self.live);
        self.live = self.live.max(self.base.get());
        let mut resent = self.now.bytes_retransmitted;
        self.streams
            .retain(|id, _| scene.streams.iter().any(|look| look.stream == *id));
        for look in scene.streams {
            resent = resent.saturating_add(self.on_stream_sample(scene.at, look));
        }
        self.now = TransferCounters {
            at: scene.at,
            bytes_moved: self.now.bytes_moved.max(scene.bytes_moved),
            bytes_retransmitted: resent,
        };
        self.remember_counters();
        true
    }

    /// Reads one stream; what it sent again, bytes.
    fn on_stream_sample(&mut self, at: Duration, look: &TcpSample) -> u64 {
        let look = TcpSample {
            at,
            min_rtt: self.base.get(),
            ..*look
        };
        let stream = self.streams.entry(look.stream).or_default();
        if let Some(verdict) = stream.tally.on_sample(Role::Sender, &look) {
            stream.verdict = Some((at, verdict));
        }
        // What a connection lost before it was seen is another transfer's.
        let before = match stream.seen {
            true => stream.retransmits,
            false => look.retransmits,
        };
        stream.seen = true;
        let again = look.retransmits.saturating_sub(before);
        stream.retransmits = stream.retransmits.max(look.retransmits);
        let segment = if look.mss == 0 { SEGMENT } else { look.mss };
        again.saturating_mul(segment)
    }

    fn remember_counters(&mut self) {
        let last = self.marks.back();
        if last.is_none_or(|last| self.now.at.saturating_sub(last.at) >= STEP) {
            self.marks.push_back(self.now);
        }
        let old = self.now.at.saturating_sub(MEMORY);
        while self.marks.len() > 1 && self.marks[1].at <= old {
            self.marks.pop_front();
        }
    }

    /// Findings, when they took long enough; to be asked for after each scene.
    pub(super) fn take_interval(&mut self, looks: &[TcpSample]) -> Option<TransferInterval> {
        let Some(window) = &mut self.window else {
            self.restart_interval();
            return None;
        };
        window.scenes += 1;
        window.trips += self.live;
        let time = self.now.at.saturating_sub(window.from.at);
        if window.scenes < FEWEST || time < SHORTEST.max(self.live * 2) {
            return None;
        }
        let window = *window;
        let lost = self.now.bytes_retransmitted > window.from.bytes_retransmitted;
        let sight = TransferInterval {
            at: self.now.at,
            time,
            bottleneck: match self.dominant_bottleneck(time) {
                // Seldom on each of many streams is often on all.
                Bottleneck::Cwnd if lost || self.lost => Bottleneck::Loss,
                class => class,
            },
            rate: self.now.rate_since(&window.from),
            rtt: Rtt {
                min: self.base.get(),
                smoothed: (window.trips / window.scenes).max(self.base.get()),
            },
            has_losses: lost,
            is_recovering: lost || self.lost,
            in_slow_start: looks.iter().any(|look| look.in_slow_start),
        };
        self.lost = lost;
        self.restart_interval();
        Some(sight)
    }

    /// The next sight begins now: something was changed.
    pub(super) fn restart_interval(&mut self) {
        self.window = Some(OpenInterval {
            from: self.now,
            scenes: 0,
            trips: Duration::ZERO,
        });
    }

    /// The class of the streams that together carry most.
    fn dominant_bottleneck(&self, time: Duration) -> Bottleneck {
        let fresh = self.now.at.saturating_sub(time * 3);
        let mut sums: Vec<(Bottleneck, u64)> = Vec::new();
        for stream in self.streams.values() {
            let Some((_, verdict)) = stream.verdict.filter(|(at, _)| *at >= fresh) else {
                continue;
            };
            match sums
                .iter_mut()
                .find(|(class, _)| *class == verdict.bottleneck)
            {
                Some((_, rate)) => *rate = rate.saturating_add(verdict.rate),
                None => sums.push((verdict.bottleneck, verdict.rate)),
            }
        }
        let most = sums.into_iter().max_by_key(|(_, rate)| *rate);
        most.map_or(Bottleneck::Unknown, |(class, _)| class)
    }

    /// Whether the path has become longer since this was asked.
    pub(super) fn take_path_lengthened(&mut self) -> bool {
        std::mem::take(&mut self.longer)
    }

    /// The path's round trip now.
    pub(super) fn current_rtt(&self) -> Rtt {
        Rtt {
            min: self.base.get(),
            smoothed: self.live,
        }
    }

    /// How far the transfer is.
    pub(super) fn counters(&self) -> TransferCounters {
        self.now
    }

    /// How far it was then, or as early after as is remembered.
    pub(super) fn counters_at(&self, at: Duration) -> TransferCounters {
        let next = self.marks.partition_point(|mark| mark.at < at);
        self.marks.get(next).copied().unwrap_or(self.now)
    }
}

/// The mean over all streams by what they have in flight: one that rests shows an old round trip.
fn mean_rtt(looks: &[TcpSample]) -> Option<Duration> {
    let known = || looks.iter().filter(|look| !look.smoothed_rtt.is_zero());
    let weight = |look: &TcpSample| u128::from(look.in_flight).saturating_add(1);
    let all: u128 = known().map(weight).sum();
    let sum: u128 = known()
        .map(|look| look.smoothed_rtt.as_micros().saturating_mul(weight(look)))
        .fold(0, u128::saturating_add);
    let mean = sum.checked_div(all)?;
    u64::try_from(mean).ok().map(Duration::from_micros)
}
