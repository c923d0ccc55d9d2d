//! HyStart as in net/ipv4/tcp_cubic.c: ends slow start before the queue overflows.

use super::AckedStep;

/// Smallest window that is checked, segments.
const LOW_WINDOW: f64 = 16.0;
/// Largest gap between acknowledgements of a train, seconds.
const ACK_DELTA: f64 = 0.002;
/// Bounds of the delay increase that ends slow start, seconds.
const DELAY_BOUNDS: (f64, f64) = (0.004, 0.016);

/// State of HyStart in one round.
#[derive(Debug, Clone, Default)]
pub(super) struct HyStart {
    round_ends: f64,
    round_acked: f64,
    round_rtt: f64,
}

impl HyStart {
    /// Whether slow start ends with this step. `cwnd` is in segments.
    pub(super) fn ends_slow_start(&mut self, step: &AckedStep, cwnd: f64) -> bool {
        let mut found = false;
        if step.now >= self.round_ends {
            let (least, most) = DELAY_BOUNDS;
            let bound = step.min_rtt + (step.min_rtt / 8.0).clamp(least, most);
            found = self.round_ends > 0.0 && self.round_rtt >= bound;
            *self = Self {
                round_ends: step.now + step.rtt,
                round_acked: 0.0,
                round_rtt: f64::INFINITY,
            };
        }
        self.round_rtt = self.round_rtt.min(step.rtt);
        self.round_acked += step.acked;
        // Acknowledgements of two segments each that follow each other at the rate of the bottleneck.
        let gap = 2.0 / step.slow_start_rate;
        let train = self.round_acked / step.slow_start_rate;
        found |= gap <= ACK_DELTA && train >= step.min_rtt / 2.0;
        found && cwnd >= LOW_WINDOW
    }
}
