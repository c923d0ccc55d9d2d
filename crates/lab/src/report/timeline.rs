//! Figures of samples over time: a chart for each cell, or one for all programs at a point.

use super::axis::Axis;
use super::figure::{Figure, Panel};
use super::grid::ResultGrid;
use super::lines::{Line, Point};
use super::palette::LineStyle;
use super::text;
use crate::experiment::results::{TimeChart, TimeSeries};

/// The figures over time of an experiment, without empty ones. `name` is the prefix of the names of their files.
pub(super) fn timelines<'a>(grid: &ResultGrid<'a>, name: &str) -> Vec<Figure<'a>> {
    let charts = grid.results.charts.iter().enumerate();
    let all = charts.map(|(index, chart)| Figure {
        file: format!("{name}-time-{index}.svg"),
        ..timeline(grid, index, chart)
    });
    all.filter(|figure| !figure.panels.is_empty()).collect()
}

fn timeline<'a>(grid: &ResultGrid<'a>, index: usize, chart: &TimeChart) -> Figure<'a> {
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
    // If all series have the same name, the programs share a chart, so that they can be compared, with their looks as
    // in all charts. Otherwise each program has a chart of its own, and lines the colours of a ramp.
    let together = all().all(|series| Some(&series.line) == first);
    let mut panels: Vec<(String, Vec<(String, &TimeSeries)>)> = Vec::new();
    let mut names: Vec<(String, &str)> = Vec::new();
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
            let run = several_runs.then(|| format!(", run {}", series.run + 1));
            let name = format!("{line}{}", run.unwrap_or_default());
            if !names.iter().any(|(known, _)| *known == name) {
                names.push((name.clone(), &cell.program));
            }
            match panels.iter_mut().find(|(known, _)| *known == title) {
                Some((_, there)) => there.push((name, series)),
                None => panels.push((title.clone(), vec![(name, series)])),
            }
        }
    }
    let count = names.len();
    let style = |(index, (name, program)): (usize, (String, &str))| match together {
        true => (
            name,
            LineStyle {
                marker: index,
                ..LineStyle::of_program(program, &grid.results.programs)
            },
        ),
        false => (name, LineStyle::of_row(index, count)),
    };
    let legend: Vec<(String, LineStyle)> = names.into_iter().enumerate().map(style).collect();
    let panel = |(title, lines)| time_panel(title, lines, &legend, &chart.unit);
    Figure {
        heading: format!("{} over time", chart.title),
        panels: panels.into_iter().map(panel).collect(),
        size: (480, 280),
        file: String::new(),
    }
}

/// Whether the series has as many finite times as values, and at least one. A results file may hold anything.
fn is_drawable(series: &TimeSeries) -> bool {
    let mut numbers = series.times.iter().chain(&series.values);
    !series.times.is_empty()
        && series.times.len() == series.values.len()
        && numbers.all(|number| number.is_finite())
}

fn time_panel(
    title: String,
    lines: Vec<(String, &TimeSeries)>,
    legend: &[(String, LineStyle)],
    unit: &str,
) -> Panel<'static> {
    let values: Vec<f64> = lines
        .iter()
        .flat_map(|(_, series)| series.values.clone())
        .collect();
    let times: Vec<f64> = lines
        .iter()
        .flat_map(|(_, series)| series.times.clone())
        .collect();
    let sentences: Vec<String> = lines
        .iter()
        .map(|(name, series)| describe_series(name, &series.values))
        .collect();
    let line = |(label, series): (String, &TimeSeries)| {
        let (_, style) = legend.iter().find(|(known, _)| *known == label)?;
        let samples = series.times.iter().zip(&series.values);
        let point = |(time, value): (&f64, &f64)| {
            Some(Point {
                x: *time,
                value: Some(*value),
                ..Point::default()
            })
        };
        let mut points: Vec<Option<Point<'_>>> = samples.map(point).collect();
        // Only the last point has a tooltip, and so a marker: markers at all samples would hide the line.
        if let Some(Some(last)) = points.last_mut() {
            let [value, time] = [last.value.unwrap_or_default(), last.x].map(text::format_value);
            last.tip = format!("{label}\n{value} {unit} after {time} s");
        }
        Some(Line {
            label,
            style: *style,
            program: None,
            points,
        })
    };
    Panel {
        title,
        description: sentences.join(" "),
        lines: lines.into_iter().filter_map(line).collect(),
        x: Axis::linear("seconds since the start", &times),
        y: Axis::linear(unit, &values),
    }
}

/// Describes a line by its range and its last value.
fn describe_series(name: &str, values: &[f64]) -> String {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let last = values.last().copied().unwrap_or_default();
    let [low, high, last] = [low, high, last].map(text::format_value);
    format!("{name}: between {low} and {high}, {last} at the end.")
}

#[cfg(test)]
mod tests {
    use super::super::samples::{self, labels};
    use super::*;
    use crate::experiment::results::ExperimentResults;

    fn over_time(results: &ExperimentResults) -> Vec<Figure<'_>> {
        timelines(&ResultGrid::of(results), "a")
    }

    #[test]
    fn a_cell_with_several_series_has_a_chart_of_its_own() {
        let results = samples::with_more();
        let drawn = over_time(&results);
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
                .starts_with("window: between 64.0 and 512, 512 at the end.")
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
    fn series_with_missing_or_infinite_numbers_are_not_drawn() {
        let mut results = samples::with_more();
        results.cells[0].series[0].values.pop();
        results.cells[0].series[1].times[0] = f64::INFINITY;
        assert!(over_time(&results).is_empty());
        results.charts.clear();
        assert!(over_time(&results).is_empty());
    }
}
