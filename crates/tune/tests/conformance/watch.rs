//! Bounds on what a policy asks for.

use std::collections::BTreeSet;

use tune::streams::auto::{Decision, Limits, Step};

/// Numbers that the policy may still ask for.
pub(crate) struct Watch {
    least: u32,
    pub(crate) most: u32,
    pub(crate) congestion: BTreeSet<String>,
    pace: bool,
    /// The number it asked for last.
    pub(crate) streams: u32,
}

impl Watch {
    pub(crate) fn of(limits: &Limits, streams: u32) -> Self {
        let least = limits.least.max(1);
        let most = limits.most.max(least);
        Self {
            least,
            most,
            congestion: limits.congestion.iter().cloned().collect(),
            pace: limits.pace,
            streams: streams.clamp(least, most),
        }
    }

    #[track_caller]
    pub(crate) fn check(&mut self, decisions: &[Decision]) {
        for decision in decisions {
            assert!(!decision.reason.is_empty());
            match &decision.step {
                None => {}
                Some(Step::Streams(n)) => {
                    let least = self.least.min(self.most);
                    assert!((least..=self.most).contains(n), "{n} of {}", self.most);
                    self.streams = *n;
                }
                Some(Step::Congestion(name)) => {
                    assert!(
                        self.congestion.contains(name),
                        "{name}: {:?}",
                        self.congestion
                    );
                }
                Some(Step::Pace(rate)) => {
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
