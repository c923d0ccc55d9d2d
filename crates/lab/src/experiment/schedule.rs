//! Which runs of an experiment are still to be made, and how long they will take.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::axes::At;
use super::axes::AxisDefinition;
use super::best;
use super::catalog::{self, Known};
use super::definition::Definition;
use super::entrants::{self, Entrants};
use super::measures::AlsoDefinition;
use super::merge;
use super::plan::{self, Entrant, Sweep};
use super::results::{ComparedProgram, ExperimentResults, ResultCell, SweepAxis};
use super::series::SeriesDefinition;
use super::template::Variables;
use super::{Mode, Planned, RunRequest, environment, save, variables};
use crate::LabError;

/// An experiment that is ready to be run.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// Its definition, as in the file.
    pub(crate) definition: Definition,
    /// Who takes part.
    pub(crate) entrants: Vec<Entrant>,
    /// The `longhaul` under test.
    pub(crate) longhaul: PathBuf,
    /// The results, without cells.
    pub(crate) blank: ExperimentResults,
    /// In the order in which they are made.
    pub(crate) visits: Vec<Visit>,
    /// Cells that have all their runs already.
    already: usize,
}

/// A point of the sweep where something is to be run.
#[derive(Debug, Clone)]
pub(crate) struct Visit {
    /// Where.
    pub(crate) at: At,
    /// By whom.
    pub(crate) turns: Vec<Turn>,
}

/// The runs that an entrant has to make at a point.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    /// Its index.
    pub(crate) entrant: usize,
    /// The first repetition; those before it are in `kept`.
    pub(crate) first: u32,
    /// Behind the last one.
    pub(crate) end: u32,
    /// Samples that an earlier run left of this cell.
    pub(crate) kept: Option<ResultCell>,
    /// How long a run takes, expected.
    seconds: f64,
}

impl Schedule {
    /// The cells that `request` asks for. With `resume`, less those that its results have already.
    ///
    /// # Errors
    /// No such experiment or program, a mistake in a file, results that do not fit.
    pub(crate) fn of(request: &RunRequest) -> Result<Self, LabError> {
        let known = catalog::known(&request.name)?;
        let sweep = Sweep::new(&known.definition, request.mode, &request.only)?;
        let longhaul = entrants::longhaul()?;
        let entrants = entrants::gather(request, &known.definition, &longhaul)?;
        let mut blank = blank(&known, request, &sweep, &entrants);
        blank.planned = planned(&request.name, request.mode, &known.definition)?;
        let file = save::file(&request.out, &blank.experiment, &blank.mode);
        let kept = match request.resume {
            true => save::read(&file)?,
            false => None,
        };
        if let Some(kept) = &kept {
            merge::check(&file, kept, &blank)?;
        }
        let mut schedule = Self {
            definition: known.definition,
            entrants: entrants.all,
            longhaul,
            blank,
            visits: Vec::new(),
            already: 0,
        };
        for point in sweep.points(&schedule.entrants) {
            let mut turns = Vec::new();
            for entrant in point.entrants {
                let turn = schedule.turn(request, entrant, &point.at, kept.as_ref());
                schedule.already += usize::from(turn.first >= turn.end);
                turns.extend(Some(turn).filter(|turn| turn.first < turn.end));
            }
            if !turns.is_empty() {
                schedule.visits.push(Visit {
                    at: point.at,
                    turns,
                });
            }
        }
        Ok(schedule)
    }

    fn turn(
        &self,
        request: &RunRequest,
        index: usize,
        at: &At,
        kept: Option<&ExperimentResults>,
    ) -> Turn {
        let entrant = &self.entrants[index];
        let (definition, mode) = (&self.definition, request.mode);
        let own = entrant.repetitions(mode);
        let usual = own.unwrap_or(*definition.repetitions.of(mode));
        let end = request.repetitions.unwrap_or(usual);
        let end = end.min(request.at_most.unwrap_or(end)).max(1);
        let bytes = entrant.bytes(mode, asked(definition, mode, at));
        let shown = entrant.program.shown_at(at);
        let here = |cell: &&ResultCell| cell.program == entrant.key && cell.at == shown;
        let kept = kept.and_then(|kept| kept.cells.iter().chain(&kept.unfinished).find(here));
        let kept = kept
            .filter(|cell| !is_spoiled(cell))
            .cloned()
            .map(|mut cell| {
                best::forget(&definition.best, &mut cell);
                cell
            });
        let seeds: BTreeSet<u64> = kept
            .iter()
            .flat_map(|cell| &cell.samples)
            .map(|sample| sample.seed)
            .collect();
        Turn {
            entrant: index,
            first: u32::try_from(seeds.len()).unwrap_or(u32::MAX),
            end,
            kept,
            seconds: plan::expected_seconds(definition, mode, &entrant.key, at, bytes),
        }
    }

    fn turns(&self) -> impl Iterator<Item = &Turn> {
        self.visits.iter().flat_map(|visit| &visit.turns)
    }

    /// The most repetitions that a cell has.
    pub(crate) fn most_repetitions(&self) -> u32 {
        self.turns().map(|turn| turn.end).max().unwrap_or(0)
    }

    /// How long it will take with at most so many repetitions, seconds.
    pub(crate) fn seconds(&self, at_most: u32) -> f64 {
        let runs = |turn: &Turn| f64::from(turn.end.min(at_most).saturating_sub(turn.first));
        self.turns().map(|turn| turn.seconds * runs(turn)).sum()
    }

    /// The plan with at most so many repetitions.
    pub(crate) fn planned(&self, at_most: u32) -> Planned {
        let runs = |turn: &Turn| turn.end.min(at_most).saturating_sub(turn.first);
        let ends = |turn: &Turn| turn.end.min(at_most);
        Planned {
            experiment: self.blank.experiment.clone(),
            mode: self.blank.mode.clone(),
            points: self.visits.len(),
            programs: self.entrants.len(),
            cells: self.turns().count(),
            already: self.already,
            runs: self.turns().map(|turn| u64::from(runs(turn))).sum(),
            repetitions: self.turns().map(ends).collect(),
            seconds: self.seconds(at_most),
        }
    }
}

/// Whether the lab has spoiled every run of a cell.
pub(crate) fn is_spoiled(cell: &ResultCell) -> bool {
    let mut samples = cell.samples.iter();
    samples.all(|sample| !sample.invalid.is_empty())
        && cell.samples.last().is_some_and(|sample| sample.spoiled)
}

/// Size of the file that is asked for at a point; 0: none.
pub(crate) fn asked(definition: &Definition, mode: Mode, at: &At) -> u64 {
    variables::bytes(definition, mode, at).unwrap_or(0)
}

/// Cells of a whole experiment, programs that are not installed among them.
fn planned(name: &str, mode: Mode, definition: &Definition) -> Result<usize, LabError> {
    let path = Path::new(name);
    let beside = path.extension().and_then(|_| path.parent());
    let mut everybody = Vec::new();
    for key in definition.programs.of(mode) {
        let variant = definition.variants.get(key);
        everybody.push(Entrant {
            key: key.clone(),
            program: catalog::program(beside, variant.map_or(key, |v| &v.program))?,
            binaries: Variables::new(),
            variant: variant.cloned(),
        });
    }
    let points = Sweep::new(definition, mode, &[])?.points(&everybody);
    Ok(points.iter().map(|point| point.entrants.len()).sum())
}

/// Cells of an experiment that ships; `None`: there is none of that name.
pub(crate) fn planned_cells(name: &str, mode: &str) -> Option<usize> {
    let mode = [Mode::Full, Mode::Quick]
        .into_iter()
        .find(|m| m.name() == mode)?;
    if !catalog::EXPERIMENTS.iter().any(|(known, _)| *known == name) {
        return None;
    }
    let known = catalog::known(name).ok()?;
    planned(name, mode, &known.definition).ok()
}

/// ExperimentResults without cells.
fn blank(
    known: &Known,
    request: &RunRequest,
    sweep: &Sweep,
    entrants: &Entrants,
) -> ExperimentResults {
    let definition = &known.definition;
    let mut environment = environment::machine();
    environment
        .versions
        .extend(entrants.versions.iter().cloned());
    let mut notes = definition.notes.clone();
    notes.extend(entrants.notes.iter().cloned());
    let axis = |axis: &AxisDefinition| shown(axis, sweep, &entrants.all);
    let keys: Vec<&str> = entrants.all.iter().map(|e| e.key.as_str()).collect();
    let measured = definition.also.iter().map(AlsoDefinition::shown);
    let also = measured
        .chain(best::ratios(&definition.best, definition.higher_is_better))
        .collect();
    let mut programs: Vec<ComparedProgram> = entrants.all.iter().map(Entrant::shown).collect();
    programs.extend(best::shown(&definition.best, &keys));
    ExperimentResults {
        experiment: known.name.clone(),
        title: definition.title.clone(),
        source: definition.source.clone(),
        reference: definition.reference.clone(),
        mode: request.mode.name().to_owned(),
        started: now(),
        seconds: 0.0,
        seed: request.seed.unwrap_or(definition.seed),
        definition: known.fingerprint.clone(),
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
        unfinished: Vec::new(),
        planned: 0,
        notes,
    }
}

/// An axis with the values that are visited, and those that programs show in place of them.
fn shown(axis: &AxisDefinition, sweep: &Sweep, entrants: &[Entrant]) -> SweepAxis {
    let mut values = sweep.values(&axis.key).to_vec();
    for entrant in entrants {
        let own = entrant.program.ignores.get(&axis.key);
        values.extend(own.filter(|own| !values.contains(own)).cloned());
    }
    SweepAxis {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339() {
        let text = now();
        assert!(text.ends_with('Z') && text.len() == 20, "{text}");
        assert!(text.parse::<jiff::Timestamp>().is_ok());
    }
}
