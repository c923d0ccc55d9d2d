//! `auto`, which samples its own streams.

use std::time::Duration;

use proptest::prelude::*;
use tune::limiter::Limiter;
use tune::sample::TcpSample;
use tune::streams::auto::{AutoLimits, AutoTuner, TransferSample};

use crate::fluid::{FluidDrive, FluidModel};
use crate::limits_checker::LimitsChecker;

fn any_limits() -> impl Strategy<Value = AutoLimits> {
    let controls = prop::collection::vec(
        prop_oneof![Just("bbr".to_owned()), Just("cubic".to_owned())],
        0..3,
    );
    (0_u32..20, 0_u32..300, controls, any::<bool>()).prop_map(
        |(min_streams, max_streams, congestion, pacing)| AutoLimits {
            min_streams,
            max_streams,
            congestion_controls: congestion,
            may_pace: pacing,
        },
    )
}

/// Any time that a kernel can show: 64 bits of microseconds.
fn any_span() -> impl Strategy<Value = Duration> {
    prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), 0_u64..2_000_000,]
        .prop_map(Duration::from_micros)
}

fn any_count() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), 0_u64..100_000_000]
}

prop_compose! {
    /// Any values of all fields, possible or not.
    fn any_stream_sample()(
        times in prop::collection::vec(any_span(), 7),
        counts in prop::collection::vec(any_count(), 18),
        stream in 0_u64..8, slow_start: bool,
    ) -> TcpSample {
        TcpSample {
            stream,
            at: times[0],
            bytes_acked: counts[0],
            bytes_received: counts[15],
            bytes_sent: counts[16],
            smoothed_rtt: times[1],
            min_rtt: times[2],
            receiver_rtt: times[5],
            send_buffer: counts[1],
            send_queue_memory: counts[2],
            unsent: counts[3],
            unacked: counts[17],
            in_flight: counts[4],
            cwnd: counts[5],
            in_slow_start: slow_start,
            peer_window: counts[6],
            busy_time: times[3],
            rwnd_limited: times[4],
            sndbuf_limited: times[6],
            retransmits: counts[7],
            mss: counts[8],
            delivery_rate: counts[9],
            pacing_rate: counts[9],
            receive_buffer: counts[10],
            receive_queue_memory: counts[11],
            readable: counts[12],
            receive_window: counts[13],
            largest_read: counts[15],
            max_receive_window: counts[14],
        }
    }
}

/// An arbitrary sample of a transfer, and refusals that follow it.
#[derive(Debug, Clone)]
struct ArbitrarySample {
    at: Duration,
    bytes_moved: u64,
    bytes_left: Option<u64>,
    streams: Vec<TcpSample>,
    streams_opening: u32,
    rate_limit: Option<u64>,
    refused: Option<u32>,
    congestion_refused: bool,
}

prop_compose! {
    fn any_sample()(
        at in any_span(), bytes_moved in any_count(), bytes_left in prop::option::of(any_count()),
        streams in prop::collection::vec(any_stream_sample(), 0..6), streams_opening in 0_u32..4,
        rate_limit in prop::option::of(any_count()),
        refused in prop::option::weighted(0.1, 0_u32..40),
        congestion_refused in prop::bool::weighted(0.05),
    ) -> ArbitrarySample {
        ArbitrarySample { at, bytes_moved, bytes_left, streams, streams_opening, rate_limit, refused, congestion_refused }
    }
}

#[track_caller]
fn check_sample(
    auto: &mut AutoTuner,
    checker: &mut LimitsChecker,
    congestion: &str,
    sample: &ArbitrarySample,
) {
    let decisions = auto.on_sample(&TransferSample {
        at: sample.at,
        bytes_moved: sample.bytes_moved,
        bytes_left: sample.bytes_left,
        streams: &sample.streams,
        streams_opening: sample.streams_opening,
        congestion_control: congestion,
        rate_limit: sample.rate_limit,
    });
    checker.check(&decisions);
    let due = auto.next_sample_in();
    assert!(
        (Duration::from_millis(1)..=Duration::from_secs(1)).contains(&due),
        "{due:?}"
    );
    let _: Limiter = auto.limiter();
    let verdict = auto.verdict();
    assert!((1..=checker.max_streams.max(checker.streams)).contains(&verdict.streams));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_samples_are_survived(
        limits in any_limits(), streams in 0_u32..400,
        samples in prop::collection::vec(any_sample(), 0..60),
    ) {
        let mut checker = LimitsChecker::of(&limits, streams);
        let mut auto = AutoTuner::new(limits, streams);
        for sample in &samples {
            check_sample(&mut auto, &mut checker, "cubic", sample);
            if let Some(open) = sample.refused {
                auto.on_stream_refused(open);
                checker.refuse(open);
            }
            if sample.congestion_refused {
                auto.on_congestion_control_refused("bbr");
                checker.congestion.remove("bbr");
            }
        }
    }
}

fn limits(max_streams: u32) -> AutoLimits {
    AutoLimits {
        min_streams: 1,
        max_streams,
        congestion_controls: Vec::new(),
        may_pace: true,
    }
}

prop_compose! {
    fn any_fluid()(
        bandwidth in 1e6..1.25e8_f64, window in 3e4..8e6_f64, rtt in 0.001..0.2_f64,
        loss in prop_oneof![Just(0.0), 1e-5..0.02_f64],
        store in prop_oneof![Just(f64::INFINITY), 1e6..1e8_f64],
    ) -> FluidModel {
        FluidModel { bandwidth, window, rtt, loss, store }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn changes_become_rare_on_a_stable_path(path in any_fluid(), first in 1_u32..32) {
        let mut drive = FluidDrive::new(limits(64), first);
        drive.run(180.0, path);
        let late = drive.changes.iter().filter(|at| **at > 90.0).count();
        // A trial that is reverted counts as two changes.
        prop_assert!(late <= 18, "{late} changes in 90 s: {:?}", drive.changes);
    }

    #[test]
    fn streams_that_were_refused_are_not_requested_again(path in any_fluid(), open in 1_u32..8) {
        let mut drive = FluidDrive::new(limits(64), 1);
        drive.run(5.0, path);
        let open = open.min(drive.streams);
        drive.auto.on_stream_refused(open);
        drive.checker.refuse(open);
        drive.streams = drive.streams.min(open);
        drive.adjust();
        // The checker fails if more streams are requested.
        drive.run(30.0, path);
        prop_assert!(drive.streams <= open);
    }

    #[test]
    fn a_fixed_number_of_streams_stays(path in any_fluid(), n in 1_u32..16) {
        let fixed = AutoLimits { min_streams: n, max_streams: n, ..limits(n) };
        let mut drive = FluidDrive::new(fixed, n);
        drive.run(60.0, path);
        prop_assert!(drive.changes.is_empty());
    }
}

#[test]
fn a_crowded_path_is_left_by_all_streams_but_one() {
    // The queue of a hundred transfers is that of others, and so short that it is never seen.
    let crowd = FluidModel {
        bandwidth: 1.25e8,
        window: 64e3,
        rtt: 0.02,
        loss: 0.4,
        store: f64::INFINITY,
    };
    let mut drive = FluidDrive::new(limits(64), 16);
    drive.run(3.0, crowd);
    assert_eq!(drive.streams, 1, "{:?}", drive.changes);
    // A path that loses by itself is none.
    let lossy = FluidModel { loss: 0.1, ..crowd };
    let mut drive = FluidDrive::new(limits(64), 16);
    drive.run(3.0, lossy);
    assert!(drive.streams > 4, "{:?}", drive.changes);
}
