use std::path::Path;

use super::*;
use crate::experiment::Mode;

const EXPERIMENT: &str = r#"
title = "Few connections"
kind = "sim"
measure = "goodput"
unit = "Mbit/s"
notes = ["A note."]
programs = { full = ["simulator"], quick = ["simulator"] }
repetitions = { full = 3, quick = 2 }
limit = { full = 60, quick = 60 }
[across]
key = "connections"
label = "connections"
full = ["1", "2", "4"]
quick = ["1", "4"]
[simulation]
flows = "{connections}"
time = "1s"
warm-up = "1s"
[paper]
values = [21.2, 42.4, 84.8]
"#;

fn request(directory: &Path, text: &str) -> RunRequest {
    let file = directory.join("few.toml");
    std::fs::write(&file, text).unwrap();
    let name = file.display().to_string();
    RunRequest::new(&name, Mode::Quick, &directory.join("results"))
}

#[test]
fn a_whole_experiment_is_run_told_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    let mut said = Vec::new();
    let request = request(directory.path(), EXPERIMENT);
    let saved = run(&request, &mut |line| said.push(line.to_owned())).unwrap();
    let kept: ExperimentResults =
        serde_json::from_slice(&std::fs::read(&saved.json).unwrap()).unwrap();
    assert_eq!(kept.cells.len(), saved.results.cells.len());
    assert_eq!(saved.csv, request.out.join("few-quick.csv"));
    assert_eq!(kept.across.values, ["1", "4"]);
    assert_eq!(kept.notes, ["A note."]);
    let [one, four] = kept.cells.as_slice() else {
        panic!("{:?}", kept.cells);
    };
    assert_eq!((one.paper, four.paper), (Some(21.2), Some(84.8)));
    for cell in [one, four] {
        assert_eq!(cell.samples.len(), 2);
        assert_ne!(cell.samples[0].seed, cell.samples[1].seed);
        let (median, paper) = (cell.median.unwrap(), cell.paper.unwrap());
        assert!((median / paper - 1.0).abs() < 0.05, "{median} {paper}");
        assert_eq!(cell.half_width, None, "of two runs");
    }
    let told = |text: &str| said.iter().any(|line| line.contains(text));
    assert!(told(
        "few (quick): 2 points, 1 programs, 2 cells of 2 runs; about"
    ));
    assert!(told("connections 4"), "{said:?}");
}

#[test]
fn a_request_changes_points_repetitions_and_seed() {
    let directory = tempfile::tempdir().unwrap();
    let mut request = request(directory.path(), EXPERIMENT);
    request.only = vec!["connections=2".into()];
    request.repetitions = Some(1);
    request.seed = Some(9);
    let results = run(&request, &mut |_| {}).unwrap().results;
    assert_eq!((results.cells.len(), results.seed), (1, 9));
    let command = &results.cells[0].samples[0].command;
    assert!(
        command.starts_with("longhaul lab sim --flows 2 --time 1s --warm-up 1s --seed "),
        "{command}"
    );
}

#[test]
fn variants_take_part_as_programs_with_their_own_settings_and_runs() {
    let directory = tempfile::tempdir().unwrap();
    let text = EXPERIMENT
        .replace("[\"simulator\"]", "[\"slow\", \"fast\"]")
        .replace("notes =", "baseline = 'slow'\nnotes =")
        .replace(
            "\n[paper]\nvalues = [21.2, 42.4, 84.8]\n",
            "\nrtt = '{rtt}'\n",
        )
        + r#"
[variants.slow]
program = "simulator"
label = "200 ms"
sets = { rtt = "200ms" }
quick_repetitions = 1
[variants.slow.paper]
goodput = [nan, nan, 9]
[variants.fast]
program = "simulator"
label = "20 ms"
sets = { rtt = "20ms" }
published_ratio = 10
"#;
    let mut said = Vec::new();
    let request = request(directory.path(), &text);
    let saved = run(&request, &mut |line| said.push(line.to_owned())).unwrap();
    let results = saved.results;
    assert_eq!(results.baseline.as_deref(), Some("slow"));
    let programs: Vec<_> = results
        .programs
        .iter()
        .map(|p| (&*p.key, &*p.label, p.published_ratio))
        .collect();
    assert_eq!(
        programs,
        [("slow", "200 ms", None), ("fast", "20 ms", Some(10.0))]
    );
    let runs: Vec<_> = results
        .cells
        .iter()
        .map(|cell| (&*cell.program, cell.samples.len(), cell.paper))
        .collect();
    assert_eq!(
        runs,
        [
            ("slow", 1, None),
            ("fast", 2, None),
            ("slow", 1, Some(9.0)),
            ("fast", 2, None)
        ]
    );
    assert!(results.cells[1].median > results.cells[0].median);
    // At a point and repetition everybody has the same seed.
    assert_eq!(
        results.cells[0].samples[0].seed,
        results.cells[1].samples[0].seed
    );
    let told = |text: &str| said.iter().any(|line| line.contains(text));
    assert!(told("4 cells of 1 or 2 runs"), "{said:?}");
    assert!(told("In a quick run '200 ms' has one run"), "{said:?}");
}

#[test]
fn what_cannot_be_run_is_refused_before_anything_is_made() {
    let directory = tempfile::tempdir().unwrap();
    for (from, to, named) in [
        ("{connections}\"", "{conections}\"", "key 'simulation'"),
        ("flows =", "flaws =", "flaws"),
        ("\"1s\"\nwarm", "\"soon\"\nwarm", "--time"),
        (
            "\"simulator\"], quick = [\"simulator\"]",
            "\"curl\"], quick = [\"curl\"]",
            "curl",
        ),
    ] {
        let request = request(directory.path(), &EXPERIMENT.replace(from, to));
        let message = run(&request, &mut |_| {}).unwrap_err().to_string();
        assert!(message.contains(named), "{message}");
        assert!(!request.out.join("few-quick.json").exists());
    }
    let mut unknown = request(directory.path(), EXPERIMENT);
    unknown.programs = vec!["rsync".into()];
    assert!(matches!(
        run(&unknown, &mut |_| {}),
        Err(LabError::NotFound(_))
    ));
}

#[test]
fn the_best_of_several_is_told_and_kept_but_is_no_run() {
    let directory = tempfile::tempdir().unwrap();
    let text = EXPERIMENT
        .replace("[\"simulator\"]", "[\"slow\", \"fast\"]")
        .replace("notes =", "baseline = 'either'\nnotes =")
        .replace(
            "\n[paper]\nvalues = [21.2, 42.4, 84.8]\n",
            "\nrtt = '{rtt}'\n",
        )
        + r#"
[variants.slow]
program = "simulator"
label = "200 ms"
sets = { rtt = "200ms" }
[variants.fast]
program = "simulator"
label = "20 ms"
sets = { rtt = "20ms" }
[best.either]
label = "better one"
of = ["slow", "fast"]
"#;
    let mut said = Vec::new();
    let request = request(directory.path(), &text);
    let saved = run(&request, &mut |line| said.push(line.to_owned())).unwrap();
    let results = saved.results;
    assert_eq!(results.programs[2].label, "better one");
    assert_eq!(results.also[0].label, "ratio to the better one");
    assert_eq!(results.cells.len(), 6);
    for point in results.cells.chunks(3) {
        assert_eq!(point[2].chosen.as_deref(), Some("fast"));
        assert_eq!(point[2].median, point[1].median);
        let ratio = |cell: &ResultCell| cell.also["of-either"].median.unwrap();
        assert!(ratio(&point[0]) < 0.5 && ratio(&point[1]) == 1.0);
    }
    assert!(said.iter().any(|line| line.starts_with("either (fast)")));
    let csv = std::fs::read_to_string(&saved.csv).unwrap();
    assert!(csv.contains("ratio to the better one (\u{d7})"), "{csv}");
    assert_eq!(csv.matches(",either,").count(), 0, "{csv}");
}

fn kept(request: &RunRequest) -> ExperimentResults {
    let file = request.out.join("few-quick.json");
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

fn values(results: &ExperimentResults) -> Vec<&str> {
    let cells = results.cells.iter();
    cells.map(|cell| cell.at["connections"].as_str()).collect()
}

#[test]
fn a_second_run_in_the_same_place_keeps_the_cells_of_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let mut request = request(directory.path(), EXPERIMENT);
    request.repetitions = Some(1);
    for only in ["connections=2", "connections=1"] {
        request.only = vec![only.into()];
        run(&request, &mut |_| {}).unwrap();
    }
    let results = kept(&request);
    assert_eq!(values(&results), ["1", "2"]);
    assert_eq!(results.across.values, ["1", "2"]);
    assert_eq!(results.planned, 2, "of a quick run");
    let csv = std::fs::read_to_string(request.out.join("few-quick.csv")).unwrap();
    assert_eq!(csv.lines().count(), 3, "{csv}");
    assert_eq!(results.options, ["--repetitions", "1"]);
}

#[test]
fn what_is_there_is_not_run_again_when_a_run_is_resumed() {
    let directory = tempfile::tempdir().unwrap();
    let mut request = request(directory.path(), EXPERIMENT);
    request.only = vec!["connections=4".into()];
    request.repetitions = Some(1);
    let first = run(&request, &mut |_| {}).unwrap().results;
    request.only = Vec::new();
    request.repetitions = None;
    request.resume = true;
    let mut said = Vec::new();
    let all = run(&request, &mut |line| said.push(line.to_owned())).unwrap();
    let all = all.results;
    assert_eq!(values(&all), ["1", "4"]);
    let [_, four] = all.cells.as_slice() else {
        panic!("{all:?}")
    };
    assert_eq!(four.samples[0], first.cells[0].samples[0], "is kept");
    assert_eq!(four.samples.len(), 2);
    assert_ne!(four.samples[0].seed, four.samples[1].seed);
    run(&request, &mut |line| said.push(line.to_owned())).unwrap();
    assert_eq!(kept(&request).cells, all.cells);
    assert!(
        said.iter()
            .any(|line| line.contains("nothing to run; 2 cells")),
        "{said:?}"
    );
}

#[test]
fn half_a_cell_does_not_count_and_is_finished_when_the_run_is_resumed() {
    let directory = tempfile::tempdir().unwrap();
    let mut request = request(directory.path(), EXPERIMENT);
    request.repetitions = Some(1);
    request.only = vec!["connections=4".into()];
    let mut half = run(&request, &mut |_| {}).unwrap().results;
    // As an interrupt after the first of two repetitions leaves it.
    half.unfinished = std::mem::take(&mut half.cells);
    let file = request.out.join("few-quick.json");
    std::fs::write(&file, serde_json::to_vec(&half).unwrap()).unwrap();
    request.repetitions = None;
    request.resume = true;
    let whole = run(&request, &mut |_| {}).unwrap().results;
    assert!(whole.unfinished.is_empty());
    let [cell] = whole.cells.as_slice() else {
        panic!("{whole:?}")
    };
    assert_eq!(cell.samples.len(), 2);
    assert_eq!(cell.samples[0], half.unfinished[0].samples[0]);
}

#[test]
fn a_run_whose_time_is_used_up_says_so_and_counts_nothing_that_is_half() {
    let directory = tempfile::tempdir().unwrap();
    let mut request = request(directory.path(), EXPERIMENT);
    request.until = Some(Instant::now());
    let mut said = Vec::new();
    let results = run(&request, &mut |line| said.push(line.to_owned())).unwrap();
    assert!(results.results.cells.is_empty());
    assert!(
        said.contains(&"Ended early: the time is used up after 0 of 2 points.".to_owned()),
        "{said:?}"
    );
}

#[test]
fn results_that_do_not_fit_are_neither_mixed_nor_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let mut request = request(directory.path(), EXPERIMENT);
    request.repetitions = Some(1);
    run(&request, &mut |_| {}).unwrap();
    let before = kept(&request);
    request.seed = Some(9);
    let message = run(&request, &mut |_| {}).unwrap_err().to_string();
    assert!(message.contains("seed 1, not 9"), "{message}");
    assert_eq!(kept(&request), before);
    request.fresh = true;
    run(&request, &mut |_| {}).unwrap();
    assert_eq!(kept(&request).seed, 9);
    let aside = std::fs::read(request.out.join("few-quick.json~")).unwrap();
    let aside: ExperimentResults = serde_json::from_slice(&aside).unwrap();
    assert_eq!(aside, before);
    let file = request.out.join("few-quick.json");
    std::fs::write(&file, "my notes").unwrap();
    request.fresh = false;
    assert!(matches!(
        run(&request, &mut |_| {}),
        Err(LabError::Usage(_))
    ));
    assert_eq!(std::fs::read_to_string(file).unwrap(), "my notes");
}

#[test]
fn a_cell_of_which_the_lab_spoiled_every_run_is_run_again_when_resumed() {
    let directory = tempfile::tempdir().unwrap();
    let mut request = request(directory.path(), EXPERIMENT);
    request.only = vec!["connections=1".into()];
    let mut results = run(&request, &mut |_| {}).unwrap().results;
    for sample in &mut results.cells[0].samples {
        sample.invalid = vec!["late".into()];
        sample.spoiled = true;
    }
    let file = request.out.join("few-quick.json");
    std::fs::write(&file, serde_json::to_vec(&results).unwrap()).unwrap();
    request.resume = true;
    let results = run(&request, &mut |_| {}).unwrap().results;
    let samples = &results.cells[0].samples;
    assert!(samples.len() == 2 && samples.iter().all(|sample| !sample.spoiled));
}
