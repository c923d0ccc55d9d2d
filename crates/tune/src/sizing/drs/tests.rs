//! The loop of 2004 with scripted arrivals and on a fluid model of a path.

use proptest::prelude::*;

use super::*;

const KB: u64 = 1 << 10;
const MB: u64 = 1 << 20;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn drs() -> DrsReceiverTuner {
    DrsReceiverTuner::new(BufferBounds::default(), DrsInterval::Adaptive)
}

/// Sample of a stream whose kernel grants every size.
fn sample(at: Duration, bytes: u64, rtt: Duration) -> TcpSample {
    TcpSample {
        at,
        bytes_received: bytes,
        min_rtt: rtt,
        ..TcpSample::default()
    }
}

/// Fluid model of a path: a line with an infinite queue before it.
struct FluidPath {
    /// Bytes per second.
    rate: u64,
    /// Without queue.
    rtt: Duration,
}

impl FluidPath {
    /// 100 Mbit/s over 100 ms: a bandwidth-delay product of 1.25 MB.
    fn usual() -> Self {
        Self {
            rate: 12_500_000,
            rtt: ms(100),
        }
    }

    /// Rate of a stream with this window, bytes per second, and its round trip.
    fn carries(&self, window: u64) -> (f64, Duration) {
        let limited = window as f64 / self.rtt.as_secs_f64();
        let rate = limited.min(self.rate as f64);
        (
            rate,
            self.rtt.max(Duration::from_secs_f64(window as f64 / rate)),
        )
    }
}

/// A transfer of one stream on a [`FluidPath`], limited by its window only.
struct FluidDrsTransfer {
    drs: DrsReceiverTuner,
    at: Duration,
    bytes: f64,
    size: u64,
    largest: u64,
}

impl FluidDrsTransfer {
    fn new(drs: DrsReceiverTuner) -> Self {
        let size = 64 * KB;
        Self {
            drs,
            at: Duration::ZERO,
            bytes: 0.0,
            size,
            largest: size,
        }
    }

    /// Samples the stream for `time`; returns the mean rate, bytes per second.
    fn run(&mut self, path: &FluidPath, time: Duration) -> f64 {
        let (begun, before) = (self.at, self.bytes);
        while self.at < begun + time {
            let (rate, rtt) = path.carries(self.size);
            let mut sample = sample(self.at, self.bytes as u64, path.rtt);
            (sample.receive_buffer, sample.receive_window) = (2 * self.size, self.size);
            let step = self.drs.on_samples(self.at, &[sample]);
            self.size = step.resize.first().map_or(self.size, |(_, size)| *size);
            self.largest = self.largest.max(self.size);
            if step.announce.is_some() {
                self.drs.on_echo(rtt);
            }
            self.bytes += rate * self.drs.next_sample_in().as_secs_f64();
            self.at += self.drs.next_sample_in();
        }
        (self.bytes - before) / (self.at - begun).as_secs_f64()
    }
}

/// Bytes that have arrived in slow start on a line of `rate` bytes per second: flights double each round
/// trip, the first has 14 600 bytes and begins at `start`.
fn slow_start(at: Duration, start: Duration, rtt: Duration, rate: u64) -> u64 {
    let (mut arrived, mut free) = (0, Duration::ZERO);
    for flight in 0..12_u32 {
        let bytes = 14_600_u64 << flight;
        let begins = free.max(start + flight * rtt);
        let on_the_line = (rate as f64 * at.saturating_sub(begins).as_secs_f64()) as u64;
        arrived += on_the_line.min(bytes);
        free = begins + Duration::from_secs_f64(bytes as f64 / rate as f64);
    }
    arrived
}

#[test]
fn the_first_sample_announces_the_initial_size_and_an_idle_stream_does_not_grow() {
    let mut drs = drs();
    assert_eq!(drs.round_trip(), None);
    let step = drs.on_samples(ms(0), &[sample(ms(0), 0, ms(80))]);
    assert_eq!((step.resize, step.announce), (vec![], Some(64 * KB)));
    assert_eq!(drs.round_trip(), Some(ms(80)), "the handshake's");
    assert_eq!(
        drs.on_samples(ms(20), &[sample(ms(20), 0, ms(80))]),
        DrsStep::default()
    );
    assert_eq!(drs.on_samples(ms(20), &[]), DrsStep::default());
}

#[test]
fn the_window_never_limits_slow_start() {
    for rtt in [ms(20), ms(100), ms(300)] {
        for phase in 0..10 {
            let mut drs = drs();
            let start = rtt * phase / 10;
            let (mut at, mut size) = (Duration::ZERO, 64 * KB);
            while at < start + 9 * rtt {
                let arrived = |at| slow_start(at, start, rtt, u64::from(u32::MAX));
                let sample = sample(at, arrived(at), rtt);
                let step = drs.on_samples(at, &[sample]);
                size = step.resize.first().map_or(size, |(_, size)| *size);
                let next = at + drs.next_sample_in();
                let flight = arrived(next) - arrived(next.saturating_sub(rtt));
                assert!(
                    size + KB >= (2 * flight).min(16 * MB),
                    "{rtt:?}, {phase}: {size} when {flight} are acknowledged at {next:?}"
                );
                at = next;
            }
        }
    }
}

#[test]
fn slow_start_gets_at_most_twice_the_bandwidth_delay_product() {
    let (rate, rtt) = (12_500_000, ms(100));
    let mut drs = drs();
    let (mut at, mut size) = (Duration::ZERO, 0);
    while at < ms(900) {
        let step = drs.on_samples(at, &[sample(at, slow_start(at, ms(7), rtt, rate), rtt)]);
        size = step.resize.first().map_or(size, |(_, size)| *size);
        at += drs.next_sample_in();
    }
    assert!((2_200_000..2_700_000).contains(&size), "{size}");
}

#[test]
fn a_full_path_gets_twice_its_bandwidth_delay_product_without_the_queue() {
    for (rate, rtt) in [
        (1_250_000, 50),
        (12_500_000, 10),
        (12_500_000, 100),
        (125_000_000, 40),
    ] {
        let path = FluidPath { rate, rtt: ms(rtt) };
        let mut course = FluidDrsTransfer::new(drs());
        course.run(&path, seconds(2));
        assert!(course.run(&path, seconds(18)) > 0.99 * rate as f64);
        let product = rate * rtt / 1000;
        let twice = 2 * product - 2 * product / 8..=2 * product + product / 4;
        assert!(
            twice.contains(&course.size) || product < 32 * KB,
            "{}",
            course.size
        );
    }
}

#[test]
fn a_buffer_does_not_follow_its_own_queue_upwards() {
    let mut course = FluidDrsTransfer::new(drs());
    course.run(&FluidPath::usual(), seconds(300));
    // A longer round trip is tried from time to time, without a gain.
    assert!(course.largest < 6 * MB, "{}", course.largest);
    assert!(course.size < 3 * MB, "{}", course.size);
}

#[test]
fn a_path_whose_round_trip_becomes_longer_is_filled_again() {
    let mut course = FluidDrsTransfer::new(drs());
    course.run(&FluidPath::usual(), seconds(20));
    let longer = FluidPath {
        rtt: ms(400),
        ..FluidPath::usual()
    };
    let at_first = course.run(&longer, ms(500));
    assert!(at_first < 8_000_000.0, "{at_first}");
    course.run(&longer, seconds(5));
    let filled = course.run(&longer, seconds(10));
    assert!(filled > 12_400_000.0, "{filled}");
    assert!(course.size < 12 * MB, "{}", course.size);
}

#[test]
fn a_connection_of_an_earlier_transfer_keeps_its_buffer() {
    let mut course = FluidDrsTransfer::new(drs());
    course.run(&FluidPath::usual(), seconds(5));
    let kept = course.size;
    let mut next = FluidDrsTransfer {
        size: kept,
        ..FluidDrsTransfer::new(drs())
    };
    let (begun, mut smallest) = (next.at, kept);
    while next.at < begun + seconds(4) {
        next.run(&FluidPath::usual(), ms(50));
        smallest = smallest.min(next.size);
    }
    assert_eq!(smallest, kept);
    let mut first = sample(ms(0), 0, ms(100));
    first.receive_buffer = 2 * kept;
    assert_eq!(drs().on_samples(ms(0), &[first]).announce, Some(kept));
}

#[test]
fn an_unneeded_buffer_shrinks_slowly_and_never_below_the_need() {
    let mut drs = drs();
    let (mut at, mut bytes, mut shrunk) = (Duration::ZERO, 0, Vec::new());
    let mut size = 64 * KB;
    while at < seconds(60) {
        // A full line, then a tenth of its rate.
        let rate = if at < seconds(5) {
            12_500_000
        } else {
            1_250_000
        };
        let step = drs.on_samples(at, &[sample(at, bytes, ms(100))]);
        if let Some((_, new)) = step.resize.first() {
            if *new < size {
                shrunk.push((at, *new));
            }
            size = *new;
        }
        bytes += rate * drs.next_sample_in().as_millis() as u64 / 1000;
        at += drs.next_sample_in();
    }
    let mut before = seconds(5);
    for (at, _) in &shrunk {
        assert!(*at - before >= seconds(5), "{shrunk:?}");
        before = *at;
    }
    assert!(shrunk.len() >= 2, "{shrunk:?}");
    assert!((250_000..700_000).contains(&size), "{size}");
}

/// Largest size on a full line that loses a segment every two seconds. The count of bytes in order then
/// grows by only `trickle` bytes per millisecond for `hole` milliseconds. `shown`: memory of the receive queue for
/// the bytes that wait.
fn with_holes(hole: u64, trickle: u64, shown: impl Fn(u64) -> u64) -> u64 {
    let mut drs = drs();
    let (mut at, mut largest) = (Duration::ZERO, 0);
    while at < seconds(20) {
        let now = at.as_millis() as u64;
        let into = if now < 2000 { hole } else { now % 2000 };
        let held = if into < hole {
            into * (12_500 - trickle)
        } else {
            0
        };
        let sample = TcpSample {
            receive_queue_memory: shown(held),
            ..sample(at, now * 12_500 - held, ms(100))
        };
        let step = drs.on_samples(at, &[sample]);
        largest = step
            .resize
            .iter()
            .map(|(_, new)| *new)
            .fold(largest, u64::max);
        at += drs.next_sample_in();
    }
    largest
}

/// The kernel counts bytes in order: behind a lost segment its counter stands still and then jumps.
#[test]
fn a_jump_of_the_counter_after_a_loss_does_not_count_as_bandwidth() {
    for trickle in [0, 2_000, 6_000] {
        for hole in [50, 100, 200] {
            let as_over_tun = with_holes(hole, trickle, |held| held * 3 / 2);
            assert!(
                as_over_tun < 2_600_000,
                "{hole} ms, {trickle}: {as_over_tun}"
            );
            // With large segments nearly all of the memory is payload, of which only two thirds count.
            let as_on_a_nic = with_holes(hole, trickle, |held| held * 16 / 15);
            assert!(
                as_on_a_nic < 5_000_000,
                "{hole} ms, {trickle}: {as_on_a_nic}"
            );
        }
        let unknown = with_holes(100, trickle, |_| 0);
        assert!(unknown < 3_300_000, "{trickle}: {unknown}");
    }
}

#[test]
fn each_stream_has_its_own_size_until_it_ends() {
    let mut drs = drs();
    let mut at = Duration::ZERO;
    let mut sizes = BTreeMap::from([(1, 64 * KB), (2, 64 * KB)]);
    let mut announced = 0;
    while at < seconds(3) {
        let stream = |id, rate: u64| TcpSample {
            stream: id,
            ..sample(at, at.as_millis() as u64 * rate / 1000, ms(100))
        };
        let step = drs.on_samples(at, &[stream(1, 10_000_000), stream(2, 2_000_000)]);
        sizes.extend(step.resize);
        announced = step.announce.unwrap_or(announced);
        at += drs.next_sample_in();
    }
    assert!((1_900_000..2_400_000).contains(&sizes[&1]), "{sizes:?}");
    assert!((380_000..480_000).contains(&sizes[&2]), "{sizes:?}");
    assert_eq!(announced, sizes[&1], "the largest");
    let left = TcpSample {
        stream: 2,
        ..sample(at, 6_000_000, ms(100))
    };
    assert_eq!(drs.on_samples(at, &[left]).announce, Some(sizes[&2]));
}

#[test]
fn no_size_beyond_the_kernels_limit_is_requested_again() {
    let mut drs = drs();
    let granted = 208 * KB;
    let (mut at, mut size, mut asked, mut said) = (Duration::ZERO, 64 * KB, 0, Vec::new());
    while at < seconds(10) {
        let sample = TcpSample {
            receive_buffer: 2 * size,
            ..sample(at, at.as_millis() as u64 * 12_500, ms(100))
        };
        let step = drs.on_samples(at, &[sample]);
        said.extend(step.announce);
        for (_, new) in step.resize {
            asked += 1;
            size = new.min(granted);
        }
        at += drs.next_sample_in();
    }
    assert_eq!((size, said.last()), (granted, Some(&granted)));
    assert!(asked < 5, "{asked}");
}

#[test]
fn messages_are_sent_once_per_round_trip_within_limits() {
    for (rtt, most, least) in [(ms(1), 101, 80), (ms(300), 35, 25), (seconds(5), 11, 8)] {
        let mut drs = drs();
        let (mut at, mut probes) = (Duration::ZERO, 0);
        while at < seconds(10) {
            let step = drs.on_samples(at, &[sample(at, 0, rtt)]);
            probes += usize::from(step.announce.is_some());
            at += drs.next_sample_in();
        }
        assert!((least..=most).contains(&probes), "{rtt:?}: {probes}");
    }
}

#[test]
fn impossible_echoes_are_ignored() {
    let mut drs = drs();
    drs.on_echo(Duration::ZERO);
    drs.on_echo(ms(60_001));
    drs.on_echo(Duration::MAX);
    assert_eq!(drs.round_trip(), None);
    drs.on_echo(ms(120));
    assert_eq!(drs.round_trip(), Some(ms(120)));
    drs.on_echo(ms(90));
    drs.on_echo(ms(60_000));
    assert_eq!(drs.round_trip(), Some(ms(90)));
    drs.on_echo(Duration::from_nanos(1));
    assert_eq!(drs.round_trip(), Some(ms(1)), "hosts need as long");
}

/// Forged echoes do not enlarge the buffer of a stream whose window does not limit.
#[test]
fn forged_echoes_do_not_enlarge_buffers() {
    let mut drs = drs();
    let (mut at, mut size) = (Duration::ZERO, 64 * KB);
    while at < seconds(60) {
        let sample = TcpSample {
            receive_buffer: 2 * size,
            receive_window: size,
            ..sample(at, at.as_millis() as u64 * 1250, ms(100))
        };
        for n in 0..20 {
            drs.on_echo(ms(100 + 2995 * n));
        }
        let step = drs.on_samples(at, &[sample]);
        size = step.resize.first().map_or(size, |(_, size)| *size);
        assert!(size <= 300_000, "{size}");
        at += drs.next_sample_in();
    }
}

/// Arbitrary input, possible or not.
#[derive(Debug, Clone)]
enum DrsInput {
    Echo(u64),
    Samples(u64, Vec<(u8, u64, u64, u64, u64)>),
}

fn input() -> impl Strategy<Value = DrsInput> {
    let nanoseconds = prop_oneof![0..2_u64, 0..100_000_000_000_u64, any::<u64>()];
    let stream = (
        0..4_u8,
        any::<u64>(),
        nanoseconds.clone(),
        any::<u64>(),
        any::<u64>(),
    );
    prop_oneof![
        nanoseconds.clone().prop_map(DrsInput::Echo),
        (nanoseconds, prop::collection::vec(stream, 0..4))
            .prop_map(|(at, streams)| DrsInput::Samples(at, streams)),
    ]
}

fn interval() -> impl Strategy<Value = DrsInterval> {
    prop_oneof![
        Just(DrsInterval::Adaptive),
        any::<u64>().prop_map(|n| DrsInterval::Fixed(Duration::from_nanos(n))),
        Just(DrsInterval::Fixed(Duration::MAX)),
    ]
}

proptest! {
    #[test]
    fn sizes_stay_within_bounds_for_arbitrary_input(
        inputs in prop::collection::vec(input(), 0..80),
        interval in interval(),
        initial in 1_u64..1 << 26,
        largest in 1_u64..1 << 26,
    ) {
        let mut drs = DrsReceiverTuner::new(BufferBounds { initial, largest }, interval);
        for input in inputs {
            match input {
                DrsInput::Echo(rtt) => drs.on_echo(Duration::from_nanos(rtt)),
                DrsInput::Samples(at, streams) => {
                    let at = Duration::from_nanos(at);
                    let samples = streams.into_iter().map(|(stream, bytes, min_rtt, buffer, window)| TcpSample {
                        stream: stream.into(),
                        receive_buffer: buffer,
                        receive_window: window,
                        ..sample(at, bytes, Duration::from_nanos(min_rtt))
                    });
                    let step = drs.on_samples(at, &samples.collect::<Vec<_>>());
                    let sizes = step.resize.iter().map(|(_, size)| *size);
                    prop_assert!(sizes.chain(step.announce).all(|size| size <= largest));
                }
            }
            prop_assert!((ms(5)..=seconds(4)).contains(&drs.next_sample_in()));
        }
    }

    /// With a kernel that grants every size, no size is below the initial one.
    #[test]
    fn no_stream_falls_below_the_initial_size(
        come in prop::collection::vec(0_u64..5_000_000, 1..400),
        rtt in 1_u64..400,
    ) {
        let mut drs = drs();
        let (mut at, mut bytes) = (Duration::ZERO, 0);
        for more in come {
            bytes += more;
            let step = drs.on_samples(at, &[sample(at, bytes, ms(rtt))]);
            for (_, size) in step.resize {
                prop_assert!((64 * KB..=16 * MB).contains(&size));
            }
            drs.on_echo(ms(rtt));
            at += drs.next_sample_in();
        }
    }
}
