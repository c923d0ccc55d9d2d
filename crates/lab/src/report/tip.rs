//! Facts about a point for the reader, one a line.

use super::csv::ratio;
use super::grid::{Grid, Place, Runs};
use super::number;
use crate::experiment::results::Cell;

/// About a measurement: which, its value, the paper's, how many runs it comes from, what limited it.
pub(super) fn measured(grid: &Grid<'_>, place: Place, cell: &Cell) -> String {
    let results = grid.results;
    let program = results.programs.get(place.program);
    let mut lines = vec![
        program.map_or_else(String::new, |program| program.label.clone()),
        grid.point_name(place.row, place.column),
        value(cell, &results.unit),
    ];
    if let Some(paper) = cell.paper {
        let mut line = format!("{} {}", results.reference, number::value(paper));
        if let Some(ratio) = ratio(cell.median, cell.paper) {
            line.push_str(&format!(", \u{d7}{}", number::ratio(ratio)));
        }
        lines.push(line);
    }
    lines.extend(circumstances(cell));
    lines.join("\n")
}

/// About a published value.
pub(super) fn published(
    grid: &Grid<'_>,
    label: &str,
    row: usize,
    column: usize,
    value: f64,
) -> String {
    let (point, shown) = (grid.point_name(row, column), number::value(value));
    format!("{label}\n{point}\n{shown} {}", grid.results.unit)
}

/// How a value came about: runs and those left out, processor time, limiter.
pub(super) fn circumstances(cell: &Cell) -> Vec<String> {
    let runs = Runs::of(cell);
    let mut line = number::count(runs.all, "run");
    if runs.has_left_out() {
        let reasons = runs.reasons.join("; ");
        line.push_str(&format!(", {} left out: {reasons}", runs.all - runs.valid));
    }
    let mut lines = vec![line];
    lines.extend(cell.chosen.iter().map(|chosen| format!("it is {chosen}")));
    if let Some(seconds) = cell.cpu_per_gigabyte {
        lines.push(format!(
            "{} s of processor time a GB",
            number::value(seconds)
        ));
    }
    if let Some(limit) = cell
        .samples
        .iter()
        .find_map(|run| run.limited_by.as_deref())
    {
        lines.push(format!("limited by {limit}"));
    }
    lines
}

/// `889 ± 12 Mbit/s`, or that there is no value.
fn value(cell: &Cell, unit: &str) -> String {
    let Some(median) = cell.median else {
        return match Runs::of(cell).verdict() {
            "failed" => "failed".to_owned(),
            _ => "no valid run".to_owned(),
        };
    };
    let shown = number::value(median);
    match cell.half_width {
        Some(half) => format!("{shown} \u{b1} {} {unit}", number::spread(half, median)),
        None => format!("{shown} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn tips_tell_value_paper_runs_cost_and_limit() {
        let mut results = samples::two_by_two();
        results.cells[4].samples[0].limited_by = Some("receive window".to_owned());
        results.cells[4].cpu_per_gigabyte = Some(0.7);
        let grid = Grid::of(&results);
        let place = Place {
            program: 1,
            row: 0,
            column: 0,
        };
        assert_eq!(
            measured(&grid, place, &results.cells[4]),
            "globus-url-copy\nparallel streams 1, one-way latency 1\u{a0}ms\n\
             500 ± 25 Mbit/s\npublished 400, ×1.25\n3 runs\n0.700 s of processor time a GB\n\
             limited by receive window"
        );
    }

    #[test]
    fn what_did_not_count_is_told_with_its_reason() {
        let mut cell = samples::two_by_two().cells[0].clone();
        cell.median = None;
        cell.samples
            .iter_mut()
            .for_each(|run| run.invalid = vec!["late".to_owned()]);
        assert_eq!(value(&cell, "ms"), "no valid run");
        assert_eq!(circumstances(&cell), ["3 runs, 3 left out: late"]);
        cell.samples.iter_mut().for_each(|run| run.value = None);
        assert_eq!(value(&cell, "ms"), "failed");
        cell.median = Some(5.0);
        cell.half_width = None;
        assert_eq!(value(&cell, "ms"), "5.00 ms");
    }
}
