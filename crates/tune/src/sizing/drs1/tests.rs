//! The loop of 2003 with scripted arrivals.

use proptest::prelude::*;

use super::*;

const KB: u64 = 1 << 10;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn tuner() -> Drs1ReceiverTuner {
    Drs1ReceiverTuner::new(BufferBounds::default(), Drs1Reads::default())
}

/// Sample of a receiver over 100 ms whose kernel grants every size.
fn sample(at: Duration, bytes: u64, size: u64) -> TcpSample {
    TcpSample {
        at,
        bytes_received: bytes,
        min_rtt: ms(100),
        receive_buffer: 2 * size,
        ..TcpSample::default()
    }
}

/// Samples a stream for `time`. It receives `bring(size)` bytes per round trip of 100 ms, evenly. Returns
/// the requested sizes and their times.
fn follow(time: Duration, bring: impl Fn(u64) -> u64) -> Vec<(Duration, u64)> {
    let mut drs = tuner();
    let (mut at, mut bytes, mut asked) = (Duration::ZERO, 0, Vec::new());
    while at < time {
        if let Some(size) = drs.on_sample(&sample(at, bytes, drs.size())) {
            assert_eq!(size, drs.size());
            asked.push((at, size));
        }
        bytes += bring(drs.size()) * drs.next_sample_in().as_micros() as u64 / 100_000;
        at += drs.next_sample_in();
    }
    asked
}

#[test]
fn a_full_read_quadruples_the_buffer_and_a_partial_one_does_not() {
    let mut drs = tuner();
    assert_eq!(drs.on_sample(&sample(ms(0), 0, 64 * KB)), None);
    assert_eq!(drs.on_sample(&sample(ms(100), 50 * KB, 64 * KB)), None);
    assert_eq!(drs.on_sample(&sample(ms(200), 100 * KB, 64 * KB)), None);
    assert_eq!(
        drs.on_sample(&sample(ms(300), 160 * KB, 64 * KB)),
        Some(256 * KB)
    );
    assert_eq!(drs.on_sample(&sample(ms(300), 160 * KB, 256 * KB)), None);
    assert_eq!(drs.size(), 256 * KB);
}

/// The threshold is half of the reported buffer, which is the size, and the factor is four (§4.1).
#[test]
fn as_published_one_read_of_more_than_half_of_the_reported_buffer_quadruples_it() {
    let mut drs = Drs1ReceiverTuner::new(BufferBounds::default(), Drs1Reads::Published);
    let mut read = |at, bytes, size| {
        let largest_read = bytes;
        drs.on_sample(&TcpSample {
            largest_read,
            ..sample(ms(at), 100 * at * KB, size)
        })
    };
    assert_eq!(read(0, 64 * KB, 64 * KB), None, "not more than the half");
    assert_eq!(read(5, 64 * KB + 1, 64 * KB), Some(256 * KB));
    assert_eq!(read(10, 64 * KB + 1, 256 * KB), None);
    // Much arrives, in small reads.
    assert_eq!(read(1000, KB, 256 * KB), None);
    assert_eq!(read(1005, 300 * KB, 256 * KB), Some(1024 * KB));
}

#[test]
fn a_window_that_arrives_in_one_burst_is_noticed_at_any_phase() {
    for phase in 0..25 {
        let mut drs = tuner();
        let mut asked = None;
        for n in 0..20 {
            let at = ms(25 * n + phase);
            let bursts = at.as_millis() as u64 / 100;
            asked = asked.or(drs.on_sample(&sample(at, bursts * 64 * KB, drs.size())));
        }
        assert_eq!(asked, Some(256 * KB), "phase {phase} ms");
    }
}

#[test]
fn the_buffer_grows_until_the_path_limits() {
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
fn no_further_size_is_requested_once_the_kernel_grants_less() {
    let mut drs = tuner();
    drs.on_sample(&sample(ms(0), 0, 64 * KB));
    assert_eq!(
        drs.on_sample(&sample(ms(100), 64 * KB, 64 * KB)),
        Some(256 * KB)
    );
    assert_eq!(drs.on_sample(&sample(ms(200), 400 * KB, 208 * KB)), None);
    assert_eq!(drs.on_sample(&sample(ms(300), 900 * KB, 208 * KB)), None);
    assert_eq!(drs.size(), 208 * KB);
}

#[test]
fn a_buffer_larger_than_requested_must_be_filled_to_grow() {
    let mut drs = tuner();
    drs.on_sample(&sample(ms(0), 0, 1024 * KB));
    assert_eq!(drs.on_sample(&sample(ms(100), 500 * KB, 1024 * KB)), None);
}

#[test]
fn samples_follow_the_round_trip_with_a_shortest_pause() {
    let due = |rtt| {
        let mut drs = tuner();
        let first = TcpSample {
            min_rtt: rtt,
            ..TcpSample::default()
        };
        drs.on_sample(&first);
        drs.next_sample_in()
    };
    assert_eq!(tuner().next_sample_in(), ms(25));
    assert_eq!(due(ms(0)), ms(25));
    assert_eq!(due(ms(200)), ms(50));
    assert_eq!(due(Duration::from_micros(50)), ms(5));
    assert_eq!(due(Duration::MAX), ms(500));
}

proptest! {
    #[test]
    fn sizes_stay_within_bounds_for_arbitrary_input(
        samples in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()), 0..60),
        initial in 1_u64..1 << 26,
        largest in 1_u64..1 << 26,
    ) {
        let mut drs = Drs1ReceiverTuner::new(BufferBounds { initial, largest }, Drs1Reads::default());
        for (at, bytes, min_rtt, receive_buffer) in samples {
            let before = drs.size();
            let asked = drs.on_sample(&TcpSample {
                at: Duration::from_nanos(at),
                bytes_received: bytes,
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
