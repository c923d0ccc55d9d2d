//! Full paths: ownership of the queue, pacing, and surplus streams.

use super::*;

const RATE: u64 = 12_500_000;

/// A path of `RATE` whose queue is the transfer's own: it drains when the transfer sends less.
fn own(now: PathQuery<'_>) -> ScriptedFlow {
    let full = now.pace.is_none_or(|pace| pace > RATE + RATE / 100);
    ScriptedFlow {
        rate: now.pace.map_or(RATE, |pace| pace.min(RATE)),
        // A queue makes the round trip vary.
        rtt: if full {
            ms(150 + now.at.as_secs() % 4 * 10)
        } else {
            ms(56)
        },
        ..ScriptedFlow::default()
    }
}

#[test]
fn the_transfers_own_queue_is_drained_and_kept_short() {
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
            .any(|d| d.reason.contains("the queue was our own"))
    );
    assert!(
        world
            .pace
            .is_some_and(|pace| pace.abs_diff(RATE) < RATE / 50)
    );
    assert_eq!(world.limiter(), Limiter::CongestionWindow);
    // There is no remedy for a full path.
    assert_eq!(world.auto.verdict().remedy, None);
}

#[test]
fn with_cross_traffic_pacing_ends_and_one_stream_stays() {
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
    // The times between drains differ.
    let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| *gap >= 4), "{gaps:?}");
}

#[test]
fn pacing_ends_when_cross_traffic_arrives() {
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
fn pacing_ends_when_the_path_becomes_faster() {
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
            .any(|d| d.reason.contains("the path became faster"))
    );
}

#[test]
fn a_short_queue_is_not_drained_nor_any_without_permission_to_pace() {
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
fn surplus_streams_are_closed_on_a_full_path() {
    let mut world = ScriptedTransfer::new(limits(64), 16);
    world.run(ms(40_000), own);
    assert_eq!(world.streams, 1, "{:#?}", world.decisions);
}

#[test]
fn streams_that_are_needed_are_opened_again() {
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
fn bbr_that_the_tuner_chose_is_reverted_for_cross_traffic() {
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
fn a_share_that_cross_traffic_takes_is_conceded() {
    // Each stream gets an equal share of a queue that never drains. Pacing is not permitted, so that the
    // queue cannot be drained to find its owner.
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
    let description = |d: &TransferDecision| d.reason.contains("cross traffic took the rest");
    assert!(world.decisions.iter().any(description));
}
