//! The congestion window and its threshold, whichever control moves them.

use std::time::Duration;

use super::cubic::Cubic;
use super::{CongestionAlgorithm, TcpConfig};

/// Most segments by which one acknowledgement opens the window in slow start (RFC 3465: L).
const SLOW_START_LIMIT: f64 = 2.0;

/// A congestion window, in segments.
#[derive(Debug, Clone, Copy)]
pub(super) struct CongestionWindow {
    cwnd: f64,
    ssthresh: f64,
    cubic: Option<Cubic>,
}

impl CongestionWindow {
    pub(super) fn new(config: &TcpConfig) -> Self {
        Self {
            cwnd: f64::from(config.initial_window.max(1)),
            ssthresh: f64::INFINITY,
            cubic: match config.congestion {
                CongestionAlgorithm::NewReno => None,
                CongestionAlgorithm::Cubic => Some(Cubic::default()),
            },
        }
    }

    /// The window, segments.
    pub(super) fn cwnd(&self) -> f64 {
        self.cwnd
    }

    /// The slow-start threshold, segments; infinite before the first loss.
    pub(super) fn ssthresh(&self) -> f64 {
        self.ssthresh
    }

    /// Opens the window for `acked` segments, while the window is what limits the sender.
    /// `recovering`: after a timeout an acknowledgement may cover much that arrived long ago.
    pub(super) fn on_ack(&mut self, now: Duration, rtt: Duration, acked: u64, recovering: bool) {
        let mut acked = acked as f64;
        if self.cwnd < self.ssthresh {
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

    /// An acknowledgement came while something else limited the sender.
    pub(super) fn on_ack_not_cwnd_limited(&mut self, now: Duration) {
        if let Some(cubic) = &mut self.cubic {
            cubic.pause(now);
        }
    }

    /// A loss was seen with `flight` segments outstanding.
    pub(super) fn on_loss(&mut self, flight: u64) {
        let flight = self.flight_within_window(flight);
        self.ssthresh = match &mut self.cubic {
            None => newreno_after_loss(flight),
            Some(cubic) => cubic.after_loss(flight),
        };
        self.cwnd = self.ssthresh;
    }

    /// The retransmission timer expired; `again`: with nothing heard since it last did.
    pub(super) fn on_timeout(&mut self, flight: u64, again: bool) {
        if !again {
            let flight = self.flight_within_window(flight);
            self.ssthresh = match &mut self.cubic {
                None => newreno_after_loss(flight),
                Some(cubic) => cubic.after_timeout(flight),
            };
        }
        self.cwnd = 1.0;
    }

    /// The connection was idle: what the path bears is not known any more (RFC 5681 section 4.1).
    pub(super) fn restart_after_idle(&mut self, now: Duration, initial: u32) {
        self.on_ack_not_cwnd_limited(now);
        self.cwnd = self.cwnd.min(f64::from(initial.max(1)));
    }

    /// Part of the window that has been tried; segments sent by limited transmit do not count.
    fn flight_within_window(&self, flight: u64) -> f64 {
        self.cwnd.min(flight as f64)
    }
}

/// NewReno's share in congestion avoidance of an acknowledgement: one segment a round trip, counted by what
/// is acknowledged rather than by acknowledgements (RFC 5681 section 3.1, RFC 3465).
fn newreno_growth(cwnd: f64, acked: f64) -> f64 {
    acked / cwnd
}

/// NewReno's window after a loss (RFC 5681 equation 4), from what was in flight.
fn newreno_after_loss(flight: f64) -> f64 {
    (flight / 2.0).max(2.0)
}

#[cfg(test)]
mod tests;
