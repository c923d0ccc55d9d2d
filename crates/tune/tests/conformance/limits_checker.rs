//! Checks that decisions of `auto` are within its limits.

use std::collections::BTreeSet;

use tune::streams::auto::{AutoLimits, TransferDecision, TransferSetting};

/// Settings that the tuner may still ask for.
pub(crate) struct LimitsChecker {
    min_streams: u32,
    pub(crate) max_streams: u32,
    pub(crate) congestion: BTreeSet<String>,
    pacing: bool,
    /// Number of streams that it asked for last.
    pub(crate) streams: u32,
}

impl LimitsChecker {
    pub(crate) fn of(limits: &AutoLimits, streams: u32) -> Self {
        let min_streams = limits.min_streams.max(1);
        let max_streams = limits.max_streams.max(min_streams);
        Self {
            min_streams,
            max_streams,
            congestion: limits.congestion_controls.iter().cloned().collect(),
            pacing: limits.may_pace,
            streams: streams.clamp(min_streams, max_streams),
        }
    }

    #[track_caller]
    pub(crate) fn check(&mut self, decisions: &[TransferDecision]) {
        for decision in decisions {
            assert!(!decision.reason.is_empty());
            match &decision.setting {
                None => {}
                Some(TransferSetting::Streams(n)) => {
                    let min_streams = self.min_streams.min(self.max_streams);
                    assert!(
                        (min_streams..=self.max_streams).contains(n),
                        "{n} of {}",
                        self.max_streams
                    );
                    self.streams = *n;
                }
                Some(
                    TransferSetting::CongestionControl(name)
                    | TransferSetting::StreamCongestionControl { name, .. },
                ) => {
                    assert!(
                        self.congestion.contains(name),
                        "{name}: {:?}",
                        self.congestion
                    );
                }
                Some(TransferSetting::PacingRate(rate)) => {
                    assert!(self.pacing || rate.is_none(), "may not pace");
                    // A rate of zero would stop the transfer.
                    assert_ne!(*rate, Some(0));
                }
            }
        }
    }

    pub(crate) fn refuse(&mut self, open: u32) {
        self.max_streams = open.clamp(1, self.max_streams);
    }
}
