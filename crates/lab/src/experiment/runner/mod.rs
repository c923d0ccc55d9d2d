//! Runs an experiment, point by point, and keeps finished cells at every moment.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::definition::{self, ExperimentDefinition, ExperimentKind};
use super::measurement::{FinishedRun, RunMaker};
use super::plan::{self, Participant};
use super::preparation::RunSetup;
use super::process::Interrupts;
use super::results::{ExperimentResults, MeasureValue, ResultCell, SweepPoint, TimeSeries};
use super::schedule::{self, PointVisit, Schedule, format_seconds};
use super::scratch::Scratch;
use super::statistics::{self, add_run};
use super::store::{self, ENDED_EARLY};
use super::{Mode, RunRequest, SavedResults, best, simulation};
use crate::LabError;

/// How often a run is made again because the lab could not keep up.
const RETRIES: u32 = 2;

/// How often cells that have no run that counts are visited again at the end.
const REVISITS: u32 = 2;

/// How much may be lost when this process is killed.
const SAVE_INTERVAL: Duration = Duration::from_secs(30);

/// Experiment that is being run, and its results so far.
struct ExperimentRun<'a> {
    request: &'a RunRequest,
    definition: ExperimentDefinition,
    participants: Vec<Participant>,
    longhaul: PathBuf,
    // Dropped before `interrupts`: a signal takes effect when everything else is gone.
    scratch: Scratch,
    interrupts: Interrupts,
    results: ExperimentResults,
    /// When the results were last written.
    saved: Instant,
    /// Something was measured.
    measured: bool,
}

/// Why a run ends early.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EarlyEnd {
    /// A signal came.
    Interrupted,
    /// The time that was given is used up.
    OutOfTime,
}

/// Runs what `request` asks for; `say` gets lines for people.
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
    let interrupts = Interrupts::block()?;
    let mut experiment = ExperimentRun {
        request,
        results: schedule.empty_results,
        definition: schedule.definition,
        participants: schedule.participants,
        longhaul: schedule.longhaul,
        scratch: Scratch::new()?,
        interrupts,
        saved: Instant::now(),
        measured: false,
    };
    if let Err(error) = experiment.visit_all(schedule.visits, print) {
        let results = &experiment.results;
        if !results.cells.is_empty() || !results.unfinished.is_empty() {
            // Why it ended matters more than whether this can be written.
            let _ = experiment.save();
        }
        return Err(error);
    }
    let saved = experiment.save()?;
    if experiment.interrupts.has_signal() {
        let json = saved.json.display();
        print(&format!(
            "what is done is in {json}; --resume goes on from there"
        ));
    }
    // The signal takes effect when the experiment is dropped, here.
    Ok(saved)
}

impl ExperimentRun<'_> {
    /// Visits the points, then again those where the lab spoiled every run.
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
                true => format!(" and are repeated ({} of {REVISITS} times)", round + 1),
                false => ": the machine is too busy".to_owned(),
            };
            print(&format!("{cells} cells have only INVALID runs{then}"));
        }
        Ok(())
    }

    /// The visits to cells of which no run counts, from the first repetition.
    fn spoiled_visits(&self, mut visits: Vec<PointVisit>) -> Vec<PointVisit> {
        for visit in &mut visits {
            let at = &visit.at;
            visit.cells.retain_mut(|cell| {
                (cell.first, cell.kept) = (0, None);
                let blank = self.blank_cell(cell.participant, at);
                let mut own = self.results.cells.iter();
                own.any(|cell| store::is_same_cell(cell, &blank) && schedule::is_spoiled(cell))
            });
        }
        visits.retain(|visit| !visit.cells.is_empty());
        visits
    }

    /// Visits the points; after each, its results are on the disk.
    fn visit_each(
        &mut self,
        visits: &[PointVisit],
        print: &mut dyn FnMut(&str),
    ) -> Result<Option<EarlyEnd>, LabError> {
        let began = Instant::now();
        for (done, visit) in visits.iter().enumerate() {
            if let Some(end) = self.visit(visit, print)? {
                let why = match end {
                    EarlyEnd::Interrupted => "interrupted",
                    EarlyEnd::OutOfTime => "the time is used up",
                };
                let note = format!(
                    "{ENDED_EARLY}{why} after {done} of {} points.",
                    visits.len()
                );
                print(&note);
                self.results.notes.push(note);
                return Ok(Some(end));
            }
            self.save()?;
            let left = visits.len() - done - 1;
            let each = began.elapsed().as_secs_f64() / (done + 1) as f64;
            if left > 0 {
                print(&format!(
                    "  {left} points left, about {}",
                    format_seconds(each * left as f64)
                ));
            }
        }
        Ok(None)
    }

    /// Runs every program of a point in turn, as often as it has repetitions.
    fn visit(
        &mut self,
        visit: &PointVisit,
        print: &mut dyn FnMut(&str),
    ) -> Result<Option<EarlyEnd>, LabError> {
        let blank = |cell: &schedule::ScheduledCell| self.blank_cell(cell.participant, &visit.at);
        let begin =
            |cell: &schedule::ScheduledCell| cell.kept.clone().unwrap_or_else(|| blank(cell));
        let mut cells: Vec<ResultCell> = visit.cells.iter().map(begin).collect();
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

    /// Takes cells into the results: those that lack runs do not count.
    fn store_cells(&mut self, cells: &[ResultCell], left: &[u32]) {
        let results = &mut self.results;
        for (cell, left) in cells.iter().zip(left) {
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

    /// The cell of a participant at a point, with what was published.
    fn blank_cell(&self, participant: usize, at: &SweepPoint) -> ResultCell {
        let (participant, mode) = (&self.participants[participant], self.request.mode);
        let asked = |mode| plan::requested_bytes(&self.definition, mode, at).unwrap_or(0);
        let is_whole = participant.bytes(mode, asked(mode)) == asked(Mode::Full);
        let at = participant.program.listed_point(at);
        let published = |measure: &str| {
            let paper = self.definition.published(&participant.key, measure, &at);
            // The time for a part of the file is not the published one.
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

    /// Runs a program once, and again if the lab could not keep up; every run is kept, or none if it
    /// ends early.
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
            let Some(run) = self.measure(participant, at, seed)? else {
                return Ok(Some(EarlyEnd::Interrupted));
            };
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

    /// Makes one run; `None`: the user wants to stop.
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
            longhaul: &self.longhaul,
            scratch: &self.scratch,
            interrupts: &self.interrupts,
        };
        if self.definition.kind == ExperimentKind::Sim {
            return simulation::run(&setup, at, participant, seed);
        }
        let record = self.results.environment.sysctls.is_empty();
        let Some(prepared) = setup.prepare(participant, at, seed, record)? else {
            return Ok(None);
        };
        let maker = RunMaker {
            longhaul: &self.longhaul,
            definition: &self.definition,
            interrupts: &self.interrupts,
            is_first: !self.measured && !self.request.wait,
        };
        maker.run(participant, &prepared, seed)
    }

    /// Says one line for each cell of a point that has all its runs, and one for each best of them.
    fn print_cells(&self, cells: &[ResultCell], left: &[u32], print: &mut dyn FnMut(&str)) {
        let whole = cells.iter().zip(left).filter(|(_, left)| **left == 0);
        let mut whole: Vec<ResultCell> = whole.map(|(cell, _)| cell.clone()).collect();
        if whole.len() == cells.len() {
            let higher_is_better = self.definition.higher_is_better;
            best::add_bests(&self.definition.best, higher_is_better, &mut whole);
        }
        let results = &self.results;
        for cell in whole {
            let (reference, unit) = (&results.reference, &results.unit);
            print(&statistics::describe_cell(
                &cell,
                reference,
                unit,
                &results.also,
            ));
        }
    }

    /// Writes the cells that were measured, beside those that are there.
    fn save(&mut self) -> Result<SavedResults, LabError> {
        self.results.seconds = self.saved.elapsed().as_secs_f64();
        self.saved = Instant::now();
        store::save(&self.request.out, &self.definition, &self.results)
    }
}

/// Keeps the series of a run, if its chart still lacks a run.
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
mod tests;
