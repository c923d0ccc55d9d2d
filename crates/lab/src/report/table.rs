//! The table of one measure, as HTML and as CSV: measured and published values.

use maud::{Markup, html};

use super::grid::{self, ResultGrid, RunCounts, ratio};
use super::text;
use crate::experiment::results::{PUBLISHED, ResultCell};
use crate::quoting::{csv_line, csv_text};

/// Kind of a table: the subject of each of its lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TableRows {
    /// A program. Lines are grouped by the value of the axis down.
    Groups,
    /// A program, without an axis down.
    Programs,
    /// A value of the axis down, with only one program.
    Values,
    /// A value of the axis across, which has too many values for columns, without an axis down.
    Points,
}

/// Largest number of values of the axis across that become columns if there is no axis down.
const MAX_COLUMNS: usize = 12;

struct ResultTable<'a> {
    grid: &'a ResultGrid<'a>,
    rows: TableRows,
    /// Whether the published values have a line or column of their own. Otherwise each is in the cell of
    /// its program.
    has_published_line: bool,
}

/// The table in a box that scrolls separately from the page. `id` must be unique on the page.
pub(super) fn html(grid: &ResultGrid<'_>, id: &str) -> Markup {
    let rows = match (&grid.results.down, grid.results.programs.len()) {
        (Some(_), 1) => TableRows::Values,
        (Some(_), _) => TableRows::Groups,
        (None, _) if grid.columns() > MAX_COLUMNS => TableRows::Points,
        (None, _) => TableRows::Programs,
    };
    let table = ResultTable {
        grid,
        rows,
        has_published_line: rows != TableRows::Values
            && grid.has_shared_publication
            && grid.has_paper(),
    };
    let caption = format!("{id}-caption");
    html! {
        div class="scroll" role="region" tabindex="0" aria-labelledby=(caption) {
            table class=(if rows == TableRows::Points { "points" } else { "" }) {
                caption id=(caption) { span { (table.caption()) } }
                (table.head())
                @match rows {
                    TableRows::Groups => {
                        @for row in 0..grid.rows() { (table.group(row)) }
                    }
                    TableRows::Programs => { tbody { (table.programs(0)) } }
                    TableRows::Values => { tbody { (table.values()) } }
                    TableRows::Points => { tbody { (table.points()) } }
                }
            }
        }
        (left_out(grid))
    }
}

impl ResultTable<'_> {
    fn caption(&self) -> String {
        let results = self.grid.results;
        let unit = match results.unit.as_str() {
            "" => String::new(),
            unit => format!("{unit}: "),
        };
        let mut text = format!("{unit}median of the runs");
        if results.cells.iter().any(|cell| cell.half_width.is_some()) {
            text += " \u{b1} half-width of the 95\u{a0}% confidence interval of the mean";
        }
        if self.grid.has_paper() {
            let place = if self.rows == TableRows::Points {
                "on the right"
            } else {
                "below"
            };
            let value = match results.reference.as_str() {
                PUBLISHED => "the published value".to_owned(),
                other => format!("the reference value ('{other}')"),
            };
            text += &match self.has_published_line {
                true => format!("; {place}: the ratio to {value}"),
                false => format!("; {place}: {value} and the ratio to it"),
            };
        }
        if let ([program], TableRows::Values) = (results.programs.as_slice(), self.rows) {
            text += &format!("; {}", program.label);
        }
        text
    }

    fn head(&self) -> Markup {
        let results = self.grid.results;
        let across = grid::axis_name(&results.across);
        let values = || results.across.values.iter().map(String::as_str).collect();
        let (corner, over, columns): (String, String, Vec<&str>) = match (&results.down, self.rows)
        {
            (_, TableRows::Points) => {
                let published = self
                    .has_published_line
                    .then_some(results.reference.as_str());
                let labels = self
                    .grid
                    .programs()
                    .map(|(_, program)| program.label.as_str());
                (
                    across,
                    "program".to_owned(),
                    published.into_iter().chain(labels).collect(),
                )
            }
            (Some(down), TableRows::Values) => (grid::axis_name(down), across, values()),
            _ => ("program".to_owned(), across, values()),
        };
        html! {
            thead {
                tr {
                    th scope="col" rowspan="2" { (corner) }
                    th scope="colgroup" colspan=(columns.len().max(1)) class="axis" { span { (over) } }
                }
                tr { @for column in columns { th scope="col" { (column) } } }
            }
        }
    }

    fn group(&self, row: usize) -> Markup {
        let down = self.grid.results.down.as_ref();
        let name = down.map_or_else(String::new, |axis| grid::value_name(axis, row));
        html! {
            tbody {
                tr class="group" {
                    th scope="rowgroup" colspan=(self.grid.columns() + 1) { span { (name) } }
                }
                (self.programs(row))
            }
        }
    }

    fn programs(&self, row: usize) -> Markup {
        let grid = self.grid;
        let columns = || 0..grid.columns();
        let published = columns().any(|column| grid.published(row, column).is_some());
        html! {
            @if self.has_published_line && published {
                tr {
                    th scope="row" class="published" { (grid.results.reference) }
                    @for column in columns() { (published_cell(grid.published(row, column))) }
                }
            }
            @for (program, named) in grid.programs().filter(|(one, _)| grid.has_cell_in_row(*one, row)) {
                tr {
                    th scope="row" { (named.label) }
                    @for column in columns() { (self.cell(grid.cell(program, row, column))) }
                }
            }
        }
    }

    fn values(&self) -> Markup {
        let down = self.grid.results.down.iter().flat_map(|axis| &axis.values);
        html! {
            @for (row, value) in down.enumerate() {
                tr {
                    th scope="row" { (value) }
                    @for column in 0..self.grid.columns() { (self.cell(self.grid.cell(0, row, column))) }
                }
            }
        }
    }

    fn points(&self) -> Markup {
        html! {
            @for (column, value) in self.grid.results.across.values.iter().enumerate() {
                tr {
                    th scope="row" { (value) }
                    @if self.has_published_line { (published_cell(self.grid.published(0, column))) }
                    @for (program, _) in self.grid.programs() {
                        (self.cell(self.grid.cell(program, 0, column)))
                    }
                }
            }
        }
    }

    fn cell(&self, cell: Option<&ResultCell>) -> Markup {
        let Some(cell) = cell else {
            return html! { td class="none" title="not measured" { "\u{2013}" } };
        };
        let runs = RunCounts::of(cell);
        let about = match runs.all {
            0 => "not measured".to_owned(),
            _ => text::describe_runs(cell).join("; "),
        };
        let paper = cell
            .paper
            .filter(|_| !self.has_published_line)
            .map(text::format_value);
        let ratio = ratio(cell.median, cell.paper)
            .map(|ratio| format!("\u{d7}{}", text::format_ratio(ratio)));
        let comparison: Vec<String> = paper.into_iter().chain(ratio).collect();
        html! {
            td title=(about) {
                @if let Some(median) = cell.median {
                    span class="value" { (text::format_value(median)) }
                    @if let Some(half) = cell.half_width {
                        span class="half" { " \u{b1}\u{a0}" (text::format_half_width(half, median)) }
                    }
                    @if runs.has_left_out() { sup class="bad" { "\u{2020}" } }
                } @else if runs.all == 0 {
                    "\u{2013}"
                } @else {
                    span class="bad" { (if runs.failed { "failed" } else { "invalid" }) }
                }
                @if !comparison.is_empty() { small { (comparison.join(" ")) } }
            }
        }
    }
}

fn published_cell(value: Option<f64>) -> Markup {
    match value {
        Some(value) => html! { td class="published" { (text::format_value(value)) } },
        None => html! { td class="none" title="not published" { "\u{2013}" } },
    }
}

/// Lists the reasons for which runs were left out. Tooltips have them too, but not in print or without a
/// pointer.
fn left_out(grid: &ResultGrid<'_>) -> Markup {
    let line = |(place, cell): (grid::CellPlace, &ResultCell)| {
        let runs = RunCounts::of(cell);
        runs.has_left_out().then(|| {
            let (label, point) = (
                grid.label(place.program),
                grid.point_name(place.row, place.column),
            );
            let (out, reasons) = (runs.all - runs.valid, runs.reasons.join("; "));
            format!("{label}, {point}: {out} of {} runs ({reasons})", runs.all)
        })
    };
    let lines: Vec<String> = grid.cells().filter_map(line).collect();
    html! {
        @if !lines.is_empty() {
            details class="left-out" {
                summary { "\u{2020} Runs left out, in " (text::format_count(lines.len(), "cell")) }
                ul { @for line in lines { li { (line) } } }
            }
        }
    }
}

/// The table as CSV (RFC 4180): one line per cell, with numbers that are not rounded.
pub(super) fn csv(grid: &ResultGrid<'_>) -> String {
    let results = grid.results;
    let axes = || results.down.iter().chain([&results.across]);
    let median = format!("median ({})", results.unit);
    let fixed = [
        "program",
        median.as_str(),
        "half-width 95 %",
        "published",
        "ratio to published",
        "processor seconds per GB",
        "valid runs",
        "runs",
        "left out",
    ];
    let heading = axes().map(grid::axis_name).chain(fixed.map(str::to_owned));
    let mut out = csv_line(heading.map(|name| csv_text(&name)));
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    for (_, cell) in grid.cells() {
        let runs = RunCounts::of(cell);
        let at = axes().map(|axis| cell.at.get(&axis.key).map_or("", String::as_str));
        let fields = at.map(csv_text).chain([
            csv_text(&cell.program),
            number(cell.median),
            number(cell.half_width),
            number(cell.paper),
            number(ratio(cell.median, cell.paper)),
            number(cell.cpu_per_gigabyte),
            runs.valid.to_string(),
            runs.all.to_string(),
            csv_text(&runs.reasons.join("; ")),
        ]);
        out += &csv_line(fields);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;
    use crate::experiment::results::ExperimentResults;

    fn written(results: &ExperimentResults) -> String {
        html(&ResultGrid::of(results), "t").into_string()
    }

    #[test]
    fn cells_show_median_half_width_and_ratio_below_the_published_line() {
        let table = written(&samples::two_by_two());
        assert_eq!(
            table.matches("class=\"published\">published</th>").count(),
            2
        );
        assert!(table.contains(
            "<span class=\"value\">500</span><span class=\"half\"> ±\u{a0}25</span><small>×1.25</small>"
        ));
        assert_eq!(table.matches("<tbody>").count(), 2);
        assert!(table.contains("<span>parallel streams 8</span>"));
    }

    #[test]
    fn one_program_has_a_line_for_each_value_and_published_values_in_its_cells() {
        let mut results = samples::two_by_two();
        results.programs.remove(0);
        let table = written(&results);
        assert!(!table.contains("published</th>"));
        assert!(table.contains("<small>400 ×1.25</small>"), "{table}");
        assert!(table.contains("<th scope=\"row\">8</th>"));
    }

    #[test]
    fn missing_failed_and_incomplete_cells_are_marked() {
        let mut results = samples::two_by_two();
        results.cells[0].samples[0].invalid = vec!["the emulator was <late>".to_owned()];
        results.cells[1].median = None;
        results.cells[1]
            .samples
            .iter_mut()
            .for_each(|run| run.value = None);
        results.cells.remove(2);
        let table = written(&results);
        assert!(table.contains("<sup class=\"bad\">†</sup>"));
        assert!(table.contains("1 left out: the emulator was &lt;late&gt;"));
        assert!(table.contains("<span class=\"bad\">failed</span>"));
        assert!(table.contains("<td class=\"none\" title=\"not measured\">–</td>"));
        assert!(table.contains("† Runs left out, in 2 cells"));
    }

    #[test]
    fn a_group_has_only_programs_with_cells_in_its_row() {
        let table = written(&samples::with_auto());
        let groups = table.split("<tbody>").skip(1);
        let lines: Vec<_> = groups
            .map(|group| group.matches("scope=\"row\"").count())
            .collect();
        // Published, longhaul, globus-url-copy; the same; the one that chooses.
        assert_eq!(lines, [3, 3, 1]);
    }

    #[test]
    fn an_axis_of_many_values_becomes_lines_instead_of_columns() {
        let mut results = samples::two_by_two();
        results.down = None;
        let table = written(&results);
        assert_eq!(
            (
                table.matches("<tbody>").count(),
                table.matches("<tr").count()
            ),
            (1, 5)
        );
        let more = (100..112).map(|value: u32| value.to_string());
        results.across.values.extend(more);
        let table = written(&results);
        assert_eq!(table.matches("<tr").count(), 2 + 14);
        assert!(table.contains("<th scope=\"col\">globus-url-copy</th>"));
        assert!(table.contains("<th scope=\"col\">published</th>"));
        assert!(table.contains("<th scope=\"row\">111</th>"));
    }

    #[test]
    fn the_csv_file_has_one_line_per_cell() {
        let mut results = samples::two_by_two();
        results.cells[0].samples[1].invalid = vec!["late, \"very\"".to_owned()];
        let csv = csv(&ResultGrid::of(&results));
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
}
