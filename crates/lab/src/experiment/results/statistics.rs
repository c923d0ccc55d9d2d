//! Statistics over the runs of a cell: medians, confidence intervals and their description for people.

use super::{FurtherMeasure, MeasureValue, ResultCell, RunRecord, SweepPoint};

/// Returns the median: the middle value, or the mean of the two middle ones. `None` without values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(match sorted.len() % 2 {
        1 => upper,
        _ => f64::midpoint(sorted[middle - 1], upper),
    })
}

/// The fewest values for which a confidence interval is shown.
pub(crate) const MIN_INTERVAL_VALUES: usize = 3;

/// Returns half the width of the 95 % confidence interval of the mean, `t · s / √n` with Student's t for
/// n − 1 degrees of freedom. `None` with fewer than three values: of two, t is 12.7, and the interval
/// would tell nothing.
///
/// It assumes that runs are independent and roughly normally distributed. With three repetitions t is
/// 4.3, so that a wide interval may also mean that there are few runs, not that they differ much.
#[allow(clippy::cast_precision_loss, reason = "a few repetitions")]
pub(crate) fn half_width(values: &[f64]) -> Option<f64> {
    let n = values.len();
    if n < MIN_INTERVAL_VALUES {
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

/// Returns the 0.975 quantile of Student's t distribution: from the table, and above its end by the
/// expansion about the normal quantile (Abramowitz and Stegun, 26.7.5), whose error there is below 10⁻⁴.
#[allow(clippy::cast_precision_loss, reason = "a count of runs")]
fn student_t_95(degrees: usize) -> f64 {
    if let Some(t) = degrees.checked_sub(1).and_then(|i| STUDENT_T_95.get(i)) {
        return *t;
    }
    let (z, v) = (1.959_964_f64, degrees as f64);
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    z + first / v + second / (v * v)
}

/// Makes a cell without runs.
pub(crate) fn empty_cell(program: &str, at: SweepPoint, paper: Option<f64>) -> ResultCell {
    ResultCell {
        program: program.to_owned(),
        at,
        chosen: None,
        median: None,
        half_width: None,
        paper,
        cpu_per_gigabyte: None,
        also: Default::default(),
        series: Vec::new(),
        samples: Vec::new(),
    }
}

/// Adds a run to a cell and recomputes the cell's statistics from its valid runs.
pub(crate) fn add_run(cell: &mut ResultCell, run: RunRecord) {
    cell.samples.push(run);
    let valid = || cell.samples.iter().filter(|run| run.invalid.is_empty());
    let values: Vec<f64> = valid().filter_map(|run| run.value).collect();
    let cpu: Vec<f64> = valid().filter_map(cpu_per_gigabyte).collect();
    for (key, value) in &mut cell.also {
        let values: Vec<f64> = valid()
            .filter_map(|run| run.also.get(key).copied())
            .collect();
        *value = MeasureValue {
            median: median(&values),
            half_width: half_width(&values),
            paper: value.paper,
        };
    }
    (cell.median, cell.half_width) = (median(&values), half_width(&values));
    cell.cpu_per_gigabyte = median(&cpu);
}

/// The fewest bytes for which processor time is divided by them: below, start and end of the programs
/// take most of it.
const MIN_BYTES_FOR_CPU: u64 = 1 << 20;

/// Returns the processor seconds per GB (10⁹ bytes). `None`: the run failed or moved too few bytes.
#[allow(clippy::cast_precision_loss, reason = "file sizes are far below 2⁵³")]
fn cpu_per_gigabyte(run: &RunRecord) -> Option<f64> {
    run.value?;
    let seconds = run.cpu_seconds?;
    (run.bytes >= MIN_BYTES_FOR_CPU).then_some(seconds / (run.bytes as f64 / 1e9))
}

/// Describes a cell in one line for people: program, point, median, the reference value with its name
/// (`reference`), further measures and processor time.
pub(crate) fn describe_cell(
    cell: &ResultCell,
    reference: &str,
    unit: &str,
    also: &[FurtherMeasure],
) -> String {
    let label = match &cell.chosen {
        Some(chosen) => format!("{} ({chosen})", cell.program),
        None => cell.program.clone(),
    };
    let at: Vec<String> = cell
        .at
        .iter()
        .map(|(axis, value)| format!("{axis} {value}"))
        .collect();
    let value = match (cell.median, cell.half_width) {
        (Some(m), Some(h)) => format!("{} ± {} {unit}", format_number(m), format_number(h)),
        (Some(m), None) => format!("{} {unit}", format_number(m)),
        (None, _) => {
            let last = cell.samples.last().and_then(|run| run.invalid.first());
            format!(
                "no result: {}",
                last.map_or("it did not run", String::as_str)
            )
        }
    };
    let mut line = format!("{label:<20} {:<20} {value}", at.join(", "));
    if let Some(paper) = cell.paper {
        line += &format!("  ({reference} {})", format_number(paper));
    }
    for further in also {
        if let Some(median) = cell.also.get(&further.key).and_then(|value| value.median) {
            line += &format!(
                "  {} {} {}",
                further.label,
                format_number(median),
                further.unit
            );
        }
    }
    if let Some(seconds) = cell.cpu_per_gigabyte {
        line += &format!("  {seconds:.2} CPU s/GB");
    }
    let valid = || cell.samples.iter().filter(|run| run.invalid.is_empty());
    if let Some(limit) = valid()
        .filter_map(|run| run.limited_by.as_deref())
        .next_back()
    {
        line += &format!("  limited by {limit}");
    }
    let (all, count) = (cell.samples.len(), valid().count());
    if count < all && cell.median.is_some() {
        line += &format!("  [{} of {all} runs are not valid]", all - count);
    }
    line
}

/// Shows a number with four significant digits, and never fewer than all digits before the point.
fn format_number(value: f64) -> String {
    let digits = match value.abs() {
        a if a >= 1000.0 => 0,
        a if a >= 100.0 => 1,
        a if a >= 10.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(value: Option<f64>, invalid: &[&str]) -> RunRecord {
        RunRecord {
            value,
            invalid: invalid.iter().map(|s| (*s).to_owned()).collect(),
            spoiled: false,
            seconds: 2.0,
            bytes: 500_000_000,
            took: None,
            cpu_seconds: Some(0.25),
            seed: 7,
            command: "cp".into(),
            limited_by: None,
            also: [("seconds".to_owned(), 3.0)].into(),
        }
    }

    #[test]
    fn medians_and_intervals_agree_with_known_values() {
        assert_eq!((median(&[]), median(&[9.0, 1.0, 5.0])), (None, Some(5.0)));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(
            (half_width(&[7.0, 8.0]), half_width(&[7.0; 3])),
            (None, Some(0.0))
        );
        // s = 1, n = 3: 4.3027 / √3; s = √2.5, n = 5: t = 2.7764.
        assert!((half_width(&[1.0, 2.0, 3.0]).unwrap() - 2.4842).abs() < 1e-3);
        assert!((half_width(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap() - 1.9632).abs() < 1e-3);
        // Above the table's end, the expansion agrees with printed tables.
        for (degrees, printed) in [(40, 2.0211), (60, 2.0003), (120, 1.9799)] {
            assert!((student_t_95(degrees) - printed).abs() < 2e-4, "{degrees}");
        }
    }

    #[test]
    fn only_valid_runs_count_and_the_line_reports_the_others() {
        let at: SweepPoint = [("p".to_owned(), "4".to_owned())].into();
        let mut cell = empty_cell("x", at, Some(90.0));
        let published = MeasureValue {
            paper: Some(9.0),
            ..MeasureValue::default()
        };
        cell.also.insert("seconds".to_owned(), published);
        let line = |cell: &ResultCell| describe_cell(cell, "published", "Mbit/s", &[]);
        add_run(&mut cell, run(Some(500.0), &["late"]));
        assert_eq!((cell.median, cell.cpu_per_gigabyte), (None, None));
        assert!(line(&cell).contains("no result: late"));
        for value in [1.0, 2.0, 3.0] {
            add_run(&mut cell, run(Some(value), &[]));
        }
        add_run(&mut cell, run(None, &["exit code 1"]));
        assert_eq!((cell.median, cell.cpu_per_gigabyte), (Some(2.0), Some(0.5)));
        let seconds = cell.also["seconds"];
        assert_eq!((seconds.median, seconds.paper), (Some(3.0), Some(9.0)));
        cell.samples[2].limited_by = Some("loss".to_owned());
        let described = line(&cell);
        for part in [
            "p 4",
            "2.000 ± 2.484 Mbit/s",
            "(published 90.00)",
            "0.50 CPU s/GB",
            "limited by loss",
            "[2 of 5 runs are not valid]",
        ] {
            assert!(described.contains(part), "{part}: {described}");
        }
        assert_eq!(
            [0.1234, 12.345, 915.22].map(format_number),
            ["0.123", "12.35", "915.2"]
        );
    }

    proptest! {
        #[test]
        fn a_median_has_half_the_values_on_each_side(values in prop::collection::vec(-1e9..1e9, 1..40)) {
            let m = median(&values).unwrap();
            let below = values.iter().filter(|v| **v <= m).count();
            let above = values.iter().filter(|v| **v >= m).count();
            prop_assert!(2 * below >= values.len() && 2 * above >= values.len());
        }
    }
}
