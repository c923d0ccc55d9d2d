//! Runs an experiment, point by point, and keeps what is done at every moment.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::best;
use super::definition::{AxisDefinition, Definition, Kind};
use super::entrants::{self, Entrants};
use super::interrupt::Interrupts;
use super::measurement::{self, Made, Run, Runs};
use super::measures::{self, AlsoDefinition};
use super::plan::{self, At, Entrant, Point, Sweep};
use super::preparation::Setup;
use super::results::{AlsoValue, Axis, Cell, Program, Results, Series};
use super::scratch::Scratch;
use super::series::SeriesDefinition;
use super::{Mode, RunRequest, Saved, catalog, environment, save, simulation, tally, variables};
use crate::LabError;

/// How often a run is made again because the lab could not keep up.
const RETRIES: u32 = 2;

/// What is being run, and what has come of it.
struct Experiment<'a> {
    request: &'a RunRequest,
    definition: Definition,
    entrants: Vec<Entrant>,
    longhaul: PathBuf,
    // Before `interrupts`: what it holds back takes effect when everything else is gone.
    scratch: Scratch,
    interrupts: Interrupts,
    results: Results,
    began: Instant,
}

/// Whether to go on.
#[derive(PartialEq, Eq)]
enum Next {
    Continue,
    Stop,
}

/// Runs what `request` asks for; `say` hears lines for people.
///
/// # Errors
/// See [`super::run`].
pub(crate) fn run(request: &RunRequest, say: &mut dyn FnMut(&str)) -> Result<Saved, LabError> {
    let (name, definition) = catalog::experiment(&request.name)?;
    let sweep = Sweep::new(&definition, request.mode, &request.only)?;
    let longhaul = entrants::longhaul()?;
    let entrants = entrants::gather(request, &definition, &longhaul)?;
    std::fs::create_dir_all(&request.out)
        .map_err(|e| LabError::system(format!("cannot make {}", request.out.display()), e))?;
    let interrupts = Interrupts::hold()?;
    let mut experiment = Experiment {
        request,
        results: blank(name, request, &definition, &sweep, &entrants),
        definition,
        entrants: entrants.all,
        longhaul,
        scratch: Scratch::new()?,
        interrupts,
        began: Instant::now(),
    };
    let points = sweep.points(&experiment.entrants);
    experiment.announce(&points, say);
    let visited = experiment.visit(&points, say);
    experiment
        .results
        .cells
        .retain(|cell| !cell.samples.is_empty());
    if visited.is_err() && !experiment.results.cells.is_empty() {
        // Why it ended matters more than whether this can be written.
        let _ = experiment.save();
    }
    visited?;
    experiment.finish(say)
}

/// Results without cells.
fn blank(
    name: String,
    request: &RunRequest,
    definition: &Definition,
    sweep: &Sweep,
    entrants: &Entrants,
) -> Results {
    let mut environment = environment::machine();
    environment
        .versions
        .extend(entrants.versions.iter().cloned());
    let mut notes = definition.notes.clone();
    notes.extend(entrants.notes.iter().cloned());
    let axis = |axis: &AxisDefinition| shown(axis, sweep, &entrants.all);
    let keys: Vec<&str> = entrants.all.iter().map(|e| e.key.as_str()).collect();
    let measured = definition.also.iter().map(AlsoDefinition::shown);
    let also = measured.chain(best::ratios(definition)).collect();
    let mut programs: Vec<Program> = entrants.all.iter().map(Entrant::shown).collect();
    programs.extend(best::shown(definition, &keys));
    Results {
        experiment: name,
        title: definition.title.clone(),
        source: definition.source.clone(),
        mode: request.mode.name().to_owned(),
        started: now(),
        seconds: 0.0,
        seed: request.seed.unwrap_or(definition.seed),
        options: request.options(),
        environment,
        unit: definition.unit.clone(),
        higher_is_better: definition.higher_is_better,
        also,
        charts: definition
            .series
            .iter()
            .map(SeriesDefinition::chart)
            .collect(),
        baseline: definition.baseline.clone(),
        across: axis(&definition.across),
        down: definition.down.as_ref().map(axis),
        programs,
        cells: Vec::new(),
        notes,
    }
}

/// An axis with the values that are visited, and those that programs show in place of them.
fn shown(axis: &AxisDefinition, sweep: &Sweep, entrants: &[Entrant]) -> Axis {
    let mut values = sweep.values(&axis.key).to_vec();
    for entrant in entrants {
        let own = entrant.program.ignores.get(&axis.key);
        values.extend(own.filter(|own| !values.contains(own)).cloned());
    }
    Axis {
        key: axis.key.clone(),
        label: axis.label.clone(),
        unit: axis.unit.clone(),
        values,
        logarithmic: axis.logarithmic,
    }
}

/// RFC 3339, to the second.
fn now() -> String {
    let seconds = jiff::Timestamp::now().as_second();
    jiff::Timestamp::from_second(seconds)
        .unwrap_or_default()
        .to_string()
}

impl Experiment<'_> {
    /// Runs of an entrant at each point.
    fn repetitions(&self, entrant: &Entrant) -> u32 {
        let own = entrant.repetitions(self.request.mode);
        let usual = *self.definition.repetitions.of(self.request.mode);
        self.request
            .repetitions
            .unwrap_or(own.unwrap_or(usual))
            .max(1)
    }

    /// Size of the file that is asked for at a point; 0: none.
    fn asked(&self, mode: Mode, at: &At) -> u64 {
        variables::bytes(&self.definition, mode, at).unwrap_or(0)
    }

    /// Says what is coming and how long it will take.
    fn announce(&self, points: &[Point], say: &mut dyn FnMut(&str)) {
        let cells: usize = points.iter().map(|point| point.entrants.len()).sum();
        let (mut runs, mut seconds) = (BTreeSet::new(), 0.0);
        for point in points {
            for index in &point.entrants {
                let entrant = &self.entrants[*index];
                let each = self.repetitions(entrant);
                let mode = self.request.mode;
                let bytes = entrant.bytes(mode, self.asked(mode, &point.at));
                let (definition, key) = (&self.definition, &entrant.key);
                let one = plan::expected_seconds(definition, mode, key, &point.at, bytes);
                seconds += one * f64::from(each);
                runs.insert(each);
            }
        }
        let runs: Vec<String> = runs.iter().map(u32::to_string).collect();
        say(&format!(
            "{} ({}): {} points, {} programs, {cells} cells of {} runs; about {}",
            self.results.experiment,
            self.results.mode,
            points.len(),
            self.entrants.len(),
            runs.join(" or "),
            span(seconds),
        ));
        for note in &self.results.notes {
            say(&format!("note: {note}"));
        }
    }

    /// Visits the points; after each, what is done is on the disk.
    fn visit(&mut self, points: &[Point], say: &mut dyn FnMut(&str)) -> Result<(), LabError> {
        for (done, point) in points.iter().enumerate() {
            let first = self.results.cells.len();
            let next = self.visit_one(point)?;
            if next == Next::Continue {
                best::add(&self.definition, &mut self.results.cells, first);
            }
            self.tell(first, say);
            if next == Next::Stop {
                let note = format!("Interrupted after {done} of {} points.", points.len());
                say(&note);
                self.results.notes.push(note);
                return Ok(());
            }
            self.save()?;
            let left = points.len() - done - 1;
            let each = self.began.elapsed().as_secs_f64() / (done + 1) as f64;
            if left > 0 {
                say(&format!(
                    "  {left} points left, about {}",
                    span(each * left as f64)
                ));
            }
        }
        Ok(())
    }

    /// Every program in turn, as often as it has repetitions.
    fn visit_one(&mut self, point: &Point) -> Result<Next, LabError> {
        for index in &point.entrants {
            let cell = self.blank_cell(&self.entrants[*index], point);
            self.results.cells.push(cell);
        }
        let first = self.results.cells.len() - point.entrants.len();
        let each = |index: &usize| self.repetitions(&self.entrants[*index]);
        let repetitions: Vec<u32> = point.entrants.iter().map(each).collect();
        for repetition in 0..repetitions.iter().copied().max().unwrap_or(0) {
            let seed = plan::run_seed(self.results.seed, &point.at, repetition);
            for index in plan::rotated(&point.entrants, repetition) {
                let place = point.entrants.iter().position(|i| *i == index).unwrap_or(0);
                if repetition >= repetitions[place] {
                    continue;
                }
                if self.sample(index, first + place, seed)? == Next::Stop {
                    return Ok(Next::Stop);
                }
            }
        }
        Ok(Next::Continue)
    }

    /// The cell of an entrant at a point, with what was published.
    fn blank_cell(&self, entrant: &Entrant, point: &Point) -> Cell {
        let at = entrant.program.shown_at(&point.at);
        let mode = self.request.mode;
        let moved = entrant.bytes(mode, self.asked(mode, &point.at));
        let whole = moved == self.asked(Mode::Full, &point.at);
        let published = |measure: &str| {
            let paper = self.definition.published(&entrant.key, measure, &at);
            // The time for a part of the file is not the published one.
            paper.filter(|_| whole || !measures::grows_with_file(measure))
        };
        let paper = published(&self.definition.measure);
        let also = self.definition.also.iter().map(|also| {
            let value = AlsoValue {
                paper: published(&also.measure),
                ..AlsoValue::default()
            };
            (also.measure.clone(), value)
        });
        let also = also.collect();
        Cell {
            also,
            ..tally::empty(&entrant.key, at, paper)
        }
    }

    /// Runs a program once, and again if the lab could not keep up; every run is kept.
    fn sample(&mut self, entrant: usize, cell: usize, seed: u64) -> Result<Next, LabError> {
        for _ in 0..=RETRIES {
            if self.interrupts.came() {
                return Ok(Next::Stop);
            }
            let at = self.results.cells[cell].at.clone();
            let made = match self.measure(entrant, &at, seed)? {
                Run::Interrupted => return Ok(Next::Stop),
                Run::Made(made) => made,
            };
            let known = &mut self.results.environment.sysctls;
            known.extend(made.settings);
            if made.sample.invalid.is_empty() {
                let kept = &mut self.results.cells[cell].series;
                keep(&self.definition, kept, made.series);
            }
            tally::add(&mut self.results.cells[cell], made.sample);
            if !made.overloaded {
                break;
            }
        }
        Ok(Next::Continue)
    }

    fn measure(&self, entrant: usize, at: &At, seed: u64) -> Result<Run, LabError> {
        let entrant = &self.entrants[entrant];
        let name = &self.results.experiment;
        if self.definition.kind == Kind::Sim {
            let mode = self.request.mode;
            let (sample, series) =
                simulation::run(name, &self.definition, mode, at, entrant, seed)?;
            return Ok(Run::Made(Box::new(Made::simulated(sample, series))));
        }
        let setup = Setup {
            name,
            definition: &self.definition,
            mode: self.request.mode,
            longhaul: &self.longhaul,
            scratch: &self.scratch,
        };
        let record = self.results.environment.sysctls.is_empty();
        let prepared = setup.prepare(entrant, at, seed, record)?;
        let runs = Runs {
            longhaul: &self.longhaul,
            definition: &self.definition,
            interrupts: &self.interrupts,
            first: self
                .results
                .cells
                .iter()
                .all(|cell| cell.samples.is_empty()),
        };
        measurement::run(&runs, entrant, &prepared, seed)
    }

    /// One line a cell of a point that was measured; `first` is the first of them.
    fn tell(&self, first: usize, say: &mut dyn FnMut(&str)) {
        let here = self.results.cells.iter().skip(first);
        for cell in here.filter(|cell| !cell.samples.is_empty()) {
            let (unit, also) = (&self.results.unit, &self.results.also);
            let label = match &cell.chosen {
                Some(chosen) => format!("{} ({chosen})", cell.program),
                None => cell.program.clone(),
            };
            say(&tally::describe(cell, &label, unit, also));
        }
    }

    fn save(&mut self) -> Result<(PathBuf, PathBuf), LabError> {
        self.results.seconds = self.began.elapsed().as_secs_f64();
        save::save(&self.request.out, &self.results)
    }

    /// Keeps the results. If a signal came, it takes effect when this experiment is dropped.
    fn finish(mut self, say: &mut dyn FnMut(&str)) -> Result<Saved, LabError> {
        let (json, csv) = self.save()?;
        if self.interrupts.came() {
            say(&format!("what is done is in {}", json.display()));
        }
        Ok(Saved {
            results: self.results,
            json,
            csv,
        })
    }
}

/// Keeps what a run says over time, if its chart still lacks a run.
fn keep(definition: &Definition, kept: &mut Vec<Series>, fresh: Vec<Series>) {
    for mut series in fresh {
        let same = |other: &&Series| other.chart == series.chart && other.line == series.line;
        series.run = kept.iter().filter(same).count();
        let wanted = definition.series.get(series.chart).map_or(0, |s| s.runs);
        if series.run < wanted {
            kept.push(series);
        }
    }
}

/// Seconds for people.
fn span(seconds: f64) -> String {
    let whole = Duration::from_secs_f64(seconds.clamp(0.0, 1e9)).as_secs();
    match whole {
        0..=99 => format!("{} s", whole.max(1)),
        100..=5999 => format!("{} min", (whole + 30) / 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
#[path = "runner_tests.rs"]
mod tests;
