//! Which class was told last, and whether another one is news.

use std::time::Duration;

use super::bottleneck::Bottleneck;

/// A new class is told when it was seen so often in turn.
const SEEN: u32 = 2;
/// Classes are told no more often than this.
const TOLD: Duration = Duration::from_secs(1);

/// The class that was told last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hysteresis {
    class: Bottleneck,
    told: Option<Duration>,
    /// Another one, and how often it was seen in turn.
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
    /// Whether a class is news.
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
