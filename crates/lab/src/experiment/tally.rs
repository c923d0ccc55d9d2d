//! Samples become cells: what counts, its median, and how far it can be trusted.

use super::axes::At;
use super::results::{FurtherMeasure, MeasureValue, ResultCell, RunRecord};
use super::statistics::{half_width, median};

/// A cell without samples.
pub(crate) fn empty(program: &str, at: At, paper: Option<f64>) -> ResultCell {
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

/// Adds a sample and sums up again.
pub(crate) fn add(cell: &mut ResultCell, sample: RunRecord) {
    cell.samples.push(sample);
    let valid = || cell.samples.iter().filter(|s| s.invalid.is_empty());
    let values: Vec<f64> = valid().filter_map(|s| s.value).collect();
    let cpu: Vec<f64> = valid().filter_map(cpu_per_gigabyte).collect();
    (cell.median, cell.half_width) = (median(&values), half_width(&values));
    let also: Vec<(String, Vec<f64>)> = cell
        .also
        .keys()
        .map(|key| {
            let values = valid().filter_map(|s| s.also.get(key).copied());
            (key.clone(), values.collect())
        })
        .collect();
    cell.cpu_per_gigabyte = median(&cpu);
    for (key, values) in also {
        let paper = cell.also.get(&key).and_then(|known| known.paper);
        let summed = MeasureValue {
            median: median(&values),
            half_width: half_width(&values),
            paper,
        };
        cell.also.insert(key, summed);
    }
}

/// Below this many bytes, what a run costs is its start and end, not its bytes.
const WORTH_COUNTING: u64 = 1 << 20;

/// Processor seconds for each GB (10⁹ bytes) of a run that moved some and did not fail.
#[allow(clippy::cast_precision_loss, reason = "file sizes are far below 2⁵³")]
pub(crate) fn cpu_per_gigabyte(sample: &RunRecord) -> Option<f64> {
    sample.value?;
    let gigabytes = sample.bytes as f64 / 1e9;
    (sample.bytes >= WORTH_COUNTING).then_some(sample.cpu_seconds? / gigabytes)
}

/// A cell in one line for people: program, point, median, the value beside it (`reference`), further measures,
/// processor time.
pub(crate) fn describe(
    cell: &ResultCell,
    label: &str,
    reference: &str,
    unit: &str,
    also: &[FurtherMeasure],
) -> String {
    let at: Vec<String> = cell
        .at
        .iter()
        .map(|(axis, value)| format!("{axis} {value}"))
        .collect();
    let value = match (cell.median, cell.half_width) {
        (Some(m), Some(h)) => format!("{} ± {} {unit}", short(m), short(h)),
        (Some(m), None) => format!("{} {unit}", short(m)),
        (None, _) => format!("no result: {}", why(cell)),
    };
    let paper = cell
        .paper
        .map(|p| format!("  ({reference} {})", short(p)))
        .unwrap_or_default();
    let also: String = also
        .iter()
        .filter_map(|also| {
            let median = cell.also.get(&also.key)?.median?;
            Some(format!("  {} {} {}", also.label, short(median), also.unit))
        })
        .collect();
    let spoiled = cell
        .samples
        .iter()
        .filter(|s| !s.invalid.is_empty())
        .count();
    let spoiled = match (spoiled, cell.median) {
        (0, _) | (_, None) => String::new(),
        (n, _) => format!("  [{n} of {} runs do not count]", cell.samples.len()),
    };
    let cpu = cell
        .cpu_per_gigabyte
        .map(|seconds| format!("  {seconds:.2} CPU s/GB"))
        .unwrap_or_default();
    let valid = cell.samples.iter().filter(|s| s.invalid.is_empty());
    let limit = valid.filter_map(|s| s.limited_by.as_deref()).next_back();
    let limit = limit.map_or_else(String::new, |limit| format!("  limited by {limit}"));
    format!(
        "{label:<20} {:<20} {value}{paper}{also}{cpu}{limit}{spoiled}",
        at.join(", ")
    )
}

fn why(cell: &ResultCell) -> &str {
    let last = cell.samples.last().and_then(|s| s.invalid.first());
    last.map_or("it did not run", String::as_str)
}

/// Four significant digits, more before the point if need be.
fn short(value: f64) -> String {
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
    use super::*;

    fn sample(value: Option<f64>, invalid: &[&str]) -> RunRecord {
        RunRecord {
            value,
            invalid: invalid.iter().map(|s| (*s).to_owned()).collect(),
            spoiled: false,
            seconds: 2.0,
            bytes: 500_000_000,
            cpu_seconds: Some(0.25),
            seed: 7,
            command: "cp".into(),
            limited_by: None,
            also: [("seconds".to_owned(), 3.0)].into(),
        }
    }

    fn at() -> At {
        [("p".to_owned(), "4".to_owned())].into()
    }

    #[test]
    fn only_valid_samples_count() {
        let mut cell = empty("x", at(), Some(90.0));
        add(&mut cell, sample(Some(500.0), &["late"]));
        assert_eq!((cell.median, cell.cpu_per_gigabyte), (None, None));
        assert!(describe(&cell, "X", "published", "Mbit/s", &[]).contains("no result: late"));
        for value in [1.0, 2.0, 3.0] {
            add(&mut cell, sample(Some(value), &[]));
        }
        add(&mut cell, sample(None, &["exit code 1"]));
        assert_eq!(cell.median, Some(2.0));
        assert!((cell.half_width.unwrap() - 2.484).abs() < 1e-3);
        assert_eq!(cell.cpu_per_gigabyte, Some(0.5));
        assert_eq!(cell.samples.len(), 5);
        let line = describe(&cell, "X", "published", "Mbit/s", &[]);
        assert!(
            line.contains("p 4") && line.contains("2.000 ± 2.484 Mbit/s"),
            "{line}"
        );
        cell.samples[2].limited_by = Some("loss".to_owned());
        let line = describe(&cell, "X", "published", "Mbit/s", &[]);
        assert!(line.contains("limited by loss"), "{line}");
        assert!(
            line.contains("(published 90.00)") && line.contains("2 of 5"),
            "{line}"
        );
    }

    #[test]
    fn further_measures_are_summed_up_like_the_first() {
        let mut cell = empty("x", at(), None);
        let published = MeasureValue {
            paper: Some(9.0),
            ..MeasureValue::default()
        };
        cell.also.insert("seconds".to_owned(), published);
        add(&mut cell, sample(Some(1.0), &["late"]));
        assert_eq!(cell.also["seconds"].median, None);
        add(&mut cell, sample(Some(1.0), &[]));
        add(&mut cell, sample(Some(1.0), &[]));
        let seconds = cell.also["seconds"];
        assert_eq!(
            (seconds.median, seconds.half_width, seconds.paper),
            (Some(3.0), None, Some(9.0))
        );
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.1234, "0.123"),
            (12.345, "12.35"),
            (915.22, "915.2"),
            (12345.6, "12346"),
        ] {
            assert_eq!(short(value), text);
        }
    }
}
