//! A sender that is held to a rate, as SO_MAX_PACING_RATE does: segment by segment, without bursts.

use std::time::Duration;

/// When the next segment may go.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SegmentPacer {
    /// Payload, bytes per second.
    rate: Option<u64>,
    turn: Duration,
}

impl SegmentPacer {
    /// Another rate from now on; the segment sent last has its time at the old one.
    pub(super) fn set(&mut self, now: Duration, rate: Option<u64>) {
        self.rate = rate.map(|rate| rate.max(1));
        if self.rate.is_none() {
            self.turn = now;
        }
    }

    /// A segment may go now.
    pub(super) fn allows(&self, now: Duration) -> bool {
        self.rate.is_none() || now >= self.turn
    }

    /// When the next one may.
    pub(super) fn next_send_time(&self) -> Duration {
        self.turn
    }

    /// A segment of `bytes` went.
    pub(super) fn on_sent(&mut self, now: Duration, bytes: u32) {
        if let Some(rate) = self.rate {
            let time = u64::from(bytes) * 1_000_000_000 / rate;
            self.turn = self.turn.max(now) + Duration::from_nanos(time.max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_spaced_and_idle_time_is_not_saved_up() {
        let ms = Duration::from_millis;
        let mut pace = SegmentPacer::default();
        assert!(pace.allows(Duration::ZERO));
        pace.set(ms(0), Some(1_000_000));
        pace.on_sent(ms(0), 1000);
        assert!(!pace.allows(ms(0)) && pace.allows(ms(1)));
        pace.on_sent(ms(50), 1000);
        assert_eq!(pace.next_send_time(), ms(51));
        pace.set(ms(50), None);
        assert!(pace.allows(ms(50)));
    }
}
