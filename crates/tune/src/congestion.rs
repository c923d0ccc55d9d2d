//! Which congestion control a data connection runs when nobody says.
//!
//! The system's choice stands, with one exception. BBR sends by timers: where the round trip is
//! shorter than a millisecond (one machine, one rack) the timers, not the path, set the pace, at
//! several times the processor cost per byte (figures in docs/benchmarks.md). A loss-based control
//! has nothing to lose there.

use std::time::Duration;

/// Paths with a shorter round trip are left to loss-based control.
pub const SHORT_PATH: Duration = Duration::from_millis(1);

/// What to use instead of `in_force` on a path with this round trip, best first; the system may
/// refuse any of them (`net.ipv4.tcp_allowed_congestion_control`). Empty: leave it.
pub fn instead(in_force: &str, rtt: Duration) -> &'static [&'static str] {
    if in_force.starts_with("bbr") && rtt < SHORT_PATH {
        &["cubic", "reno"]
    } else {
        &[]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bbr_on_a_short_path_is_replaced() {
        let short = Duration::from_micros(999);
        assert_eq!(instead("bbr", short), ["cubic", "reno"]);
        assert!(instead("bbr", SHORT_PATH).is_empty());
        assert!(instead("cubic", short).is_empty());
    }
}
