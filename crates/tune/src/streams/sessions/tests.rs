use proptest::prelude::*;

use super::*;

const RTT: Duration = Duration::from_millis(80);
const TICK: Duration = Duration::from_millis(100);

/// A path on which each stream carries `per_stream` bytes per second, and all together at most `link`.
#[derive(Clone, Copy)]
struct Path {
    per_stream: f64,
    link: f64,
    size: f64,
}

/// Runs the policy from `first` streams to the end of the file, or for ten minutes. Returns the streams at the
/// end, and the decisions.
fn run(path: &Path, first: u32, most: u32) -> (u32, Vec<MoreStreams>) {
    let mut policy = SessionPolicy::new(most, RTT);
    let (mut streams, mut bytes, mut decisions) = (first, 0.0, Vec::new());
    for tick in 1..6000_u32 {
        let wanted = path.per_stream * f64::from(streams);
        bytes += wanted.min(path.link) * TICK.as_secs_f64();
        if bytes >= path.size {
            break;
        }
        let rtt = if wanted > path.link { RTT * 2 } else { RTT };
        let decision = policy.on_sample(ReceiverSample {
            at: TICK * tick,
            bytes: whole_rate(bytes),
            left: whole_rate(path.size - bytes),
            streams,
            rtt,
        });
        if let Some(decision) = decision {
            streams += decision.streams;
            decisions.push(decision);
        }
    }
    (streams, decisions)
}

#[test]
fn a_full_path_gets_no_more_streams() {
    let path = Path {
        per_stream: 5e6,
        link: 12e6,
        size: 1e9,
    };
    let (streams, decisions) = run(&path, 8, 64);
    assert_eq!(streams, 8);
    assert_eq!(decisions.len(), 1);
    assert!(
        decisions[0].reason.contains("the path is full"),
        "{decisions:?}"
    );
}

#[test]
fn streams_that_losses_limit_are_doubled_until_the_path_is_full() {
    let path = Path {
        per_stream: 0.2e6,
        link: 8e6,
        size: 1e9,
    };
    let (streams, decisions) = run(&path, 8, 256);
    assert_eq!(streams, 64, "{decisions:?}");
}

#[test]
fn the_limit_of_streams_is_kept() {
    let path = Path {
        per_stream: 0.2e6,
        link: 1e9,
        size: 1e9,
    };
    let (streams, decisions) = run(&path, 16, 40);
    assert_eq!(streams, 40, "{decisions:?}");
    assert!(
        decisions
            .last()
            .unwrap()
            .reason
            .ends_with("no more are allowed")
    );
}

#[test]
fn a_file_that_ends_soon_gets_no_more_streams() {
    let path = Path {
        per_stream: 1e6,
        link: 1e9,
        size: 4.5e7,
    };
    let (streams, _) = run(&path, 16, 64);
    assert_eq!(streams, 16);
}

#[test]
fn a_trial_without_gain_is_the_last() {
    let mut policy = SessionPolicy::new(64, RTT);
    let mut streams = 4;
    let mut decisions = Vec::new();
    // A sender that reads its disk at 10 MB/s, whatever the number of streams.
    for tick in 1..1000_u32 {
        let sample = ReceiverSample {
            at: TICK * tick,
            bytes: u64::from(tick) * 1_000_000,
            left: 1 << 40,
            streams,
            rtt: RTT,
        };
        if let Some(decision) = policy.on_sample(sample) {
            streams += decision.streams;
            decisions.push(decision);
        }
    }
    assert_eq!((streams, decisions.len()), (8, 2), "{decisions:?}");
    assert!(decisions[1].reason.ends_with("more do not help"));
}

#[test]
fn a_refusal_ends_the_search() {
    let mut policy = SessionPolicy::new(64, RTT);
    policy.on_refused();
    for tick in 1..200_u32 {
        let sample = ReceiverSample {
            at: TICK * tick,
            bytes: u64::from(tick) * 1_000_000,
            left: 1 << 40,
            streams: 4,
            rtt: RTT,
        };
        assert_eq!(policy.on_sample(sample), None);
    }
}

/// The time from a change of the path after 20.05 s until the policy sees it, and the streams ten seconds later. The path
/// carries `before` and then `after`, each with `rtt` for the round trip.
fn change(rtt: Duration, before: Path, after: Path, queue: Duration) -> (Duration, u32) {
    let change = Duration::from_millis(20_050);
    let mut policy = SessionPolicy::new(64, rtt);
    let (mut streams, mut bytes, mut seen) = (8, 0.0, None);
    for tick in 1..400_u32 {
        let at = TICK * tick;
        let has_changed = at > change;
        let path = if has_changed { &after } else { &before };
        let wanted = path.per_stream * f64::from(streams);
        bytes += wanted.min(path.link) * TICK.as_secs_f64();
        let sample = ReceiverSample {
            at,
            bytes: whole_rate(bytes),
            left: 1 << 40,
            streams,
            rtt: if has_changed { rtt + queue } else { rtt },
        };
        if let Some(decision) = policy.on_sample(sample) {
            streams += decision.streams;
            if has_changed {
                seen.get_or_insert(at - change);
            }
        }
    }
    (seen.unwrap_or(Duration::MAX), streams)
}

#[test]
fn a_change_is_seen_within_about_a_second() {
    let path = |per_stream, link| Path {
        per_stream,
        link,
        size: 0.0,
    };
    // The sender reads 8 MB/s, until losses halve the rate of each stream; until it reads faster; until others share
    // the path.
    let disk = || path(1e6, 8e6);
    for ms in [5, 50, 100] {
        let rtt = Duration::from_millis(ms);
        let (seen, streams) = change(rtt, disk(), path(0.25e6, 8e6), Duration::ZERO);
        assert!(seen <= Duration::from_millis(1300), "{seen:?}");
        assert_eq!(streams, 32);
        let (seen, streams) = change(rtt, disk(), path(1e6, 24e6), Duration::ZERO);
        assert!(seen <= Duration::from_millis(1300), "{seen:?}");
        assert_eq!(streams, 64);
        let (seen, streams) = change(rtt, disk(), path(1e6, 4e6), rtt);
        assert!(seen <= Duration::from_millis(1300), "{seen:?}");
        assert_eq!(streams, 16);
    }
}

#[test]
fn a_moment_without_data_opens_nothing() {
    let mut policy = SessionPolicy::new(64, RTT);
    let (mut streams, mut bytes, mut changes) = (4, 0, 0);
    for tick in 1..6000_u32 {
        // Half a second in ten.
        bytes += if tick % 100 < 5 { 0 } else { 1_000_000 };
        let sample = ReceiverSample {
            at: TICK * tick,
            bytes,
            left: 1 << 40,
            streams,
            rtt: RTT,
        };
        if let Some(decision) = policy.on_sample(sample) {
            streams += decision.streams;
            changes += 1;
        }
    }
    assert_eq!(streams, 8);
    assert!(changes < 40, "{changes}");
}

proptest! {
    #[test]
    fn the_number_never_exceeds_the_limit_and_never_doubles_twice_without_gain(
        per_stream in 1e3..1e8_f64, link in 1e5..1e9_f64, first in 1_u32..64, most in 1_u32..256,
    ) {
        let path = Path { per_stream, link, size: 1e10 };
        let (streams, _) = run(&path, first.min(most), most);
        prop_assert!(streams <= most);
        let enough = (link / per_stream).ceil().max(f64::from(first.min(most)));
        prop_assert!(f64::from(streams) <= enough * 4.0, "{streams} of {enough}");
    }
}
