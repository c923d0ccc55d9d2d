//! Knowledge of the path from before the transfer: the first estimate, until measurements contradict it.

use std::time::Duration;

use units::show;

use super::AutoTuner;
use super::decision::TransferSetting;
use super::estimate::{Confidence, Estimated};
use super::experiment::TriedChange;
use super::pacing::PathPace;
use super::rules::Action;
use super::state::TunerState;
use super::thresholds::LIMITS;
use super::transfer_meter::TransferCounters;
use super::transfer_sample::TransferSample;
use crate::observation::Bottleneck;
use crate::path::prior_check::{PriorCheck, PriorDisagreement, PriorFinding, PriorSample};
use crate::prior::Prior;
use crate::streams::initial::prior_from_rtt;

/// Shortest time over which a rate is measured.
const SHORTEST_RATE_TIME: Duration = Duration::from_millis(50);

/// Knowledge of the path from before the transfer.
#[derive(Debug)]
pub(super) struct PriorKnowledge {
    /// Until it was applied.
    prior: Option<Prior>,
    /// Until it is decided whether it holds.
    check: Option<PriorCheck>,
    /// How the path has turned out to differ.
    pub(super) disagreement: Option<PriorDisagreement>,
    /// Congestion control that it has set.
    congestion_control: Option<String>,
    /// More than a number of streams is known.
    pub(super) has_settings: bool,
}

impl PriorKnowledge {
    pub(super) fn new(prior: Prior) -> Self {
        Self {
            check: PriorCheck::new(&prior),
            disagreement: None,
            congestion_control: None,
            has_settings: prior.congestion_control.is_some() || prior.expected_rate.is_some(),
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
        let earlier = Confidence::Earlier;
        let path = &mut self.estimator.path;
        if let Some(value) = prior.expected_rate {
            path.bottleneck_bandwidth = Estimated {
                value,
                confidence: earlier,
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

    /// Passes the sample to the check of the knowledge and acts on its finding.
    pub(super) fn check_prior(&mut self, sample: &TransferSample<'_>) {
        let now = self.prior_sample(sample);
        let Some(check) = &mut self.known.check else {
            return;
        };
        match check.on_sample(&now) {
            PriorFinding::Undecided => {}
            PriorFinding::Keep => self.known.check = None,
            PriorFinding::Drop(disagreement) => {
                self.known.check = None;
                self.drop_prior(sample, disagreement, now.loss);
            }
        }
    }

    fn prior_sample(&self, sample: &TransferSample<'_>) -> PriorSample {
        let (now, rtt) = (self.meter.counters(), self.meter.current_rtt());
        let time = rtt.smoothed.max(SHORTEST_RATE_TIME);
        let then = self.meter.counters_at(now.at.saturating_sub(time));
        let rate = now.since(&then).rate();
        let has_idle_writers = matches!(
            self.estimator.path.bottleneck,
            Bottleneck::SenderApp | Bottleneck::ReceiverApp
        );
        PriorSample {
            at: now.at,
            min_rtt: rtt.min,
            smoothed_rtt: rtt.smoothed,
            rate,
            loss: now.since(&TransferCounters::default()).loss_ratio(),
            // A rate falls when nothing is left to hand out.
            is_held_back: has_idle_writers
                || sample.is_rate_limited(rate)
                || sample.bytes_left == Some(0),
        }
    }

    /// Goes back to the estimate and the settings of a transfer that knows nothing.
    fn drop_prior(
        &mut self,
        sample: &TransferSample<'_>,
        disagreement: PriorDisagreement,
        loss: f64,
    ) {
        let (at, rtt) = (sample.at, self.meter.current_rtt());
        self.known.disagreement = Some(disagreement);
        let reason = format!(
            "earlier knowledge of this path does not hold: {}",
            disagreement.describe()
        );
        self.estimator.path.bottleneck_bandwidth = Estimated::default();
        self.cooldowns[Action::FewerStreams as usize].reset();
        self.stop_pacing(at, &reason);
        // Losses without a queue call for the control that tolerates them, known or not.
        let is_lossy = loss >= LIMITS.least_loss && !rtt.is_congested();
        let known = self.known.congestion_control.take();
        let system = self.control.system_default.clone();
        if known.as_deref() == Some(self.control.in_force.as_str())
            && !is_lossy
            && !self.control.refused.contains(&system)
        {
            let setting = TransferSetting::CongestionControl(system);
            self.set(setting, reason.clone());
        }
        let initial = prior_from_rtt(rtt.min, sample.bytes_left, 0, self.stream_cap);
        let initial = initial.streams.unwrap_or(1).max(self.limits.min_streams);
        let to = match disagreement {
            PriorDisagreement::RoundTrip if !is_lossy => initial,
            // A full path needs no more streams.
            PriorDisagreement::SlowerPath if !is_lossy && rtt.has_queue() => {
                self.streams.min(initial)
            }
            // Where losses or windows limit each stream, more cost nothing and may be needed.
            _ => self.streams.max(initial),
        };
        let to = to.min(self.stream_cap);
        if to != self.streams {
            let reason = format!("{reason}: {to} streams instead of {}", self.streams);
            self.set_streams(to, reason);
        }
        if self
            .pending
            .iter()
            .any(|decision| decision.setting.is_some())
        {
            // An experiment under way compares with settings that are gone. Controls are still compared.
            if let TunerState::Experiment(experiment, _) = &self.state
                && let TriedChange::CongestionControl { from, .. } = &experiment.change
            {
                let from = from.clone();
                let reason = format!("the streams are others: back to {from}");
                self.set(TransferSetting::CongestionControl(from), reason);
            }
            self.abandon(|_| true);
            if self.state.sharing().is_some() {
                self.end_sharing();
            }
            self.on_change(at);
            self.meter.restart_interval();
        } else {
            self.note(reason);
        }
    }
}
