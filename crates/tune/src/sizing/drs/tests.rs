//! The 2004 loop against scripted arrivals and a fluid model of a path.

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

/// One stream whose kernel grants all that is asked for.
fn look(at: Duration, bytes: u64, rtt: Duration) -> TcpSample {
    TcpSample {
        at,
        bytes,
        min_rtt: rtt,
        ..TcpSample::default()
    }
}

/// A path as a fluid: a window of data on its way, a line, and a queue without end before it.
struct FluidPath {
    /// Bytes per second.
    rate: u64,
    /// Without queue.
    rtt: Duration,
}

impl FluidPath {
    /// 100 Mbit/s, 100 ms: a product of 1.25 MB.
    fn usual() -> Self {
        Self {
            rate: 12_500_000,
            rtt: ms(100),
        }
    }

    /// Bytes per second of a window, and its round trip.
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

    /// Looks for so long; the mean rate, bytes per second.
    fn run(&mut self, path: &FluidPath, time: Duration) -> f64 {
        let (begun, before) = (self.at, self.bytes);
        while self.at < begun + time {
            let (rate, rtt) = path.carries(self.size);
            let mut seen = look(self.at, self.bytes as u64, path.rtt);
            (seen.receive_buffer, seen.receive_window) = (2 * self.size, self.size);
            let step = self.drs.on_samples(self.at, &[seen]);
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

/// Bytes that have arrived of flights that double each round trip, the first of 14 600 bytes at `start`, on
/// a line of `rate` bytes per second.
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
fn the_first_look_announces_the_initial_size_and_nothing_grows_by_itself() {
    let mut drs = drs();
    assert_eq!(drs.round_trip(), None);
    let step = drs.on_samples(ms(0), &[look(ms(0), 0, ms(80))]);
    assert_eq!((step.resize, step.announce), (vec![], Some(64 * KB)));
    assert_eq!(drs.round_trip(), Some(ms(80)), "the handshake's");
    assert_eq!(
        drs.on_samples(ms(20), &[look(ms(20), 0, ms(80))]),
        DrsStep::default()
    );
    assert_eq!(drs.on_samples(ms(20), &[]), DrsStep::default());
}

#[test]
fn the_window_never_holds_slow_start_back() {
    for rtt in [ms(20), ms(100), ms(300)] {
        for phase in 0..10 {
            let mut drs = drs();
            let start = rtt * phase / 10;
            let (mut at, mut size) = (Duration::ZERO, 64 * KB);
            while at < start + 9 * rtt {
                let arrived = |at| slow_start(at, start, rtt, u64::from(u32::MAX));
                let seen = look(at, arrived(at), rtt);
                let step = drs.on_samples(at, &[seen]);
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
fn slow_start_on_a_line_asks_for_no_more_than_twice_the_lines_product() {
    let (rate, rtt) = (12_500_000, ms(100));
    let mut drs = drs();
    let (mut at, mut size) = (Duration::ZERO, 0);
    while at < ms(900) {
        let step = drs.on_samples(at, &[look(at, slow_start(at, ms(7), rtt, rate), rtt)]);
        size = step.resize.first().map_or(size, |(_, size)| *size);
        at += drs.next_sample_in();
    }
    assert!((2_200_000..2_700_000).contains(&size), "{size}");
}

#[test]
fn a_full_path_gets_twice_its_product_and_its_queue_nothing() {
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
fn a_queue_of_its_own_does_not_make_a_buffer_grow_for_ever() {
    let mut course = FluidDrsTransfer::new(drs());
    course.run(&FluidPath::usual(), seconds(300));
    // A longer round trip is tried now and then, and given up.
    assert!(course.largest < 6 * MB, "{}", course.largest);
    assert!(course.size < 3 * MB, "{}", course.size);
}

#[test]
fn a_path_that_becomes_longer_is_filled_again() {
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
fn a_stream_of_an_earlier_transfer_goes_on_with_its_buffer() {
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
    let mut first = look(ms(0), 0, ms(100));
    first.receive_buffer = 2 * kept;
    assert_eq!(drs().on_samples(ms(0), &[first]).announce, Some(kept));
}

#[test]
fn what_is_not_needed_is_given_back_slowly_and_never_too_much() {
    let mut drs = drs();
    let (mut at, mut bytes, mut shrunk) = (Duration::ZERO, 0, Vec::new());
    let mut size = 64 * KB;
    while at < seconds(60) {
        // A busy line, then a tenth of it.
        let rate = if at < seconds(5) {
            12_500_000
        } else {
            1_250_000
        };
        let step = drs.on_samples(at, &[look(at, bytes, ms(100))]);
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

/// The largest size on a full line where every two seconds a segment is lost, and what is in order
/// stands for `hole` milliseconds but for a trickle of bytes a millisecond. `shown`: memory of what
/// waits.
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
        let seen = TcpSample {
            receive_queue_memory: shown(held),
            ..look(at, now * 12_500 - held, ms(100))
        };
        let step = drs.on_samples(at, &[seen]);
        largest = step
            .resize
            .iter()
            .map(|(_, new)| *new)
            .fold(largest, u64::max);
        at += drs.next_sample_in();
    }
    largest
}

/// The counter shows what is in order: behind a lost segment it stands, and then it jumps.
#[test]
fn a_hole_and_what_waited_behind_it_are_no_bandwidth() {
    for trickle in [0, 2_000, 6_000] {
        for hole in [50, 100, 200] {
            let as_over_tun = with_holes(hole, trickle, |held| held * 3 / 2);
            assert!(
                as_over_tun < 2_600_000,
                "{hole} ms, {trickle}: {as_over_tun}"
            );
            // Large segments on a NIC: what is shown is nearly all payload, and is not all believed.
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
fn streams_are_sized_apart_and_forgotten_when_they_end() {
    let mut drs = drs();
    let mut at = Duration::ZERO;
    let mut sizes = BTreeMap::from([(1, 64 * KB), (2, 64 * KB)]);
    let mut announced = 0;
    while at < seconds(3) {
        let stream = |id, rate: u64| TcpSample {
            stream: id,
            ..look(at, at.as_millis() as u64 * rate / 1000, ms(100))
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
        ..look(at, 6_000_000, ms(100))
    };
    assert_eq!(drs.on_samples(at, &[left]).announce, Some(sizes[&2]));
}

#[test]
fn the_kernels_limit_is_learnt_and_not_asked_beyond() {
    let mut drs = drs();
    let granted = 208 * KB;
    let (mut at, mut size, mut asked, mut said) = (Duration::ZERO, 64 * KB, 0, Vec::new());
    while at < seconds(10) {
        let seen = TcpSample {
            receive_buffer: 2 * size,
            ..look(at, at.as_millis() as u64 * 12_500, ms(100))
        };
        let step = drs.on_samples(at, &[seen]);
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
fn probes_go_once_a_round_trip_within_limits() {
    for (rtt, most, least) in [(ms(1), 101, 80), (ms(300), 35, 25), (seconds(5), 11, 8)] {
        let mut drs = drs();
        let (mut at, mut probes) = (Duration::ZERO, 0);
        while at < seconds(10) {
            let step = drs.on_samples(at, &[look(at, 0, rtt)]);
            probes += usize::from(step.announce.is_some());
            at += drs.next_sample_in();
        }
        assert!((least..=most).contains(&probes), "{rtt:?}: {probes}");
    }
}

#[test]
fn echoes_that_cannot_be_are_ignored() {
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

/// Echoes that lie do no harm to a stream that gets on without them.
#[test]
fn forged_echoes_do_not_make_memory() {
    let mut drs = drs();
    let (mut at, mut size) = (Duration::ZERO, 64 * KB);
    while at < seconds(60) {
        let seen = TcpSample {
            receive_buffer: 2 * size,
            receive_window: size,
            ..look(at, at.as_millis() as u64 * 1250, ms(100))
        };
        for n in 0..20 {
            drs.on_echo(ms(100 + 2995 * n));
        }
        let step = drs.on_samples(at, &[seen]);
        size = step.resize.first().map_or(size, |(_, size)| *size);
        assert!(size <= 300_000, "{size}");
        at += drs.next_sample_in();
    }
}

/// Input that a driver may see, possible or not.
#[derive(Debug, Clone)]
enum DrsInput {
    Echo(u64),
    Looks(u64, Vec<(u8, u64, u64, u64, u64)>),
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
            .prop_map(|(at, streams)| DrsInput::Looks(at, streams)),
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
    fn whatever_is_seen_sizes_stay_within_bounds(
        inputs in prop::collection::vec(input(), 0..80),
        interval in interval(),
        initial in 1_u64..1 << 26,
        largest in 1_u64..1 << 26,
    ) {
        let mut drs = DrsReceiverTuner::new(BufferBounds { initial, largest }, interval);
        for input in inputs {
            match input {
                DrsInput::Echo(rtt) => drs.on_echo(Duration::from_nanos(rtt)),
                DrsInput::Looks(at, streams) => {
                    let at = Duration::from_nanos(at);
                    let looks = streams.into_iter().map(|(stream, bytes, min_rtt, buffer, window)| TcpSample {
                        stream: stream.into(),
                        receive_buffer: buffer,
                        receive_window: window,
                        ..look(at, bytes, Duration::from_nanos(min_rtt))
                    });
                    let step = drs.on_samples(at, &looks.collect::<Vec<_>>());
                    let sizes = step.resize.iter().map(|(_, size)| *size);
                    prop_assert!(sizes.chain(step.announce).all(|size| size <= largest));
                }
            }
            prop_assert!((ms(5)..=seconds(4)).contains(&drs.next_sample_in()));
        }
    }

    /// With a kernel that grants all, no size is below the initial one.
    #[test]
    fn no_stream_falls_below_the_initial_size(
        come in prop::collection::vec(0_u64..5_000_000, 1..400),
        rtt in 1_u64..400,
    ) {
        let mut drs = drs();
        let (mut at, mut bytes) = (Duration::ZERO, 0);
        for more in come {
            bytes += more;
            let step = drs.on_samples(at, &[look(at, bytes, ms(rtt))]);
            for (_, size) in step.resize {
                prop_assert!((64 * KB..=16 * MB).contains(&size));
            }
            drs.on_echo(ms(rtt));
            at += drs.next_sample_in();
        }
    }
}
