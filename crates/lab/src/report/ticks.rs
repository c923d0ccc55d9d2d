//! Where an axis has its marks, and which of them have room for a label.

use super::number;

/// Most marks that an axis ever gets, whatever its range.
const MOST: usize = 50;

/// Round values that cover `low..=high` with about `wanted` steps of 1, 2, 2.5 or 5 times a power of
/// ten. The first is at or below `low`, the last at or above `high`. A range that is empty or not
/// finite gives the marks of 0..1.
pub(super) fn linear(low: f64, high: f64, wanted: u32) -> Vec<f64> {
    let span = high - low;
    if !span.is_finite() || span <= 0.0 || span < f64::EPSILON * high.abs().max(low.abs()) * 16.0 {
        return vec![0.0, 0.5, 1.0];
    }
    let step = round_step(span / f64::from(wanted.max(1)));
    let first = (low / step).floor();
    let last = (high / step).ceil();
    let mut marks = Vec::new();
    let mut index = first;
    while index <= last && marks.len() < MOST {
        marks.push(index * step);
        index += 1.0;
    }
    marks
}

/// Marks of a logarithmic axis over the positive range `low..=high`: 1, 2 and 5 times powers of ten
/// while there are few decades, then powers of ten alone. The first is at or below `low`, the last
/// at or above `high`; there are at least two.
pub(super) fn logarithmic(low: f64, high: f64) -> Vec<f64> {
    if !(low.is_normal() && high.is_finite()) || low <= 0.0 || high < low {
        return vec![1.0, 10.0];
    }
    let (first, last) = (
        low.log10().floor(),
        high.log10().ceil().max(low.log10().floor() + 1.0),
    );
    let decades = last - first;
    let factors: &[f64] = if decades <= 4.0 {
        &[1.0, 2.0, 5.0]
    } else {
        &[1.0]
    };
    let stride = (decades / 10.0).ceil();
    let mut marks = Vec::new();
    let mut exponent = first;
    while exponent < last + stride && marks.len() < MOST {
        marks.extend(factors.iter().map(|factor| factor * 10f64.powf(exponent)));
        exponent += stride;
    }
    // Rounding must not push an end past the value that stands on it.
    let start = marks
        .iter()
        .rposition(|mark| *mark <= low * (1.0 + 1e-9))
        .unwrap_or(0);
    let reaches = |mark: &f64| *mark >= high * (1.0 - 1e-9);
    let end = marks
        .iter()
        .position(reaches)
        .unwrap_or(marks.len() - 1)
        .max(start + 1);
    marks.into_iter().take(end + 1).skip(start).collect()
}

/// A mark's label, with the decimals that its neighbours need: 0, 0.5, 1.0 or 0, 200, 400.
pub(super) fn label(mark: f64, step: f64) -> String {
    let size = step.abs();
    if !(1e-6..1e7).contains(&size) {
        return format!("{mark:e}");
    }
    let mut decimals = 0;
    let mut scaled = size;
    while (scaled - scaled.round()).abs() > 1e-6 * scaled && decimals < 8 {
        decimals += 1;
        scaled *= 10.0;
    }
    // Adding zero makes a negative zero positive.
    number::grouped(&format!("{:.decimals$}", mark + 0.0))
}

/// Which labels to show so that no two come nearer than `gap`: the first and the last if they can,
/// and in between each that has room. `centres` rise; `widths` are the labels' own.
pub(super) fn with_room(centres: &[f64], widths: &[f64], gap: f64) -> Vec<bool> {
    let spans: Vec<(f64, f64)> = centres
        .iter()
        .zip(widths)
        .map(|(centre, width)| (centre - width / 2.0, centre + width / 2.0))
        .collect();
    let Some(((_, mut edge), (last, _))) = spans.first().copied().zip(spans.last().copied()) else {
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

/// The smallest of 1, 2, 2.5, 5 or 10 times a power of ten that is not below `rough`.
fn round_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let fraction = rough / power;
    let round = [1.0, 2.0, 2.5, 5.0]
        .into_iter()
        .find(|candidate| fraction <= candidate * (1.0 + 1e-9))
        .unwrap_or(10.0);
    round * power
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn round_marks_cover_the_range() {
        assert_eq!(
            linear(0.0, 924.0, 5),
            [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0]
        );
        assert_eq!(linear(0.0, 1.0, 4), [0.0, 0.25, 0.5, 0.75, 1.0]);
        assert_eq!(linear(-3.0, 7.0, 5), [-4.0, -2.0, 0.0, 2.0, 4.0, 6.0, 8.0]);
    }

    #[test]
    fn empty_and_endless_ranges_still_have_marks() {
        for (low, high) in [
            (0.0, 0.0),
            (5.0, 5.0),
            (f64::NAN, 1.0),
            (0.0, f64::INFINITY),
        ] {
            assert_eq!(linear(low, high, 5), [0.0, 0.5, 1.0]);
        }
        assert_eq!(logarithmic(0.0, 10.0), [1.0, 10.0]);
    }

    #[test]
    fn logarithmic_marks_cover_the_range() {
        assert_eq!(
            logarithmic(8.18, 924.0),
            [5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]
        );
        assert_eq!(logarithmic(10.0, 10.0), [10.0, 20.0]);
        assert_eq!(logarithmic(2.0, 1_000_000.0)[..3], [1.0, 10.0, 100.0]);
        assert!(logarithmic(1e-300, 1e300).len() <= 12);
    }

    #[test]
    fn labels_have_the_decimals_of_the_step() {
        assert_eq!(label(400.0, 200.0), "400");
        assert_eq!(label(0.5, 0.25), "0.50");
        assert_eq!(label(-0.0, 0.5), "0.0");
        assert_eq!(label(2e9, 1e9), "2e9");
    }

    #[test]
    fn crowded_labels_give_way_to_the_first_and_last() {
        let centres = [0.0, 10.0, 20.0, 30.0, 40.0];
        assert_eq!(
            with_room(&centres, &[12.0; 5], 2.0),
            [true, false, true, false, true]
        );
        assert_eq!(with_room(&centres, &[5.0; 5], 2.0), [true; 5]);
        assert_eq!(with_room(&[5.0], &[50.0], 2.0), [true]);
        assert_eq!(with_room(&[0.0, 1.0], &[9.0, 9.0], 2.0), [true, false]);
        assert!(with_room(&[], &[], 2.0).is_empty());
    }

    proptest! {
        #[test]
        fn marks_rise_and_enclose(low in -1e9..1e9f64, span in 1e-3..1e9f64, wanted in 1..12u32) {
            let marks = linear(low, low + span, wanted);
            prop_assert!(marks.len() >= 2 && marks.len() <= MOST);
            prop_assert!(marks.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(marks[0] <= low + span * 1e-6);
            prop_assert!(marks[marks.len() - 1] >= low + span * (1.0 - 1e-6));
        }

        #[test]
        fn logarithmic_marks_rise_and_enclose(low in -9.0..9.0f64, span in 0.0..9.0f64) {
            let (low, high) = (10f64.powf(low), 10f64.powf(low + span));
            let marks = logarithmic(low, high);
            prop_assert!(marks.len() >= 2 && marks.len() <= MOST);
            prop_assert!(marks.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(marks[0] <= low * 1.0001 && marks[marks.len() - 1] >= high * 0.9999);
        }

        #[test]
        fn shown_labels_never_overlap(
            steps in proptest::collection::vec((0.0..30.0f64, 1.0..40.0f64), 1..20),
        ) {
            let mut at = 0.0;
            let (mut centres, mut widths) = (Vec::new(), Vec::new());
            for (step, width) in steps {
                at += step;
                centres.push(at);
                widths.push(width);
            }
            let shown = with_room(&centres, &widths, 1.0);
            let mut edge = f64::NEG_INFINITY;
            for index in (0..centres.len()).filter(|index| shown[*index]) {
                prop_assert!(centres[index] - widths[index] / 2.0 >= edge);
                edge = centres[index] + widths[index] / 2.0;
            }
        }
    }
}
