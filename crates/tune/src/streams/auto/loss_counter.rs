//! Losses that come without a queue, and not just once: the path's, not those that end a slow start.

use std::time::Duration;

use super::transfer_meter::{TransferCounters, TransferInterval};

/// Fewer are nobody's limit: at 1 in 30 000 CUBIC holds 250 Mbit/s over 50 ms.
pub(super) const MIN_LOSS_RATIO: f64 = 3e-5;
/// The count begins anew after so long.
const LONGEST: Duration = Duration::from_secs(10);

/// Which losses count.
#[derive(Debug, Clone, Copy)]
enum LossCountPhase {
    /// None were seen yet.
    None,
    /// The first, at this time: a slow start may have overrun the path.
    First(Duration),
    /// From here on.
    Counting(TransferCounters),
}

/// Counts losses.
#[derive(Debug, Clone, Copy)]
pub(super) struct LossCounter {
    stage: LossCountPhase,
    /// Sights counted, those with losses, and those with a queue.
    sights: u32,
    lossy: u32,
    full: u32,
}

impl Default for LossCounter {
    fn default() -> Self {
        Self {
            stage: LossCountPhase::None,
            sights: 0,
            lossy: 0,
            full: 0,
        }
    }
}

impl LossCounter {
    pub(super) fn on_interval(&mut self, sight: &TransferInterval, now: TransferCounters) {
        let trip = sight.rtt;
        match self.stage {
            LossCountPhase::None if sight.has_losses => {
                self.stage = LossCountPhase::First(sight.at);
            }
            LossCountPhase::None => {}
            LossCountPhase::First(at) => {
                let long = trip.min * 6 + Duration::from_millis(100);
                if !sight.has_losses || sight.at.saturating_sub(at) >= long {
                    self.count_from(now);
                }
            }
            LossCountPhase::Counting(from) => {
                let longest = LONGEST.max(trip.min * 100);
                if now.at.saturating_sub(from.at) >= longest {
                    self.count_from(now);
                }
                self.sights += 1;
                self.lossy += u32::from(sight.has_losses);
                self.full += u32::from(trip.has_queue());
            }
        }
    }

    /// Counts from here on.
    pub(super) fn count_from(&mut self, mark: TransferCounters) {
        *self = Self {
            stage: LossCountPhase::Counting(mark),
            ..Self::default()
        };
    }

    /// Forgets all: the streams are not the same any more, or the path is not.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// The ratio of what is lost without a queue, when there is enough to tell; 0..=1.
    pub(super) fn loss_ratio(
        &self,
        sight: &TransferInterval,
        now: TransferCounters,
    ) -> Option<f64> {
        let LossCountPhase::Counting(from) = self.stage else {
            return None;
        };
        let time = now.at.saturating_sub(from.at);
        let enough = self.lossy >= 2
            && self.full * 4 <= self.sights
            && time >= (sight.rtt.min * 8).max(Duration::from_millis(400));
        let ratio = now.loss_ratio_since(&from);
        (enough && ratio >= MIN_LOSS_RATIO && !sight.rtt.is_congested()).then_some(ratio)
    }
}
