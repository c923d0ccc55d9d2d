//! ExperimentResults of several runs of one experiment, put together cell by cell.

use std::path::Path;

use super::axes::AxisDefinition;
use super::best;
use super::definition::Definition;
use super::results::{ComparedProgram, ExperimentResults, ResultCell, SweepAxis};
use crate::LabError;

/// How the note begins that a run leaves which ended early.
pub(crate) const ENDED_EARLY: &str = "Ended early: ";

/// Refuses to mix cells of different seeds or of different versions of an experiment.
///
/// # Errors
/// [`LabError::Usage`] names `file`, which holds `kept`.
pub(crate) fn check(
    file: &Path,
    kept: &ExperimentResults,
    fresh: &ExperimentResults,
) -> Result<(), LabError> {
    let other = if kept.experiment != fresh.experiment || kept.mode != fresh.mode {
        "of another experiment".to_owned()
    } else if kept.seed != fresh.seed {
        format!("of seed {}, not {}", kept.seed, fresh.seed)
    } else if kept.definition != fresh.definition {
        "of another version of this experiment".to_owned()
    } else {
        return Ok(());
    };
    Err(LabError::Usage(format!(
        "{} holds results {other}, which are not mixed with these: choose another --out, or set them \
         aside with --fresh",
        file.display()
    )))
}

/// `kept` with every cell that `fresh` has anew. Unfinished cells stay until they are finished.
pub(crate) fn merged(
    definition: &Definition,
    kept: Option<ExperimentResults>,
    fresh: &ExperimentResults,
) -> ExperimentResults {
    let mut all = fresh.clone();
    // The bests are found anew.
    let is_own = |program: &ComparedProgram| !definition.best.contains_key(&program.key);
    all.programs.retain(is_own);
    if let Some(mut kept) = kept {
        kept.cells.retain(|cell| cell.chosen.is_none());
        union(&mut all.cells, kept.cells, same);
        union(&mut all.unfinished, kept.unfinished, same);
        for cell in &mut all.cells {
            best::forget(&definition.best, cell);
        }
        kept.programs.retain(is_own);
        union(&mut all.programs, kept.programs, |a, b| a.key == b.key);
        widen(&mut all.across, kept.across);
        match (&mut all.down, kept.down) {
            (Some(axis), Some(more)) => widen(axis, more),
            (axis, more) => *axis = axis.take().or(more),
        }
        let changed = changed(&kept.environment.versions, &all.environment.versions);
        kept.notes.retain(|note| !note.starts_with(ENDED_EARLY));
        kept.notes.extend(changed);
        union(&mut all.notes, kept.notes, |a, b| a == b);
        let environment = &mut all.environment;
        for (known, more) in [
            (&mut environment.versions, kept.environment.versions),
            (&mut environment.sysctls, kept.environment.sysctls),
        ] {
            for (key, value) in more {
                known.entry(key).or_insert(value);
            }
        }
        all.options = common(&kept.options, &all.options);
        all.started = kept.started.min(all.started);
        all.seconds += kept.seconds;
        all.planned = all.planned.max(kept.planned);
    }
    arrange(definition, &mut all);
    all
}

/// The same program at the same point.
pub(crate) fn same(one: &ResultCell, other: &ResultCell) -> bool {
    one.program == other.program && one.at == other.at
}

/// Adds what is not there.
fn union<T>(known: &mut Vec<T>, more: Vec<T>, same: impl Fn(&T, &T) -> bool) {
    for item in more {
        if !known.iter().any(|other| same(other, &item)) {
            known.push(item);
        }
    }
}

fn widen(axis: &mut SweepAxis, more: SweepAxis) {
    union(&mut axis.values, more.values, |a, b| a == b);
}

/// A note for each program of which the cells come from two versions.
fn changed(
    before: &std::collections::BTreeMap<String, String>,
    now: &std::collections::BTreeMap<String, String>,
) -> Vec<String> {
    let both = before.iter().filter_map(|(key, old)| {
        let new = now.get(key).filter(|new| *new != old)?;
        Some(format!(
            "{key} was '{old}' for some of the cells and '{new}' for others."
        ))
    });
    both.collect()
}

/// The pairs of option and value that both runs were given.
fn common(one: &[String], other: &[String]) -> Vec<String> {
    let pairs = |words: &[String]| -> Vec<Vec<String>> {
        words.chunks(2).map(<[String]>::to_vec).collect()
    };
    let others = pairs(other);
    let mut both = pairs(one);
    both.retain(|pair| others.contains(pair));
    both.concat()
}

/// Orders axes, programs and cells as the experiment has them, and adds the bests.
fn arrange(definition: &Definition, results: &mut ExperimentResults) {
    let order = |axis: &AxisDefinition, value: &String| {
        let place = axis.full.iter().position(|known| known == value);
        place.unwrap_or(usize::MAX)
    };
    let sorted = |axis: &mut SweepAxis| {
        if let Some(known) = definition.axes().find(|known| known.key == axis.key) {
            axis.values.sort_by_key(|value| order(known, value));
        }
    };
    sorted(&mut results.across);
    results.down.as_mut().into_iter().for_each(sorted);
    let takes_part = definition.programs.full.iter();
    let takes_part: Vec<&String> = takes_part.chain(&definition.programs.quick).collect();
    let rank = |key: &String| {
        let place = takes_part.iter().position(|known| *known == key);
        place.unwrap_or(usize::MAX)
    };
    results.programs.sort_by_key(|program| rank(&program.key));
    let keys: Vec<String> = results.programs.iter().map(|p| p.key.clone()).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    results
        .programs
        .extend(best::shown(&definition.best, &keys));
    let place = |cell: &ResultCell| -> (Vec<usize>, usize) {
        let at = definition.axes().map(|axis| {
            let value = cell.at.get(&axis.key);
            value.map_or(usize::MAX, |value| order(axis, value))
        });
        let program = keys.iter().position(|key| *key == cell.program);
        (at.collect(), program.unwrap_or(usize::MAX))
    };
    let mut cells = std::mem::take(&mut results.cells);
    cells.sort_by_cached_key(place);
    results
        .unfinished
        .retain(|half| !cells.iter().any(|whole| same(half, whole)));
    for point in cells.chunk_by(|one, other| one.at == other.at) {
        let first = results.cells.len();
        results.cells.extend_from_slice(point);
        best::add(
            &definition.best,
            definition.higher_is_better,
            &mut results.cells,
            first,
        );
    }
}

#[cfg(test)]
mod tests;
