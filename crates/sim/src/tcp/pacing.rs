//! Pacing at a fixed rate, as with `SO_MAX_PACING_RATE` (socket(7)): segments are spaced evenly.

use std::time::Duration;

/// Computes when the next segment may be sent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SegmentPacer {
    /// Payload, bytes per second; `None`: no pacing.
    rate: Option<u64>,
    next_send: Duration,
}

impl SegmentPacer {
    /// Changes the rate. The gap after the last segment still follows the old rate.
    pub(super) fn set(&mut self, now: Duration, rate: Option<u64>) {
        self.rate = rate.map(|rate| rate.max(1));
        if self.rate.is_none() {
            self.next_send = now;
        }
    }

    /// Whether a segment may be sent now.
    pub(super) fn allows(&self, now: Duration) -> bool {
        self.rate.is_none() || now >= self.next_send
    }

    /// Time at which the next segment may be sent.
    pub(super) fn next_send_time(&self) -> Duration {
        self.next_send
    }

    /// Records that a segment of `bytes` was sent.
    pub(super) fn on_sent(&mut self, now: Duration, bytes: u32) {
        if let Some(rate) = self.rate {
            let time = u64::from(bytes) * 1_000_000_000 / rate;
            self.next_send = self.next_send.max(now) + Duration::from_nanos(time.max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_spaced_and_idle_time_gives_no_credit() {
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
