//! Losses that come without a queue, and not just once: the path's, not those that end a slow start.

use std::time::Duration;

use super::gauge::{Mark, Sight};

/// Fewer are nobody's limit: at 1 in 30 000 CUBIC holds 250 Mbit/s over 50 ms.
pub(super) const RATIO: f64 = 3e-5;
/// The count begins anew after so long.
const LONGEST: Duration = Duration::from_secs(10);

/// Which losses count.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// None were seen yet.
    None,
    /// The first, at this time: a slow start may have overrun the path.
    First(Duration),
    /// From here on.
    Counting(Mark),
}

/// Counts losses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Losses {
    stage: Stage,
    /// Sights counted, those with losses, and those with a queue.
    sights: u32,
    lossy: u32,
    full: u32,
}

impl Default for Losses {
    fn default() -> Self {
        Self {
            stage: Stage::None,
            sights: 0,
            lossy: 0,
            full: 0,
        }
    }
}

impl Losses {
    pub(super) fn on_sight(&mut self, sight: &Sight, now: Mark) {
        let trip = sight.trip;
        match self.stage {
            Stage::None if sight.lost => self.stage = Stage::First(sight.at),
            Stage::None => {}
            Stage::First(at) => {
                let long = trip.base * 6 + Duration::from_millis(100);
                if !sight.lost || sight.at.saturating_sub(at) >= long {
                    self.count_from(now);
                }
            }
            Stage::Counting(from) => {
                let longest = LONGEST.max(trip.base * 100);
                if now.at.saturating_sub(from.at) >= longest {
                    self.count_from(now);
                }
                self.sights += 1;
                self.lossy += u32::from(sight.lost);
                self.full += u32::from(trip.has_queue());
            }
        }
    }

    /// Counts from here on.
    pub(super) fn count_from(&mut self, mark: Mark) {
        *self = Self {
            stage: Stage::Counting(mark),
            ..Self::default()
        };
    }

    /// Forgets all: the streams are not the same any more, or the path is not.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// The ratio of what is lost without a queue, when there is enough to tell; 0..=1.
    pub(super) fn ratio(&self, sight: &Sight, now: Mark) -> Option<f64> {
        let Stage::Counting(from) = self.stage else {
            return None;
        };
        let time = now.at.saturating_sub(from.at);
        let enough = self.lossy >= 2
            && self.full * 4 <= self.sights
            && time >= (sight.trip.base * 8).max(Duration::from_millis(400));
        let ratio = now.loss_since(&from);
        (enough && ratio >= RATIO && !sight.trip.is_congested()).then_some(ratio)
    }
}
