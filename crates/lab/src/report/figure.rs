//! Figures as data: which lines are in which chart.
//!
//! A sweep of two axes over several programs has too many lines for one chart. It becomes two figures of
//! several charts. The first has a chart for each row, whose lines are the programs and the published
//! values; it compares programs. The second has a chart for each program, whose lines are the rows, as
//! papers usually draw them.

use super::axis::{Axis, SweptAxis};
use super::grid::{self, ResultGrid};
use super::palette::LineStyle;
use super::text;
use crate::experiment::results::ComparedProgram;

/// One or several charts with a common legend.
pub(super) struct Figure {
    /// Heading, such as `by parallel streams`; may be empty.
    pub(super) heading: String,
    /// Name and look of each line.
    pub(super) legend: Vec<(String, LineStyle)>,
    pub(super) panels: Vec<Panel>,
    /// Width and height of a chart in pixels.
    pub(super) size: (i32, i32),
    /// Name of its SVG file.
    pub(super) file: String,
}

/// One chart.
pub(super) struct Panel {
    /// Title; empty without an axis down.
    pub(super) title: String,
    /// Description for readers who cannot see the chart.
    pub(super) description: String,
    /// Lines in drawing order: later ones cover earlier ones.
    pub(super) lines: Vec<Line>,
    pub(super) x: Axis,
    pub(super) y: Axis,
}

impl Panel {
    /// The chart's name for readers who cannot see it.
    pub(super) fn accessible_name(&self) -> String {
        let separator = if self.title.is_empty() { "" } else { ": " };
        format!(
            "{}{separator}{} against {}",
            self.title, self.y.name, self.x.name
        )
    }
}

/// One line of a chart.
pub(super) struct Line {
    pub(super) label: String,
    pub(super) style: LineStyle,
    /// A point for each value of a sweep (`None`: not measured), or for each sample over time.
    pub(super) points: Vec<Option<Point>>,
}

/// One point of a line.
#[derive(Default)]
pub(super) struct Point {
    /// Value on the horizontal axis.
    pub(super) x: f64,
    /// Value; `None`: the measurement failed.
    pub(super) value: Option<f64>,
    /// Half-width of the error bar.
    pub(super) half_width: Option<f64>,
    /// Text of the tooltip, one fact per line; empty: the point has no marker.
    pub(super) tip: String,
}

/// The figures of a sweep, most important first; empty if nothing was measured or published. `name` is the
/// prefix of the names of their files.
pub(super) fn sweeps(grid: &ResultGrid<'_>, name: &str) -> Vec<Figure> {
    let planner = FigurePlanner {
        grid,
        x: SweptAxis::of(&grid.results.across),
    };
    let (rows, programs) = (grid.rows(), grid.results.programs.len());
    let mut figures = Vec::new();
    if rows > 0 && (programs > 1 || rows == 1) {
        figures.push(planner.figure_by_row(format!("{name}.svg")));
    }
    if rows > 1 && programs > 0 {
        figures.push(planner.figure_by_program(format!("{name}-programs.svg")));
    }
    figures.retain(|figure| !figure.panels.is_empty());
    if let Some(first) = figures.first_mut() {
        first.file = format!("{name}.svg");
    }
    figures
}

/// Plans the figures of one measure.
struct FigurePlanner<'a> {
    grid: &'a ResultGrid<'a>,
    x: SweptAxis,
}

impl FigurePlanner<'_> {
    fn figure_by_row(&self, file: String) -> Figure {
        let down = self.grid.results.down.as_ref();
        let heading = down.map_or_else(String::new, |axis| format!("by {}", axis.label));
        let rows = (0..self.grid.rows()).filter(|row| !self.grid.is_independent(*row));
        let panels = rows.map(|row| (self.row_entry(row).0, self.lines_of_row(row)));
        let legend = self
            .grid
            .programs()
            .map(|(_, program)| self.program_entry(program));
        // Programs are compared point by point, so small values must be visible too.
        self.figure(
            Figure {
                heading,
                legend: legend.collect(),
                panels: Vec::new(),
                size: (360, 264),
                file,
            },
            panels,
            Axis::fitting,
        )
    }

    fn figure_by_program(&self, file: String) -> Figure {
        let programs = self.grid.programs();
        let panels = programs.map(|(index, one)| (one.label.clone(), self.lines_of_program(index)));
        let legend = (0..self.grid.rows())
            .map(|row| self.row_entry(row))
            .collect();
        let heading = "by program".to_owned();
        self.figure(
            Figure {
                heading,
                legend,
                panels: Vec::new(),
                size: (360, 340),
                file,
            },
            panels,
            Axis::linear,
        )
    }

    /// Adds the charts to a figure. `y` makes the vertical axis, which all of them have in common.
    fn figure(
        &self,
        mut figure: Figure,
        panels: impl Iterator<Item = (String, Vec<Line>)>,
        y: fn(&str, &[f64]) -> Axis,
    ) -> Figure {
        let results = self.grid.results;
        let panels: Vec<_> = panels.filter(|(_, lines)| !lines.is_empty()).collect();
        let y = y(
            &results.unit,
            &extremes(panels.iter().flat_map(|(_, lines)| lines)),
        );
        let panel = |(title, lines): (String, Vec<Line>)| Panel {
            title,
            description: describe(&results.across.values, &lines),
            lines: self.side_by_side(lines),
            x: self.x.axis.clone(),
            y: y.clone(),
        };
        figure.panels = panels.into_iter().map(panel).collect();
        if self.grid.has_paper() {
            figure.legend.push(self.published_entry());
        }
        figure
    }

    /// Moves lines sideways, so that they do not hide each other, on an axis of names only: on one of numbers the
    /// place has a meaning. The line that is drawn last is the first in the legend, so it becomes the leftmost.
    fn side_by_side(&self, mut lines: Vec<Line>) -> Vec<Line> {
        if self.x.has_names && lines.len() > 1 {
            let count = f64::from(u32::try_from(lines.len()).unwrap_or(u32::MAX));
            let step = (0.6 / count).min(0.04 * (self.x.axis.ends.1 - self.x.axis.ends.0));
            for (index, line) in (0_u32..).map(f64::from).zip(&mut lines) {
                let points = line.points.iter_mut().flatten();
                points.for_each(|point| point.x += step * ((count - 1.0) / 2.0 - index));
            }
        }
        lines
    }

    fn lines_of_row(&self, row: usize) -> Vec<Line> {
        let mut lines = Vec::new();
        if self.grid.has_shared_publication {
            let value = |column| self.grid.published(row, column);
            lines.extend(self.published_line(row, self.published_entry(), value));
        } else {
            for (index, program) in self.grid.programs() {
                lines.extend(self.program_published_line(
                    index,
                    row,
                    self.program_entry(program).1,
                ));
            }
        }
        // The first program is the most important one, so it is drawn last, on top.
        for (index, program) in self.grid.programs().rev() {
            let row = self.grid.compared_row(index, row);
            lines.extend(self.measured_line(index, row, self.program_entry(program)));
        }
        lines
    }

    fn lines_of_program(&self, program: usize) -> Vec<Line> {
        let rows = || (0..self.grid.rows()).map(|row| (row, self.row_entry(row)));
        let published =
            rows().filter_map(|(row, (_, style))| self.program_published_line(program, row, style));
        let measured = rows().filter_map(|(row, entry)| self.measured_line(program, row, entry));
        published.chain(measured).collect()
    }

    fn measured_line(
        &self,
        program: usize,
        row: usize,
        entry: (String, LineStyle),
    ) -> Option<Line> {
        let point = |(column, x): (usize, &f64)| {
            let cell = self.grid.cell(program, row, column)?;
            let value = self.grid.median(program, row, column);
            (value.is_some() || !cell.samples.is_empty()).then(|| Point {
                x: *x,
                value,
                half_width: cell
                    .half_width
                    .filter(|half| half.is_finite() && *half > 0.0),
                tip: text::describe_measured(self.grid, program, (row, column), cell),
            })
        };
        nonempty_line(
            entry,
            self.x.numbers.iter().enumerate().map(point).collect(),
        )
    }

    /// The line of the values published for a program.
    fn program_published_line(&self, program: usize, row: usize, style: LineStyle) -> Option<Line> {
        let label = format!(
            "{}, {}",
            self.grid.results.reference,
            self.grid.label(program)
        );
        let style = LineStyle {
            published: true,
            ..style
        };
        self.published_line(row, (label, style), |column| {
            self.grid.paper(program, row, column)
        })
    }

    fn published_line(
        &self,
        row: usize,
        entry: (String, LineStyle),
        value: impl Fn(usize) -> Option<f64>,
    ) -> Option<Line> {
        let point = |(column, x): (usize, &f64)| {
            let value = value(column)?;
            Some(Point {
                x: *x,
                value: Some(value),
                half_width: None,
                tip: text::describe_published(self.grid, &entry.0, (row, column), value),
            })
        };
        let points = self.x.numbers.iter().enumerate().map(point).collect();
        nonempty_line(entry, points)
    }

    fn program_entry(&self, program: &ComparedProgram) -> (String, LineStyle) {
        {
            let style = LineStyle::of_program(&program.key, &self.grid.results.programs);
            (program.label.clone(), style)
        }
    }

    fn row_entry(&self, row: usize) -> (String, LineStyle) {
        let down = self.grid.results.down.as_ref();
        let label = down.map_or_else(String::new, |axis| grid::value_name(axis, row));
        (label, LineStyle::of_row(row, self.grid.rows()))
    }

    fn published_entry(&self) -> (String, LineStyle) {
        (self.grid.results.reference.clone(), LineStyle::PUBLISHED)
    }
}

/// A line with these points; `None`: there is no point.
fn nonempty_line((label, style): (String, LineStyle), points: Vec<Option<Point>>) -> Option<Line> {
    let any = points.iter().any(Option::is_some);
    any.then_some(Line {
        label,
        style,
        points,
    })
}

/// The values that the vertical axis must cover: all values, and the upper ends of error bars, but at most
/// 15 % above the highest value, so that a long bar does not shrink the lines.
fn extremes<'a>(lines: impl Iterator<Item = &'a Line>) -> Vec<f64> {
    let points: Vec<&Point> = lines
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
fn describe(values: &[String], lines: &[Line]) -> String {
    let sentence = |line: &Line| {
        let points = values.iter().zip(&line.points);
        let valued = |(at, point): (&String, &Option<Point>)| {
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
    let sentences: Vec<String> = lines.iter().rev().filter_map(sentence).collect();
    sentences.join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::samples::{self, labels};
    use super::*;
    use crate::experiment::results::ExperimentResults;

    fn figures(results: &ExperimentResults) -> Vec<Figure> {
        sweeps(&ResultGrid::of(results), "a")
    }

    #[test]
    fn a_sweep_of_two_axes_has_a_figure_by_row_and_one_by_program() {
        let drawn = figures(&samples::two_by_two());
        let shape = |figure: &Figure| (figure.panels.len(), figure.file.clone());
        let shapes: Vec<_> = drawn.iter().map(shape).collect();
        assert_eq!(
            shapes,
            [(2, "a.svg".to_owned()), (2, "a-programs.svg".to_owned())]
        );
        let panel = &drawn[0].panels[1];
        assert_eq!(panel.title, "parallel streams 8");
        assert_eq!(labels(panel), ["published", "globus-url-copy", "longhaul"]);
        assert_eq!(panel.y.ends, (0.0, 1000.0));
        let description = &drawn[0].panels[0].description;
        assert!(
            description.starts_with("longhaul: 100 at 1 to 200 at 50."),
            "{description}"
        );
    }

    #[test]
    fn a_program_that_chooses_its_streams_is_in_every_chart_by_row() {
        let drawn = figures(&samples::with_auto());
        assert_eq!((drawn[0].panels.len(), drawn[1].panels.len()), (2, 3));
        for panel in &drawn[0].panels {
            assert_eq!(panel.lines[1].label, "longhaul, which chooses");
            assert_eq!(
                panel.lines[1].points[0].as_ref().unwrap().value,
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
        let point = drawn[0].panels[0].lines[2].points[0].as_ref().unwrap();
        assert_eq!(point.value, None);
        assert!(point.tip.contains("failed") && point.tip.contains("exit code 5"));
        results.cells[0].samples.clear();
        assert!(figures(&results)[0].panels[0].lines[2].points[0].is_none());
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
            moved[0] > 0.0 && moved[1] == 0.0 && moved[2] < 0.0,
            "{moved:?}"
        );
    }
}
