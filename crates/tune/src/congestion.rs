//! Which congestion control a data connection runs when nobody says.
//!
//! The system's choice stands, with one exception. BBR sends by timers: where the round trip is
//! shorter than a millisecond (one machine, one rack) the timers, not the path, set the pace, at
//! several times the processor cost per byte (figures in docs/benchmarks.md). A loss-based control
//! has nothing to lose there.

use std::time::Duration;

/// Paths with a shorter round trip are left to loss-based control.
pub const SHORT_PATH: Duration = Duration::from_millis(1);

/// Controls to use instead of `in_force` on a path with this round trip, best first; the system may
/// refuse any of them (`net.ipv4.tcp_allowed_congestion_control`). Empty: leave it.
pub fn short_path_alternatives(in_force: &str, rtt: Duration) -> &'static [&'static str] {
    if in_force.starts_with("bbr") && rtt < SHORT_PATH {
        &["cubic", "reno"]
    } else {
        &[]
    }
}

/// Those that do not take a loss for a full path, best first, as Linux and its out-of-tree builds
/// name them.
const LOSS_TOLERANT: [&str; 3] = ["bbr3", "bbr2", "bbr"];

/// A congestion control that keeps its rate when packets are lost without a queue.
pub fn is_loss_tolerant(name: &str) -> bool {
    name.starts_with("bbr")
}

/// The control to try on a path that loses packets without a queue: the best of `permitted`; `None`: the one in
/// force does as well, or nothing better is permitted. On a short path its timers cost, too, but less
/// than losses do.
pub fn loss_tolerant_alternative<'a>(in_force: &str, permitted: &'a [String]) -> Option<&'a str> {
    if is_loss_tolerant(in_force) {
        return None;
    }
    let find = |name: &&str| permitted.iter().find(|p| p.as_str() == *name);
    LOSS_TOLERANT.iter().find_map(find).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bbr_on_a_short_path_is_replaced() {
        let short = Duration::from_micros(999);
        assert_eq!(short_path_alternatives("bbr", short), ["cubic", "reno"]);
        assert!(short_path_alternatives("bbr", SHORT_PATH).is_empty());
        assert!(short_path_alternatives("cubic", short).is_empty());
    }

    #[test]
    fn what_bears_loss_is_taken_where_it_is_permitted() {
        let permitted: Vec<String> = ["reno", "cubic", "bbr"].map(str::to_owned).into();
        assert_eq!(loss_tolerant_alternative("cubic", &permitted), Some("bbr"));
        assert_eq!(loss_tolerant_alternative("bbr2", &permitted), None);
        assert_eq!(loss_tolerant_alternative("cubic", &permitted[..2]), None);
    }
}
