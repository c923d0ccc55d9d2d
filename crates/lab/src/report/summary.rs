//! The summary of an experiment: ratios of measured to published values, and of longhaul to other programs.

use super::grid::{ResultGrid, RunCounts, ratio};
use super::text::format_ratio;
use crate::experiment::results::ComparedProgram;
use units::show;

/// The distribution of ratios over the points of a sweep.
#[derive(Debug, PartialEq)]
pub(super) struct RatioSpread {
    /// Number of points with both values.
    pub(super) points: usize,
    pub(super) low: f64,
    pub(super) first_quartile: f64,
    pub(super) median: f64,
    pub(super) third_quartile: f64,
    pub(super) high: f64,
}

impl RatioSpread {
    /// The distribution of `ratios`; `None`: there is no ratio.
    pub(super) fn of(mut ratios: Vec<f64>) -> Option<Self> {
        ratios.sort_by(f64::total_cmp);
        let at = |share: f64| quantile(&ratios, share);
        Some(Self {
            points: ratios.len(),
            low: at(0.0)?,
            first_quartile: at(0.25)?,
            median: at(0.5)?,
            third_quartile: at(0.75)?,
            high: at(1.0)?,
        })
    }
}

/// One comparison in the summary, as text.
#[derive(Debug)]
pub(super) struct SummaryStatement {
    /// Numerator and denominator of the ratio: `globus-url-copy / published`.
    pub(super) name: String,
    /// Median of the ratios: `×0.93`.
    pub(super) median: String,
    /// Points and ranges: `56 points: middle half 0.85–1.02, all 0.41–1.20`.
    pub(super) detail: String,
    /// The numbers.
    pub(super) spread: RatioSpread,
}

/// Compares programs with published values: globus-url-copy, which the papers measured, if it was measured;
/// otherwise all programs that transfer files; if there are none (the lab's calibration), all programs.
pub(super) fn compare_with_published(grid: &ResultGrid<'_>) -> Vec<SummaryStatement> {
    let rules: [fn(&str) -> bool; 3] =
        [|key| key == "globus", |key| !is_network_test(key), |_| true];
    let chosen = rules
        .into_iter()
        .find(|rule| grid.programs().any(|(_, one)| rule(&one.key)));
    let reproduces = |one: &ComparedProgram| chosen.is_some_and(|rule| rule(&one.key));
    let programs = grid.programs().filter(|(_, one)| reproduces(one));
    let statements = programs.filter_map(|(program, named)| {
        let name = format!("{} / {}", named.label, grid.results.reference);
        let published = |row, column| grid.paper(program, row, column);
        ratio_statement(grid, program, name, published)
    });
    statements.collect()
}

/// Compares every program with the experiment's baseline, or, if it has none, longhaul with the best other
/// program at each point.
pub(super) fn compare_with_peers(grid: &ResultGrid<'_>) -> Vec<SummaryStatement> {
    if let Some(key) = &grid.results.baseline {
        return compare_with_baseline(grid, key);
    }
    let direction = if grid.results.higher_is_better {
        ""
    } else {
        " (lower is better)"
    };
    let ours = grid
        .programs()
        .filter(|(_, program)| is_longhaul(&program.key));
    let statements = ours.filter_map(|(program, named)| {
        let chooses = (0..grid.rows())
            .any(|row| grid.is_independent(row) && grid.has_cell_in_row(program, row));
        let setting = match &grid.results.down {
            Some(axis) if chooses => format!(" with its best {}", axis.label),
            _ => String::new(),
        };
        let name = format!("{} / best peer{setting}{direction}", named.label);
        ratio_statement(grid, program, name, |row, column| {
            peer_value(grid, row, column)
        })
    });
    statements.collect()
}

/// Compares every other program with the one that has this key.
fn compare_with_baseline(grid: &ResultGrid<'_>, key: &str) -> Vec<SummaryStatement> {
    let Some((baseline, named)) = grid.programs().find(|(_, program)| program.key == key) else {
        return Vec::new();
    };
    let others = grid.programs().filter(|(program, _)| *program != baseline);
    let statements = others.filter_map(|(program, other)| {
        let name = format!("{} / {}", other.label, named.label);
        let value = |row, column| grid.median(baseline, row, column);
        let mut statement = ratio_statement(grid, program, name, value)?;
        if let Some(published) = other.published_ratio.filter(|ratio| ratio.is_finite()) {
            statement.detail += &format!("; published up to \u{d7}{}", format_ratio(published));
        }
        Some(statement)
    });
    statements.collect()
}

/// The value of the best peer at a point. In an independent row, where longhaul chose the row's value
/// itself, it is the best value of any peer in any row.
fn peer_value(grid: &ResultGrid<'_>, row: usize, column: usize) -> Option<f64> {
    match grid.is_independent(row) {
        true => {
            let all = (0..grid.rows()).filter_map(|row| best_peer(grid, row, column));
            all.reduce(better_value(grid))
        }
        false => best_peer(grid, row, column),
    }
}

/// The best value of the peers at a point: the other programs that transfer files.
fn best_peer(grid: &ResultGrid<'_>, row: usize, column: usize) -> Option<f64> {
    let peers = grid
        .programs()
        .filter(|(_, one)| !is_longhaul(&one.key) && !is_network_test(&one.key));
    let values = peers
        .filter_map(|(program, _)| grid.median(program, grid.compared_row(program, row), column));
    values.reduce(better_value(grid))
}

fn better_value(grid: &ResultGrid<'_>) -> fn(f64, f64) -> f64 {
    match grid.results.higher_is_better {
        true => f64::max,
        false => f64::min,
    }
}

/// Summarizes the ratios of a program's values to those of `other`; `None`: no point has both.
fn ratio_statement(
    grid: &ResultGrid<'_>,
    program: usize,
    name: String,
    other: impl Fn(usize, usize) -> Option<f64>,
) -> Option<SummaryStatement> {
    let ratio = |(row, column)| ratio(grid.median(program, row, column), other(row, column));
    let spread = RatioSpread::of(grid.points().filter_map(ratio).collect())?;
    let range = |low, high| format!("{}\u{2013}{}", format_ratio(low), format_ratio(high));
    let all = range(spread.low, spread.high);
    let half = range(spread.first_quartile, spread.third_quartile);
    let detail = match spread.points {
        1 => "one point".to_owned(),
        2..=4 => format!("{} points: {all}", spread.points),
        _ => format!("{} points: middle half {half}, all {all}", spread.points),
    };
    Some(SummaryStatement {
        name,
        median: format!("\u{d7}{}", format_ratio(spread.median)),
        detail,
        spread,
    })
}

/// Describes how much was measured, and how many runs were left out.
pub(super) fn coverage(grid: &ResultGrid<'_>) -> String {
    let own = grid.cells().filter(|(_, cell)| cell.chosen.is_none());
    let cells: Vec<_> = own.map(|(_, cell)| (cell, RunCounts::of(cell))).collect();
    let measured = cells
        .iter()
        .filter(|(cell, _)| cell.median.is_some())
        .count();
    let all: usize = cells.iter().map(|(_, runs)| runs.all).sum();
    let valid: usize = cells.iter().map(|(_, runs)| runs.valid).sum();
    // Older results do not have the number of planned cells.
    let wanted = cells.len().max(grid.results.planned);
    let mut text = format!(
        "{measured} of {} measured, {}",
        show::count(wanted, "cell"),
        show::count(all, "run")
    );
    if valid < all {
        text += &format!(", {} left out", all - valid);
    }
    text
}

/// Whether the program is longhaul, with any settings.
fn is_longhaul(key: &str) -> bool {
    key == "longhaul" || key.starts_with("longhaul-")
}

/// Whether the program transfers no file but measures the network.
fn is_network_test(key: &str) -> bool {
    key.starts_with("iperf")
}

/// Quantile of sorted values, interpolated linearly; `None`: there are no values.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count of points"
)]
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let at = sorted.len().checked_sub(1)? as f64 * share;
    let low = *sorted.get(at.floor() as usize)?;
    let high = *sorted.get(at.ceil() as usize)?;
    Some(low + (high - low) * at.fract())
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;
    use crate::experiment::results::ExperimentResults;

    fn names(statements: &[SummaryStatement]) -> Vec<&str> {
        statements.iter().map(|one| one.name.as_str()).collect()
    }

    #[test]
    fn summaries_are_computed_from_the_cells() {
        let mut results = samples::two_by_two();
        results.programs[1].key = "globus".to_owned();
        results.cells[4..]
            .iter_mut()
            .for_each(|cell| cell.program = "globus".to_owned());
        let grid = ResultGrid::of(&results);
        let [paper] = &compare_with_published(&grid)[..] else {
            panic!()
        };
        assert_eq!(
            (&*paper.name, &*paper.median),
            ("globus-url-copy / published", "×1.25")
        );
        assert_eq!(paper.detail, "4 points: 1.25\u{2013}1.25");
        // 100/500, 200/600, 300/700, 400/800
        assert_eq!(compare_with_peers(&grid)[0].median, "×0.38");
        assert_eq!(coverage(&grid), "8 of 8 cells measured, 24 runs");
    }

    #[test]
    fn network_tests_are_not_peers_and_lower_values_can_be_better() {
        let mut results = samples::two_by_two();
        results.higher_is_better = false;
        let less = ["longhaul / best peer (lower is better)"];
        assert_eq!(names(&compare_with_peers(&ResultGrid::of(&results))), less);
        results.programs[1].key = "iperf3-udp".to_owned();
        results.cells[4..]
            .iter_mut()
            .for_each(|cell| cell.program = "iperf3-udp".to_owned());
        assert!(compare_with_peers(&ResultGrid::of(&results)).is_empty());
        assert!(
            compare_with_published(&ResultGrid::of(&results)).is_empty(),
            "longhaul has no published values"
        );
        results.programs.remove(0);
        let limit = ["globus-url-copy / published"];
        assert_eq!(
            names(&compare_with_published(&ResultGrid::of(&results))),
            limit,
            "the lab measures itself"
        );
    }

    #[test]
    fn the_best_of_several_peers_counts() {
        let mut results = samples::two_by_two();
        let (mut curl, mut cell) = (results.programs[1].clone(), results.cells[4].clone());
        (curl.key, cell.program) = ("curl".to_owned(), "curl".to_owned());
        cell.median = Some(1000.0);
        results.programs.push(curl);
        results.cells.push(cell);
        assert_eq!(best_peer(&ResultGrid::of(&results), 0, 0), Some(1000.0));
        results.higher_is_better = false;
        assert_eq!(best_peer(&ResultGrid::of(&results), 0, 0), Some(500.0));
    }

    #[test]
    fn a_program_that_chooses_is_compared_with_the_best_choice_of_others() {
        let results = samples::with_auto();
        let statement = &compare_with_peers(&ResultGrid::of(&results))[1];
        let expected = "longhaul, which chooses / best peer with its best parallel streams";
        assert_eq!(statement.name, expected);
        // 900 against 700 with 8 streams, not 500 with one; 1000 against 800.
        assert_eq!(statement.detail, "2 points: 1.25\u{2013}1.29");
    }

    #[test]
    fn with_a_baseline_every_other_program_is_compared_with_it() {
        let mut results = samples::with_auto();
        results.baseline = Some("guc".to_owned());
        results.programs[0].published_ratio = Some(9.0);
        // Streams 1 and 8; the program that chooses has no row in common with it.
        let statements = compare_with_peers(&ResultGrid::of(&results));
        assert_eq!(names(&statements), ["longhaul / globus-url-copy"]);
        assert_eq!(statements[0].median, "×0.38");
        assert!(statements[0].detail.ends_with("; published up to ×9.00"));
        results.baseline = Some("absent".to_owned());
        assert!(compare_with_peers(&ResultGrid::of(&results)).is_empty());
    }

    #[test]
    fn quantiles_are_interpolated_and_coverage_counts_runs_left_out() {
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.5), Some(2.5));
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.25), Some(2.0));
        assert_eq!(
            (quantile(&[7.0], 0.75), quantile(&[], 0.5)),
            (Some(7.0), None)
        );
        let mut results: ExperimentResults = samples::two_by_two();
        results.cells[0].median = None;
        results.cells[0].samples.truncate(1);
        results.cells[0].samples[0].value = None;
        let text = coverage(&ResultGrid::of(&results));
        assert_eq!(text, "7 of 8 cells measured, 22 runs, 1 left out");
    }
}
