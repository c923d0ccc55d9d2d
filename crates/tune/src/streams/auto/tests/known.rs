//! A transfer of which something is known before it begins.

use super::*;
use crate::prior::Prior;

const MBIT: u64 = 125_000;

fn prior() -> Prior {
    Prior {
        streams: Some(6),
        congestion_control: Some("bbr".to_owned()),
        pacing_rate: Some(90 * MBIT),
        send_buffer: Some(8 * MB),
        expected_rate: Some(90 * MBIT),
    }
}

/// The decisions of the first scene.
fn first(limits: AutoLimits, prior: Prior) -> (ScriptedTransfer, Vec<TransferDecision>) {
    let streams = prior.streams.unwrap_or(1).min(limits.max_streams);
    let mut world = ScriptedTransfer::with(AutoTuner::from_prior(limits, prior), streams);
    world.run(ms(1), |_| ScriptedFlow::default());
    let decisions = std::mem::take(&mut world.decisions);
    (world, decisions)
}

fn steps(decisions: &[TransferDecision]) -> Vec<TransferSetting> {
    decisions.iter().filter_map(|d| d.setting.clone()).collect()
}

#[test]
fn what_is_known_is_what_the_first_decisions_begin_with() {
    let (world, decisions) = first(limits(64), prior());
    let bbr = TransferSetting::CongestionControl("bbr".to_owned());
    let pace = TransferSetting::PacingRate(Some(90 * MBIT));
    assert_eq!(steps(&decisions), [bbr, pace]);
    assert_eq!(
        decisions[0].reason,
        "bbr instead of cubic, as is known of this path"
    );
    assert_eq!(
        decisions[1].reason,
        "90.0 Mbit/s fill this path, as is known of it"
    );
    assert_eq!(world.auto.verdict().streams, 6);
}

#[test]
fn what_may_not_be_changed_begins_as_it_is() {
    let fixed = AutoLimits {
        min_streams: 2,
        max_streams: 4,
        congestion_controls: vec!["cubic".to_owned()],
        may_pace: false,
    };
    let (world, decisions) = first(fixed, prior());
    assert_eq!(decisions, []);
    assert_eq!(world.auto.verdict().streams, 4);
}

#[test]
fn what_is_so_already_is_not_set() {
    let known = Prior {
        congestion_control: Some("cubic".to_owned()),
        ..Prior::with_streams(3)
    };
    assert_eq!(first(limits(64), known).1, []);
}

#[test]
fn nothing_known_is_one_stream_and_no_decision() {
    let (world, decisions) = first(limits(64), Prior::default());
    assert_eq!(decisions, []);
    assert_eq!(world.auto.verdict().streams, 1);
}

#[test]
fn a_transfer_of_which_only_the_number_is_known_goes_as_one_that_begins_with_it() {
    let path = |now: PathQuery<'_>| ScriptedFlow {
        rate: 10 * MBIT * u64::from(now.streams),
        held: 0.9,
        ..ScriptedFlow::default()
    };
    let mut new = ScriptedTransfer::new(limits(64), 3);
    let auto = AutoTuner::from_prior(limits(64), Prior::with_streams(3));
    let mut known = ScriptedTransfer::with(auto, 3);
    for world in [&mut new, &mut known] {
        world.run(ms(20_000), path);
    }
    assert!(!new.decisions.is_empty());
    assert_eq!(new.decisions, known.decisions);
}

/// Sends at 30 Mbit/s, no faster than it is told to, with a path that others do not use.
fn slower_than_known(now: PathQuery<'_>) -> ScriptedFlow {
    ScriptedFlow {
        rate: (30 * MBIT).min(now.pace.unwrap_or(u64::MAX)),
        ..ScriptedFlow::default()
    }
}

#[test]
fn a_pace_that_the_path_does_not_come_to_is_lifted() {
    let mut world = ScriptedTransfer::with(AutoTuner::from_prior(limits(6), prior()), 6);
    world.run(ms(10_000), slower_than_known);
    assert_eq!(world.pace, None);
    assert!(world.steps().contains(&TransferSetting::PacingRate(None)));
}

#[test]
fn a_rate_that_is_known_counts_while_slow_starts_hide_it() {
    let grown = |rate: Option<u64>, starting: bool| {
        let known = Prior {
            expected_rate: rate,
            ..Prior::with_streams(1)
        };
        let mut world = ScriptedTransfer::with(AutoTuner::from_prior(limits(64), known), 1);
        world.left = Some(20_000_000);
        world.run(ms(1000), |_| ScriptedFlow {
            rate: 5 * MBIT,
            held: 0.9,
            starting,
            ..ScriptedFlow::default()
        });
        !world.steps().is_empty()
    };
    // The window holds 5 Mbit/s back, of which there would be 30 seconds.
    assert!(grown(None, true));
    // At 1 Gbit/s it is over at once.
    assert!(!grown(Some(1000 * MBIT), true));
    assert!(grown(Some(1000 * MBIT), false));
}
