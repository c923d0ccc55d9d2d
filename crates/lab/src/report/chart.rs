//! Draws one chart: axes, lines, error bars and markers.

use super::figure::{Figure, Horizontal, Look, Panel, Point, Series, Split};
use super::markup::Markup;
use super::number::coordinate;
use super::scale::{Kind, Sweep, Vertical};
use super::{svg, ticks};

/// Size of a label's letters, as in the style sheet.
const LABEL: f64 = 12.0;

/// Size of a chart's heading, as in the style sheet.
const TITLE: f64 = 13.0;

/// Width and height, in the drawing's units (CSS pixels at full size).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Size {
    /// Horizontally.
    pub(super) width: f64,
    /// Vertically.
    pub(super) height: f64,
}

/// One of several charts side by side.
const SMALL: Size = Size {
    width: 360.0,
    height: 264.0,
};

/// One of several charts with a line for each row, measured and published.
const TALL: Size = Size {
    width: 360.0,
    height: 340.0,
};

/// A chart that stands alone.
const LARGE: Size = Size {
    width: 760.0,
    height: 400.0,
};

/// The size of a figure's charts.
pub(super) fn size(figure: &Figure) -> Size {
    match figure.split {
        _ if figure.is_single() => LARGE,
        Split::Programs => TALL,
        Split::Rows => SMALL,
    }
}

/// The size of a figure's charts on a phone.
pub(super) fn phone_size(figure: &Figure) -> Size {
    match figure.split {
        Split::Programs => TALL,
        Split::Rows => SMALL,
    }
}

/// A chart as an SVG element of its own, for the page. `id` must be unique there.
pub(super) fn inline(
    markup: &mut Markup,
    figure: &Figure,
    panel: &Panel,
    size: Size,
    id: &str,
    class: &str,
) {
    let view = format!("0 0 {} {}", coordinate(size.width), coordinate(size.height));
    let (title, description) = (format!("{id}-title"), format!("{id}-description"));
    let attributes = [
        ("class", class),
        ("viewBox", view.as_str()),
        ("role", "img"),
        ("aria-labelledby", title.as_str()),
        ("aria-describedby", description.as_str()),
    ];
    markup.element("svg", &attributes, |svg| {
        svg.leaf("title", &[("id", &title)], &name(figure, panel));
        svg.leaf("desc", &[("id", &description)], &describe(figure, panel));
        draw(svg, figure, panel, size);
    });
}

/// A chart's name for readers who do not see it.
pub(super) fn name(figure: &Figure, panel: &Panel) -> String {
    let axes = format!("{} against {}", figure.unit, figure.x.name);
    if panel.title.is_empty() {
        axes
    } else {
        format!("{}: {axes}", panel.title)
    }
}

/// Each line's first and last value, for readers who do not see the chart.
pub(super) fn describe(figure: &Figure, panel: &Panel) -> String {
    let mut text = String::new();
    for series in panel.series.iter().rev() {
        let values: Vec<(&String, f64)> = figure
            .x
            .values
            .iter()
            .zip(&series.points)
            .filter_map(|(at, point)| Some((at, point.as_ref()?.value?)))
            .collect();
        if let (Some(first), Some(last)) = (values.first(), values.last()) {
            let (from, to) = (super::number::value(first.1), super::number::value(last.1));
            text.push_str(&format!(
                "{}: {from} at {} to {to} at {}. ",
                series.label, first.0, last.0
            ));
        }
    }
    text.trim_end().to_owned()
}

/// The chart itself, with its top left corner at the origin.
pub(super) fn draw(markup: &mut Markup, figure: &Figure, panel: &Panel, size: Size) {
    let frame = Frame::of(figure, panel, size);
    if !panel.title.is_empty() {
        let shown = svg::fitted(&panel.title, TITLE, size.width - 8.0);
        markup.leaf(
            "text",
            &[("class", "c-title"), ("x", "4"), ("y", "15")],
            &shown,
        );
    }
    let unit_at = coordinate(frame.top - 11.0);
    markup.leaf(
        "text",
        &[("class", "c-label"), ("x", "4"), ("y", &unit_at)],
        &figure.unit,
    );
    vertical_axis(markup, figure, &frame);
    horizontal_axis(markup, &figure.x, &frame);
    for (index, series) in panel.series.iter().enumerate() {
        let dodge = frame.dodge(index, panel.series.len());
        draw_series(markup, series, &frame, dodge);
    }
}

/// With more points on a line than this, markers of the usual size would cover each other.
const MANY: usize = 24;

/// Radius of markers then.
const SMALL_RADIUS: f64 = 2.5;

/// Where things are within a chart.
struct Frame<'a> {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    x: Sweep,
    y: &'a Vertical,
    /// Of markers.
    radius: f64,
}

impl<'a> Frame<'a> {
    fn of(figure: &'a Figure, panel: &Panel, size: Size) -> Self {
        let widest = figure
            .y
            .labels()
            .map(|(_, label)| svg::text_width(&label, LABEL))
            .fold(0.0, f64::max);
        let left = widest.max(20.0) + 12.0;
        let right = size.width - 14.0;
        let top = if panel.title.is_empty() { 28.0 } else { 48.0 };
        let bottom = size.height - 44.0;
        // Markers at the ends of the axis stay inside the frame.
        let inset = svg::RADIUS + 4.0;
        let values = &figure.x.values;
        Self {
            left,
            right,
            top,
            bottom,
            x: Sweep::of(values, figure.x.logarithmic, left + inset, right - inset),
            y: &figure.y,
            radius: if values.len() > MANY {
                SMALL_RADIUS
            } else {
                svg::RADIUS
            },
        }
    }

    /// Where a value is.
    fn height(&self, value: f64) -> f64 {
        self.y.place(value, self.bottom, self.top)
    }

    /// How far a series is moved sideways so that it does not hide others: only where the axis
    /// has names, not numbers.
    fn dodge(&self, index: usize, count: usize) -> f64 {
        if self.x.kind != Kind::Category || count < 2 {
            return 0.0;
        }
        let (Ok(index), Ok(count)) = (u32::try_from(index), u32::try_from(count)) else {
            return 0.0;
        };
        let step = (self.x.room * 0.6 / f64::from(count)).min(svg::RADIUS * 3.0);
        // What is drawn last is first in the legend, so it is to the left.
        step * (f64::from(count - 1) / 2.0 - f64::from(index))
    }
}

fn vertical_axis(markup: &mut Markup, figure: &Figure, frame: &Frame<'_>) {
    let mut lines = String::new();
    for (mark, label) in figure.y.labels() {
        let y = frame.height(mark);
        let (left, right) = (coordinate(frame.left), coordinate(frame.right));
        lines.push_str(&format!("M{left} {}H{right}", coordinate(y)));
        let (x, y) = (coordinate(frame.left - 7.0), coordinate(y + 4.0));
        markup.leaf(
            "text",
            &[("class", "c-label c-end"), ("x", &x), ("y", &y)],
            &label,
        );
    }
    markup.void("path", &[("class", "c-grid"), ("d", &lines)]);
}

fn horizontal_axis(markup: &mut Markup, axis: &Horizontal, frame: &Frame<'_>) {
    let floor = coordinate(frame.bottom);
    let mut lines = format!(
        "M{} {floor}H{}",
        coordinate(frame.left),
        coordinate(frame.right)
    );
    let candidates: Vec<(&String, f64)> = axis
        .values
        .iter()
        .zip(&frame.x.places)
        .zip(&frame.x.worthy)
        .filter(|(_, worthy)| **worthy)
        .map(|((value, place), _)| (value, *place))
        .collect();
    let places: Vec<f64> = candidates.iter().map(|(_, place)| *place).collect();
    let widths: Vec<f64> = candidates
        .iter()
        .map(|(value, _)| svg::text_width(value, LABEL))
        .collect();
    let shown = ticks::with_room(&places, &widths, 5.0);
    let label_at = coordinate(frame.bottom + 18.0);
    for ((value, place), shown) in candidates.into_iter().zip(shown) {
        let x = coordinate(place);
        lines.push_str(&format!("M{x} {floor}v{}", if shown { "5" } else { "3" }));
        if shown {
            let attributes = [("class", "c-label c-middle"), ("x", &x), ("y", &label_at)];
            markup.leaf("text", &attributes, value);
        }
    }
    markup.void("path", &[("class", "c-axis"), ("d", &lines)]);
    let (x, y) = (coordinate(frame.right), coordinate(frame.bottom + 36.0));
    let name = svg::fitted(&axis.name, LABEL, frame.right - 4.0);
    markup.leaf(
        "text",
        &[("class", "c-label c-end"), ("x", &x), ("y", &y)],
        &name,
    );
}

fn draw_series(markup: &mut Markup, series: &Series, frame: &Frame<'_>, dodge: f64) {
    let class = class(&series.look);
    markup.element(
        "g",
        &[("class", &class), ("data-series", &series.keys)],
        |group| {
            let places: Vec<f64> = frame.x.places.iter().map(|place| place + dodge).collect();
            let points = series.points.iter().zip(&places).map(|(point, x)| {
                let value = point.as_ref()?.value?;
                Some((*x, frame.height(value)))
            });
            if let Some(path) = svg::line(points) {
                group.void("path", &[("class", "c-line"), ("d", &path)]);
            }
            for (point, x) in series.points.iter().zip(&places) {
                if let Some(point) = point {
                    draw_point(group, point, &series.look, *x, frame);
                }
            }
        },
    );
}

fn draw_point(markup: &mut Markup, point: &Point, look: &Look, x: f64, frame: &Frame<'_>) {
    markup.element("g", &[("class", "c-point")], |group| {
        group.leaf("title", &[], &point.tip);
        let Some(value) = point.value else {
            let path = svg::cross(x, frame.bottom - svg::RADIUS - 2.0);
            group.void("path", &[("class", "c-mark c-failed"), ("d", &path)]);
            return;
        };
        let y = frame.height(value);
        if let Some(half) = point.half_width {
            let (low, high) = (frame.height(value - half), frame.height(value + half));
            // A bar that would hide behind its marker says nothing.
            if low - high > svg::RADIUS {
                let path = svg::error_bar(x, low, high);
                group.void("path", &[("class", "c-bar"), ("d", &path)]);
            }
        }
        // A published point that is met exactly shows as a ring around the measured one.
        let radius = frame.radius * if look.published { 1.4 } else { 1.0 };
        let path = svg::marker(look.marker, x, y, radius);
        group.void("path", &[("class", "c-mark"), ("d", &path)]);
    });
}

/// A line with its marker, as the legend shows it, in a box of 28 by 14.
pub(super) fn swatch(markup: &mut Markup, look: &Look) {
    markup.element("g", &[("class", &class(look))], |group| {
        group.void("path", &[("class", "c-line"), ("d", "M1 7H27")]);
        let path = svg::marker(look.marker, 14.0, 7.0, svg::RADIUS);
        group.void("path", &[("class", "c-mark"), ("d", &path)]);
    });
}

fn class(look: &Look) -> String {
    let published = if look.published { " published" } else { "" };
    format!("series {}{published}", look.colour)
}

#[cfg(test)]
mod tests {
    use super::super::grid::Grid;
    use super::super::theme::Palette;
    use super::super::{lines, samples};
    use super::*;
    use crate::experiment::results::Results;

    fn drawn(results: &Results) -> String {
        let figures = lines::all(&Grid::of(results), &Palette::default());
        let mut markup = Markup::default();
        inline(
            &mut markup,
            &figures[0],
            &figures[0].panels[0],
            SMALL,
            "a",
            "chart",
        );
        markup.finish()
    }

    #[test]
    fn a_chart_has_a_line_a_bar_and_a_marker_for_what_was_measured() {
        let chart = drawn(&samples::two_by_two());
        assert_eq!(chart.matches("class=\"c-line\"").count(), 3);
        assert_eq!(chart.matches("class=\"c-mark\"").count(), 6);
        assert_eq!(chart.matches("class=\"series paper published\"").count(), 1);
        assert!(chart.contains("<title id=\"a-title\">parallel streams 1: Mbit/s against"));
        assert!(
            chart.contains("longhaul: 100 at 1 to 200 at 50."),
            "{chart}"
        );
    }

    #[test]
    fn a_failed_point_is_a_cross_at_the_floor() {
        let mut results = samples::two_by_two();
        results.cells[0].median = None;
        let chart = drawn(&results);
        assert_eq!(chart.matches("c-failed").count(), 1);
    }

    #[test]
    fn names_on_the_axis_move_series_apart() {
        let mut results = samples::two_by_two();
        results.across.values[0] = "small".to_owned();
        for cell in &mut results.cells {
            if cell.at["latency"] == "1" {
                cell.at.insert("latency".to_owned(), "small".to_owned());
            }
        }
        let figures = lines::all(&Grid::of(&results), &Palette::default());
        let frame = Frame::of(&figures[0], &figures[0].panels[0], SMALL);
        assert_eq!(frame.dodge(1, 3), 0.0);
        assert!(frame.dodge(0, 3) > 0.0 && frame.dodge(2, 3) < 0.0);
    }

    #[test]
    fn what_a_program_is_called_cannot_be_markup() {
        let mut results = samples::two_by_two();
        results.programs[0].label = "</title><script>alert(1)</script>".to_owned();
        results.unit = "<b>".to_owned();
        let chart = drawn(&results);
        assert!(
            !chart.contains("<script") && !chart.contains("<b>"),
            "{chart}"
        );
    }

    #[test]
    fn everything_is_drawn_inside_the_chart() {
        let mut results = samples::two_by_two();
        results.cells[0].half_width = Some(1e9);
        let chart = drawn(&results);
        for path in chart.split(" d=\"").skip(1) {
            let path = path.split('"').next().unwrap();
            let first: Vec<f64> = path[1..]
                .split(|character: char| !(character.is_ascii_digit() || character == '.'))
                .take(2)
                .map(|number| number.parse().unwrap())
                .collect();
            assert!(
                first[0] <= SMALL.width && first[1] <= SMALL.height,
                "{path}"
            );
        }
    }
}
