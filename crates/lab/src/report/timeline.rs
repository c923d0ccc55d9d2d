//! Figures of samples over time: a chart for each cell, or one for all programs at a point.

use super::figure::{ChartAxis, ChartLine, ChartPanel, ChartPoint, Figure, FigureKind};
use super::figure::{LegendEntry, LineStyle};
use super::grid::ResultGrid;
use super::scale::{self, ValueAxis};
use super::text;
use super::theme::{self, Palette};
use crate::experiment::results::{TimeChart, TimeSeries};

/// The figures over time of an experiment, without empty ones. `name` is the prefix of their anchors.
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

/// One series with the name of its line and the key of its program.
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
    // If all series have the same name, the programs share a chart, so that they can be compared. Otherwise
    // each program has a chart of its own.
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
    let lines = panels.iter().flat_map(|(_, lines)| lines);
    let legend = legend(lines, together.then_some(palette));
    let panels = panels.iter();
    let panels = panels.map(|(title, lines)| time_panel(title, lines, &legend, &chart.unit));
    Figure {
        kind: FigureKind::Time,
        heading: format!("{} over time", chart.title),
        panels: panels.collect(),
        legend,
        id: String::new(),
        file: String::new(),
    }
}

/// The legend: an entry for each name. With a `palette`, a line has the colour of its program as in all
/// charts; without one, lines have the colours of a ramp.
fn legend<'a>(
    lines: impl Iterator<Item = &'a NamedSeries<'a>>,
    palette: Option<&Palette>,
) -> Vec<LegendEntry> {
    let mut names: Vec<(&str, &str)> = Vec::new();
    for named in lines {
        if !names.iter().any(|(name, _)| *name == named.name) {
            names.push((&named.name, named.program));
        }
    }
    let entry = |(index, (name, program)): (usize, &(&str, &str))| LegendEntry {
        keys: format!("t{index}"),
        label: (*name).to_owned(),
        style: LineStyle {
            colour: match palette {
                Some(palette) => palette.colour(program),
                None => theme::ramp(index, names.len()),
            },
            marker: index,
            published: false,
        },
    };
    names.iter().enumerate().map(entry).collect()
}

/// Whether the series has as many finite times as values, and at least one. A results file may hold anything.
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
        // Only the last point has a tooltip, and so a marker: markers at all samples would hide the line.
        if let Some(Some(last)) = points.last_mut() {
            let [value, time] = [last.value.unwrap_or_default(), last.time].map(text::format_value);
            last.tip = format!("{}\n{value} {unit} after {time} s", line.name);
        }
        Some(ChartLine {
            entry: entry.clone(),
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

/// Describes a line by its range and its last value.
fn describe_series(line: &NamedSeries<'_>) -> String {
    let values = &line.series.values;
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let last = values.last().copied().unwrap_or_default();
    let [low, high, last] = [low, high, last].map(text::format_value);
    format!(
        "{}: between {low} and {high}, {last} at the end.",
        line.name
    )
}

#[cfg(test)]
mod tests {
    use super::super::samples::{self, labels};
    use super::*;
    use crate::experiment::results::ExperimentResults;

    fn over_time(results: &ExperimentResults) -> Vec<Figure> {
        timelines(&ResultGrid::of(results), &Palette::default(), "a")
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
