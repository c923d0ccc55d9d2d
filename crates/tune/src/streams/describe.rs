//! Numbers in the reasons of decisions.

/// A rate for display. The cast saturates, and NaN becomes 0.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates"
)]
pub(super) fn whole_rate(rate: f64) -> u64 {
    rate as u64
}
