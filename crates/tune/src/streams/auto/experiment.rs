//! A change of the whole transfer that is judged by the rates before and after it.

use std::collections::VecDeque;
use std::time::Duration;

use units::show;

use super::rules::Action;
use super::thresholds::{LIMITS, RoundTrips};
use super::transfer_meter::{TransferCounters, TransferInterval};
use crate::observation::Bottleneck;

/// The change that is tried.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TriedChange {
    MoreStreams {
        from: u32,
        to: u32,
        /// The rule that asks for them.
        action: Action,
    },
    FewerStreams {
        from: u32,
        to: u32,
    },
    /// Another congestion control. `without`: rate that all streams would have with the present one, bytes per second, if streams
    /// beside each other have shown it; otherwise the rate before counts.
    CongestionControl {
        from: String,
        to: String,
        without: Option<f64>,
    },
}

/// When a change is judged, and how.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Terms {
    settle: RoundTrips,
    measure: RoundTrips,
    /// Gain with which it is kept.
    gain: f64,
    /// Repetitions of a measurement that does not show the gain yet.
    repeats: u32,
}

impl TriedChange {
    /// `is_lossy`: nothing queues, and losses limit each stream, so that more of them take from nobody.
    fn terms(&self, is_lossy: bool) -> Terms {
        // New streams need about four round trips of slow start; another control takes over windows that are not its own. A
        // rate limited by losses or a queue varies, and takes longer to measure than one limited by windows.
        let added = Terms {
            settle: LIMITS.settle_streams,
            measure: LIMITS.measure_growth,
            gain: if is_lossy {
                LIMITS.harmless_gain
            } else {
                LIMITS.worthwhile_gain
            },
            repeats: LIMITS.repeats,
        };
        match self {
            Self::MoreStreams { action, from, to } => match action {
                Action::StreamsForWindows => Terms {
                    measure: LIMITS.measure_windows,
                    // Each window carries as much as another, unless the path is full.
                    gain: added
                        .gain
                        .min(f64::midpoint(1.0, f64::from(*to) / f64::from(*from))),
                    ..added
                },
                Action::StreamsForLoss => Terms {
                    measure: LIMITS.measure_losses,
                    ..added
                },
                _ => added,
            },
            Self::FewerStreams { .. } => Terms {
                measure: LIMITS.measure_fewer,
                gain: LIMITS.kept_rate.0,
                repeats: 0,
                ..added
            },
            Self::CongestionControl { without, .. } => Terms {
                settle: LIMITS.settle_control,
                measure: LIMITS.measure_control,
                gain: if without.is_some() {
                    LIMITS.kept_rate.1
                } else {
                    LIMITS.worthwhile_gain
                },
                ..added
            },
        }
    }
}

/// Knowledge before a change.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Before {
    /// Rates, bytes per second.
    pub(super) rates: RateMoments,
    /// Rate that losses allow the present streams for long, bytes per second, if a model tells: rates of a slow start are higher.
    pub(super) allowed: Option<u64>,
    /// Largest loss ratio that the path itself may have, 0..=1.
    pub(super) loss: f64,
}

/// Mean and variance of rates, bytes per second (Welford).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct RateMoments {
    count: u32,
    pub(super) mean: f64,
    squares: f64,
}

impl RateMoments {
    /// A single value.
    pub(super) fn of(rate: f64) -> Self {
        let mut moments = Self::default();
        moments.add(rate);
        moments
    }

    pub(super) fn add(&mut self, rate: f64) {
        self.count += 1;
        let off = rate - self.mean;
        self.mean += off / f64::from(self.count);
        self.squares += off * (rate - self.mean);
    }

    fn variance_of_mean(&self) -> f64 {
        let count = f64::from(self.count);
        self.squares / (count - 1.0).max(1.0) / count.max(1.0)
    }

    /// Welch's t of the difference to `other`: positive if this mean is larger. Zero with fewer than three values each: their
    /// variance is a guess.
    pub(super) fn t_against(&self, other: &Self) -> f64 {
        if self.count.min(other.count) < 3 {
            return 0.0;
        }
        // Even rates have no variance, and one per cent is noise in any case.
        let noise = (self.mean.max(other.mean) * 0.01).powi(2) + 1.0;
        let spread = self.variance_of_mean() + other.variance_of_mean() + noise;
        (self.mean - other.mean) / spread.sqrt()
    }
}

/// Rates of the latest intervals without a change, the baseline of every experiment.
#[derive(Debug, Clone, Default)]
pub(super) struct Baseline {
    rates: VecDeque<u64>,
}

impl Baseline {
    pub(super) fn on_interval(&mut self, interval: &TransferInterval) {
        self.rates.push_back(interval.rate());
        if self.rates.len() > LIMITS.baseline {
            self.rates.pop_front();
        }
    }

    /// A setting was changed.
    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }

    /// The rates before a change; `latest` counts if there are none.
    pub(super) fn moments(&self, latest: u64) -> RateMoments {
        let mut moments = RateMoments::default();
        for rate in &self.rates {
            moments.add(*rate as f64);
        }
        if moments.count == 0 {
            moments.add(latest as f64);
        }
        moments
    }

    /// The same, at least `latest`: a rate that still grows counts by its end.
    pub(super) fn moments_at_least(&self, latest: u64) -> RateMoments {
        let moments = self.moments(latest);
        RateMoments {
            mean: moments.mean.max(latest as f64),
            ..moments
        }
    }
}

/// Outcome of an experiment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ExperimentOutcome {
    pub(super) is_kept: bool,
    /// Rates before and after, bytes per second.
    pub(super) before: f64,
    pub(super) after: f64,
    /// Loss ratio during the measurement, 0..=1.
    pub(super) loss: f64,
}

impl ExperimentOutcome {
    /// Rate after as a multiple of the rate before.
    pub(super) fn gain(&self) -> f64 {
        self.after / self.before.max(1.0)
    }

    /// `94 Mbit/s instead of 48 Mbit/s`.
    pub(super) fn describe(&self) -> String {
        format!("{} instead of {}", bits(self.after), bits(self.before))
    }
}

/// An experiment under way.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Experiment {
    pub(super) change: TriedChange,
    before: Before,
    terms: Terms,
    rtt: Duration,
    started: Duration,
    /// Counters at the start of the measurement, once the change has settled.
    from: Option<TransferCounters>,
    after: RateMoments,
    repeats: u32,
}

impl Experiment {
    /// Begins at `at`, on a path with round trip `rtt`.
    pub(super) fn new(change: TriedChange, before: Before, at: Duration, rtt: Duration) -> Self {
        Self {
            terms: change.terms(before.allowed.is_some()),
            change,
            before,
            rtt,
            started: at,
            from: None,
            after: RateMoments::default(),
            repeats: 0,
        }
    }

    /// Takes an interval; returns the outcome at the end of the experiment.
    pub(super) fn on_interval(
        &mut self,
        interval: &TransferInterval,
        now: TransferCounters,
        opening: u32,
    ) -> Option<ExperimentOutcome> {
        let waited = interval.at.saturating_sub(self.started);
        let Some(from) = self.from else {
            let has_settled = waited >= self.terms.settle.at(self.rtt)
                && (opening == 0 || waited >= LIMITS.longest_opening);
            // The transition itself is not part of the measurement.
            self.from = has_settled.then_some(now);
            return None;
        };
        self.after.add(interval.rate() as f64);
        let outcome = self.outcome(from, now);
        if now.at.saturating_sub(from.at) < self.terms.measure.at(self.rtt) {
            return self.is_clear(interval, &outcome).then_some(outcome);
        }
        if !outcome.is_kept && self.may_change_yet(interval, &outcome) {
            self.repeats += 1;
            self.from = Some(now);
            self.after = RateMoments::default();
            return None;
        }
        Some(outcome)
    }

    fn outcome(&self, from: TransferCounters, now: TransferCounters) -> ExperimentOutcome {
        let measured = now.since(&from);
        let loss = measured.loss_ratio();
        let (times, plus) = LIMITS.harmful_loss;
        let is_harmful = loss > self.before.loss * times + plus;
        let seen = self.before.rates.mean;
        let mut outcome = ExperimentOutcome {
            is_kept: false,
            // Where the streams lose more than the path does, they overrun it, and no model tells what is allowed.
            before: match self.before.allowed {
                Some(allowed) if !is_harmful => seen.min(allowed as f64),
                _ => seen,
            },
            after: measured.rate() as f64,
            loss,
        };
        let gain = outcome.gain();
        outcome.is_kept = match &self.change {
            TriedChange::MoreStreams { .. } => gain >= self.terms.gain,
            TriedChange::FewerStreams { .. } => {
                let (_, uneven, t) = LIMITS.kept_rate;
                gain >= self.terms.gain
                    || (gain >= uneven && self.after.t_against(&self.before.rates) > -t)
            }
            // A path that hardly carries anything without it is of no use to others, either.
            TriedChange::CongestionControl { .. } => {
                gain >= self.terms.gain && (!is_harmful || gain >= LIMITS.gain_despite_loss)
            }
        };
        outcome
    }

    /// Whether the result is clear before the measurement ends.
    fn is_clear(&self, interval: &TransferInterval, outcome: &ExperimentOutcome) -> bool {
        let (gain, t) = (outcome.gain(), self.after.t_against(&self.before.rates));
        match &self.change {
            // During slow start the rate does not show yet what losses allow.
            TriedChange::MoreStreams { .. } | TriedChange::CongestionControl { .. } => {
                outcome.is_kept
                    && !interval.in_slow_start
                    && (gain >= LIMITS.obvious.0 || t >= LIMITS.clear_t)
            }
            TriedChange::FewerStreams { .. } => gain < LIMITS.obvious.1 || t <= -LIMITS.clear_t,
        }
    }

    /// Whether a result that is not good may become so: added streams are in slow start, or another control that gains has
    /// filled the path for the first time and overflowed its queue. The retransmissions last longer the more was gained.
    fn may_change_yet(&self, interval: &TransferInterval, outcome: &ExperimentOutcome) -> bool {
        let is_starting = interval.in_slow_start || interval.bottleneck == Bottleneck::SlowStart;
        match &self.change {
            TriedChange::CongestionControl { without, .. } => {
                let is_large = without.is_some() || outcome.gain() >= LIMITS.obvious.0;
                self.repeats < if is_large { self.terms.repeats } else { 1 }
                    && outcome.gain() >= self.terms.gain
            }
            _ => self.repeats < self.terms.repeats && is_starting,
        }
    }
}

/// A rate in bytes per second, for people.
pub(super) fn bits(rate: f64) -> String {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "casts of floats saturate"
    )]
    show::bits((rate * 8.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_two_means_needs_values_that_agree() {
        let moments = |rates: &[f64]| {
            let mut moments = RateMoments::default();
            rates.iter().for_each(|rate| moments.add(*rate));
            moments
        };
        let (low, high) = (
            moments(&[99e6, 101e6, 100e6]),
            moments(&[119e6, 121e6, 120e6]),
        );
        assert!(high.t_against(&low) > 3.0 && low.t_against(&high) < -3.0);
        let noisy = moments(&[60e6, 180e6, 120e6]);
        assert!(noisy.t_against(&low).abs() < 3.0);
        assert!(moments(&[300e6]).t_against(&low).abs() < 1e-9);
    }
}
