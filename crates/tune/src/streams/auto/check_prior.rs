//! Checks the knowledge of a path against the first samples, and drops it if they contradict.

use std::time::Duration;

use super::AutoTuner;
use super::decision::{TransferDecision, TransferSetting};
use super::first_losses::FirstLossDetector;
use super::loss_counter::MIN_LOSS_RATIO;
use super::transfer_meter::TransferCounters;
use super::transfer_sample::TransferSample;
use crate::observation::Bottleneck;
use crate::path::prior_check::{PriorDisagreement, PriorFinding, PriorSample};
use crate::streams::initial::prior_from_rtt;

/// Shortest time over which a rate is measured.
const SHORTEST_RATE_TIME: Duration = Duration::from_millis(50);

impl AutoTuner {
    /// Passes the sample to the check of the knowledge and acts on its finding.
    pub(super) fn check_prior(
        &mut self,
        sample: &TransferSample<'_>,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let now = self.prior_sample(sample);
        let Some(check) = &mut self.prior_check else {
            return;
        };
        match check.on_sample(&now) {
            PriorFinding::Undecided => {}
            PriorFinding::Keep => self.prior_check = None,
            PriorFinding::Drop(disagreement) => {
                self.prior_check = None;
                self.drop_prior(sample, disagreement, now.loss, decisions);
            }
        }
    }

    fn prior_sample(&self, sample: &TransferSample<'_>) -> PriorSample {
        let (now, rtt) = (self.meter.counters(), self.meter.current_rtt());
        let time = rtt.smoothed.max(SHORTEST_RATE_TIME);
        let then = self.meter.counters_at(now.at.saturating_sub(time));
        let rate = now.since(&then).rate();
        let has_idle_writers = matches!(
            self.bottleneck_run.0,
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

    /// Goes back to the settings of a transfer that knows nothing.
    fn drop_prior(
        &mut self,
        sample: &TransferSample<'_>,
        disagreement: PriorDisagreement,
        loss: f64,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let at = sample.at;
        self.disagreement = Some(disagreement);
        let reason = format!(
            "earlier knowledge of this path does not hold: {}",
            disagreement.describe()
        );
        self.known_rate = 0;
        self.cooldowns.fewer_streams.reset();
        // Losses without a queue call for the control that tolerates them, known or not.
        let rtt = self.meter.current_rtt();
        let is_lossy = loss >= MIN_LOSS_RATIO && !rtt.is_congested();
        let known = self.known_congestion_control.take();
        if known.as_deref() == Some(sample.congestion_control) && !is_lossy {
            let system = self.congestion_control.system_default.clone();
            if !self.congestion_control.refused.contains(&system) {
                self.loss_counter.reset();
                self.first_losses = FirstLossDetector::default();
                let setting = TransferSetting::CongestionControl(system);
                decisions.push(self.decision(at, Some(setting), reason.clone()));
            }
        }
        self.stop_pacing(at, &reason, decisions);
        self.return_to_initial_streams(sample, disagreement, is_lossy, &reason, decisions);
        if decisions.iter().any(|decision| decision.setting.is_some()) {
            // A trial under way compares with settings that are gone.
            self.trial = None;
            self.unchanged_since = at;
            self.meter.restart_interval();
        } else {
            decisions.push(self.decision(at, None, reason));
        }
    }

    /// Returns to the number of streams that the round trip alone asks for.
    fn return_to_initial_streams(
        &mut self,
        sample: &TransferSample<'_>,
        disagreement: PriorDisagreement,
        is_lossy: bool,
        reason: &str,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let rtt = self.meter.current_rtt();
        let initial = prior_from_rtt(rtt.min, sample.bytes_left, 0, self.stream_cap);
        let initial = initial
            .streams
            .unwrap_or(1)
            .max(self.limits.min_streams)
            .min(self.stream_cap);
        let to = match disagreement {
            PriorDisagreement::RoundTrip if !is_lossy => initial,
            // A full path needs no more streams.
            PriorDisagreement::SlowerPath if !is_lossy && rtt.has_queue() => {
                self.streams.min(initial)
            }
            // Where losses or windows limit each stream, more cost nothing and may be needed.
            _ => self.streams.max(initial),
        };
        if to == self.streams {
            return;
        }
        let reason = format!("{reason}: {to} streams instead of {}", self.streams);
        self.streams = to;
        let setting = TransferSetting::Streams(to);
        decisions.push(self.decision(sample.at, Some(setting), reason));
    }
}
