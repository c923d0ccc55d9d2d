//! The best of several entrants at a point, and how everybody there stands against it.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::document::mistake;
use super::results::{ComparedProgram, FurtherMeasure, MeasureValue, ResultCell};
use crate::LabError;

/// Entrants of which the best one counts, at each point another one perhaps: what somebody finds who
/// tries them all.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BestDefinition {
    /// For people: `best globus-url-copy`.
    pub(crate) label: String,
    /// Keys of programs or variants.
    pub(crate) of: Vec<String>,
}

/// Its key → of whom.
pub(crate) type Bests = BTreeMap<String, BestDefinition>;

/// Key in [`ResultCell::also`] of the ratio to the best of `key`.
fn ratio_key(key: &str) -> String {
    format!("of-{key}")
}

/// Checks the bests of an experiment in which `entrants` (keys) take part and `measures` are measured.
///
/// # Errors
/// [`LabError::Usage`] names the key.
pub(crate) fn check(
    bests: &Bests,
    entrants: &[&str],
    measures: &[&str],
    file: &str,
) -> Result<(), LabError> {
    let takes_part = |key: &str| entrants.contains(&key);
    for (key, best) in bests {
        let at = |what: &str| format!("best.{key}{what}");
        if takes_part(key) {
            return Err(mistake(file, &at(""), "is the key of a program"));
        }
        if measures.contains(&ratio_key(key).as_str()) {
            return Err(mistake(file, &at(""), "its ratio is also a measure"));
        }
        if best.of.is_empty() {
            return Err(mistake(file, &at(".of"), "name at least one program"));
        }
        if let Some(odd) = best.of.iter().find(|of| !takes_part(of)) {
            let what = format!("'{odd}' takes no part");
            return Err(mistake(file, &at(".of"), what));
        }
    }
    Ok(())
}

/// The bests of which one of `entrants` (keys) is part, as they are kept with the results.
pub(crate) fn shown(bests: &Bests, entrants: &[&str]) -> Vec<ComparedProgram> {
    let taking_part = |of: &[String]| of.iter().any(|key| entrants.contains(&key.as_str()));
    bests
        .iter()
        .filter(|(_, best)| taking_part(&best.of))
        .map(|(key, best)| ComparedProgram {
            key: key.clone(),
            label: best.label.clone(),
            published_ratio: None,
        })
        .collect()
}

/// The ratios to the bests, as they are kept with the results.
pub(crate) fn ratios(
    bests: &Bests,
    higher_is_better: bool,
) -> impl Iterator<Item = FurtherMeasure> + '_ {
    bests.iter().map(move |(key, best)| FurtherMeasure {
        key: ratio_key(key),
        label: format!("ratio to the {}", best.label),
        unit: "\u{d7}".to_owned(),
        higher_is_better,
    })
}

/// Adds to the cells of one point, those from `first` on, a cell for each best that was measured
/// there, and to all of them their ratios to it.
pub(crate) fn add(
    bests: &Bests,
    higher_is_better: bool,
    cells: &mut Vec<ResultCell>,
    first: usize,
) {
    let mut winners = Vec::new();
    for (key, best) in bests {
        let here = cells.iter().skip(first);
        let winner = here
            .filter(|cell| best.of.contains(&cell.program))
            .filter_map(|cell| Some((cell, cell.median.filter(|value| value.is_finite())?)))
            .reduce(|one, other| {
                let other_wins = match higher_is_better {
                    true => other.1 > one.1,
                    false => other.1 < one.1,
                };
                if other_wins { other } else { one }
            });
        if let Some((cell, value)) = winner {
            winners.push((key, named(key, cell), value));
        }
    }
    let values: Vec<(String, f64)> = winners
        .iter()
        .map(|(key, _, value)| (ratio_key(key), *value))
        .collect();
    cells.extend(winners.into_iter().map(|(_, cell, _)| cell));
    for cell in cells.iter_mut().skip(first) {
        for (key, best) in &values {
            let ratio = cell.median.map(|own| own / best);
            let Some(ratio) = ratio.filter(|ratio| ratio.is_finite()) else {
                continue;
            };
            let value = MeasureValue {
                median: Some(ratio),
                ..MeasureValue::default()
            };
            cell.also.insert(key.clone(), value);
            for sample in &mut cell.samples {
                let own = sample.value.map(|own| (key.clone(), own / best));
                sample.also.extend(own);
            }
        }
    }
}

/// Takes from a cell its ratios to the bests.
pub(crate) fn forget(bests: &Bests, cell: &mut ResultCell) {
    for key in bests.keys().map(|key| ratio_key(key)) {
        cell.also.remove(&key);
        for sample in &mut cell.samples {
            sample.also.remove(&key);
        }
    }
}

/// The winner's cell under the best's key.
fn named(key: &str, winner: &ResultCell) -> ResultCell {
    ResultCell {
        program: key.to_owned(),
        chosen: Some(winner.program.clone()),
        series: Vec::new(),
        ..winner.clone()
    }
}

#[cfg(test)]
mod tests;
