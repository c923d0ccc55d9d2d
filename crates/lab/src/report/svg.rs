//! Shapes: markers that differ without colour, and how wide a text will be.

use std::f64::consts::TAU;

use super::number::coordinate;

/// Number of different markers.
pub(super) const MARKERS: usize = 8;

/// Usual radius of a marker, in the drawing's units.
pub(super) const RADIUS: f64 = 4.0;

/// Path of marker `number` (modulo [`MARKERS`]) of about `radius` around a point: circle, square,
/// triangle, diamond, triangle upside down, pentagon, star, hexagon. All have about the same area.
pub(super) fn marker(number: usize, x: f64, y: f64, radius: f64) -> String {
    match number % MARKERS {
        0 => circle(x, y, radius),
        1 => polygon(x, y, &regular(4, radius * 1.25, 0.125)),
        2 => polygon(x, y + radius * 0.2, &regular(3, radius * 1.45, 0.0)),
        3 => polygon(x, y, &regular(4, radius * 1.35, 0.0)),
        4 => polygon(x, y - radius * 0.2, &regular(3, radius * 1.45, 0.5)),
        5 => polygon(x, y, &regular(5, radius * 1.2, 0.0)),
        6 => polygon(x, y, &star(radius * 1.6)),
        _ => polygon(x, y, &regular(6, radius * 1.15, 0.0)),
    }
}

/// A cross: a point whose measurement failed.
pub(super) fn cross(x: f64, y: f64) -> String {
    let size = RADIUS * 0.9;
    let at = |dx: f64, dy: f64| format!("{} {}", coordinate(x + dx), coordinate(y + dy));
    format!(
        "M{}L{}M{}L{}",
        at(-size, -size),
        at(size, size),
        at(-size, size),
        at(size, -size)
    )
}

/// An error bar from `low` to `high` at `x`, with caps.
pub(super) fn error_bar(x: f64, low: f64, high: f64) -> String {
    let (left, right) = (coordinate(x - 3.0), coordinate(x + 3.0));
    let (low, high) = (coordinate(low), coordinate(high));
    let x = coordinate(x);
    format!("M{left} {high}H{right}M{x} {high}V{low}M{left} {low}H{right}")
}

/// A line through points; it is interrupted where one is missing. `None`: no two points are
/// neighbours, so there is no line.
pub(super) fn line(points: impl Iterator<Item = Option<(f64, f64)>>) -> Option<String> {
    let mut path = String::new();
    let mut previous = None;
    for point in points {
        if let (Some((x0, y0)), Some((x, y))) = (previous, point) {
            if !path.ends_with(&end(x0, y0)) {
                path.push('M');
                path.push_str(&end(x0, y0));
            }
            path.push('L');
            path.push_str(&end(x, y));
        }
        previous = point;
    }
    (!path.is_empty()).then_some(path)
}

/// About how wide `text` is at `size` units: system fonts differ, so rather too much.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    let characters = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
    f64::from(characters) * size * 0.6
}

/// `text`, cut with an ellipsis if it would be wider than `room`.
pub(super) fn fitted(text: &str, size: f64, room: f64) -> String {
    if text_width(text, size) <= room {
        return text.to_owned();
    }
    let mut cut = text.to_owned();
    while cut.pop().is_some() {
        if text_width(&cut, size) + size * 0.6 <= room {
            break;
        }
    }
    cut.truncate(cut.trim_end().len());
    cut.push('\u{2026}');
    cut
}

fn end(x: f64, y: f64) -> String {
    format!("{} {}", coordinate(x), coordinate(y))
}

fn circle(x: f64, y: f64, radius: f64) -> String {
    let (left, y) = (coordinate(x - radius), coordinate(y));
    let (radius, across) = (coordinate(radius), coordinate(radius * 2.0));
    format!("M{left} {y}a{radius} {radius} 0 1 0 {across} 0a{radius} {radius} 0 1 0 -{across} 0Z")
}

/// Corners of a regular polygon, the first one up; `turn` is a share of a full turn.
fn regular(corners: u32, radius: f64, turn: f64) -> Vec<(f64, f64)> {
    (0..corners)
        .map(|corner| {
            let angle = TAU * (f64::from(corner) / f64::from(corners) + turn);
            (radius * angle.sin(), -radius * angle.cos())
        })
        .collect()
}

fn star(radius: f64) -> Vec<(f64, f64)> {
    let inner = regular(5, radius * 0.45, 0.1);
    regular(5, radius, 0.0)
        .into_iter()
        .zip(inner)
        .flat_map(|(out, back)| [out, back])
        .collect()
}

fn polygon(x: f64, y: f64, corners: &[(f64, f64)]) -> String {
    let mut path = String::new();
    for (index, (dx, dy)) in corners.iter().enumerate() {
        path.push(if index == 0 { 'M' } else { 'L' });
        path.push_str(&end(x + dx, y + dy));
    }
    path.push('Z');
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_differ_from_each_other() {
        let mut shapes: Vec<String> = (0..MARKERS)
            .map(|number| marker(number, 10.0, 10.0, RADIUS))
            .collect();
        shapes.sort();
        shapes.dedup();
        assert_eq!(shapes.len(), MARKERS);
        assert_eq!(
            marker(0, 1.0, 1.0, RADIUS),
            marker(MARKERS, 1.0, 1.0, RADIUS)
        );
    }

    #[test]
    fn a_line_is_interrupted_where_a_point_is_missing() {
        let points = [
            Some((0.0, 1.0)),
            Some((2.0, 3.0)),
            None,
            Some((4.0, 5.0)),
            Some((6.0, 7.0)),
        ];
        assert_eq!(
            line(points.into_iter()).as_deref(),
            Some("M0 1L2 3M4 5L6 7")
        );
        let joined = [Some((0.0, 0.0)), Some((1.0, 1.0)), Some((2.0, 0.0))];
        assert_eq!(line(joined.into_iter()).as_deref(), Some("M0 0L1 1L2 0"));
        assert_eq!(
            line([Some((0.0, 1.0)), None, Some((1.0, 1.0))].into_iter()),
            None
        );
    }

    #[test]
    fn a_line_that_returns_to_a_place_stays_one_line() {
        let points = [Some((1.0, 1.0)), Some((11.0, 1.0)), Some((11.0, 1.0))];
        assert_eq!(line(points.into_iter()).as_deref(), Some("M1 1L11 1L11 1"));
    }

    #[test]
    fn long_texts_are_cut_to_their_room() {
        assert_eq!(fitted("short", 10.0, 100.0), "short");
        let cut = fitted("globus-url-copy with globus-gridftp-server", 10.0, 120.0);
        assert!(
            cut.ends_with('…') && text_width(&cut, 10.0) <= 120.0,
            "{cut}"
        );
    }

    #[test]
    fn error_bars_have_caps() {
        assert_eq!(error_bar(10.0, 20.0, 5.0), "M7 5H13M10 5V20M7 20H13");
    }
}
