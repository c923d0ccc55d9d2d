//! Full paths: ownership of the queue, pacing, and surplus streams.

use super::*;

const RATE: u64 = 12_500_000;

/// A path of `RATE` whose queue is the transfer's own: it drains when the transfer sends less.
fn own_queue(now: PathQuery<'_>) -> ScriptedFlow {
    own_queue_at(RATE, now)
}

fn own_queue_at(rate: u64, now: PathQuery<'_>) -> ScriptedFlow {
    let full = now
        .pacing_rate
        .is_none_or(|pacing_rate| pacing_rate > rate + rate / 100);
    ScriptedFlow {
        rate: now
            .pacing_rate
            .map_or(rate, |pacing_rate| pacing_rate.min(rate)),
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
    let mut transfer = ScriptedTransfer::new(limits(64), 1);
    transfer.run(ms(20_000), own_queue);
    let settings = transfer.settings();
    assert_eq!(settings[0], TransferSetting::PacingRate(Some(RATE / 4 * 3)));
    let TransferSetting::PacingRate(Some(pacing_rate)) = settings[1] else {
        unreachable!("{settings:?}");
    };
    assert!(pacing_rate.abs_diff(RATE) < RATE / 50, "{pacing_rate}");
    assert!(
        transfer
            .decisions
            .iter()
            .any(|d| d.reason.contains("the queue was our own"))
    );
    assert!(
        transfer
            .pacing_rate
            .is_some_and(|pacing_rate| pacing_rate.abs_diff(RATE) < RATE / 50)
    );
    assert_eq!(transfer.limiter(), Limiter::Link);
    // There is no remedy for a full path.
    assert_eq!(transfer.tuner.verdict().remedy, None);
}

#[test]
fn with_cross_traffic_pacing_ends_and_one_stream_stays() {
    let mut transfer = ScriptedTransfer::new(limits(64), 4);
    transfer.run(ms(60_000), |now| ScriptedFlow {
        rate: now.pacing_rate.unwrap_or(RATE).min(RATE),
        rtt: ms(130 + now.at.as_secs() % 4 * 10),
        ..ScriptedFlow::default()
    });
    assert_eq!(transfer.pacing_rate, None);
    assert_eq!(transfer.streams, 1);
    let asked =
        |d: &&TransferDecision| matches!(d.setting, Some(TransferSetting::PacingRate(Some(_))));
    let times: Vec<u64> = transfer
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
    let mut transfer = ScriptedTransfer::new(limits(64), 1);
    transfer.run(ms(10_000), own_queue);
    assert!(transfer.pacing_rate.is_some());
    transfer.decisions.clear();
    transfer.run(ms(10_500), |_| ScriptedFlow {
        rate: RATE / 2,
        rtt: ms(160),
        ..ScriptedFlow::default()
    });
    assert_eq!(transfer.settings(), [TransferSetting::PacingRate(None)]);
}

#[test]
fn a_path_that_has_become_much_slower_is_believed_when_a_second_drain_shows_it() {
    let mut transfer = ScriptedTransfer::new(limits(64), 1);
    transfer.run(ms(10_000), own_queue);
    transfer.decisions.clear();
    let slower = RATE / 4;
    transfer.run(ms(40_000), |now| own_queue_at(slower, now));
    let said = |words: &str| {
        let decisions = transfer.decisions.iter();
        let found = decisions.filter(|decision| decision.reason.contains(words));
        found.map(|decision| decision.at).collect::<Vec<_>>()
    };
    let (doubted, believed) = (said("at the same time"), said("the queue was our own"));
    assert_eq!(doubted.len(), 1, "{:#?}", transfer.decisions);
    assert_eq!(believed.len(), 1, "{:#?}", transfer.decisions);
    assert!(believed[0] > doubted[0], "{:#?}", transfer.decisions);
    let pace = transfer.pacing_rate.unwrap();
    assert!(pace.abs_diff(slower) < slower / 20, "{pace}");
}

#[test]
fn pacing_ends_when_the_path_becomes_faster() {
    let mut transfer = ScriptedTransfer::new(limits(1), 1);
    transfer.run(ms(10_000), own_queue);
    transfer.run(ms(13_000), |now| ScriptedFlow {
        rate: now.pacing_rate.unwrap_or(4 * RATE),
        ..ScriptedFlow::default()
    });
    assert_eq!(transfer.pacing_rate, None);
    assert!(
        transfer
            .decisions
            .iter()
            .any(|d| d.reason.contains("the path became faster"))
    );
}

#[test]
fn a_short_queue_is_not_drained_nor_any_without_permission_to_pace() {
    let mut transfer = ScriptedTransfer::new(
        AutoLimits {
            may_pace: false,
            ..limits(64)
        },
        1,
    );
    transfer.run(ms(20_000), own_queue);
    assert_eq!(transfer.settings(), []);
}

#[test]
fn surplus_streams_are_closed_on_a_full_path() {
    let mut transfer = ScriptedTransfer::new(limits(64), 16);
    transfer.run(ms(40_000), own_queue);
    assert_eq!(transfer.streams, 1, "{:#?}", transfer.decisions);
}

#[test]
fn streams_that_are_needed_are_opened_again() {
    let mut transfer = ScriptedTransfer::new(limits(64), 4);
    transfer.run(ms(30_000), |now| ScriptedFlow {
        rate: RATE / 4 * u64::from(now.streams.min(4)),
        writers_idle: true,
        ..ScriptedFlow::default()
    });
    let mut settings = transfer.settings();
    settings.retain(|setting| matches!(setting, TransferSetting::Streams(_)));
    // More gain nothing, and half are too few.
    assert_eq!(&settings[..4], [8, 4, 2, 4].map(TransferSetting::Streams));
    assert!(settings.len() <= 6, "{settings:?}");
    assert_eq!(transfer.streams, 4);
}

#[test]
fn bbr_that_the_tuner_chose_is_reverted_for_cross_traffic() {
    let mut transfer = ScriptedTransfer::new(limits(1), 1);
    transfer.run(ms(6000), |now| ScriptedFlow {
        rate: if now.congestion_control == "bbr" {
            RATE
        } else {
            RATE / 8
        },
        loss: 0.01,
        ..ScriptedFlow::default()
    });
    assert_eq!(transfer.congestion_control, "bbr");
    transfer.run(ms(40_000), |now| ScriptedFlow {
        rate: now.pacing_rate.unwrap_or(RATE / 2).min(RATE / 2),
        rtt: ms(130 + now.at.as_secs() % 4 * 10),
        ..ScriptedFlow::default()
    });
    assert_eq!(transfer.congestion_control, "cubic");
}

#[test]
fn a_share_that_cross_traffic_takes_is_conceded() {
    // Each stream gets an equal share of a queue that never drains. Pacing is not permitted, so that the
    // queue cannot be drained to find its owner.
    let unpaced = AutoLimits {
        may_pace: false,
        ..limits(64)
    };
    let mut transfer = ScriptedTransfer::new(unpaced, 4);
    transfer.run(ms(15_000), |now| ScriptedFlow {
        rate: RATE * u64::from(now.streams) / u64::from(now.streams + 4),
        rtt: ms(130 + now.at.as_secs() % 4 * 10),
        ..ScriptedFlow::default()
    });
    assert_eq!(transfer.streams, 1, "{:?}", transfer.decisions);
}
