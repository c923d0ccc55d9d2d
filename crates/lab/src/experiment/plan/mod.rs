//! Which measurements an experiment consists of: who takes part, at which points, with which variables.

use std::path::{Path, PathBuf};

use super::definition::{self, AxisDefinition, ExperimentDefinition, ExperimentKind, OnlyAt};
use super::definition::{VariantDefinition, key_error};
use super::hash::fnv1a;
use super::program::{ExecutableSearch, ProgramDefinition};
use super::results::{ComparedProgram, SweepPoint};
use super::template::{self, Variables};
use super::{Mode, RunRequest, catalog};
use crate::LabError;

/// A program or variant that takes part.
#[derive(Debug, Clone)]
pub(crate) struct Participant {
    pub(crate) key: String,
    pub(crate) program: ProgramDefinition,
    /// Where its executables are: variable → path.
    pub(crate) binaries: Variables,
    /// The difference from the program; without a variant there is none.
    pub(crate) variant: VariantDefinition,
}

impl Participant {
    fn load(
        definition: &ExperimentDefinition,
        own_directory: Option<&Path>,
        key: &str,
    ) -> Result<Self, LabError> {
        Ok(Self {
            key: key.to_owned(),
            program: catalog::load_program(own_directory, definition.program_of(key))?,
            binaries: Variables::new(),
            variant: definition.variants.get(key).cloned().unwrap_or_default(),
        })
    }

    fn takes_part_at(&self, at: &SweepPoint) -> bool {
        let within = |only: &OnlyAt| {
            let allows = |(axis, values): (&String, &Vec<String>)| {
                at.get(axis).is_none_or(|value| values.contains(value))
            };
            only.iter().all(allows)
        };
        within(&self.program.only) && within(&self.variant.only)
    }

    /// As it is kept with the results.
    pub(crate) fn to_compared_program(&self) -> ComparedProgram {
        let label = match self.variant.label.as_str() {
            "" => &self.program.label,
            _ => &self.variant.label,
        };
        ComparedProgram {
            key: self.key.clone(),
            label: label.clone(),
            published_ratio: self.variant.published_ratio,
        }
    }

    /// Repetitions in `mode`, if they are its own.
    pub(crate) fn repetitions(&self, mode: Mode) -> Option<u32> {
        self.variant
            .quick_repetitions
            .filter(|_| mode == Mode::Quick)
    }

    /// Size of the file that it moves where the point asks for `bytes`.
    pub(crate) fn bytes(&self, mode: Mode, bytes: u64) -> u64 {
        let largest = self.variant.quick_largest.as_ref();
        let largest = largest.filter(|_| mode == Mode::Quick);
        let largest = largest.and_then(|text| units::size(text).ok());
        largest.map_or(bytes, |largest| bytes.min(largest))
    }
}

/// The programs that take part in a run, and remarks on those that do not.
#[derive(Debug, Default)]
pub(crate) struct Participants {
    /// In the order they are shown.
    pub(crate) all: Vec<Participant>,
    /// Remarks for the reader of the results.
    pub(crate) notes: Vec<String>,
    /// Version lines, by key.
    pub(crate) versions: Vec<(String, String)>,
}

/// The directory of a user's own experiment file, which may hold programs, too.
fn experiment_directory(name: &str) -> Option<&Path> {
    let path = Path::new(name);
    path.extension().and_then(|_| path.parent())
}

/// Gathers the programs that `request` or else the experiment names and that are installed.
///
/// # Errors
/// No such program, a mistake in its file, or none is installed.
pub(crate) fn find_participants(
    request: &RunRequest,
    definition: &ExperimentDefinition,
    longhaul: &Path,
) -> Result<Participants, LabError> {
    let keys = match request.programs.as_slice() {
        [] => definition.programs.for_mode(request.mode),
        named => named,
    };
    let search = ExecutableSearch::from_environment();
    let root = rustix::process::geteuid().is_root();
    let mut found = Participants::default();
    for key in keys {
        let mut one = Participant::load(definition, experiment_directory(&request.name), key)?;
        let fits = one.program.client.is_none() == (definition.kind == ExperimentKind::Sim);
        let what = format!("{key} does not fit this 'kind'");
        definition::require(&request.name, "programs", fits, what)?;
        let needs_root = one.program.needs_root.contains(&definition.kind);
        let left_out = if needs_root && !root {
            let label = &one.program.label;
            Some(format!("{label} left out: its server needs root"))
        } else {
            let located = one.program.locate(&search);
            located.map(|binaries| one.binaries = binaries).err()
        };
        let quick = one.variant.quick_note();
        let quick = quick.filter(|_| request.mode == Mode::Quick);
        let remarks = one.program.note.iter().chain(&quick);
        let remarks = remarks.filter(|_| left_out.is_none());
        for note in left_out.iter().chain(remarks) {
            // Variants of one program share its remarks.
            if !found.notes.contains(note) {
                found.notes.push(note.clone());
            }
        }
        if left_out.is_some() {
            continue;
        }
        let path = longhaul.display().to_string();
        one.binaries.insert("longhaul".to_owned(), path);
        let version = one.program.version(&one.binaries);
        found
            .versions
            .extend(version.map(|version| (key.clone(), version)));
        found.all.push(one);
    }
    match found.all.is_empty() {
        true => Err(LabError::NotFound(found.notes.join("; "))),
        false => Ok(found),
    }
}

/// The `longhaul` under test: `LONGHAUL_BIN`, else this executable.
///
/// # Errors
/// The kernel does not say what runs.
pub(crate) fn find_longhaul() -> Result<PathBuf, LabError> {
    match std::env::var_os("LONGHAUL_BIN") {
        Some(path) => std::path::absolute(&path),
        None => std::env::current_exe(),
    }
    .map_err(|e| LabError::system("cannot find the executable of longhaul", e))
}

/// The values of each axis that are visited, `down` first: those of `mode`, or those that `only`
/// (`AXIS=VALUE[,VALUE...]`) picks from all.
///
/// # Errors
/// [`LabError::Usage`]: an axis or a value that the experiment does not have.
pub(crate) fn visited_values(
    definition: &ExperimentDefinition,
    mode: Mode,
    only: &[String],
) -> Result<Vec<Vec<String>>, LabError> {
    let refused = |choice: &str, what: String| LabError::Usage(format!("--only {choice}: {what}"));
    let axes: Vec<&AxisDefinition> = definition.axes().collect();
    let mut visited: Vec<Vec<String>> =
        axes.iter().map(|axis| axis.values(mode).to_vec()).collect();
    for choice in only {
        let parts = choice.split_once('=');
        let (key, values) =
            parts.ok_or_else(|| refused(choice, "write AXIS=VALUE[,VALUE...]".to_owned()))?;
        let index = axes
            .iter()
            .position(|axis| axis.key == key)
            .ok_or_else(|| {
                let keys: Vec<_> = axes.iter().map(|axis| axis.key.as_str()).collect();
                refused(choice, format!("the axes are {}", keys.join(" and ")))
            })?;
        let full = &axes[index].full;
        let wanted: Vec<&str> = values.split(',').map(str::trim).collect();
        if let Some(odd) = wanted
            .iter()
            .find(|value| !full.iter().any(|known| known == *value))
        {
            return Err(refused(
                choice,
                format!("'{odd}' is not among {}", full.join(", ")),
            ));
        }
        let chosen = full.iter().filter(|value| wanted.contains(&value.as_str()));
        visited[index] = chosen.cloned().collect();
    }
    Ok(visited)
}

/// Every point of a sweep over `visited`, rows first, with the indices of the participants that run
/// there. A participant that ignores an axis runs once, not for each of its values.
pub(crate) fn points_with_participants(
    definition: &ExperimentDefinition,
    visited: &[Vec<String>],
    participants: &[Participant],
) -> Vec<(SweepPoint, Vec<usize>)> {
    let mut all = vec![SweepPoint::new()];
    for (axis, values) in definition.axes().zip(visited) {
        let with = |at: &SweepPoint, value: &String| {
            let mut at = at.clone();
            at.insert(axis.key.clone(), value.clone());
            at
        };
        let longer = all
            .iter()
            .flat_map(|at| values.iter().map(move |value| with(at, value)));
        all = longer.collect();
    }
    let mut done: Vec<(usize, SweepPoint)> = Vec::new();
    let mut points = Vec::new();
    for at in all {
        let mut here = Vec::new();
        for (index, one) in participants.iter().enumerate() {
            let shown = (index, one.program.listed_point(&at));
            if one.takes_part_at(&at) && !done.contains(&shown) {
                done.push(shown);
                here.push(index);
            }
        }
        if !here.is_empty() {
            points.push((at, here));
        }
    }
    points
}

/// How many cells a whole experiment has, with those of programs that are not installed.
///
/// # Errors
/// A mistake in a program's file.
pub(crate) fn count_cells(
    name: &str,
    mode: Mode,
    definition: &ExperimentDefinition,
) -> Result<usize, LabError> {
    let keys = definition.programs.for_mode(mode).iter();
    let all = keys.map(|key| Participant::load(definition, experiment_directory(name), key));
    let all: Vec<Participant> = all.collect::<Result<_, _>>()?;
    let visited = visited_values(definition, mode, &[])?;
    let points = points_with_participants(definition, &visited, &all);
    Ok(points.iter().map(|(_, here)| here.len()).sum())
}

/// Values of the holes at a point: `given`, then the point's axes and what their values set, which may refer
/// to it, then `own`, a variant's settings, then the experiment's parameters, which both may refer to all
/// these. A parameter does not replace a value that is there.
///
/// # Errors
/// A hole that nothing fills.
pub(crate) fn expand_variables(
    name: &str,
    definition: &ExperimentDefinition,
    at: &SweepPoint,
    given: Variables,
    own: &Variables,
) -> Result<Variables, LabError> {
    let mut known = given;
    for axis in definition.axes() {
        let value = at.get(&axis.key).map_or("", String::as_str);
        for (key, text) in axis.variables(value) {
            let text = template::expand(text, &known).map_err(|e| key_error(name, key, e))?;
            known.insert(key.clone(), text);
        }
    }
    let mut all = known.clone();
    let expanded = |table: &str, key: &str, text: &str| {
        let key = format!("{table}.{key}");
        template::expand(text, &known).map_err(|e| key_error(name, &key, e))
    };
    for (key, text) in own {
        all.insert(key.clone(), expanded("variants.sets", key, text)?);
    }
    for (key, text) in &definition.parameters {
        let text = expanded("parameters", key, text)?;
        all.entry(key.clone()).or_insert(text);
    }
    Ok(all)
}

/// Values of the axes of a point as they are written, with nothing filled in.
fn unexpanded_variables(definition: &ExperimentDefinition, at: &SweepPoint) -> Variables {
    let axes = definition
        .axes()
        .filter_map(|axis| Some((axis, at.get(&axis.key)?)));
    let all = axes.flat_map(|(axis, value)| axis.variables(value));
    all.map(|(key, text)| (key.clone(), text.to_owned()))
        .collect()
}

/// Size of the file that is asked for at a point: an axis's, else the experiment's. `None`: no file, or
/// it depends on what is known only when a run is prepared.
pub(crate) fn requested_bytes(
    definition: &ExperimentDefinition,
    mode: Mode,
    at: &SweepPoint,
) -> Option<u64> {
    let known = unexpanded_variables(definition, at);
    let usual = definition.bytes.as_ref().map(|bytes| bytes.for_mode(mode));
    let size = template::expand(known.get("bytes").or(usual)?, &known).ok()?;
    units::size(&size).ok()
}

/// The order in which the participants of a point run in one repetition: each begins once, so that
/// no program always follows the same other one.
pub(crate) fn rotated_order(count: usize, repetition: u32) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.rotate_left(repetition as usize % count.max(1));
    order
}

/// The seed of a run: the same for every program at a point, another one in each repetition, and
/// independent of which other points are visited. At most 2⁵³ − 1, which every JSON reader keeps.
pub(crate) fn run_seed(seed: u64, at: &SweepPoint, repetition: u32) -> u64 {
    let point: String = at
        .iter()
        .map(|(key, value)| format!("{key}={value};"))
        .collect();
    let parts = [
        &seed.to_le_bytes()[..],
        point.as_bytes(),
        &repetition.to_le_bytes(),
    ];
    fnv1a(&parts.concat()) >> 11
}

/// Cost of building and taking down a network and of starting a server in a run, seconds.
const OVERHEAD_SECONDS: f64 = 1.0;

/// The rate that is assumed where nothing is published, bit/s: of a network, and of loopback.
const ASSUMED_RATES: (f64, f64) = (300e6, 10e9);

/// A guess of how long one run of a participant lasts, with a file of `bytes`.
#[allow(clippy::cast_precision_loss, reason = "a guess")]
pub(crate) fn expected_seconds(
    definition: &ExperimentDefinition,
    mode: Mode,
    key: &str,
    at: &SweepPoint,
    bytes: u64,
) -> f64 {
    let fixed = definition.parameters.get("seconds");
    let moving = match fixed.and_then(|seconds| seconds.parse().ok()) {
        Some(seconds) => seconds,
        None => bytes as f64 * 8.0 / expected_rate(definition, key, at).max(1.0),
    };
    moving.min(f64::from(*definition.limit.for_mode(mode))) + OVERHEAD_SECONDS
}

/// The rate at which a program is expected to move its file, bit/s: what its variant says, or what
/// was published, or the network's.
fn expected_rate(definition: &ExperimentDefinition, key: &str, at: &SweepPoint) -> f64 {
    let variant = definition.variants.get(key);
    let said = variant.and_then(|variant| variant.expects);
    let known = said.or_else(|| definition.published(key, "goodput", at));
    if let Some(megabits) = known {
        return megabits * 1e6;
    }
    let assumed = match definition.kind {
        ExperimentKind::Loopback => ASSUMED_RATES.1,
        ExperimentKind::Net | ExperimentKind::Sim => ASSUMED_RATES.0,
    };
    bottleneck_rate(definition, at).map_or(assumed, |rate| rate.min(assumed))
}

/// The rate of a network's usual path, bit/s, if the point alone says it.
#[allow(clippy::cast_precision_loss, reason = "a guess")]
fn bottleneck_rate(definition: &ExperimentDefinition, at: &SweepPoint) -> Option<f64> {
    let network = definition.network.as_ref()?;
    let rate = network.get("default")?.get("rate")?.as_str()?;
    let rate = template::expand(rate, &unexpanded_variables(definition, at)).ok()?;
    let rate = units::rate(&rate).ok()?;
    Some(rate.as_bits_per_second() as f64)
}

#[cfg(test)]
mod tests;
