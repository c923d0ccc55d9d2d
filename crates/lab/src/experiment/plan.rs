//! The plan of an experiment: which programs take part, at which points, with which variables and seeds.

use std::path::Path;

use super::definition::hash::fnv1a;
use super::definition::program::{ExecutableSearch, ProgramDefinition};
use super::definition::template::{self, Variables};
use super::definition::{
    self, AxisDefinition, ExperimentDefinition, ExperimentKind, OnlyAt, VariantDefinition, catalog,
    key_error,
};
use super::results::{ComparedProgram, SweepPoint};
use super::{Mode, RunRequest};
use crate::LabError;

/// A program or variant that takes part in an experiment.
#[derive(Debug, Clone)]
pub(crate) struct Participant {
    pub(crate) key: String,
    pub(crate) program: ProgramDefinition,
    /// Its executables: variable → path.
    pub(crate) binaries: Variables,
    /// The variant's differences from the program; the default value if it is the program itself.
    pub(crate) variant: VariantDefinition,
}

impl Participant {
    /// Loads the program, or the variant's program, from its file. Its executables are not located yet.
    fn load(
        definition: &ExperimentDefinition,
        own_directory: Option<&Path>,
        key: &str,
    ) -> Result<Self, LabError> {
        let variant = definition.variants.get(key).cloned().unwrap_or_default();
        let mut program = catalog::load_program(own_directory, definition.program_of(key))?;
        if let Some(outer) = &variant.within {
            program = program.inside(outer, catalog::load_program(own_directory, outer)?);
        }
        Ok(Self {
            key: key.to_owned(),
            program,
            binaries: Variables::new(),
            variant,
        })
    }

    /// Whether the program and the variant both allow the values of a point.
    fn takes_part_at(&self, at: &SweepPoint) -> bool {
        let within = |only: &OnlyAt| {
            let allows = |(axis, values): (&String, &Vec<String>)| {
                at.get(axis).is_none_or(|value| values.contains(value))
            };
            only.iter().all(allows)
        };
        within(&self.program.only) && within(&self.variant.only)
    }

    /// Returns the form that is saved with the results.
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

    /// Returns the variant's own number of repetitions in `mode`. `None`: the experiment's applies.
    pub(crate) fn repetitions(&self, mode: Mode) -> Option<u32> {
        self.variant
            .quick_repetitions
            .filter(|_| mode == Mode::Quick)
    }

    /// Returns the size of the file that it moves where the point asks for `bytes`.
    pub(crate) fn bytes(&self, mode: Mode, bytes: u64) -> u64 {
        let largest = self.variant.quick_largest.as_ref();
        let largest = largest.filter(|_| mode == Mode::Quick);
        let largest = largest.and_then(|text| units::size(text).ok());
        largest.map_or(bytes, |largest| bytes.min(largest))
    }
}

/// The programs that take part in a run, and remarks on these and on omitted ones.
#[derive(Debug, Default)]
pub(crate) struct Participants {
    /// The participants, in the order in which they are shown.
    pub(crate) all: Vec<Participant>,
    /// Remarks for the reader of the results.
    pub(crate) notes: Vec<String>,
    /// Key → the line that the version command printed.
    pub(crate) versions: Vec<(String, String)>,
}

/// Returns the directory of a user's experiment file, which may also hold program files. `None`: the
/// experiment ships with the lab.
fn experiment_directory(name: &str) -> Option<&Path> {
    let path = Path::new(name);
    path.extension().and_then(|_| path.parent())
}

/// Finds the installed programs among those that `request` names, or else the experiment.
///
/// # Errors
/// A program does not exist or its file has a mistake; [`LabError::NotFound`] if none can run here.
pub(crate) fn find_participants(
    request: &RunRequest,
    definition: &ExperimentDefinition,
) -> Result<Participants, LabError> {
    let keys = match request.programs.as_slice() {
        [] => definition.programs.for_mode(request.mode),
        named => named,
    };
    let search = ExecutableSearch::from_environment();
    let root = rustix::process::geteuid().is_root();
    let mut found = Participants::default();
    for key in keys {
        let mut participant =
            Participant::load(definition, experiment_directory(&request.name), key)?;
        let fits = participant.program.client.is_none() == (definition.kind == ExperimentKind::Sim);
        let what = format!("{key} does not fit this 'kind'");
        definition::require(&request.name, "programs", fits, what)?;
        let needs_root = participant.program.needs_root.contains(&definition.kind);
        let left_out = if needs_root && !root {
            let label = &participant.program.label;
            Some(format!("{label} left out: its server needs root"))
        } else {
            let located = participant.program.locate(&search);
            located
                .map(|binaries| participant.binaries = binaries)
                .err()
        };
        let quick = participant.variant.quick_note();
        let quick = quick.filter(|_| request.mode == Mode::Quick);
        let remarks = participant.program.note.iter().chain(&quick);
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
        // Command lines refer to the executable under test as `{longhaul}`.
        let path = request.longhaul.display().to_string();
        participant.binaries.insert("longhaul".to_owned(), path);
        let version = participant.program.version(&participant.binaries);
        found
            .versions
            .extend(version.map(|version| (key.clone(), version)));
        found.all.push(participant);
    }
    match found.all.is_empty() {
        true => Err(LabError::NotFound(found.notes.join("; "))),
        false => Ok(found),
    }
}

/// Returns the values of each axis that are visited, `down` first: those that `only`
/// (`AXIS=VALUE[,VALUE...]`) selects from all values, else those of `mode`.
///
/// # Errors
/// [`LabError::Usage`]: the experiment has no such axis or value.
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

/// Lists the points of a sweep over `visited`, row by row, with the indices of the participants that
/// run there. A participant that ignores an axis runs once, not once for each of its values.
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
    // Two points that are listed as the same one for a program are one cell, which runs once.
    let mut done: Vec<(usize, SweepPoint)> = Vec::new();
    let mut points = Vec::new();
    for at in all {
        let mut here = Vec::new();
        for (index, participant) in participants.iter().enumerate() {
            let shown = (index, participant.program.listed_point(&at));
            if participant.takes_part_at(&at) && !done.contains(&shown) {
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

/// Counts the cells of a whole experiment, including those of programs that are not installed.
///
/// # Errors
/// A program does not exist, or its file has a mistake.
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

/// Collects the variables of templates at a point. They are, in this order: `given`; the variables that
/// the values of the axes set; `own`, a variant's settings; the experiment's parameters. Each may refer to
/// `given` and to variables of the axes before it. A parameter never replaces another variable.
///
/// # Errors
/// [`LabError::Usage`]: a template names a variable that is not set.
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

/// Returns the variables that a point's axes set, as they are written: templates are not expanded.
fn unexpanded_variables(definition: &ExperimentDefinition, at: &SweepPoint) -> Variables {
    let axes = definition
        .axes()
        .filter_map(|axis| Some((axis, at.get(&axis.key)?)));
    let all = axes.flat_map(|(axis, value)| axis.variables(value));
    all.map(|(key, text)| (key.clone(), text.to_owned()))
        .collect()
}

/// Returns the size of the tree or the file that a point asks for: an axis's, else the experiment's. `None`: there
/// is neither, or its size depends on variables that are known only when a run is prepared.
pub(crate) fn requested_bytes(
    definition: &ExperimentDefinition,
    mode: Mode,
    at: &SweepPoint,
) -> Option<u64> {
    let known = unexpanded_variables(definition, at);
    if let Some(name) = known.get("tree") {
        let tree = definition.trees.get(name)?;
        return Some(tree.totals(mode, definition.seed).bytes);
    }
    let default_size = definition.bytes.as_ref().map(|bytes| bytes.for_mode(mode));
    let size = template::expand(known.get("bytes").or(default_size)?, &known).ok()?;
    units::size(&size).ok()
}

/// Returns the order in which the participants of a point run in one repetition. It is rotated by one in
/// each repetition, so that a slow drift of the machine does not favour the program that runs first.
pub(crate) fn rotated_order(count: usize, repetition: u32) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.rotate_left(repetition as usize % count.max(1));
    order
}

/// Returns the seed of a run, at most 2⁵³ − 1, which every JSON reader keeps exactly. All programs of a
/// point have the same seed, so that they meet the same random events; each repetition has another one.
/// It does not depend on which other points are visited, so that a resumed run has the seeds of a whole one.
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

/// The time that a run needs for its network and its servers, seconds; an estimate.
const OVERHEAD_SECONDS: f64 = 1.0;

/// The rates that are assumed where nothing better is known, bit/s: of a network, and of loopback.
const ASSUMED_RATES: (f64, f64) = (300e6, 10e9);

/// Estimates the duration of one run with a file of `bytes`, in seconds.
#[allow(clippy::cast_precision_loss, reason = "a guess")]
pub(crate) fn expected_seconds(
    definition: &ExperimentDefinition,
    mode: Mode,
    key: &str,
    at: &SweepPoint,
    bytes: u64,
) -> f64 {
    let known = unexpanded_variables(definition, at);
    let fixed = known
        .get("seconds")
        .or_else(|| definition.parameters.get("seconds"));
    let moving = match fixed.and_then(|seconds| seconds.parse().ok()) {
        Some(seconds) => seconds,
        None => bytes as f64 * 8.0 / expected_rate(definition, key, at).max(1.0),
    };
    moving.min(f64::from(*definition.limit.for_mode(mode))) + OVERHEAD_SECONDS
}

/// Estimates the rate of a program, bit/s: its variant's `expects`, else the published goodput, else the
/// rate of the bottleneck.
fn expected_rate(definition: &ExperimentDefinition, key: &str, at: &SweepPoint) -> f64 {
    let variant = definition.variants.get(key);
    let variant_rate = variant.and_then(|variant| variant.expects);
    let known = variant_rate.or_else(|| definition.published(key, "goodput", at));
    if let Some(megabits) = known {
        return megabits * 1e6;
    }
    let assumed = match definition.kind {
        ExperimentKind::Loopback => ASSUMED_RATES.1,
        ExperimentKind::Net | ExperimentKind::Sim => ASSUMED_RATES.0,
    };
    bottleneck_rate(definition, at).map_or(assumed, |rate| rate.min(assumed))
}

/// Returns the rate of a network's default path, bit/s. `None`: it depends on more than the point.
#[allow(clippy::cast_precision_loss, reason = "a guess")]
fn bottleneck_rate(definition: &ExperimentDefinition, at: &SweepPoint) -> Option<f64> {
    let network = definition.network.as_ref()?;
    let rate = network.get("default")?.get("rate")?.as_str()?;
    let rate = template::expand(rate, &unexpanded_variables(definition, at)).ok()?;
    let rate = units::rate(&rate).ok()?;
    Some(rate.as_bits_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPERIMENT: &str = r#"
title = "Throughput"
kind = "loopback"
measure = "goodput"
unit = "Mbit/s"
programs = { full = ["x", "auto", "curl"], quick = ["x"] }
repetitions = { full = 5, quick = 3 }
limit = { full = 600, quick = 60 }
[across]
key = "latency"
label = "latency"
full = ["1", "5", "10"]
quick = ["1", "10"]
[down]
key = "p"
label = "streams"
full = ["1", "4"]
quick = ["4"]
[paper]
"4" = [900, 450, 0.1]
"#;

    fn definition() -> ExperimentDefinition {
        ExperimentDefinition::parse("x.toml", EXPERIMENT).unwrap()
    }

    fn participant(more: &str) -> Participant {
        let text = format!("label = 'x'\n{more}\n[client]\nhost = 'a'\nargv = ['x']\n");
        Participant {
            key: "x".to_owned(),
            program: ProgramDefinition::parse("p.toml", &text).unwrap(),
            binaries: Variables::new(),
            variant: VariantDefinition::default(),
        }
    }

    fn visited(mode: Mode, only: &[&str]) -> Result<Vec<Vec<String>>, LabError> {
        let only: Vec<String> = only.iter().map(|s| (*s).to_owned()).collect();
        visited_values(&definition(), mode, &only)
    }

    fn participants_at(only: &[&str], participants: &[Participant]) -> Vec<Vec<usize>> {
        let visited = visited(Mode::Full, only).unwrap();
        let points = points_with_participants(&definition(), &visited, participants);
        points.into_iter().map(|(_, here)| here).collect()
    }

    fn at(p: &str, latency: &str) -> SweepPoint {
        [("p", p), ("latency", latency)]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into()
    }

    #[test]
    fn every_shipped_experiment_has_cells_in_both_modes_and_names_programs_that_ship() {
        for (name, _) in catalog::EXPERIMENTS {
            let definition = catalog::load_experiment(name).unwrap().definition;
            for mode in [Mode::Full, Mode::Quick] {
                let cells = count_cells(name, mode, &definition).unwrap();
                assert!(cells > 0, "{name}");
            }
        }
    }

    #[test]
    fn points_are_listed_row_by_row() {
        let visited = visited(Mode::Full, &[]).unwrap();
        let points = points_with_participants(&definition(), &visited, &[participant("")]);
        let order: Vec<_> = points
            .iter()
            .map(|(at, _)| (&*at["p"], &*at["latency"]))
            .collect();
        assert_eq!(
            order[..4],
            [("1", "1"), ("1", "5"), ("1", "10"), ("4", "1")]
        );
        assert_eq!(order.len(), 6);
    }

    #[test]
    fn only_selects_from_all_values_and_keeps_their_order() {
        let chosen = visited(Mode::Quick, &["latency=10,5", "p=1"]).unwrap();
        assert_eq!(chosen, [vec!["1"], vec!["5", "10"]]);
        for (bad, named) in [
            ("latency", "AXIS=VALUE"),
            ("q=1", "latency"),
            ("p=7", "'7'"),
        ] {
            let message = visited(Mode::Full, &[bad]).unwrap_err().to_string();
            assert!(message.contains(named), "{message}");
        }
    }

    #[test]
    fn a_program_that_ignores_an_axis_runs_once_and_only_restricts_the_points() {
        let participants = [
            participant(""),
            participant("ignores = { p = 'auto' }"),
            participant("only = { p = ['1'] }"),
        ];
        let expected = [vec![0, 1, 2], vec![0, 1, 2], vec![0], vec![0]];
        assert_eq!(participants_at(&["latency=1,5"], &participants), expected);
        assert_eq!(participants_at(&[], &participants[1..2]).len(), 3);
        let mut some = participant("only = { latency = ['1', '5'] }");
        some.variant.only = [("latency".to_owned(), vec!["5".to_owned(), "10".to_owned()])].into();
        let expected = [vec![0], vec![0, 1], vec![0]];
        assert_eq!(
            participants_at(&["p=1"], &[participant(""), some]),
            expected
        );
    }

    #[test]
    fn every_participant_runs_first_in_one_of_the_repetitions() {
        let orders = [0, 1, 5].map(|repetition| rotated_order(3, repetition));
        assert_eq!(orders, [[0, 1, 2], [1, 2, 0], [2, 0, 1]]);
        assert!(rotated_order(0, 4).is_empty());
    }

    #[test]
    fn seeds_differ_by_point_repetition_and_seed() {
        let seeds = [
            run_seed(1, &at("1", "10"), 0),
            run_seed(1, &at("1", "10"), 1),
            run_seed(1, &at("10", "1"), 0),
            run_seed(2, &at("1", "10"), 0),
        ];
        let different: std::collections::BTreeSet<u64> = seeds.into();
        assert!(different.len() == 4 && seeds.iter().all(|seed| *seed < 1 << 53));
        // Seeds stay the same from version to version: this one is from a results file.
        assert_eq!(run_seed(178, &at("1", "5"), 0), 6_777_867_121_281_556);
    }

    #[test]
    fn the_expected_duration_follows_from_the_published_rate_and_the_limit() {
        let expected = |mode, latency| {
            expected_seconds(&definition(), mode, "x", &at("4", latency), 450_000_000)
        };
        assert!((expected(Mode::Full, "5") - 9.0).abs() < 1e-9);
        assert!((expected(Mode::Quick, "10") - 61.0).abs() < 1e-9);
    }
}
