//! Runs an experiment point by point, and saves the finished cells after each point.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::definition::{self, ExperimentDefinition, ExperimentKind};
use super::measurement::{FinishedRun, RunMaker};
use super::plan::{self, Participant};
use super::preparation::RunSetup;
use super::process::Interrupts;
use super::results::statistics::{self, add_run};
use super::results::{ExperimentResults, MeasureValue, ResultCell, SweepPoint, TimeSeries};
use super::schedule::{self, PointVisit, Schedule, format_seconds};
use super::scratch::Scratch;
use super::store::{self, ENDED_EARLY};
use super::{Mode, RunRequest, SavedResults, best, quiet, simulation};
use crate::LabError;
use units::show;

/// How often a run is repeated because the lab could not keep up.
const RETRIES: u32 = 2;

/// How often cells without a valid run are visited again at the end, when the machine may be less busy.
const REVISITS: u32 = 2;

/// The longest time without saving, and so the most work that is lost when this process is killed.
const SAVE_INTERVAL: Duration = Duration::from_secs(30);

/// An experiment that is running, and its results so far.
struct ExperimentRun<'a> {
    request: &'a RunRequest,
    definition: ExperimentDefinition,
    participants: Vec<Participant>,
    lab_program: PathBuf,
    // Fields are dropped in their order: the directories are removed before a pending signal ends the process.
    scratch: Scratch,
    interrupts: Interrupts,
    results: ExperimentResults,
    /// The time at which the results were last saved.
    saved: Instant,
    /// Whether a run was made.
    measured: bool,
}

/// Why an experiment ends before its last run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EarlyEnd {
    /// A signal arrived.
    Interrupted,
    /// The time of [`RunRequest::until`] has come.
    OutOfTime,
}

/// Runs the experiment of `request`; `print` receives progress lines for people.
///
/// # Errors
/// See [`super::run`].
pub(crate) fn run(
    request: &RunRequest,
    print: &mut dyn FnMut(&str),
) -> Result<SavedResults, LabError> {
    let schedule = Schedule::new(request)?;
    let results = &schedule.empty_results;
    std::fs::create_dir_all(&request.out)
        .map_err(|e| LabError::system(format!("cannot make {}", request.out.display()), e))?;
    let file = store::results_file(&request.out, results);
    if request.fresh {
        store::set_aside(&file)?;
    } else if let Some(kept) = store::read(&file)? {
        store::check_compatible(&file, &kept, results)?;
    }
    print(&schedule.plan(u32::MAX).to_text());
    for note in &results.notes {
        print(&format!("note: {note}"));
    }
    // Until here a signal may end the process at once: nothing has to be saved or removed.
    let interrupts = Interrupts::block()?;
    let mut experiment = ExperimentRun {
        request,
        results: schedule.empty_results,
        definition: schedule.definition,
        participants: schedule.participants,
        lab_program: schedule.lab_program,
        scratch: Scratch::new()?,
        interrupts,
        saved: Instant::now(),
        measured: false,
    };
    // The simulator's results do not depend on the load.
    if experiment.definition.kind != ExperimentKind::Sim && !schedule.visits.is_empty() {
        quiet::look(
            &quiet::QuietWait {
                notices: experiment.definition.kind == ExperimentKind::Net,
                waits: request.wait_quiet,
                until: request.until,
                is_stopped: &|| experiment.interrupts.has_signal(),
            },
            print,
        )?;
    }
    if let Err(error) = experiment.visit_all(schedule.visits, print) {
        let results = &experiment.results;
        if !results.cells.is_empty() || !results.unfinished.is_empty() {
            // The first error tells the user more than one of saving would.
            let _ = experiment.save();
        }
        return Err(error);
    }
    let saved = experiment.save()?;
    if experiment.interrupts.has_signal() {
        print(&how_to_go_on(&saved));
    } else if let Some(why) = experiment.no_result() {
        return Err(LabError::Program(format!(
            "no run of {} has a result: {why} (all runs are in {})",
            request.name,
            saved.json.display()
        )));
    }
    // A pending signal takes effect when `experiment` is dropped at the end of this function.
    Ok(saved)
}

/// How an experiment that was interrupted goes on.
fn how_to_go_on(saved: &SavedResults) -> String {
    let results = &saved.results;
    let runs = results.cells.iter().chain(&results.unfinished);
    match runs.map(|cell| cell.samples.len()).sum::<usize>() {
        0 => "no run was finished: the same command begins anew".to_owned(),
        _ => format!(
            "finished runs are in {}; --resume continues from there",
            saved.json.display()
        ),
    }
}

impl ExperimentRun<'_> {
    /// Visits all points, then again those with cells of which the lab spoiled every run.
    fn visit_all(
        &mut self,
        mut visits: Vec<PointVisit>,
        print: &mut dyn FnMut(&str),
    ) -> Result<(), LabError> {
        for round in 0..=REVISITS {
            if self.visit_each(&visits, print)?.is_some() {
                return Ok(());
            }
            visits = self.spoiled_visits(visits);
            let cells: usize = visits.iter().map(|visit| visit.cells.len()).sum();
            if cells == 0 {
                return Ok(());
            }
            let then = match round < REVISITS {
                true => format!("; repeated ({} of {REVISITS} times)", round + 1),
                false => ": the machine is too busy".to_owned(),
            };
            print(&format!(
                "only INVALID runs: {}{then}",
                show::count(cells, "cell")
            ));
        }
        Ok(())
    }

    /// Selects the cells of which the lab spoiled every run, to be measured again from the first repetition.
    fn spoiled_visits(&self, mut visits: Vec<PointVisit>) -> Vec<PointVisit> {
        for visit in &mut visits {
            let at = &visit.at;
            visit.cells.retain_mut(|cell| {
                (cell.first, cell.kept) = (0, None);
                let empty = self.new_cell(cell.participant, at);
                let mut measured = self.results.cells.iter();
                measured.any(|cell| store::is_same_cell(cell, &empty) && schedule::is_spoiled(cell))
            });
        }
        visits.retain(|visit| !visit.cells.is_empty());
        visits
    }

    /// Why the first run failed, if all programs failed at all points. Cells that the lab spoiled are no failure of
    /// the programs.
    fn no_result(&self) -> Option<&str> {
        let cells = &self.results.cells;
        let failed = |cell: &ResultCell| cell.median.is_none() && !schedule::is_spoiled(cell);
        let first = cells.first().filter(|_| cells.iter().all(failed))?;
        Some(first.samples.last()?.invalid.first()?)
    }

    /// Visits the points and saves the results after each. Returns why it ended early, if it did.
    fn visit_each(
        &mut self,
        visits: &[PointVisit],
        print: &mut dyn FnMut(&str),
    ) -> Result<Option<EarlyEnd>, LabError> {
        let start = Instant::now();
        for (done, visit) in visits.iter().enumerate() {
            if let Some(end) = self.visit(visit, print)? {
                let why = match end {
                    EarlyEnd::Interrupted => "interrupted",
                    EarlyEnd::OutOfTime => "the time is used up",
                };
                let note = format!(
                    "{ENDED_EARLY}{why} after {done} of {}.",
                    show::count(visits.len(), "point")
                );
                print(&note);
                self.results.notes.push(note);
                return Ok(Some(end));
            }
            self.save()?;
            let left = visits.len() - done - 1;
            let each = start.elapsed().as_secs_f64() / (done + 1) as f64;
            if left > 0 {
                print(&format!(
                    "  {} left, about {}",
                    show::count(left, "point"),
                    format_seconds(each * left as f64)
                ));
            }
        }
        Ok(None)
    }

    /// Runs the programs of a point in turn, repetition by repetition, so that a change of the machine's load
    /// affects all of them alike. Returns why it ended early, if it did.
    fn visit(
        &mut self,
        visit: &PointVisit,
        print: &mut dyn FnMut(&str),
    ) -> Result<Option<EarlyEnd>, LabError> {
        let empty = |cell: &schedule::ScheduledCell| self.new_cell(cell.participant, &visit.at);
        let start_cell =
            |cell: &schedule::ScheduledCell| cell.kept.clone().unwrap_or_else(|| empty(cell));
        let mut cells: Vec<ResultCell> = visit.cells.iter().map(start_cell).collect();
        let mut left: Vec<u32> = visit
            .cells
            .iter()
            .map(|cell| cell.end - cell.first)
            .collect();
        let first = visit.cells.iter().map(|cell| cell.first).min().unwrap_or(0);
        let end = visit.cells.iter().map(|cell| cell.end).max().unwrap_or(0);
        let mut ended = Ok(None);
        'repetitions: for repetition in first..end {
            let seed = plan::run_seed(self.results.seed, &visit.at, repetition);
            for index in plan::rotated_order(cells.len(), repetition) {
                let scheduled = &visit.cells[index];
                // The cells of a point may lack different repetitions.
                if !(scheduled.first..scheduled.end).contains(&repetition) {
                    continue;
                }
                ended = self.add_runs(scheduled.participant, &visit.at, &mut cells[index], seed);
                if !matches!(ended, Ok(None)) {
                    break 'repetitions;
                }
                left[index] -= 1;
            }
            if self.saved.elapsed() > SAVE_INTERVAL {
                self.store_cells(&cells, &left);
                self.save()?;
            }
        }
        self.store_cells(&cells, &left);
        self.print_cells(&cells, &left, print);
        ended
    }

    /// Puts cells into the results. Those that still lack runs (`left`) go to the unfinished ones.
    fn store_cells(&mut self, cells: &[ResultCell], left: &[u32]) {
        let results = &mut self.results;
        for (cell, left) in cells.iter().zip(left) {
            // An earlier save during this visit may have stored the cell as unfinished.
            for all in [&mut results.unfinished, &mut results.cells] {
                all.retain(|known| !store::is_same_cell(known, cell));
            }
            let kept = match left {
                0 => &mut results.cells,
                _ => &mut results.unfinished,
            };
            kept.extend((!cell.samples.is_empty()).then(|| cell.clone()));
        }
    }

    /// Makes the empty cell of a participant at a point, with its published values.
    fn new_cell(&self, participant: usize, at: &SweepPoint) -> ResultCell {
        let (participant, mode) = (&self.participants[participant], self.request.mode);
        let requested = |mode| plan::requested_bytes(&self.definition, mode, at).unwrap_or(0);
        let is_whole = participant.bytes(mode, requested(mode)) == requested(Mode::Full);
        let at = participant.program.listed_point(at);
        let published = |measure: &str| {
            let paper = self.definition.published(&participant.key, measure, &at);
            // A published time is for the whole file and says nothing about a smaller one.
            paper.filter(|_| is_whole || !definition::grows_with_file(measure))
        };
        let also = self.definition.also.iter().map(|also| {
            let value = MeasureValue {
                paper: published(&also.measure),
                ..MeasureValue::default()
            };
            (also.measure.clone(), value)
        });
        let (also, paper) = (also.collect(), published(&self.definition.measure));
        ResultCell {
            also,
            ..statistics::empty_cell(&participant.key, at, paper)
        }
    }

    /// Runs a program once, and again while the lab cannot keep up. All these runs are added to the cell, or
    /// none if the experiment ends early, so that a resumed experiment makes the repetition as a whole.
    fn add_runs(
        &mut self,
        participant: usize,
        at: &SweepPoint,
        cell: &mut ResultCell,
        seed: u64,
    ) -> Result<Option<EarlyEnd>, LabError> {
        let mut runs = Vec::new();
        for _ in 0..=RETRIES {
            if self.interrupts.has_signal() {
                return Ok(Some(EarlyEnd::Interrupted));
            }
            if self
                .request
                .until
                .is_some_and(|until| Instant::now() >= until)
            {
                return Ok(Some(EarlyEnd::OutOfTime));
            }
            let start = Instant::now();
            let Some(mut run) = self.measure(participant, at, seed)? else {
                return Ok(Some(EarlyEnd::Interrupted));
            };
            run.record.took = Some(start.elapsed().as_secs_f64());
            self.measured = true;
            let spoiled = run.record.spoiled;
            runs.push(run);
            if !spoiled {
                break;
            }
        }
        for run in runs {
            self.results.environment.sysctls.extend(run.settings);
            if run.record.invalid.is_empty() {
                keep_series(&self.definition, &mut cell.series, run.series);
            }
            add_run(cell, run.record);
        }
        Ok(None)
    }

    /// Makes one run. `None`: the user wants to stop.
    fn measure(
        &self,
        participant: usize,
        at: &SweepPoint,
        seed: u64,
    ) -> Result<Option<FinishedRun>, LabError> {
        let participant = &self.participants[participant];
        let setup = RunSetup {
            name: &self.results.experiment,
            definition: &self.definition,
            mode: self.request.mode,
            lab_program: &self.lab_program,
            scratch: &self.scratch,
            interrupts: &self.interrupts,
        };
        if self.definition.kind == ExperimentKind::Sim {
            return simulation::run(&setup, at, participant, seed);
        }
        // Settings do not change during an experiment, so that only its first run records them.
        let record = self.results.environment.sysctls.is_empty();
        let Some(prepared) = setup.prepare(participant, at, seed, record)? else {
            return Ok(None);
        };
        let maker = RunMaker {
            lab_program: &self.lab_program,
            definition: &self.definition,
            interrupts: &self.interrupts,
            is_first: !self.measured && !self.request.wait,
        };
        maker.run(participant, &prepared, seed)
    }

    /// Prints one line for each cell of a point that has all its runs, and one for the best of each set.
    fn print_cells(&self, cells: &[ResultCell], left: &[u32], print: &mut dyn FnMut(&str)) {
        let finished = cells.iter().zip(left).filter(|(_, left)| **left == 0);
        let mut finished: Vec<ResultCell> = finished.map(|(cell, _)| cell.clone()).collect();
        if finished.len() == cells.len() {
            let higher_is_better = self.definition.higher_is_better;
            best::add_bests(&self.definition.best, higher_is_better, &mut finished);
        }
        let results = &self.results;
        for cell in finished {
            let (reference, unit) = (&results.reference, &results.unit);
            print(&statistics::describe_cell(
                &cell,
                reference,
                unit,
                &results.also,
            ));
        }
    }

    /// Saves the measured cells together with those that are already in the file.
    fn save(&mut self) -> Result<SavedResults, LabError> {
        self.results.seconds = self.saved.elapsed().as_secs_f64();
        self.saved = Instant::now();
        store::save(&self.request.out, &self.definition, &self.results)
    }
}

/// Adds the series of a run to those of its cell, up to the number of runs that each chart shows.
fn keep_series(
    definition: &ExperimentDefinition,
    kept: &mut Vec<TimeSeries>,
    fresh: Vec<TimeSeries>,
) {
    for mut series in fresh {
        let is_same =
            |other: &&TimeSeries| other.chart == series.chart && other.line == series.line;
        series.run = kept.iter().filter(is_same).count();
        let wanted = definition.series.get(series.chart).map_or(0, |s| s.runs);
        kept.extend((series.run < wanted).then_some(series));
    }
}

#[cfg(test)]
mod tests {
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
        assert!(printed.contains("few (quick): 2 points, 1 program, 2 cells of 2 runs; about"));
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
    fn an_experiment_without_any_result_is_an_error_and_keeps_its_runs() {
        let fixture = Fixture::new(&EXPERIMENT.replace("\"goodput\"", "\"end_goodput\""));
        let error = fixture.run().unwrap_err();
        assert!(matches!(error, LabError::Program(_)), "{error:?}");
        let told = error.to_string();
        assert!(told.contains("no value of end_goodput"), "{told}");
        assert_eq!(values(&fixture.kept()), ["1", "4"]);
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
    fn an_interrupted_run_can_be_resumed_if_it_has_finished_runs() {
        let fixture = Fixture::at("2");
        let mut saved = run(&fixture.request, &mut |_| ()).unwrap();
        assert!(how_to_go_on(&saved).ends_with("few-quick.json; --resume continues from there"));
        saved.results.unfinished = std::mem::take(&mut saved.results.cells);
        assert!(how_to_go_on(&saved).contains("--resume"));
        saved.results.unfinished.clear();
        assert_eq!(
            how_to_go_on(&saved),
            "no run was finished: the same command begins anew"
        );
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
        assert!(
            printed.contains("nothing to run; already measured: 2 cells"),
            "{printed}"
        );
    }

    #[test]
    fn the_estimate_of_a_second_run_is_what_the_first_one_took() {
        let fixture = Fixture::at("1");
        let planned = || Schedule::new(&fixture.request).unwrap().plan(u32::MAX);
        assert!(
            planned().to_text().contains("a guess"),
            "{planned:?}",
            planned = planned()
        );
        let mut results = fixture.results();
        let run = &mut results.cells[0].samples[0];
        assert!(run.took.is_some_and(|took| took >= run.seconds), "{run:?}");
        run.took = Some(500.0);
        fixture.keep(&results);
        let again = planned();
        assert_eq!((again.seconds, again.measured_cells), (500.0, 1));
        assert!(again.to_text().ends_with("by what earlier runs took"));
    }

    #[test]
    fn an_unfinished_cell_is_finished_when_the_run_is_resumed() {
        let mut fixture = Fixture::at("4");
        let mut half = fixture.results();
        // An interrupt after the first of two repetitions leaves the cell like this.
        half.unfinished = std::mem::take(&mut half.cells);
        fixture.keep(&half);
        fixture.request.resume = true;
        assert_eq!(
            fixture.results().cells[0].samples,
            half.unfinished[0].samples
        );
        fixture.keep(&half);
        fixture.request.repetitions = None;
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
}
