use std::collections::BTreeMap;

use super::*;
use crate::experiment::results::TestMachine;
use crate::experiment::tally;

const EXPERIMENT: &str = r#"
title = "T"
kind = "loopback"
measure = "goodput"
unit = "Mbit/s"
programs = { full = ["one", "two"], quick = ["two"] }
repetitions = { full = 1, quick = 1 }
limit = { full = 1, quick = 1 }
[across]
key = "rtt"
label = "round trip"
full = ["1", "10", "100"]
quick = ["1"]
[best.better]
label = "better one"
of = ["one", "two"]
"#;

fn definition() -> Definition {
    Definition::parse("t.toml", EXPERIMENT).unwrap()
}

fn cell(program: &str, rtt: &str, median: f64) -> ResultCell {
    let at = BTreeMap::from([("rtt".to_owned(), rtt.to_owned())]);
    ResultCell {
        median: Some(median),
        ..tally::empty(program, at, None)
    }
}

fn results(program: &str, values: &[&str], cells: Vec<ResultCell>) -> ExperimentResults {
    ExperimentResults {
        experiment: "t".into(),
        title: "T".into(),
        source: String::new(),
        reference: crate::experiment::results::PUBLISHED.into(),
        mode: "full".into(),
        started: "2026-01-02T00:00:00Z".into(),
        seconds: 1.0,
        seed: 1,
        definition: "f".into(),
        options: Vec::new(),
        environment: TestMachine::default(),
        unit: "Mbit/s".into(),
        higher_is_better: true,
        also: Vec::new(),
        charts: Vec::new(),
        baseline: None,
        across: SweepAxis {
            key: "rtt".into(),
            label: "round trip".into(),
            unit: "ms".into(),
            values: values.iter().map(|v| (*v).to_owned()).collect(),
            logarithmic: false,
        },
        down: None,
        programs: vec![ComparedProgram {
            key: program.into(),
            label: program.to_uppercase(),
            published_ratio: None,
        }],
        cells,
        unfinished: Vec::new(),
        planned: 6,
        notes: Vec::new(),
    }
}

fn told(results: &ExperimentResults) -> Vec<String> {
    let cells = results.cells.iter();
    cells
        .map(|c| format!("{} {} {}", c.program, c.at["rtt"], c.median.unwrap()))
        .collect()
}

#[test]
fn cells_that_are_there_stay_and_those_measured_again_are_replaced() {
    let definition = definition();
    let first = results("one", &["10"], vec![cell("one", "10", 5.0)]);
    let first = merged(&definition, None, &first);
    let more = vec![cell("one", "1", 6.0), cell("one", "10", 7.0)];
    let second = results("one", &["1", "10"], more);
    let all = merged(&definition, Some(first), &second);
    assert_eq!(all.across.values, ["1", "10"]);
    let expected = ["one 1 6", "better 1 6", "one 10 7", "better 10 7"];
    assert_eq!(told(&all), expected);
    assert_eq!(all.seconds, 2.0);
}

#[test]
fn the_best_is_found_anew_among_the_programs_of_several_runs() {
    let definition = definition();
    let two = results("two", &["1"], vec![cell("two", "1", 50.0)]);
    let two = merged(&definition, None, &two);
    assert_eq!(told(&two), ["two 1 50", "better 1 50"]);
    let one = results("one", &["1"], vec![cell("one", "1", 100.0)]);
    let all = merged(&definition, Some(two), &one);
    assert_eq!(told(&all), ["one 1 100", "two 1 50", "better 1 100"]);
    let ratio = |cell: &ResultCell| cell.also["of-better"].median.unwrap();
    assert_eq!((ratio(&all.cells[0]), ratio(&all.cells[1])), (1.0, 0.5));
    let keys: Vec<_> = all.programs.iter().map(|p| &*p.key).collect();
    assert_eq!(keys, ["one", "two", "better"]);
}

#[test]
fn half_a_cell_is_kept_apart_until_it_is_whole() {
    let definition = definition();
    let mut first = results("one", &["1"], Vec::new());
    first.unfinished = vec![cell("one", "1", 5.0)];
    first.notes = vec![format!("{ENDED_EARLY}interrupted after 0 of 1 points.")];
    let first = merged(&definition, None, &first);
    assert!(first.cells.is_empty() && first.unfinished.len() == 1);
    let other = results("one", &["10"], vec![cell("one", "10", 6.0)]);
    let both = merged(&definition, Some(first), &other);
    assert_eq!((both.cells.len(), both.unfinished.len()), (2, 1));
    assert!(both.notes.is_empty(), "of a run that has ended since");
    let whole = results("one", &["1"], vec![cell("one", "1", 7.0)]);
    let all = merged(&definition, Some(both), &whole);
    assert!(all.unfinished.is_empty());
    assert!(told(&all).contains(&"one 1 7".to_owned()));
}

#[test]
fn two_versions_of_a_program_are_told() {
    let definition = definition();
    let with = |version: &str| {
        let mut results = results("one", &["1"], Vec::new());
        let versions = &mut results.environment.versions;
        versions.insert("one".into(), version.into());
        results
    };
    let all = merged(&definition, Some(with("1.0")), &with("1.1"));
    assert!(all.notes[0].contains("1.0") && all.notes[0].contains("1.1"));
    assert_eq!(all.environment.versions["one"], "1.1");
}

#[test]
fn other_seeds_and_other_versions_of_the_file_are_refused() {
    let file = Path::new("out/t-full.json");
    let kept = results("one", &["1"], Vec::new());
    check(file, &kept, &kept).unwrap();
    let mut fresh = kept.clone();
    fresh.seed = 2;
    let told = check(file, &kept, &fresh).unwrap_err().to_string();
    assert!(
        told.contains("seed 1, not 2") && told.contains("--fresh"),
        "{told}"
    );
    fresh = kept.clone();
    fresh.definition = "g".into();
    let told = check(file, &kept, &fresh).unwrap_err().to_string();
    assert!(told.contains("another version"), "{told}");
}

#[test]
fn only_options_that_both_runs_had_are_kept() {
    let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
    let one = words("--repetitions 1 --only rtt=1");
    let other = words("--repetitions 1 --only rtt=10");
    assert_eq!(common(&one, &other), words("--repetitions 1"));
}
