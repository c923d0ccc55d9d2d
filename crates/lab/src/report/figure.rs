//! Figures as data: which lines go into which chart.
//!
//! A sweep of two axes over several programs has too many lines for one chart. It is drawn as small
//! multiples, twice: one chart for each row (its lines are the programs, with the published curve),
//! which compares programs; and one chart for each program (its lines are the rows), which is the
//! shape that papers draw. Samples over time have a chart for each cell, or one for all programs at a point.

use super::grid::{self, CellPlace, ResultGrid};
use super::scale::{self, ValueAxis};
use super::theme::{self, Palette};
use super::{chart, text};
use crate::experiment::results::{ComparedProgram, TimeChart, TimeSeries};

/// A chart or several, with one legend.
pub(super) struct Figure {
    pub(super) kind: FigureKind,
    /// `by parallel streams`; empty if there is only one figure.
    pub(super) heading: String,
    /// Lines and their names, in the order of the legend.
    pub(super) legend: Vec<LegendEntry>,
    pub(super) panels: Vec<ChartPanel>,
    /// Begins the anchors of its charts.
    pub(super) id: String,
    /// Name of its SVG file; charts over time have none.
    pub(super) file: String,
}

/// The difference between the charts of a figure.
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
    /// For file names and anchors.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Programs => "programs",
            Self::Time => "time",
        }
    }
}

/// How a line looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LineStyle {
    /// CSS class of its colour.
    pub(super) colour: String,
    /// Number of its marker.
    pub(super) marker: usize,
    /// Dashed, with hollow markers: published, not measured.
    pub(super) published: bool,
}

/// A line of the legend.
pub(super) struct LegendEntry {
    /// Lines that have this key among theirs are hidden with it.
    pub(super) key: String,
    pub(super) label: String,
    pub(super) style: LineStyle,
}

/// One chart.
pub(super) struct ChartPanel {
    /// Heading; empty if there is one chart only.
    pub(super) title: String,
    /// The values for readers who do not see the chart.
    pub(super) description: String,
    /// Lines, those behind first.
    pub(super) lines: Vec<ChartLine>,
    pub(super) x: ChartAxis,
    /// Unit of the vertical axis.
    pub(super) unit: String,
    pub(super) y: ValueAxis,
}

/// The horizontal axis.
pub(super) enum ChartAxis {
    /// The values of a sweep, under the name of its axis.
    Swept {
        name: String,
        values: Vec<String>,
        logarithmic: bool,
    },
    /// Seconds, with these marks.
    Time(Vec<f64>),
}

impl ChartAxis {
    /// The name, with its unit.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Swept { name, .. } => name,
            Self::Time(_) => "seconds since the start",
        }
    }
}

/// One line.
pub(super) struct ChartLine {
    /// Keys of the legend's entries that it belongs to, separated by spaces.
    pub(super) keys: String,
    pub(super) label: String,
    pub(super) style: LineStyle,
    /// One for each value of a sweep, or one for each sample over time.
    pub(super) points: Vec<Option<ChartPoint>>,
}

/// One point.
#[derive(Default)]
pub(super) struct ChartPoint {
    /// Seconds, on an axis of time.
    pub(super) time: f64,
    /// Its value; `None`: the measurement failed.
    pub(super) value: Option<f64>,
    /// Half-width of its interval.
    pub(super) half_width: Option<f64>,
    /// Facts for the reader, one a line; empty: the point has no marker.
    pub(super) tip: String,
}

/// The figures of a sweep, the most telling first; none if nothing was measured or published. `name` begins
/// the names of their files.
pub(super) fn sweeps(grid: &ResultGrid<'_>, palette: &Palette, name: &str) -> Vec<Figure> {
    let planner = FigurePlanner {
        grid,
        palette,
        name,
    };
    let (rows, programs) = (grid.rows(), grid.results.programs.len());
    let mut figures = Vec::new();
    if rows > 0 && (programs > 1 || rows == 1) {
        figures.push(planner.by_row());
    }
    if rows > 1 && programs > 0 {
        figures.push(planner.by_program());
    }
    let lines = |figure: &Figure| figure.panels.iter().any(|panel| !panel.lines.is_empty());
    figures.retain(lines);
    if let Some(first) = figures.first_mut() {
        first.file = format!("{name}.svg");
    }
    figures
}

/// The key of everything that was published, and the class of its colour.
const PAPER: &str = "paper";

struct FigurePlanner<'a> {
    grid: &'a ResultGrid<'a>,
    palette: &'a Palette,
    name: &'a str,
}

impl FigurePlanner<'_> {
    fn by_row(&self) -> Figure {
        let down = self.grid.results.down.as_ref();
        let heading = down.map_or_else(String::new, |axis| format!("by {}", axis.label));
        let rows = (0..self.grid.rows()).filter(|row| !self.grid.is_free(*row));
        let panels = rows
            .map(|row| (self.row_name(row), self.lines_of_row(row)))
            .collect();
        let programs = self.grid.programs().map(|(index, program)| LegendEntry {
            key: format!("p{index}"),
            label: program.label.clone(),
            style: self.program_style(program, false),
        });
        self.figure(FigureKind::Rows, heading, programs.collect(), panels)
    }

    fn by_program(&self) -> Figure {
        let panel = |(index, program): (usize, &ComparedProgram)| {
            (program.label.clone(), self.lines_of_program(index))
        };
        let panels = self.grid.programs().map(panel).collect();
        let rows = (0..self.grid.rows()).map(|row| LegendEntry {
            key: format!("r{row}"),
            label: self.row_name(row),
            style: self.row_style(row, false),
        });
        let heading = "by program".to_owned();
        self.figure(FigureKind::Programs, heading, rows.collect(), panels)
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
            legend.push(LegendEntry {
                key: PAPER.to_owned(),
                label: results.reference.clone(),
                style: paper_style(),
            });
        }
        panels.retain(|(_, lines)| !lines.is_empty());
        if let [(title, _)] = panels.as_mut_slice() {
            title.clear();
        }
        let values = extremes(panels.iter().flat_map(|(_, lines)| lines));
        // Charts that compare programs are read point by point, so small values must show; those by
        // program have the shape that papers draw, from zero.
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
        let reference = &self.grid.results.reference;
        if self.grid.one_publication {
            let value = |column| self.grid.published(row, column);
            lines.extend(self.published(row, PAPER.to_owned(), paper_style(), reference, value));
        } else {
            for (index, program) in self.grid.programs() {
                let (keys, style) = (
                    format!("p{index} {PAPER}"),
                    self.program_style(program, true),
                );
                lines.extend(self.published_of(index, row, keys, style));
            }
        }
        // The first program is the one that matters most: it is drawn last, on top.
        for (index, program) in self.grid.programs().rev() {
            let row = self.grid.counterpart(index, row);
            let (keys, style) = (format!("p{index}"), self.program_style(program, false));
            lines.extend(self.measured(index, row, keys, program.label.clone(), style));
        }
        lines
    }

    fn lines_of_program(&self, program: usize) -> Vec<ChartLine> {
        let rows = || 0..self.grid.rows();
        let published = rows().filter_map(|row| {
            let (keys, style) = (format!("r{row} {PAPER}"), self.row_style(row, true));
            self.published_of(program, row, keys, style)
        });
        let measured = rows().filter_map(|row| {
            let (name, style) = (self.row_name(row), self.row_style(row, false));
            self.measured(program, row, format!("r{row}"), name, style)
        });
        published.chain(measured).collect()
    }

    fn measured(
        &self,
        program: usize,
        row: usize,
        keys: String,
        label: String,
        style: LineStyle,
    ) -> Option<ChartLine> {
        let point = |column| {
            let cell = self.grid.cell(program, row, column)?;
            let value = self.grid.median(program, row, column);
            let place = CellPlace {
                program,
                row,
                column,
            };
            (value.is_some() || !cell.samples.is_empty()).then(|| ChartPoint {
                value,
                half_width: cell
                    .half_width
                    .filter(|half| half.is_finite() && *half > 0.0),
                tip: text::measured_tip(self.grid, place, cell),
                ..ChartPoint::default()
            })
        };
        let points = (0..self.grid.columns()).map(point).collect();
        line(keys, label, style, points)
    }

    fn published_of(
        &self,
        program: usize,
        row: usize,
        keys: String,
        style: LineStyle,
    ) -> Option<ChartLine> {
        let reference = &self.grid.results.reference;
        let label = format!("{reference}, {}", self.grid.label(program));
        let value = |column| self.grid.paper(program, row, column);
        self.published(row, keys, style, &label, value)
    }

    fn published(
        &self,
        row: usize,
        keys: String,
        style: LineStyle,
        label: &str,
        value: impl Fn(usize) -> Option<f64>,
    ) -> Option<ChartLine> {
        let point = |column| {
            let value = value(column)?;
            Some(ChartPoint {
                value: Some(value),
                tip: text::published_tip(self.grid, label, (row, column), value),
                ..ChartPoint::default()
            })
        };
        let points = (0..self.grid.columns()).map(point).collect();
        line(keys, label.to_owned(), style, points)
    }

    fn row_name(&self, row: usize) -> String {
        let down = self.grid.results.down.as_ref();
        down.map_or_else(String::new, |axis| grid::value_name(axis, row))
    }

    fn program_style(&self, program: &ComparedProgram, published: bool) -> LineStyle {
        LineStyle {
            colour: self.palette.colour(&program.key),
            marker: self.palette.marker(&program.key),
            published,
        }
    }

    fn row_style(&self, row: usize, published: bool) -> LineStyle {
        LineStyle {
            colour: theme::ramp(row, self.grid.rows()),
            marker: row % chart::MARKERS,
            published,
        }
    }
}

fn paper_style() -> LineStyle {
    LineStyle {
        colour: PAPER.to_owned(),
        marker: 0,
        published: true,
    }
}

/// A line that has a point.
fn line(
    keys: String,
    label: String,
    style: LineStyle,
    points: Vec<Option<ChartPoint>>,
) -> Option<ChartLine> {
    let any = points.iter().any(Option::is_some);
    any.then_some(ChartLine {
        keys,
        label,
        style,
        points,
    })
}

/// Values that the vertical axis must have room for: every value, and error bars as far as they do not
/// make the values themselves small.
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

/// Each line's first and last value.
fn describe(values: &[String], lines: &[ChartLine]) -> String {
    let sentence = |line: &ChartLine| {
        let points = values.iter().zip(&line.points);
        let valued = |(at, point): (&String, &Option<ChartPoint>)| {
            Some(format!("{} at {at}", text::value(point.as_ref()?.value?)))
        };
        let mut valued = points.filter_map(valued);
        let first = valued.next()?;
        let last = valued.last().unwrap_or_else(|| first.clone());
        Some(format!("{}: {first} to {last}.", line.label))
    };
    let sentences: Vec<String> = lines.iter().rev().filter_map(sentence).collect();
    sentences.join(" ")
}

/// The charts over time of an experiment that have something to show. `name` begins their anchors.
pub(super) fn timelines(grid: &ResultGrid<'_>, palette: &Palette, name: &str) -> Vec<Figure> {
    let charts = grid.results.charts.iter().enumerate();
    let all = charts.map(|(index, chart)| timeline(grid, palette, index, chart));
    all.filter(|figure| !figure.panels.is_empty())
        .enumerate()
        .map(|(index, figure)| Figure {
            id: format!("{name}-time-{index}"),
            ..figure
        })
        .collect()
}

/// One line over time with its name and the colour of its program.
struct NamedSeries<'a> {
    name: String,
    program: &'a str,
    series: &'a TimeSeries,
}

fn timeline(grid: &ResultGrid<'_>, palette: &Palette, index: usize, chart: &TimeChart) -> Figure {
    let drawn = |series: &&TimeSeries| series.chart == index && is_drawable(series);
    let all = || {
        grid.results
            .cells
            .iter()
            .flat_map(|cell| &cell.series)
            .filter(drawn)
    };
    let several_runs = all().any(|series| series.run > 0);
    let first = all().next().map(|series| &series.line);
    // Programs of which each has the same one line share a chart; a program with several lines has its own.
    let together = all().all(|series| Some(&series.line) == first);
    let mut panels: Vec<(String, Vec<NamedSeries<'_>>)> = Vec::new();
    for (place, cell) in grid.cells() {
        let label = grid.label(place.program);
        let point = grid.point_name(place.row, place.column);
        let title = if together {
            point
        } else {
            format!("{label}: {point}")
        };
        for series in cell.series.iter().filter(drawn) {
            let line = if together { label } else { &series.line };
            let run = if several_runs {
                format!(", run {}", series.run + 1)
            } else {
                String::new()
            };
            let named = NamedSeries {
                name: format!("{line}{run}"),
                program: &cell.program,
                series,
            };
            match panels.iter_mut().find(|(known, _)| *known == title) {
                Some((_, there)) => there.push(named),
                None => panels.push((title.clone(), vec![named])),
            }
        }
    }
    let mut names: Vec<(&str, &str)> = Vec::new();
    for named in panels.iter().flat_map(|(_, lines)| lines) {
        if !names.iter().any(|(name, _)| *name == named.name) {
            names.push((&named.name, named.program));
        }
    }
    let legend: Vec<LegendEntry> = names
        .iter()
        .enumerate()
        .map(|(index, (name, program))| LegendEntry {
            key: format!("t{index}"),
            label: (*name).to_owned(),
            style: LineStyle {
                // A program has the same colour everywhere; lines of one program have a ramp.
                colour: match together {
                    true => palette.colour(program),
                    false => theme::ramp(index, names.len()),
                },
                marker: index,
                published: false,
            },
        })
        .collect();
    let panels = panels
        .iter()
        .map(|(title, lines)| time_panel(title, lines, &legend, &chart.unit));
    Figure {
        kind: FigureKind::Time,
        heading: format!("{} over time", chart.title),
        panels: panels.collect(),
        legend,
        id: String::new(),
        file: String::new(),
    }
}

/// Whether the series is sound: a results file may hold anything.
fn is_drawable(series: &TimeSeries) -> bool {
    let mut numbers = series.times.iter().chain(&series.values);
    !series.times.is_empty()
        && series.times.len() == series.values.len()
        && numbers.all(|number| number.is_finite())
}

fn time_panel(
    title: &str,
    lines: &[NamedSeries<'_>],
    legend: &[LegendEntry],
    unit: &str,
) -> ChartPanel {
    let values: Vec<f64> = lines
        .iter()
        .flat_map(|line| line.series.values.clone())
        .collect();
    let times = lines
        .iter()
        .flat_map(|line| line.series.times.iter().copied());
    let sentences: Vec<String> = lines.iter().map(describe_series).collect();
    let drawn = lines.iter().filter_map(|line| {
        let entry = legend.iter().find(|entry| entry.label == line.name)?;
        let samples = line.series.times.iter().zip(&line.series.values);
        let mut points: Vec<Option<ChartPoint>> = samples
            .map(|(time, value)| {
                Some(ChartPoint {
                    time: *time,
                    value: Some(*value),
                    ..ChartPoint::default()
                })
            })
            .collect();
        // Only the last point has a marker.
        if let Some(Some(last)) = points.last_mut() {
            let [value, time] = [last.value.unwrap_or_default(), last.time].map(text::value);
            last.tip = format!("{}\n{value} {unit} after {time} s", line.name);
        }
        Some(ChartLine {
            keys: entry.key.clone(),
            label: line.name.clone(),
            style: entry.style.clone(),
            points,
        })
    });
    ChartPanel {
        title: title.to_owned(),
        description: sentences.join(" "),
        lines: drawn.collect(),
        x: ChartAxis::Time(scale::linear_marks(0.0, times.fold(0.0, f64::max), 6)),
        unit: unit.to_owned(),
        y: ValueAxis::linear(&values),
    }
}

/// A line's range and its last value.
fn describe_series(line: &NamedSeries<'_>) -> String {
    let values = &line.series.values;
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let last = values.last().copied().unwrap_or_default();
    let [low, high, last] = [low, high, last].map(text::value);
    format!("{}: {low} to {high}, at the end {last}.", line.name)
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;
    use crate::experiment::results::ExperimentResults;

    fn figures(results: &ExperimentResults) -> Vec<Figure> {
        sweeps(&ResultGrid::of(results), &Palette::default(), "a")
    }

    fn over_time(results: &ExperimentResults) -> Vec<Figure> {
        timelines(&ResultGrid::of(results), &Palette::default(), "a")
    }

    fn labels(panel: &ChartPanel) -> Vec<&str> {
        panel.lines.iter().map(|line| line.label.as_str()).collect()
    }

    #[test]
    fn a_table_of_programs_is_drawn_by_row_and_by_program() {
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
    fn a_program_that_chooses_is_in_every_chart_that_compares() {
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
        assert_eq!((drawn.len(), drawn[0].kind), (1, FigureKind::Programs));
        assert_eq!((drawn[0].panels.len(), &*drawn[0].file), (1, "a.svg"));
    }

    #[test]
    fn a_paper_with_a_value_for_each_program_has_a_line_for_each() {
        let mut results = samples::two_by_two();
        results.cells[0].paper = Some(1.0);
        let drawn = figures(&results);
        let lines = drawn[0].panels[0]
            .lines
            .iter()
            .filter(|line| line.style.published);
        let published: Vec<_> = lines.map(|line| (&*line.keys, &*line.label)).collect();
        let globus = ("p1 paper", "published, globus-url-copy");
        assert_eq!(published, [("p0 paper", "published, longhaul"), globus]);
    }

    #[test]
    fn a_failed_measurement_is_a_point_without_a_value_and_nothing_measured_no_figure() {
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
    fn a_cell_with_several_series_has_a_chart_of_its_own() {
        let drawn = over_time(&samples::with_more());
        let [panel] = drawn[0].panels.as_slice() else {
            panic!("{}", drawn[0].panels.len());
        };
        assert_eq!(drawn[0].heading, "Window and flight size over time");
        assert_eq!(labels(panel), ["window", "flight size"]);
        assert!(
            panel.title.starts_with("longhaul: parallel streams 1"),
            "{}",
            panel.title
        );
        assert!(
            panel
                .description
                .starts_with("window: 64.0 to 512, at the end 512.")
        );
    }

    #[test]
    fn programs_with_one_series_each_share_a_chart_and_runs_have_lines_of_their_own() {
        let mut results = samples::with_more();
        results.cells[0].series.pop();
        results.cells[4].series = results.cells[0].series.clone();
        let drawn = over_time(&results);
        assert_eq!(drawn[0].panels.len(), 1);
        assert_eq!(labels(&drawn[0].panels[0]), ["longhaul", "globus-url-copy"]);
        let mut second = results.cells[0].series[0].clone();
        second.run = 1;
        results.cells[0].series.push(second);
        let names = [
            "longhaul, run 1",
            "longhaul, run 2",
            "globus-url-copy, run 1",
        ];
        assert_eq!(labels(&over_time(&results)[0].panels[0]), names);
    }

    #[test]
    fn series_that_are_not_sound_are_not_drawn() {
        let mut results = samples::with_more();
        results.cells[0].series[0].values.pop();
        results.cells[0].series[1].times[0] = f64::INFINITY;
        assert!(over_time(&results).is_empty());
        results.charts.clear();
        assert!(over_time(&results).is_empty());
    }
}
