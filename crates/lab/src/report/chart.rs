//! Draws charts as SVG: axes, lines, error bars, markers, legends, posters, strips.

use std::f64::consts::TAU;

use maud::{Markup, PreEscaped, html};

use super::figure::LineStyle;
use super::figure::{
    ChartAxis, ChartLine, ChartPanel, ChartPoint, Figure, FigureKind, LegendEntry,
};
use super::scale::{self, SweptAxis};
use super::summary::RatioSpread;
use super::{text, theme};
use crate::experiment::results::ExperimentResults;

/// Number of different markers.
pub(super) const MARKERS: usize = 8;

/// Usual radius of a marker, in the drawing's units (CSS pixels at full size).
const RADIUS: f64 = 4.0;

/// With more points on a line than this, markers of the usual size would cover each other.
const MANY: usize = 24;

/// Radius of markers then.
const SMALL_RADIUS: f64 = 2.5;

/// Sizes of letters, as in the style sheet.
const LABEL: f64 = 12.0;
const TITLE: f64 = 13.0;

/// Width and height of charts: one of several, one of several with a line for each row, one over time, one
/// that stands alone.
const SMALL: (f64, f64) = (360.0, 264.0);
const TALL: (f64, f64) = (360.0, 340.0);
const WIDE: (f64, f64) = (480.0, 280.0);
const LARGE: (f64, f64) = (760.0, 400.0);

/// The size of a figure's charts, also beside others on a phone.
fn size(figure: &Figure) -> (f64, f64) {
    match figure.kind {
        FigureKind::Rows => SMALL,
        FigureKind::Programs => TALL,
        FigureKind::Time => WIDE,
    }
}

/// A figure's charts for the page. A single chart is large, and drawn a second time for phones, where its
/// letters keep their size.
pub(super) fn panels(figure: &Figure) -> Markup {
    let narrow = size(figure);
    let id = |index: usize| format!("{}-{index}", figure.id);
    let single = figure.panels.len() == 1 && figure.kind != FigureKind::Time;
    html! {
        div class=(if single { "panels single" } else { "panels" }) {
            @for (index, panel) in figure.panels.iter().enumerate() {
                @if single {
                    (inline(panel, LARGE, &id(index), "chart wide"))
                    (inline(panel, narrow, &format!("{}-small", id(index)), "chart narrow"))
                } @else {
                    (inline(panel, narrow, &id(index), "chart"))
                }
                "\n"
            }
        }
    }
}

/// A chart as an SVG element of its own. `id` must be unique on the page.
fn inline(panel: &ChartPanel, size: (f64, f64), id: &str, class: &str) -> Markup {
    let (title, description) = (format!("{id}-title"), format!("{id}-description"));
    html! {
        svg class=(class) viewBox=(format!("0 0 {} {}", px(size.0), px(size.1))) role="img"
            aria-labelledby=(title) aria-describedby=(description) {
            title id=(title) { (name(panel)) }
            desc id=(description) { (panel.description) }
            (draw(panel, size))
        }
    }
}

/// A chart's name for readers who do not see it.
fn name(panel: &ChartPanel) -> String {
    let separator = if panel.title.is_empty() { "" } else { ": " };
    format!(
        "{}{separator}{} against {}",
        panel.title,
        panel.unit,
        panel.x.name()
    )
}

/// The chart itself, with its top left corner at the origin.
fn draw(panel: &ChartPanel, size: (f64, f64)) -> Markup {
    let frame = ChartFrame::of(panel, size);
    html! {
        @if !panel.title.is_empty() {
            text class="c-title" x="4" y="15" { (fitted(&panel.title, TITLE, size.0 - 8.0)) }
        }
        text class="c-label" x="4" y=(px(frame.top - 11.0)) { (panel.unit) }
        (frame.vertical_axis())
        (frame.horizontal_axis())
        @for (index, line) in panel.lines.iter().enumerate() { (frame.line(index, line)) }
    }
}

/// Where things are within a chart.
struct ChartFrame<'a> {
    panel: &'a ChartPanel,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    swept: Option<SweptAxis>,
}

impl<'a> ChartFrame<'a> {
    fn of(panel: &'a ChartPanel, size: (f64, f64)) -> Self {
        let widths = panel
            .y
            .labels()
            .into_iter()
            .map(|(_, label)| text_width(&label, LABEL));
        let left = widths.fold(20.0, f64::max) + 12.0;
        let right = size.0 - 14.0;
        // Markers at the ends of the axis stay inside the frame.
        let inset = RADIUS + 4.0;
        let swept = match &panel.x {
            ChartAxis::Time(_) => None,
            ChartAxis::Swept {
                values,
                logarithmic,
                ..
            } => Some(SweptAxis::of(
                values,
                *logarithmic,
                left + inset,
                right - inset,
            )),
        };
        Self {
            panel,
            left,
            right,
            top: if panel.title.is_empty() { 28.0 } else { 48.0 },
            bottom: size.1 - 44.0,
            swept,
        }
    }

    /// The height of a value.
    fn y(&self, value: f64) -> f64 {
        self.panel.y.place(value, self.bottom, self.top)
    }

    /// The place of a moment on an axis of time.
    fn moment(&self, time: f64) -> f64 {
        let end = match &self.panel.x {
            ChartAxis::Time(marks) => marks.last().copied(),
            ChartAxis::Swept { .. } => None,
        };
        scale::place(
            time,
            (0.0, end.unwrap_or(1.0)),
            (self.left, self.right - RADIUS),
        )
    }

    /// How far a line is moved sideways so that it does not hide others: only where the axis
    /// has names, not numbers.
    fn dodge(&self, index: usize) -> f64 {
        let count = self.panel.lines.len();
        let Some(swept) = self
            .swept
            .as_ref()
            .filter(|swept| swept.is_category && count > 1)
        else {
            return 0.0;
        };
        #[allow(clippy::cast_precision_loss, reason = "a chart has few lines")]
        let (index, count) = (index as f64, count as f64);
        let step = (swept.room * 0.6 / count).min(RADIUS * 3.0);
        // The line that is drawn last is first in the legend, so it is to the left.
        step * ((count - 1.0) / 2.0 - index)
    }

    fn vertical_axis(&self) -> Markup {
        let labels = self.panel.y.labels();
        let (left, right) = (px(self.left), px(self.right));
        let line = |(mark, _): &(f64, String)| format!("M{left} {}H{right}", px(self.y(*mark)));
        html! {
            @for (mark, label) in &labels {
                text class="c-label c-end" x=(px(self.left - 7.0)) y=(px(self.y(*mark) + 4.0)) { (label) }
            }
            path class="c-grid" d=(labels.iter().map(line).collect::<String>()) {}
        }
    }

    /// Place, label and whether the label is shown, for each mark of the horizontal axis.
    fn marks(&self) -> Vec<(f64, String, bool)> {
        match (&self.panel.x, &self.swept) {
            (ChartAxis::Swept { values, .. }, Some(swept)) => {
                let placed = values.iter().zip(&swept.places).zip(&swept.worthy);
                let worthy = placed.filter(|(_, worthy)| **worthy);
                let (labels, places): (Vec<&String>, Vec<f64>) =
                    worthy.map(|((value, place), _)| (value, *place)).unzip();
                let widths: Vec<f64> = labels
                    .iter()
                    .map(|value| text_width(value, LABEL))
                    .collect();
                let shown = scale::with_room(&places, &widths, 5.0);
                let marks = places.into_iter().zip(labels).zip(shown);
                marks
                    .map(|((place, label), shown)| (place, label.clone(), shown))
                    .collect()
            }
            (ChartAxis::Time(marks), _) => {
                let step = marks.get(1).copied().unwrap_or(1.0);
                let mark = |mark: &f64| (self.moment(*mark), scale::label(*mark, step), true);
                marks.iter().map(mark).collect()
            }
            (ChartAxis::Swept { .. }, None) => Vec::new(),
        }
    }

    fn horizontal_axis(&self) -> Markup {
        let (marks, floor) = (self.marks(), px(self.bottom));
        let mut lines = format!("M{} {floor}H{}", px(self.left), px(self.right));
        for (place, _, shown) in &marks {
            lines += &format!("M{} {floor}v{}", px(*place), if *shown { "5" } else { "3" });
        }
        let name = fitted(self.panel.x.name(), LABEL, self.right - 4.0);
        html! {
            @for (place, label, _) in marks.iter().filter(|(.., shown)| *shown) {
                text class="c-label c-middle" x=(px(*place)) y=(px(self.bottom + 18.0)) { (label) }
            }
            path class="c-axis" d=(lines) {}
            text class="c-label c-end" x=(px(self.right)) y=(px(self.bottom + 36.0)) { (name) }
        }
    }

    fn line(&self, index: usize, line: &ChartLine) -> Markup {
        let dodge = self.dodge(index);
        let place = |(index, point): (usize, &Option<ChartPoint>)| match &self.swept {
            Some(swept) => swept.places.get(index).copied().unwrap_or_default() + dodge,
            None => self.moment(point.as_ref().map_or(0.0, |point| point.time)),
        };
        let xs: Vec<f64> = line.points.iter().enumerate().map(place).collect();
        let points = line.points.iter().zip(&xs);
        let path = connected(points.clone().map(|(point, x)| {
            let value = point.as_ref()?.value?;
            Some(format!("{} {}", px(*x), px(self.y(value))))
        }));
        html! {
            g class=(class(&line.style)) data-series=(line.keys) {
                @if !path.is_empty() { path class="c-line" d=(path) {} }
                @for (point, x) in points {
                    @if let Some(point) = point.as_ref().filter(|point| !point.tip.is_empty()) {
                        (self.point(point, &line.style, *x))
                    }
                }
            }
        }
    }

    fn point(&self, point: &ChartPoint, style: &LineStyle, x: f64) -> Markup {
        let bar = point.value.zip(point.half_width).and_then(|(value, half)| {
            let (low, high) = (self.y(value - half), self.y(value + half));
            // A bar that would hide behind its marker says nothing.
            (low - high > RADIUS).then(|| error_bar(x, low, high))
        });
        let crowded = self
            .swept
            .as_ref()
            .is_some_and(|swept| swept.places.len() > MANY);
        let radius = if crowded { SMALL_RADIUS } else { RADIUS };
        // A published point that is met exactly shows as a ring around the measured one.
        let radius = radius * if style.published { 1.4 } else { 1.0 };
        html! {
            g class="c-point" {
                title { (point.tip) }
                @if let Some(bar) = bar { path class="c-bar" d=(bar) {} }
                @if let Some(value) = point.value {
                    path class="c-mark" d=(marker(style.marker, x, self.y(value), radius)) {}
                } @else {
                    path class="c-mark c-failed" d=(cross(x, self.bottom - RADIUS - 2.0)) {}
                }
            }
        }
    }
}

fn class(style: &LineStyle) -> String {
    let published = if style.published { " published" } else { "" };
    format!("series {}{published}", style.colour)
}

/// A line with its marker, as the legend shows it, in a box of 28 by 14.
fn swatch(style: &LineStyle) -> Markup {
    html! {
        g class=(class(style)) {
            path class="c-line" d="M1 7H27" {}
            path class="c-mark" d=(marker(style.marker, 14.0, 7.0, RADIUS)) {}
        }
    }
}

/// The legend of a figure on the page.
pub(super) fn legend(entries: &[LegendEntry]) -> Markup {
    html! {
        ul class="legend" aria-label="Legend" {
            @for entry in entries {
                li data-key=(entry.key) {
                    svg viewBox="0 0 28 14" aria-hidden="true" { (swatch(&entry.style)) }
                    span { (entry.label) }
                }
            }
        }
    }
}

/// Space around and between the charts of a poster, and the height of a line of its legend.
const MARGIN: f64 = 16.0;
const LEGEND_LINE: f64 = 22.0;

/// A figure as an SVG file: heading, legend, charts side by side, and where it comes from.
pub(super) fn poster(results: &ExperimentResults, figure: &Figure) -> String {
    let layout = PosterLayout::of(figure);
    let (width, height) = (px(layout.size.0), px(layout.size.1));
    let heading = match figure.heading.as_str() {
        "" => results.title.clone(),
        heading => format!("{}, {heading}", results.title),
    };
    let source = match results.source.as_str() {
        "" => String::new(),
        source => format!("{source}; "),
    };
    let about = format!("{source}{}", text::origin(results));
    let sentence = |panel: &ChartPanel| format!("{}. {}", name(panel), panel.description);
    let description: Vec<String> = figure.panels.iter().map(sentence).collect();
    let room = layout.size.0 - MARGIN * 2.0;
    let at = |(x, y): &(f64, f64)| format!("translate({} {})", px(*x), px(*y));
    let svg = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(width) height=(height)
            viewBox=(format!("0 0 {width} {height}")) role="img"
            aria-labelledby="title" aria-describedby="description" {
            title id="title" { (heading) }
            desc id="description" { (description.join(" ")) }
            style { (PreEscaped(theme::file_style())) }
            rect class="c-page" width=(width) height=(height) {}
            text class="c-heading" x=(px(MARGIN)) y="32" { (fitted(&heading, 18.0, room)) }
            text class="c-source" x=(px(MARGIN)) y="52" { (fitted(&about, LABEL, room)) }
            @for (entry, place) in figure.legend.iter().zip(&layout.legend) {
                g transform=(at(place)) {
                    (swatch(&entry.style))
                    text class="c-title c-legend" x="36" y="11" { (entry.label) }
                }
            }
            @for (panel, place) in figure.panels.iter().zip(&layout.panels) {
                g transform=(at(place)) { (draw(panel, layout.panel)) }
            }
        }
    };
    let svg = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n",
        svg.into_string()
    );
    // XML 1.0 (section 2.2) forbids these characters: one of them would make the file unreadable.
    let forbidden =
        |c: char| c.is_control() && !"\t\n\r".contains(c) || "\u{fffe}\u{ffff}".contains(c);
    svg.replace(forbidden, "\u{fffd}")
}

/// Where everything goes on a poster: top left corners.
struct PosterLayout {
    size: (f64, f64),
    panel: (f64, f64),
    legend: Vec<(f64, f64)>,
    panels: Vec<(f64, f64)>,
}

impl PosterLayout {
    fn of(figure: &Figure) -> Self {
        let (panel, columns): (_, u32) = match figure.panels.len() {
            0 | 1 => (LARGE, 1),
            2 | 4 => (size(figure), 2),
            _ => (size(figure), 3),
        };
        let width = MARGIN + (panel.0 + MARGIN) * f64::from(columns);
        let (mut x, mut y) = (MARGIN, 68.0);
        let mut legend = Vec::new();
        for entry in &figure.legend {
            let needs = 36.0 + text_width(&entry.label, TITLE) + 18.0;
            if x > MARGIN && x + needs > width - MARGIN {
                (x, y) = (MARGIN, y + LEGEND_LINE);
            }
            legend.push((x, y));
            x += needs;
        }
        let top = y + LEGEND_LINE + 8.0;
        let place = |index: u32| {
            let (row, column) = (f64::from(index / columns), f64::from(index % columns));
            (
                MARGIN + column * (panel.0 + MARGIN),
                top + row * (panel.1 + MARGIN),
            )
        };
        let panels: Vec<(f64, f64)> = (0..).map(place).take(figure.panels.len()).collect();
        let bottom = panels.last().map_or(top, |(_, y)| *y);
        Self {
            size: (width, bottom + panel.1 + MARGIN),
            panel,
            legend,
            panels,
        }
    }
}

/// Width and height of a strip.
const STRIP: (f64, f64) = (200.0, 16.0);

/// A strip from ×0.1 to ×10 that shows how ratios spread: all of them thin, half of them thick, the median a
/// dot; ratios beyond lie at its end. The numbers are in the text beside it, so it is hidden from screen readers.
pub(super) fn strip(spread: &RatioSpread) -> Markup {
    let middle = STRIP.1 / 2.0;
    let across = |from: f64, to: f64| {
        format!(
            "M{} {}H{}",
            px(strip_place(from)),
            px(middle),
            px(strip_place(to))
        )
    };
    let tick = |ratio: f64| format!("M{} {}v4", px(strip_place(ratio)), px(middle - 2.0));
    let one = format!("M{} 1V{}", px(strip_place(1.0)), px(STRIP.1 - 1.0));
    html! {
        svg class="strip" viewBox=(format!("0 0 {} {}", px(STRIP.0), px(STRIP.1))) aria-hidden="true" {
            path class="strip-scale" d=(across(0.1, 10.0)) {}
            path class="strip-scale" d=([0.1, 0.2, 0.5, 2.0, 5.0, 10.0].map(tick).concat()) {}
            path class="strip-one" d=(one) {}
            path class="strip-all" d=(across(spread.low, spread.high)) {}
            path class="strip-half" d=(across(spread.first_quartile, spread.third_quartile)) {}
            circle class="strip-median" cx=(px(strip_place(spread.median))) cy=(px(middle)) r="4" {}
        }
    }
}

fn strip_place(ratio: f64) -> f64 {
    let decades = if ratio > 0.0 { ratio.log10() } else { -1.0 };
    scale::place(decades, (-1.0, 1.0), (0.0, STRIP.0))
}

/// A coordinate: at most two decimals, no trailing zeros.
fn px(number: f64) -> String {
    let written = format!("{number:.2}");
    match written.trim_end_matches('0').trim_end_matches('.') {
        "-0" => "0".to_owned(),
        trimmed => trimmed.to_owned(),
    }
}

/// About how wide `text` is at `size` units: system fonts differ, so rather too much.
fn text_width(text: &str, size: f64) -> f64 {
    let characters = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
    f64::from(characters) * size * 0.6
}

/// `text`, cut with an ellipsis if it would be wider than `room`.
fn fitted(text: &str, size: f64, room: f64) -> String {
    if text_width(text, size) <= room {
        return text.to_owned();
    }
    let room = room - text_width("\u{2026}", size);
    let mut cut = text.to_owned();
    while text_width(&cut, size) > room && cut.pop().is_some() {}
    format!("{}\u{2026}", cut.trim_end())
}

/// A path through points (`x y`), interrupted where one is missing; empty if no two points are neighbours.
fn connected(points: impl Iterator<Item = Option<String>>) -> String {
    let mut path = String::new();
    let mut previous: Option<String> = None;
    for point in points {
        if let (Some(from), Some(to)) = (&previous, &point) {
            if !path.ends_with(from) {
                path += &format!("M{from}");
            }
            path += &format!("L{to}");
        }
        previous = point;
    }
    path
}

/// Path of marker `number` (modulo [`MARKERS`]) of about `radius` around a point: circle, square,
/// triangle, diamond, triangle upside down, pentagon, star, hexagon. All have about the same area.
fn marker(number: usize, x: f64, y: f64, radius: f64) -> String {
    match number % MARKERS {
        0 => circle(x, y, radius),
        1 => polygon(x, y, &regular(4, radius * 1.25, 0.125)),
        2 => polygon(x, y + radius * 0.2, &regular(3, radius * 1.45, 0.0)),
        3 => polygon(x, y, &regular(4, radius * 1.35, 0.0)),
        4 => polygon(x, y - radius * 0.2, &regular(3, radius * 1.45, 0.5)),
        5 => polygon(x, y, &regular(5, radius * 1.2, 0.0)),
        6 => {
            let (outer, inner) = (
                regular(5, radius * 1.6, 0.0),
                regular(5, radius * 0.72, 0.1),
            );
            let star: Vec<_> = outer
                .into_iter()
                .zip(inner)
                .flat_map(|(a, b)| [a, b])
                .collect();
            polygon(x, y, &star)
        }
        _ => polygon(x, y, &regular(6, radius * 1.15, 0.0)),
    }
}

fn circle(x: f64, y: f64, radius: f64) -> String {
    let (left, y, across, radius) = (px(x - radius), px(y), px(radius * 2.0), px(radius));
    format!("M{left} {y}a{radius} {radius} 0 1 0 {across} 0a{radius} {radius} 0 1 0 -{across} 0Z")
}

/// Corners of a regular polygon, the first one up; `turn` is a share of a full turn.
fn regular(corners: u32, radius: f64, turn: f64) -> Vec<(f64, f64)> {
    let corner = |corner: u32| {
        let angle = TAU * (f64::from(corner) / f64::from(corners) + turn);
        (radius * angle.sin(), -radius * angle.cos())
    };
    (0..corners).map(corner).collect()
}

fn polygon(x: f64, y: f64, corners: &[(f64, f64)]) -> String {
    let corner = |(dx, dy): &(f64, f64)| format!("{} {}", px(x + dx), px(y + dy));
    let corners: Vec<String> = corners.iter().map(corner).collect();
    format!("M{}Z", corners.join("L"))
}

/// A cross: a point whose measurement failed.
fn cross(x: f64, y: f64) -> String {
    let half = RADIUS * 0.9;
    let at = |dx: f64, dy: f64| format!("{} {}", px(x + dx), px(y + dy));
    let (falling, rising) = (
        (at(-half, -half), at(half, half)),
        (at(-half, half), at(half, -half)),
    );
    format!("M{}L{}M{}L{}", falling.0, falling.1, rising.0, rising.1)
}

/// An error bar from `low` to `high` at `x`, with caps.
fn error_bar(x: f64, low: f64, high: f64) -> String {
    let (left, right, x) = (px(x - 3.0), px(x + 3.0), px(x));
    let (low, high) = (px(low), px(high));
    format!("M{left} {high}H{right}M{x} {high}V{low}M{left} {low}H{right}")
}

#[cfg(test)]
mod tests {
    use super::super::grid::ResultGrid;
    use super::super::theme::Palette;
    use super::super::{figure, samples};
    use super::*;

    fn figures(results: &ExperimentResults) -> Vec<Figure> {
        figure::sweeps(&ResultGrid::of(results), &Palette::default(), "a")
    }

    fn drawn(results: &ExperimentResults) -> String {
        inline(&figures(results)[0].panels[0], SMALL, "a", "chart").into_string()
    }

    #[test]
    fn a_chart_has_a_line_a_bar_and_a_marker_for_each_measured_point() {
        let chart = drawn(&samples::two_by_two());
        assert_eq!(chart.matches("class=\"c-line\"").count(), 3);
        assert_eq!(chart.matches("class=\"c-mark\"").count(), 6);
        assert_eq!(chart.matches("class=\"series paper published\"").count(), 1);
        assert!(chart.contains("<title id=\"a-title\">parallel streams 1: Mbit/s against"));
        let mut results = samples::two_by_two();
        results.cells[0].median = None;
        assert_eq!(
            drawn(&results).matches("c-failed").count(),
            1,
            "a cross at the floor"
        );
    }

    #[test]
    fn a_series_over_time_has_one_marker_at_its_end() {
        let results = samples::with_more();
        let timelines = figure::timelines(&ResultGrid::of(&results), &Palette::default(), "a");
        let chart = panels(&timelines[0]).into_string();
        assert_eq!(chart.matches("class=\"c-line\"").count(), 2);
        assert_eq!(chart.matches("class=\"c-mark\"").count(), 2);
        assert!(chart.contains("window\n512 kB after 0.600 s"), "{chart}");
    }

    #[test]
    fn names_on_the_axis_move_lines_apart() {
        let mut results = samples::two_by_two();
        let latency = |cell: &crate::experiment::results::ResultCell| cell.at["latency"] == "1";
        for cell in results.cells.iter_mut().filter(|cell| latency(cell)) {
            cell.at.insert("latency".to_owned(), "small".to_owned());
        }
        results.across.values[0] = "small".to_owned();
        let figures = figures(&results);
        let frame = ChartFrame::of(&figures[0].panels[0], SMALL);
        assert!(frame.dodge(0) > 0.0 && frame.dodge(1) == 0.0 && frame.dodge(2) < 0.0);
    }

    #[test]
    fn everything_is_drawn_inside_the_chart() {
        let mut results = samples::two_by_two();
        results.cells[0].half_width = Some(1e9);
        for path in drawn(&results).split(" d=\"").skip(1) {
            let path = path.split('"').next().unwrap();
            let numbers = path[1..].split(|c: char| !(c.is_ascii_digit() || c == '.'));
            let first: Vec<f64> = numbers
                .take(2)
                .map(|number| number.parse().unwrap())
                .collect();
            assert!(first[0] <= SMALL.0 && first[1] <= SMALL.1, "{path}");
        }
    }

    #[test]
    fn a_poster_stands_alone_and_its_parts_stay_inside() {
        let mut results = samples::two_by_two();
        results.unit = "Mbit\u{0}/s".to_owned();
        for number in 0..9 {
            let mut program = results.programs[1].clone();
            program.key = format!("peer{number}");
            program.label = format!("a peer with a rather long name, number {number}");
            results.programs.push(program);
        }
        for figure in figures(&results) {
            let text = poster(&results, &figure);
            assert!(text.starts_with("<?xml") && text.contains("xmlns=\"http://www.w3.org"));
            assert!(text.contains("Parallel streams against latency, by "));
            assert!(!text.contains("var(") && !text.contains("href") && !text.contains('\0'));
            let layout = PosterLayout::of(&figure);
            assert!(
                layout
                    .legend
                    .iter()
                    .all(|(x, _)| *x < layout.size.0 - MARGIN)
            );
            for (x, y) in &layout.panels {
                assert!(x + layout.panel.0 <= layout.size.0 && y + layout.panel.1 <= layout.size.1);
                assert!(
                    layout
                        .legend
                        .iter()
                        .all(|(_, line)| line + LEGEND_LINE <= y + 0.01)
                );
            }
        }
    }

    #[test]
    fn a_line_is_interrupted_where_a_point_is_missing() {
        let path = |points: &[&str]| {
            let point = |text: &&str| (!text.is_empty()).then(|| (*text).to_owned());
            connected(points.iter().map(point))
        };
        assert_eq!(path(&["0 1", "2 3", "", "4 5", "6 7"]), "M0 1L2 3M4 5L6 7");
        assert_eq!(path(&["1 1", "11 1", "11 1"]), "M1 1L11 1L11 1");
        assert_eq!(path(&["0 1", "", "1 1"]), "");
    }

    #[test]
    fn shapes_differ_and_long_texts_are_cut_to_their_room() {
        let shapes = (0..MARKERS).map(|number| marker(number, 10.0, 10.0, RADIUS));
        assert_eq!(
            shapes.collect::<std::collections::BTreeSet<_>>().len(),
            MARKERS
        );
        assert_eq!(error_bar(10.0, 20.0, 5.0), "M7 5H13M10 5V20M7 20H13");
        assert_eq!(
            [12.0, 12.5, -0.001, 100.0].map(px),
            ["12", "12.5", "0", "100"]
        );
        assert_eq!(fitted("short", 10.0, 100.0), "short");
        let cut = fitted("globus-url-copy with globus-gridftp-server", 10.0, 120.0);
        assert!(
            cut.ends_with('…') && text_width(&cut, 10.0) <= 120.0,
            "{cut}"
        );
    }

    #[test]
    fn a_strip_has_equal_factors_at_equal_distances_and_extremes_inside() {
        assert_eq!(
            [1.0, 500.0, 0.0, -1.0].map(strip_place),
            [100.0, 200.0, 0.0, 0.0]
        );
        assert!((strip_place(2.0) - 100.0 - (100.0 - strip_place(0.5))).abs() < 1e-9);
        let spread = RatioSpread::of(vec![0.5, 0.8, 1.0, 2.0, 20.0]).unwrap();
        let strip = strip(&spread).into_string();
        assert!(
            strip.contains("class=\"strip-median\" cx=\"100\" cy=\"8\""),
            "{strip}"
        );
        assert!(strip.contains("H200"));
    }
}
