//! Axes: the places of values, the marks, and their labels.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use super::{grid, text};
use crate::experiment::results::SweepAxis;

/// Largest number of marks of an axis.
const MAX_MARKS: u32 = 50;

/// Largest number of swept values that are all marked. More have the marks of an ordinary axis.
const MAX_MARKED_VALUES: usize = 16;

/// An axis of a chart.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    /// The name with the unit.
    pub(super) name: String,
    logarithmic: bool,
    /// Values at both ends.
    pub(super) ends: (f64, f64),
    /// Value and label of each mark, in ascending order.
    pub(super) marks: Vec<(f64, String)>,
}

impl Axis {
    /// A linear axis from zero, or below the lowest negative value, to the highest of `values` or above.
    pub(super) fn linear(name: &str, values: &[f64]) -> Self {
        let (low, high) = extremes(values, 0.0);
        Self::marked(name.to_owned(), false, &linear_marks(low, high))
    }

    /// A logarithmic axis if all `values` are positive and the highest is at least 50 times the lowest, which a
    /// linear axis would hide; otherwise a linear axis.
    pub(super) fn fitting(name: &str, values: &[f64]) -> Self {
        let (low, high) = extremes(values, f64::INFINITY);
        if !(low > 0.0 && low < high && high / low >= 50.0) {
            return Self::linear(name, values);
        }
        Self::marked(
            format!("{name} (logarithmic)"),
            true,
            &logarithmic_marks(low, high),
        )
    }

    /// An axis that ends at its first and last mark.
    fn marked(name: String, logarithmic: bool, marks: &[f64]) -> Self {
        let end = |mark: Option<&f64>| mark.copied().unwrap_or(0.0);
        Self {
            name,
            logarithmic,
            ends: (end(marks.first()), end(marks.last())),
            marks: marks
                .iter()
                .map(|mark| (*mark, format_mark(*mark)))
                .collect(),
        }
    }

    /// The place of a value as a part of the axis. One beyond an end is at that end.
    pub(super) fn place(&self, value: f64) -> f64 {
        let on_scale = |value: f64| {
            if self.logarithmic {
                value.log10()
            } else {
                value
            }
        };
        // `max` also turns NaN, which has no place, into an end.
        let value = value.max(self.ends.0).min(self.ends.1);
        let (low, high) = (on_scale(self.ends.0), on_scale(self.ends.1));
        (on_scale(value) - low) / (high - low)
    }

    /// Keeps the marks whose labels do not overlap on an axis of `length` pixels, the first among them. `width` is
    /// that of a label in pixels.
    pub(super) fn leave_room(&mut self, length: i32, width: impl Fn(&str) -> i32) {
        let mut edge = f64::NEG_INFINITY;
        let mut marks = std::mem::take(&mut self.marks);
        marks.retain(|(value, label)| {
            let half = f64::from(width(label)) / 2.0;
            let centre = self.place(*value) * f64::from(length);
            let fits = centre - half >= edge;
            if fits {
                edge = centre + half + 5.0;
            }
            fits
        });
        self.marks = marks;
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    #[allow(
        clippy::cast_possible_truncation,
        reason = "the place is between the limits"
    )]
    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        limit.0 + (f64::from(limit.1 - limit.0) * self.place(*value)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // Bold points only: a mark has a line and a label, and there is nothing between marks.
        match hint.weight().allow_light_points() {
            true => Vec::new(),
            false => self.marks.iter().map(|(value, _)| *value).collect(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.ends.0..self.ends.1
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let mark = self
            .marks
            .iter()
            .find(|(at, _)| at.total_cmp(value).is_eq());
        mark.map_or_else(String::new, |(_, label)| label.clone())
    }
}

/// The lowest value, at most `low`, and the highest, at least 0.
fn extremes(values: &[f64], low: f64) -> (f64, f64) {
    let finite = values.iter().filter(|value| value.is_finite());
    finite.fold((low, 0.0), |(low, high), value| {
        (value.min(low), value.max(high))
    })
}

/// The values of a sweep as a horizontal axis.
#[derive(Debug, Clone)]
pub(super) struct SweptAxis {
    pub(super) axis: Axis,
    /// The values, or their numbers in a list of names.
    pub(super) numbers: Vec<f64>,
    /// Whether the values are names, which are evenly spaced: a place between two has no meaning.
    pub(super) has_names: bool,
}

impl SweptAxis {
    /// Numbers in ascending order have their own places, other values are names in the experiment's order.
    pub(super) fn of(swept: &SweepAxis) -> Self {
        let numbers = rising_numbers(&swept.values);
        let has_names = numbers.is_none();
        let numbers =
            numbers.unwrap_or_else(|| (0_u32..).map(f64::from).take(swept.values.len()).collect());
        let end = |number: Option<&f64>| number.copied().unwrap_or(0.0);
        let (first, last) = (end(numbers.first()), end(numbers.last()));
        let logarithmic = swept.logarithmic && !has_names && first > 0.0;
        let marks = if has_names || numbers.len() <= MAX_MARKED_VALUES {
            numbers.iter().copied().zip(swept.values.clone()).collect()
        } else {
            let marks = if logarithmic {
                logarithmic_marks
            } else {
                linear_marks
            };
            let between = marks(first, last)
                .into_iter()
                .filter(|mark| (first..=last).contains(mark));
            between.map(|mark| (mark, format_mark(mark))).collect()
        };
        // The margin keeps markers at the ends inside.
        let ends = if logarithmic {
            let margin = (last / first).powf(0.04);
            (first / margin, last * margin)
        } else {
            let margin = if has_names {
                0.5
            } else {
                (last - first) * 0.04
            };
            (first - margin, last + margin)
        };
        let axis = Axis {
            name: grid::axis_name(swept),
            logarithmic,
            ends,
            marks,
        };
        Self {
            axis,
            numbers,
            has_names,
        }
    }
}

/// The values as numbers. `None`: one is not a number, there are fewer than two, or they are not in ascending
/// order.
fn rising_numbers(values: &[String]) -> Option<Vec<f64>> {
    let number = |value: &String| {
        let number: f64 = value.trim().parse().ok()?;
        (number.is_finite() && number.abs() < 1e15).then_some(number)
    };
    let numbers: Vec<f64> = values.iter().map(number).collect::<Option<_>>()?;
    let rises = numbers.windows(2).all(|pair| pair[0] < pair[1]);
    (rises && numbers.len() > 1).then_some(numbers)
}

/// Marks in about five steps of 1, 2, 2.5 or 5 times a power of ten. The first is at or below `low`, the last at
/// or above `high`. For a range that is empty or not finite, the marks are those of 0..1.
fn linear_marks(low: f64, high: f64) -> Vec<f64> {
    let span = high - low;
    if !span.is_finite() || span <= f64::EPSILON * high.abs().max(low.abs()) * 16.0 {
        return vec![0.0, 0.5, 1.0];
    }
    let rough = span / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let fits = |factor: &f64| rough / power <= factor * (1.0 + 1e-9);
    let step = power * [1.0, 2.0, 2.5, 5.0].into_iter().find(fits).unwrap_or(10.0);
    let (first, last) = ((low / step).floor(), (high / step).ceil());
    let marks = (0..MAX_MARKS).map(|index| first + f64::from(index));
    marks
        .take_while(|index| *index <= last)
        .map(|index| index * step)
        .collect()
}

/// Marks over the positive range `low..=high`: 1, 2 and 5 times powers of ten for up to four decades, otherwise
/// powers of ten, at most about ten. The first is at or below `low`, the last at or above `high`.
fn logarithmic_marks(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().floor(), high.log10().ceil());
    let decades = last - first;
    let factors: &[f64] = if decades <= 4.0 {
        &[1.0, 2.0, 5.0]
    } else {
        &[1.0]
    };
    let stride = (decades / 10.0).ceil().max(1.0);
    let powers = (0..MAX_MARKS).map(|index| first + f64::from(index) * stride);
    let powers = powers.take_while(|power| *power < last + stride);
    let marks: Vec<f64> = powers
        .flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powf(power)))
        .collect();
    // The tolerance accepts a mark that equals the end of the range except for rounding.
    let start = marks
        .iter()
        .rposition(|mark| *mark <= low * (1.0 + 1e-9))
        .unwrap_or(0);
    let end = marks
        .iter()
        .position(|mark| *mark >= high * (1.0 - 1e-9))
        .unwrap_or(marks.len() - 1);
    marks
        .get(start..=end.max(start))
        .unwrap_or_default()
        .to_vec()
}

/// A mark without needless decimals: `0.5`, `400`, `2e9`.
fn format_mark(mark: f64) -> String {
    if mark != 0.0 && !(1e-6..1e7).contains(&mark.abs()) {
        return format!("{mark:e}");
    }
    // Nine decimals drop what sums of binary fractions leave behind; adding zero makes a negative zero positive.
    let written = format!("{:.9}", mark + 0.0);
    text::group_thousands(written.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn swept(values: &[&str], logarithmic: bool) -> SweptAxis {
        SweptAxis::of(&SweepAxis {
            key: String::new(),
            label: String::new(),
            unit: String::new(),
            values: values.iter().map(|value| (*value).to_owned()).collect(),
            logarithmic,
        })
    }

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.marks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn swept_numbers_have_their_places_and_names_are_evenly_spaced() {
        let linear = swept(&["0", "1", "5"], false);
        assert_eq!(
            (linear.numbers, linear.has_names),
            (vec![0.0, 1.0, 5.0], false)
        );
        assert_eq!(linear.axis.ends, (-0.2, 5.2));
        assert!(
            !swept(&["0", "1", "10"], true).axis.logarithmic,
            "zero has no logarithm"
        );
        let logarithmic = swept(&["0.1", "1", "10"], true).axis;
        assert_eq!(
            (logarithmic.place(1.0), labels(&logarithmic)),
            (0.5, vec!["0.1", "1", "10"])
        );
        for names in [["256KB", "1MB"], ["5", "1"]] {
            let names = swept(&names, true);
            assert_eq!((names.has_names, names.numbers), (true, vec![0.0, 1.0]));
            assert_eq!(names.axis.ends, (-0.5, 1.5));
        }
        assert_eq!(swept(&["7"], true).axis.ends, (-0.5, 0.5));
        assert!(swept(&[], false).numbers.is_empty());
    }

    #[test]
    fn only_round_values_of_many_are_marked() {
        let flows: Vec<String> = (1..=64).map(|value| value.to_string()).collect();
        let flows: Vec<&str> = flows.iter().map(String::as_str).collect();
        assert_eq!(
            labels(&swept(&flows, true).axis),
            ["1", "2", "5", "10", "20", "50"]
        );
        assert_eq!(labels(&swept(&flows, false).axis), ["20", "40", "60"]);
    }

    #[test]
    fn an_axis_covers_all_values_and_is_logarithmic_if_they_are_far_apart() {
        let linear = Axis::linear("", &[3.0, 922.0, f64::NAN]);
        assert_eq!((linear.ends, linear.place(2e9)), ((0.0, 1000.0), 1.0));
        assert_eq!(labels(&linear), ["0", "200", "400", "600", "800", "1000"]);
        assert_eq!(labels(&Axis::linear("", &[])), ["0", "0.5", "1"]);
        assert_eq!(Axis::linear("", &[-3.0, 7.0]).ends, (-4.0, 8.0));
        let wide = Axis::fitting("", &[8.18, 924.0]);
        assert_eq!(
            labels(&wide),
            ["5", "10", "20", "50", "100", "200", "500", "1000"]
        );
        assert_eq!(
            [1000.0, 0.0, f64::NAN].map(|value| wide.place(value)),
            [1.0, 0.0, 0.0]
        );
        for near in [
            &[60.0, 915.0][..],
            &[0.0, 915.0],
            &[-1.0, 915.0],
            &[5.0],
            &[],
        ] {
            assert!(!Axis::fitting("", near).logarithmic, "{near:?}");
        }
        assert!(logarithmic_marks(1e-300, 1e300).len() <= 12);
        assert_eq!(
            [0.1 + 0.2, -0.0, 2e9, 40_000.0].map(format_mark),
            ["0.3", "0", "2e9", "40\u{202f}000"]
        );
    }

    #[test]
    fn labels_that_would_overlap_are_left_out() {
        let mut axis = Axis::linear("", &[0.0, 1000.0]);
        axis.leave_room(400, |_| 30);
        assert_eq!(labels(&axis), ["0", "200", "400", "600", "800", "1000"]);
        axis.leave_room(90, |_| 30);
        assert_eq!(labels(&axis), ["0", "400", "800"]);
    }

    proptest! {
        #[test]
        fn marks_are_ascending_and_enclose_the_range(low in -1e9..1e9f64, span in 1e-3..1e9f64) {
            let positive = (low.abs() + 1.0, low.abs() + 1.0 + span);
            for (low, high, marks) in [
                (low, low + span, linear_marks(low, low + span)),
                (positive.0, positive.1, logarithmic_marks(positive.0, positive.1)),
            ] {
                let slack = 1e-6 * span.max(high.abs());
                prop_assert!(marks.windows(2).all(|pair| pair[0] < pair[1]));
                prop_assert!(marks[0] <= low + slack && marks[marks.len() - 1] >= high - slack);
            }
        }
    }
}
