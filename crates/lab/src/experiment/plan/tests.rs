use proptest::prelude::*;

use super::*;
use crate::experiment::definition::Definition;

const EXPERIMENT: &str = r#"
title = "Throughput"
kind = "loopback"
measure = "goodput"
unit = "Mbit/s"
programs = { full = ["x", "auto", "curl"], quick = ["x"] }
repetitions = { full = 5, quick = 3 }
limit = { full = 600, quick = 60 }
[across]
key = "latency"
label = "latency"
full = ["1", "5", "10"]
quick = ["1", "10"]
[down]
key = "p"
label = "streams"
full = ["1", "4"]
quick = ["4"]
[paper]
"4" = [900, 450, 0.1]
"#;

fn definition() -> Definition {
    Definition::parse("x.toml", EXPERIMENT).unwrap()
}

fn entrant(key: &str, more: &str) -> Entrant {
    let text = format!("label = 'x'\n{more}\n[client]\nhost = 'a'\nargv = ['x']\n");
    Entrant {
        key: key.to_owned(),
        program: ProgramDefinition::parse("p.toml", &text).unwrap(),
        binaries: Variables::new(),
        variant: None,
    }
}

fn sweep(mode: Mode, only: &[&str]) -> Result<Sweep, LabError> {
    let only: Vec<String> = only.iter().map(|s| (*s).to_owned()).collect();
    Sweep::new(&definition(), mode, &only)
}

fn at(p: &str, latency: &str) -> At {
    [("p", p), ("latency", latency)]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into()
}

#[test]
fn rows_come_one_after_the_other() {
    let points = sweep(Mode::Full, &[]).unwrap().points(&[entrant("x", "")]);
    let order: Vec<_> = points
        .iter()
        .map(|p| (&*p.at["p"], &*p.at["latency"]))
        .collect();
    assert_eq!(
        order,
        [
            ("1", "1"),
            ("1", "5"),
            ("1", "10"),
            ("4", "1"),
            ("4", "5"),
            ("4", "10")
        ]
    );
    assert_eq!(
        sweep(Mode::Quick, &[])
            .unwrap()
            .points(&[entrant("x", "")])
            .len(),
        2
    );
}

#[test]
fn a_choice_picks_from_all_values_in_their_order() {
    let chosen = sweep(Mode::Quick, &["latency=10,5", "p=1"]).unwrap();
    assert_eq!(chosen.values("latency"), ["5", "10"]);
    assert_eq!(chosen.values("p"), ["1"]);
    for (bad, named) in [
        ("latency", "AXIS=VALUE"),
        ("q=1", "latency"),
        ("p=7", "'7'"),
    ] {
        let message = sweep(Mode::Full, &[bad]).unwrap_err().to_string();
        assert!(message.contains(named), "{message}");
    }
}

#[test]
fn who_ignores_an_axis_runs_once_and_who_cannot_follow_it_not_at_all() {
    let entrants = [
        entrant("x", ""),
        entrant("auto", "ignores = { p = 'auto' }"),
        entrant("curl", "only = { p = ['1'] }"),
    ];
    let points = sweep(Mode::Full, &["latency=1,5"])
        .unwrap()
        .points(&entrants);
    let who: Vec<_> = points.iter().map(|p| p.entrants.as_slice()).collect();
    assert_eq!(who, [&[0, 1, 2][..], &[0, 1, 2], &[0], &[0]]);
    let alone = sweep(Mode::Full, &[]).unwrap().points(&entrants[1..2]);
    assert_eq!(alone.len(), 3);
}

#[test]
fn a_variant_may_take_part_at_some_values_only() {
    let mut some = entrant("some", "only = { latency = ['1', '5'] }");
    some.variant = Some(VariantDefinition {
        only: [("latency".to_owned(), vec!["5".to_owned(), "10".to_owned()])].into(),
        ..VariantDefinition::default()
    });
    let all = sweep(Mode::Full, &["p=1"]).unwrap();
    let points = all.points(&[entrant("x", ""), some]);
    let who: Vec<_> = points.iter().map(|p| p.entrants.as_slice()).collect();
    assert_eq!(who, [&[0][..], &[0, 1], &[0]]);
}

#[test]
fn everybody_begins_in_turn() {
    assert_eq!(rotated(&[3, 5, 7], 0), [3, 5, 7]);
    assert_eq!(rotated(&[3, 5, 7], 1), [5, 7, 3]);
    assert_eq!(rotated(&[3, 5, 7], 5), [7, 3, 5]);
    assert!(rotated(&[], 4).is_empty());
}

#[test]
fn seeds_differ_by_point_repetition_and_seed() {
    let seeds = [
        run_seed(1, &at("1", "10"), 0),
        run_seed(1, &at("1", "10"), 1),
        run_seed(1, &at("10", "1"), 0),
        run_seed(2, &at("1", "10"), 0),
    ];
    for (i, seed) in seeds.iter().enumerate() {
        assert!(!seeds[..i].contains(seed));
        assert!(*seed < 1 << 53);
    }
    // What a results file promises: the same today and tomorrow. This one is from a file.
    let published = [("latency", "5"), ("p", "1")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(
        run_seed(178, &published.into_iter().collect(), 0),
        6_777_867_121_281_556
    );
}

#[test]
fn a_run_is_expected_to_last_as_long_as_published() {
    let d = definition();
    let seconds = expected_seconds(&d, Mode::Full, "x", &at("4", "5"), 450_000_000);
    assert!((seconds - 9.0).abs() < 1e-9, "{seconds}");
    // Never longer than the limit.
    let slow = expected_seconds(&d, Mode::Quick, "x", &at("4", "10"), 450_000_000);
    assert!((slow - 61.0).abs() < 1e-9, "{slow}");
}

proptest! {
    #[test]
    fn a_rotation_loses_nobody(count in 0_usize..9, repetition in 0_u32..50) {
        let all: Vec<usize> = (0..count).collect();
        let mut order = rotated(&all, repetition);
        order.sort_unstable();
        prop_assert_eq!(order, all);
    }
}
