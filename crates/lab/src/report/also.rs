//! Further measures of the same runs, each as results of its own, which are drawn like the first.

use crate::experiment::results::{Also, Results};

/// The results of each further measure, with its name.
pub(super) fn all(results: &Results) -> Vec<Results> {
    results.also.iter().map(|also| one(results, also)).collect()
}

/// `results` as if `also` were what the experiment measures.
fn one(results: &Results, also: &Also) -> Results {
    let mut projected = results.clone();
    projected.unit.clone_from(&also.unit);
    projected.higher_is_better = also.higher_is_better;
    projected.also.clear();
    projected.charts.clear();
    for cell in &mut projected.cells {
        let value = cell.also.get(&also.key).copied().unwrap_or_default();
        (cell.median, cell.half_width, cell.paper) = (value.median, value.half_width, value.paper);
        cell.series.clear();
        for sample in &mut cell.samples {
            sample.value = sample.also.get(&also.key).copied();
        }
    }
    // A program that does not say it takes no part in it.
    projected
        .cells
        .retain(|cell| cell.median.is_some() || cell.paper.is_some());
    let named = |key: &String| projected.cells.iter().any(|cell| cell.program == *key);
    projected.programs.retain(|program| named(&program.key));
    projected
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn a_further_measure_has_its_own_values_unit_and_direction() {
        let mut results = samples::with_more();
        results.cells[7].also.clear();
        let further = all(&results);
        let [time] = further.as_slice() else {
            panic!("{}", further.len());
        };
        assert_eq!((&*time.unit, time.higher_is_better), ("s", false));
        assert_eq!(time.cells.len(), 7, "one has none");
        assert_eq!(time.cells[2].median, Some(3.0));
        assert_eq!(time.cells[2].samples[1].value, Some(3.0));
        assert!(time.charts.is_empty() && time.cells[0].series.is_empty());
        assert!(all(&samples::two_by_two()).is_empty());
    }
}
