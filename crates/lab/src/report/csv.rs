//! A table as CSV: one line a cell (RFC 4180), so that any program can sort and plot it.

use super::grid::{self, Grid, Runs};
use crate::quoting::{csv_line, csv_text};

/// The file's text. Numbers are as exact as the results.
pub(super) fn table(grid: &Grid<'_>) -> String {
    let results = grid.results;
    let mut out = String::new();
    let mut header = Vec::new();
    if let Some(down) = &results.down {
        header.push(grid::axis_name(down));
    }
    header.push(grid::axis_name(&results.across));
    header.push("program".to_owned());
    header.push(format!("median ({})", results.unit));
    for name in [
        "half-width 95 %",
        "published",
        "ratio to published",
        "processor seconds per GB",
        "valid runs",
        "runs",
        "left out",
    ] {
        header.push(name.to_owned());
    }
    out.push_str(&csv_line(header.iter().map(|name| csv_text(name))));
    for (place, cell) in grid.cells() {
        let mut fields = Vec::new();
        if let Some(down) = &results.down {
            fields.push(csv_text(
                down.values.get(place.row).map_or("", String::as_str),
            ));
        }
        fields.push(csv_text(
            results
                .across
                .values
                .get(place.column)
                .map_or("", String::as_str),
        ));
        fields.push(csv_text(&cell.program));
        fields.push(number(cell.median));
        fields.push(number(cell.half_width));
        fields.push(number(cell.paper));
        fields.push(number(ratio(cell.median, cell.paper)));
        fields.push(number(cell.cpu_per_gigabyte));
        let runs = Runs::of(cell);
        fields.push(runs.valid.to_string());
        fields.push(runs.all.to_string());
        fields.push(csv_text(&runs.reasons.join("; ")));
        out.push_str(&csv_line(fields.into_iter()));
    }
    out
}

/// Measured over published, where both are there.
pub(super) fn ratio(measured: Option<f64>, published: Option<f64>) -> Option<f64> {
    let ratio = measured? / published.filter(|value| *value != 0.0)?;
    ratio.is_finite().then_some(ratio)
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| format!("{value}"))
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn one_line_a_cell_with_its_paper() {
        let mut results = samples::two_by_two();
        results.cells[0].samples[1].invalid = vec!["late, \"very\"".to_owned()];
        let csv = table(&Grid::of(&results));
        let lines: Vec<&str> = csv.split("\r\n").collect();
        assert_eq!(
            lines[0],
            "parallel streams,one-way latency (ms),program,median (Mbit/s),half-width 95 %,published,\
             ratio to published,processor seconds per GB,valid runs,runs,left out"
        );
        assert_eq!(lines[1], "1,1,longhaul,100,5,,,,2,3,\"late, \"\"very\"\"\"");
        assert_eq!(lines[5], "1,1,guc,500,25,400,1.25,,3,3,");
        assert_eq!(lines.len(), 10);
    }

    #[test]
    fn a_ratio_needs_two_values() {
        assert_eq!(ratio(Some(5.0), Some(2.0)), Some(2.5));
        assert_eq!(ratio(Some(5.0), Some(0.0)), None);
        assert_eq!(ratio(None, Some(2.0)), None);
    }
}
