//! The best of several participants at each point, and the ratio of every participant to it.

use super::definition::BestOfSeveral;
use super::results::{ComparedProgram, FurtherMeasure, MeasureValue, ResultCell};

/// Returns the key in [`ResultCell::also`] of the ratio to the best of the set `key`.
fn ratio_key(key: &str) -> String {
    format!("of-{key}")
}

/// Returns the sets that contain one of `programs`, in the form that is saved with the results.
pub(crate) fn to_compared_programs(
    bests: &BestOfSeveral,
    programs: &[ComparedProgram],
) -> Vec<ComparedProgram> {
    let takes_part = |key: &String| programs.iter().any(|program| program.key == *key);
    let taking_part = bests
        .iter()
        .filter(|(_, best)| best.of.iter().any(takes_part));
    let shown = taking_part.map(|(key, best)| ComparedProgram {
        key: key.clone(),
        label: best.label.clone(),
        published_ratio: None,
    });
    shown.collect()
}

/// Returns the measures "ratio to the best", in the form that is saved with the results.
pub(crate) fn ratio_measures(
    bests: &BestOfSeveral,
    higher_is_better: bool,
) -> impl Iterator<Item = FurtherMeasure> + '_ {
    bests.iter().map(move |(key, best)| FurtherMeasure {
        key: ratio_key(key),
        label: format!("ratio to the {}", best.label),
        unit: "\u{d7}".to_owned(),
        higher_is_better,
    })
}

/// Adds to the cells of one point a cell for the best of each set, and to all cells their ratio to it.
/// A set of which nothing was measured at the point has no cell.
pub(crate) fn add_bests(
    bests: &BestOfSeveral,
    higher_is_better: bool,
    cells: &mut Vec<ResultCell>,
) {
    let sign = if higher_is_better { 1.0 } else { -1.0 };
    let median = |cell: &ResultCell| cell.median.filter(|value| value.is_finite());
    let mut winners = Vec::new();
    for (key, best) in bests {
        let measured = cells.iter().filter(|cell| best.of.contains(&cell.program));
        let measured = measured.filter_map(|cell| Some((cell, median(cell)?)));
        // `max_by` returns the last of equal values; the first is wanted, in the experiment's order.
        let winner = measured
            .rev()
            .max_by(|(_, a), (_, b)| (a * sign).total_cmp(&(b * sign)));
        winners.extend(winner.map(|(cell, value)| {
            let cell = ResultCell {
                program: key.clone(),
                chosen: Some(cell.program.clone()),
                series: Vec::new(),
                ..cell.clone()
            };
            (ratio_key(key), value, cell)
        }));
    }
    cells.extend(winners.iter().map(|(.., cell)| cell.clone()));
    for cell in cells {
        for (key, best, _) in &winners {
            let Some(ratio) = cell.median.map(|own| own / best).filter(|r| r.is_finite()) else {
                continue;
            };
            let value = MeasureValue {
                median: Some(ratio),
                ..MeasureValue::default()
            };
            cell.also.insert(key.clone(), value);
            for run in &mut cell.samples {
                run.also
                    .extend(run.value.map(|own| (key.clone(), own / best)));
            }
        }
    }
}

/// Removes the ratios to the bests from a cell.
pub(crate) fn remove_ratios(bests: &BestOfSeveral, cell: &mut ResultCell) {
    for key in bests.keys().map(|key| ratio_key(key)) {
        cell.also.remove(&key);
        cell.samples.iter_mut().for_each(|run| {
            run.also.remove(&key);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::results::statistics::empty_cell;

    fn bests() -> BestOfSeveral {
        toml::from_str("[set]\nlabel = 'best set'\nof = ['one', 'two']\n").unwrap()
    }

    fn added(higher_is_better: bool, medians: &[(&str, Option<f64>)]) -> Vec<ResultCell> {
        let cell = |(program, median): &(&str, Option<f64>)| ResultCell {
            median: *median,
            ..empty_cell(program, Default::default(), None)
        };
        let mut cells: Vec<ResultCell> = medians.iter().map(cell).collect();
        add_bests(&bests(), higher_is_better, &mut cells);
        cells
    }

    fn ratios_of(cells: &[ResultCell]) -> Vec<Option<f64>> {
        cells
            .iter()
            .map(|cell| cell.also.get("of-set")?.median)
            .collect()
    }

    #[test]
    fn the_best_gets_a_cell_and_every_program_a_ratio_to_it() {
        let cells = added(
            true,
            &[
                ("one", Some(50.0)),
                ("two", Some(80.0)),
                ("free", Some(100.0)),
            ],
        );
        let best = &cells[3];
        assert_eq!((&*best.program, best.median), ("set", Some(80.0)));
        assert_eq!(best.chosen.as_deref(), Some("two"));
        assert_eq!(ratios_of(&cells), [0.625, 1.0, 1.25, 1.0].map(Some));
        let mut cell = cells[0].clone();
        remove_ratios(&bests(), &mut cell);
        assert!(cell.also.is_empty());
        let cells = added(false, &[("one", Some(50.0)), ("two", Some(80.0))]);
        assert_eq!(cells[2].chosen.as_deref(), Some("one"), "less is better");
    }

    #[test]
    fn a_program_that_failed_is_not_the_best() {
        let cells = added(true, &[("one", None), ("two", Some(3.0))]);
        assert_eq!(cells[2].chosen.as_deref(), Some("two"));
        assert_eq!(ratios_of(&cells)[0], None);
        let cells = added(true, &[("one", None), ("free", Some(3.0))]);
        assert_eq!(ratios_of(&cells), [None, None]);
    }

    #[test]
    fn a_set_is_shown_if_one_of_its_programs_takes_part() {
        let program = |key: &str| ComparedProgram {
            key: key.to_owned(),
            label: key.to_owned(),
            published_ratio: None,
        };
        assert_eq!(
            to_compared_programs(&bests(), &[program("two")])[0].label,
            "best set"
        );
        assert!(to_compared_programs(&bests(), &[program("free")]).is_empty());
        let ratios: Vec<FurtherMeasure> = ratio_measures(&bests(), true).collect();
        assert_eq!(ratios[0].label, "ratio to the best set");
    }
}
