//! Draws figures with plotters: the charts of a page, and the SVG file of a figure.

use std::f64::consts::TAU;

use maud::{Markup, PreEscaped, html};
use plotters::coord::Shift;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::element::DashedPathElement;
use plotters::prelude::*;

use super::axis::Axis;
use super::figure::{Figure, Line, Panel, Point};
use super::palette::{self, GRID, INK, LineStyle, MUTED, PAGE};
use super::summary::RatioSpread;

/// plotters places everything at whole units: this many are a pixel of the page.
const SCALE: i32 = 4;

/// Font sizes in pixels.
const LABEL: f64 = 12.0;
const TITLE: f64 = 13.0;
const HEADING: f64 = 18.0;

/// Radius of a marker in pixels, and of one of many on a line, where larger ones would overlap.
const RADIUS: f64 = 4.0;
const SMALL_RADIUS: f64 = 2.5;

/// Largest number of points of a line with markers of full size.
const MAX_LARGE_MARKERS: usize = 24;

/// Width and height in pixels of a chart that is alone in its figure.
const LARGE: (i32, i32) = (760, 400);

/// Space around and between the charts of an SVG file, and the height of a line of its legend, in pixels.
const MARGIN: i32 = 16;
const LEGEND_LINE: i32 = 22;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type DrawError = DrawingAreaErrorKind<std::io::Error>;

/// What a drawing says to readers who cannot see it.
struct AccessibleText<'a> {
    name: &'a str,
    description: &'a str,
}

/// A place that shows a text to a reader who points at it.
struct Tip {
    at: (i32, i32),
    text: String,
}

/// An SVG element of `size` pixels. `style` is empty on a page, whose style sheet has the rules of charts.
fn svg(
    size: (i32, i32),
    text: &AccessibleText<'_>,
    style: &str,
    draw: impl FnOnce(&Area<'_>, &mut Vec<Tip>) -> Result<(), DrawError>,
) -> Result<Markup, std::io::Error> {
    let units = |pixels: i32| pixels.unsigned_abs() * SCALE.unsigned_abs();
    let (width, height) = (units(size.0), units(size.1));
    let (mut drawn, mut tips) = (String::new(), Vec::new());
    let area = SVGBackend::with_string(&mut drawn, (width, height)).into_drawing_area();
    draw(&area, &mut tips)
        .and_then(|()| area.present())
        .map_err(std::io::Error::other)?;
    drop(area);
    // The element of plotters has no room for a title, so its content goes into one of ours.
    let content = drawn.split_once('>').map_or("", |(_, rest)| rest);
    let content = content.trim_end().trim_end_matches("</svg>");
    Ok(html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {width} {height}"))
            width=(size.0) height=(size.1) role="img" {
            title { (text.name) }
            @if !text.description.is_empty() { desc { (text.description) } }
            @if !style.is_empty() { style { (PreEscaped(style)) } }
            (PreEscaped(content))
            @for tip in &tips {
                circle cx=(tip.at.0) cy=(tip.at.1) r=(9 * SCALE) fill="none" pointer-events="all" {
                    title { (tip.text) }
                }
            }
        }
    })
}

/// The charts of a figure for a page. One that is alone is drawn in two sizes; the style sheet shows the small one on
/// phones, so that its text does not shrink.
pub(super) fn panels(figure: &Figure) -> Result<Vec<Markup>, std::io::Error> {
    let draw = |panel: &Panel, size: (i32, i32), class: &str| {
        let (name, description) = (&panel.accessible_name(), &panel.description);
        let svg = svg(
            size,
            &AccessibleText { name, description },
            "",
            |area, tips| draw_panel(area, panel, tips),
        );
        Ok(html! { div class=(class) { (svg?) } })
    };
    match figure.panels.as_slice() {
        [only] => Ok(vec![
            draw(only, LARGE, "chart wide")?,
            draw(only, figure.size, "chart narrow")?,
        ]),
        panels => panels
            .iter()
            .map(|panel| draw(panel, figure.size, "chart"))
            .collect(),
    }
}

/// A line with its marker, for the legend of a page.
pub(super) fn swatch(style: LineStyle) -> Result<Markup, std::io::Error> {
    let text = AccessibleText {
        name: "",
        description: "",
    };
    svg((28, 14), &text, "", |area, _| {
        draw_swatch(area, style, (0, 0))
    })
}

/// The text of the SVG file of a figure: heading, origin of the results, legend, and the charts in a grid.
pub(super) fn file(heading: &str, origin: &str, figure: &Figure) -> Result<String, std::io::Error> {
    let (size, columns) = match figure.panels.len() {
        0 | 1 => (LARGE, 1),
        2 | 4 => (figure.size, 2),
        _ => (figure.size, 3),
    };
    let width = MARGIN + (size.0 + MARGIN) * columns;
    let mut legend = Vec::new();
    let (mut x, mut y) = (MARGIN, 66);
    for (label, style) in &figure.legend {
        let needs = 36 + text_width(label, TITLE) + 18;
        if x > MARGIN && x + needs > width - MARGIN {
            (x, y) = (MARGIN, y + LEGEND_LINE);
        }
        legend.push(((x, y), label, *style));
        x += needs;
    }
    let top = y + LEGEND_LINE + 8;
    let places = (0..).map(|index| {
        let (column, row) = (index % columns, index / columns);
        (
            MARGIN + column * (size.0 + MARGIN),
            top + row * (size.1 + MARGIN),
        )
    });
    let panels: Vec<_> = places.zip(&figure.panels).collect();
    let bottom = panels.last().map_or(top, |((_, y), _)| y + size.1);
    let sentence = |panel: &Panel| format!("{}. {}", panel.accessible_name(), panel.description);
    let description: Vec<String> = figure.panels.iter().map(sentence).collect();
    let text = AccessibleText {
        name: heading,
        description: &description.join(" "),
    };
    let svg = svg(
        (width, bottom + MARGIN),
        &text,
        &palette::style_sheet(),
        |area, tips| {
            area.fill(&PAGE.0)?;
            let room = width - 2 * MARGIN;
            let at = |x: i32, y: i32| (x * SCALE, y * SCALE);
            area.draw_text(
                &truncated(heading, HEADING, room),
                &bold(HEADING),
                at(MARGIN, 14),
            )?;
            area.draw_text(
                &truncated(origin, LABEL, room),
                &plain(LABEL, MUTED.0),
                at(MARGIN, 40),
            )?;
            for ((x, y), label, style) in legend {
                draw_swatch(area, style, (x, y))?;
                area.draw_text(label, &plain(TITLE, INK.0), at(x + 36, y + 1))?;
            }
            for ((x, y), panel) in panels {
                draw_panel(
                    &area.clone().shrink(at(x, y), at(size.0, size.1)),
                    panel,
                    tips,
                )?;
            }
            Ok(())
        },
    )?;
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n",
        svg.into_string()
    );
    // XML 1.0 (section 2.2) forbids these characters, even escaped: a reader would reject the whole file.
    let forbidden =
        |c: char| c.is_control() && !"\t\n\r".contains(c) || "\u{fffe}\u{ffff}".contains(c);
    Ok(text.replace(forbidden, "\u{fffd}"))
}

/// Draws a chart that fills the area.
fn draw_panel(area: &Area<'_>, panel: &Panel, tips: &mut Vec<Tip>) -> Result<(), DrawError> {
    let width = i32::try_from(area.dim_in_pixel().0).unwrap_or(i32::MAX) / SCALE;
    let labels = panel
        .y
        .marks
        .iter()
        .map(|(_, label)| text_width(label, LABEL));
    let left = labels.max().unwrap_or(0) + 30;
    let (title, below) = area.split_vertically(if panel.title.is_empty() {
        0
    } else {
        22 * SCALE
    });
    if !panel.title.is_empty() {
        title.draw_text(
            &truncated(&panel.title, TITLE, width - 8),
            &bold(TITLE),
            (4 * SCALE, 4 * SCALE),
        )?;
    }
    let mut builder = ChartBuilder::on(&below);
    builder.margin_right(14 * SCALE).margin_top(10 * SCALE);
    builder
        .y_label_area_size(left * SCALE)
        .x_label_area_size(40 * SCALE);
    let mut x = panel.x.clone();
    leave_room(&mut x, width - left - 14);
    let mut chart = builder.build_cartesian_2d(x, panel.y.clone())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(GRID.0.stroke_width(SCALE.unsigned_abs()))
        .axis_style(MUTED.0.stroke_width(SCALE.unsigned_abs()))
        .set_all_tick_mark_size(5 * SCALE)
        .label_style(plain(LABEL, MUTED.0))
        .x_desc(truncated(&panel.x.name, LABEL, width))
        .y_desc(&panel.y.name)
        .draw()?;
    for line in &panel.lines {
        draw_line(&mut chart, line, tips)?;
    }
    Ok(())
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

/// Draws a line, interrupted where a value is missing, with its error bars and markers.
fn draw_line(chart: &mut Chart<'_, '_>, line: &Line, tips: &mut Vec<Tip>) -> Result<(), DrawError> {
    let colour = line.style.colour;
    let valued = |point: &Point| Some((point.x, point.value?));
    let points: Vec<Option<(f64, f64)>> = line
        .points
        .iter()
        .map(|point| point.as_ref().and_then(valued))
        .collect();
    let pieces = points.split(Option::is_none);
    for piece in pieces.filter(|piece| piece.len() > 1) {
        let piece = piece.iter().flatten().copied();
        if line.style.published {
            let thin = colour.stroke_width(SCALE.unsigned_abs() * 3 / 2);
            chart.draw_series(DashedLineSeries::new(piece, 5 * SCALE, 4 * SCALE, thin))?;
        } else {
            chart.draw_series(LineSeries::new(
                piece,
                colour.stroke_width(SCALE.unsigned_abs() * 2),
            ))?;
        }
    }
    let many = line.points.len() > MAX_LARGE_MARKERS;
    let radius = if many { SMALL_RADIUS } else { RADIUS };
    // A published point is larger, so that it remains visible as a ring around an equal measured one.
    let radius = radius * if line.style.published { 1.4 } else { 1.0 };
    for point in line
        .points
        .iter()
        .flatten()
        .filter(|point| !point.tip.is_empty())
    {
        let at = (point.x, point.value.unwrap_or(f64::NEG_INFINITY));
        if let (Some(value), Some(half)) = (point.value, point.half_width) {
            let (low, high) = (value - half, value + half);
            let style = colour.stroke_width(SCALE.unsigned_abs());
            let bar =
                ErrorBar::new_vertical(point.x, low, value, high, style, 6 * SCALE.unsigned_abs());
            chart.draw_series([bar])?;
        }
        if point.value.is_some() {
            let (fill, outline) = marker(line.style, radius);
            chart.draw_series([EmptyElement::at(at) + fill + outline])?;
        } else {
            // A failed measurement is a cross at the bottom.
            let size = f64::from(SCALE) * RADIUS;
            chart.draw_series([Cross::new(
                at,
                size,
                colour.stroke_width(SCALE.unsigned_abs() * 2),
            )])?;
        }
        tips.push(Tip {
            at: chart.backend_coord(&at),
            text: point.tip.clone(),
        });
    }
    Ok(())
}

/// Keeps the marks whose labels do not overlap on an axis of `length` pixels, the first among them.
fn leave_room(axis: &mut Axis, length: i32) {
    let mut edge = f64::NEG_INFINITY;
    let mut marks = std::mem::take(&mut axis.marks);
    marks.retain(|(value, label)| {
        let half = f64::from(text_width(label, LABEL)) / 2.0;
        let centre = axis.place(*value) * f64::from(length);
        let fits = centre - half >= edge;
        if fits {
            edge = centre + half + 5.0;
        }
        fits
    });
    axis.marks = marks;
}

/// Shapes of markers: corners, radius, rotation in turns, and the part of the radius at which a star's inner corners
/// are. All have about the area of a circle, the first one.
pub(super) const MARKERS: [(u32, f64, f64, f64); 8] = [
    (24, 1.0, 0.0, 1.0),
    (4, 1.25, 0.125, 1.0),
    (3, 1.45, 0.0, 1.0),
    (4, 1.35, 0.0, 1.0),
    (3, 1.45, 0.5, 1.0),
    (5, 1.2, 0.0, 1.0),
    (10, 1.6, 0.0, 0.45),
    (6, 1.15, 0.0, 1.0),
];

/// A corner of a marker, from the marker's centre.
type Corner = (i32, i32);

/// A marker around the origin. Markers differ in shape, so that charts are readable without colour.
fn marker(style: LineStyle, radius: f64) -> (Polygon<Corner>, PathElement<Corner>) {
    let (count, size, turn, inner) = MARKERS[style.marker % MARKERS.len()];
    let corner = |corner: u32| {
        let angle = TAU * (f64::from(corner) / f64::from(count) + turn);
        let radius = radius * size * f64::from(SCALE) * if corner % 2 == 1 { inner } else { 1.0 };
        (whole(radius * angle.sin()), whole(-radius * angle.cos()))
    };
    let corners: Vec<Corner> = (0..=count).map(corner).collect();
    let (fill, outline, width) = match style.published {
        true => (PAGE.0, style.colour, SCALE * 3 / 2),
        false => (style.colour, PAGE.0, SCALE),
    };
    let outline = outline.stroke_width(width.unsigned_abs());
    (
        Polygon::new(corners.clone(), fill),
        PathElement::new(corners, outline),
    )
}

/// A line with its marker for a legend, 28 by 14 pixels from `at`.
fn draw_swatch(area: &Area<'_>, style: LineStyle, at: (i32, i32)) -> Result<(), DrawError> {
    let point = |x: i32| ((at.0 + x) * SCALE, (at.1 + 7) * SCALE);
    let ends = [point(1), point(27)];
    if style.published {
        let thin = style.colour.stroke_width(SCALE.unsigned_abs() * 3 / 2);
        area.draw(&DashedPathElement::new(ends, 5 * SCALE, 4 * SCALE, thin))?;
    } else {
        area.draw(&PathElement::new(
            ends,
            style.colour.stroke_width(SCALE.unsigned_abs() * 2),
        ))?;
    }
    let (fill, outline) = marker(style, RADIUS);
    area.draw(&(EmptyElement::at(point(14)) + fill + outline))
}

/// A strip with a logarithmic scale from ×0.1 to ×10 that shows the spread of ratios: a thin line for all, a
/// thick one for the middle half, a dot for the median. Ratios beyond the scale are drawn at its ends.
pub(super) fn strip(spread: &RatioSpread) -> Result<Markup, std::io::Error> {
    let text = AccessibleText {
        name: "",
        description: "",
    };
    svg((208, 16), &text, "", |area, _| {
        let place = |ratio: f64| {
            whole((104.0 + 100.0 * ratio.max(0.1).log10().min(1.0)) * f64::from(SCALE))
        };
        let line = |from: (f64, i32), to: (f64, i32), style: ShapeStyle| {
            area.draw(&PathElement::new(
                [(place(from.0), from.1 * SCALE), (place(to.0), to.1 * SCALE)],
                style,
            ))
        };
        let width = |pixels: i32| (pixels * SCALE).unsigned_abs();
        let programs = LineStyle::of_program(0);
        line((0.1, 8), (10.0, 8), GRID.0.stroke_width(width(1)))?;
        line((1.0, 1), (1.0, 15), MUTED.0.stroke_width(width(1)))?;
        line(
            (spread.low, 8),
            (spread.high, 8),
            programs.colour.stroke_width(width(2)),
        )?;
        let half = programs.colour.mix(0.45).stroke_width(width(6));
        line((spread.first_quartile, 8), (spread.third_quartile, 8), half)?;
        let (fill, outline) = marker(programs, RADIUS);
        area.draw(&(EmptyElement::at((place(spread.median), 8 * SCALE)) + fill + outline))
    })
}

fn plain(size: f64, colour: RGBColor) -> TextStyle<'static> {
    // plotters divides font sizes by this number when it writes SVG.
    let size = size * 1.24 * f64::from(SCALE);
    ("system-ui, Arial, sans-serif", size)
        .into_font()
        .color(&colour)
}

fn bold(size: f64) -> TextStyle<'static> {
    let style = plain(size, INK.0);
    TextStyle {
        font: style.font.style(FontStyle::Bold),
        ..style
    }
}

/// Estimates the width of `text` in pixels. Fonts differ between systems, so the estimate is generous.
fn text_width(text: &str, size: f64) -> i32 {
    let characters = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
    whole(f64::from(characters) * size * 0.6)
}

/// `text`, shortened with an ellipsis if it would be wider than `room`.
fn truncated(text: &str, size: f64, room: i32) -> String {
    if text_width(text, size) <= room {
        return text.to_owned();
    }
    let room = room - text_width("\u{2026}", size);
    let mut cut = text.to_owned();
    while text_width(&cut, size) > room && cut.pop().is_some() {}
    format!("{}\u{2026}", cut.trim_end())
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "the cast saturates, and a drawing is far smaller"
)]
fn whole(units: f64) -> i32 {
    units.round() as i32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::grid::ResultGrid;
    use super::super::palette::Palette;
    use super::super::{figure, samples, timeline};
    use super::*;
    use crate::experiment::results::ExperimentResults;

    fn figures(results: &ExperimentResults) -> Vec<Figure> {
        figure::sweeps(&ResultGrid::of(results), &Palette::default(), "a")
    }

    fn drawn(results: &ExperimentResults) -> String {
        panels(&figures(results)[0]).unwrap()[0]
            .clone()
            .into_string()
    }

    /// The number of lines with two ends in the colour of programs.
    fn bars(chart: &str) -> usize {
        chart
            .matches("<line opacity=\"1\" stroke=\"#0064B0\"")
            .count()
    }

    #[test]
    fn a_chart_has_a_line_an_error_bar_a_marker_and_a_tip_for_each_measured_point() {
        let mut results = samples::two_by_two();
        let chart = drawn(&results);
        assert!(
            chart
                .contains("<title>parallel streams 1: Mbit/s against one-way latency (ms)</title>")
        );
        assert!(chart.contains("<desc>longhaul: 100 at 1 to 200 at 50."));
        assert_eq!(chart.matches("<polygon").count(), 6);
        assert_eq!(
            chart
                .matches("longhaul\nparallel streams 1, one-way latency 1\u{a0}ms\n100 ± 5 Mbit/s")
                .count(),
            1
        );
        assert_eq!(chart.matches("pointer-events").count(), 6);
        // Both programs have the first colour of an empty palette; an error bar is three lines.
        assert_eq!(bars(&chart), 4 * 3);
        results.cells[0].half_width = None;
        assert_eq!(bars(&drawn(&results)), 3 * 3);
        results.cells[0].median = None;
        let failed = drawn(&results);
        assert_eq!(
            (failed.matches("<polygon").count(), bars(&failed)),
            (5, 3 * 3 + 2),
            "a cross at the bottom"
        );
    }

    #[test]
    fn a_line_is_interrupted_where_a_value_is_missing() {
        let mut results = samples::two_by_two();
        results.programs.truncate(1);
        results.across.values = ["1", "50", "60", "70", "80"].map(str::to_owned).to_vec();
        results.down = None;
        results.cells.truncate(1);
        for value in ["50", "70", "80"] {
            let mut cell = results.cells[0].clone();
            cell.at.insert("latency".to_owned(), value.to_owned());
            results.cells.push(cell);
        }
        let lines = |chart: &str| {
            chart
                .matches("stroke=\"#0064B0\" stroke-width=\"8\" points")
                .count()
        };
        assert_eq!(lines(&drawn(&results)), 2);
        results.cells[1].median = None;
        assert_eq!(lines(&drawn(&results)), 1, "a single point has no line");
    }

    #[test]
    fn a_series_over_time_has_one_marker_at_its_end() {
        let results = samples::with_more();
        let timelines = timeline::timelines(&ResultGrid::of(&results), &Palette::default(), "a");
        let chart = panels(&timelines[0]).unwrap()[0].clone().into_string();
        assert_eq!(chart.matches("<polygon").count(), 2);
        assert!(chart.contains("window\n512 kB after 0.600 s"), "{chart}");
    }

    #[test]
    fn an_svg_file_is_self_contained_and_its_parts_are_inside() {
        let mut results = samples::two_by_two();
        results.unit = "Mbit\u{0}/s</text>".to_owned();
        results.cells[0].half_width = Some(1e9);
        for number in 0..9 {
            let mut program = results.programs[1].clone();
            program.key = format!("peer{number}");
            program.label = format!("a peer with a rather long name, number {number}");
            results.programs.push(program);
        }
        for figure in figures(&results) {
            let text = file("A heading", "An origin", &figure).unwrap();
            assert!(text.starts_with("<?xml") && text.contains("xmlns=\"http://www.w3.org"));
            assert!(text.contains("A heading") && text.contains("prefers-color-scheme:dark"));
            assert!(text.contains("Mbit\u{fffd}/s&lt;/text&gt;") && !text.contains("href"));
            let number = |text: &str, begin: &str| -> Option<f64> {
                text.split_once(begin)?.1.split_once('"')?.0.parse().ok()
            };
            let size = text
                .split_once("viewBox=\"0 0 ")
                .unwrap()
                .1
                .split_once('"')
                .unwrap()
                .0;
            let (width, height) = size.split_once(' ').unwrap();
            let (width, height): (f64, f64) = (width.parse().unwrap(), height.parse().unwrap());
            for line in text.lines() {
                for (x, y) in [
                    (" x=\"", " y=\""),
                    (" x1=\"", " y1=\""),
                    (" x2=\"", " y2=\""),
                    (" cx=\"", " cy=\""),
                ] {
                    let (x, y) = (
                        number(line, x).unwrap_or(0.0),
                        number(line, y).unwrap_or(0.0),
                    );
                    assert!(
                        (0.0..=width).contains(&x) && (0.0..=height).contains(&y),
                        "{line}"
                    );
                }
            }
        }
    }

    #[test]
    fn markers_differ_and_long_texts_are_cut_to_their_room() {
        let shapes = (0..MARKERS.len()).map(|number| MARKERS[number]);
        let shapes: BTreeSet<String> = shapes.map(|shape| format!("{shape:?}")).collect();
        assert_eq!(shapes.len(), MARKERS.len());
        assert_eq!(truncated("short", 10.0, 100), "short");
        let cut = truncated("globus-url-copy with globus-gridftp-server", 10.0, 120);
        assert!(cut.ends_with('…') && text_width(&cut, 10.0) <= 120, "{cut}");
    }

    #[test]
    fn labels_that_would_overlap_are_left_out() {
        let mut axis = Axis::linear("", &[0.0, 1000.0]);
        let labels = |axis: &Axis| {
            axis.marks
                .iter()
                .map(|(_, label)| label.clone())
                .collect::<Vec<_>>()
        };
        leave_room(&mut axis, 400);
        assert_eq!(axis.marks.len(), 6);
        leave_room(&mut axis, 90);
        assert_eq!(labels(&axis), ["0", "400", "800"]);
    }

    #[test]
    fn a_strip_is_logarithmic_and_extremes_are_at_its_ends() {
        let spread = RatioSpread::of(vec![0.01, 1.0, 500.0]).unwrap();
        let strip = strip(&spread).unwrap().into_string();
        assert!(strip.contains("points=\"16,32 816,32 \""), "{strip}");
        assert!(
            strip.contains("points=\"416,4 416,60 \""),
            "the mark at 1: {strip}"
        );
    }
}
