//! More streams and another congestion control: where they help and where they do not.

use super::*;

const MBIT: u64 = 125_000;

#[test]
fn streams_grow_until_the_receive_window_is_no_longer_the_bottleneck() {
    let mut transfer = ScriptedTransfer::new(limits(64), 1);
    // Each stream carries 6 MB every 50 ms; the path carries 500 MB/s.
    let path = |now: PathQuery<'_>| {
        let each = 120_000_000 * u64::from(now.streams);
        ScriptedFlow {
            rate: each.min(500_000_000),
            window_full: if each <= 500_000_000 { 0.9 } else { 0.0 },
            ..ScriptedFlow::default()
        }
    };
    transfer.run(ms(4000), path);
    let first_decisions: Vec<TransferSetting> = transfer.settings().into_iter().take(3).collect();
    assert_eq!(first_decisions, [4, 16, 4].map(TransferSetting::Streams));
    let last = &transfer
        .decisions
        .iter()
        .rfind(|d| d.setting == Some(TransferSetting::Streams(16)));
    assert!(last.unwrap().at < ms(2500), "{:#?}", transfer.decisions);
    assert_eq!(
        transfer.decisions[0].reason,
        "the receiver's window of 6.29 MB limits each stream (960 Mbit/s at 50 ms): 4 streams \
         instead of 1"
    );
}

#[test]
fn streams_added_for_a_slow_reader_are_removed_again() {
    let mut transfer = ScriptedTransfer::new(limits(64), 1);
    transfer.run(ms(60_000), |_| ScriptedFlow {
        window_full: 0.9,
        ..ScriptedFlow::default()
    });
    let settings = transfer.settings();
    assert_eq!(&settings[..2], [4, 1].map(TransferSetting::Streams));
    // The cooldowns are 10, 20 and 40 s.
    assert!(settings.len() <= 6, "{settings:?}");
    assert_eq!(transfer.limiter(), Limiter::ReceiveWindow);
    let remedy = transfer.remedy();
    assert!(remedy.contains("net.ipv4.tcp_rmem"), "{remedy}");
}

#[test]
fn a_window_that_closes_is_a_slow_reader_and_gets_no_more_streams() {
    let limits = AutoLimits {
        min_streams: 8,
        congestion_controls: Vec::new(),
        ..limits(64)
    };
    let mut transfer = ScriptedTransfer::new(limits, 8);
    transfer.run(ms(30_000), |now| {
        let has_filled = now.at >= ms(1_000);
        ScriptedFlow {
            rate: if has_filled { 2 * MBIT } else { 50 * MBIT },
            window_full: if has_filled { 0.9 } else { 0.0 },
            peer_window: if has_filled { 300 } else { 6 * MB },
            in_slow_start: !has_filled,
            ..ScriptedFlow::default()
        }
    });
    assert_eq!(transfer.settings(), []);
    assert_eq!(transfer.limiter(), Limiter::StoreWrite);
    assert!(transfer.remedy().contains("the receiver a faster store"));
}

#[test]
fn streams_grow_until_the_send_buffer_is_no_longer_the_bottleneck() {
    let mut transfer = ScriptedTransfer::new(limits(3), 1);
    transfer.run(ms(5000), |now| ScriptedFlow {
        rate: 55_000_000 * u64::from(now.streams),
        buffers_full: true,
        ..ScriptedFlow::default()
    });
    assert_eq!(transfer.settings(), [TransferSetting::Streams(3)]);
    assert_eq!(transfer.limiter(), Limiter::SendBuffer);
    let remedy = transfer.remedy();
    assert!(
        remedy.contains("more streams than 3") && remedy.contains("net.ipv4.tcp_wmem"),
        "{remedy}"
    );
}

/// A lossy path: each CUBIC stream reaches 4 Mbit/s, up to 100 together; BBR reaches 90 Mbit/s.
fn lossy_path(now: PathQuery<'_>) -> ScriptedFlow {
    let cubic = 4 * MBIT * u64::from(now.streams);
    let rate = match now.congestion_control {
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
fn bbr_is_chosen_on_losses_without_a_queue() {
    let mut transfer = ScriptedTransfer::new(limits(64), 1);
    transfer.run(ms(20_000), lossy_path);
    assert_eq!(
        transfer.settings()[0],
        TransferSetting::CongestionControl("bbr".to_owned())
    );
    assert_eq!(transfer.streams, 1);
    let change = &transfer
        .decisions
        .iter()
        .find(|d| d.setting.is_some())
        .unwrap();
    assert!(change.at < ms(2500), "{change:?}");
    assert!(
        change
            .reason
            .ends_with("without a queue (round trip 50 ms, minimum 50 ms): bbr instead of cubic"),
        "{}",
        change.reason
    );
    assert_eq!(transfer.tuner.verdict().congestion_control, "bbr");
}

/// At the end of a transfer a control that has not proved itself is taken back by whoever keeps the connections.
#[test]
fn a_control_on_trial_is_known_until_it_is_judged() {
    let mut transfer = ScriptedTransfer::new(limits(1), 1);
    let mut replaced = Vec::new();
    for n in 1..=200 {
        transfer.run(ms(50 * n), lossy_path);
        let from = transfer.tuner.unproved_control_replaced();
        replaced.push(from.map(str::to_owned));
    }
    let on_trial = Some("cubic".to_owned());
    assert!(replaced.contains(&on_trial), "{:?}", transfer.settings());
    assert_eq!(replaced.last(), Some(&None));
}

/// A burst of a slow start queues for a moment; a path that is full stays so.
#[test]
fn a_comparison_outlives_a_burst() {
    let ends_with_the_systems = |queued: std::ops::Range<Duration>| {
        let mut transfer = ScriptedTransfer::new(limits(8), 8);
        transfer.run(ms(1_500), |now| ScriptedFlow {
            rtt: if queued.contains(&now.at) {
                ms(80)
            } else {
                ms(50)
            },
            in_slow_start: true,
            ..ScriptedFlow::default()
        });
        let ends = TransferSetting::CongestionControl("cubic".to_owned());
        transfer.settings().contains(&ends)
    };
    assert!(!ends_with_the_systems(ms(150)..ms(190)));
    assert!(ends_with_the_systems(ms(150)..ms(1_500)));
}

#[test]
fn bbr_without_gain_is_reverted_and_streams_are_tried() {
    let mut transfer = ScriptedTransfer::new(limits(64), 1);
    // A policer gives each flow the same rate with any congestion control.
    transfer.run(ms(15_000), |now| ScriptedFlow {
        rate: 5 * MBIT * u64::from(now.streams),
        loss: 0.005,
        ..ScriptedFlow::default()
    });
    let settings = transfer.settings();
    let bbr = TransferSetting::CongestionControl("bbr".to_owned());
    let cubic = TransferSetting::CongestionControl("cubic".to_owned());
    assert_eq!(
        &settings[..4],
        [
            bbr,
            cubic,
            TransferSetting::Streams(5),
            TransferSetting::Streams(37)
        ]
    );
}

/// A shallow queue: BBR multiplies the rate of 20 Mbit/s by a gain, at the cost of other flows.
fn settings_over_a_shallow_queue(gain: u64) -> Vec<TransferSetting> {
    let mut transfer = ScriptedTransfer::new(limits(1), 1);
    transfer.run(ms(10_000), |now| {
        let is_bbr = now.congestion_control == "bbr";
        ScriptedFlow {
            rate: if is_bbr { 20 * MBIT * gain } else { 20 * MBIT },
            loss: if is_bbr { 0.08 } else { 0.004 },
            ..ScriptedFlow::default()
        }
    });
    transfer.settings()
}

#[test]
fn bbr_that_causes_losses_is_reverted_unless_hardly_anything_moves_without_it() {
    let [bbr, cubic] =
        ["bbr", "cubic"].map(|name| TransferSetting::CongestionControl(name.to_owned()));
    assert_eq!(settings_over_a_shallow_queue(2), [bbr.clone(), cubic]);
    assert_eq!(settings_over_a_shallow_queue(4), [bbr]);
}

#[test]
fn without_a_loss_tolerant_control_streams_are_added_while_they_gain() {
    let only = AutoLimits {
        congestion_controls: vec!["reno".to_owned(), "cubic".to_owned()],
        ..limits(64)
    };
    let mut transfer = ScriptedTransfer::new(only, 1);
    transfer.run(ms(30_000), lossy_path);
    // The model knows what each stream can carry, and not what the path can. 25 streams would fill it.
    assert_eq!(transfer.settings(), [6, 64].map(TransferSetting::Streams));
    let mut capped = ScriptedTransfer::new(
        AutoLimits {
            congestion_controls: Vec::new(),
            ..limits(4)
        },
        4,
    );
    capped.run(ms(5_000), lossy_path);
    assert_eq!(capped.limiter(), Limiter::Loss);
    let remedy = capped.remedy();
    assert!(
        remedy.contains("tcp_allowed_congestion_control"),
        "{remedy}"
    );
}

#[test]
fn a_refused_congestion_control_is_not_requested_again() {
    let mut transfer = ScriptedTransfer::new(limits(1), 1);
    transfer.run(ms(1000), lossy_path);
    transfer.tuner.on_congestion_control_refused("bbr");
    transfer.congestion_control = "cubic".to_owned();
    transfer.decisions.clear();
    transfer.run(ms(60_000), |now| {
        lossy_path(PathQuery {
            congestion_control: "cubic",
            ..now
        })
    });
    assert_eq!(transfer.settings(), []);
}

#[test]
fn a_refused_stream_is_not_requested_again() {
    let mut transfer = ScriptedTransfer::new(limits(64), 1);
    let path = |now: PathQuery<'_>| ScriptedFlow {
        rate: 12_000_000 * u64::from(now.streams),
        window_full: 0.9,
        ..ScriptedFlow::default()
    };
    transfer.run(ms(2000), path);
    assert!(transfer.streams > 2);
    transfer.tuner.on_stream_refused(2);
    transfer.streams = 2;
    transfer.decisions.clear();
    transfer.run(ms(60_000), path);
    assert!(transfer.settings().is_empty(), "{:?}", transfer.settings());
    assert_eq!(transfer.tuner.verdict().streams, 2);
}

#[test]
fn no_streams_are_added_if_the_path_is_not_the_bottleneck() {
    let cases: [(Limiter, ScriptedFlow, Option<u64>); 3] = [
        (
            Limiter::StoreRead,
            ScriptedFlow {
                writers_idle: true,
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
                in_slow_start: true,
                ..ScriptedFlow::default()
            },
            None,
        ),
    ];
    for (limiter, flow, rate_limit) in cases {
        let mut transfer = ScriptedTransfer::new(limits(64), 1);
        transfer.rate_limit = rate_limit;
        transfer.run(ms(30_000), |_| flow);
        // A program may do better with two streams; that was tried.
        assert_eq!(transfer.streams, 1, "{limiter}");
        assert!(transfer.settings().len() <= 2, "{limiter}");
        assert_eq!(transfer.limiter(), limiter);
        assert_eq!(transfer.tuner.limiter(), limiter);
    }
}

#[test]
fn a_slowly_growing_congestion_window_gets_one_more_stream() {
    let mut transfer = ScriptedTransfer::new(limits(64), 1);
    transfer.run(ms(60_000), |now| ScriptedFlow {
        rate: if now.streams > 1 {
            90 * MBIT
        } else {
            60 * MBIT
        },
        rtt: if now.streams > 1 { ms(57) } else { ms(50) },
        ..ScriptedFlow::default()
    });
    assert_eq!(transfer.settings()[0], TransferSetting::Streams(2));
    assert!(transfer.streams <= 4);
}

#[test]
fn a_fixed_number_of_streams_stays() {
    let pinned = AutoLimits {
        min_streams: 4,
        congestion_controls: Vec::new(),
        may_pace: false,
        ..limits(4)
    };
    let mut transfer = ScriptedTransfer::new(pinned, 4);
    transfer.run(ms(20_000), lossy_path);
    transfer.run(ms(40_000), |_| ScriptedFlow {
        window_full: 0.9,
        ..ScriptedFlow::default()
    });
    transfer.run(ms(60_000), |_| ScriptedFlow {
        rtt: ms(200),
        ..ScriptedFlow::default()
    });
    assert_eq!(transfer.settings(), []);
}

#[test]
fn no_trial_begins_near_the_end() {
    let mut transfer = ScriptedTransfer::new(limits(64), 1);
    transfer.bytes_left = Some(7_000_000);
    transfer.run(ms(1000), |_| ScriptedFlow {
        window_full: 0.9,
        ..ScriptedFlow::default()
    });
    assert_eq!(transfer.settings(), []);
}

/// Slow start for four round trips, then a loss ratio of 1 %, with which each CUBIC stream keeps
/// 10 Mbit/s. `queue` is the queueing delay in ms.
fn in_opening(now: PathQuery<'_>, queue: u64) -> ScriptedFlow {
    let trips = now.at.as_millis() / 50;
    let start = 2 * MBIT * (1 << trips.min(5));
    let begun = trips < 4;
    ScriptedFlow {
        rate: match now.congestion_control {
            "bbr" => 90 * MBIT,
            _ if begun => start,
            _ => 10 * MBIT * u64::from(now.streams),
        },
        rtt: ms(50 + queue),
        loss: if begun { 0.0 } else { 0.01 },
        in_slow_start: begun,
        ..ScriptedFlow::default()
    }
}

#[test]
fn losses_without_a_queue_are_answered_within_a_few_round_trips() {
    let mut transfer = ScriptedTransfer::new(limits(64), 4);
    transfer.run(ms(3000), |now| in_opening(now, 0));
    let change = &transfer
        .decisions
        .iter()
        .find(|d| matches!(d.setting, Some(TransferSetting::CongestionControl(_))))
        .unwrap();
    assert_eq!(
        change.setting,
        Some(TransferSetting::CongestionControl("bbr".to_owned()))
    );
    assert!(change.at <= ms(400), "{change:?}");
    // BBR is kept.
    assert_eq!(transfer.congestion_control, "bbr");
}

#[test]
fn losses_of_a_slow_start_that_fills_a_queue_do_not_count() {
    let mut transfer = ScriptedTransfer::new(limits(64), 4);
    transfer.run(ms(400), |now| in_opening(now, 20));
    assert_eq!(transfer.congestion_control, "cubic");
    assert_eq!(transfer.candidates, None);
}

#[test]
fn growth_of_slow_start_does_not_count_as_gain_of_bbr() {
    let mut transfer = ScriptedTransfer::new(limits(4), 4);
    // The congestion windows grow the same with both controls.
    transfer.run(ms(4000), |now| ScriptedFlow {
        rate: 40 * MBIT,
        ..in_opening(now, 0)
    });
    assert_eq!(
        transfer.congestion_control, "cubic",
        "{:?}",
        transfer.decisions
    );
}

#[test]
fn losses_of_bbrs_own_startup_do_not_count_against_it() {
    // The more a startup gains, the longer its retransmissions take.
    for (rate, calm) in [(90, 1100), (400, 3000)] {
        let mut transfer = ScriptedTransfer::new(limits(4), 4);
        transfer.run(ms(8000), |now| {
            let flow = in_opening(now, 0);
            let ours = now.congestion_control == "bbr";
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
        assert_eq!(
            transfer.congestion_control, "bbr",
            "{:?}",
            transfer.decisions
        );
    }
}

#[test]
fn streams_are_added_again_at_once_while_they_gain_much() {
    let only = AutoLimits {
        congestion_controls: Vec::new(),
        ..limits(64)
    };
    let mut transfer = ScriptedTransfer::new(only, 4);
    transfer.run(ms(6000), |now| ScriptedFlow {
        rate: 4 * MBIT * u64::from(now.streams),
        loss: 0.01,
        ..ScriptedFlow::default()
    });
    let times: Vec<u128> = transfer
        .decisions
        .iter()
        .filter(|d| d.setting.is_some())
        .map(|d| d.at.as_millis())
        .collect();
    assert_eq!(transfer.settings(), [23, 64].map(TransferSetting::Streams));
    assert!(times[0] <= 1200, "{times:?}");
    assert!(times[1] - times[0] <= 600, "{times:?}");
}

/// A path that loses a segment early, has no losses for long, and then loses 1 % for a moment or always.
fn path_that_begins_to_lose(always: bool) -> ScriptedTransfer {
    let unpaced = AutoLimits {
        may_pace: false,
        ..limits(64)
    };
    let mut transfer = ScriptedTransfer::new(unpaced, 2);
    transfer.run(ms(17_000), |now| {
        let begun = now.at >= ms(14_000);
        let early = now.at >= ms(500) && now.at < ms(700);
        let loses = begun && (always || now.at < ms(14_150));
        ScriptedFlow {
            rate: if begun {
                1_000_000 * u64::from(now.streams)
            } else {
                12_000_000
            },
            // A queue of 8 ms is too short for a full path.
            rtt: if begun { ms(50) } else { ms(58) },
            loss: if loses || early { 0.01 } else { 0.0 },
            ..ScriptedFlow::default()
        }
    });
    transfer
}

#[test]
fn losses_after_a_long_time_without_any_are_answered_soon() {
    let first_decisions = |transfer: &ScriptedTransfer| {
        let added = |d: &&TransferDecision| d.reason.starts_with("losses of");
        transfer.decisions.iter().find(added).map(|d| d.at)
    };
    let at = first_decisions(&path_that_begins_to_lose(true));
    assert!(
        at.is_some_and(|at| at > ms(14_000) && at < ms(16_000)),
        "{at:?}"
    );
    assert_eq!(first_decisions(&path_that_begins_to_lose(false)), None);
}

#[test]
fn losses_of_an_earlier_transfer_on_the_same_connection_do_not_count() {
    let mut transfer = ScriptedTransfer::new(limits(64), 2);
    transfer.retransmitted = vec![100_000.0; 2];
    transfer.run(ms(10_000), |_| ScriptedFlow::default());
    let description = |d: &TransferDecision| d.reason.contains("losses");
    assert!(
        !transfer.decisions.iter().any(description),
        "{:?}",
        transfer.decisions
    );
}
