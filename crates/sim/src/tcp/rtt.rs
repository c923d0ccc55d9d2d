//! The smoothed RTT and the retransmission timeout (RFC 6298).

use std::time::Duration;

/// Timeout before the first sample (RFC 6298 section 2.1).
const INITIAL_RTO: Duration = Duration::from_secs(1);
/// Upper bound of the timeout (RFC 6298 section 2.5).
const MAX_RTO: Duration = Duration::from_secs(60);
/// Unit of ns-2's timer (`tcpTick_`: 0.01 s since 2002, 0.1 s before).
const TICK: Duration = Duration::from_millis(10);
/// Timeout of ns-2 before the first sample (`rtxcur_init_`).
const TICKS_BEFORE_SAMPLE: u32 = 300;

/// The estimate of ns-2 in whole ticks (Jacobson, "Congestion Avoidance and Control", 1988, appendix A).
#[derive(Debug, Clone, Copy, Default)]
struct TickEstimate {
    /// Smoothed RTT, eighths of a tick; 0: no sample.
    smoothed: u32,
    /// Mean deviation, quarters of a tick.
    variation: u32,
}

impl TickEstimate {
    fn sample(&mut self, now: Duration, rtt: Duration) {
        // The clock itself counts in ticks.
        let clock = |time: Duration| time.as_millis() / TICK.as_millis();
        let ticks = clock(now) - clock(now.saturating_sub(rtt));
        let ticks = u32::try_from(ticks).unwrap_or(u32::MAX >> 3).max(1);
        if self.smoothed == 0 {
            self.smoothed = ticks << 3;
            self.variation = ticks << 1;
            return;
        }
        let before = self.smoothed >> 3;
        self.smoothed = (self.smoothed + ticks - before).max(1);
        let deviation = ticks.abs_diff(before);
        self.variation = (self.variation + deviation - (self.variation >> 2)).max(1);
    }

    fn timeout(&self, least: Duration) -> Duration {
        let ticks = match self.smoothed {
            0 => TICKS_BEFORE_SAMPLE,
            smoothed => ((self.variation << 3) + smoothed) >> 3,
        };
        (TICK * ticks).max(least)
    }
}

/// Estimates the retransmission timeout from RTT samples.
#[derive(Debug, Clone, Copy)]
pub(super) struct RtoEstimator {
    smoothed: Option<f64>,
    variation: f64,
    min_margin: Duration,
    /// ns-2's estimate, if the timer is ns-2's.
    ticks: Option<TickEstimate>,
    backoff: u32,
}

impl RtoEstimator {
    pub(super) fn new(min_margin: Duration) -> Self {
        Self {
            smoothed: None,
            variation: 0.0,
            min_margin,
            ticks: None,
            backoff: 0,
        }
    }

    /// The timer of ns-2, with a lower bound of the whole timeout.
    pub(super) fn in_ticks(least: Duration) -> Self {
        Self {
            ticks: Some(TickEstimate::default()),
            ..Self::new(least)
        }
    }

    /// Takes the sample of a segment that was sent once (RFC 6298 section 2).
    pub(super) fn sample(&mut self, now: Duration, rtt: Duration) {
        if let Some(ticks) = &mut self.ticks {
            ticks.sample(now, rtt);
        }
        let r = rtt.as_secs_f64();
        match self.smoothed {
            None => {
                self.smoothed = Some(r);
                self.variation = r / 2.0;
            }
            Some(smoothed) => {
                self.variation += ((smoothed - r).abs() - self.variation) / 4.0;
                self.smoothed = Some(smoothed + (r - smoothed) / 8.0);
            }
        }
    }

    /// Ends the backoff, because new data was acknowledged. With timestamps even the acknowledgement of a
    /// retransmission gives an RTT sample (RFC 7323 section 4), so Karn's algorithm does not delay this.
    pub(super) fn on_progress(&mut self) {
        self.backoff = 0;
    }

    /// Doubles the timeout after the timer expired (RFC 6298 section 5.5).
    pub(super) fn back_off(&mut self) {
        // Beyond 16 doublings the timeout is at its maximum anyway, and the shift must not overflow.
        self.backoff = (self.backoff + 1).min(16);
    }

    /// Whether the timer expired since new data was acknowledged.
    pub(super) fn is_backed_off(&self) -> bool {
        self.backoff > 0
    }

    /// The smoothed RTT.
    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.smoothed.map(Duration::from_secs_f64)
    }

    /// The current timeout. The lower bound applies to the margin above the RTT, as in Linux. RFC 6298
    /// bounds the whole timeout by 1 s: with an RTT above that bound and little variation the
    /// timer would expire before the acknowledgement arrives.
    pub(super) fn timeout(&self) -> Duration {
        let base = match (self.ticks, self.smoothed) {
            (Some(ticks), _) => ticks.timeout(self.min_margin),
            (None, None) => INITIAL_RTO,
            (None, Some(smoothed)) => {
                let margin = Duration::from_secs_f64(4.0 * self.variation).max(self.min_margin);
                Duration::from_secs_f64(smoothed) + margin
            }
        };
        base.saturating_mul(1 << self.backoff).min(MAX_RTO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn the_timeout_follows_rfc_6298() {
        let mut e = RtoEstimator::new(ms(20));
        assert_eq!(e.timeout(), ms(1000));
        e.sample(ms(5000), ms(100));
        // SRTT 100, RTTVAR 50.
        assert_eq!(e.timeout(), ms(300));
        e.sample(ms(5000), ms(180));
        // RTTVAR 3/4 50 + 1/4 80 = 57.5, SRTT 110.
        assert_eq!(e.smoothed(), Some(ms(110)));
        assert_eq!(e.timeout(), ms(340));
    }

    #[test]
    fn the_timeout_is_bounded_below_and_above() {
        let mut e = RtoEstimator::new(ms(200));
        for _ in 0..50 {
            e.sample(ms(5000), ms(100));
        }
        assert_eq!(e.timeout(), ms(300));
        for doubled in [600, 1200, 2400] {
            e.back_off();
            assert_eq!(e.timeout(), ms(doubled));
        }
        for _ in 0..100 {
            e.back_off();
        }
        assert_eq!(e.timeout(), MAX_RTO);
        e.on_progress();
        assert_eq!(e.timeout(), ms(300));
    }

    #[test]
    fn the_timer_of_ns2_counts_ticks() {
        let mut e = RtoEstimator::in_ticks(ms(200));
        assert_eq!(e.timeout(), ms(3000));
        e.sample(ms(5000), ms(204));
        // 21 ticks, and a mean deviation of half of them.
        assert_eq!(e.timeout(), ms(630));
        for _ in 0..50 {
            e.sample(ms(5000), ms(204));
        }
        // Three quarters of a tick of deviation remain.
        assert_eq!(e.timeout(), ms(240));
        for _ in 0..50 {
            e.sample(ms(5000), ms(24));
        }
        assert_eq!(e.timeout(), ms(200));
    }
}
