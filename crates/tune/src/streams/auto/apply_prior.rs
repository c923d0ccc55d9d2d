//! Applies the knowledge of a path from before the transfer.

use units::show;

use super::AutoTuner;
use super::decision::{TransferDecision, TransferSetting};
use super::pacing::{Pacing, PathPace};
use super::transfer_sample::TransferSample;
use crate::sample::TcpSample;

impl AutoTuner {
    /// Applies the known congestion control and pacing rate at the first sample.
    pub(super) fn apply_prior(
        &mut self,
        sample: &TransferSample<'_>,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let Some(prior) = self.prior.take() else {
            return;
        };
        let permitted = |name: &String| self.limits.congestion_controls.contains(name);
        let other = prior.congestion_control.filter(permitted);
        if let Some(name) = other.filter(|name| name != sample.congestion_control) {
            let reason = format!(
                "{name} instead of {}, by earlier knowledge of this path",
                sample.congestion_control
            );
            decisions.push(self.decision(
                sample.at,
                Some(TransferSetting::CongestionControl(name)),
                reason,
            ));
        }
        if let Some(pace) = prior
            .pacing_rate
            .filter(|pace| self.limits.may_pace && *pace > 0)
        {
            // A known rate needs no drain to find it. Pacing ends if the path turns out faster or
            // slower.
            self.pacing = Pacing::Paced(PathPace::new(sample.at, pace));
            let reason = format!(
                "{} fill this path, by earlier knowledge of it",
                show::bits(pace.saturating_mul(8))
            );
            decisions.push(self.decision(
                sample.at,
                Some(TransferSetting::PacingRate(Some(pace))),
                reason,
            ));
        }
    }

    /// Rate to expect soon, bytes per second: while a stream is in slow start, the known rate counts if it is
    /// higher.
    pub(super) fn expected_rate(&self, rate: u64, samples: &[TcpSample]) -> u64 {
        if samples.iter().any(|tcp| tcp.in_slow_start) {
            rate.max(self.known_rate)
        } else {
            rate
        }
    }
}
