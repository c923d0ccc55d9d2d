//! Knowledge of the path from before the transfer: the first estimate, until measurements take its place.

use std::time::Duration;

use units::show;

use super::AutoTuner;
use super::decision::TransferSetting;
use super::estimate::{Confidence, Estimated};
use super::pacing::PathPace;
use super::rules::Action;
use super::state::TunerState;
use super::thresholds::LIMITS;
use super::transfer_sample::TransferSample;
use crate::prior::{PathRate, Prior, is_other_round_trip};
use crate::streams::initial::prior_from_rtt;

/// Part of the known rate below which a full path has become slower.
const SLOWER: f64 = 0.7;

/// Knowledge of the path from before the transfer.
#[derive(Debug)]
pub(super) struct PriorKnowledge {
    /// Until it was applied.
    prior: Option<Prior>,
    /// Until it was compared.
    min_rtt: Option<Duration>,
    full_rate: Option<u64>,
    /// How the path has turned out to differ.
    pub(super) disagreement: Option<PriorDisagreement>,
    /// Congestion control that it has set.
    congestion_control: Option<String>,
    /// More than a number of streams is known.
    pub(super) has_settings: bool,
}

/// How a path differs from what was known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriorDisagreement {
    /// Its round trip is another.
    RoundTrip,
    /// It is full at a lower rate.
    SlowerPath,
}

impl PriorDisagreement {
    /// The reason, for people.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::RoundTrip => "its round trip is another",
            Self::SlowerPath => "it is slower now",
        }
    }
}

impl PriorKnowledge {
    pub(super) fn new(prior: Prior) -> Self {
        let full_rate = prior.path_rate.filter(|rate| rate.is_full);
        Self {
            min_rtt: prior.min_rtt.filter(|rtt| !rtt.is_zero()),
            full_rate: full_rate.map(|rate| rate.bytes_per_second),
            disagreement: None,
            congestion_control: None,
            has_settings: prior.congestion_control.is_some() || full_rate.is_some(),
            prior: Some(prior),
        }
    }
}

impl AutoTuner {
    /// Makes the known path the first estimate and applies its settings, once.
    pub(super) fn apply_prior(&mut self, at: Duration) {
        let Some(prior) = self.known.prior.take() else {
            return;
        };
        if let Some(PathRate {
            bytes_per_second,
            is_full,
        }) = prior.path_rate
        {
            self.estimator.path.bottleneck_bandwidth = Estimated {
                value: bytes_per_second,
                confidence: if is_full {
                    Confidence::Earlier
                } else {
                    Confidence::AtLeast
                },
            };
            // Streams that an earlier transfer has ended with are not put to the test at once.
            self.cooldowns[Action::FewerStreams as usize].extend(at, LIMITS.pace_proved);
        }
        let permitted = |name: &String| self.limits.congestion_controls.contains(name);
        let other = prior.congestion_control.filter(permitted);
        let in_force = self.control.in_force.clone();
        if let Some(name) = other.filter(|name| *name != in_force) {
            let reason = format!("{name} instead of {in_force}, by earlier knowledge of this path");
            self.known.congestion_control = Some(name.clone());
            let setting = TransferSetting::CongestionControl(name);
            self.set(setting, reason);
        }
        let may_pace = |pace: &u64| self.limits.may_pace && *pace > 0;
        if let Some(pace) = prior.pacing_rate.filter(may_pace) {
            // A known rate needs no drain to find it. Pacing ends if the path turns out faster or slower.
            self.state = TunerState::Paced(PathPace::new(at, pace));
            let reason = format!(
                "{} fill this path, by earlier knowledge of it",
                show::bits(pace.saturating_mul(8))
            );
            let setting = TransferSetting::PacingRate(Some(pace));
            self.set(setting, reason);
        }
    }

    /// Compares the knowledge with the first measurement of each quantity.
    pub(super) fn check_prior(&mut self, sample: &TransferSample<'_>) {
        let path = &self.estimator.path;
        let (rtt, rate) = (path.base_rtt, path.bottleneck_bandwidth);
        let known = match rtt.is_zero() {
            true => None,
            false => self.known.min_rtt.take(),
        };
        if known.is_some_and(|known| is_other_round_trip(known, rtt)) {
            self.known.full_rate = None;
            self.drop_prior(sample, rtt);
        } else if rate.confidence == Confidence::Measured
            && let Some(known) = self.known.full_rate.take()
            && (rate.value as f64) < known as f64 * SLOWER
        {
            // The measured rate has taken the place of the known one, and the rules follow it.
            self.disagree(PriorDisagreement::SlowerPath);
            let reason = self.describe_disagreement();
            self.note(reason);
        }
    }

    fn disagree(&mut self, disagreement: PriorDisagreement) {
        self.known.disagreement = Some(disagreement);
    }

    fn describe_disagreement(&self) -> String {
        let how = self
            .known
            .disagreement
            .map_or("", PriorDisagreement::describe);
        format!("earlier knowledge of this path does not hold: {how}")
    }

    /// Another path: back to the estimate and the settings of a transfer that knows nothing.
    fn drop_prior(&mut self, sample: &TransferSample<'_>, rtt: Duration) {
        self.disagree(PriorDisagreement::RoundTrip);
        let reason = self.describe_disagreement();
        self.estimator.path.bottleneck_bandwidth = Estimated::default();
        self.cooldowns[Action::FewerStreams as usize].reset();
        self.stop_pacing(sample.at, &reason);
        let known = self.known.congestion_control.take();
        let system = self.control.system_default.clone();
        if known.as_deref() == Some(self.control.in_force.as_str())
            && !self.control.refused.contains(&system)
        {
            let setting = TransferSetting::CongestionControl(system);
            self.set(setting, reason.clone());
        }
        let initial = prior_from_rtt(rtt, sample.bytes_left, 0, self.stream_cap);
        let initial = initial.streams.unwrap_or(1).max(self.limits.min_streams);
        if initial != self.streams {
            let reason = format!("{reason}: {initial} streams instead of {}", self.streams);
            self.set_streams(initial, reason);
        }
        if self.pending.is_empty() {
            self.note(reason);
        }
        self.on_change(sample.at);
        self.meter.restart_interval();
    }
}
