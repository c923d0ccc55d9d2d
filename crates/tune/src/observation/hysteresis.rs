//! Hysteresis for reports of a stream's bottleneck.

use std::time::Duration;

use super::bottleneck::Bottleneck;

/// Consecutive intervals with the same new bottleneck before it is reported.
const CONFIRMATIONS: u32 = 2;
/// Shortest time between two reports.
const SHORTEST_REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The bottleneck reported last, and the candidate for the next report.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hysteresis {
    bottleneck: Bottleneck,
    reported_at: Option<Duration>,
    /// Latest bottleneck, and in how many consecutive intervals it was seen.
    candidate: (Bottleneck, u32),
}

impl Default for Hysteresis {
    fn default() -> Self {
        Self {
            bottleneck: Bottleneck::Unknown,
            reported_at: None,
            candidate: (Bottleneck::Unknown, 0),
        }
    }
}

impl Hysteresis {
    /// Takes the bottleneck of an interval; returns whether it must be reported now.
    pub(crate) fn confirm_change(&mut self, at: Duration, bottleneck: Bottleneck) -> bool {
        let count = if self.candidate.0 == bottleneck {
            self.candidate.1.saturating_add(1)
        } else {
            1
        };
        self.candidate = (bottleneck, count);
        let is_due = self
            .reported_at
            .is_none_or(|reported_at| at.saturating_sub(reported_at) >= SHORTEST_REPORT_INTERVAL);
        let is_change_due = bottleneck != self.bottleneck && count >= CONFIRMATIONS && is_due;
        if is_change_due {
            self.set_reported(at, bottleneck);
        }
        is_change_due
    }

    pub(crate) fn set_reported(&mut self, at: Duration, bottleneck: Bottleneck) {
        (self.bottleneck, self.reported_at) = (bottleneck, Some(at));
    }

    pub(crate) fn is_stable(&self, at: Duration) -> bool {
        self.bottleneck != Bottleneck::SlowStart
            && self.candidate.0 == self.bottleneck
            && self.reported_at.is_some_and(|reported_at| {
                at.saturating_sub(reported_at) >= SHORTEST_REPORT_INTERVAL
            })
    }
}
