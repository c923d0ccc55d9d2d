//! The policy that looks at its own streams.

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
    (0_u32..20, 0_u32..300, controls, any::<bool>()).prop_map(|(least, most, congestion, pace)| {
        AutoLimits {
            min_streams: least,
            max_streams: most,
            congestion_controls: congestion,
            may_pace: pace,
        }
    })
}

/// Kernels count microseconds in 64 bits.
fn any_span() -> impl Strategy<Value = Duration> {
    prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), 0_u64..2_000_000,]
        .prop_map(Duration::from_micros)
}

fn any_count() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), 0_u64..100_000_000]
}

prop_compose! {
    /// A stream as no kernel shows it.
    fn any_look()(
        times in prop::collection::vec(any_span(), 5),
        counts in prop::collection::vec(any_count(), 16),
        stream in 0_u64..8, slow_start: bool,
    ) -> TcpSample {
        TcpSample {
            stream,
            at: times[0],
            bytes: counts[0],
            smoothed_rtt: times[1],
            min_rtt: times[2],
            send_buffer: counts[1],
            send_queue_memory: counts[2],
            unsent: counts[3],
            in_flight: counts[4],
            cwnd: counts[5],
            in_slow_start: slow_start,
            peer_window: counts[6],
            busy_time: times[3],
            rwnd_limited: times[4],
            retransmits: counts[7],
            mss: counts[8],
            delivery_rate: counts[9],
            receive_buffer: counts[10],
            receive_queue_memory: counts[11],
            readable: counts[12],
            receive_window: counts[13],
            max_receive_window: counts[14],
        }
    }
}

/// A moment of a transfer as none is.
#[derive(Debug, Clone)]
struct ArbitrarySample {
    at: Duration,
    moved: u64,
    left: Option<u64>,
    looks: Vec<TcpSample>,
    opening: u32,
    rate_limit: Option<u64>,
    refused: Option<u32>,
    congestion_refused: bool,
}

prop_compose! {
    fn any_moment()(
        at in any_span(), moved in any_count(), left in prop::option::of(any_count()),
        looks in prop::collection::vec(any_look(), 0..6), opening in 0_u32..4,
        rate_limit in prop::option::of(any_count()),
        refused in prop::option::weighted(0.1, 0_u32..40),
        congestion_refused in prop::bool::weighted(0.05),
    ) -> ArbitrarySample {
        ArbitrarySample { at, moved, left, looks, opening, rate_limit, refused, congestion_refused }
    }
}

#[track_caller]
fn show(
    auto: &mut AutoTuner,
    watch: &mut LimitsChecker,
    congestion: &str,
    moment: &ArbitrarySample,
) {
    let decisions = auto.on_sample(&TransferSample {
        at: moment.at,
        bytes_moved: moment.moved,
        bytes_left: moment.left,
        streams: &moment.looks,
        streams_opening: moment.opening,
        congestion_control: congestion,
        rate_limit: moment.rate_limit,
    });
    watch.check(&decisions);
    let due = auto.next_sample_in();
    assert!(
        (Duration::from_millis(1)..=Duration::from_secs(1)).contains(&due),
        "{due:?}"
    );
    let _: Limiter = auto.limiter();
    let verdict = auto.verdict();
    assert!((1..=watch.most.max(watch.streams)).contains(&verdict.streams));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn absurd_scenes_are_survived(
        limits in any_limits(), streams in 0_u32..400,
        moments in prop::collection::vec(any_moment(), 0..60),
    ) {
        let mut watch = LimitsChecker::of(&limits, streams);
        let mut auto = AutoTuner::new(limits, streams);
        for moment in &moments {
            show(&mut auto, &mut watch, "cubic", moment);
            if let Some(open) = moment.refused {
                auto.on_stream_refused(open);
                watch.refuse(open);
            }
            if moment.congestion_refused {
                auto.on_congestion_control_refused("bbr");
                watch.congestion.remove("bbr");
            }
        }
    }
}

fn limits(most: u32) -> AutoLimits {
    AutoLimits {
        min_streams: 1,
        max_streams: most,
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
    fn a_path_that_stays_is_left_alone(path in any_fluid(), first in 1_u32..32) {
        let mut drive = FluidDrive::new(limits(64), first);
        drive.run(180.0, path);
        let late = drive.changes.iter().filter(|at| **at > 90.0).count();
        // A trial is two changes: there and back.
        prop_assert!(late <= 18, "{late} changes in 90 s: {:?}", drive.changes);
    }

    #[test]
    fn what_cannot_be_opened_is_not_asked_for_again(path in any_fluid(), open in 1_u32..8) {
        let mut drive = FluidDrive::new(limits(64), 1);
        drive.run(5.0, path);
        let open = open.min(drive.streams);
        drive.auto.on_stream_refused(open);
        drive.watch.refuse(open);
        drive.streams = drive.streams.min(open);
        drive.adjust();
        // The watch fails if more is asked for.
        drive.run(30.0, path);
        prop_assert!(drive.streams <= open);
    }

    #[test]
    fn a_fixed_number_stays(path in any_fluid(), n in 1_u32..16) {
        let fixed = AutoLimits { min_streams: n, max_streams: n, ..limits(n) };
        let mut drive = FluidDrive::new(fixed, n);
        drive.run(60.0, path);
        prop_assert!(drive.changes.is_empty());
    }
}
