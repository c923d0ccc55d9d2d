//! Knowledge of a path before a transfer begins: set at once, and believed until it is measured.

use units::show;

use super::pacing::{Pacing, PathPace};
use super::{AutoTuner, TransferDecision, TransferSample, TransferSetting};
use crate::sample::TcpSample;

impl AutoTuner {
    /// Sets at the first scene what is known to be right.
    pub(super) fn apply_prior(
        &mut self,
        scene: &TransferSample<'_>,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let Some(prior) = self.prior.take() else {
            return;
        };
        let permitted = |name: &String| self.limits.congestion_controls.contains(name);
        let other = prior.congestion_control.filter(permitted);
        if let Some(name) = other.filter(|name| name != scene.congestion_control) {
            let reason = format!(
                "{name} instead of {}, as is known of this path",
                scene.congestion_control
            );
            decisions.push(self.decision(
                scene.at,
                Some(TransferSetting::CongestionControl(name)),
                reason,
            ));
        }
        if let Some(pace) = prior
            .pacing_rate
            .filter(|pace| self.limits.may_pace && *pace > 0)
        {
            self.pacing = Pacing::Paced(PathPace::new(scene.at, pace));
            let reason = format!(
                "{} fill this path, as is known of it",
                show::bits(pace.saturating_mul(8))
            );
            decisions.push(self.decision(
                scene.at,
                Some(TransferSetting::PacingRate(Some(pace))),
                reason,
            ));
        }
    }

    /// The rate that there will be soon, bytes per second: what is known counts while a slow start is
    /// behind it.
    pub(super) fn expected_rate(&self, rate: u64, looks: &[TcpSample]) -> u64 {
        if looks.iter().any(|look| look.in_slow_start) {
            rate.max(self.known_rate)
        } else {
            rate
        }
    }
}
