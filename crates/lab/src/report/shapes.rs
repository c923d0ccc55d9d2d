//! SVG shapes: markers, lines, error bars and strips, and estimates of the width of text.
//!
//! Markers differ in shape, so that charts are readable without colour.

use std::f64::consts::TAU;

use maud::{Markup, html};

use super::scale;
use super::summary::RatioSpread;

/// Number of marker shapes.
pub(super) const MARKERS: usize = 8;

/// Default radius of a marker, in SVG user units (CSS pixels at full size).
pub(super) const RADIUS: f64 = 4.0;

/// Writes a coordinate with at most two decimals and no trailing zeros, which keeps the page small.
pub(super) fn px(number: f64) -> String {
    let written = format!("{number:.2}");
    match written.trim_end_matches('0').trim_end_matches('.') {
        "-0" => "0".to_owned(),
        trimmed => trimmed.to_owned(),
    }
}

/// Estimates the width of `text` at a font size. Fonts differ between systems, so the estimate is generous.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    let characters = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
    f64::from(characters) * size * 0.6
}

/// `text`, shortened with an ellipsis if it would be wider than `room`.
pub(super) fn truncated(text: &str, size: f64, room: f64) -> String {
    if text_width(text, size) <= room {
        return text.to_owned();
    }
    let room = room - text_width("\u{2026}", size);
    let mut cut = text.to_owned();
    while text_width(&cut, size) > room && cut.pop().is_some() {}
    format!("{}\u{2026}", cut.trim_end())
}

/// A path through points (`x y`), interrupted where one is missing; empty if no two points are neighbours.
pub(super) fn line_path(points: impl Iterator<Item = Option<String>>) -> String {
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

/// Path of marker `number` (modulo [`MARKERS`]) around a point: circle, square, triangle, diamond, inverted
/// triangle, pentagon, star, hexagon. All have about the area of a circle of `radius`.
pub(super) fn marker(number: usize, x: f64, y: f64, radius: f64) -> String {
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

pub(super) fn circle(x: f64, y: f64, radius: f64) -> String {
    let (left, y, across, radius) = (px(x - radius), px(y), px(radius * 2.0), px(radius));
    format!("M{left} {y}a{radius} {radius} 0 1 0 {across} 0a{radius} {radius} 0 1 0 -{across} 0Z")
}

/// Corners of a regular polygon around the origin, clockwise from the top, rotated by `turn` full turns.
pub(super) fn regular(corners: u32, radius: f64, turn: f64) -> Vec<(f64, f64)> {
    let corner = |corner: u32| {
        let angle = TAU * (f64::from(corner) / f64::from(corners) + turn);
        (radius * angle.sin(), -radius * angle.cos())
    };
    (0..corners).map(corner).collect()
}

pub(super) fn polygon(x: f64, y: f64, corners: &[(f64, f64)]) -> String {
    let corner = |(dx, dy): &(f64, f64)| format!("{} {}", px(x + dx), px(y + dy));
    let corners: Vec<String> = corners.iter().map(corner).collect();
    format!("M{}Z", corners.join("L"))
}

/// Path of a cross, which marks a failed measurement.
pub(super) fn cross(x: f64, y: f64) -> String {
    let half = RADIUS * 0.9;
    let at = |dx: f64, dy: f64| format!("{} {}", px(x + dx), px(y + dy));
    let (falling, rising) = (
        (at(-half, -half), at(half, half)),
        (at(-half, half), at(half, -half)),
    );
    format!("M{}L{}M{}L{}", falling.0, falling.1, rising.0, rising.1)
}

/// Path of an error bar with caps from `low` to `high` at `x`.
pub(super) fn error_bar(x: f64, low: f64, high: f64) -> String {
    let (left, right, x) = (px(x - 3.0), px(x + 3.0), px(x));
    let (low, high) = (px(low), px(high));
    format!("M{left} {high}H{right}M{x} {high}V{low}M{left} {low}H{right}")
}

/// Width and height of a strip.
const STRIP: (f64, f64) = (200.0, 16.0);

/// A strip with a logarithmic scale from ×0.1 to ×10 that shows the spread of ratios: a thin line for all, a
/// thick one for the middle half, a dot for the median. Ratios beyond the scale are drawn at its ends. The
/// text next to the strip has the numbers, so it is hidden from screen readers.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_interrupted_where_a_point_is_missing() {
        let path = |points: &[&str]| {
            let point = |text: &&str| (!text.is_empty()).then(|| (*text).to_owned());
            line_path(points.iter().map(point))
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
        assert_eq!(truncated("short", 10.0, 100.0), "short");
        let cut = truncated("globus-url-copy with globus-gridftp-server", 10.0, 120.0);
        assert!(
            cut.ends_with('…') && text_width(&cut, 10.0) <= 120.0,
            "{cut}"
        );
    }

    #[test]
    fn a_strip_is_logarithmic_and_extremes_are_at_its_ends() {
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
