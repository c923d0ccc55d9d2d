//! Congestion control of a data connection when the user sets none.
//!
//! The system's default stays, with one exception. BBR paces every segment by timers. On paths with a
//! round trip below a millisecond (one machine, one rack) the timers limit the rate, at several times the
//! CPU cost per byte (docs/benchmarks.md). A loss-based control loses nothing there.

use std::time::Duration;

use crate::sample::TcpSample;

/// Paths with a shorter round trip use loss-based control.
pub const SHORT_PATH: Duration = Duration::from_millis(1);

/// Controls that suit a path with this round trip better than `in_force`, best first; empty if none
/// does. The system may refuse any of them (`net.ipv4.tcp_allowed_congestion_control`).
pub fn short_path_alternatives(in_force: &str, rtt: Duration) -> &'static [&'static str] {
    if in_force.starts_with("bbr") && rtt < SHORT_PATH {
        &["cubic", "reno"]
    } else {
        &[]
    }
}

/// Controls that do not treat a loss as a sign of congestion, best first, by their names in Linux and
/// its out-of-tree builds.
const LOSS_TOLERANT: [&str; 3] = ["bbr3", "bbr2", "bbr"];

/// Whether a congestion control keeps its rate when packets are lost without a queue.
pub fn is_loss_tolerant(name: &str) -> bool {
    name.starts_with("bbr")
}

/// The best loss-tolerant control in `permitted`, for a path that loses packets without a queue.
/// `None` if the one in force is loss-tolerant already, or if no such control is permitted. The timers of
/// BBR cost CPU on a short path too, but less than the losses.
pub fn loss_tolerant_alternative<'a>(in_force: &str, permitted: &'a [String]) -> Option<&'a str> {
    if is_loss_tolerant(in_force) {
        return None;
    }
    let find = |name: &&str| permitted.iter().find(|p| p.as_str() == *name);
    LOSS_TOLERANT.iter().find_map(find).map(String::as_str)
}

/// Round trips between two segments from which on a stream counts as starved by its own pacing. A path that is shared
/// by so many streams that each gets less seldom one is full of queues, which make its round trips longer.
const STARVED_ROUND_TRIPS: u32 = 16;

/// Whether a stream with unsent bytes waits for the pacing of its own congestion control much longer than for the path.
///
/// BBRv1 paces by the delivery rates of its last ten rounds. Heavy loss, as when many streams begin at once over a short
/// queue, leaves it one segment in a round; from then on it measures only its own pace, and raises it by a quarter in
/// eight rounds, each as long as the pause between two segments: a stream of 4 kbit/s for minutes on an idle path.
pub fn is_starved_by_pacing(sample: &TcpSample) -> bool {
    let Some(micros) = (sample.mss * 1_000_000).checked_div(sample.pacing_rate) else {
        return false;
    };
    let pause = Duration::from_micros(micros);
    sample.unsent > 0 && pause > sample.smoothed_rtt * STARVED_ROUND_TRIPS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bbr_is_replaced_on_a_short_path_only() {
        let short = Duration::from_micros(999);
        assert_eq!(short_path_alternatives("bbr", short), ["cubic", "reno"]);
        assert!(short_path_alternatives("bbr", SHORT_PATH).is_empty());
        assert!(short_path_alternatives("cubic", short).is_empty());
    }

    #[test]
    fn a_loss_tolerant_control_is_chosen_if_it_is_permitted() {
        let permitted: Vec<String> = ["reno", "cubic", "bbr"].map(str::to_owned).into();
        assert_eq!(loss_tolerant_alternative("cubic", &permitted), Some("bbr"));
        assert_eq!(loss_tolerant_alternative("bbr2", &permitted), None);
        assert_eq!(loss_tolerant_alternative("cubic", &permitted[..2]), None);
    }

    #[test]
    fn a_stream_starves_if_it_pauses_for_many_round_trips_with_bytes_to_send() {
        // Read off a stream of a crowd: 1 448 bytes each 2.8 s over 20 ms.
        let starved = TcpSample {
            mss: 1448,
            pacing_rate: 512,
            unsent: 67_411,
            smoothed_rtt: Duration::from_millis(23),
            ..TcpSample::default()
        };
        assert!(is_starved_by_pacing(&starved));
        for sound in [
            TcpSample {
                unsent: 0,
                ..starved
            },
            // A modem: its queue makes the round trip long.
            TcpSample {
                pacing_rate: 7_000,
                smoothed_rtt: Duration::from_millis(800),
                ..starved
            },
            TcpSample {
                pacing_rate: 1448 * 1000 / 23 / 15,
                ..starved
            },
            // A kernel that does not tell it.
            TcpSample {
                pacing_rate: 0,
                ..starved
            },
        ] {
            assert!(!is_starved_by_pacing(&sound), "{sound:?}");
        }
    }
}
