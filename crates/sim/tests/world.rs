//! Flows over a bottleneck, compared with theory.

#![allow(clippy::unwrap_used, reason = "tests")]

mod network;

use std::sync::Arc;
use std::time::Duration;

use link::trace::{PathTrace, TracePoint};
use link::{Conditions, Loss, Queue, Reorder};
use network::{MSS, fairness, flow, link, mbit, megabits, ms, seconds, stats_between, ten_megabit};
use proptest::prelude::*;
use sim::tcp::{CongestionAlgorithm, TcpConfig};
use sim::world::{
    AccessLink, CrossTraffic, FlowSpec, FlowStats, Scenario, Simulation, TrafficSource,
};
use units::Rate;

/// Largest payload rate of a 10 Mbit/s link, Mbit/s.
const TEN_MEGABIT_PAYLOAD: f64 = 10.0 * 1460.0 / 1500.0;

#[test]
fn a_window_limited_flow_gets_a_window_a_round_trip() {
    let access = AccessLink {
        rate: Some(mbit(1000)),
        delay: ms(1),
        shared: false,
    };
    let mut spec = flow(CongestionAlgorithm::NewReno);
    spec.tcp.receive_buffer = 65_536;
    (spec.sender_access, spec.receiver_access) = (access, access);
    let mut simulation = Simulation::new(&Scenario {
        forward: link(Some(mbit(100)), ms(10), Queue::Packets(1000)),
        reverse: link(Some(mbit(100)), ms(10), Queue::Packets(1000)),
        flows: vec![spec],
        cross_traffic: Vec::new(),
        seed: 1,
    });
    simulation.run_until(seconds(5));
    let before = simulation.flow(0);
    // 24 ms, and 1 540 bytes at 100 Mbit/s and twice at 1 Gbit/s.
    let rtt = ms(24) + Duration::from_nanos(1540 * 8 * (10 + 1 + 1));
    simulation.run_until(seconds(5) + 1000 * rtt);
    let flow = simulation.flow(0).since(&before);
    assert_eq!(flow.delivered_bytes, 1000 * (65_536 / MSS) * MSS);
    // Only packets of the first window's burst were queued.
    assert_eq!(flow.min_rtt(), Some(rtt));
    let waits = flow.sender.limited_times;
    assert_eq!(waits.rwnd_limited, flow.at);
}

/// Eight windows at once overflow the queue. On own links they arrive interleaved, and each loses its end.
#[test]
fn a_shared_access_link_concentrates_the_losses_of_a_burst() {
    let unharmed = |shared| {
        let access = AccessLink {
            rate: Some(mbit(1000)),
            delay: ms(1),
            shared,
        };
        let mut spec = flow(CongestionAlgorithm::NewReno);
        spec.tcp.initial_window = 40;
        spec.tcp.receive_buffer = 40 * MSS;
        (spec.sender_access, spec.receiver_access) = (access, access);
        let mut simulation = Simulation::new(&Scenario {
            forward: link(Some(mbit(100)), ms(10), Queue::Packets(200)),
            reverse: link(Some(mbit(100)), ms(10), Queue::Packets(1000)),
            flows: vec![spec; 8],
            cross_traffic: Vec::new(),
            seed: 1,
        });
        simulation.run_until(ms(20));
        (0..8).filter(|f| simulation.flow(*f).drops == 0).count()
    };
    assert_eq!(unharmed(false), 0);
    assert!(unharmed(true) >= 4);
}

#[test]
fn newreno_has_a_mean_window_of_three_quarters_of_its_peak() {
    // A queue far below the bandwidth-delay product: the round trip hardly changes.
    let mut simulation = Simulation::new(&ten_megabit(8, vec![flow(CongestionAlgorithm::NewReno)]));
    simulation.run_until(seconds(60));
    let recoveries = simulation.flow(0).sender.recoveries;
    let (mut sum, mut count, mut peak) = (0.0, 0.0, 0.0_f64);
    for tick in 1..=10_000 {
        simulation.run_until(seconds(60) + ms(10) * tick);
        let cwnd = simulation.flow(0).cwnd;
        (sum, count, peak) = (sum + cwnd, count + 1.0, peak.max(cwnd));
    }
    let stats = simulation.flow(0).sender;
    // From 46 to 92 segments by one per round trip of 0.1 s: 4.6 s per tooth.
    let teeth = stats.recoveries - recoveries;
    assert!((19..=24).contains(&teeth), "{teeth} teeth");
    assert_eq!(stats.timeouts, 0);
    assert!((88.0..96.0).contains(&peak), "peak {peak}");
    let mean = sum / count / peak;
    assert!((0.73..0.77).contains(&mean), "mean {mean} of the peak");
}

#[test]
fn a_deep_queue_keeps_the_bottleneck_busy() {
    for congestion in [CongestionAlgorithm::NewReno, CongestionAlgorithm::Cubic] {
        let mut simulation = Simulation::new(&ten_megabit(90, vec![flow(congestion)]));
        let flows = stats_between(&mut simulation, seconds(20), seconds(80));
        let share = megabits(&flows) / TEN_MEGABIT_PAYLOAD;
        assert!(share > 0.995, "{congestion:?}: {share}");
        assert_eq!(flows[0].sender.timeouts, 0);
        assert!(flows[0].sender.recoveries > 2);
    }
}

#[test]
fn cubic_fills_a_long_path_that_newreno_does_not() {
    let goodput = |congestion| {
        let mut simulation = Simulation::new(&Scenario {
            forward: link(Some(mbit(50)), ms(100), Queue::Packets(100)),
            reverse: link(None, ms(100), Queue::Unlimited),
            flows: vec![flow(congestion)],
            cross_traffic: Vec::new(),
            seed: 1,
        });
        megabits(&stats_between(&mut simulation, seconds(20), seconds(70)))
    };
    let (cubic, reno) = (
        goodput(CongestionAlgorithm::Cubic),
        goodput(CongestionAlgorithm::NewReno),
    );
    assert!(cubic > 1.15 * reno, "cubic {cubic}, newreno {reno}");
}

#[test]
fn equal_flows_share_equally() {
    for congestion in [CongestionAlgorithm::NewReno, CongestionAlgorithm::Cubic] {
        let specs = (0..8).map(|n| FlowSpec {
            start: ms(130 * n),
            jitter: ms(1),
            ..flow(congestion)
        });
        let mut simulation = Simulation::new(&ten_megabit(83, specs.collect()));
        let flows = stats_between(&mut simulation, seconds(20), seconds(200));
        assert!(
            fairness(&flows) > 0.9,
            "{congestion:?}: {}",
            fairness(&flows)
        );
        assert!(megabits(&flows) > 0.97 * TEN_MEGABIT_PAYLOAD);
    }
}

/// A scenario with all impairments at once.
fn all_impairments(seed: u64) -> Scenario {
    let mut scenario = ten_megabit(40, Vec::new());
    scenario.forward = Conditions {
        loss: Loss::Independent(0.01),
        duplicate: 0.01,
        reorder: Some(Reorder {
            probability: 0.01,
            extra: ms(7),
        }),
        ..scenario.forward
    };
    scenario.reverse.loss = Loss::Independent(0.01);
    scenario.flows = [CongestionAlgorithm::NewReno, CongestionAlgorithm::Cubic]
        .map(|congestion| {
            let mut spec = flow(congestion);
            spec.tcp.delayed_ack = Some(ms(40));
            spec.tcp.handshake = true;
            spec.jitter = Duration::from_micros(300);
            spec.source = TrafficSource::Bytes(3_000_001);
            spec
        })
        .to_vec();
    scenario.cross_traffic = vec![CrossTraffic {
        rate: mbit(4),
        packet_bytes: 700,
        start: Duration::ZERO,
        stop: Some(seconds(60)),
        bursts: Some((ms(300), ms(200))),
    }];
    scenario.seed = seed;
    scenario
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let mut simulation = Simulation::new(&all_impairments(seed));
        simulation.run_until(seconds(30));
        let flows: Vec<FlowStats> = (0..2).map(|f| simulation.flow(f)).collect();
        (
            flows,
            simulation.forward_counters(),
            simulation.event_count(),
        )
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0);
}

#[test]
fn packets_and_bytes_are_conserved() {
    let mut simulation = Simulation::new(&all_impairments(3));
    let mut at = Duration::ZERO;
    while (0..2).any(|f| simulation.flow(f).finished.is_none()) {
        at += ms(500);
        simulation.run_until(at);
        assert!(at < seconds(300), "stalled");
    }
    simulation.run_until(at + seconds(60));
    assert_eq!(simulation.packets_in_flight(), 0);
    let there = simulation.forward_counters();
    assert_eq!(
        there.packets,
        there.delivered + there.queue_drops + there.losses
    );
    let back = simulation.reverse_counters();
    assert_eq!(
        back.packets,
        back.delivered + back.queue_drops + back.losses
    );
    let flows: Vec<FlowStats> = (0..2).map(|f| simulation.flow(f)).collect();
    for flow in &flows {
        assert_eq!(flow.delivered_bytes, 3_000_001);
        assert_eq!(flow.sender.acked_bytes, 3_000_001);
        let fresh = 3_000_001_u64.div_ceil(MSS);
        assert_eq!(flow.sender.segments, fresh + flow.sender.retransmits);
    }
    let losses: u64 = flows.iter().map(|f| f.losses).sum();
    assert!(losses > 50 && losses <= there.losses + back.losses);
}

#[test]
fn a_short_transfer_takes_the_expected_round_trips() {
    // 4 + 8 + 16 + 2 segments and a short one, over a path without a bottleneck.
    let mut scenario = ten_megabit(1000, Vec::new());
    scenario.forward.rate = None;
    let mut spec = flow(CongestionAlgorithm::NewReno);
    spec.tcp.initial_window = 4;
    spec.source = TrafficSource::Bytes(30 * MSS + 1);
    scenario.flows = vec![spec];
    scenario.flows.push(FlowSpec {
        tcp: TcpConfig {
            handshake: true,
            ..spec.tcp
        },
        ..spec
    });
    let mut simulation = Simulation::new(&scenario);
    simulation.run_until(seconds(10));
    assert_eq!(simulation.flow(0).finished, Some(ms(400)));
    assert_eq!(simulation.flow(1).finished, Some(ms(500)));
    assert_eq!(simulation.flow(0).delivered_bytes, 30 * MSS + 1);
}

#[test]
fn a_slow_application_limits_the_flow() {
    let mut spec = flow(CongestionAlgorithm::NewReno);
    spec.source = TrafficSource::Paced(mbit(3));
    spec.stop = Some(seconds(40));
    let mut simulation = Simulation::new(&ten_megabit(80, vec![spec]));
    let flows = stats_between(&mut simulation, seconds(10), seconds(40));
    assert!(
        (megabits(&flows) - 3.0).abs() < 0.01,
        "{}",
        megabits(&flows)
    );
    let flow = &flows[0];
    assert_eq!(flow.drops, 0);
    // The window does not limit the flow, so it does not grow.
    assert!(flow.cwnd < 60.0, "{}", flow.cwnd);
    simulation.run_until(seconds(50));
    let end = simulation.flow(0);
    assert!(end.finished.unwrap() < seconds(41));
    assert!(end.delivered_bytes <= 40 * 3_000_000 / 8 + MSS);
}

#[test]
fn flows_can_be_added_and_stopped() {
    let mut simulation = Simulation::new(&ten_megabit(83, vec![flow(CongestionAlgorithm::Cubic)]));
    simulation.run_until(seconds(20));
    let second = simulation.add_flow(flow(CongestionAlgorithm::Cubic));
    let both = stats_between(&mut simulation, seconds(60), seconds(120));
    assert!(both[1].goodput() > 0.25 * both[0].goodput());
    simulation.stop_flow(second);
    let alone = stats_between(&mut simulation, seconds(130), seconds(160));
    assert_eq!(alone[1].delivered_bytes, 0);
    assert!(alone[1].finished.is_some());
    assert!(alone[0].goodput() / 1e6 > 0.98 * TEN_MEGABIT_PAYLOAD);
}

#[test]
fn buffers_can_be_changed_during_a_run() {
    let mut spec = flow(CongestionAlgorithm::NewReno);
    spec.tcp.send_buffer = 20 * MSS;
    spec.tcp.receive_buffer = 60 * MSS;
    let mut simulation = Simulation::new(&ten_megabit(200, vec![spec]));
    let small = stats_between(&mut simulation, seconds(5), seconds(25));
    assert!(small[0].sender.limited_times.sndbuf_limited > ms(19_900));
    simulation.set_buffers(0, 40 * MSS, 60 * MSS);
    let more = stats_between(&mut simulation, seconds(30), seconds(50));
    let ratio = more[0].goodput() / small[0].goodput();
    assert!((ratio - 2.0).abs() < 0.02, "{ratio}");
    simulation.set_buffers(0, 1 << 30, 10 * MSS);
    let less = stats_between(&mut simulation, seconds(55), seconds(75));
    let ratio = less[0].goodput() / small[0].goodput();
    assert!((ratio - 0.5).abs() < 0.01, "{ratio}");
    assert!(less[0].sender.limited_times.rwnd_limited > ms(19_900));
}

#[test]
fn cross_traffic_reduces_the_goodput_by_its_rate() {
    let mut scenario = ten_megabit(83, vec![flow(CongestionAlgorithm::NewReno)]);
    let steady = CrossTraffic {
        rate: mbit(6),
        packet_bytes: 1500,
        start: seconds(1),
        stop: None,
        bursts: None,
    };
    scenario.cross_traffic = vec![steady];
    let mut simulation = Simulation::new(&scenario);
    let flows = stats_between(&mut simulation, seconds(20), seconds(120));
    let left = 4.0 * 1460.0 / 1500.0;
    let goodput = megabits(&flows);
    assert!((0.95..1.05).contains(&(goodput / left)), "{goodput}");
    assert!(simulation.forward_counters().queue_drops >= flows[0].drops);
}

#[test]
fn bursts_have_the_configured_mean_rate() {
    let mut scenario = ten_megabit(1000, Vec::new());
    scenario.cross_traffic = vec![CrossTraffic {
        rate: mbit(8),
        packet_bytes: 1000,
        start: Duration::ZERO,
        stop: None,
        bursts: Some((ms(100), ms(300))),
    }];
    let mut simulation = Simulation::new(&scenario);
    simulation.run_until(seconds(1000));
    let offered = simulation.forward_counters().bytes as f64 * 8.0 / 1e6 / 1000.0;
    // 2500 bursts: a standard error of about 3 %.
    assert!((offered / 2.0 - 1.0).abs() < 0.1, "{offered}");
}

#[test]
fn rate_and_rtt_follow_the_trace() {
    let point = |at, rate, rtt| TracePoint {
        at: seconds(at),
        rate: Some(mbit(rate)),
        rtt: Some(ms(rtt)),
        loss: None,
    };
    let trace = PathTrace::new(vec![point(0, 4, 200), point(30, 12, 60)]).unwrap();
    let mut scenario = ten_megabit(40, vec![flow(CongestionAlgorithm::Cubic)]);
    let trace = Some(Arc::new(trace));
    (scenario.forward.trace, scenario.reverse.trace) = (trace.clone(), trace);
    let mut simulation = Simulation::new(&scenario);
    for (from, to, rate, rtt) in [(20, 30, 4.0, 200), (45, 60, 12.0, 60), (80, 90, 4.0, 200)] {
        let flows = stats_between(&mut simulation, seconds(from), seconds(to));
        let share = megabits(&flows) / (rate * 1460.0 / 1500.0);
        assert!(share > 0.9 && share < 1.01, "{from} s: {share}");
        let mean = flows[0].mean_rtt().unwrap();
        assert!(mean > ms(rtt) && mean < ms(rtt + 130), "{from} s: {mean:?}");
    }
}

#[test]
fn the_queueing_delay_accounts_for_the_rtt() {
    let mut specs = vec![flow(CongestionAlgorithm::NewReno); 4];
    for (n, spec) in (0..).zip(&mut specs) {
        spec.tcp.receive_buffer = 40 * MSS;
        spec.start = ms(37 * n);
    }
    let mut simulation = Simulation::new(&ten_megabit(1000, specs));
    simulation.run_until(seconds(10));
    let before = simulation.queueing_delay();
    let flows = stats_between(&mut simulation, seconds(10), seconds(40));
    let waited = simulation.queueing_delay().since(&before).mean();
    // 160 packets in flight at 1.2 ms each.
    let rtt = Duration::from_micros(160 * 1200);
    let sending = Duration::from_micros(1200);
    for flow in &flows {
        let mean = flow.mean_rtt().unwrap();
        assert!(mean.abs_diff(rtt) < ms(1), "{mean:?}");
        assert!(
            (ms(100) + sending + waited).abs_diff(rtt) < ms(1),
            "{waited:?}"
        );
    }
}

#[test]
fn a_lost_connection_request_is_repeated() {
    let mut scenario = ten_megabit(83, Vec::new());
    scenario.forward.loss = Loss::Independent(0.5);
    let mut spec = flow(CongestionAlgorithm::NewReno);
    spec.tcp.handshake = true;
    spec.source = TrafficSource::Bytes(1);
    scenario.flows = vec![spec; 20];
    let mut simulation = Simulation::new(&scenario);
    simulation.run_until(seconds(600));
    assert!((0..20).all(|f| simulation.flow(f).delivered_bytes == 1));
}

#[test]
fn a_flow_waits_while_the_rate_is_0() {
    let mut scenario = ten_megabit(10, vec![flow(CongestionAlgorithm::NewReno)]);
    scenario.forward.rate = Some(Rate::bits_per_second(0));
    let mut simulation = Simulation::new(&scenario);
    simulation.run_until(seconds(1000));
    assert_eq!(simulation.flow(0).delivered_bytes, 0);
    assert!(simulation.flow(0).sender.timeouts < 30);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Over every path that delivers any packets, all data arrives exactly once.
    #[test]
    fn all_data_arrives_exactly_once(
        seed: u64,
        loss in 0.0..0.2,
        duplicate in 0.0..0.2,
        reorder in 0.0..0.2,
        queue in 2u32..60,
        bytes in 0u64..200_000,
        cubic: bool,
        delayed: bool,
    ) {
        let mut scenario = all_impairments(seed);
        scenario.cross_traffic.clear();
        scenario.forward.loss = Loss::Independent(loss);
        scenario.forward.duplicate = duplicate;
        scenario.forward.queue = Queue::Packets(queue);
        scenario.forward.reorder = Some(Reorder { probability: reorder, extra: ms(20) });
        scenario.reverse.loss = Loss::Independent(loss);
        for spec in &mut scenario.flows {
            spec.source = TrafficSource::Bytes(bytes);
            spec.tcp.congestion = if cubic { CongestionAlgorithm::Cubic } else { CongestionAlgorithm::NewReno };
            spec.tcp.delayed_ack = delayed.then_some(ms(200));
        }
        let mut simulation = Simulation::new(&scenario);
        let done = simulation.run_until_done(seconds(20_000), |s| {
            (0..2).all(|f| s.flow(f).finished.is_some())
        });
        prop_assert!(done, "{:?}", simulation.flow(0));
        for f in 0..2 {
            prop_assert_eq!(simulation.flow(f).delivered_bytes, bytes);
            prop_assert_eq!(simulation.flow(f).sender.acked_bytes, bytes);
        }
    }
}
