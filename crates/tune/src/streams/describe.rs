//! Numbers in the reasons of decisions.

/// `4 streams`.
pub(super) fn describe_streams(n: u32) -> String {
    match n {
        1 => "1 stream".to_owned(),
        n => format!("{n} streams"),
    }
}

/// A rate for display. The cast saturates, and NaN becomes 0.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates"
)]
pub(super) fn whole_rate(rate: f64) -> u64 {
    rate as u64
}
