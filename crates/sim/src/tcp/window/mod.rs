//! The congestion window and the slow-start threshold, for both congestion controls.

use std::time::Duration;

mod cubic;

use cubic::Cubic;

/// Largest increase of the window per acknowledgement in slow start, segments (RFC 3465: L = 2).
const SLOW_START_LIMIT: f64 = 2.0;

/// The congestion control of a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CongestionAlgorithm {
    /// Additive increase, multiplicative decrease (RFC 5681, RFC 6582) with the recovery of RFC 6675.
    NewReno,
    /// CUBIC (RFC 9438).
    Cubic,
}

/// A congestion window, in segments.
#[derive(Debug, Clone, Copy)]
pub(super) struct CongestionWindow {
    cwnd: f64,
    ssthresh: f64,
    cubic: Option<Cubic>,
}

impl CongestionWindow {
    /// A window before the first loss. `initial`: its segments (RFC 6928), at least 1.
    pub(super) fn new(congestion: CongestionAlgorithm, initial: u32) -> Self {
        Self {
            cwnd: f64::from(initial.max(1)),
            ssthresh: f64::INFINITY,
            cubic: match congestion {
                CongestionAlgorithm::NewReno => None,
                CongestionAlgorithm::Cubic => Some(Cubic::default()),
            },
        }
    }

    /// Congestion window, segments.
    pub(super) fn cwnd(&self) -> f64 {
        self.cwnd
    }

    /// Slow-start threshold, segments; infinite before the first loss.
    pub(super) fn ssthresh(&self) -> f64 {
        self.ssthresh
    }

    /// Increases the window for `acked` segments. Must be called only while the window limits the sender.
    /// `recovering`: after a timeout, when one acknowledgement may cover many old segments.
    pub(super) fn on_ack(&mut self, now: Duration, rtt: Duration, acked: u64, recovering: bool) {
        let mut acked = acked as f64;
        if self.cwnd < self.ssthresh {
            // RFC 3465 section 2.3: L = 1 after a timeout, because the acknowledged segments may have
            // arrived long ago and say nothing about the current rate.
            let limit = if recovering { 1.0 } else { SLOW_START_LIMIT };
            let step = acked.min(limit).min(self.ssthresh - self.cwnd);
            self.cwnd += step;
            acked -= step;
            if self.cwnd < self.ssthresh || recovering || acked <= 0.0 {
                return;
            }
        }
        match &mut self.cubic {
            None => self.cwnd += newreno_growth(self.cwnd, acked),
            Some(cubic) => self.cwnd = cubic.on_ack(now, rtt, self.cwnd, acked),
        }
    }

    /// Handles an acknowledgement while something else limits the sender: the window must not grow (RFC
    /// 9438 section 5.8).
    pub(super) fn on_ack_not_cwnd_limited(&mut self, now: Duration) {
        if let Some(cubic) = &mut self.cubic {
            cubic.pause(now);
        }
    }

    /// Reduces the window after a loss with `flight` segments outstanding.
    pub(super) fn on_loss(&mut self, flight: u64) {
        let flight = self.flight_within_window(flight);
        self.ssthresh = match &mut self.cubic {
            None => newreno_after_loss(flight),
            Some(cubic) => cubic.after_loss(flight),
        };
        self.cwnd = self.ssthresh;
    }

    /// Reduces the window after a retransmission timeout; `again`: no acknowledgement came since the last
    /// timeout, so the threshold stays (RFC 5681 section 3.1).
    pub(super) fn on_timeout(&mut self, flight: u64, again: bool) {
        if !again {
            let flight = self.flight_within_window(flight);
            self.ssthresh = match &mut self.cubic {
                None => newreno_after_loss(flight),
                Some(cubic) => cubic.after_timeout(flight),
            };
        }
        // RFC 5681 section 3.1: the loss window is one segment.
        self.cwnd = 1.0;
    }

    /// Reduces the window after an idle time, because the state of the path is unknown by then (RFC 5681
    /// section 4.1).
    pub(super) fn restart_after_idle(&mut self, now: Duration, initial: u32) {
        self.on_ack_not_cwnd_limited(now);
        self.cwnd = self.cwnd.min(f64::from(initial.max(1)));
    }

    /// The used part of the window; segments sent by limited transmit (RFC 3042) do not count.
    fn flight_within_window(&self, flight: u64) -> f64 {
        self.cwnd.min(flight as f64)
    }
}

/// NewReno's increase per acknowledgement in congestion avoidance: one segment per round trip, by
/// counting acknowledged data instead of acknowledgements (RFC 5681 section 3.1, RFC 3465).
fn newreno_growth(cwnd: f64, acked: f64) -> f64 {
    acked / cwnd
}

/// NewReno's window after a loss, from the flight size (RFC 5681 equation 4).
fn newreno_after_loss(flight: f64) -> f64 {
    (flight / 2.0).max(2.0)
}

#[cfg(test)]
mod tests;
