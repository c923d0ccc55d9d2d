//! The table of one measure, as HTML and as CSV: measured and published values.

use maud::{Markup, html};

use super::axis::SweptAxis;
use super::grid::{self, ResultGrid, RunCounts, ratio};
use super::lines::{Line, Point, lines_of_row};
use super::text;
use crate::LabError;
use crate::experiment::results::csv_file::csv_text;
use crate::experiment::results::{PUBLISHED, ResultCell};
use units::show;

/// Largest number of values of the axis across that become columns if there is no axis down. More become lines.
const MAX_COLUMNS: usize = 12;

/// The table in a box that scrolls separately from the page. `id` must be unique on the page.
pub(super) fn html(grid: &ResultGrid<'_>, id: &str) -> Markup {
    let numbers = SweptAxis::of(&grid.results.across).numbers;
    let rows = (0..grid.rows()).map(|row| lines_of_row(grid, &numbers, row, false));
    let rows: Vec<Vec<Line<'_>>> = rows.collect();
    let caption_id = format!("{id}-caption");
    html! {
        div class="scroll" role="region" tabindex="0" aria-labelledby=(caption_id) {
            table {
                caption id=(caption_id) { (caption(grid)) }
                @match rows.as_slice() {
                    [only] if grid.results.down.is_none() && grid.columns() > MAX_COLUMNS => {
                        (values_as_lines(grid, only))
                    }
                    rows => (programs_as_lines(grid, rows)),
                }
            }
        }
        (left_out(grid))
    }
}

fn caption(grid: &ResultGrid<'_>) -> String {
    let results = grid.results;
    let mut text = text::joined(&[&results.unit, "median of the runs"], ": ");
    if results.cells.iter().any(|cell| cell.half_width.is_some()) {
        text += " \u{b1} half-width of the 95\u{a0}% confidence interval of the mean";
    }
    if grid.has_paper() {
        text += &match results.reference.as_str() {
            PUBLISHED => "; the ratio to the published value".to_owned(),
            other => format!("; the ratio to the reference value ('{other}')"),
        };
    }
    text
}

/// A line for each program and value of the axis down, a column for each value of the axis across.
fn programs_as_lines(grid: &ResultGrid<'_>, rows: &[Vec<Line<'_>>]) -> Markup {
    let down = grid.results.down.as_ref();
    let across = &grid.results.across;
    html! {
        thead {
            tr {
                @if let Some(axis) = down { th scope="col" rowspan="2" { (grid::axis_name(axis)) } }
                th scope="col" rowspan="2" { "program" }
                th scope="colgroup" colspan=(across.values.len().max(1)) class="axis" { (grid::axis_name(across)) }
            }
            tr { @for value in &across.values { th scope="col" { (value) } } }
        }
        @for (row, lines) in rows.iter().enumerate() {
            tbody {
                @for (index, line) in lines.iter().enumerate() {
                    tr {
                        @if let (0, Some(axis)) = (index, down) {
                            th scope="rowgroup" rowspan=(lines.len()) { (axis.values[row]) }
                        }
                        th scope="row" class=[line.style.published.then_some("published")] { (line.label) }
                        @for point in &line.points { (cell(point.as_ref())) }
                    }
                }
            }
        }
    }
}

/// A line for each value of the axis across, a column for each program.
fn values_as_lines(grid: &ResultGrid<'_>, lines: &[Line<'_>]) -> Markup {
    let across = &grid.results.across;
    html! {
        thead {
            tr {
                th scope="col" { (grid::axis_name(across)) }
                @for line in lines { th scope="col" { (line.label) } }
            }
        }
        tbody {
            @for (column, value) in across.values.iter().enumerate() {
                tr {
                    th scope="row" { (value) }
                    @for line in lines { (cell(line.points[column].as_ref())) }
                }
            }
        }
    }
}

fn cell(point: Option<&Point<'_>>) -> Markup {
    let Some(point) = point else {
        return html! { td class="none" title="not measured" { "\u{2013}" } };
    };
    let runs = point.cell.map(RunCounts::of);
    let has_left_out = runs.as_ref().is_some_and(RunCounts::has_left_out);
    let failed = runs.is_some_and(|runs| runs.failed);
    let ratio = ratio(point.value, point.cell.and_then(|cell| cell.paper));
    html! {
        td title=(point.tip) class=[point.cell.is_none().then_some("published")] {
            @if let Some(value) = point.value {
                span class="value" { (text::format_value(value)) }
                @if let Some(half) = point.half_width {
                    span class="half" { " \u{b1}\u{a0}" (text::format_half_width(half, value)) }
                }
                @if has_left_out { sup class="bad" { "\u{2020}" } }
            } @else {
                span class="bad" { (if failed { "failed" } else { "invalid" }) }
            }
            @if let Some(ratio) = ratio { small { "\u{d7}" (text::format_ratio(ratio)) } }
        }
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
            format!(
                "{label}, {point}: {out} of {} ({reasons})",
                show::count(runs.all, "run")
            )
        })
    };
    let lines: Vec<String> = grid.cells().filter_map(line).collect();
    html! {
        @if !lines.is_empty() {
            details class="left-out" {
                summary { "\u{2020} Runs left out, in " (show::count(lines.len(), "cell")) }
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
    fn values_published_for_each_program_have_a_line_for_each() {
        let mut results = samples::two_by_two();
        results.cells[0].paper = Some(1.0);
        let table = written(&results);
        assert!(table.contains("class=\"published\">published, globus-url-copy</th>"));
        assert!(table.contains("<small>×100</small>"), "{table}");
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
