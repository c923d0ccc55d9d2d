//! Axes: coordinates of values, marks, and labels.

use super::text;

/// Largest number of marks of an axis.
const MAX_MARKS: usize = 50;

/// Maps `value` linearly from the range `values` to the range `places`, which may be descending as SVG's y
/// axis is. Values outside of the range are mapped to its nearer end.
pub(super) fn place(value: f64, values: (f64, f64), places: (f64, f64)) -> f64 {
    let span = values.1 - values.0;
    let share = match span > 0.0 && span.is_finite() {
        true => ((value - values.0) / span).clamp(0.0, 1.0),
        false => 0.5,
    };
    // NaN has no place; any place inside the chart will do.
    let share = if share.is_nan() { 0.0 } else { share };
    places.0 + share * (places.1 - places.0)
}

/// The vertical axis.
#[derive(Debug, Clone)]
pub(super) struct ValueAxis {
    /// Marks in ascending order; the first and the last are the ends of the axis.
    pub(super) marks: Vec<f64>,
    /// Whether the axis is logarithmic rather than linear.
    pub(super) logarithmic: bool,
}

impl ValueAxis {
    /// A linear axis from zero, or below the lowest negative value, to the highest of `values` or above.
    pub(super) fn linear(values: &[f64]) -> Self {
        let (low, high) = extremes(values, 0.0);
        Self {
            marks: linear_marks(low, high, 5),
            logarithmic: false,
        }
    }

    /// A logarithmic axis if all `values` are positive and the highest is at least 50 times the lowest, which a
    /// linear axis would hide; otherwise a linear axis.
    pub(super) fn fitting(values: &[f64]) -> Self {
        let (low, high) = extremes(values, f64::INFINITY);
        if !(low > 0.0 && low < high && high / low >= 50.0) {
            return Self::linear(values);
        }
        Self {
            marks: logarithmic_marks(low, high),
            logarithmic: true,
        }
    }

    /// The place of `value` on an axis between the coordinates `bottom` and `top`.
    pub(super) fn place(&self, value: f64, bottom: f64, top: f64) -> f64 {
        let low = self.marks.first().copied().unwrap_or(0.0);
        let high = self.marks.last().copied().unwrap_or(1.0);
        if !self.logarithmic {
            return place(value, (low, high), (bottom, top));
        }
        // Zero and negative values have no logarithm; they are drawn at the bottom.
        let at = if value > 0.0 { value } else { low };
        place(at.log10(), (low.log10(), high.log10()), (bottom, top))
    }

    /// Each mark with its label.
    pub(super) fn labels(&self) -> Vec<(f64, String)> {
        let step = match self.marks.as_slice() {
            [first, second, ..] => second - first,
            _ => 1.0,
        };
        let label = |mark: &f64| {
            let step = if self.logarithmic { *mark } else { step };
            (*mark, format_mark(*mark, step))
        };
        self.marks.iter().map(label).collect()
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
#[derive(Debug)]
pub(super) struct SweptAxis {
    /// Whether the values are names, which are evenly spaced, rather than numbers.
    pub(super) is_category: bool,
    /// Coordinate of each value.
    pub(super) places: Vec<f64>,
    /// For each value, whether it is labelled if there is room: all are, or only the round ones of many.
    pub(super) label_candidates: Vec<bool>,
    /// Smallest distance between two values.
    pub(super) smallest_step: f64,
}

/// Share of a logarithmic axis that is reserved for the value zero, which has no logarithm.
const ZERO_SHARE: f64 = 0.12;

/// Largest number of values of which all are labelled. Of more, only round ones are.
const MANY: usize = 16;

impl SweptAxis {
    /// The axis of `values` between the coordinates `start` and `end`.
    pub(super) fn of(values: &[String], logarithmic: bool, start: f64, end: f64) -> Self {
        let numbers = rising_numbers(values);
        let label_candidates = match &numbers {
            Some(numbers) if numbers.len() > MANY => round_values(numbers, logarithmic),
            _ => vec![true; values.len()],
        };
        let positive = |numbers: &[f64]| numbers.iter().any(|number| *number > 0.0);
        let places = match &numbers {
            Some(numbers) if logarithmic && positive(numbers) => {
                logarithmic_places(numbers, start, end)
            }
            Some(numbers) if !logarithmic => linear_places(numbers, start, end),
            _ => even_places(values.len(), start, end),
        };
        let steps = places.windows(2).map(|pair| pair[1] - pair[0]);
        Self {
            is_category: numbers.is_none(),
            smallest_step: steps.fold(end - start, f64::min),
            places,
            label_candidates,
        }
    }
}

/// The values as numbers. `None`: one is not a number, there are fewer than two, or they are not in ascending
/// order, in which case the axis keeps the experiment's order.
fn rising_numbers(values: &[String]) -> Option<Vec<f64>> {
    let number = |value: &String| {
        let number: f64 = value.trim().parse().ok()?;
        (number.is_finite() && number.abs() < 1e15).then_some(number)
    };
    let numbers: Vec<f64> = values.iter().map(number).collect::<Option<_>>()?;
    let rises = numbers.windows(2).all(|pair| pair[0] < pair[1]);
    (rises && numbers.len() > 1).then_some(numbers)
}

/// For each number, whether it is the first, the last, or a mark that an ordinary axis of the range has.
fn round_values(numbers: &[f64], logarithmic: bool) -> Vec<bool> {
    let low = numbers
        .iter()
        .copied()
        .find(|number| *number > 0.0 || !logarithmic);
    let (low, high) = (low.unwrap_or(0.0), numbers.last().copied().unwrap_or(1.0));
    let marks = match logarithmic {
        true => logarithmic_marks(low, high),
        false => linear_marks(low, high, 8),
    };
    let near = |number: f64, mark: f64| (number - mark).abs() <= 1e-9 * mark.abs().max(1e-9);
    let is_round = |number: f64| marks.iter().any(|mark| near(number, *mark));
    let ends = [0, numbers.len() - 1];
    let is_candidate = |(index, number): (usize, &f64)| ends.contains(&index) || is_round(*number);
    numbers.iter().enumerate().map(is_candidate).collect()
}

fn linear_places(numbers: &[f64], start: f64, end: f64) -> Vec<f64> {
    let (low, high) = (numbers[0], numbers[numbers.len() - 1]);
    // An axis that would begin near zero begins at zero, so that distances show proportions.
    let low = if low > 0.0 && low <= high * 0.2 {
        0.0
    } else {
        low
    };
    numbers
        .iter()
        .map(|number| place(*number, (low, high), (start, end)))
        .collect()
}

fn logarithmic_places(numbers: &[f64], start: f64, end: f64) -> Vec<f64> {
    let low = numbers
        .iter()
        .copied()
        .find(|number| *number > 0.0)
        .unwrap_or(1.0);
    let values = (low.log10(), numbers[numbers.len() - 1].log10());
    let share = if numbers[0] <= 0.0 { ZERO_SHARE } else { 0.0 };
    let first = start + (end - start) * share;
    let at = |number: &f64| match *number > 0.0 {
        true => place(number.log10(), values, (first, end)),
        false => start,
    };
    numbers.iter().map(at).collect()
}

fn even_places(count: usize, start: f64, end: f64) -> Vec<f64> {
    let counted = u32::try_from(count).unwrap_or(u32::MAX);
    let band = (end - start) / f64::from(counted.max(1));
    (0..counted)
        .map(|index| start + band * (f64::from(index) + 0.5))
        .collect()
}

/// Marks of a linear axis over `low..=high`, in about `wanted` steps of 1, 2, 2.5 or 5 times a power of
/// ten. The first is at or below `low`, the last at or above `high`. For a range that is empty or not
/// finite, the marks are those of 0..1.
pub(super) fn linear_marks(low: f64, high: f64, wanted: u32) -> Vec<f64> {
    let span = high - low;
    if !span.is_finite() || span <= 0.0 || span < f64::EPSILON * high.abs().max(low.abs()) * 16.0 {
        return vec![0.0, 0.5, 1.0];
    }
    let rough = span / f64::from(wanted.max(1));
    let power = 10f64.powf(rough.log10().floor());
    let fits = |factor: &f64| rough / power <= factor * (1.0 + 1e-9);
    let step = power * [1.0, 2.0, 2.5, 5.0].into_iter().find(fits).unwrap_or(10.0);
    let (first, last) = ((low / step).floor(), (high / step).ceil());
    let indices = std::iter::successors(Some(first), |index| Some(index + 1.0));
    let within = indices.take_while(|index| *index <= last).take(MAX_MARKS);
    within.map(|index| index * step).collect()
}

/// Marks of a logarithmic axis over the positive range `low..=high`: 1, 2 and 5 times powers of ten for up
/// to four decades, otherwise powers of ten only. The first is at or below `low`, the last at or above
/// `high`; there are at least two.
fn logarithmic_marks(low: f64, high: f64) -> Vec<f64> {
    if !(low.is_normal() && high.is_finite()) || low <= 0.0 || high < low {
        return vec![1.0, 10.0];
    }
    let first = low.log10().floor();
    let last = high.log10().ceil().max(first + 1.0);
    let factors: &[f64] = if last - first <= 4.0 {
        &[1.0, 2.0, 5.0]
    } else {
        &[1.0]
    };
    let stride = ((last - first) / 10.0).ceil();
    let mut marks = Vec::new();
    let mut exponent = first;
    while exponent < last + stride && marks.len() < MAX_MARKS {
        marks.extend(factors.iter().map(|factor| factor * 10f64.powf(exponent)));
        exponent += stride;
    }
    // The tolerance accepts a mark that equals the end of the range except for rounding.
    let start = marks
        .iter()
        .rposition(|mark| *mark <= low * (1.0 + 1e-9))
        .unwrap_or(0);
    let end = marks.iter().position(|mark| *mark >= high * (1.0 - 1e-9));
    let end = end.unwrap_or(marks.len() - 1).max(start + 1);
    marks.into_iter().take(end + 1).skip(start).collect()
}

/// Formats a mark with the decimals that the step between marks needs: 0, 0.5, 1.0 or 0, 200, 400.
pub(super) fn format_mark(mark: f64, step: f64) -> String {
    let size = step.abs();
    if !(1e-6..1e7).contains(&size) {
        return format!("{mark:e}");
    }
    let is_whole = |scaled: f64| (scaled - scaled.round()).abs() <= 1e-6 * scaled;
    let decimals = (0..8_i32)
        .find(|n| is_whole(size * 10f64.powi(*n)))
        .unwrap_or(8);
    let decimals = usize::try_from(decimals).unwrap_or(0);
    // Adding zero makes a negative zero positive.
    text::group_thousands(&format!("{:.decimals$}", mark + 0.0))
}

/// For each label, whether it is shown. No two shown labels are nearer than `gap`. The first is shown, the
/// last if it fits, and others that fit between. `centres` are ascending.
pub(super) fn labels_with_room(centres: &[f64], widths: &[f64], gap: f64) -> Vec<bool> {
    let spans = centres.iter().zip(widths);
    let spans: Vec<(f64, f64)> = spans.map(|(c, w)| (c - w / 2.0, c + w / 2.0)).collect();
    let Some((&(_, mut edge), &(last, _))) = spans.first().zip(spans.last()) else {
        return Vec::new();
    };
    let last_fits = last >= edge + gap;
    let limit = if last_fits { last - gap } else { f64::INFINITY };
    let end = spans.len() - 1;
    let mut shown = Vec::new();
    for (index, (left, right)) in spans.into_iter().enumerate() {
        let fits = match index {
            0 => true,
            _ if index == end => last_fits,
            _ => left >= edge + gap && right <= limit,
        };
        if fits {
            edge = right;
        }
        shown.push(fits);
    }
    shown
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn swept(values: &[&str], logarithmic: bool) -> SweptAxis {
        let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        SweptAxis::of(&values, logarithmic, 0.0, 100.0)
    }

    #[test]
    fn a_linear_map_may_descend_and_never_leaves_its_range() {
        let at = |value| place(value, (0.0, 10.0), (200.0, 20.0));
        assert_eq!(
            [at(0.0), at(5.0), at(99.0), at(f64::NAN)],
            [200.0, 110.0, 20.0, 200.0]
        );
        assert_eq!(place(3.0, (3.0, 3.0), (0.0, 10.0)), 5.0);
    }

    #[test]
    fn swept_values_are_placed_linearly_logarithmically_or_evenly() {
        let linear = swept(&["0", "1", "5"], false);
        assert_eq!(
            (linear.places, linear.smallest_step),
            (vec![0.0, 20.0, 100.0], 20.0)
        );
        assert_eq!(swept(&["1", "5", "10"], false).places, [10.0, 50.0, 100.0]);
        assert_eq!(swept(&["1", "10", "100"], true).places, [0.0, 50.0, 100.0]);
        assert_eq!(swept(&["0", "1", "10"], true).places, [0.0, 12.0, 100.0]);
        let names = swept(&["256KB", "1MB"], false);
        assert_eq!((names.is_category, names.places), (true, vec![25.0, 75.0]));
        assert_eq!(swept(&["7"], true).places, [50.0]);
        assert!(swept(&[], false).places.is_empty());
        assert!(swept(&["5", "1"], false).is_category, "falling");
    }

    #[test]
    fn only_round_values_of_many_are_labelled() {
        let flows: Vec<String> = (1..=64).map(|value| value.to_string()).collect();
        let labelled = |logarithmic| -> Vec<&str> {
            let label_candidates = SweptAxis::of(&flows, logarithmic, 0.0, 100.0).label_candidates;
            let shown = flows
                .iter()
                .zip(label_candidates)
                .filter(|(_, is_candidate)| *is_candidate);
            shown.map(|(value, _)| value.as_str()).collect()
        };
        assert_eq!(labelled(true), ["1", "2", "5", "10", "20", "50", "64"]);
        assert_eq!(
            labelled(false),
            ["1", "10", "20", "30", "40", "50", "60", "64"]
        );
        assert_eq!(swept(&["3", "7", "11"], true).label_candidates, [true; 3]);
    }

    #[test]
    fn the_value_axis_covers_all_values() {
        let axis = ValueAxis::linear(&[3.0, 922.0, f64::NAN]);
        assert_eq!(
            (axis.marks[0], axis.marks[5], axis.marks.len()),
            (0.0, 1000.0, 6)
        );
        assert_eq!(axis.place(500.0, 200.0, 0.0), 100.0);
        assert_eq!(ValueAxis::linear(&[]).marks, [0.0, 0.5, 1.0]);
        let marks = [-4.0, -2.0, 0.0, 2.0, 4.0, 6.0, 8.0];
        assert_eq!(ValueAxis::linear(&[-3.0, 7.0]).marks, marks);
        let axis = ValueAxis::fitting(&[8.18, 924.0]);
        let places = [5.0, 1000.0, 0.0].map(|value| axis.place(value, 100.0, 0.0));
        assert_eq!((axis.logarithmic, places), (true, [100.0, 0.0, 100.0]));
        let labels: Vec<String> = axis.labels().into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["5", "10", "20", "50", "100", "200", "500", "1000"]);
        for near in [
            &[60.0, 915.0][..],
            &[0.0, 915.0],
            &[-1.0, 915.0],
            &[5.0],
            &[],
        ] {
            assert!(!ValueAxis::fitting(near).logarithmic, "{near:?}");
        }
    }

    #[test]
    fn invalid_ranges_have_marks_and_labels_have_the_decimals_of_the_step() {
        for (low, high) in [(5.0, 5.0), (f64::NAN, 1.0), (0.0, f64::INFINITY)] {
            assert_eq!(linear_marks(low, high, 5), [0.0, 0.5, 1.0]);
        }
        assert_eq!(logarithmic_marks(0.0, 10.0), [1.0, 10.0]);
        assert_eq!(logarithmic_marks(10.0, 10.0), [10.0, 20.0]);
        assert!(logarithmic_marks(1e-300, 1e300).len() <= 12);
        let labels = [
            format_mark(400.0, 200.0),
            format_mark(0.5, 0.25),
            format_mark(-0.0, 0.5),
            format_mark(2e9, 1e9),
        ];
        assert_eq!(labels, ["400", "0.50", "0.0", "2e9"]);
    }

    #[test]
    fn the_first_and_last_of_crowded_labels_are_shown() {
        let centres = [0.0, 10.0, 20.0, 30.0, 40.0];
        let crowded = [true, false, true, false, true];
        assert_eq!(labels_with_room(&centres, &[12.0; 5], 2.0), crowded);
        assert_eq!(labels_with_room(&centres, &[5.0; 5], 2.0), [true; 5]);
        assert_eq!(
            labels_with_room(&[0.0, 1.0], &[9.0, 9.0], 2.0),
            [true, false]
        );
        assert!(labels_with_room(&[], &[], 2.0).is_empty());
    }

    proptest! {
        #[test]
        fn marks_are_ascending_and_enclose_the_range(low in -1e9..1e9f64, span in 1e-3..1e9f64, wanted in 1..12u32) {
            let positive = (low.abs() + 1.0, low.abs() + 1.0 + span);
            for (low, high, marks) in [
                (low, low + span, linear_marks(low, low + span, wanted)),
                (positive.0, positive.1, logarithmic_marks(positive.0, positive.1)),
            ] {
                let slack = 1e-6 * span.max(high.abs());
                prop_assert!(marks.len() >= 2 && marks.len() <= MAX_MARKS);
                prop_assert!(marks.windows(2).all(|pair| pair[0] < pair[1]));
                prop_assert!(marks[0] <= low + slack && marks[marks.len() - 1] >= high - slack);
            }
        }

        #[test]
        fn places_are_ascending_and_within_the_range(
            values in proptest::collection::btree_set(0..1_000_000u32, 2..12),
            logarithmic: bool,
        ) {
            let written: Vec<String> = values.iter().map(ToString::to_string).collect();
            let axis = SweptAxis::of(&written, logarithmic, 10.0, 300.0);
            prop_assert_eq!(axis.places.len(), values.len());
            prop_assert!(axis.places.iter().all(|place| (9.999..=300.001).contains(place)));
            prop_assert!(axis.places.windows(2).all(|pair| pair[0] <= pair[1]));
        }
    }
}
