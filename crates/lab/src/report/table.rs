//! The table of one measure, as HTML and as CSV: measured and published values.

use maud::{Markup, html};

use super::grid::{self, ResultGrid, RunCounts, ratio};
use super::text;
use crate::LabError;
use crate::experiment::csv_file::csv_text;
use crate::experiment::results::{PUBLISHED, ResultCell};

/// Largest number of values of the axis across that become columns if there is no axis down. More become lines.
const MAX_COLUMNS: usize = 12;

struct ResultTable<'a> {
    grid: &'a ResultGrid<'a>,
    /// Whether the values of the axis across are its lines, and the programs its columns.
    is_transposed: bool,
    /// Whether the published values have a line of their own. Otherwise each is in the cell of its program.
    has_published_line: bool,
}

/// One program at one value of the axis down, or the values published for that value.
struct TableLine<'a> {
    label: &'a str,
    is_published: bool,
    cells: Vec<Markup>,
}

/// The table in a box that scrolls separately from the page. `id` must be unique on the page.
pub(super) fn html(grid: &ResultGrid<'_>, id: &str) -> Markup {
    let table = ResultTable {
        grid,
        is_transposed: grid.results.down.is_none() && grid.columns() > MAX_COLUMNS,
        has_published_line: grid.has_shared_publication && grid.has_paper(),
    };
    let caption = format!("{id}-caption");
    html! {
        div class="scroll" role="region" tabindex="0" aria-labelledby=(caption) {
            table {
                caption id=(caption) { (table.caption()) }
                @if table.is_transposed { (table.points()) } @else { (table.sweep()) }
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
            let value = match results.reference.as_str() {
                PUBLISHED => "the published value".to_owned(),
                other => format!("the reference value ('{other}')"),
            };
            text += &match self.has_published_line {
                true => format!("; the ratio to {value}"),
                false => format!("; {value} and the ratio to it"),
            };
        }
        text
    }

    /// A line for each program and value of the axis down, a column for each value of the axis across.
    fn sweep(&self) -> Markup {
        let results = self.grid.results;
        let down = results.down.as_ref();
        let (values, across) = (&results.across.values, grid::axis_name(&results.across));
        html! {
            thead {
                tr {
                    @if let Some(axis) = down { th scope="col" rowspan="2" { (grid::axis_name(axis)) } }
                    th scope="col" rowspan="2" { "program" }
                    th scope="colgroup" colspan=(values.len().max(1)) class="axis" { (across) }
                }
                tr { @for value in values { th scope="col" { (value) } } }
            }
            @for row in 0..self.grid.rows() {
                @let lines = self.lines(row);
                tbody {
                    @for (index, line) in lines.iter().enumerate() {
                        tr {
                            @if let (0, Some(axis)) = (index, down) {
                                th scope="rowgroup" rowspan=(lines.len()) { (axis.values.get(row).map_or("", String::as_str)) }
                            }
                            th scope="row" class=[line.is_published.then_some("published")] { (line.label) }
                            @for cell in &line.cells { (cell) }
                        }
                    }
                }
            }
        }
    }

    /// A line for each value of the axis across, a column for each program.
    fn points(&self) -> Markup {
        let lines = self.lines(0);
        html! {
            thead {
                tr {
                    th scope="col" { (grid::axis_name(&self.grid.results.across)) }
                    @for line in &lines { th scope="col" { (line.label) } }
                }
            }
            tbody {
                @for (column, value) in self.grid.results.across.values.iter().enumerate() {
                    tr {
                        th scope="row" { (value) }
                        @for line in &lines { (line.cells[column]) }
                    }
                }
            }
        }
    }

    fn lines(&self, row: usize) -> Vec<TableLine<'_>> {
        let grid = self.grid;
        let columns = || 0..grid.columns();
        let is_published = self.has_published_line
            && columns().any(|column| grid.published(row, column).is_some());
        let published = is_published.then(|| TableLine {
            label: &grid.results.reference,
            is_published,
            cells: columns()
                .map(|column| published_cell(grid.published(row, column)))
                .collect(),
        });
        let programs = grid
            .programs()
            .filter(|(one, _)| grid.has_cell_in_row(*one, row));
        let measured = programs.map(|(program, named)| TableLine {
            label: &named.label,
            is_published: false,
            cells: columns()
                .map(|column| self.cell(grid.cell(program, row, column)))
                .collect(),
        });
        published.into_iter().chain(measured).collect()
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
///
/// # Errors
/// [`LabError::System`]: the text cannot be written.
pub(super) fn csv(grid: &ResultGrid<'_>) -> Result<String, LabError> {
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
    let heading = axes()
        .map(grid::axis_name)
        .chain(fixed.map(str::to_owned))
        .collect();
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let line = |(_, cell): (_, &ResultCell)| {
        let runs = RunCounts::of(cell);
        let at = axes().map(|axis| cell.at.get(&axis.key).cloned().unwrap_or_default());
        let fields = at.chain([
            cell.program.clone(),
            number(cell.median),
            number(cell.half_width),
            number(cell.paper),
            number(ratio(cell.median, cell.paper)),
            number(cell.cpu_per_gigabyte),
            runs.valid.to_string(),
            runs.all.to_string(),
            runs.reasons.join("; "),
        ]);
        fields.collect()
    };
    csv_text(std::iter::once(heading).chain(grid.cells().map(line)))
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
        assert!(table.contains("<th scope=\"rowgroup\" rowspan=\"3\">8</th>"));
    }

    #[test]
    fn values_published_for_each_program_are_in_its_cells() {
        let mut results = samples::two_by_two();
        results.cells[0].paper = Some(1.0);
        let table = written(&results);
        assert!(!table.contains("published</th>"));
        assert!(table.contains("<small>400 ×1.25</small>"), "{table}");
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
        assert_eq!(table.matches("<tr").count(), 1 + 14);
        assert!(table.contains("<th scope=\"col\">globus-url-copy</th>"));
        assert!(table.contains("<th scope=\"col\">published</th>"));
        assert!(table.contains("<th scope=\"row\">111</th>"));
    }

    #[test]
    fn the_csv_file_has_one_line_per_cell() {
        let mut results = samples::two_by_two();
        results.cells[0].samples[1].invalid = vec!["late, \"very\"".to_owned()];
        let csv = csv(&ResultGrid::of(&results)).unwrap();
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
