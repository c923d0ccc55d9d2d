//! The schedule of an experiment: the runs that are still to be made, and an estimate of their duration.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use units::show;

use super::definition::catalog::{self, LoadedExperiment};
use super::definition::hash;
use super::definition::reading::SeriesDefinition;
use super::definition::{AxisDefinition, ExperimentDefinition, MeasureDefinition};
use super::durations::RunDurations;
use super::plan::{self, Participant, Participants};
use super::results::{
    ComparedProgram, ExperimentResults, ResultCell, SweepAxis, SweepPoint, TestMachine,
};
use super::{Mode, RunRequest, best, store};
use crate::LabError;

/// An experiment that is ready to run.
#[derive(Debug)]
pub(crate) struct Schedule {
    pub(crate) definition: ExperimentDefinition,
    pub(crate) participants: Vec<Participant>,
    /// This program.
    pub(crate) lab_program: PathBuf,
    /// Results that have everything but cells.
    pub(crate) empty_results: ExperimentResults,
    /// The points at which runs are missing, in the order in which they are visited.
    pub(crate) visits: Vec<PointVisit>,
    /// The number of cells that already have all their runs.
    finished_cells: usize,
}

/// A point of the sweep at which runs are missing.
#[derive(Debug)]
pub(crate) struct PointVisit {
    pub(crate) at: SweepPoint,
    pub(crate) cells: Vec<ScheduledCell>,
}

/// The missing runs of one participant at a point: the repetitions from `first` up to, but not including,
/// `end`.
#[derive(Debug)]
pub(crate) struct ScheduledCell {
    /// The participant's index in [`Schedule::participants`].
    pub(crate) participant: usize,
    /// The first missing repetition, from 0; those before it are in `kept`.
    pub(crate) first: u32,
    /// The number of repetitions.
    pub(crate) end: u32,
    /// The cell with the runs of earlier commands, if there are any.
    pub(crate) kept: Option<ResultCell>,
    /// Whether the earlier command ended before it had all runs: with fewer repetitions they may be enough by now.
    is_unfinished: bool,
    /// The estimated duration of one run.
    seconds: f64,
    /// Whether the estimate is what earlier runs took.
    is_measured: bool,
}

/// The plan of an experiment's run, for people.
#[derive(Debug)]
pub struct PlannedRun {
    /// The experiment's name.
    pub experiment: String,
    /// `quick` or `full`.
    pub mode: String,
    /// Points of the sweep at which runs are missing.
    pub points: usize,
    /// The number of programs that take part.
    pub programs: usize,
    /// Cells that lack runs.
    pub cells: usize,
    /// Cells that already have all their runs.
    pub finished_cells: usize,
    /// Runs to make.
    pub runs: u64,
    /// The numbers of runs per cell that occur.
    pub repetitions: BTreeSet<u32>,
    /// The estimated duration.
    pub seconds: f64,
    /// Cells whose duration is estimated by what earlier runs took; that of the others is a guess.
    pub measured_cells: usize,
}

impl PlannedRun {
    /// Describes the plan in one line.
    pub fn to_text(&self) -> String {
        let runs: Vec<String> = self.repetitions.iter().map(u32::to_string).collect();
        let what = match self.cells {
            0 => "nothing to run".to_owned(),
            cells => format!(
                "{}, {}, {} of {}; about {}, {}",
                show::count(self.points, "point"),
                show::count(self.programs, "program"),
                show::count(cells, "cell"),
                show::count(runs.join(" or "), "run"),
                format_seconds(self.seconds),
                self.basis(),
            ),
        };
        let already = match self.finished_cells {
            0 => String::new(),
            n => format!("; already measured: {}", show::count(n, "cell")),
        };
        format!("{} ({}): {what}{already}", self.experiment, self.mode)
    }

    /// Says what the estimated duration rests on.
    fn basis(&self) -> String {
        match self.measured_cells {
            0 => "a guess: no earlier run is known".to_owned(),
            all if all == self.cells => "by what earlier runs took".to_owned(),
            some => format!(
                "of {} by what earlier runs took, of the others a guess",
                show::count(some, "cell")
            ),
        }
    }
}

/// Shows an estimated duration for people, in whole seconds and at least one.
pub(crate) fn format_seconds(seconds: f64) -> String {
    show::time(Duration::from_secs_f64(seconds.clamp(1.0, 1e9).round()))
}

impl Schedule {
    /// Schedules the runs that `request` asks for; with `resume` only those that the saved results lack.
    ///
    /// # Errors
    /// An experiment or program does not exist, a file has a mistake, or saved results are of another seed or
    /// version.
    pub(crate) fn new(request: &RunRequest) -> Result<Self, LabError> {
        let known = catalog::load_experiment(&request.name)?;
        let visited = plan::visited_values(&known.definition, request.mode, &request.only)?;
        let participants = plan::find_participants(request, &known.definition)?;
        let empty_results = empty_results(&known, request, &visited, &participants)?;
        let file = store::results_file(&request.out, &empty_results);
        // Without --resume a file that cannot be read is no matter of the plan.
        let earlier = match store::read(&file) {
            Err(error) if request.resume => return Err(error),
            read => read.ok().flatten(),
        };
        let kept = earlier.as_ref().filter(|_| request.resume);
        if let Some(kept) = kept {
            store::check_compatible(&file, kept, &empty_results)?;
        }
        let is_same_version =
            |earlier: &&ExperimentResults| earlier.definition == empty_results.definition;
        let durations = RunDurations::new(
            &known.name,
            request.mode,
            earlier.as_ref().filter(is_same_version),
        );
        let mut schedule = Self {
            definition: known.definition,
            participants: participants.all,
            lab_program: env::current_exe()
                .map_err(|e| LabError::system("cannot find this program's own file", e))?,
            empty_results,
            visits: Vec::new(),
            finished_cells: 0,
        };
        for (at, here) in
            plan::points_with_participants(&schedule.definition, &visited, &schedule.participants)
        {
            let cell = |index| schedule.cell(request, index, &at, kept, &durations);
            let all: Vec<ScheduledCell> = here.into_iter().map(cell).collect();
            let count = all.len();
            let cells: Vec<_> = all
                .into_iter()
                .filter(|cell| cell.first < cell.end || cell.is_unfinished)
                .collect();
            schedule.finished_cells += count - cells.len();
            if !cells.is_empty() {
                schedule.visits.push(PointVisit { at, cells });
            }
        }
        Ok(schedule)
    }

    /// Schedules the missing runs of one participant at a point; `kept` are the saved results.
    fn cell(
        &self,
        request: &RunRequest,
        index: usize,
        at: &SweepPoint,
        kept: Option<&ExperimentResults>,
        durations: &RunDurations,
    ) -> ScheduledCell {
        let (participant, definition, mode) =
            (&self.participants[index], &self.definition, request.mode);
        let default_repetitions = participant
            .repetitions(mode)
            .unwrap_or(*definition.repetitions.for_mode(mode));
        let end = request.repetitions.unwrap_or(default_repetitions);
        let listed_at = participant.program.listed_point(at);
        let is_this_cell =
            |cell: &&ResultCell| cell.program == participant.key && cell.at == listed_at;
        let finished = kept.and_then(|kept| kept.cells.iter().find(is_this_cell));
        let unfinished = kept.and_then(|kept| kept.unfinished.iter().find(is_this_cell));
        let kept = finished
            .or(unfinished)
            .filter(|cell| !is_spoiled(cell))
            .map(|cell| {
                let mut cell = cell.clone();
                best::remove_ratios(&definition.best, &mut cell);
                cell
            });
        // A repeated run has the seed of its repetition, so that distinct seeds count repetitions.
        let seeds = kept
            .iter()
            .flat_map(|cell| &cell.samples)
            .map(|run| run.seed);
        let made = seeds.collect::<BTreeSet<u64>>().len();
        let asked = plan::requested_bytes(definition, mode, at).unwrap_or(0);
        let bytes = participant.bytes(mode, asked);
        let measured = durations.of_run(&participant.key, &listed_at);
        let guess = || plan::expected_seconds(definition, mode, &participant.key, at, bytes);
        let end = end.min(request.at_most.unwrap_or(end)).max(1);
        ScheduledCell {
            participant: index,
            first: u32::try_from(made).unwrap_or(u32::MAX).min(end),
            end,
            is_unfinished: finished.is_none() && kept.is_some(),
            kept,
            seconds: measured.unwrap_or_else(guess),
            is_measured: measured.is_some(),
        }
    }

    /// Iterates over the cells of all points.
    fn cells(&self) -> impl Iterator<Item = &ScheduledCell> {
        self.visits.iter().flat_map(|visit| &visit.cells)
    }

    /// Returns the largest number of repetitions of a cell; 0 if nothing is to run.
    pub(crate) fn most_repetitions(&self) -> u32 {
        self.cells().map(|cell| cell.end).max().unwrap_or(0)
    }

    /// Makes the plan with at most `at_most` repetitions of each cell.
    pub(crate) fn plan(&self, at_most: u32) -> PlannedRun {
        let runs = |cell: &ScheduledCell| cell.end.min(at_most).saturating_sub(cell.first);
        let seconds = |cell: &ScheduledCell| cell.seconds * f64::from(runs(cell));
        PlannedRun {
            experiment: self.empty_results.experiment.clone(),
            mode: self.empty_results.mode.clone(),
            points: self.visits.len(),
            programs: self.participants.len(),
            cells: self.cells().count(),
            finished_cells: self.finished_cells,
            runs: self.cells().map(|cell| u64::from(runs(cell))).sum(),
            repetitions: self.cells().map(|cell| cell.end.min(at_most)).collect(),
            seconds: self.cells().map(seconds).sum(),
            measured_cells: self.cells().filter(|cell| cell.is_measured).count(),
        }
    }
}

/// Whether no run of a cell is valid and the last one failed because the lab could not keep up.
pub(crate) fn is_spoiled(cell: &ResultCell) -> bool {
    let invalid = cell.samples.iter().all(|run| !run.invalid.is_empty());
    invalid && cell.samples.last().is_some_and(|run| run.spoiled)
}

/// Counts the cells of a shipped experiment. `None`: no shipped experiment or no mode has that name.
pub(crate) fn count_shipped_cells(name: &str, mode: &str) -> Option<usize> {
    let mut modes = [Mode::Full, Mode::Quick].into_iter();
    let mode = modes.find(|known| known.name() == mode)?;
    let shipped = catalog::EXPERIMENTS.iter().any(|(known, _)| *known == name);
    let known = catalog::load_experiment(name).ok().filter(|_| shipped)?;
    plan::count_cells(name, mode, &known.definition).ok()
}

/// Makes results that have everything but cells.
fn empty_results(
    known: &LoadedExperiment,
    request: &RunRequest,
    visited: &[Vec<String>],
    participants: &Participants,
) -> Result<ExperimentResults, LabError> {
    let definition = &known.definition;
    // `visited` has the values of `down`, if there is one, before those of `across`.
    let across = visited.last().map_or(&[][..], Vec::as_slice);
    let down = definition.down.as_ref().zip(visited.first());
    let own: Vec<ComparedProgram> = participants
        .all
        .iter()
        .map(Participant::to_compared_program)
        .collect();
    let bests = best::to_compared_programs(&definition.best, &own);
    let also = definition
        .also
        .iter()
        .map(MeasureDefinition::to_further_measure);
    let ratios = best::ratio_measures(&definition.best, definition.higher_is_better);
    let charts = definition.series.iter().map(SeriesDefinition::to_chart);
    let notes = definition.notes.iter().chain(&participants.notes);
    // A timestamp of whole seconds is shown without a fraction (RFC 3339).
    let second = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second());
    Ok(ExperimentResults {
        experiment: known.name.clone(),
        title: definition.title.clone(),
        source: definition.source.clone(),
        reference: definition.reference.clone(),
        mode: request.mode.name().to_owned(),
        started: second.unwrap_or_default().to_string(),
        seconds: 0.0,
        seed: request.seed.unwrap_or(definition.seed),
        definition: known.fingerprint.clone(),
        options: request.options(),
        environment: machine(participants, &request.longhaul),
        unit: definition.unit.clone(),
        higher_is_better: definition.higher_is_better,
        also: also.chain(ratios).collect(),
        charts: charts.collect(),
        baseline: definition.baseline.clone(),
        across: sweep_axis(&definition.across, across, participants),
        down: down.map(|(axis, values)| sweep_axis(axis, values, participants)),
        programs: own.into_iter().chain(bests).collect(),
        cells: Vec::new(),
        unfinished: Vec::new(),
        planned: plan::count_cells(&request.name, request.mode, definition)?,
        notes: notes.cloned().collect(),
    })
}

/// Describes this machine, and the versions and builds of the programs. The first run adds the hosts' kernel settings.
fn machine(participants: &Participants, longhaul: &Path) -> TestMachine {
    let system = rustix::system::uname();
    let cpus = std::thread::available_parallelism();
    TestMachine {
        kernel: system.release().to_string_lossy().into_owned(),
        cpus: cpus.map_or(1, std::num::NonZero::get),
        versions: participants.versions.iter().cloned().collect(),
        builds: builds(longhaul),
        sysctls: Default::default(),
    }
}

/// The builds of the lab, which simulates, and of `longhaul`, which moves files.
fn builds(longhaul: &Path) -> BTreeMap<String, String> {
    let lab = env::current_exe().ok();
    let programs = [("lab", lab.as_deref()), ("longhaul", Some(longhaul))];
    let build =
        |(name, program): (&str, Option<&Path>)| Some((name.to_owned(), hash::build(program?)?));
    programs.into_iter().filter_map(build).collect()
}

/// Makes an axis of the visited values and of those that are listed for programs that ignore the axis.
fn sweep_axis(axis: &AxisDefinition, visited: &[String], participants: &Participants) -> SweepAxis {
    let mut values = visited.to_vec();
    for participant in &participants.all {
        let own = participant.program.ignores.get(&axis.key);
        let own = own.filter(|own| !values.contains(own)).cloned();
        values.extend(own);
    }
    SweepAxis {
        key: axis.key.clone(),
        label: axis.label.clone(),
        unit: axis.unit.clone(),
        values,
        logarithmic: axis.logarithmic,
    }
}
