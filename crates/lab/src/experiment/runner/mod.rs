//! Runs an experiment, point by point, and keeps what is done at every moment.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::axes::At;
use super::axes::Kind;
use super::best;
use super::definition::Definition;
use super::interrupt::Interrupts;
use super::measurement::{self, Made, Run, Runs};
use super::measures;
use super::merge::{self, ENDED_EARLY};
use super::plan::{self, Entrant};
use super::planned::span;
use super::preparation::Setup;
use super::results::{ExperimentResults, MeasureValue, ResultCell, TimeSeries};
use super::save::{self, Written};
use super::schedule::{self, Schedule, Turn, Visit};
use super::scratch::Scratch;
use super::simulation::{self, Place};
use super::{Mode, RunRequest, Saved, tally};
use crate::LabError;

/// How often a run is made again because the lab could not keep up.
const RETRIES: u32 = 2;

/// How often cells that have no run that counts are visited again at the end.
const ROUNDS: u32 = 2;

/// How much may be lost when this process is killed.
const UNSAVED: Duration = Duration::from_secs(30);

/// Experiment that is being run, and its results so far.
struct Experiment<'a> {
    request: &'a RunRequest,
    definition: Definition,
    entrants: Vec<Entrant>,
    longhaul: PathBuf,
    // Before `interrupts`: what it holds back takes effect when everything else is gone.
    scratch: Scratch,
    interrupts: Interrupts,
    results: ExperimentResults,
    began: Instant,
    /// When the results were last written.
    saved: Instant,
    /// Something was measured.
    measured: bool,
}

/// Whether to go on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Continue,
    /// A signal came.
    Interrupted,
    /// The time that was given is used up.
    OutOfTime,
}

/// Runs what `request` asks for; `say` hears lines for people.
///
/// # Errors
/// See [`super::run`].
pub(crate) fn run(request: &RunRequest, say: &mut dyn FnMut(&str)) -> Result<Saved, LabError> {
    let schedule = Schedule::of(request)?;
    let results = &schedule.blank;
    std::fs::create_dir_all(&request.out)
        .map_err(|e| LabError::system(format!("cannot make {}", request.out.display()), e))?;
    let file = save::file(&request.out, &results.experiment, &results.mode);
    if request.fresh {
        save::set_aside(&file)?;
    } else if let Some(kept) = save::read(&file)? {
        merge::check(&file, &kept, results)?;
    }
    say(&schedule.planned(u32::MAX).to_text());
    for note in &results.notes {
        say(&format!("note: {note}"));
    }
    let interrupts = Interrupts::hold()?;
    let now = Instant::now();
    let mut experiment = Experiment {
        request,
        results: schedule.blank,
        definition: schedule.definition,
        entrants: schedule.entrants,
        longhaul: schedule.longhaul,
        scratch: Scratch::new()?,
        interrupts,
        began: now,
        saved: now,
        measured: false,
    };
    let visited = experiment.run_all(schedule.visits, say);
    let something =
        !experiment.results.cells.is_empty() || !experiment.results.unfinished.is_empty();
    if visited.is_err() && something {
        // Why it ended matters more than whether this can be written.
        let _ = experiment.save();
    }
    visited?;
    experiment.finish(say)
}

impl Experiment<'_> {
    /// Visits the points, then again those where the lab spoiled every run.
    fn run_all(
        &mut self,
        mut visits: Vec<Visit>,
        say: &mut dyn FnMut(&str),
    ) -> Result<(), LabError> {
        for round in 0..=ROUNDS {
            if self.visit_all(&visits, say)? != Next::Continue {
                return Ok(());
            }
            visits = self.spoiled(visits);
            let cells: usize = visits.iter().map(|visit| visit.turns.len()).sum();
            if cells == 0 {
                return Ok(());
            }
            say(&match round < ROUNDS {
                true => format!(
                    "{cells} cells have only INVALID runs and are repeated ({} of {ROUNDS} times)",
                    round + 1
                ),
                false => format!("{cells} cells have only INVALID runs: the machine is too busy"),
            });
        }
        Ok(())
    }

    /// The visits to cells of which no run counts, from the first repetition.
    fn spoiled(&self, mut visits: Vec<Visit>) -> Vec<Visit> {
        for visit in &mut visits {
            let at = visit.at.clone();
            visit.turns.retain_mut(|turn| {
                (turn.first, turn.kept) = (0, None);
                let blank = self.blank_cell(&self.entrants[turn.entrant], &at);
                let own = self.results.cells.iter().find(|c| merge::same(c, &blank));
                own.is_some_and(schedule::is_spoiled)
            });
        }
        visits.retain(|visit| !visit.turns.is_empty());
        visits
    }

    /// Visits the points; after each, what is done is on the disk.
    fn visit_all(&mut self, visits: &[Visit], say: &mut dyn FnMut(&str)) -> Result<Next, LabError> {
        let began = Instant::now();
        for (done, visit) in visits.iter().enumerate() {
            let next = self.visit(visit, say)?;
            let why = match next {
                Next::Continue => None,
                Next::Interrupted => Some("interrupted"),
                Next::OutOfTime => Some("the time is used up"),
            };
            if let Some(why) = why {
                let note = format!(
                    "{ENDED_EARLY}{why} after {done} of {} points.",
                    visits.len()
                );
                say(&note);
                self.results.notes.push(note);
                return Ok(next);
            }
            self.save()?;
            let left = visits.len() - done - 1;
            let each = began.elapsed().as_secs_f64() / (done + 1) as f64;
            if left > 0 {
                say(&format!(
                    "  {left} points left, about {}",
                    span(each * left as f64)
                ));
            }
        }
        Ok(Next::Continue)
    }

    /// Every program in turn, as often as it has repetitions.
    fn visit(&mut self, visit: &Visit, say: &mut dyn FnMut(&str)) -> Result<Next, LabError> {
        let mut cells: Vec<ResultCell> = visit
            .turns
            .iter()
            .map(|turn| self.begin(turn, visit))
            .collect();
        let mut left: Vec<u32> = visit.turns.iter().map(|t| t.end - t.first).collect();
        let first = visit.turns.iter().map(|turn| turn.first).min().unwrap_or(0);
        let end = visit.turns.iter().map(|turn| turn.end).max().unwrap_or(0);
        let order: Vec<usize> = (0..visit.turns.len()).collect();
        let mut ended = Ok(Next::Continue);
        'repetitions: for repetition in first..end {
            let seed = plan::run_seed(self.results.seed, &visit.at, repetition);
            for place in plan::rotated(&order, repetition) {
                let turn = &visit.turns[place];
                if !(turn.first..turn.end).contains(&repetition) {
                    continue;
                }
                ended = self.sample(turn.entrant, &visit.at, &mut cells[place], seed);
                if !matches!(ended, Ok(Next::Continue)) {
                    break 'repetitions;
                }
                left[place] -= 1;
            }
            if self.saved.elapsed() > UNSAVED {
                self.keep(&cells, &left);
                self.save()?;
            }
        }
        self.keep(&cells, &left);
        self.tell(&cells, &left, say);
        ended
    }

    /// Takes cells into the results: those that lack runs do not count.
    fn keep(&mut self, cells: &[ResultCell], left: &[u32]) {
        for (cell, left) in cells.iter().zip(left) {
            let results = &mut self.results;
            results.unfinished.retain(|known| !merge::same(known, cell));
            let kept = match left {
                0 => &mut results.cells,
                _ => &mut results.unfinished,
            };
            kept.retain(|known| !merge::same(known, cell));
            if !cell.samples.is_empty() {
                kept.push(cell.clone());
            }
        }
    }

    /// The cell of a turn as it is before its first run.
    fn begin(&self, turn: &Turn, visit: &Visit) -> ResultCell {
        let kept = turn.kept.clone();
        kept.unwrap_or_else(|| self.blank_cell(&self.entrants[turn.entrant], &visit.at))
    }

    /// The cell of an entrant at a point, with what was published.
    fn blank_cell(&self, entrant: &Entrant, at: &At) -> ResultCell {
        let asked = |mode| schedule::asked(&self.definition, mode, at);
        let mode = self.request.mode;
        let whole = entrant.bytes(mode, asked(mode)) == asked(Mode::Full);
        let at = entrant.program.shown_at(at);
        let published = |measure: &str| {
            let paper = self.definition.published(&entrant.key, measure, &at);
            // The time for a part of the file is not the published one.
            paper.filter(|_| whole || !measures::grows_with_file(measure))
        };
        let paper = published(&self.definition.measure);
        let also = self.definition.also.iter().map(|also| {
            let value = MeasureValue {
                paper: published(&also.measure),
                ..MeasureValue::default()
            };
            (also.measure.clone(), value)
        });
        let also = also.collect();
        ResultCell {
            also,
            ..tally::empty(&entrant.key, at, paper)
        }
    }

    /// Runs a program once, and again if the lab could not keep up; every run is kept, or none if it
    /// ends early.
    fn sample(
        &mut self,
        entrant: usize,
        at: &At,
        cell: &mut ResultCell,
        seed: u64,
    ) -> Result<Next, LabError> {
        let mut runs = Vec::new();
        for _ in 0..=RETRIES {
            if self.interrupts.came() {
                return Ok(Next::Interrupted);
            }
            if self
                .request
                .until
                .is_some_and(|until| Instant::now() >= until)
            {
                return Ok(Next::OutOfTime);
            }
            let made = match self.measure(entrant, at, seed)? {
                Run::Interrupted => return Ok(Next::Interrupted),
                Run::Made(made) => made,
            };
            self.measured = true;
            let spoiled = made.sample.spoiled;
            runs.push(made);
            if !spoiled {
                break;
            }
        }
        for made in runs {
            self.results.environment.sysctls.extend(made.settings);
            if made.sample.invalid.is_empty() {
                keep(&self.definition, &mut cell.series, made.series);
            }
            tally::add(cell, made.sample);
        }
        Ok(Next::Continue)
    }

    fn measure(&self, entrant: usize, at: &At, seed: u64) -> Result<Run, LabError> {
        let entrant = &self.entrants[entrant];
        let (name, definition) = (&self.results.experiment, &self.definition);
        let (mode, interrupts) = (self.request.mode, &self.interrupts);
        if definition.kind == Kind::Sim {
            let place = Place {
                name,
                definition,
                mode,
                interrupts,
            };
            let simulated = simulation::run(&place, at, entrant, seed)?;
            return Ok(simulated.map_or(Run::Interrupted, |(sample, series)| {
                Run::Made(Box::new(Made::simulated(sample, series)))
            }));
        }
        let setup = Setup {
            name,
            definition,
            mode,
            longhaul: &self.longhaul,
            scratch: &self.scratch,
            interrupts,
        };
        let record = self.results.environment.sysctls.is_empty();
        let Some(prepared) = setup.prepare(entrant, at, seed, record)? else {
            return Ok(Run::Interrupted);
        };
        let runs = Runs {
            longhaul: &self.longhaul,
            definition,
            interrupts,
            first: !self.measured && !self.request.wait,
        };
        measurement::run(&runs, entrant, &prepared, seed)
    }

    /// One line a cell of a point that has all its runs, and one for each best of them.
    fn tell(&self, cells: &[ResultCell], left: &[u32], say: &mut dyn FnMut(&str)) {
        let whole = cells.iter().zip(left).filter(|(_, left)| **left == 0);
        let mut whole: Vec<ResultCell> = whole.map(|(cell, _)| cell.clone()).collect();
        if whole.len() == cells.len() {
            best::add(
                &self.definition.best,
                self.definition.higher_is_better,
                &mut whole,
                0,
            );
        }
        for cell in whole {
            let label = match &cell.chosen {
                Some(chosen) => format!("{} ({chosen})", cell.program),
                None => cell.program.clone(),
            };
            say(&tally::describe(
                &cell,
                &label,
                &self.results.reference,
                &self.results.unit,
                &self.results.also,
            ));
        }
    }

    /// Writes what was measured since the last time, beside what is there.
    fn save(&mut self) -> Result<Written, LabError> {
        self.results.seconds = self.began.elapsed().as_secs_f64();
        self.began = Instant::now();
        let written = save::save(&self.request.out, &self.definition, &self.results)?;
        self.saved = Instant::now();
        Ok(written)
    }

    /// Keeps the results. If a signal came, it takes effect when this experiment is dropped.
    fn finish(mut self, say: &mut dyn FnMut(&str)) -> Result<Saved, LabError> {
        let written = self.save()?;
        let Written { results, json, csv } = written;
        if self.interrupts.came() {
            let json = json.display();
            say(&format!(
                "what is done is in {json}; --resume goes on from there"
            ));
        }
        Ok(Saved { results, json, csv })
    }
}

/// Keeps what a run says over time, if its chart still lacks a run.
fn keep(definition: &Definition, kept: &mut Vec<TimeSeries>, fresh: Vec<TimeSeries>) {
    for mut series in fresh {
        let same = |other: &&TimeSeries| other.chart == series.chart && other.line == series.line;
        series.run = kept.iter().filter(same).count();
        let wanted = definition.series.get(series.chart).map_or(0, |s| s.runs);
        if series.run < wanted {
            kept.push(series);
        }
    }
}

#[cfg(test)]
mod tests;
