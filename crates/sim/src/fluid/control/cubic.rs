//! Window growth of CUBIC in congestion avoidance (RFC 9438, and net/ipv4/tcp_cubic.c).

use super::AckedStep;

/// Multiplicative decrease factor: 717/1024 in Linux.
const BETA: f64 = 717.0 / 1024.0;
/// Scaling constant, segments per cubic second.
const C: f64 = 0.4;
/// Additive increase of the Reno-friendly window, segments per round trip (RFC 9438 §4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// State of CUBIC. Windows are in segments, times in seconds.
#[derive(Debug, Clone, Default)]
pub(super) struct CubicGrowth {
    w_max: f64,
    /// Start of the epoch, once growth has begun.
    epoch: Option<f64>,
    k: f64,
    origin: f64,
    /// Window that Reno would have.
    friendly: f64,
}

impl CubicGrowth {
    pub(super) fn grow(&mut self, step: &AckedStep, cwnd: &mut f64) {
        if !step.cwnd_limited {
            // The time in which the window was not used does not count.
            self.epoch = self.epoch.map(|epoch| epoch + step.step);
            return;
        }
        let epoch = *self.epoch.get_or_insert_with(|| {
            self.friendly = *cwnd;
            if *cwnd < self.w_max {
                self.k = ((self.w_max - *cwnd) / C).cbrt();
                self.origin = self.w_max;
            } else {
                self.k = 0.0;
                self.origin = *cwnd;
            }
            step.now
        });
        let t = step.now - epoch + step.min_rtt - self.k;
        let target = self.origin + C * t * t * t;
        // Linux does not raise the factor to 1 beyond w_max, as RFC 9438 §4.3 recommends.
        self.friendly += ALPHA * step.acked / *cwnd;
        let cubic = if target > *cwnd {
            // At most one segment per two acknowledged ones.
            ((target - *cwnd) / *cwnd).min(0.5) * step.acked
        } else {
            step.acked / (100.0 * *cwnd)
        };
        let friendly = (self.friendly - *cwnd).min(step.acked / 2.0);
        *cwnd += cubic.max(friendly);
    }

    /// Ends the epoch at a loss; returns the new slow start threshold.
    pub(super) fn reduce(&mut self, cwnd: f64) -> f64 {
        // Fast convergence.
        self.w_max = if cwnd < self.w_max {
            cwnd * f64::midpoint(1.0, BETA)
        } else {
            cwnd
        };
        self.epoch = None;
        (cwnd * BETA).max(2.0)
    }
}
