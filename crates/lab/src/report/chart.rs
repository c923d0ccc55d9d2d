//! Draws charts as SVG: axes, lines, error bars, markers and legends.

use maud::{Markup, html};

use super::figure::LineStyle;
use super::figure::{
    ChartAxis, ChartLine, ChartPanel, ChartPoint, Figure, FigureKind, LegendEntry,
};
use super::scale::{self, SweptAxis};
use super::shapes::{RADIUS, cross, error_bar, line_path, marker, px, text_width, truncated};

/// Number of points from which markers are smaller, because larger ones would overlap.
const MANY: usize = 24;

/// Radius of the smaller markers.
const SMALL_RADIUS: f64 = 2.5;

/// Font size of labels, as in the style sheet.
pub(super) const LABEL: f64 = 12.0;
/// Font size of titles, as in the style sheet.
pub(super) const TITLE: f64 = 13.0;

/// Width and height of a chart by row.
const SMALL: (f64, f64) = (360.0, 264.0);
/// Width and height of a chart by program.
const TALL: (f64, f64) = (360.0, 340.0);
/// Width and height of a chart over time.
const WIDE: (f64, f64) = (480.0, 280.0);
/// Width and height of the only chart of a figure.
pub(super) const LARGE: (f64, f64) = (760.0, 400.0);

/// The size of each chart of a figure with several, and of a single chart on a phone.
pub(super) fn size(figure: &Figure) -> (f64, f64) {
    match figure.kind {
        FigureKind::Rows => SMALL,
        FigureKind::Programs => TALL,
        FigureKind::Time => WIDE,
    }
}

/// A figure's charts for the page. A single chart is drawn in two sizes; the style sheet shows the small one
/// on phones, so that its text does not shrink.
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

/// A chart as a separate SVG element. `id` must be unique on the page.
fn inline(panel: &ChartPanel, size: (f64, f64), id: &str, class: &str) -> Markup {
    let (title, description) = (format!("{id}-title"), format!("{id}-description"));
    html! {
        svg class=(class) viewBox=(format!("0 0 {} {}", px(size.0), px(size.1))) role="img"
            aria-labelledby=(title) aria-describedby=(description) {
            title id=(title) { (accessible_name(panel)) }
            desc id=(description) { (panel.description) }
            (draw(panel, size))
        }
    }
}

/// A chart's name for readers who cannot see it.
pub(super) fn accessible_name(panel: &ChartPanel) -> String {
    let separator = if panel.title.is_empty() { "" } else { ": " };
    format!(
        "{}{separator}{} against {}",
        panel.title,
        panel.unit,
        panel.x.name()
    )
}

/// Draws the chart with its top left corner at the origin.
pub(super) fn draw(panel: &ChartPanel, size: (f64, f64)) -> Markup {
    let frame = ChartFrame::of(panel, size);
    html! {
        @if !panel.title.is_empty() {
            text class="c-title" x="4" y="15" { (truncated(&panel.title, TITLE, size.0 - 8.0)) }
        }
        text class="c-label" x="4" y=(px(frame.top - 11.0)) { (panel.unit) }
        (frame.vertical_axis())
        (frame.horizontal_axis())
        @for (index, line) in panel.lines.iter().enumerate() { (frame.line(index, line)) }
    }
}

/// Coordinates within a chart.
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
        // The inset keeps markers at the ends of the axis inside the frame.
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

    /// The vertical coordinate of a value.
    fn y(&self, value: f64) -> f64 {
        self.panel.y.place(value, self.bottom, self.top)
    }

    /// The horizontal coordinate of a time in seconds on an axis of time.
    fn x_of_time(&self, time: f64) -> f64 {
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

    /// Distance by which a line is moved sideways, so that lines do not hide each other. It is 0 on an axis of
    /// numbers, where the position has a meaning.
    fn sideways_offset(&self, index: usize) -> f64 {
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
        let step = (swept.smallest_step * 0.6 / count).min(RADIUS * 3.0);
        // The line that is drawn last is the first in the legend, so it is the leftmost.
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

    /// The marks of the horizontal axis: coordinate, label, and whether there is room for the label.
    fn marks(&self) -> Vec<(f64, String, bool)> {
        match (&self.panel.x, &self.swept) {
            (ChartAxis::Swept { values, .. }, Some(swept)) => {
                let placed = values
                    .iter()
                    .zip(&swept.places)
                    .zip(&swept.label_candidates);
                let label_candidates = placed.filter(|(_, is_candidate)| **is_candidate);
                let (labels, places): (Vec<&String>, Vec<f64>) = label_candidates
                    .map(|((value, place), _)| (value, *place))
                    .unzip();
                let widths: Vec<f64> = labels
                    .iter()
                    .map(|value| text_width(value, LABEL))
                    .collect();
                let shown = scale::labels_with_room(&places, &widths, 5.0);
                let marks = places.into_iter().zip(labels).zip(shown);
                marks
                    .map(|((place, label), shown)| (place, label.clone(), shown))
                    .collect()
            }
            (ChartAxis::Time(marks), _) => {
                let step = marks.get(1).copied().unwrap_or(1.0);
                let mark =
                    |mark: &f64| (self.x_of_time(*mark), scale::format_mark(*mark, step), true);
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
        let name = truncated(self.panel.x.name(), LABEL, self.right - 4.0);
        html! {
            @for (place, label, _) in marks.iter().filter(|(.., shown)| *shown) {
                text class="c-label c-middle" x=(px(*place)) y=(px(self.bottom + 18.0)) { (label) }
            }
            path class="c-axis" d=(lines) {}
            text class="c-label c-end" x=(px(self.right)) y=(px(self.bottom + 36.0)) { (name) }
        }
    }

    fn line(&self, index: usize, line: &ChartLine) -> Markup {
        let offset = self.sideways_offset(index);
        let place = |(index, point): (usize, &Option<ChartPoint>)| match &self.swept {
            Some(swept) => swept.places.get(index).copied().unwrap_or_default() + offset,
            None => self.x_of_time(point.as_ref().map_or(0.0, |point| point.time)),
        };
        let xs: Vec<f64> = line.points.iter().enumerate().map(place).collect();
        let points = line.points.iter().zip(&xs);
        let path = line_path(points.clone().map(|(point, x)| {
            let value = point.as_ref()?.value?;
            Some(format!("{} {}", px(*x), px(self.y(value))))
        }));
        html! {
            g class=(class(&line.entry.style)) data-series=(line.entry.keys) {
                @if !path.is_empty() { path class="c-line" d=(path) {} }
                @for (point, x) in points {
                    @if let Some(point) = point.as_ref().filter(|point| !point.tip.is_empty()) {
                        (self.point(point, &line.entry.style, *x))
                    }
                }
            }
        }
    }

    fn point(&self, point: &ChartPoint, style: &LineStyle, x: f64) -> Markup {
        let bar = point.value.zip(point.half_width).and_then(|(value, half)| {
            let (low, high) = (self.y(value - half), self.y(value + half));
            // A shorter bar would be hidden by its marker.
            (low - high > RADIUS).then(|| error_bar(x, low, high))
        });
        let crowded = self
            .swept
            .as_ref()
            .is_some_and(|swept| swept.places.len() > MANY);
        let radius = if crowded { SMALL_RADIUS } else { RADIUS };
        // A published point is larger, so that it remains visible as a ring around an equal measured one.
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

/// A line with its marker for the legend, in a box of 28 by 14 units.
pub(super) fn swatch(style: &LineStyle) -> Markup {
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
                li data-key=(entry.keys) {
                    svg viewBox="0 0 28 14" aria-hidden="true" { (swatch(&entry.style)) }
                    span { (entry.label) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::grid::ResultGrid;
    use super::super::theme::Palette;
    use super::super::{figure, samples, timeline};
    use super::*;
    use crate::experiment::results::ExperimentResults;

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
            "a cross at the bottom"
        );
    }

    #[test]
    fn a_series_over_time_has_one_marker_at_its_end() {
        let results = samples::with_more();
        let timelines = timeline::timelines(&ResultGrid::of(&results), &Palette::default(), "a");
        let chart = panels(&timelines[0]).into_string();
        assert_eq!(chart.matches("class=\"c-line\"").count(), 2);
        assert_eq!(chart.matches("class=\"c-mark\"").count(), 2);
        assert!(chart.contains("window\n512 kB after 0.600 s"), "{chart}");
    }

    #[test]
    fn lines_are_moved_apart_on_an_axis_of_names() {
        let mut results = samples::two_by_two();
        let latency = |cell: &crate::experiment::results::ResultCell| cell.at["latency"] == "1";
        for cell in results.cells.iter_mut().filter(|cell| latency(cell)) {
            cell.at.insert("latency".to_owned(), "small".to_owned());
        }
        results.across.values[0] = "small".to_owned();
        let figures = figures(&results);
        let frame = ChartFrame::of(&figures[0].panels[0], SMALL);
        assert!(
            frame.sideways_offset(0) > 0.0
                && frame.sideways_offset(1) == 0.0
                && frame.sideways_offset(2) < 0.0
        );
    }

    #[test]
    fn all_paths_are_inside_the_chart() {
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
}
