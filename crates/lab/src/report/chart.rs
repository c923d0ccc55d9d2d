//! Draws a figure with plotters as an SVG document, for its file and for its page.

use std::f64::consts::TAU;

use maud::{PreEscaped, html};
use plotters::coord::Shift;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::element::DashedPathElement;
use plotters::prelude::*;

use super::axis::Axis;
use super::figure::{Figure, Panel};
use super::lines::{Line, Point};
use super::palette::{self, GRID, INK, LineStyle, MUTED, PAGE};

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

/// Space around and between charts, and the height of a line of the legend, in pixels.
const MARGIN: i32 = 16;
const LEGEND_LINE: i32 = 22;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;
type DrawError = DrawingAreaErrorKind<std::io::Error>;

/// A place that shows a text to a reader who points at it.
struct Tip {
    at: (i32, i32),
    text: String,
}

/// The SVG document of a figure: heading, origin of the results, legend, and the charts in a grid.
///
/// # Errors
/// plotters cannot draw it.
pub(super) fn svg(
    heading: &str,
    origin: &str,
    figure: &Figure<'_>,
) -> Result<String, std::io::Error> {
    let size = if figure.panels.len() > 1 {
        figure.size
    } else {
        LARGE
    };
    let columns = match figure.panels.len() {
        0 | 1 => 1,
        2 | 4 => 2,
        _ => 3,
    };
    let width = MARGIN + (size.0 + MARGIN) * columns;
    let legend = figure.legend();
    let legend_places = legend_places(&legend, width);
    let top = legend_places
        .last()
        .map_or(66, |(_, y)| y + LEGEND_LINE + 8);
    let places = (0..).map(|index| {
        let (column, row) = (index % columns, index / columns);
        (
            MARGIN + column * (size.0 + MARGIN),
            top + row * (size.1 + MARGIN),
        )
    });
    let panels: Vec<((i32, i32), &Panel<'_>)> = places.zip(&figure.panels).collect();
    let height = panels.last().map_or(top, |((_, y), _)| y + size.1) + MARGIN;
    let (mut drawn, mut tips) = (String::new(), Vec::new());
    let canvas = (units(width).unsigned_abs(), units(height).unsigned_abs());
    let area = SVGBackend::with_string(&mut drawn, canvas).into_drawing_area();
    let draw = || {
        area.fill(&PAGE.0)?;
        write(
            &area,
            heading,
            &bold(HEADING),
            (MARGIN, 14),
            width - 2 * MARGIN,
        )?;
        write(
            &area,
            origin,
            &plain(LABEL, MUTED.0),
            (MARGIN, 40),
            width - 2 * MARGIN,
        )?;
        for ((label, style), (x, y)) in legend.into_iter().zip(legend_places) {
            draw_swatch(&area, style, (x, y))?;
            write(&area, label, &plain(TITLE, INK.0), (x + 36, y + 1), width)?;
        }
        for ((x, y), panel) in panels {
            let of_panel = area
                .clone()
                .shrink((units(x), units(y)), (units(size.0), units(size.1)));
            draw_panel(&of_panel, panel, size.0, &mut tips)?;
        }
        area.present()
    };
    draw().map_err(std::io::Error::other)?;
    drop(area);
    // The element of plotters has no room for a title, so its content goes into one of ours.
    let content = drawn.split_once('>').map_or("", |(_, rest)| rest);
    let content = content.trim_end().trim_end_matches("</svg>");
    let sentence =
        |panel: &Panel<'_>| format!("{}. {} ", panel.accessible_name(), panel.description);
    let svg = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {} {}", canvas.0, canvas.1))
            width=(width) height=(height) role="img" {
            title { (heading) }
            desc { (figure.panels.iter().map(sentence).collect::<String>()) }
            style { (PreEscaped(palette::style_sheet())) }
            (PreEscaped(content))
            @for tip in &tips {
                circle cx=(tip.at.0) cy=(tip.at.1) r=(units(9)) fill="none" pointer-events="all" {
                    title { (tip.text) }
                }
            }
        }
    };
    // XML 1.0 (section 2.2) forbids these characters, even escaped: a reader would reject the whole document.
    let forbidden =
        |c: char| c.is_control() && !"\t\n\r".contains(c) || "\u{fffe}\u{ffff}".contains(c);
    Ok(svg.into_string().replace(forbidden, "\u{fffd}"))
}

/// The places of the legend's entries, in lines of at most `width` pixels.
fn legend_places(legend: &[(&str, LineStyle)], width: i32) -> Vec<(i32, i32)> {
    let (mut x, mut y) = (MARGIN, 66);
    let place = |(label, _): &(&str, LineStyle)| {
        let needs = 36 + text_width(label, TITLE) + 18;
        if x > MARGIN && x + needs > width - MARGIN {
            (x, y) = (MARGIN, y + LEGEND_LINE);
        }
        x += needs;
        (x - needs, y)
    };
    legend.iter().map(place).collect()
}

/// Draws a chart that fills the area, which is `width` pixels wide.
fn draw_panel(
    area: &Area<'_>,
    panel: &Panel<'_>,
    width: i32,
    tips: &mut Vec<Tip>,
) -> Result<(), DrawError> {
    write(area, &panel.title, &bold(TITLE), (4, 4), width - 8)?;
    let labels = panel
        .y
        .marks
        .iter()
        .map(|(_, label)| text_width(label, LABEL));
    let left = labels.max().unwrap_or(0) + 30;
    let mut x = panel.x.clone();
    x.leave_room(width - left - 14, |label| text_width(label, LABEL));
    let mut chart = ChartBuilder::on(area)
        .margin_top(units(if panel.title.is_empty() { 10 } else { 32 }))
        .margin_right(units(14))
        .y_label_area_size(units(left))
        .x_label_area_size(units(40))
        .build_cartesian_2d(x, panel.y.clone())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(stroke(GRID.0, 1.0))
        .axis_style(stroke(MUTED.0, 1.0))
        .set_all_tick_mark_size(units(5))
        .label_style(plain(LABEL, MUTED.0))
        .x_desc(&panel.x.name)
        .y_desc(&panel.y.name)
        .draw()?;
    // The most important line is drawn last, on top, and what was published below all.
    let (published, measured): (Vec<_>, Vec<_>) =
        panel.lines.iter().partition(|line| line.style.published);
    let mut lines = published.into_iter().chain(measured.into_iter().rev());
    lines.try_for_each(|line| draw_line(&mut chart, line, tips))
}

/// Draws a line, interrupted where a value is missing, with its error bars and markers.
fn draw_line(
    chart: &mut Chart<'_, '_>,
    line: &Line<'_>,
    tips: &mut Vec<Tip>,
) -> Result<(), DrawError> {
    let style = line.style;
    let valued = |point: &Option<Point<'_>>| {
        point
            .as_ref()
            .and_then(|point| Some((point.x, point.value?)))
    };
    let points: Vec<Option<(f64, f64)>> = line.points.iter().map(valued).collect();
    let pieces = points.split(Option::is_none);
    for piece in pieces.filter(|piece| piece.len() > 1) {
        let piece = piece.iter().flatten().copied();
        if style.published {
            let dashes =
                DashedLineSeries::new(piece, units(5), units(4), stroke(style.colour, 1.5));
            chart.draw_series(dashes)?;
        } else {
            chart.draw_series(LineSeries::new(piece, stroke(style.colour, 2.0)))?;
        }
    }
    let many = line.points.len() > MAX_LARGE_MARKERS;
    let radius = if many { SMALL_RADIUS } else { RADIUS };
    // A published point is larger, so that it remains visible as a ring around an equal measured one.
    let radius = radius * if style.published { 1.4 } else { 1.0 };
    for point in line
        .points
        .iter()
        .flatten()
        .filter(|point| !point.tip.is_empty())
    {
        // A failed measurement is a cross at the bottom.
        let at = (point.x, point.value.unwrap_or(f64::NEG_INFINITY));
        if let Some(half) = point.half_width.filter(|_| point.value.is_some()) {
            let thin = stroke(style.colour, 1.0);
            let width = units(5).unsigned_abs();
            chart.draw_series([ErrorBar::new_vertical(
                at.0,
                at.1 - half,
                at.1,
                at.1 + half,
                thin,
                width,
            )])?;
        }
        if point.value.is_some() {
            let (fill, outline) = marker(style, radius);
            chart.draw_series([EmptyElement::at(at) + fill + outline])?;
        } else {
            chart.draw_series([Cross::new(at, units(4), stroke(style.colour, 2.0))])?;
        }
        tips.push(Tip {
            at: chart.backend_coord(&at),
            text: point.tip.clone(),
        });
    }
    Ok(())
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
    let (fill, outline) = match style.published {
        true => (PAGE.0, stroke(style.colour, 1.5)),
        false => (style.colour, stroke(PAGE.0, 1.0)),
    };
    (
        Polygon::new(corners.clone(), fill),
        PathElement::new(corners, outline),
    )
}

/// A line with its marker for the legend, 28 by 14 pixels from `at`.
fn draw_swatch(area: &Area<'_>, style: LineStyle, at: (i32, i32)) -> Result<(), DrawError> {
    let point = |x: i32| (units(at.0 + x), units(at.1 + 7));
    let ends = [point(1), point(27)];
    if style.published {
        let thin = stroke(style.colour, 1.5);
        area.draw(&DashedPathElement::new(ends, units(5), units(4), thin))?;
    } else {
        area.draw(&PathElement::new(ends, stroke(style.colour, 2.0)))?;
    }
    let (fill, outline) = marker(style, RADIUS);
    area.draw(&(EmptyElement::at(point(14)) + fill + outline))
}

/// Writes a text with its top left corner at a place in pixels, shortened to a width in pixels.
fn write(
    area: &Area<'_>,
    text: &str,
    style: &TextStyle<'_>,
    at: (i32, i32),
    width: i32,
) -> Result<(), DrawError> {
    let size = style.font.get_size() / FONT_UNITS;
    match truncated(text, size, width) {
        shown if shown.is_empty() => Ok(()),
        shown => area.draw_text(&shown, style, (units(at.0), units(at.1))),
    }
}

/// plotters divides font sizes by 1.24 when it writes SVG.
const FONT_UNITS: f64 = 1.24 * SCALE as f64;

fn plain(size: f64, colour: RGBColor) -> TextStyle<'static> {
    let font = ("system-ui, Arial, sans-serif", size * FONT_UNITS).into_font();
    font.color(&colour)
}

fn bold(size: f64) -> TextStyle<'static> {
    let style = plain(size, INK.0);
    TextStyle {
        font: style.font.style(FontStyle::Bold),
        ..style
    }
}

fn stroke(colour: RGBColor, pixels: f64) -> ShapeStyle {
    colour.stroke_width(whole(pixels * f64::from(SCALE)).unsigned_abs())
}

fn units(pixels: i32) -> i32 {
    pixels * SCALE
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
    use super::super::grid::ResultGrid;
    use super::super::{figure, samples, timeline};
    use super::*;
    use crate::experiment::results::ExperimentResults;

    fn figures(results: &ExperimentResults) -> Vec<Figure<'_>> {
        figure::sweeps(&ResultGrid::of(results), "a")
    }

    fn document(figure: &Figure<'_>) -> String {
        svg("A heading", "An origin", figure).unwrap()
    }

    fn drawn(results: &ExperimentResults) -> String {
        document(&figures(results)[0])
    }

    /// The number of plain lines in the colour of longhaul.
    fn bars(chart: &str) -> usize {
        chart
            .matches("<line opacity=\"1\" stroke=\"#0064B0\"")
            .count()
    }

    #[test]
    fn a_chart_has_a_line_an_error_bar_a_marker_and_a_tip_for_each_measured_point() {
        let mut results = samples::two_by_two();
        let chart = drawn(&results);
        assert!(chart.contains("<title>A heading</title>"));
        let description = "<desc>parallel streams 1: Mbit/s against one-way latency (ms). published: 400 at 1 to 480 at 50. longhaul: 100 at 1 to 200 at 50.";
        assert!(chart.contains(description), "{chart}");
        // Two charts with two lines and the published one, and the legend.
        assert_eq!(chart.matches("<polygon").count(), 2 * 6 + 3);
        assert_eq!(chart.matches("pointer-events").count(), 2 * 6);
        let tip = "longhaul\nparallel streams 1, one-way latency 1\u{a0}ms\n100 ± 5 Mbit/s";
        assert_eq!(chart.matches(tip).count(), 1);
        // An error bar is three lines.
        assert_eq!(bars(&chart), 4 * 3);
        results.cells[0].half_width = None;
        assert_eq!(bars(&drawn(&results)), 3 * 3);
        results.cells[0].median = None;
        let failed = drawn(&results);
        let cross = (2 * 6 + 3 - 1, 3 * 3 + 2);
        assert_eq!((failed.matches("<polygon").count(), bars(&failed)), cross);
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
        assert_eq!(lines(&drawn(&results)), 2 + 1, "and that of the legend");
        results.cells[1].median = None;
        assert_eq!(lines(&drawn(&results)), 1 + 1, "a single point has no line");
    }

    #[test]
    fn a_series_over_time_has_one_marker_at_its_end() {
        let results = samples::with_more();
        let timelines = timeline::timelines(&ResultGrid::of(&results), "a");
        let chart = document(&timelines[0]);
        assert_eq!(
            chart.matches("<polygon").count(),
            2 + 2,
            "and those of the legend"
        );
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
            let text = document(&figure);
            assert!(text.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
            assert!(text.contains("A heading") && text.contains("prefers-color-scheme:dark"));
            assert!(text.contains("Mbit\u{fffd}/s&lt;/text&gt;") && !text.contains("href"));
            let numbers = |names: &str| -> Vec<f64> {
                let begins = names.split(' ').map(|name| format!(" {name}=\""));
                let after = begins.flat_map(|begin| text.split(&begin).skip(1).collect::<Vec<_>>());
                let number = |rest: &str| rest.split('"').next()?.parse().ok();
                after.filter_map(number).collect()
            };
            let (width, height) = (numbers("width")[0] * 4.0, numbers("height")[0] * 4.0);
            assert!(
                numbers("x x1 x2 cx")
                    .iter()
                    .all(|x| (0.0..=width).contains(x))
            );
            assert!(
                numbers("y y1 y2 cy")
                    .iter()
                    .all(|y| (0.0..=height).contains(y))
            );
        }
    }

    #[test]
    fn long_texts_are_cut_to_their_room() {
        assert_eq!(truncated("short", 10.0, 100), "short");
        let cut = truncated("globus-url-copy with globus-gridftp-server", 10.0, 120);
        assert!(cut.ends_with('…') && text_width(&cut, 10.0) <= 120, "{cut}");
    }
}
