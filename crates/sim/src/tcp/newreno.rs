//! Additive increase, multiplicative decrease (RFC 5681, 6582).

/// Congestion avoidance's share of an acknowledgement: one segment a round trip, counted by what
/// is acknowledged rather than by acknowledgements (RFC 5681 section 3.1, RFC 3465).
pub(super) fn growth(cwnd: f64, acked: f64) -> f64 {
    acked / cwnd
}

/// The window after a loss (RFC 5681 equation 4), from what was in flight.
pub(super) fn after_loss(flight: f64) -> f64 {
    (flight / 2.0).max(2.0)
}
