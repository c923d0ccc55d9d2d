//! Counts losses of the path itself: repeated and without a queue, unlike those that end a slow start.

use std::time::Duration;

use super::transfer_meter::{TransferCounters, TransferInterval};

/// Smallest loss ratio that limits anyone: at 1 in 30 000 CUBIC reaches 250 Mbit/s over 50 ms (RFC 9438
/// §5.1).
pub(super) const MIN_LOSS_RATIO: f64 = 3e-5;
/// Longest time that one count covers.
const LONGEST: Duration = Duration::from_secs(10);

/// State of the count.
#[derive(Debug, Clone, Copy)]
enum LossCountPhase {
    /// No loss so far.
    None,
    /// First losses, seen at this time. They may be the end of a slow start and do not count.
    First(Duration),
    /// Losses count from these counters on.
    Counting(TransferCounters),
}

/// Loss ratio of the path.
#[derive(Debug, Clone, Copy)]
pub(super) struct LossCounter {
    stage: LossCountPhase,
    /// Number of intervals, of those with losses, and of those with a queue.
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
            LossCountPhase::None if sight.stats.has_losses() => {
                self.stage = LossCountPhase::First(sight.at)
            }
            LossCountPhase::None => {}
            LossCountPhase::First(at) => {
                // Recovery from an overrun takes a few round trips; losses after it are new ones.
                let long = trip.min * 6 + Duration::from_millis(100);
                if !sight.stats.has_losses() || sight.at.saturating_sub(at) >= long {
                    self.count_from(now);
                }
            }
            LossCountPhase::Counting(from) => {
                let longest = LONGEST.max(trip.min * 100);
                if now.at.saturating_sub(from.at) >= longest {
                    self.count_from(now);
                }
                self.sights += 1;
                self.lossy += u32::from(sight.stats.has_losses());
                self.full += u32::from(trip.has_queue());
            }
        }
    }

    /// Begins a new count here.
    pub(super) fn count_from(&mut self, mark: TransferCounters) {
        *self = Self {
            stage: LossCountPhase::Counting(mark),
            ..Self::default()
        };
    }

    /// Forgets all losses, because streams or settings have changed.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Loss ratio, 0..=1, if there is evidence enough that the path loses packets without a queue.
    pub(super) fn loss_ratio(
        &self,
        sight: &TransferInterval,
        now: TransferCounters,
    ) -> Option<f64> {
        let LossCountPhase::Counting(from) = self.stage else {
            return None;
        };
        let time = now.at.saturating_sub(from.at);
        // Two intervals with losses exclude a single event, and a queue in at most a quarter of the intervals
        // excludes a full path.
        let enough = self.lossy >= 2
            && self.full * 4 <= self.sights
            && time >= (sight.rtt.min * 8).max(Duration::from_millis(400));
        let ratio = now.since(&from).loss_ratio();
        (enough && ratio >= MIN_LOSS_RATIO && !sight.rtt.is_congested()).then_some(ratio)
    }
}
