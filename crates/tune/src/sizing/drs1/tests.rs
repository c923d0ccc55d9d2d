//! The 2003 loop against scripted arrivals.

use proptest::prelude::*;

use super::*;

const KB: u64 = 1 << 10;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A receiver whose kernel grants all that is asked for, with a round trip of 100 ms.
fn look(at: Duration, bytes: u64, size: u64) -> TcpSample {
    TcpSample {
        at,
        bytes,
        min_rtt: ms(100),
        receive_buffer: 2 * size,
        ..TcpSample::default()
    }
}

/// Looks for `time` at a stream that brings `bring(size)` bytes a round trip of 100 ms, evenly;
/// when each size was asked for.
fn follow(time: Duration, bring: impl Fn(u64) -> u64) -> Vec<(Duration, u64)> {
    let mut drs = Drs1ReceiverTuner::new(BufferBounds::default());
    let (mut at, mut bytes, mut asked) = (Duration::ZERO, 0, Vec::new());
    while at < time {
        if let Some(size) = drs.on_sample(&look(at, bytes, drs.size())) {
            assert_eq!(size, drs.size());
            asked.push((at, size));
        }
        bytes += bring(drs.size()) * drs.next_sample_in().as_micros() as u64 / 100_000;
        at += drs.next_sample_in();
    }
    asked
}

#[test]
fn a_full_read_grows_by_four_and_a_partial_one_does_not() {
    let mut drs = Drs1ReceiverTuner::new(BufferBounds::default());
    assert_eq!(drs.on_sample(&look(ms(0), 0, 64 * KB)), None);
    assert_eq!(drs.on_sample(&look(ms(100), 50 * KB, 64 * KB)), None);
    assert_eq!(drs.on_sample(&look(ms(200), 100 * KB, 64 * KB)), None);
    assert_eq!(
        drs.on_sample(&look(ms(300), 160 * KB, 64 * KB)),
        Some(256 * KB)
    );
    assert_eq!(drs.on_sample(&look(ms(300), 160 * KB, 256 * KB)), None);
    assert_eq!(drs.size(), 256 * KB);
}

#[test]
fn a_window_that_comes_in_one_burst_is_seen_wherever_it_falls() {
    for phase in 0..25 {
        let mut drs = Drs1ReceiverTuner::new(BufferBounds::default());
        let mut asked = None;
        for n in 0..20 {
            let at = ms(25 * n + phase);
            let bursts = at.as_millis() as u64 / 100;
            asked = asked.or(drs.on_sample(&look(at, bursts * 64 * KB, drs.size())));
        }
        assert_eq!(asked, Some(256 * KB), "phase {phase} ms");
    }
}

#[test]
fn it_grows_while_the_window_limits_and_stops_when_the_path_does() {
    for path in [125_000, 1_250_000, 12_500_000] {
        let asked = follow(Duration::from_secs(30), |size| size.min(path));
        let (at, last) = *asked.last().unwrap();
        assert!(last >= path && last <= 5 * path, "{path}: {last}");
        assert!(at <= ms(600), "{path}: {at:?}");
    }
    let asked = follow(Duration::from_secs(30), |size| size);
    assert_eq!(asked.last().map(|(_, size)| *size), Some(16 << 20));
    assert_eq!(asked.len(), 4);
}

#[test]
fn it_stops_asking_when_the_kernel_grants_less() {
    let mut drs = Drs1ReceiverTuner::new(BufferBounds::default());
    drs.on_sample(&look(ms(0), 0, 64 * KB));
    assert_eq!(
        drs.on_sample(&look(ms(100), 64 * KB, 64 * KB)),
        Some(256 * KB)
    );
    assert_eq!(drs.on_sample(&look(ms(200), 400 * KB, 208 * KB)), None);
    assert_eq!(drs.on_sample(&look(ms(300), 900 * KB, 208 * KB)), None);
    assert_eq!(drs.size(), 208 * KB);
}

#[test]
fn a_buffer_that_is_larger_than_asked_for_is_not_called_full_early() {
    let mut drs = Drs1ReceiverTuner::new(BufferBounds::default());
    drs.on_sample(&look(ms(0), 0, 1024 * KB));
    assert_eq!(drs.on_sample(&look(ms(100), 500 * KB, 1024 * KB)), None);
}

#[test]
fn looks_follow_the_round_trip_but_do_not_spin() {
    let due = |rtt| {
        let mut drs = Drs1ReceiverTuner::new(BufferBounds::default());
        let first = TcpSample {
            min_rtt: rtt,
            ..TcpSample::default()
        };
        drs.on_sample(&first);
        drs.next_sample_in()
    };
    assert_eq!(
        Drs1ReceiverTuner::new(BufferBounds::default()).next_sample_in(),
        ms(25)
    );
    assert_eq!(due(ms(0)), ms(25));
    assert_eq!(due(ms(200)), ms(50));
    assert_eq!(due(Duration::from_micros(50)), ms(5));
    assert_eq!(due(Duration::MAX), ms(500));
}

proptest! {
    #[test]
    fn whatever_is_seen_sizes_stay_within_bounds(
        looks in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()), 0..60),
        initial in 1_u64..1 << 26,
        largest in 1_u64..1 << 26,
    ) {
        let mut drs = Drs1ReceiverTuner::new(BufferBounds { initial, largest });
        for (at, bytes, min_rtt, receive_buffer) in looks {
            let before = drs.size();
            let asked = drs.on_sample(&TcpSample {
                at: Duration::from_nanos(at),
                bytes,
                min_rtt: Duration::from_nanos(min_rtt),
                receive_buffer,
                ..TcpSample::default()
            });
            prop_assert!(drs.size() <= largest);
            prop_assert!(asked.is_none_or(|size| size == drs.size() && size >= before.min(receive_buffer / 2)));
            prop_assert!(drs.next_sample_in() >= SHORTEST_PAUSE);
        }
    }
}
