//! From values to places on an axis.

use super::ticks;

/// A linear map from values to coordinates; the coordinates may fall (SVG's y axis does).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Linear {
    /// Lowest and highest value.
    pub(super) values: (f64, f64),
    /// Where they are drawn.
    pub(super) places: (f64, f64),
}

impl Linear {
    /// The place of `value`; values outside are drawn at the edge.
    pub(super) fn place(&self, value: f64) -> f64 {
        let (low, high) = self.values;
        let span = high - low;
        let share = if span > 0.0 && span.is_finite() {
            ((value - low) / span).clamp(0.0, 1.0)
        } else {
            0.5
        };
        let (start, end) = self.places;
        // A value that is not a number has no share; the edge is as good as any place.
        if share.is_nan() {
            start
        } else {
            start + share * (end - start)
        }
    }
}

/// How the values of a swept axis lie on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Numbers, drawn in proportion.
    Linear,
    /// Numbers, each decade as wide as the next. Zero, where it occurs, has its own place.
    Logarithmic,
    /// Names: evenly spaced.
    Category,
}

/// Share of a logarithmic axis that is set aside for the value zero.
const ZERO_SHARE: f64 = 0.12;

/// Places of an axis's values, one for each.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sweep {
    /// How they lie.
    pub(super) kind: Kind,
    /// Where, in the order of the values.
    pub(super) places: Vec<f64>,
    /// Which values deserve a label, whether or not there is room: all, or the round ones of many.
    pub(super) worthy: Vec<bool>,
    /// Width that belongs to one value where they are evenly spaced; otherwise the smallest
    /// distance between two.
    pub(super) room: f64,
}

impl Sweep {
    /// Places for `values` between the coordinates `start` and `end`.
    pub(super) fn of(values: &[String], logarithmic: bool, start: f64, end: f64) -> Self {
        let numbers = numbers(values);
        let worthy = match &numbers {
            Some(numbers) if numbers.len() > MANY => round(numbers, logarithmic),
            _ => vec![true; values.len()],
        };
        let (kind, places) = match numbers {
            Some(numbers) if logarithmic => {
                (Kind::Logarithmic, logarithmic_places(&numbers, start, end))
            }
            Some(numbers) => (Kind::Linear, linear_places(&numbers, start, end)),
            None => (Kind::Category, even_places(values.len(), start, end)),
        };
        let room = room(&places, end - start);
        Self {
            kind,
            places,
            worthy,
            room,
        }
    }
}

/// With more values than this, only round ones are labelled.
const MANY: usize = 16;

/// The first, the last, and those that an axis without given values would be marked at.
fn round(numbers: &[f64], logarithmic: bool) -> Vec<bool> {
    let low = numbers
        .iter()
        .copied()
        .find(|number| *number > 0.0 || !logarithmic);
    let (low, high) = (low.unwrap_or(0.0), numbers.last().copied().unwrap_or(1.0));
    let marks = if logarithmic {
        ticks::logarithmic(low, high)
    } else {
        ticks::linear(low, high, 8)
    };
    let last = numbers.len() - 1;
    let near = |number: f64, mark: f64| (number - mark).abs() <= 1e-9 * mark.abs().max(1e-9);
    numbers
        .iter()
        .enumerate()
        .map(|(index, number)| {
            index == 0 || index == last || marks.iter().any(|mark| near(*number, *mark))
        })
        .collect()
}

/// All values as numbers, or `None` if one is not, if there are fewer than two, or if they do not
/// rise: then the order in the experiment is what matters.
fn numbers(values: &[String]) -> Option<Vec<f64>> {
    let numbers: Vec<f64> = values
        .iter()
        .map(|value| {
            value
                .trim()
                .parse::<f64>()
                .ok()
                .filter(|number| number.is_finite())
        })
        .collect::<Option<_>>()?;
    let rises = numbers.windows(2).all(|pair| pair[0] < pair[1]);
    let drawable = numbers.len() > 1 && numbers.iter().all(|number| number.abs() < 1e15);
    (rises && drawable).then_some(numbers)
}

fn linear_places(numbers: &[f64], start: f64, end: f64) -> Vec<f64> {
    let low = numbers.first().copied().unwrap_or(0.0);
    let high = numbers.last().copied().unwrap_or(1.0);
    // An axis of positive values that nearly begins at zero begins there: proportions show.
    let low = if low > 0.0 && low <= high * 0.2 {
        0.0
    } else {
        low
    };
    let scale = Linear {
        values: (low, high),
        places: (start, end),
    };
    numbers.iter().map(|number| scale.place(*number)).collect()
}

fn logarithmic_places(numbers: &[f64], start: f64, end: f64) -> Vec<f64> {
    let positive: Vec<f64> = numbers
        .iter()
        .copied()
        .filter(|number| *number > 0.0)
        .collect();
    let (Some(low), Some(high)) = (positive.first(), positive.last()) else {
        return even_places(numbers.len(), start, end);
    };
    let has_zero = positive.len() < numbers.len();
    let first = if has_zero {
        start + (end - start) * ZERO_SHARE
    } else {
        start
    };
    let scale = Linear {
        values: (low.log10(), high.log10()),
        places: (first, end),
    };
    numbers
        .iter()
        .map(|number| {
            if *number > 0.0 {
                scale.place(number.log10())
            } else {
                start
            }
        })
        .collect()
}

fn even_places(count: usize, start: f64, end: f64) -> Vec<f64> {
    let counted = u32::try_from(count).unwrap_or(u32::MAX);
    let band = (end - start) / f64::from(counted.max(1));
    (0..counted)
        .map(|index| start + band * (f64::from(index) + 0.5))
        .collect()
}

fn room(places: &[f64], whole: f64) -> f64 {
    places
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .fold(whole, f64::min)
}

/// The largest value is so many times the smallest that a linear axis would hide the small ones.
const TOO_WIDE: f64 = 50.0;

/// The vertical axis, which has room for every value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Vertical {
    /// Marks, lowest first; the ends of the axis are its first and last.
    pub(super) marks: Vec<f64>,
    /// Equal factors are equal distances.
    pub(super) logarithmic: bool,
}

impl Vertical {
    /// A linear axis from zero (or below, if a value is) to above every one of `values`.
    pub(super) fn linear(values: &[f64]) -> Self {
        let (low, high) = extremes(values, 0.0, 0.0);
        Self {
            marks: ticks::linear(low, high, 5),
            logarithmic: false,
        }
    }

    /// A logarithmic axis if `values` are positive and far apart, else a linear one.
    pub(super) fn fitting(values: &[f64]) -> Self {
        let (low, high) = extremes(values, f64::INFINITY, 0.0);
        if low > 0.0 && low < high && high / low >= TOO_WIDE {
            Self {
                marks: ticks::logarithmic(low, high),
                logarithmic: true,
            }
        } else {
            Self::linear(values)
        }
    }

    /// The place of `value` on an axis between the coordinates `bottom` and `top`.
    pub(super) fn place(&self, value: f64, bottom: f64, top: f64) -> f64 {
        let low = self.marks.first().copied().unwrap_or(0.0);
        let high = self.marks.last().copied().unwrap_or(1.0);
        let places = (bottom, top);
        if self.logarithmic {
            // Zero and what is below it stand on the floor.
            let at = if value > 0.0 {
                value.log10()
            } else {
                low.log10()
            };
            Linear {
                values: (low.log10(), high.log10()),
                places,
            }
            .place(at)
        } else {
            Linear {
                values: (low, high),
                places,
            }
            .place(value)
        }
    }

    /// Each mark with its label.
    pub(super) fn labels(&self) -> impl Iterator<Item = (f64, String)> + '_ {
        let step = match self.marks.as_slice() {
            [first, second, ..] => second - first,
            _ => 1.0,
        };
        self.marks.iter().map(move |mark| {
            let step = if self.logarithmic { *mark } else { step };
            (*mark, ticks::label(*mark, step))
        })
    }
}

fn extremes(values: &[f64], low: f64, high: f64) -> (f64, f64) {
    values
        .iter()
        .filter(|value| value.is_finite())
        .fold((low, high), |(low, high), value| {
            (low.min(*value), high.max(*value))
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(values: &[&str]) -> Vec<String> {
        values.iter().map(|value| (*value).to_owned()).collect()
    }

    #[test]
    fn a_linear_scale_may_fall_and_never_leaves_its_range() {
        let scale = Linear {
            values: (0.0, 10.0),
            places: (200.0, 20.0),
        };
        assert_eq!(scale.place(0.0), 200.0);
        assert_eq!(scale.place(5.0), 110.0);
        assert_eq!(scale.place(99.0), 20.0);
        assert_eq!(scale.place(f64::NAN), 200.0);
        let point = Linear {
            values: (3.0, 3.0),
            places: (0.0, 10.0),
        };
        assert_eq!(point.place(3.0), 5.0);
    }

    #[test]
    fn numbers_lie_in_proportion() {
        let sweep = Sweep::of(&texts(&["0", "1", "5"]), false, 0.0, 100.0);
        assert_eq!(sweep.kind, Kind::Linear);
        assert_eq!(sweep.places, [0.0, 20.0, 100.0]);
        assert_eq!(sweep.room, 20.0);
        let from_zero = Sweep::of(&texts(&["1", "5", "10"]), false, 0.0, 100.0);
        assert_eq!(from_zero.places, [10.0, 50.0, 100.0]);
    }

    #[test]
    fn decades_are_as_wide_as_each_other_and_zero_has_a_place() {
        let sweep = Sweep::of(&texts(&["1", "10", "100"]), true, 0.0, 100.0);
        assert_eq!(sweep.places, [0.0, 50.0, 100.0]);
        let zero = Sweep::of(&texts(&["0", "1", "10"]), true, 0.0, 100.0);
        assert_eq!(zero.kind, Kind::Logarithmic);
        assert_eq!(zero.places, [0.0, 12.0, 100.0]);
    }

    #[test]
    fn names_and_single_values_are_evenly_spaced() {
        let sweep = Sweep::of(&texts(&["256KB", "1MB"]), false, 0.0, 100.0);
        assert_eq!(
            (sweep.kind, sweep.places),
            (Kind::Category, vec![25.0, 75.0])
        );
        assert_eq!(Sweep::of(&texts(&["7"]), true, 0.0, 100.0).places, [50.0]);
        assert!(Sweep::of(&[], false, 0.0, 100.0).places.is_empty());
        let falling = Sweep::of(&texts(&["5", "1"]), false, 0.0, 100.0);
        assert_eq!(falling.kind, Kind::Category);
    }

    #[test]
    fn of_many_values_the_round_ones_are_labelled() {
        let labelled = |values: Vec<String>, logarithmic| -> Vec<String> {
            let sweep = Sweep::of(&values, logarithmic, 0.0, 100.0);
            values
                .into_iter()
                .zip(sweep.worthy)
                .filter(|(_, worthy)| *worthy)
                .map(|(value, _)| value)
                .collect()
        };
        let flows: Vec<String> = (1..=64).map(|value| value.to_string()).collect();
        assert_eq!(
            labelled(flows.clone(), true),
            ["1", "2", "5", "10", "20", "50", "64"]
        );
        let tens = ["1", "10", "20", "30", "40", "50", "60", "64"];
        assert_eq!(labelled(flows, false), tens);
        assert_eq!(labelled(texts(&["3", "7", "11"]), true), ["3", "7", "11"]);
    }

    #[test]
    fn the_vertical_axis_has_room_for_everything() {
        let axis = Vertical::linear(&[3.0, 922.0, f64::NAN]);
        assert_eq!(axis.marks.last(), Some(&1000.0));
        assert_eq!(axis.marks.first(), Some(&0.0));
        assert_eq!(axis.place(500.0, 200.0, 0.0), 100.0);
        assert_eq!(Vertical::linear(&[]).marks.len(), 3);
        assert_eq!(Vertical::linear(&[-3.0, 7.0]).marks.first(), Some(&-4.0));
    }

    #[test]
    fn values_far_apart_get_a_logarithmic_axis() {
        let axis = Vertical::fitting(&[8.18, 924.0]);
        assert!(axis.logarithmic);
        let places: Vec<f64> = [5.0, 1000.0, 0.0]
            .iter()
            .map(|value| axis.place(*value, 100.0, 0.0))
            .collect();
        assert_eq!(places, [100.0, 0.0, 100.0]);
        let labels: Vec<String> = axis.labels().map(|(_, label)| label).collect();
        assert_eq!(labels, ["5", "10", "20", "50", "100", "200", "500", "1000"]);
        for near in [
            &[60.0, 915.0][..],
            &[0.0, 915.0],
            &[-1.0, 915.0],
            &[5.0],
            &[],
        ] {
            assert!(!Vertical::fitting(near).logarithmic, "{near:?}");
        }
    }

    proptest! {
        #[test]
        fn places_rise_within_the_range(
            mut values in proptest::collection::vec(0.0..1e6f64, 2..12),
            logarithmic: bool,
        ) {
            values.sort_by(f64::total_cmp);
            values.dedup();
            let written: Vec<String> = values.iter().map(ToString::to_string).collect();
            let sweep = Sweep::of(&written, logarithmic, 10.0, 300.0);
            prop_assert_eq!(sweep.places.len(), values.len());
            prop_assert!(sweep.places.iter().all(|place| (9.999..=300.001).contains(place)));
            prop_assert!(sweep.places.windows(2).all(|pair| pair[0] <= pair[1]));
        }
    }
}
