//! Losses that come without a queue, and not just once: the path's, not those that end a slow start.

use std::time::Duration;

use super::gauge::{Mark, Sight};

/// Fewer are nobody's limit: at 1 in 30 000 CUBIC holds 250 Mbit/s over 50 ms.
pub(super) const RATIO: f64 = 3e-5;
/// The count begins anew after so long.
const LONGEST: Duration = Duration::from_secs(10);

/// So many sights without a loss, and without a congested path, are a clean stretch.
const CLEAN: u32 = 8;

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
    /// They are counted from their first after a clean stretch.
    begun: bool,
    /// Sights since one at which the path was congested.
    calm: u32,
}

impl Default for Losses {
    fn default() -> Self {
        Self {
            stage: Stage::None,
            sights: 0,
            lossy: 0,
            full: 0,
            begun: false,
            calm: 0,
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
                // What was clean says nothing of a path that has begun to lose; of one that was full, the
                // losses are the queue's.
                let begins = sight.lost && self.lossy == 0 && self.calm >= CLEAN;
                if begins || now.at.saturating_sub(from.at) >= longest {
                    self.count_from(now);
                    self.begun = begins;
                }
                self.sights += 1;
                self.lossy += u32::from(sight.lost);
                self.full += u32::from(trip.has_queue());
                self.calm = match trip.is_congested() {
                    true => 0,
                    false => self.calm + 1,
                };
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
        // A queue that overflows loses now and then, and stands between; a path loses always.
        let plain = match self.begun {
            true => self.full == 0 && self.lossy * 4 >= self.sights * 3,
            false => self.full * 4 <= self.sights,
        };
        let enough = self.lossy >= 2
            && plain
            && time >= (sight.trip.base * 8).max(Duration::from_millis(400));
        let ratio = now.loss_since(&from);
        (enough && ratio >= RATIO && !sight.trip.is_congested()).then_some(ratio)
    }
}
