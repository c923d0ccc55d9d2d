use super::*;
use proptest::prelude::*;

fn series(values: &[f64]) -> Series {
    Series::from_values(10, values.iter().copied())
}

fn assert_near(found: Option<f64>, expected: f64) {
    let found = found.unwrap();
    assert!(
        (found - expected).abs() < expected * 0.003,
        "{found} {expected}"
    );
}

#[test]
fn the_trimmed_mean_discards_the_largest_and_smallest_of_ten() {
    let ten: Vec<f64> = (1..=9).map(f64::from).chain([1000.0]).collect();
    assert_near(series(&ten[..9]).trimmed_mean(), 5.0);
    let unjudged = Series {
        values: ten,
        ..Series::new(10)
    };
    assert_near(unjudged.trimmed_mean(), 5.5);
    assert_eq!(Series::default().trimmed_mean(), None);
    assert_near(series(&[3.0, 5.0]).trimmed_mean(), 4.0);
}

#[test]
fn only_the_last_ten_values_count() {
    let drifting: Vec<f64> = (0..30).map(|n| 100.0 + f64::from(n)).collect();
    let series = series(&drifting);
    assert_eq!(series.values(), &drifting[20..]);
    assert_near(series.trimmed_mean(), 124.5);
    assert_eq!(series.len(), 10);
}

#[test]
fn values_take_no_more_room_than_there_are_values() {
    let mut series = Series::new(usize::MAX);
    for n in 0..300_u32 {
        series.push(100.0 + f64::from(n % 2));
        assert_eq!(series.values.capacity(), series.len());
    }
    assert_eq!(series.len(), MAX_KEEP);
    for _ in 0..3 {
        series.push(1000.0);
    }
    assert_eq!((series.len(), series.values.capacity()), (3, 3));
}

#[test]
fn an_outlier_is_forgotten_when_it_is_the_oldest() {
    let mut series = series(&[100.0, 101.0, 99.0, 400.0, 100.0, 100.0]);
    assert_eq!(series.outliers, 0b1000);
    for _ in 0..7 {
        series.push(100.0);
    }
    assert_eq!((series.values()[0], series.outliers), (400.0, 1));
    series.push(100.0);
    assert_eq!(series.outliers, 0);
}

#[test]
fn three_successive_outliers_drop_the_older_values() {
    let mut series = series(&[
        100.0, 102.0, 98.0, 101.0, 99.0, 100.0, 100.0, 101.0, 99.0, 100.0,
    ]);
    let outlier = |event| matches!(event, Some(SeriesEvent::Outlier { .. }));
    assert!(outlier(series.push(400.0)));
    assert_near(series.trimmed_mean(), 100.0);
    assert!(outlier(series.push(410.0)));
    assert_near(series.trimmed_mean(), 100.0);
    let Some(SeriesEvent::Shift { from, to }) = series.push(390.0) else {
        panic!("{series:?}");
    };
    assert!((from - 100.0).abs() < 1.0 && (to - 400.0).abs() < 1e-9);
    assert_eq!(series.values(), [400.0, 410.0, 390.0]);
    assert_near(series.trimmed_mean(), 400.0);
}

#[test]
fn a_fourfold_rate_is_taken_up_after_three_tests_however_few_came_before() {
    for before in 3..=25 {
        for (from, to) in [(100e6, 400e6), (400e6, 100e6)] {
            let mut series = Series::from_values(10, (0..before).map(|_| from));
            let events: Vec<_> = (0..3).map(|_| series.push(to)).collect();
            assert_eq!(events[2], Some(SeriesEvent::Shift { from, to }), "{before}");
            assert_near(series.trimmed_mean(), to);
        }
    }
}

#[test]
fn an_outlier_does_not_hide_a_later_change() {
    let mut series = series(&[100.0, 101.0, 99.0, 100.0, 400.0, 100.0]);
    series.push(400.0);
    series.push(400.0);
    assert!(matches!(
        series.push(400.0),
        Some(SeriesEvent::Shift { .. })
    ));
}

#[test]
fn two_outliers_and_a_normal_value_are_no_change() {
    let mut series = series(&[100.0; 10]);
    for value in [400.0, 400.0, 100.0, 400.0, 400.0, 100.0] {
        let event = series.push(value);
        assert!(
            !matches!(event, Some(SeriesEvent::Shift { .. })),
            "{event:?}"
        );
    }
}

#[test]
fn values_that_often_alternate_are_normal() {
    let alternating = (0..20).map(|n| if n % 2 == 0 { 100.0 } else { 300.0 });
    let mut series = Series::from_values(10, alternating);
    assert_eq!(series.push(300.0), None);
    assert_eq!(series.push(100.0), None);
    assert_near(series.trimmed_mean(), 200.0);
}

#[test]
fn identical_values_tolerate_a_difference_of_ten_per_cent() {
    let mut series = series(&[20.0; 10]);
    assert_eq!(series.push(21.9), None);
    assert!(series.push(30.0).is_some());
    // Without a mean there is no relative deviation: any value differs from zeros.
    let mut zeros = Series::from_values(10, [0.0; 10]);
    assert_eq!(zeros.push(0.0), None);
    assert!(zeros.push(0.01).is_some());
}

#[test]
fn numbers_that_are_none_are_ignored_and_huge_ones_bounded() {
    let mut series = Series::new(0);
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(series.push(value), None);
    }
    assert!(series.is_empty() && series.quantile(0.5).is_none());
    for _ in 0..20 {
        series.push(f64::MAX);
        series.push(f64::MIN);
    }
    let (mean, deviation) = series.mean_and_deviation().unwrap();
    assert!(mean.is_finite() && deviation.is_finite());
    assert_eq!(series.quantile(f64::NAN), None);
    assert_eq!(series.quantile(7.0), Some(LARGEST));
}

#[test]
fn quantiles_interpolate() {
    let series = series(&[10.0, 40.0, 20.0, 30.0, 50.0]);
    assert_near(series.quantile(0.5), 30.0);
    assert_near(series.quantile(0.1), 14.0);
    assert_near(series.quantile(1.0), 50.0);
}

proptest! {
    /// One outlier of any size among normal values moves the advice by no more than they themselves vary.
    #[test]
    fn one_outlier_changes_nothing(
        values in prop::collection::vec(95.0_f64..105.0, 3..20),
        outlier in prop_oneof![-1e17_f64..90.0, 110.0_f64..1e17],
        after in prop::collection::vec(95.0_f64..105.0, 0..9),
    ) {
        let mut series = Series::from_values(10, values);
        series.push(outlier);
        let mut shifted = false;
        for value in after {
            shifted |= matches!(series.push(value), Some(SeriesEvent::Shift { .. }));
        }
        prop_assert!(!shifted);
        let mean = series.trimmed_mean().unwrap();
        prop_assert!((95.0..=105.0).contains(&mean), "{}", mean);
    }

    /// Whatever comes in, all statistics are finite, within the values, and the memory is bounded.
    #[test]
    fn statistics_stay_within_the_values(values in prop::collection::vec(any::<f64>(), 0..60), keep in 0_usize..20) {
        let series = Series::from_values(keep, values);
        prop_assert!(series.len() <= keep.max(MIN_KEEP));
        let low = series.quantile(0.0);
        let high = series.quantile(1.0);
        prop_assert_eq!(low.is_none(), series.is_empty());
        if let (Some(low), Some(high), Some(mean)) = (low, high, series.trimmed_mean()) {
            let margin = low.abs().max(high.abs()) * 1e-9;
            prop_assert!(mean >= low - margin && mean <= high + margin);
            let (_, deviation) = series.mean_and_deviation().unwrap();
            prop_assert!(deviation.is_finite() && deviation >= 0.0);
        }
    }
}
