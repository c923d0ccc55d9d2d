//! Counts losses of the path itself: repeated and without a queue, unlike those that end a slow start.

use std::time::Duration;

use super::transfer_meter::{TransferCounters, TransferInterval};

/// Smallest loss ratio that counts. At 1 in 30 000 the mean window of CUBIC is about 250 segments over 50 ms,
/// or 60 Mbit/s (RFC 9438 §5.1).
pub(super) const MIN_LOSS_RATIO: f64 = 3e-5;
/// Longest time that one count covers.
const MAX_COUNT_TIME: Duration = Duration::from_secs(10);

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
    phase: LossCountPhase,
    /// Number of intervals, of those with losses, and of those with a queue.
    intervals: u32,
    with_losses: u32,
    with_queue: u32,
}

impl Default for LossCounter {
    fn default() -> Self {
        Self {
            phase: LossCountPhase::None,
            intervals: 0,
            with_losses: 0,
            with_queue: 0,
        }
    }
}

impl LossCounter {
    pub(super) fn on_interval(&mut self, interval: &TransferInterval, now: TransferCounters) {
        let rtt = interval.rtt;
        match self.phase {
            LossCountPhase::None if interval.stats.has_losses() => {
                self.phase = LossCountPhase::First(interval.at);
            }
            LossCountPhase::None => {}
            LossCountPhase::First(at) => {
                // Recovery from an overrun takes a few round trips; losses after it are new ones.
                let recovery = rtt.min * 6 + Duration::from_millis(100);
                if !interval.stats.has_losses() || interval.at.saturating_sub(at) >= recovery {
                    self.count_from(now);
                }
            }
            LossCountPhase::Counting(from) => {
                let longest_count = MAX_COUNT_TIME.max(rtt.min * 100);
                if now.at.saturating_sub(from.at) >= longest_count {
                    self.count_from(now);
                }
                self.intervals += 1;
                self.with_losses += u32::from(interval.stats.has_losses());
                self.with_queue += u32::from(rtt.has_queue());
            }
        }
    }

    /// Begins a new count here.
    pub(super) fn count_from(&mut self, counters: TransferCounters) {
        *self = Self {
            phase: LossCountPhase::Counting(counters),
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
        interval: &TransferInterval,
        now: TransferCounters,
    ) -> Option<f64> {
        let LossCountPhase::Counting(from) = self.phase else {
            return None;
        };
        let time = now.at.saturating_sub(from.at);
        // Two intervals with losses exclude a single event, and a queue in at most a quarter of the intervals
        // excludes a full path.
        let is_sufficient = self.with_losses >= 2
            && self.with_queue * 4 <= self.intervals
            && time >= (interval.rtt.min * 8).max(Duration::from_millis(400));
        let ratio = now.since(&from).loss_ratio();
        (is_sufficient && ratio >= MIN_LOSS_RATIO && !interval.rtt.is_congested()).then_some(ratio)
    }
}
