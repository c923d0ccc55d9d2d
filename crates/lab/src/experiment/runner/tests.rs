use super::*;

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

/// Two variants, and a set of both.
const VARIANTS: &str = r#"
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
[best.either]
label = "better one"
of = ["slow", "fast"]
"#;

/// An experiment file in a directory of its own, and a request for a quick run of it.
struct Fixture {
    directory: tempfile::TempDir,
    request: RunRequest,
}

impl Fixture {
    fn new(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("few.toml");
        std::fs::write(&file, text).unwrap();
        let (name, out) = (file.display().to_string(), directory.path().join("results"));
        let request = RunRequest::new(&name, Mode::Quick, &out);
        Self { directory, request }
    }

    /// Makes a fixture with one repetition at one point.
    fn at(connections: &str) -> Self {
        let mut fixture = Self::new(EXPERIMENT);
        fixture.request.repetitions = Some(1);
        fixture.request.only = vec![format!("connections={connections}")];
        fixture
    }

    /// Runs the experiment. Returns the results and the printed lines.
    fn run(&self) -> Result<(ExperimentResults, String), LabError> {
        let mut printed = String::new();
        let saved = run(&self.request, &mut |line| printed += &format!("{line}\n"))?;
        Ok((saved.results, printed))
    }

    fn results(&self) -> ExperimentResults {
        self.run().unwrap().0
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("results/few-quick.json")
    }

    fn kept(&self) -> ExperimentResults {
        store::read(&self.file()).unwrap().unwrap()
    }

    /// Replaces the saved results.
    fn keep(&self, results: &ExperimentResults) {
        std::fs::write(self.file(), serde_json::to_vec(results).unwrap()).unwrap();
    }
}

fn values(results: &ExperimentResults) -> Vec<&str> {
    let cells = results.cells.iter();
    cells.map(|cell| cell.at["connections"].as_str()).collect()
}

#[test]
fn a_whole_experiment_is_run_printed_and_saved() {
    let fixture = Fixture::new(EXPERIMENT);
    let (_, printed) = fixture.run().unwrap();
    let kept = fixture.kept();
    assert_eq!((values(&kept), kept.planned), (vec!["1", "4"], 2));
    assert_eq!(
        (&kept.across.values, &*kept.notes[0]),
        (&vec!["1".into(), "4".into()], "A note.")
    );
    for (cell, published) in kept.cells.iter().zip([21.2, 84.8]) {
        assert_eq!((cell.samples.len(), cell.paper), (2, Some(published)));
        assert_ne!(cell.samples[0].seed, cell.samples[1].seed);
        let median = cell.median.unwrap();
        assert!(
            (median / published - 1.0).abs() < 0.05,
            "{median} {published}"
        );
        assert_eq!(cell.half_width, None, "of two runs");
    }
    assert!(printed.contains("few (quick): 2 points, 1 programs, 2 cells of 2 runs; about"));
    assert!(printed.contains("connections 4"), "{printed}");
}

#[test]
fn a_request_changes_points_repetitions_and_seed() {
    let mut fixture = Fixture::at("2");
    fixture.request.seed = Some(9);
    let results = fixture.results();
    assert_eq!((results.cells.len(), results.seed), (1, 9));
    let command = &results.cells[0].samples[0].command;
    let expected = "longhaul lab sim --flows 2 --time 1s --warm-up 1s --seed ";
    assert!(command.starts_with(expected), "{command}");
}

#[test]
fn variants_take_part_as_programs_and_the_best_of_them_adds_no_run() {
    let text = EXPERIMENT
        .replace("[\"simulator\"]", "[\"slow\", \"fast\"]")
        .replace("notes =", "baseline = 'either'\nnotes =")
        .replace(
            "\n[paper]\nvalues = [21.2, 42.4, 84.8]\n",
            "\nrtt = '{rtt}'\n",
        );
    let fixture = Fixture::new(&(text + VARIANTS));
    let (results, printed) = fixture.run().unwrap();
    let programs = results.programs.iter();
    let programs: Vec<_> = programs
        .map(|p| (&*p.key, &*p.label, p.published_ratio))
        .collect();
    let best = ("either", "better one", None);
    assert_eq!(
        programs,
        [
            ("slow", "200 ms", None),
            ("fast", "20 ms", Some(10.0)),
            best
        ]
    );
    let runs = results
        .cells
        .iter()
        .map(|c| (&*c.program, c.samples.len(), c.paper));
    let runs: Vec<_> = runs.filter(|(program, ..)| *program != "either").collect();
    let expected = [
        ("slow", 1, None),
        ("fast", 2, None),
        ("slow", 1, Some(9.0)),
        ("fast", 2, None),
    ];
    assert_eq!(runs, expected);
    for point in results.cells.chunks(3) {
        // All programs have the same seed in one repetition at a point.
        assert_eq!(point[0].samples[0].seed, point[1].samples[0].seed);
        assert_eq!(
            (point[2].chosen.as_deref(), point[2].median),
            (Some("fast"), point[1].median)
        );
        let ratio = |cell: &ResultCell| cell.also["of-either"].median.unwrap();
        assert!(ratio(&point[0]) < 0.5 && ratio(&point[1]) == 1.0);
    }
    for line in [
        "4 cells of 1 or 2 runs",
        "In a quick run '200 ms' has one run",
        "\neither (fast)",
    ] {
        assert!(printed.contains(line), "{printed}");
    }
    let csv = std::fs::read_to_string(fixture.file().with_extension("csv")).unwrap();
    assert!(
        csv.contains("ratio to the better one (\u{d7})") && !csv.contains(",either,"),
        "{csv}"
    );
}

#[test]
fn an_experiment_with_a_mistake_is_refused_before_results_are_written() {
    for (from, to, named) in [
        ("{connections}\"", "{conections}\"", "key 'simulation'"),
        ("flows =", "flaws =", "flaws"),
        ("\"1s\"\nwarm", "\"soon\"\nwarm", "--time"),
        ("full = [\"simulator\"]", "full = [\"curl\"]", "curl"),
    ] {
        let mut fixture = Fixture::new(&EXPERIMENT.replace(from, to));
        fixture.request.mode = Mode::Full;
        let message = fixture.run().unwrap_err().to_string();
        assert!(message.contains(named), "{message}");
        assert!(!fixture.file().with_file_name("few-full.json").exists());
    }
    let mut unknown = Fixture::new(EXPERIMENT);
    unknown.request.programs = vec!["rsync".into()];
    assert!(matches!(unknown.run(), Err(LabError::NotFound(_))));
}

#[test]
fn a_second_run_in_the_same_directory_keeps_the_cells_of_the_first() {
    let mut fixture = Fixture::at("2");
    fixture.results();
    fixture.request.only = vec!["connections=1".into()];
    fixture.results();
    let results = fixture.kept();
    assert_eq!(values(&results), ["1", "2"]);
    assert_eq!(results.across.values, ["1", "2"]);
    assert_eq!(results.options, ["--repetitions", "1"]);
}

#[test]
fn a_resumed_run_makes_only_the_missing_runs() {
    let mut fixture = Fixture::at("4");
    let first = fixture.results();
    fixture.request.only.clear();
    (fixture.request.repetitions, fixture.request.resume) = (None, true);
    let all = fixture.results();
    assert_eq!(values(&all), ["1", "4"]);
    let four = &all.cells[1];
    assert_eq!(
        (four.samples.len(), &four.samples[0]),
        (2, &first.cells[0].samples[0])
    );
    assert_ne!(four.samples[0].seed, four.samples[1].seed);
    let (_, printed) = fixture.run().unwrap();
    assert_eq!(fixture.kept().cells, all.cells);
    assert!(printed.contains("nothing to run; 2 cells"), "{printed}");
}

#[test]
fn an_unfinished_cell_is_finished_when_the_run_is_resumed() {
    let mut fixture = Fixture::at("4");
    let mut half = fixture.results();
    // An interrupt after the first of two repetitions leaves the cell like this.
    half.unfinished = std::mem::take(&mut half.cells);
    fixture.keep(&half);
    (fixture.request.repetitions, fixture.request.resume) = (None, true);
    let whole = fixture.results();
    assert!(whole.unfinished.is_empty());
    let samples = &whole.cells[0].samples;
    assert_eq!(
        (samples.len(), &samples[0]),
        (2, &half.unfinished[0].samples[0])
    );
}

#[test]
fn a_cell_of_which_the_lab_spoiled_every_run_is_run_again_when_resumed() {
    let mut fixture = Fixture::at("1");
    let mut results = fixture.results();
    let run = &mut results.cells[0].samples[0];
    (run.invalid, run.spoiled) = (vec!["late".into()], true);
    fixture.keep(&results);
    fixture.request.resume = true;
    let samples = &fixture.results().cells[0].samples;
    assert!(samples.len() == 1 && !samples[0].spoiled);
}

#[test]
fn a_run_without_time_has_no_cells_and_prints_the_reason() {
    let mut fixture = Fixture::new(EXPERIMENT);
    fixture.request.until = Some(Instant::now());
    let (results, printed) = fixture.run().unwrap();
    assert!(results.cells.is_empty());
    let line = "\nEnded early: the time is used up after 0 of 2 points.\n";
    assert!(printed.contains(line), "{printed}");
}

#[test]
fn results_of_another_seed_are_neither_mixed_nor_overwritten() {
    let mut fixture = Fixture::at("1");
    let before = fixture.results();
    fixture.request.seed = Some(9);
    let message = fixture.run().unwrap_err().to_string();
    assert!(message.contains("seed 1, not 9"), "{message}");
    assert_eq!(fixture.kept(), before);
    fixture.request.fresh = true;
    fixture.results();
    assert_eq!(fixture.kept().seed, 9);
    let aside = fixture.file().with_file_name("few-quick.json~");
    assert_eq!(store::read(&aside).unwrap(), Some(before));
    std::fs::write(fixture.file(), "my notes").unwrap();
    fixture.request.fresh = false;
    assert!(matches!(fixture.run(), Err(LabError::Usage(_))));
    assert_eq!(std::fs::read_to_string(fixture.file()).unwrap(), "my notes");
}
