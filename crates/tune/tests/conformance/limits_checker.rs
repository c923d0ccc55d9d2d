//! Bounds on what a policy asks for.

use std::collections::BTreeSet;

use tune::streams::auto::{AutoLimits, TransferDecision, TransferSetting};

/// Numbers that the policy may still ask for.
pub(crate) struct LimitsChecker {
    least: u32,
    pub(crate) most: u32,
    pub(crate) congestion: BTreeSet<String>,
    pace: bool,
    /// The number it asked for last.
    pub(crate) streams: u32,
}

impl LimitsChecker {
    pub(crate) fn of(limits: &AutoLimits, streams: u32) -> Self {
        let least = limits.min_streams.max(1);
        let most = limits.max_streams.max(least);
        Self {
            least,
            most,
            congestion: limits.congestion_controls.iter().cloned().collect(),
            pace: limits.may_pace,
            streams: streams.clamp(least, most),
        }
    }

    #[track_caller]
    pub(crate) fn check(&mut self, decisions: &[TransferDecision]) {
        for decision in decisions {
            assert!(!decision.reason.is_empty());
            match &decision.setting {
                None => {}
                Some(TransferSetting::Streams(n)) => {
                    let least = self.least.min(self.most);
                    assert!((least..=self.most).contains(n), "{n} of {}", self.most);
                    self.streams = *n;
                }
                Some(TransferSetting::CongestionControl(name)) => {
                    assert!(
                        self.congestion.contains(name),
                        "{name}: {:?}",
                        self.congestion
                    );
                }
                Some(TransferSetting::PacingRate(rate)) => {
                    assert!(self.pace || rate.is_none(), "may not pace");
                    // Nothing starves.
                    assert_ne!(*rate, Some(0));
                }
            }
        }
    }

    pub(crate) fn refuse(&mut self, open: u32) {
        self.most = open.clamp(1, self.most);
    }
}
