//! Hysteresis for reports of a stream's bottleneck.

use std::time::Duration;

use super::bottleneck::Bottleneck;

/// Consecutive intervals with the same new bottleneck before it is reported.
const SEEN: u32 = 2;
/// Shortest time between two reports.
const TOLD: Duration = Duration::from_secs(1);

/// The bottleneck reported last, and the candidate for the next report.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hysteresis {
    class: Bottleneck,
    told: Option<Duration>,
    /// Latest bottleneck, and in how many consecutive intervals it was seen.
    next: (Bottleneck, u32),
}

impl Default for Hysteresis {
    fn default() -> Self {
        Self {
            class: Bottleneck::Unknown,
            told: None,
            next: (Bottleneck::Unknown, 0),
        }
    }
}

impl Hysteresis {
    /// Takes the bottleneck of an interval; true if it is to be reported now.
    pub(crate) fn is_change(&mut self, at: Duration, class: Bottleneck) -> bool {
        let seen = if self.next.0 == class {
            self.next.1.saturating_add(1)
        } else {
            1
        };
        self.next = (class, seen);
        let rested = self.told.is_none_or(|told| at.saturating_sub(told) >= TOLD);
        let news = class != self.class && seen >= SEEN && rested;
        if news {
            self.set_reported(at, class);
        }
        news
    }

    pub(crate) fn set_reported(&mut self, at: Duration, class: Bottleneck) {
        (self.class, self.told) = (class, Some(at));
    }

    pub(crate) fn is_stable(&self, at: Duration) -> bool {
        self.class != Bottleneck::SlowStart
            && self.next.0 == self.class
            && self
                .told
                .is_some_and(|told| at.saturating_sub(told) >= TOLD)
    }
}
