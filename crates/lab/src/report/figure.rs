//! Figures as data: which lines are in which chart.
//!
//! A sweep of two axes over several programs has too many lines for one chart. It becomes two figures of
//! several charts. The first has a chart for each row, whose lines are the programs and the published
//! values; it compares programs. The second has a chart for each program, whose lines are the rows, as
//! papers usually draw them.

use super::grid::{self, ResultGrid};
use super::scale::ValueAxis;
use super::theme::{self, Palette};
use super::{shapes, text};
use crate::experiment::results::ComparedProgram;

/// One or several charts with a common legend.
pub(super) struct Figure {
    pub(super) kind: FigureKind,
    /// Heading, such as `by parallel streams`; empty without an axis down.
    pub(super) heading: String,
    pub(super) legend: Vec<LegendEntry>,
    pub(super) panels: Vec<ChartPanel>,
    /// Prefix of the ids of its charts.
    pub(super) id: String,
    /// Name of its SVG file; empty for charts over time, which have none.
    pub(super) file: String,
}

/// Kind of a figure: the subject of each of its charts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FigureKind {
    /// One chart for each row; its lines are the programs.
    Rows,
    /// One chart for each program; its lines are the rows.
    Programs,
    /// One chart for each cell or point; its lines are samples over time.
    Time,
}

impl FigureKind {
    /// The name in file names and anchors.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Programs => "programs",
            Self::Time => "time",
        }
    }
}

/// The style of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LineStyle {
    /// CSS class of its colour.
    pub(super) colour: String,
    /// Number of its marker, as in [`shapes::marker`].
    pub(super) marker: usize,
    /// Whether the values are published rather than measured: a dashed line with hollow markers.
    pub(super) published: bool,
}

/// The name and style of a line, as the legend shows them.
#[derive(Clone)]
pub(super) struct LegendEntry {
    /// Keys of the legend's entries that hide the line, separated by spaces. The first is its own.
    pub(super) keys: String,
    pub(super) label: String,
    pub(super) style: LineStyle,
}

/// One chart.
pub(super) struct ChartPanel {
    /// Title; empty if the figure has only one chart.
    pub(super) title: String,
    /// Description for readers who cannot see the chart.
    pub(super) description: String,
    /// Lines in drawing order: later ones cover earlier ones.
    pub(super) lines: Vec<ChartLine>,
    pub(super) x: ChartAxis,
    /// Unit of the vertical axis.
    pub(super) unit: String,
    pub(super) y: ValueAxis,
}

/// The horizontal axis.
pub(super) enum ChartAxis {
    /// The values of a sweep, with the name of its axis.
    Swept {
        name: String,
        values: Vec<String>,
        logarithmic: bool,
    },
    /// Seconds, with marks at these times.
    Time(Vec<f64>),
}

impl ChartAxis {
    /// The name with the unit.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Swept { name, .. } => name,
            Self::Time(_) => "seconds since the start",
        }
    }
}

/// One line of a chart.
pub(super) struct ChartLine {
    pub(super) entry: LegendEntry,
    /// A point for each value of a sweep (`None`: not measured), or for each sample over time.
    pub(super) points: Vec<Option<ChartPoint>>,
}

/// One point of a line.
#[derive(Default)]
pub(super) struct ChartPoint {
    /// Seconds; used with [`ChartAxis::Time`] only.
    pub(super) time: f64,
    /// Value; `None`: the measurement failed.
    pub(super) value: Option<f64>,
    /// Half-width of the error bar.
    pub(super) half_width: Option<f64>,
    /// Text of the tooltip, one fact per line; empty: the point has no marker.
    pub(super) tip: String,
}

/// The figures of a sweep, most important first; empty if nothing was measured or published. `name` is the
/// prefix of the names of their files.
pub(super) fn sweeps(grid: &ResultGrid<'_>, palette: &Palette, name: &str) -> Vec<Figure> {
    let planner = FigurePlanner {
        grid,
        palette,
        name,
    };
    let (rows, programs) = (grid.rows(), grid.results.programs.len());
    let mut figures = Vec::new();
    if rows > 0 && (programs > 1 || rows == 1) {
        figures.push(planner.figure_by_row());
    }
    if rows > 1 && programs > 0 {
        figures.push(planner.figure_by_program());
    }
    let has_lines = |figure: &Figure| figure.panels.iter().any(|panel| !panel.lines.is_empty());
    figures.retain(has_lines);
    if let Some(first) = figures.first_mut() {
        first.file = format!("{name}.svg");
    }
    figures
}

/// Legend key of all published values, and CSS class of their colour.
const PAPER: &str = "paper";

/// Plans the figures of one measure.
struct FigurePlanner<'a> {
    grid: &'a ResultGrid<'a>,
    palette: &'a Palette,
    name: &'a str,
}

impl FigurePlanner<'_> {
    fn figure_by_row(&self) -> Figure {
        let down = self.grid.results.down.as_ref();
        let heading = down.map_or_else(String::new, |axis| format!("by {}", axis.label));
        let rows = (0..self.grid.rows()).filter(|row| !self.grid.is_independent(*row));
        let panels = rows.map(|row| (self.row_entry(row).label, self.lines_of_row(row)));
        let programs = self
            .grid
            .programs()
            .map(|(_, program)| self.program_entry(program));
        let (legend, panels) = (programs.collect(), panels.collect());
        self.figure(FigureKind::Rows, heading, legend, panels)
    }

    fn figure_by_program(&self) -> Figure {
        let programs = self.grid.programs();
        let panels = programs.map(|(index, one)| (one.label.clone(), self.lines_of_program(index)));
        let legend = (0..self.grid.rows())
            .map(|row| self.row_entry(row))
            .collect();
        let heading = "by program".to_owned();
        self.figure(FigureKind::Programs, heading, legend, panels.collect())
    }

    fn figure(
        &self,
        kind: FigureKind,
        heading: String,
        mut legend: Vec<LegendEntry>,
        mut panels: Vec<(String, Vec<ChartLine>)>,
    ) -> Figure {
        let results = self.grid.results;
        if self.grid.has_paper() {
            legend.push(self.published_entry());
        }
        panels.retain(|(_, lines)| !lines.is_empty());
        if let [(title, _)] = panels.as_mut_slice() {
            title.clear();
        }
        let values = extremes(panels.iter().flat_map(|(_, lines)| lines));
        // Charts that compare programs are read point by point, so small values must be visible too. Those
        // of one program begin at zero, as in papers.
        let y = match kind {
            FigureKind::Rows => ValueAxis::fitting(&values),
            _ => ValueAxis::linear(&values),
        };
        let logarithmic = if y.logarithmic { " (logarithmic)" } else { "" };
        let panel = |(title, lines): (String, Vec<ChartLine>)| ChartPanel {
            title,
            description: describe(&results.across.values, &lines),
            lines,
            x: ChartAxis::Swept {
                name: grid::axis_name(&results.across),
                values: results.across.values.clone(),
                logarithmic: results.across.logarithmic,
            },
            unit: format!("{}{logarithmic}", results.unit),
            y: y.clone(),
        };
        let id = format!("{}-{}", self.name, kind.name());
        Figure {
            kind,
            heading,
            legend,
            panels: panels.into_iter().map(panel).collect(),
            file: format!("{id}.svg"),
            id,
        }
    }

    fn lines_of_row(&self, row: usize) -> Vec<ChartLine> {
        let mut lines = Vec::new();
        if self.grid.has_shared_publication {
            let value = |column| self.grid.published(row, column);
            lines.extend(self.published_line(row, self.published_entry(), value));
        } else {
            for (index, program) in self.grid.programs() {
                lines.extend(self.program_published_line(index, row, self.program_entry(program)));
            }
        }
        // The first program is the most important one, so it is drawn last, on top.
        for (index, program) in self.grid.programs().rev() {
            let row = self.grid.compared_row(index, row);
            lines.extend(self.measured_line(index, row, self.program_entry(program)));
        }
        lines
    }

    fn lines_of_program(&self, program: usize) -> Vec<ChartLine> {
        let rows = || (0..self.grid.rows()).map(|row| (row, self.row_entry(row)));
        let published =
            rows().filter_map(|(row, entry)| self.program_published_line(program, row, entry));
        let measured = rows().filter_map(|(row, entry)| self.measured_line(program, row, entry));
        published.chain(measured).collect()
    }

    fn measured_line(&self, program: usize, row: usize, entry: LegendEntry) -> Option<ChartLine> {
        let point = |column| {
            let cell = self.grid.cell(program, row, column)?;
            let value = self.grid.median(program, row, column);
            let half = cell.half_width;
            (value.is_some() || !cell.samples.is_empty()).then(|| ChartPoint {
                value,
                half_width: half.filter(|half| half.is_finite() && *half > 0.0),
                tip: text::describe_measured(self.grid, program, (row, column), cell),
                ..ChartPoint::default()
            })
        };
        nonempty_line(entry, (0..self.grid.columns()).map(point).collect())
    }

    /// The line of the values published for a program. It is hidden with the program's own line, and with all
    /// published values.
    fn program_published_line(
        &self,
        program: usize,
        row: usize,
        of: LegendEntry,
    ) -> Option<ChartLine> {
        let mut entry = LegendEntry {
            keys: format!("{} {PAPER}", of.keys),
            label: format!(
                "{}, {}",
                self.published_entry().label,
                self.grid.label(program)
            ),
            ..of
        };
        entry.style.published = true;
        self.published_line(row, entry, |column| self.grid.paper(program, row, column))
    }

    fn published_line(
        &self,
        row: usize,
        entry: LegendEntry,
        value: impl Fn(usize) -> Option<f64>,
    ) -> Option<ChartLine> {
        let point = |column| {
            let value = value(column)?;
            Some(ChartPoint {
                value: Some(value),
                tip: text::describe_published(self.grid, &entry.label, (row, column), value),
                ..ChartPoint::default()
            })
        };
        let points = (0..self.grid.columns()).map(point).collect();
        nonempty_line(entry, points)
    }

    fn program_entry(&self, program: &ComparedProgram) -> LegendEntry {
        let programs = &self.grid.results.programs;
        let index = programs.iter().position(|one| one.key == program.key);
        LegendEntry {
            keys: format!("p{}", index.unwrap_or_default()),
            label: program.label.clone(),
            style: LineStyle {
                colour: self.palette.colour(&program.key),
                marker: self.palette.marker(&program.key),
                published: false,
            },
        }
    }

    fn row_entry(&self, row: usize) -> LegendEntry {
        let down = self.grid.results.down.as_ref();
        LegendEntry {
            keys: format!("r{row}"),
            label: down.map_or_else(String::new, |axis| grid::value_name(axis, row)),
            style: LineStyle {
                colour: theme::ramp(row, self.grid.rows()),
                marker: row % shapes::MARKERS,
                published: false,
            },
        }
    }

    fn published_entry(&self) -> LegendEntry {
        LegendEntry {
            keys: PAPER.to_owned(),
            label: self.grid.results.reference.clone(),
            style: LineStyle {
                colour: PAPER.to_owned(),
                marker: 0,
                published: true,
            },
        }
    }
}

/// A line with these points; `None`: there is no point.
fn nonempty_line(entry: LegendEntry, points: Vec<Option<ChartPoint>>) -> Option<ChartLine> {
    let any = points.iter().any(Option::is_some);
    any.then_some(ChartLine { entry, points })
}

/// The values that the vertical axis must cover: all values, and the upper ends of error bars, but at most
/// 15 % above the highest value, so that a long bar does not shrink the lines.
fn extremes<'a>(lines: impl Iterator<Item = &'a ChartLine>) -> Vec<f64> {
    let points: Vec<&ChartPoint> = lines
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
fn describe(values: &[String], lines: &[ChartLine]) -> String {
    let sentence = |line: &ChartLine| {
        let points = values.iter().zip(&line.points);
        let valued = |(at, point): (&String, &Option<ChartPoint>)| {
            Some(format!(
                "{} at {at}",
                text::format_value(point.as_ref()?.value?)
            ))
        };
        let mut valued = points.filter_map(valued);
        let first = valued.next()?;
        let last = valued.next_back().unwrap_or_else(|| first.clone());
        Some(format!("{}: {first} to {last}.", line.entry.label))
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
        sweeps(&ResultGrid::of(results), &Palette::default(), "a")
    }

    #[test]
    fn a_sweep_of_two_axes_has_a_figure_by_row_and_one_by_program() {
        let drawn = figures(&samples::two_by_two());
        let shape = |figure: &Figure| (figure.kind, figure.panels.len(), figure.file.clone());
        let shapes: Vec<_> = drawn.iter().map(shape).collect();
        let programs = (FigureKind::Programs, 2, "a-programs.svg".to_owned());
        assert_eq!(
            shapes,
            [(FigureKind::Rows, 2, "a.svg".to_owned()), programs]
        );
        let panel = &drawn[0].panels[1];
        assert_eq!(panel.title, "parallel streams 8");
        assert_eq!(labels(panel), ["published", "globus-url-copy", "longhaul"]);
        assert_eq!(panel.y.marks.last(), Some(&1000.0));
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
            assert_eq!(panel.lines[1].entry.label, "longhaul, which chooses");
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
        assert_eq!((drawn.len(), drawn[0].kind), (1, FigureKind::Programs));
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
            .filter(|line| line.entry.style.published);
        let published: Vec<_> = lines
            .map(|line| (&*line.entry.keys, &*line.entry.label))
            .collect();
        let globus = ("p1 paper", "published, globus-url-copy");
        assert_eq!(published, [("p0 paper", "published, longhaul"), globus]);
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
}
