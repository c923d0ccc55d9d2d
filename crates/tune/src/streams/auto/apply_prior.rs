//! Applies the knowledge of a path from before the transfer.

use std::time::Duration;

use units::show;

use super::AutoTuner;
use super::decision::{TransferDecision, TransferSetting};
use super::pacing::{Pacing, PathPace};
use crate::sample::TcpSample;

/// Cooldown of trials with fewer streams than are known to be needed.
const KNOWN_STREAMS_TIME: Duration = Duration::from_secs(10);

impl AutoTuner {
    /// The known congestion control and pacing rate, for a caller that can set them before the first byte. Their
    /// connections have the congestion control `in_force`. Without this call, the first sample's decisions
    /// contain them.
    pub fn first_decisions(&mut self, in_force: &str) -> Vec<TransferDecision> {
        if self.congestion_control.system_default.is_empty() {
            in_force.clone_into(&mut self.congestion_control.system_default);
        }
        in_force.clone_into(&mut self.congestion_control.in_force);
        self.apply_prior(Duration::ZERO, in_force)
    }

    /// Applies the known congestion control and pacing rate, once.
    pub(super) fn apply_prior(&mut self, at: Duration, in_force: &str) -> Vec<TransferDecision> {
        let mut decisions = Vec::new();
        let Some(prior) = self.prior.take() else {
            return decisions;
        };
        if prior.expected_rate.is_some() {
            // Streams that an earlier transfer has ended with are not put to the test at once.
            self.cooldowns.fewer_streams.extend(at, KNOWN_STREAMS_TIME);
        }
        let permitted = |name: &String| self.limits.congestion_controls.contains(name);
        let other = prior.congestion_control.filter(permitted);
        if let Some(name) = other.filter(|name| name != in_force) {
            let reason = format!("{name} instead of {in_force}, by earlier knowledge of this path");
            self.known_congestion_control = Some(name.clone());
            let setting = TransferSetting::CongestionControl(name);
            decisions.push(self.decision(at, Some(setting), reason));
        }
        let may_pace = |pace: &u64| self.limits.may_pace && *pace > 0;
        if let Some(pace) = prior.pacing_rate.filter(may_pace) {
            // A known rate needs no drain to find it. Pacing ends if the path turns out faster or
            // slower.
            self.pacing = Pacing::Paced(PathPace::new(at, pace));
            let reason = format!(
                "{} fill this path, by earlier knowledge of it",
                show::bits(pace.saturating_mul(8))
            );
            let setting = TransferSetting::PacingRate(Some(pace));
            decisions.push(self.decision(at, Some(setting), reason));
        }
        decisions
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
