//! Figures as data: which lines are in which chart.
//!
//! A sweep of two axes over several programs has too many lines for one chart. It becomes two figures of
//! several charts. The first has a chart for each row, whose lines are the programs and the published
//! values; it compares programs. The second has a chart for each program, whose lines are the rows, as
//! papers usually draw them.

use super::axis::{Axis, SweptAxis};
use super::grid::{self, ResultGrid};
use super::lines::{Line, Point, lines_of_row};
use super::palette::LineStyle;
use super::text;

/// One or several charts with a common legend.
pub(super) struct Figure<'a> {
    /// Heading, such as `by parallel streams`; may be empty.
    pub(super) heading: String,
    pub(super) panels: Vec<Panel<'a>>,
    /// Width and height of a chart in pixels.
    pub(super) size: (i32, i32),
    /// Name of its SVG file.
    pub(super) file: String,
}

impl Figure<'_> {
    /// Name and look of each line, once. Published values have one entry, also where they are drawn in the colours of
    /// their rows.
    pub(super) fn legend(&self) -> Vec<(&str, LineStyle)> {
        let mut legend: Vec<(&str, LineStyle)> = Vec::new();
        for line in self.panels.iter().flat_map(|panel| &panel.lines) {
            match legend.iter_mut().find(|(label, _)| *label == line.label) {
                Some((_, style)) if *style != line.style => *style = LineStyle::PUBLISHED,
                Some(_) => {}
                None => legend.push((&line.label, line.style)),
            }
        }
        legend
    }
}

/// One chart.
pub(super) struct Panel<'a> {
    /// Title; empty without an axis down.
    pub(super) title: String,
    /// Description for readers who cannot see the chart.
    pub(super) description: String,
    /// Lines, most important first.
    pub(super) lines: Vec<Line<'a>>,
    pub(super) x: Axis,
    pub(super) y: Axis,
}

impl Panel<'_> {
    /// The chart's name for readers who cannot see it.
    pub(super) fn accessible_name(&self) -> String {
        let separator = if self.title.is_empty() { "" } else { ": " };
        format!(
            "{}{separator}{} against {}",
            self.title, self.y.name, self.x.name
        )
    }
}

/// The figures of a sweep, most important first; empty if nothing was measured or published. `name` is the
/// prefix of the names of their files.
pub(super) fn sweeps<'a>(grid: &ResultGrid<'a>, name: &str) -> Vec<Figure<'a>> {
    let (down, rows) = (grid.results.down.as_ref(), grid.rows());
    let x = SweptAxis::of(&grid.results.across);
    let label = |row| down.map_or_else(String::new, |axis| grid::value_name(axis, row));
    let mut figures = Vec::new();
    if grid.results.programs.len() > 1 || rows == 1 {
        let compared = (0..rows).filter(|row| !grid.is_independent(*row));
        let charts = compared.map(|row| (label(row), lines_of_row(grid, &x.numbers, row, true)));
        figures.push(Figure {
            heading: down.map_or_else(String::new, |axis| format!("by {}", axis.label)),
            // Programs are compared point by point, so small values must be visible too.
            panels: panels(grid, &x, charts.collect(), Axis::fitting),
            size: (360, 264),
            file: String::new(),
        });
    }
    if rows > 1 {
        let mut charts: Vec<_> = grid
            .programs()
            .map(|(_, one)| (one.label.clone(), Vec::new()))
            .collect();
        for row in 0..rows {
            let style = LineStyle::of_row(row, rows);
            let lines = lines_of_row(grid, &x.numbers, row, false);
            let (published, measured): (Vec<_>, Vec<_>) =
                lines.into_iter().partition(|line| line.style.published);
            for line in measured {
                let Some((_, chart)) = line.program.and_then(|program| charts.get_mut(program))
                else {
                    continue;
                };
                let of_program =
                    |one: &&Line<'_>| one.program.is_none() || one.program == line.program;
                chart.extend(published.iter().filter(of_program).map(|one| Line {
                    style: LineStyle {
                        published: true,
                        ..style
                    },
                    ..one.clone()
                }));
                chart.push(Line {
                    label: label(row),
                    style,
                    ..line
                });
            }
        }
        figures.push(Figure {
            heading: "by program".to_owned(),
            panels: panels(grid, &x, charts, Axis::linear),
            size: (360, 340),
            file: format!("{name}-programs.svg"),
        });
    }
    figures.retain(|figure| !figure.panels.is_empty());
    if let Some(first) = figures.first_mut() {
        first.file = format!("{name}.svg");
    }
    figures
}

/// Charts with a common vertical axis, which `y` makes; those without lines are left out.
fn panels<'a>(
    grid: &ResultGrid<'a>,
    x: &SweptAxis,
    mut charts: Vec<(String, Vec<Line<'a>>)>,
    y: fn(&str, &[f64]) -> Axis,
) -> Vec<Panel<'a>> {
    let results = grid.results;
    charts.retain(|(_, lines)| !lines.is_empty());
    let y = y(
        &results.unit,
        &extremes(charts.iter().flat_map(|(_, lines)| lines)),
    );
    let panel = |(title, lines): (String, Vec<Line<'a>>)| Panel {
        title,
        description: describe(&results.across.values, &lines),
        lines: side_by_side(x, lines),
        x: x.axis.clone(),
        y: y.clone(),
    };
    charts.into_iter().map(panel).collect()
}

/// Moves lines sideways, so that they do not hide each other, on an axis of names only: on one of numbers the
/// place has a meaning.
fn side_by_side<'a>(x: &SweptAxis, mut lines: Vec<Line<'a>>) -> Vec<Line<'a>> {
    if x.has_names {
        let count = f64::from(u32::try_from(lines.len()).unwrap_or(u32::MAX));
        let step = (0.6 / count).min(0.04 * (x.axis.ends.1 - x.axis.ends.0));
        for (index, line) in (0_u32..).map(f64::from).zip(&mut lines) {
            let points = line.points.iter_mut().flatten();
            points.for_each(|point| point.x += step * (index - (count - 1.0) / 2.0));
        }
    }
    lines
}

/// The values that the vertical axis must cover: all values, and the upper ends of error bars, but at most
/// 15 % above the highest value, so that a long bar does not shrink the lines.
fn extremes<'a>(lines: impl Iterator<Item = &'a Line<'a>>) -> Vec<f64> {
    let points: Vec<&Point<'_>> = lines
        .flat_map(|line| line.points.iter().flatten())
        .collect();
    let values: Vec<f64> = points.iter().filter_map(|point| point.value).collect();
    let highest = values.iter().copied().fold(0.0, f64::max);
    let bars = points.iter().filter_map(|point| {
        let end = point.value? + point.half_width?;
        Some(end.min(highest * 1.15))
    });
    values.iter().copied().chain(bars).collect()
}

/// Describes each line by its first and last value.
fn describe(values: &[String], lines: &[Line<'_>]) -> String {
    let sentence = |line: &Line<'_>| {
        let points = values.iter().zip(&line.points);
        let valued = |(at, point): (&String, &Option<Point<'_>>)| {
            Some(format!(
                "{} at {at}",
                text::format_value(point.as_ref()?.value?)
            ))
        };
        let mut valued = points.filter_map(valued);
        let first = valued.next()?;
        let last = valued.next_back().unwrap_or_else(|| first.clone());
        Some(format!("{}: {first} to {last}.", line.label))
    };
    let sentences: Vec<String> = lines.iter().filter_map(sentence).collect();
    sentences.join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::samples::{self, labels};
    use super::*;
    use crate::experiment::results::ExperimentResults;

    fn figures(results: &ExperimentResults) -> Vec<Figure<'_>> {
        sweeps(&ResultGrid::of(results), "a")
    }

    #[test]
    fn a_sweep_of_two_axes_has_a_figure_by_row_and_one_by_program() {
        let results = samples::two_by_two();
        let drawn = figures(&results);
        let shape = |figure: &Figure<'_>| (figure.panels.len(), figure.file.clone());
        let shapes: Vec<_> = drawn.iter().map(shape).collect();
        assert_eq!(
            shapes,
            [(2, "a.svg".to_owned()), (2, "a-programs.svg".to_owned())]
        );
        let panel = &drawn[0].panels[1];
        assert_eq!(panel.title, "parallel streams 8");
        assert_eq!(labels(panel), ["published", "longhaul", "globus-url-copy"]);
        assert_eq!(panel.y.ends, (0.0, 1000.0));
        let legend: Vec<&str> = drawn[1].legend().iter().map(|(label, _)| *label).collect();
        assert_eq!(
            legend,
            ["published", "parallel streams 1", "parallel streams 8"]
        );
        assert_eq!(drawn[1].legend()[0].1, LineStyle::PUBLISHED);
        let description = &drawn[0].panels[0].description;
        assert!(
            description.contains(" longhaul: 100 at 1 to 200 at 50."),
            "{description}"
        );
    }

    #[test]
    fn a_program_that_chooses_its_streams_is_in_every_chart_by_row() {
        let results = samples::with_auto();
        let drawn = figures(&results);
        assert_eq!((drawn[0].panels.len(), drawn[1].panels.len()), (2, 3));
        for panel in &drawn[0].panels {
            assert_eq!(panel.lines[3].label, "longhaul, which chooses");
            assert_eq!(
                panel.lines[3].points[0].as_ref().unwrap().value,
                Some(900.0)
            );
        }
        assert_eq!(drawn[1].panels[2].lines.len(), 1);
    }

    #[test]
    fn without_an_axis_down_or_with_one_program_there_is_one_chart() {
        let mut results = samples::two_by_two();
        results.down = None;
        let drawn = figures(&results);
        assert_eq!((drawn.len(), drawn[0].panels.len()), (1, 1));
        assert!(drawn[0].panels[0].title.is_empty());
        let mut results = samples::two_by_two();
        results.programs.truncate(1);
        let drawn = figures(&results);
        assert_eq!((drawn.len(), &*drawn[0].heading), (1, "by program"));
        assert_eq!((drawn[0].panels.len(), &*drawn[0].file), (1, "a.svg"));
    }

    #[test]
    fn values_published_for_each_program_have_a_line_for_each() {
        let mut results = samples::two_by_two();
        results.cells[0].paper = Some(1.0);
        let drawn = figures(&results);
        let lines = drawn[0].panels[0]
            .lines
            .iter()
            .filter(|line| line.style.published);
        let published: Vec<&str> = lines.map(|line| &*line.label).collect();
        assert_eq!(
            published,
            ["published, longhaul", "published, globus-url-copy"]
        );
    }

    #[test]
    fn a_failed_measurement_is_a_point_without_a_value_and_without_cells_there_is_no_figure() {
        let mut results = samples::two_by_two();
        results.cells[0].median = None;
        for run in &mut results.cells[0].samples {
            run.value = None;
            run.invalid = vec!["exit code 5".to_owned()];
        }
        let drawn = figures(&results);
        let point = drawn[0].panels[0].lines[1].points[0].as_ref().unwrap();
        assert_eq!(point.value, None);
        assert!(point.tip.contains("failed") && point.tip.contains("exit code 5"));
        results.cells[0].samples.clear();
        assert!(figures(&results)[0].panels[0].lines[1].points[0].is_none());
        results.cells.clear();
        assert!(figures(&results).is_empty());
        results.programs.clear();
        assert!(figures(&results).is_empty());
    }

    #[test]
    fn lines_are_moved_apart_on_an_axis_of_names_only() {
        let mut results = samples::two_by_two();
        let places = |results: &ExperimentResults| -> Vec<f64> {
            let lines = &figures(results)[0].panels[0].lines;
            lines
                .iter()
                .map(|line| line.points[0].as_ref().unwrap().x)
                .collect()
        };
        assert_eq!(places(&results), [1.0; 3]);
        for cell in results
            .cells
            .iter_mut()
            .filter(|cell| cell.at["latency"] == "1")
        {
            cell.at.insert("latency".to_owned(), "small".to_owned());
        }
        results.across.values[0] = "small".to_owned();
        let moved = places(&results);
        assert!(
            moved[0] < 0.0 && moved[1] == 0.0 && moved[2] > 0.0,
            "{moved:?}"
        );
    }
}
