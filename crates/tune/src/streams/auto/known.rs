//! Knowledge of a path before a transfer begins: set at once, and believed until it is measured.

use units::show;

use super::pacing::{Paced, Pacing};
use super::{Auto, Decision, Scene, Step};
use crate::look::Look;

impl Auto {
    /// Sets at the first scene what is known to be right.
    pub(super) fn begin_as_known(&mut self, scene: &Scene<'_>, decisions: &mut Vec<Decision>) {
        let Some(prior) = self.prior.take() else {
            return;
        };
        let permitted = |name: &String| self.limits.congestion.contains(name);
        let other = prior.congestion_control.filter(permitted);
        if let Some(name) = other.filter(|name| name != scene.congestion) {
            let reason = format!(
                "{name} instead of {}, as is known of this path",
                scene.congestion
            );
            decisions.push(self.decision(scene.at, Some(Step::Congestion(name)), reason));
        }
        if let Some(pace) = prior.pace.filter(|pace| self.limits.pace && *pace > 0) {
            self.pacing = Pacing::Paced(Paced::new(scene.at, pace));
            let reason = format!(
                "{} fill this path, as is known of it",
                show::bits(pace.saturating_mul(8))
            );
            decisions.push(self.decision(scene.at, Some(Step::Pace(Some(pace))), reason));
        }
    }

    /// The rate that there will be soon, bytes per second: what is known counts while a slow start is
    /// behind it.
    pub(super) fn rate_to_come(&self, rate: u64, looks: &[Look]) -> u64 {
        if looks.iter().any(|look| look.slow_start) {
            rate.max(self.expected)
        } else {
            rate
        }
    }
}
