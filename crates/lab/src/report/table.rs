//! A table of an experiment: what was measured, beside what was published.

use super::csv::ratio;
use super::grid::{self, Grid, Runs};
use super::markup::Markup;
use super::{number, tip};
use crate::experiment::results::{self, Axis, Cell};

/// Writes the table in a box that scrolls by itself. `id` must be unique on the page.
pub(super) fn write(markup: &mut Markup, grid: &Grid<'_>, id: &str) {
    let layout = Layout::of(grid);
    let caption = format!("{id}-caption");
    let attributes = [
        ("class", "scroll"),
        ("role", "region"),
        ("tabindex", "0"),
        ("aria-labelledby", &caption),
    ];
    markup.element("div", &attributes, |region| {
        let class = if layout.rows == Rows::Points {
            "points"
        } else {
            ""
        };
        region.element("table", &[("class", class)], |table| {
            table.element("caption", &[("id", &caption)], |caption| {
                caption.leaf("span", &[], &caption_text(grid, &layout));
            });
            head(table, grid, &layout);
            match layout.rows {
                Rows::Groups => {
                    (0..grid.rows()).for_each(|row| group(table, grid, &layout, row));
                }
                Rows::Programs => {
                    table.element("tbody", &[], |body| programs(body, grid, &layout, 0));
                }
                Rows::Values => table.element("tbody", &[], |body| values(body, grid)),
                Rows::Points => table.element("tbody", &[], |body| points(body, grid, &layout)),
            }
        });
    });
    left_out(markup, grid);
}

/// Kind of the table's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rows {
    /// A program, in a group for each value of the axis down.
    Groups,
    /// A program; there is no axis down.
    Programs,
    /// A value of the axis down; there is one program.
    Values,
    /// A value of the axis across, which has too many for columns; there is no axis down.
    Points,
}

/// Name and class of what was published.
const PUBLISHED: &str = "published";

/// Most values that are columns where they could be lines.
const MOST_COLUMNS: usize = 12;

struct Layout {
    rows: Rows,
    /// The published values have a line (or column) of their own; otherwise each is in the cell it
    /// belongs to.
    paper_line: bool,
}

impl Layout {
    fn of(grid: &Grid<'_>) -> Self {
        let rows = match (&grid.results.down, grid.results.programs.len()) {
            (Some(_), 1) => Rows::Values,
            (Some(_), _) => Rows::Groups,
            (None, _) if grid.columns() > MOST_COLUMNS => Rows::Points,
            (None, _) => Rows::Programs,
        };
        let paper_line = rows != Rows::Values && grid.one_publication && grid.has_paper();
        Self { rows, paper_line }
    }
}

fn caption_text(grid: &Grid<'_>, layout: &Layout) -> String {
    let mut text = match grid.results.unit.as_str() {
        "" => "median of the runs".to_owned(),
        unit => format!("{unit}: median of the runs"),
    };
    if grid
        .results
        .cells
        .iter()
        .any(|cell| cell.half_width.is_some())
    {
        text.push_str(" \u{b1} half-width of the 95\u{a0}% interval");
    }
    if grid.has_paper() {
        let place = if layout.rows == Rows::Points {
            "beside"
        } else {
            "below"
        };
        let value = match grid.results.reference.as_str() {
            results::PUBLISHED => "the published value".to_owned(),
            other => format!("the value called '{other}'"),
        };
        text.push_str(&match layout.paper_line {
            true => format!("; {place} it the ratio to {value}"),
            false => format!("; {place} it {value} and the ratio to it"),
        });
    }
    if let ([program], Rows::Values) = (grid.results.programs.as_slice(), layout.rows) {
        text.push_str(&format!("; {}", program.label));
    }
    text
}

fn head(markup: &mut Markup, grid: &Grid<'_>, layout: &Layout) {
    let across = &grid.results.across;
    let (corner, over, columns): (String, String, Vec<&str>) =
        match (&grid.results.down, layout.rows) {
            (_, Rows::Points) => {
                let labels = grid.programs().map(|(_, program)| program.label.as_str());
                let published = layout.paper_line.then_some(grid.results.reference.as_str());
                let columns = published.into_iter().chain(labels).collect();
                (grid::axis_name(across), "program".to_owned(), columns)
            }
            (Some(down), Rows::Values) => (
                grid::axis_name(down),
                grid::axis_name(across),
                values_of(across),
            ),
            _ => (
                "program".to_owned(),
                grid::axis_name(across),
                values_of(across),
            ),
        };
    let span = columns.len().max(1).to_string();
    markup.element("thead", &[], |head| {
        head.element("tr", &[], |line| {
            line.leaf("th", &[("scope", "col"), ("rowspan", "2")], &corner);
            let attributes = [
                ("scope", "colgroup"),
                ("colspan", span.as_str()),
                ("class", "axis"),
            ];
            line.element("th", &attributes, |cell| cell.leaf("span", &[], &over));
        });
        head.element("tr", &[], |line| {
            for column in columns {
                line.leaf("th", &[("scope", "col")], column);
            }
        });
    });
}

fn values_of(axis: &Axis) -> Vec<&str> {
    axis.values.iter().map(String::as_str).collect()
}

fn group(markup: &mut Markup, grid: &Grid<'_>, layout: &Layout, row: usize) {
    let name = grid
        .results
        .down
        .as_ref()
        .map_or_else(String::new, |axis| grid::value_name(axis, row));
    let span = (grid.columns() + 1).to_string();
    markup.element("tbody", &[], |body| {
        body.element("tr", &[("class", "group")], |line| {
            let attributes = [("scope", "rowgroup"), ("colspan", span.as_str())];
            line.element("th", &attributes, |cell| cell.leaf("span", &[], &name));
        });
        programs(body, grid, layout, row);
    });
}

fn programs(markup: &mut Markup, grid: &Grid<'_>, layout: &Layout, row: usize) {
    let published = (0..grid.columns()).any(|column| grid.published(row, column).is_some());
    if layout.paper_line && published {
        paper_line(markup, grid, row);
    }
    for (program, named) in grid
        .programs()
        .filter(|(program, _)| grid.takes_part(*program, row))
    {
        markup.element("tr", &[], |line| {
            line.leaf("th", &[("scope", "row")], &named.label);
            for column in 0..grid.columns() {
                cell(line, grid.cell(program, row, column), !layout.paper_line);
            }
        });
    }
}

fn values(markup: &mut Markup, grid: &Grid<'_>) {
    let Some(down) = &grid.results.down else {
        return;
    };
    for (row, value) in down.values.iter().enumerate() {
        markup.element("tr", &[], |line| {
            line.leaf("th", &[("scope", "row")], value);
            for column in 0..grid.columns() {
                cell(line, grid.cell(0, row, column), true);
            }
        });
    }
}

fn points(markup: &mut Markup, grid: &Grid<'_>, layout: &Layout) {
    for (column, value) in grid.results.across.values.iter().enumerate() {
        markup.element("tr", &[], |line| {
            line.leaf("th", &[("scope", "row")], value);
            if layout.paper_line {
                published_cell(line, grid.published(0, column));
            }
            for (program, _) in grid.programs() {
                cell(line, grid.cell(program, 0, column), !layout.paper_line);
            }
        });
    }
}

fn paper_line(markup: &mut Markup, grid: &Grid<'_>, row: usize) {
    markup.element("tr", &[], |line| {
        line.leaf(
            "th",
            &[("scope", "row"), ("class", PUBLISHED)],
            &grid.results.reference,
        );
        for column in 0..grid.columns() {
            published_cell(line, grid.published(row, column));
        }
    });
}

fn published_cell(markup: &mut Markup, value: Option<f64>) {
    match value {
        Some(value) => markup.leaf("td", &[("class", PUBLISHED)], &number::value(value)),
        None => markup.leaf(
            "td",
            &[("class", "none"), ("title", "not published")],
            "\u{2013}",
        ),
    }
}

fn cell(markup: &mut Markup, cell: Option<&Cell>, with_paper: bool) {
    let Some(cell) = cell else {
        markup.leaf(
            "td",
            &[("class", "none"), ("title", "not measured")],
            "\u{2013}",
        );
        return;
    };
    let runs = Runs::of(cell);
    markup.element("td", &[("title", &about(cell))], |data| {
        match cell.median {
            Some(median) => measured(data, median, cell, &runs),
            None if runs.all == 0 => data.text(runs.verdict()),
            None => data.leaf("span", &[("class", "bad")], runs.verdict()),
        }
        comparison(data, cell, with_paper);
    });
}

fn measured(markup: &mut Markup, median: f64, cell: &Cell, runs: &Runs) {
    markup.leaf("span", &[("class", "value")], &number::value(median));
    if let Some(half) = cell.half_width {
        let text = format!(" \u{b1}\u{a0}{}", number::spread(half, median));
        markup.leaf("span", &[("class", "half")], &text);
    }
    if runs.has_left_out() {
        markup.leaf("sup", &[("class", "bad")], "\u{2020}");
    }
}

fn comparison(markup: &mut Markup, cell: &Cell, with_paper: bool) {
    let mut parts = Vec::new();
    if let Some(published) = cell.paper.filter(|_| with_paper) {
        parts.push(number::value(published));
    }
    if let Some(ratio) = ratio(cell.median, cell.paper) {
        parts.push(format!("\u{d7}{}", number::ratio(ratio)));
    }
    if !parts.is_empty() {
        markup.leaf("small", &[], &parts.join(" "));
    }
}

/// Words for a pointer that rests on a cell.
fn about(cell: &Cell) -> String {
    if cell.samples.is_empty() {
        return "not measured".to_owned();
    }
    tip::circumstances(cell).join("; ")
}

/// The same reasons for those who have no pointer, and for print.
fn left_out(markup: &mut Markup, grid: &Grid<'_>) {
    let mut lines = Vec::new();
    for (place, cell) in grid.cells() {
        let runs = Runs::of(cell);
        if runs.has_left_out() {
            let program = grid.results.programs.get(place.program);
            let label = program.map_or("", |program| program.label.as_str());
            let point = grid.point_name(place.row, place.column);
            lines.push(format!(
                "{label}, {point}: {} of {} runs ({})",
                runs.all - runs.valid,
                runs.all,
                runs.reasons.join("; ")
            ));
        }
    }
    if lines.is_empty() {
        return;
    }
    markup.element("details", &[("class", "left-out")], |details| {
        let cells = number::count(lines.len(), "cell");
        details.leaf(
            "summary",
            &[],
            &format!("\u{2020} Runs left out, in {cells}"),
        );
        details.element("ul", &[], |list| {
            lines.iter().for_each(|line| list.leaf("li", &[], line));
        });
    });
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;
    use crate::experiment::results::Results;

    fn written(results: &Results) -> String {
        let mut markup = Markup::default();
        write(&mut markup, &Grid::of(results), "t");
        markup.finish()
    }

    #[test]
    fn cells_show_median_half_width_and_ratio_below_the_papers_line() {
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
    fn one_program_has_a_line_for_each_value_and_the_paper_in_the_cell() {
        let mut results = samples::two_by_two();
        results.programs.remove(0);
        let table = written(&results);
        assert!(!table.contains("published</th>"));
        assert!(table.contains("<small>400 ×1.25</small>"), "{table}");
        assert!(table.contains("<th scope=\"row\">8</th>"));
    }

    #[test]
    fn what_is_missing_failed_or_left_out_says_so() {
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
    fn a_group_has_the_programs_that_take_part() {
        let table = written(&samples::with_auto());
        let groups: Vec<usize> = table
            .split("<tbody>")
            .skip(1)
            .map(|group| group.matches("scope=\"row\"").count())
            .collect();
        // Published, longhaul, globus-url-copy; the same; the one that chooses.
        assert_eq!(groups, [3, 3, 1]);
    }

    #[test]
    fn many_points_are_lines_rather_than_columns() {
        let mut results = samples::two_by_two();
        results.down = None;
        let more = (100..112).map(|value: u32| value.to_string());
        results.across.values.extend(more);
        let table = written(&results);
        assert_eq!(table.matches("<tr").count(), 2 + 14);
        assert!(table.contains("<th scope=\"col\">globus-url-copy</th>"));
        assert!(table.contains("<th scope=\"col\">published</th>"));
        assert!(table.contains("<th scope=\"row\">111</th>"));
    }

    #[test]
    fn programs_are_the_lines_where_there_is_no_axis_down() {
        let mut results = samples::two_by_two();
        results.down = None;
        let table = written(&results);
        assert_eq!(table.matches("<tbody>").count(), 1);
        assert_eq!(table.matches("<tr").count(), 2 + 1 + 2);
    }
}
