use super::*;

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

fn definition() -> ExperimentDefinition {
    ExperimentDefinition::parse("x.toml", EXPERIMENT).unwrap()
}

fn participant(more: &str) -> Participant {
    let text = format!("label = 'x'\n{more}\n[client]\nhost = 'a'\nargv = ['x']\n");
    Participant {
        key: "x".to_owned(),
        program: ProgramDefinition::parse("p.toml", &text).unwrap(),
        binaries: Variables::new(),
        variant: VariantDefinition::default(),
    }
}

fn visited(mode: Mode, only: &[&str]) -> Result<Vec<Vec<String>>, LabError> {
    let only: Vec<String> = only.iter().map(|s| (*s).to_owned()).collect();
    visited_values(&definition(), mode, &only)
}

fn participants_at(only: &[&str], participants: &[Participant]) -> Vec<Vec<usize>> {
    let visited = visited(Mode::Full, only).unwrap();
    let points = points_with_participants(&definition(), &visited, participants);
    points.into_iter().map(|(_, here)| here).collect()
}

fn at(p: &str, latency: &str) -> SweepPoint {
    [("p", p), ("latency", latency)]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into()
}

#[test]
fn every_shipped_experiment_has_cells_in_both_modes_and_names_programs_that_ship() {
    for (name, _) in catalog::EXPERIMENTS {
        let definition = catalog::load_experiment(name).unwrap().definition;
        for mode in [Mode::Full, Mode::Quick] {
            let cells = count_cells(name, mode, &definition).unwrap();
            assert!(cells > 0, "{name}");
        }
    }
}

#[test]
fn points_are_listed_row_by_row() {
    let visited = visited(Mode::Full, &[]).unwrap();
    let points = points_with_participants(&definition(), &visited, &[participant("")]);
    let order: Vec<_> = points
        .iter()
        .map(|(at, _)| (&*at["p"], &*at["latency"]))
        .collect();
    assert_eq!(
        order[..4],
        [("1", "1"), ("1", "5"), ("1", "10"), ("4", "1")]
    );
    assert_eq!(order.len(), 6);
}

#[test]
fn only_selects_from_all_values_and_keeps_their_order() {
    let chosen = visited(Mode::Quick, &["latency=10,5", "p=1"]).unwrap();
    assert_eq!(chosen, [vec!["1"], vec!["5", "10"]]);
    for (bad, named) in [
        ("latency", "AXIS=VALUE"),
        ("q=1", "latency"),
        ("p=7", "'7'"),
    ] {
        let message = visited(Mode::Full, &[bad]).unwrap_err().to_string();
        assert!(message.contains(named), "{message}");
    }
}

#[test]
fn a_program_that_ignores_an_axis_runs_once_and_only_restricts_the_points() {
    let participants = [
        participant(""),
        participant("ignores = { p = 'auto' }"),
        participant("only = { p = ['1'] }"),
    ];
    let expected = [vec![0, 1, 2], vec![0, 1, 2], vec![0], vec![0]];
    assert_eq!(participants_at(&["latency=1,5"], &participants), expected);
    assert_eq!(participants_at(&[], &participants[1..2]).len(), 3);
    let mut some = participant("only = { latency = ['1', '5'] }");
    some.variant.only = [("latency".to_owned(), vec!["5".to_owned(), "10".to_owned()])].into();
    let expected = [vec![0], vec![0, 1], vec![0]];
    assert_eq!(
        participants_at(&["p=1"], &[participant(""), some]),
        expected
    );
}

#[test]
fn every_participant_runs_first_in_one_of_the_repetitions() {
    let orders = [0, 1, 5].map(|repetition| rotated_order(3, repetition));
    assert_eq!(orders, [[0, 1, 2], [1, 2, 0], [2, 0, 1]]);
    assert!(rotated_order(0, 4).is_empty());
}

#[test]
fn seeds_differ_by_point_repetition_and_seed() {
    let seeds = [
        run_seed(1, &at("1", "10"), 0),
        run_seed(1, &at("1", "10"), 1),
        run_seed(1, &at("10", "1"), 0),
        run_seed(2, &at("1", "10"), 0),
    ];
    let different: std::collections::BTreeSet<u64> = seeds.into();
    assert!(different.len() == 4 && seeds.iter().all(|seed| *seed < 1 << 53));
    // Seeds stay the same from version to version: this one is from a results file.
    assert_eq!(run_seed(178, &at("1", "5"), 0), 6_777_867_121_281_556);
}

#[test]
fn the_expected_duration_follows_from_the_published_rate_and_the_limit() {
    let expected =
        |mode, latency| expected_seconds(&definition(), mode, "x", &at("4", latency), 450_000_000);
    assert!((expected(Mode::Full, "5") - 9.0).abs() < 1e-9);
    assert!((expected(Mode::Quick, "10") - 61.0).abs() < 1e-9);
}
