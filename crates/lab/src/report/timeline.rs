//! Lines over time: a chart for each cell of which the experiment kept samples, or one for all programs
//! at a point.

use super::chart::{Size, swatch};
use super::figure::Look;
use super::grid::Grid;
use super::markup::Markup;
use super::number::coordinate;
use super::scale::{Linear, Vertical};
use super::theme::{self, Palette};
use super::{number, svg, ticks};
use crate::experiment::results::{Chart, Series};

/// All charts over time with one title.
#[derive(Debug)]
pub(super) struct Timeline<'a> {
    /// Title and unit.
    chart: &'a Chart,
    /// Names of the lines.
    names: Vec<String>,
    /// Their colours, where they are programs, which have the same everywhere; empty: in order.
    colours: Vec<String>,
    /// A chart for each cell, or for each point where programs share it: its title, its lines with the
    /// index of their names.
    panels: Vec<(String, Vec<(usize, &'a Series)>)>,
}

/// The charts over time of an experiment that have something to show.
pub(super) fn all<'a>(grid: &Grid<'a>, palette: &Palette) -> Vec<Timeline<'a>> {
    let charts = grid.results.charts.iter().enumerate();
    charts
        .map(|(index, chart)| one(grid, palette, index, chart))
        .filter(|timeline| !timeline.panels.is_empty())
        .collect()
}

fn one<'a>(grid: &Grid<'a>, palette: &Palette, index: usize, chart: &'a Chart) -> Timeline<'a> {
    let of_chart = |series: &&Series| series.chart == index && drawable(series);
    let drawn = || {
        let cells = grid.results.cells.iter();
        cells.flat_map(|cell| cell.series.iter()).filter(of_chart)
    };
    let several = drawn().any(|series| series.run > 0);
    let first = drawn().next().map(|series| &series.line);
    // Programs of which each has the same one line are drawn together; lines of one program that
    // belong together are its own chart.
    let together = drawn().all(|series| Some(&series.line) == first);
    let mut timeline = Timeline {
        chart,
        names: Vec::new(),
        colours: Vec::new(),
        panels: Vec::new(),
    };
    for (place, cell) in grid.cells() {
        let program = grid.results.programs.get(place.program);
        let label = program.map_or("", |program| program.label.as_str());
        let point = grid.point_name(place.row, place.column);
        let mut lines = Vec::new();
        for series in cell.series.iter().filter(of_chart) {
            let line = if together { label } else { &series.line };
            let name = match several {
                true => format!("{line}, run {}", series.run + 1),
                false => line.to_owned(),
            };
            let known = timeline.names.iter().position(|other| *other == name);
            lines.push((known.unwrap_or(timeline.names.len()), series));
            if known.is_none() {
                timeline.names.push(name);
                let colour = together.then(|| palette.colour(&cell.program));
                timeline.colours.extend(colour);
            }
        }
        if lines.is_empty() {
            continue;
        }
        let title = match together {
            true => point,
            false => format!("{label}: {point}"),
        };
        match timeline
            .panels
            .iter_mut()
            .find(|(known, _)| *known == title)
        {
            Some((_, there)) => there.extend(lines),
            None => timeline.panels.push((title, lines)),
        }
    }
    timeline
}

/// A results file may hold anything.
fn drawable(series: &Series) -> bool {
    let finite = |numbers: &[f64]| numbers.iter().all(|number| number.is_finite());
    !series.times.is_empty()
        && series.times.len() == series.values.len()
        && finite(&series.times)
        && finite(&series.values)
}

/// Width and height of a chart, in the drawing's units.
const SIZE: Size = Size {
    width: 480.0,
    height: 280.0,
};

/// Size of a label's letters, as in the style sheet.
const LABEL: f64 = 12.0;

/// Size of a chart's heading, as in the style sheet.
const TITLE: f64 = 13.0;

/// Name of the horizontal axis.
const TIME: &str = "seconds since the start";

impl Timeline<'_> {
    /// Writes the charts with their legend. `id` begins their ids.
    pub(super) fn write(&self, markup: &mut Markup, id: &str) {
        markup.element("figure", &[("class", "view over-time")], |view| {
            let caption = format!("{} over time", self.chart.title);
            view.leaf("figcaption", &[], &caption);
            view.element(
                "ul",
                &[("class", "legend"), ("aria-label", "Legend")],
                |list| {
                    for (index, name) in self.names.iter().enumerate() {
                        list.element("li", &[("data-key", &key(index))], |item| {
                            let attributes = [("viewBox", "0 0 28 14"), ("aria-hidden", "true")];
                            item.element("svg", &attributes, |svg| swatch(svg, &self.look(index)));
                            item.leaf("span", &[], name);
                        });
                    }
                },
            );
            view.element("div", &[("class", "panels")], |panels| {
                for (index, (title, lines)) in self.panels.iter().enumerate() {
                    self.panel(panels, title, lines, &format!("{id}-{index}"));
                    panels.trusted("\n");
                }
            });
        });
    }

    fn panel(&self, markup: &mut Markup, title: &str, lines: &[(usize, &Series)], id: &str) {
        let view = format!("0 0 {} {}", coordinate(SIZE.width), coordinate(SIZE.height));
        let (name, description) = (format!("{id}-title"), format!("{id}-description"));
        let attributes = [
            ("class", "chart"),
            ("viewBox", view.as_str()),
            ("role", "img"),
            ("aria-labelledby", name.as_str()),
            ("aria-describedby", description.as_str()),
        ];
        markup.element("svg", &attributes, |drawing| {
            let full = format!("{title}: {} against {TIME}", self.chart.unit);
            drawing.leaf("title", &[("id", &name)], &full);
            drawing.leaf("desc", &[("id", &description)], &self.describe(lines));
            let shown = svg::fitted(title, TITLE, SIZE.width - 8.0);
            let place = [("class", "c-title"), ("x", "4"), ("y", "15")];
            drawing.leaf("text", &place, &shown);
            let frame = Frame::of(lines);
            frame.axes(drawing, &self.chart.unit);
            for (index, series) in lines {
                self.line(drawing, *index, series, &frame);
            }
        });
    }

    /// Each line's range and its last value, for readers who do not see the chart.
    fn describe(&self, lines: &[(usize, &Series)]) -> String {
        let sentences: Vec<String> = lines
            .iter()
            .map(|(index, series)| {
                let values = &series.values;
                let low = values.iter().copied().fold(f64::INFINITY, f64::min);
                let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let last = values.last().copied().unwrap_or_default();
                let [low, high, last] = [low, high, last].map(number::value);
                format!(
                    "{}: {low} to {high}, at the end {last}.",
                    self.names[*index]
                )
            })
            .collect();
        sentences.join(" ")
    }

    fn line(&self, markup: &mut Markup, index: usize, series: &Series, frame: &Frame) {
        let look = self.look(index);
        let class = format!("series {}", look.colour);
        let attributes = [("class", class.as_str()), ("data-series", &key(index))];
        markup.element("g", &attributes, |group| {
            let places: Vec<(f64, f64)> = series
                .times
                .iter()
                .zip(&series.values)
                .map(|(time, value)| frame.place(*time, *value))
                .collect();
            if let Some(path) = svg::line(places.iter().copied().map(Some)) {
                group.void("path", &[("class", "c-line"), ("d", &path)]);
            }
            let end = places
                .last()
                .zip(series.times.last().zip(series.values.last()));
            if let Some(((x, y), (time, value))) = end {
                group.element("g", &[("class", "c-point")], |point| {
                    let (name, unit) = (&self.names[index], &self.chart.unit);
                    let (value, time) = (number::value(*value), number::value(*time));
                    point.leaf(
                        "title",
                        &[],
                        &format!("{name}\n{value} {unit} after {time} s"),
                    );
                    let path = svg::marker(look.marker, *x, *y, svg::RADIUS);
                    point.void("path", &[("class", "c-mark"), ("d", &path)]);
                });
            }
        });
    }

    fn look(&self, index: usize) -> Look {
        Look {
            colour: match self.colours.get(index) {
                Some(colour) => colour.clone(),
                None => format!("r{}", theme::ramp(index, self.names.len())),
            },
            marker: index,
            published: false,
        }
    }
}

fn key(index: usize) -> String {
    format!("t{index}")
}

/// Where things are within a chart.
struct Frame {
    x: Linear,
    x_marks: Vec<f64>,
    y: Vertical,
    left: f64,
    right: f64,
}

/// Top and bottom of the frame.
const TOP: f64 = 48.0;
const BOTTOM: f64 = SIZE.height - 44.0;

impl Frame {
    fn of(lines: &[(usize, &Series)]) -> Self {
        let values: Vec<f64> = lines.iter().flat_map(|(_, s)| s.values.clone()).collect();
        let times = lines.iter().flat_map(|(_, s)| s.times.iter().copied());
        let end = times.fold(0.0, f64::max);
        let y = Vertical::linear(&values);
        let widest = y
            .labels()
            .map(|(_, label)| svg::text_width(&label, LABEL))
            .fold(20.0, f64::max);
        let (left, right) = (widest + 12.0, SIZE.width - 14.0);
        let x_marks = ticks::linear(0.0, end, 6);
        Self {
            x: Linear {
                values: (0.0, x_marks.last().copied().unwrap_or(1.0)),
                places: (left, right - svg::RADIUS),
            },
            x_marks,
            y,
            left,
            right,
        }
    }

    fn place(&self, time: f64, value: f64) -> (f64, f64) {
        (self.x.place(time), self.y.place(value, BOTTOM, TOP))
    }

    fn axes(&self, markup: &mut Markup, unit: &str) {
        let label = |markup: &mut Markup, class: &str, (x, y): (f64, f64), text: &str| {
            let (x, y) = (coordinate(x), coordinate(y));
            let class = format!("c-label{class}");
            markup.leaf("text", &[("class", &class), ("x", &x), ("y", &y)], text);
        };
        label(markup, "", (4.0, TOP - 11.0), unit);
        let (left, right) = (coordinate(self.left), coordinate(self.right));
        let mut grid = String::new();
        for (mark, text) in self.y.labels() {
            let y = self.y.place(mark, BOTTOM, TOP);
            grid.push_str(&format!("M{left} {}H{right}", coordinate(y)));
            label(markup, " c-end", (self.left - 7.0, y + 4.0), &text);
        }
        markup.void("path", &[("class", "c-grid"), ("d", &grid)]);
        let floor = coordinate(BOTTOM);
        let mut axis = format!("M{left} {floor}H{right}");
        let step = self.x_marks.get(1).copied().unwrap_or(1.0);
        for mark in &self.x_marks {
            let x = self.x.place(*mark);
            axis.push_str(&format!("M{} {floor}v5", coordinate(x)));
            label(
                markup,
                " c-middle",
                (x, BOTTOM + 18.0),
                &ticks::label(*mark, step),
            );
        }
        markup.void("path", &[("class", "c-axis"), ("d", &axis)]);
        label(markup, " c-end", (self.right, BOTTOM + 36.0), TIME);
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::Loaded;
    use super::super::samples;
    use super::*;
    use crate::experiment::results::Results;

    fn drawn(results: &Results) -> String {
        let mut markup = Markup::default();
        let loaded = [Loaded::new("one".to_owned(), results.clone())];
        let grid = Grid::of(results);
        for timeline in all(&grid, &Palette::of(&loaded)) {
            timeline.write(&mut markup, "t");
        }
        markup.finish()
    }

    #[test]
    fn a_cell_with_samples_has_a_chart_with_its_lines() {
        let chart = drawn(&samples::with_more());
        assert_eq!(chart.matches("class=\"chart\"").count(), 1);
        assert_eq!(
            chart.matches("class=\"c-line\"").count(),
            4,
            "two in the legend"
        );
        assert!(chart.contains("Window and flight size over time"));
        assert!(
            chart.contains("window: 64.0 to 512, at the end 512."),
            "{chart}"
        );
        assert!(chart.contains("longhaul: parallel streams 1, one-way latency 1"));
    }

    #[test]
    fn programs_with_one_line_each_share_a_chart() {
        let mut results = samples::with_more();
        results.cells[0].series.pop();
        let own = results.cells[0].clone();
        let other = results
            .cells
            .iter_mut()
            .find(|cell| cell.program != own.program && cell.at == own.at);
        other.unwrap().series = own.series.clone();
        let chart = drawn(&results);
        assert_eq!(chart.matches("class=\"chart\"").count(), 1);
        for name in ["longhaul", "globus-url-copy"] {
            assert!(chart.contains(&format!("<span>{name}</span>")), "{name}");
            assert!(chart.contains(&format!("{name}: 64.0 to 512")), "{name}");
        }
        assert!(chart.contains(">parallel streams 1, one-way latency 1"));
    }

    #[test]
    fn several_runs_have_lines_of_their_own() {
        let mut results = samples::with_more();
        let mut second = results.cells[0].series[0].clone();
        second.run = 1;
        results.cells[0].series.push(second);
        let chart = drawn(&results);
        for name in ["window, run 1", "window, run 2", "flight size, run 1"] {
            assert!(chart.contains(&format!("<span>{name}</span>")), "{name}");
        }
    }

    #[test]
    fn what_cannot_be_drawn_is_not() {
        let mut results = samples::with_more();
        results.cells[0].series[0].values.pop();
        results.cells[0].series[1].times[0] = f64::INFINITY;
        assert_eq!(drawn(&results), "");
        results.cells[0].series.clear();
        results.charts.clear();
        assert_eq!(drawn(&results), "");
    }

    #[test]
    fn no_name_becomes_markup() {
        let mut results = samples::with_more();
        results.charts[0].title = "<b>".to_owned();
        results.charts[0].unit = "<b>".to_owned();
        results.cells[0].series[0].line = "<b>".to_owned();
        assert!(!drawn(&results).contains("<b>"));
    }
}
