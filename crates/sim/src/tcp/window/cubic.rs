//! CUBIC (RFC 9438): the window is a cubic function of the time since the last loss. Section numbers
//! and names are those of the RFC. `HyStart` is not modelled.

use std::time::Duration;

/// The constant C (section 5).
const C: f64 = 0.4;
/// The multiplicative decrease factor (section 4.6).
const BETA: f64 = 0.7;
/// The additive increase factor of the Reno-friendly region (section 4.3): with it the average window
/// is that of Reno.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// The state of CUBIC apart from the window.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cubic {
    /// The window before the last reduction, or less after fast convergence (section 4.7).
    w_max: f64,
    /// The window before the last reduction.
    cwnd_prior: f64,
    /// The last reduction was due to a timeout (section 4.8).
    after_timeout: bool,
    epoch: Option<Epoch>,
    last_ack: Duration,
}

/// A congestion avoidance stage, from one reduction to the next.
#[derive(Debug, Clone, Copy)]
struct Epoch {
    start: Duration,
    w_max: f64,
    k: f64,
    w_est: f64,
}

impl Epoch {
    /// The window at the time `t` (figure 1 of the RFC).
    fn w_cubic(&self, t: f64) -> f64 {
        C * (t - self.k).powi(3) + self.w_max
    }
}

impl Cubic {
    /// The new window after an acknowledgement of `acked` segments in congestion avoidance.
    pub(super) fn on_ack(&mut self, now: Duration, rtt: Duration, cwnd: f64, acked: f64) -> f64 {
        let mut epoch = self.epoch.unwrap_or_else(|| self.begin_epoch(now, cwnd));
        let alpha = if epoch.w_est >= self.cwnd_prior {
            1.0
        } else {
            ALPHA
        };
        epoch.w_est += alpha * acked / cwnd;
        self.epoch = Some(epoch);
        self.last_ack = now;
        let t = now.saturating_sub(epoch.start).as_secs_f64();
        if epoch.w_cubic(t) < epoch.w_est {
            return cwnd.max(epoch.w_est);
        }
        // Section 4.2: the window aims at its value one round trip ahead, and grows by half at most
        // per round trip.
        let target = epoch.w_cubic(t + rtt.as_secs_f64()).clamp(cwnd, 1.5 * cwnd);
        cwnd + (target - cwnd) / cwnd * acked
    }

    /// Excludes the time since the last acknowledgement, in which the window was not the limit
    /// (section 5.8).
    pub(super) fn pause(&mut self, now: Duration) {
        if let Some(epoch) = &mut self.epoch {
            epoch.start += now.saturating_sub(self.last_ack);
        }
        self.last_ack = now;
    }

    /// The window after a loss, from the flight size (sections 4.6 and 4.7).
    pub(super) fn after_loss(&mut self, flight: f64) -> f64 {
        // Fast convergence: a flow that loses below its last maximum releases bandwidth to new flows.
        self.w_max = if flight < self.w_max {
            flight * (1.0 + BETA) / 2.0
        } else {
            flight
        };
        self.cwnd_prior = flight;
        self.after_timeout = false;
        self.epoch = None;
        (flight * BETA).max(2.0)
    }

    /// The slow-start threshold after a timeout (section 4.8).
    pub(super) fn after_timeout(&mut self, flight: f64) -> f64 {
        let threshold = self.after_loss(flight);
        self.after_timeout = true;
        threshold
    }

    fn begin_epoch(&self, now: Duration, cwnd: f64) -> Epoch {
        let w_max = if self.after_timeout {
            cwnd
        } else {
            self.w_max.max(cwnd)
        };
        Epoch {
            start: now,
            w_max,
            k: ((w_max - cwnd) / C).cbrt(),
            w_est: cwnd,
        }
    }
}
