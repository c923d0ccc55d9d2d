//! Transfers that begin with knowledge of their path.

use super::*;
use crate::prior::{PathRate, Prior};

const MBIT: u64 = 125_000;

fn full(bytes_per_second: u64) -> PathRate {
    PathRate {
        bytes_per_second,
        is_full: true,
    }
}

fn prior() -> Prior {
    Prior {
        streams: Some(6),
        congestion_control: Some("bbr".to_owned()),
        pacing_rate: Some(90 * MBIT),
        send_buffer: Some(8 * MB),
        path_rate: Some(full(90 * MBIT)),
        min_rtt: Some(ms(50)),
        is_alone: false,
    }
}

/// Decisions at the first sample.
fn first_decisions(limits: AutoLimits, prior: Prior) -> (ScriptedTransfer, Vec<TransferDecision>) {
    let streams = prior.streams.unwrap_or(1).min(limits.max_streams);
    let mut transfer = ScriptedTransfer::with(AutoTuner::from_prior(limits, prior), streams);
    transfer.run(ms(1), |_| ScriptedFlow::default());
    let decisions = std::mem::take(&mut transfer.decisions);
    (transfer, decisions)
}

fn settings(decisions: &[TransferDecision]) -> Vec<TransferSetting> {
    decisions.iter().filter_map(|d| d.setting.clone()).collect()
}

#[test]
fn the_first_decisions_apply_the_known_settings() {
    let (transfer, decisions) = first_decisions(limits(64), prior());
    let bbr = TransferSetting::CongestionControl("bbr".to_owned());
    let pacing_rate = TransferSetting::PacingRate(Some(90 * MBIT));
    assert_eq!(settings(&decisions), [bbr, pacing_rate]);
    assert_eq!(
        decisions[0].reason,
        "bbr instead of cubic, by earlier knowledge of this path"
    );
    assert_eq!(
        decisions[1].reason,
        "90.0 Mbit/s fill this path, by earlier knowledge of it"
    );
    assert_eq!(transfer.tuner.verdict().streams, 6);
}

#[test]
fn known_settings_outside_the_limits_are_not_applied() {
    let fixed = AutoLimits {
        min_streams: 2,
        max_streams: 4,
        congestion_controls: vec!["cubic".to_owned()],
        may_pace: false,
    };
    let (transfer, decisions) = first_decisions(fixed, prior());
    assert_eq!(decisions, []);
    assert_eq!(transfer.tuner.verdict().streams, 4);
}

#[test]
fn a_known_setting_in_force_is_not_set_again() {
    let known = Prior {
        congestion_control: Some("cubic".to_owned()),
        ..Prior::with_streams(3)
    };
    assert_eq!(first_decisions(limits(64), known).1, []);
}

#[test]
fn without_knowledge_there_is_one_stream_and_no_decision() {
    let (transfer, decisions) = first_decisions(limits(64), Prior::default());
    assert_eq!(decisions, []);
    assert_eq!(transfer.tuner.verdict().streams, 1);
}

#[test]
fn a_prior_with_streams_only_behaves_like_a_tuner_with_that_number() {
    let path = |now: PathQuery<'_>| ScriptedFlow {
        rate: 10 * MBIT * u64::from(now.streams),
        window_full: 0.9,
        ..ScriptedFlow::default()
    };
    let mut new = ScriptedTransfer::new(limits(64), 3);
    let tuner = AutoTuner::from_prior(limits(64), Prior::with_streams(3));
    let mut known = ScriptedTransfer::with(tuner, 3);
    for transfer in [&mut new, &mut known] {
        transfer.run(ms(20_000), path);
    }
    assert!(!new.decisions.is_empty());
    assert_eq!(new.decisions, known.decisions);
}

/// A transfer that reaches 30 Mbit/s without a queue, or less if the pacing rate is lower.
fn slower_than_known(now: PathQuery<'_>) -> ScriptedFlow {
    ScriptedFlow {
        rate: (30 * MBIT).min(now.pacing_rate.unwrap_or(u64::MAX)),
        ..ScriptedFlow::default()
    }
}

#[test]
fn pacing_ends_if_the_path_does_not_reach_the_known_rate() {
    let mut transfer = ScriptedTransfer::with(AutoTuner::from_prior(limits(6), prior()), 6);
    transfer.run(ms(10_000), slower_than_known);
    assert_eq!(transfer.pacing_rate, None);
    assert!(
        transfer
            .settings()
            .contains(&TransferSetting::PacingRate(None))
    );
}

#[test]
fn the_known_rate_counts_during_slow_start() {
    let grown = |rate: Option<u64>, in_slow_start: bool| {
        let known = Prior {
            path_rate: rate.map(full),
            ..Prior::with_streams(1)
        };
        let mut transfer = ScriptedTransfer::with(AutoTuner::from_prior(limits(64), known), 1);
        transfer.bytes_left = Some(20_000_000);
        transfer.run(ms(1000), |_| ScriptedFlow {
            rate: 5 * MBIT,
            window_full: 0.9,
            in_slow_start,
            ..ScriptedFlow::default()
        });
        !transfer.settings().is_empty()
    };
    // At the 5 Mbit/s that the window allows, 30 seconds are left.
    assert!(grown(None, true));
    // At 1 Gbit/s less than a second is left.
    assert!(!grown(Some(1000 * MBIT), true));
    assert!(grown(Some(1000 * MBIT), false));
}

#[test]
fn a_known_pace_is_not_forgotten_by_a_comparison() {
    let paced = Prior {
        streams: Some(6),
        pacing_rate: Some(90 * MBIT),
        min_rtt: Some(ms(50)),
        ..Prior::default()
    };
    let (transfer, decisions) = first_decisions(limits(64), paced);
    let pace = TransferSetting::PacingRate(Some(90 * MBIT));
    assert_eq!(settings(&decisions), [pace]);
    assert_eq!(transfer.tuner.pacing_rate(), Some(90 * MBIT));
}

/// Knowledge from a transfer of 90 Mbit/s that ended with 12 streams of BBR.
fn lossy_prior() -> Prior {
    Prior {
        pacing_rate: None,
        streams: Some(12),
        ..prior()
    }
}

/// A path that carries its rate with a queue of 60 ms once it is full, 300 ms after the start.
fn full_after_300_ms(now: PathQuery<'_>, rate: u64) -> ScriptedFlow {
    let is_full = now.at >= ms(300);
    ScriptedFlow {
        rate: if is_full { rate } else { rate / 2 },
        rtt: if is_full { ms(110) } else { ms(50) },
        ..ScriptedFlow::default()
    }
}

/// Time of the decisions that drop what was known, and the settings with them.
fn dropped(transfer: &ScriptedTransfer) -> Vec<(Duration, TransferSetting)> {
    let is_drop = |d: &&TransferDecision| d.reason.contains("does not hold");
    let decisions = transfer.decisions.iter().filter(is_drop);
    decisions
        .filter_map(|d| Some((d.at, d.setting.clone()?)))
        .collect()
}

#[test]
fn a_slower_path_is_told_and_its_rate_takes_the_place_of_the_known_one() {
    let tuner = AutoTuner::from_prior(limits(64), lossy_prior());
    let mut transfer = ScriptedTransfer::with(tuner, 12);
    transfer.run(ms(1_000), |now| full_after_300_ms(now, 20 * MBIT));
    let is_told = |d: &TransferDecision| d.reason.contains("does not hold: it is slower now");
    assert!(transfer.decisions.iter().any(is_told));
    let rate = transfer.tuner.path_rate().unwrap();
    assert!(
        rate.is_full && rate.bytes_per_second <= 21 * MBIT,
        "{rate:?}"
    );
}

#[test]
fn another_round_trip_drops_all_that_was_known() {
    let known = Prior {
        min_rtt: Some(ms(10)),
        pacing_rate: Some(90 * MBIT),
        ..lossy_prior()
    };
    let mut transfer = ScriptedTransfer::with(AutoTuner::from_prior(limits(64), known), 12);
    transfer.run(ms(2_000), |_| ScriptedFlow::default());
    let dropped = dropped(&transfer);
    assert_eq!(dropped.len(), 3);
    assert!(dropped.iter().all(|(at, _)| *at <= ms(150)), "{dropped:?}");
    assert_eq!(transfer.congestion_control, "cubic");
    assert_eq!(transfer.pacing_rate, None);
}

#[test]
fn knowledge_that_agrees_is_kept_from_the_first_byte_to_the_last() {
    let tuner = AutoTuner::from_prior(limits(64), lossy_prior());
    let mut transfer = ScriptedTransfer::with(tuner, 12);
    transfer.run(ms(9_000), |now| ScriptedFlow {
        rate: (90 * MBIT).min(
            90 * MBIT / 1_000_000 * u64::from(now.at.subsec_micros())
                + 90 * MBIT * now.at.as_secs(),
        ),
        loss: 0.01,
        ..ScriptedFlow::default()
    });
    let bbr = TransferSetting::CongestionControl("bbr".to_owned());
    assert_eq!(transfer.settings(), [bbr]);
    assert_eq!(transfer.streams, 12);
}

#[test]
fn losses_keep_the_control_that_tolerates_them_although_the_path_is_slower() {
    let tuner = AutoTuner::from_prior(limits(64), lossy_prior());
    let mut transfer = ScriptedTransfer::with(tuner, 12);
    transfer.run(ms(4_000), |_| ScriptedFlow {
        rate: 20 * MBIT,
        loss: 0.01,
        ..ScriptedFlow::default()
    });
    assert_eq!(transfer.congestion_control, "bbr");
}
