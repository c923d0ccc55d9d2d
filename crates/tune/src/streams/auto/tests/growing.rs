//! Streams and congestion control: where they help, and where not.

use super::*;

const MBIT: u64 = 125_000;

#[test]
fn a_receivers_window_is_answered_by_doubling_until_it_is_no_limit() {
    let mut world = ScriptedTransfer::new(limits(64), 1);
    // 6 MB every 50 ms for each stream, at most 500 MB/s.
    let path = |now: PathQuery<'_>| {
        let each = 120_000_000 * u64::from(now.streams);
        ScriptedFlow {
            rate: each.min(500_000_000),
            held: if each <= 500_000_000 { 0.9 } else { 0.0 },
            ..ScriptedFlow::default()
        }
    };
    world.run(ms(4000), path);
    let first: Vec<TransferSetting> = world.steps().into_iter().take(3).collect();
    assert_eq!(first, [2, 4, 8].map(TransferSetting::Streams));
    let last = &world
        .decisions
        .iter()
        .rfind(|d| d.setting == Some(TransferSetting::Streams(8)));
    assert!(last.unwrap().at < ms(2500), "{:#?}", world.decisions);
    assert_eq!(
        world.decisions[0].reason,
        "the receiver's window of 6.29 MB holds each stream back (960 Mbit/s at 50 ms): 2 streams \
         instead of 1"
    );
}

#[test]
fn a_window_that_a_slow_reader_keeps_full_gets_its_streams_back() {
    let mut world = ScriptedTransfer::new(limits(64), 1);
    world.run(ms(60_000), |_| ScriptedFlow {
        held: 0.9,
        ..ScriptedFlow::default()
    });
    let steps = world.steps();
    assert_eq!(&steps[..2], [2, 1].map(TransferSetting::Streams));
    // Ever more seldom: 10, 20, 40 s.
    assert!(steps.len() <= 6, "{steps:?}");
    assert_eq!(world.limiter(), Limiter::ReceiveWindow);
    let remedy = world.remedy();
    assert!(remedy.contains("net.ipv4.tcp_rmem"), "{remedy}");
}

#[test]
fn a_send_buffer_is_answered_likewise() {
    let mut world = ScriptedTransfer::new(limits(3), 1);
    world.run(ms(5000), |now| ScriptedFlow {
        rate: 55_000_000 * u64::from(now.streams),
        pressed: true,
        ..ScriptedFlow::default()
    });
    assert_eq!(world.steps(), [2, 3].map(TransferSetting::Streams));
    assert_eq!(world.limiter(), Limiter::SendBuffer);
    let remedy = world.remedy();
    assert!(
        remedy.contains("more streams than 3") && remedy.contains("net.ipv4.tcp_wmem"),
        "{remedy}"
    );
}

/// Each CUBIC stream 4 Mbit/s, up to 100; BBR 90 at once.
fn lossy(now: PathQuery<'_>) -> ScriptedFlow {
    let cubic = 4 * MBIT * u64::from(now.streams);
    let rate = match now.control {
        "bbr" => 90 * MBIT,
        _ => cubic.min(100 * MBIT),
    };
    ScriptedFlow {
        rate,
        loss: 0.01,
        ..ScriptedFlow::default()
    }
}

#[test]
fn losses_without_a_queue_are_answered_with_bbr() {
    let mut world = ScriptedTransfer::new(limits(64), 1);
    world.run(ms(20_000), lossy);
    assert_eq!(
        world.steps()[0],
        TransferSetting::CongestionControl("bbr".to_owned())
    );
    assert_eq!(world.streams, 1);
    let change = &world
        .decisions
        .iter()
        .find(|d| d.setting.is_some())
        .unwrap();
    assert!(change.at < ms(2500), "{change:?}");
    assert!(
        change
            .reason
            .ends_with("without a queue (round trip 50 ms of 50 ms): bbr instead of cubic"),
        "{}",
        change.reason
    );
    assert_eq!(world.auto.verdict().congestion_control, "bbr");
}

#[test]
fn what_bbr_does_not_improve_is_given_back_and_streams_are_tried() {
    let mut world = ScriptedTransfer::new(limits(64), 1);
    // A policer: so much for each flow, whatever it runs.
    world.run(ms(15_000), |now| ScriptedFlow {
        rate: 5 * MBIT * u64::from(now.streams),
        loss: 0.005,
        ..ScriptedFlow::default()
    });
    let steps = world.steps();
    let bbr = TransferSetting::CongestionControl("bbr".to_owned());
    let cubic = TransferSetting::CongestionControl("cubic".to_owned());
    assert_eq!(
        &steps[..4],
        [
            bbr,
            cubic,
            TransferSetting::Streams(2),
            TransferSetting::Streams(4)
        ]
    );
}

#[test]
fn bbr_that_makes_losses_of_its_own_is_not_kept() {
    let mut world = ScriptedTransfer::new(limits(1), 1);
    // A shallow queue: twice the rate at others' cost.
    world.run(ms(10_000), |now| ScriptedFlow {
        rate: if now.control == "bbr" {
            90 * MBIT
        } else {
            45 * MBIT
        },
        loss: if now.control == "bbr" { 0.08 } else { 0.004 },
        ..ScriptedFlow::default()
    });
    let names: Vec<TransferSetting> = ["bbr", "cubic"]
        .map(|n| TransferSetting::CongestionControl(n.to_owned()))
        .into();
    assert_eq!(world.steps(), names);
}

#[test]
fn where_only_loss_based_control_is_permitted_streams_double_while_they_gain() {
    let only = AutoLimits {
        congestion_controls: vec!["reno".to_owned(), "cubic".to_owned()],
        ..limits(64)
    };
    let mut world = ScriptedTransfer::new(only, 1);
    world.run(ms(30_000), lossy);
    let first: Vec<TransferSetting> = world.steps().into_iter().take(7).collect();
    assert_eq!(
        first,
        [2, 4, 8, 16, 32, 64, 32].map(TransferSetting::Streams)
    );
    assert_eq!(world.limiter(), Limiter::Loss);
    let remedy = world.remedy();
    assert!(
        remedy.contains("tcp_allowed_congestion_control"),
        "{remedy}"
    );
}

#[test]
fn a_refused_control_is_not_asked_for_again() {
    let mut world = ScriptedTransfer::new(limits(1), 1);
    world.run(ms(1000), lossy);
    world.auto.on_congestion_control_refused("bbr");
    world.control = "cubic".to_owned();
    world.decisions.clear();
    world.run(ms(60_000), |now| {
        lossy(PathQuery {
            control: "cubic",
            ..now
        })
    });
    assert_eq!(world.steps(), []);
}

#[test]
fn a_refused_stream_is_not_asked_for_again() {
    let mut world = ScriptedTransfer::new(limits(64), 1);
    let path = |now: PathQuery<'_>| ScriptedFlow {
        rate: 12_000_000 * u64::from(now.streams),
        held: 0.9,
        ..ScriptedFlow::default()
    };
    world.run(ms(2000), path);
    assert!(world.streams > 2);
    world.auto.on_stream_refused(2);
    world.streams = 2;
    world.decisions.clear();
    world.run(ms(60_000), path);
    assert!(world.steps().is_empty(), "{:?}", world.steps());
    assert_eq!(world.auto.verdict().streams, 2);
}

#[test]
fn nothing_is_added_where_the_path_is_not_the_limit() {
    let cases: [(Limiter, ScriptedFlow, Option<u64>); 3] = [
        (
            Limiter::StoreRead,
            ScriptedFlow {
                idle: true,
                ..ScriptedFlow::default()
            },
            None,
        ),
        (
            Limiter::RateLimit,
            ScriptedFlow::default(),
            Some(13_000_000),
        ),
        (
            Limiter::CongestionWindow,
            ScriptedFlow {
                starting: true,
                ..ScriptedFlow::default()
            },
            None,
        ),
    ];
    for (limiter, flow, rate_limit) in cases {
        let mut world = ScriptedTransfer::new(limits(64), 1);
        world.rate_limit = rate_limit;
        world.run(ms(30_000), |_| flow);
        assert_eq!(world.steps(), [], "{limiter}");
        assert_eq!(world.limiter(), limiter);
        assert_eq!(world.auto.limiter(), limiter);
    }
}

#[test]
fn windows_that_open_slowly_get_a_second_stream_for_once() {
    let mut world = ScriptedTransfer::new(limits(64), 1);
    world.run(ms(60_000), |now| ScriptedFlow {
        rate: if now.streams > 1 {
            90 * MBIT
        } else {
            60 * MBIT
        },
        rtt: if now.streams > 1 { ms(57) } else { ms(50) },
        ..ScriptedFlow::default()
    });
    assert_eq!(world.steps()[0], TransferSetting::Streams(2));
    assert!(world.streams <= 4);
}

#[test]
fn a_pinned_number_stays() {
    let pinned = AutoLimits {
        min_streams: 4,
        congestion_controls: Vec::new(),
        may_pace: false,
        ..limits(4)
    };
    let mut world = ScriptedTransfer::new(pinned, 4);
    world.run(ms(20_000), lossy);
    world.run(ms(40_000), |_| ScriptedFlow {
        held: 0.9,
        ..ScriptedFlow::default()
    });
    world.run(ms(60_000), |_| ScriptedFlow {
        rtt: ms(200),
        ..ScriptedFlow::default()
    });
    assert_eq!(world.steps(), []);
}

#[test]
fn nothing_is_begun_when_it_is_nearly_over() {
    let mut world = ScriptedTransfer::new(limits(64), 1);
    world.left = Some(10_000_000);
    world.run(ms(1000), |_| ScriptedFlow {
        held: 0.9,
        ..ScriptedFlow::default()
    });
    assert_eq!(world.steps(), []);
}

/// Windows grow by themselves for four round trips, until something is lost, at 1 in 100 segments:
/// each stream keeps 10 Mbit/s under CUBIC.
fn opening(now: PathQuery<'_>, queue: u64) -> ScriptedFlow {
    let trips = now.at.as_millis() / 50;
    let start = 2 * MBIT * (1 << trips.min(5));
    let begun = trips < 4;
    ScriptedFlow {
        rate: match now.control {
            "bbr" => 90 * MBIT,
            _ if begun => start,
            _ => 10 * MBIT * u64::from(now.streams),
        },
        rtt: ms(50 + queue),
        loss: if begun { 0.0 } else { 0.01 },
        starting: begun,
        ..ScriptedFlow::default()
    }
}

#[test]
fn plain_losses_are_answered_within_a_few_round_trips() {
    let mut world = ScriptedTransfer::new(limits(64), 4);
    world.run(ms(3000), |now| opening(now, 0));
    let change = &world
        .decisions
        .iter()
        .find(|d| d.setting.is_some())
        .unwrap();
    assert_eq!(
        change.setting,
        Some(TransferSetting::CongestionControl("bbr".to_owned()))
    );
    assert!(change.at <= ms(400), "{change:?}");
    // And kept.
    assert_eq!(world.steps().len(), 1, "{:?}", world.decisions);
    assert_eq!(world.control, "bbr");
}

#[test]
fn a_slow_start_that_fills_a_queue_is_no_plain_loss() {
    let mut world = ScriptedTransfer::new(limits(64), 4);
    world.run(ms(400), |now| opening(now, 20));
    assert_eq!(world.steps(), []);
}

#[test]
fn growth_that_slow_start_would_have_had_is_no_gain_of_bbr() {
    let mut world = ScriptedTransfer::new(limits(4), 4);
    // The same windows, whatever runs.
    world.run(ms(4000), |now| ScriptedFlow {
        rate: 40 * MBIT,
        ..opening(now, 0)
    });
    assert_eq!(world.control, "cubic", "{:?}", world.decisions);
}

#[test]
fn losses_of_bbrs_own_start_do_not_count_against_it() {
    // What a start has lost is sent again for the longer, the more it gained.
    for (rate, calm) in [(90, 1100), (400, 3000)] {
        let mut world = ScriptedTransfer::new(limits(4), 4);
        world.run(ms(8000), |now| {
            let flow = opening(now, 0);
            let ours = now.control == "bbr";
            ScriptedFlow {
                rate: if ours { rate * MBIT } else { flow.rate },
                loss: if ours && now.at < ms(calm) {
                    0.3
                } else {
                    flow.loss
                },
                ..flow
            }
        });
        assert_eq!(world.control, "bbr", "{:?}", world.decisions);
    }
}

#[test]
fn doublings_follow_each_other_while_they_gain_much() {
    let only = AutoLimits {
        congestion_controls: Vec::new(),
        ..limits(64)
    };
    let mut world = ScriptedTransfer::new(only, 4);
    world.run(ms(6000), |now| ScriptedFlow {
        rate: 4 * MBIT * u64::from(now.streams),
        loss: 0.01,
        ..ScriptedFlow::default()
    });
    let times: Vec<u128> = world
        .decisions
        .iter()
        .filter(|d| d.setting.is_some())
        .map(|d| d.at.as_millis())
        .collect();
    assert_eq!(world.steps(), [8, 16, 32, 64].map(TransferSetting::Streams));
    assert!(times[0] <= 1200, "{times:?}");
    assert!(times[3] - times[0] <= 3 * 600, "{times:?}");
}

/// A path that loses something early, is clean for long, and then loses 1 % now and then or always.
fn begins_to_lose(always: bool) -> ScriptedTransfer {
    let unpaced = AutoLimits {
        may_pace: false,
        ..limits(64)
    };
    let mut world = ScriptedTransfer::new(unpaced, 2);
    world.run(ms(17_000), |now| {
        let begun = now.at >= ms(14_000);
        let early = now.at >= ms(500) && now.at < ms(700);
        let loses = begun && (always || now.at.as_millis() % 2000 < 150);
        ScriptedFlow {
            rate: if begun {
                1_000_000 * u64::from(now.streams)
            } else {
                12_000_000
            },
            // A short queue is no full path.
            rtt: if begun { ms(50) } else { ms(58) },
            loss: if loses || early { 0.01 } else { 0.0 },
            ..ScriptedFlow::default()
        }
    });
    world
}

#[test]
fn losses_that_begin_after_a_clean_stretch_are_answered_soon() {
    let first = |world: &ScriptedTransfer| {
        let added = |d: &&TransferDecision| d.reason.starts_with("losses of");
        world.decisions.iter().find(added).map(|d| d.at)
    };
    let at = first(&begins_to_lose(true));
    assert!(
        at.is_some_and(|at| at > ms(14_000) && at < ms(16_000)),
        "{at:?}"
    );
    assert_eq!(first(&begins_to_lose(false)), None);
}

#[test]
fn what_a_kept_connection_lost_before_is_not_counted() {
    let mut world = ScriptedTransfer::new(limits(64), 2);
    world.resent = vec![100_000.0; 2];
    world.run(ms(10_000), |_| ScriptedFlow::default());
    let told = |d: &TransferDecision| d.reason.contains("losses");
    assert!(!world.decisions.iter().any(told), "{:?}", world.decisions);
}
