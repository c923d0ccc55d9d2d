//! Full paths: whose the queue is, the pace, and streams that are too many.

use super::*;

const RATE: u64 = 12_500_000;

/// A path of `RATE` with a queue that is ours: it is there unless less is sent.
fn own(now: PathQuery<'_>) -> ScriptedFlow {
    let full = now.pace.is_none_or(|pace| pace > RATE + RATE / 100);
    ScriptedFlow {
        rate: now.pace.map_or(RATE, |pace| pace.min(RATE)),
        // No round trip stays the same in a queue.
        rtt: if full {
            ms(150 + now.at.as_secs() % 4 * 10)
        } else {
            ms(56)
        },
        ..ScriptedFlow::default()
    }
}

#[test]
fn a_queue_of_our_own_is_drained_and_kept_short() {
    let mut world = ScriptedTransfer::new(limits(64), 1);
    world.run(ms(20_000), own);
    let steps = world.steps();
    assert_eq!(steps[0], TransferSetting::PacingRate(Some(RATE / 4 * 3)));
    let TransferSetting::PacingRate(Some(pace)) = steps[1] else {
        unreachable!("{steps:?}");
    };
    assert!(pace.abs_diff(RATE) < RATE / 50, "{pace}");
    assert!(
        world
            .decisions
            .iter()
            .any(|d| d.reason.contains("the queue was ours"))
    );
    assert!(
        world
            .pace
            .is_some_and(|pace| pace.abs_diff(RATE) < RATE / 50)
    );
    assert_eq!(world.limiter(), Limiter::CongestionWindow);
    // A full path is all there is.
    assert_eq!(world.auto.verdict().remedy, None);
}

#[test]
fn others_queue_is_left_to_tcp_and_shared_with_one_stream() {
    let mut world = ScriptedTransfer::new(limits(64), 4);
    world.run(ms(60_000), |now| ScriptedFlow {
        rate: now.pace.unwrap_or(RATE).min(RATE),
        rtt: ms(130 + now.at.as_secs() % 4 * 10),
        ..ScriptedFlow::default()
    });
    assert_eq!(world.pace, None);
    assert_eq!(world.streams, 1);
    let asked =
        |d: &&TransferDecision| matches!(d.setting, Some(TransferSetting::PacingRate(Some(_))));
    let times: Vec<u64> = world
        .decisions
        .iter()
        .filter(asked)
        .map(|d| d.at.as_secs())
        .collect();
    assert!(times.len() >= 3 && times.len() <= 7, "{times:?}");
    // Asked at intervals that differ.
    let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| *gap >= 4), "{gaps:?}");
}

#[test]
fn a_pace_is_lifted_when_others_come() {
    let mut world = ScriptedTransfer::new(limits(64), 1);
    world.run(ms(10_000), own);
    assert!(world.pace.is_some());
    world.decisions.clear();
    world.run(ms(10_500), |_| ScriptedFlow {
        rate: RATE / 2,
        rtt: ms(160),
        ..ScriptedFlow::default()
    });
    assert_eq!(world.steps(), [TransferSetting::PacingRate(None)]);
}

#[test]
fn a_pace_is_lifted_when_the_path_becomes_faster() {
    let mut world = ScriptedTransfer::new(limits(1), 1);
    world.run(ms(10_000), own);
    world.run(ms(13_000), |now| ScriptedFlow {
        rate: now.pace.unwrap_or(4 * RATE),
        ..ScriptedFlow::default()
    });
    assert_eq!(world.pace, None);
    assert!(
        world
            .decisions
            .iter()
            .any(|d| d.reason.contains("the path is faster"))
    );
}

#[test]
fn a_short_queue_and_one_that_may_not_be_paced_are_left_alone() {
    let mut world = ScriptedTransfer::new(
        AutoLimits {
            may_pace: false,
            ..limits(64)
        },
        1,
    );
    world.run(ms(20_000), own);
    assert_eq!(world.steps(), []);
}

#[test]
fn surplus_streams_are_given_back_on_a_full_path() {
    let mut world = ScriptedTransfer::new(limits(64), 16);
    world.run(ms(40_000), own);
    assert_eq!(world.streams, 1, "{:#?}", world.decisions);
}

#[test]
fn streams_that_are_needed_come_back() {
    let mut world = ScriptedTransfer::new(limits(64), 4);
    world.run(ms(30_000), |now| ScriptedFlow {
        rate: RATE / 4 * u64::from(now.streams.min(4)),
        idle: true,
        ..ScriptedFlow::default()
    });
    let steps = world.steps();
    assert_eq!(&steps[..2], [2, 4].map(TransferSetting::Streams));
    assert!(steps.len() <= 4, "{steps:?}");
    assert_eq!(world.streams, 4);
}

#[test]
fn bbr_of_our_choice_gives_way_to_others() {
    let mut world = ScriptedTransfer::new(limits(1), 1);
    world.run(ms(6000), |now| ScriptedFlow {
        rate: if now.control == "bbr" { RATE } else { RATE / 8 },
        loss: 0.01,
        ..ScriptedFlow::default()
    });
    assert_eq!(world.control, "bbr");
    world.run(ms(40_000), |now| ScriptedFlow {
        rate: now.pace.unwrap_or(RATE / 2).min(RATE / 2),
        rtt: ms(130 + now.at.as_secs() % 4 * 10),
        ..ScriptedFlow::default()
    });
    assert_eq!(world.control, "cubic");
}

#[test]
fn what_others_take_of_a_full_path_is_not_fought_for() {
    // Each stream gets its share of a queue that never drains; it may not be asked whose it is.
    let unpaced = AutoLimits {
        may_pace: false,
        ..limits(64)
    };
    let mut world = ScriptedTransfer::new(unpaced, 4);
    world.run(ms(15_000), |now| ScriptedFlow {
        rate: RATE * u64::from(now.streams) / u64::from(now.streams + 4),
        rtt: ms(130 + now.at.as_secs() % 4 * 10),
        ..ScriptedFlow::default()
    });
    assert_eq!(world.streams, 1, "{:?}", world.decisions);
    let told = |d: &TransferDecision| d.reason.contains("others took the rest");
    assert!(world.decisions.iter().any(told));
}
