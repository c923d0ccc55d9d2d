//! A strip that shows how ratios spread: all of them thin, half of them thick, the median a dot.

use super::markup::Markup;
use super::number::coordinate;
use super::scale::Linear;
use super::summary::Spread;

/// The strip shows ratios from one tenth to ten; what is beyond lies at its end.
const DECADES: f64 = 1.0;

/// Width and height, in the drawing's units.
const SIZE: (f64, f64) = (200.0, 16.0);

/// Draws the strip; the numbers are in the text beside it, so it is hidden from screen readers.
pub(super) fn draw(markup: &mut Markup, spread: &Spread) {
    let view = format!("0 0 {} {}", coordinate(SIZE.0), coordinate(SIZE.1));
    let middle = SIZE.1 / 2.0;
    let across = |from: f64, to: f64| {
        let (from, to) = (place(from), place(to));
        format!(
            "M{} {}H{}",
            coordinate(from),
            coordinate(middle),
            coordinate(to)
        )
    };
    let attributes = [
        ("class", "strip"),
        ("viewBox", view.as_str()),
        ("aria-hidden", "true"),
    ];
    markup.element("svg", &attributes, |svg| {
        let ticks: String = [0.1, 0.2, 0.5, 2.0, 5.0, 10.0]
            .iter()
            .map(|ratio| {
                format!(
                    "M{} {}v4",
                    coordinate(place(*ratio)),
                    coordinate(middle - 2.0)
                )
            })
            .collect();
        svg.void(
            "path",
            &[("class", "strip-scale"), ("d", &across(0.1, 10.0))],
        );
        svg.void("path", &[("class", "strip-scale"), ("d", &ticks)]);
        let one = format!("M{} 1V{}", coordinate(place(1.0)), coordinate(SIZE.1 - 1.0));
        svg.void("path", &[("class", "strip-one"), ("d", &one)]);
        let all = across(spread.low, spread.high);
        svg.void("path", &[("class", "strip-all"), ("d", &all)]);
        let half = across(spread.first_quartile, spread.third_quartile);
        svg.void("path", &[("class", "strip-half"), ("d", &half)]);
        let (x, y) = (coordinate(place(spread.median)), coordinate(middle));
        svg.void(
            "circle",
            &[
                ("class", "strip-median"),
                ("cx", &x),
                ("cy", &y),
                ("r", "4"),
            ],
        );
    });
}

fn place(ratio: f64) -> f64 {
    let scale = Linear {
        values: (-DECADES, DECADES),
        places: (0.0, SIZE.0),
    };
    scale.place(if ratio > 0.0 { ratio.log10() } else { -DECADES })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_factors_are_equal_distances_and_extremes_stay_inside() {
        assert_eq!(place(1.0), 100.0);
        assert!((place(2.0) - 100.0 - (100.0 - place(0.5))).abs() < 1e-9);
        assert_eq!((place(500.0), place(0.0), place(-1.0)), (200.0, 0.0, 0.0));
    }

    #[test]
    fn a_strip_has_its_parts() {
        let mut markup = Markup::default();
        let spread = Spread {
            points: 5,
            low: 0.5,
            first_quartile: 0.8,
            median: 1.0,
            third_quartile: 2.0,
            high: 20.0,
        };
        draw(&mut markup, &spread);
        let strip = markup.finish();
        assert!(
            strip.contains("class=\"strip-median\" cx=\"100\" cy=\"8\""),
            "{strip}"
        );
        assert!(strip.contains("H200"));
    }
}
