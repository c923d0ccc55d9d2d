//! Medians, and how far a mean can be trusted.

/// The median: the middle value, or the mean of the two middle ones. `None` without values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(sorted[middle - 1], upper))
}

/// Values that an interval needs.
pub(crate) const FEWEST: usize = 3;

/// Half-width of the 95 % confidence interval of the mean, `t · s / √n` with Student's t for n − 1
/// degrees of freedom. `None` with fewer than three values: of two, t is 12.7, and nothing can be said.
///
/// It assumes runs that are independent and roughly normal; with three repetitions t is 4.3, so a
/// wide interval says "few runs" as much as "runs differ".
#[allow(clippy::cast_precision_loss, reason = "a few repetitions")]
pub(crate) fn half_width(values: &[f64]) -> Option<f64> {
    let n = values.len();
    if n < FEWEST {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n as f64;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    let deviation = (squares / (n - 1) as f64).sqrt();
    Some(student_t_95(n - 1) * deviation / (n as f64).sqrt())
}

/// The 0.975 quantile of Student's t distribution for 1 to 30 degrees of freedom.
const STUDENT_T_95: [f64; 30] = [
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010,
    2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687,
    2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
];

/// The 0.975 quantile of the normal distribution.
const NORMAL_95: f64 = 1.959_964;

/// The 0.975 quantile of Student's t distribution: from the table, above it by the expansion about
/// the normal quantile (Abramowitz and Stegun, 26.7.5), whose error there is below 10⁻⁴.
#[allow(clippy::cast_precision_loss, reason = "a count of runs")]
fn student_t_95(degrees: usize) -> f64 {
    if let Some(t) = degrees.checked_sub(1).and_then(|i| STUDENT_T_95.get(i)) {
        return *t;
    }
    let (z, v) = (NORMAL_95, degrees as f64);
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    z + first / v + second / (v * v)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
    }

    #[test]
    fn intervals_of_known_samples() {
        assert_eq!(half_width(&[]), None);
        assert_eq!(half_width(&[7.0]), None);
        assert_eq!(half_width(&[7.0, 8.0]), None);
        assert_eq!(half_width(&[7.0, 7.0, 7.0]), Some(0.0));
        // s = 1, n = 3: 4.3027 / √3.
        let three = half_width(&[1.0, 2.0, 3.0]).unwrap();
        assert!((three - 2.4842).abs() < 1e-3, "{three}");
        // 1..=5: s = √2.5, t = 2.7764.
        let five = half_width(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert!((five - 1.9632).abs() < 1e-3, "{five}");
    }

    #[test]
    fn quantiles_beyond_the_table_are_those_of_printed_tables() {
        for (degrees, printed) in [(30, 2.0423), (40, 2.0211), (60, 2.0003), (120, 1.9799)] {
            let t = student_t_95(degrees);
            assert!((t - printed).abs() < 2e-4, "{degrees}: {t}");
        }
    }

    proptest! {
        #[test]
        fn a_median_has_half_the_values_on_each_side(values in prop::collection::vec(-1e9..1e9, 1..40)) {
            let m = median(&values).unwrap();
            let below = values.iter().filter(|v| **v <= m).count();
            let above = values.iter().filter(|v| **v >= m).count();
            prop_assert!(2 * below >= values.len() && 2 * above >= values.len());
        }

        #[test]
        fn shifting_all_runs_leaves_the_interval(
            values in prop::collection::vec(0.0..1e6, FEWEST..20),
            shift in 0.0..1e6,
        ) {
            let moved: Vec<f64> = values.iter().map(|v| v + shift).collect();
            let (a, b) = (half_width(&values).unwrap(), half_width(&moved).unwrap());
            prop_assert!((a - b).abs() <= 1e-6 * (1.0 + a));
        }
    }
}
