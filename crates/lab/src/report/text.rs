//! Numbers and facts as the report shows them.

use std::time::Duration;

use super::grid::{ResultGrid, RunCounts, ratio};
use crate::experiment::results::{ExperimentResults, ResultCell};
use proto::printable::shell_word;
use units::show;

/// Formats a measured value with about three significant digits: `889`, `41.3`, `8.18`, `0.0052`.
pub(super) fn format_value(number: f64) -> String {
    format_half_width(number, number)
}

/// Formats a half-width with the decimals of the value that it belongs to.
pub(super) fn format_half_width(half_width: f64, value: f64) -> String {
    // Limits such as 99.95 are those from which rounding adds a digit before the point.
    let decimals = match value.abs() {
        size if size >= 99.95 || size == 0.0 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.9995 => 2,
        size if size >= 0.1 => 3,
        size if size >= 0.001 => 4,
        _ => 6,
    };
    group_thousands(&format!("{half_width:.decimals$}"))
}

/// Formats a ratio: `0.93`, `1.80`, `11.9`.
pub(super) fn format_ratio(number: f64) -> String {
    match number.abs() {
        size if size >= 99.5 => format!("{number:.0}"),
        size if size >= 9.95 => format!("{number:.1}"),
        size if size >= 0.095 => format!("{number:.2}"),
        size if size >= 0.0095 => format!("{number:.3}"),
        0.0 => "0".to_owned(),
        _ => format!("{number:.1e}"),
    }
}

/// Separates the thousands of a number with five or more digits by narrow spaces: `31 638`.
pub(super) fn group_thousands(number: &str) -> String {
    let end = number.find('.').unwrap_or(number.len());
    let begin = usize::from(number.starts_with('-'));
    if end - begin < 5 || number.contains('e') {
        return number.to_owned();
    }
    let mut out = String::new();
    for (index, character) in number.char_indices() {
        if index > begin && index < end && (end - index).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(character);
    }
    out
}

/// The parts that are not empty, with a separator.
pub(super) fn joined(parts: &[&str], separator: &str) -> String {
    let parts: Vec<&str> = parts
        .iter()
        .copied()
        .filter(|part| !part.is_empty())
        .collect();
    parts.join(separator)
}

/// `text` with its first letter in upper case.
pub(super) fn capitalize(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(characters).collect()
}

/// The tooltip of a measured cell, one fact per line: program, point, value, published value, runs.
pub(super) fn describe_measured(
    grid: &ResultGrid<'_>,
    program: usize,
    (row, column): (usize, usize),
    cell: &ResultCell,
) -> String {
    let results = grid.results;
    let shown = match (cell.median, cell.half_width) {
        (Some(median), Some(half)) => {
            let half = format_half_width(half, median);
            format!("{} \u{b1} {half} {}", format_value(median), results.unit)
        }
        (Some(median), None) => format!("{} {}", format_value(median), results.unit),
        (None, _) if RunCounts::of(cell).failed && !cell.samples.is_empty() => "failed".to_owned(),
        (None, _) => "no valid run".to_owned(),
    };
    let point = grid.point_name(row, column);
    let mut lines = vec![grid.label(program).to_owned(), point, shown];
    if let Some(paper) = cell.paper {
        let ratio =
            ratio(cell.median, cell.paper).map(|ratio| format!(", \u{d7}{}", format_ratio(ratio)));
        let ratio = ratio.unwrap_or_default();
        lines.push(format!(
            "{} {}{ratio}",
            results.reference,
            format_value(paper)
        ));
    }
    lines.extend(describe_runs(cell));
    lines.join("\n")
}

/// The tooltip of a published value.
pub(super) fn describe_published(
    grid: &ResultGrid<'_>,
    label: &str,
    (row, column): (usize, usize),
    number: f64,
) -> String {
    let (point, shown) = (grid.point_name(row, column), format_value(number));
    format!("{label}\n{point}\n{shown} {}", grid.results.unit)
}

/// Describes the runs of a cell: how many were made and left out, CPU time, limiter.
fn describe_runs(cell: &ResultCell) -> Vec<String> {
    let runs = RunCounts::of(cell);
    let mut line = show::count(runs.all, "run");
    if runs.has_left_out() {
        let left_out = runs.all - runs.valid;
        line += &format!(", {left_out} left out: {}", runs.reasons.join("; "));
    }
    let mut lines = vec![line];
    lines.extend(
        cell.chosen
            .iter()
            .map(|chosen| format!("best program: {chosen}")),
    );
    let cpu = cell.cpu_per_gigabyte.map(format_value);
    lines.extend(cpu.map(|seconds| format!("{seconds} s of CPU time per GB")));
    let limit = cell.samples.iter().find_map(|run| run.limited_by.as_ref());
    lines.extend(limit.map(|limit| format!("limited by {limit}")));
    lines
}

/// Describes the origin of results in one line: time, mode, cells, seed, machine, builds.
pub(super) fn describe_origin(results: &ExperimentResults) -> String {
    let machine = &results.environment;
    let seed = format!("seed {}", results.seed);
    let mut parts = vec![
        format_start(&results.started),
        describe_extent(results),
        seed,
    ];
    if !machine.kernel.is_empty() {
        parts.push(format!("Linux {}", machine.kernel));
    }
    if machine.cpus > 0 {
        parts.push(show::count(machine.cpus, "processor"));
    }
    let builds = machine.builds.iter();
    parts.extend(builds.map(|(program, build)| format!("{program} {build}")));
    parts.join(", ")
}

/// Formats the time that the results took: `48 s`, `12 min 4 s`, `3 h 20 min`.
pub(super) fn format_duration(seconds: f64) -> String {
    Duration::try_from_secs_f64(seconds.round())
        .map_or_else(|_| "unknown time".to_owned(), show::time)
}

/// Formats a time as `2026-11-20 13:55 UTC`. Text that is not an RFC 3339 time is returned unchanged.
fn format_start(rfc3339: &str) -> String {
    rfc3339.parse::<jiff::Timestamp>().map_or_else(
        |_| rfc3339.to_owned(),
        |time| time.strftime("%Y-%m-%d %H:%M UTC").to_string(),
    )
}

/// Describes how much was measured: `full run, all 56 cells` or `full run, 12 of 56 cells`.
fn describe_extent(results: &ExperimentResults) -> String {
    let mode = &results.mode;
    let own = results.cells.iter().filter(|cell| cell.chosen.is_none());
    let measured = own.filter(|cell| cell.median.is_some()).count();
    match results.planned {
        0 => format!("{mode} run, {}", show::count(measured, "cell")),
        planned if measured >= planned => {
            format!("{mode} run, all {}", show::count(measured, "cell"))
        }
        planned => format!("{mode} run, {measured} of {}", show::count(planned, "cell")),
    }
}

/// The command line that runs the experiment again with the same seed and options.
pub(super) fn rerun_command(results: &ExperimentResults) -> String {
    let name = shell_word(&results.experiment);
    let mode = match results.mode.as_str() {
        "full" => " --full",
        "quick" => " --quick",
        _ => "",
    };
    let mut command = format!("longhaul lab run {name}{mode} --seed {}", results.seed);
    for word in &results.options {
        command += &format!(" {}", shell_word(word));
    }
    command
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits_and_grouped_thousands() {
        let shown = [915.22, 99.96, 41.27, 8.18, 0.25, 0.0, -12.345, 31_638.4].map(format_value);
        let expected = [
            "915",
            "100",
            "41.3",
            "8.18",
            "0.250",
            "0",
            "-12.3",
            "31\u{202f}638",
        ];
        assert_eq!(shown, expected);
        assert_eq!(
            (
                format_half_width(1.234, 915.0),
                format_half_width(1.234, 41.0)
            ),
            ("1".into(), "1.2".into())
        );
        let shown = [0.931, 1.8, 11.94, 250.4, 0.012, 0.0, 0.0001].map(format_ratio);
        assert_eq!(
            shown,
            ["0.93", "1.80", "11.9", "250", "0.012", "0", "1.0e-4"]
        );
        let shown = ["1000", "40000", "-1234567", "12345.678", "2e9"].map(group_thousands);
        let expected = ["1000", "40 000", "-1 234 567", "12 345.678", "2e9"];
        assert_eq!(shown, expected.map(|text| text.replace(' ', "\u{202f}")));
        assert_eq!(format_duration(724.9), "12 min 5 s");
        assert_eq!(format_duration(f64::NAN), "unknown time");
    }

    #[test]
    fn tooltips_have_value_published_value_runs_cpu_time_and_limiter() {
        let mut results = samples::two_by_two();
        results.cells[4].samples[0].limited_by = Some("receive window".to_owned());
        results.cells[4].cpu_per_gigabyte = Some(0.7);
        let grid = ResultGrid::of(&results);
        let mut cell = results.cells[4].clone();
        assert_eq!(
            describe_measured(&grid, 1, (0, 0), &cell),
            "globus-url-copy\nparallel streams 1, one-way latency 1\u{a0}ms\n\
             500 ± 25 Mbit/s\npublished 400, ×1.25\n3 runs\n0.700 s of CPU time per GB\n\
             limited by receive window"
        );
        cell.median = None;
        cell.samples
            .iter_mut()
            .for_each(|run| run.invalid = vec!["late".to_owned()]);
        let tip = describe_measured(&grid, 1, (0, 0), &cell);
        assert!(
            tip.contains("no valid run") && tip.contains("3 runs, 3 left out: late"),
            "{tip}"
        );
        cell.samples.iter_mut().for_each(|run| run.value = None);
        assert!(describe_measured(&grid, 1, (0, 0), &cell).contains("failed"));
    }

    #[test]
    fn origin_and_command_describe_the_run() {
        let mut results = samples::two_by_two();
        let quick = "2026-11-20 13:55 UTC, quick run, 8 cells, seed 7, Linux 6.18.0, 2 processors";
        assert_eq!(describe_origin(&results), quick);
        results.planned = 20;
        assert!(describe_origin(&results).contains("quick run, 8 of 20 cells"));
        results.planned = 8;
        assert!(describe_origin(&results).contains("quick run, all 8 cells"));
        results.options = ["--only", "p=1,4"].map(str::to_owned).to_vec();
        results.experiment = "it's; rm".to_owned();
        let again = "longhaul lab run 'it'\\''s; rm' --quick --seed 7 --only p=1,4";
        assert_eq!(rerun_command(&results), again);
    }
}
