//! Summary of an experiment in a line: how near to the paper, and longhaul beside its peers.

use super::csv::ratio;
use super::grid::{Grid, Runs};
use super::number;
use crate::experiment::results::Program;

/// Ratios at the points of a sweep.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Spread {
    /// How many points have both values.
    pub(super) points: usize,
    /// Smallest.
    pub(super) low: f64,
    /// First quartile.
    pub(super) first_quartile: f64,
    /// Median.
    pub(super) median: f64,
    /// Third quartile.
    pub(super) third_quartile: f64,
    /// Largest.
    pub(super) high: f64,
}

impl Spread {
    /// `None` without any ratio.
    fn of(mut ratios: Vec<f64>) -> Option<Self> {
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

/// One statement of the summary.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Statement {
    /// `globus-url-copy / published`.
    pub(super) what: String,
    /// `×0.93`.
    pub(super) figure: String,
    /// `half of 56 points 0.85–1.02, all 0.41–1.20`.
    pub(super) detail: String,
    /// The ratios behind it.
    pub(super) spread: Spread,
}

/// Summary of an experiment's data.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Summary {
    /// The programs that reproduce published values, against them.
    pub(super) papers: Vec<Statement>,
    /// Every program against the experiment's baseline, or longhaul against the best other program
    /// at each point.
    pub(super) peers: Vec<Statement>,
    /// How much was measured and how much of it does not count.
    pub(super) coverage: String,
}

/// Reads the summary out of the cells.
pub(super) fn of(grid: &Grid<'_>) -> Summary {
    Summary {
        papers: papers(grid),
        peers: peers(grid),
        coverage: coverage(grid),
    }
}

fn papers(grid: &Grid<'_>) -> Vec<Statement> {
    let mut statements = Vec::new();
    for (program, named) in reproducers(grid) {
        let ratios = grid
            .points()
            .filter_map(|(row, column)| {
                ratio(
                    grid.median(program, row, column),
                    grid.paper(program, row, column),
                )
            })
            .collect();
        if let Some(spread) = Spread::of(ratios) {
            statements.push(statement(
                format!("{} / {}", named.label, grid.results.reference),
                spread,
            ));
        }
    }
    statements
}

/// The programs whose values are to be as near to the published ones as can be: the one that was
/// measured, if it takes part; otherwise all that move files; otherwise (the lab measures itself) all.
fn reproducers<'a>(grid: &Grid<'a>) -> Vec<(usize, &'a Program)> {
    let having = |condition: fn(&str) -> bool| -> Vec<(usize, &'a Program)> {
        grid.programs()
            .filter(|(_, program)| condition(&program.key))
            .collect()
    };
    [
        having(is_measured_by_papers),
        having(|key| !is_limit(key)),
        having(|_| true),
    ]
    .into_iter()
    .find(|programs| !programs.is_empty())
    .unwrap_or_default()
}

fn peers(grid: &Grid<'_>) -> Vec<Statement> {
    if let Some(key) = &grid.results.baseline {
        return against(grid, key);
    }
    let mut statements = Vec::new();
    for (ours, named) in grid.programs().filter(|(_, program)| is_ours(&program.key)) {
        let ratios = grid
            .points()
            .filter_map(|(row, column)| {
                ratio(grid.median(ours, row, column), opponent(grid, row, column))
            })
            .collect();
        let chooses = (0..grid.rows()).any(|row| grid.is_free(row) && grid.takes_part(ours, row));
        if let Some(spread) = Spread::of(ratios) {
            let direction = if grid.results.higher_is_better {
                ""
            } else {
                " (less is better)"
            };
            let setting = match &grid.results.down {
                Some(axis) if chooses => format!(" at any {}", axis.label),
                _ => String::new(),
            };
            let what = format!("{} / best peer{setting}{direction}", named.label);
            statements.push(statement(what, spread));
        }
    }
    statements
}

/// Every program against the one called `key`.
fn against(grid: &Grid<'_>, key: &str) -> Vec<Statement> {
    let Some((baseline, named)) = grid.programs().find(|(_, program)| program.key == key) else {
        return Vec::new();
    };
    let others = grid.programs().filter(|(program, _)| *program != baseline);
    others
        .filter_map(|(program, other)| {
            let ratios = grid.points().filter_map(|(row, column)| {
                ratio(
                    grid.median(program, row, column),
                    grid.median(baseline, row, column),
                )
            });
            let spread = Spread::of(ratios.collect())?;
            let mut statement = statement(format!("{} / {}", other.label, named.label), spread);
            if let Some(published) = other.published_ratio.filter(|ratio| ratio.is_finite()) {
                let published = number::ratio(published);
                statement.detail += &format!("; published up to \u{d7}{published}");
            }
            Some(statement)
        })
        .collect()
}

/// Opponent of longhaul at a point: the best peer there; where longhaul chose by itself, the
/// best peer at whatever row was best for it.
fn opponent(grid: &Grid<'_>, row: usize, column: usize) -> Option<f64> {
    if grid.is_free(row) {
        let all = (0..grid.rows()).filter_map(|row| best_peer(grid, row, column));
        all.reduce(better(grid))
    } else {
        best_peer(grid, row, column)
    }
}

/// The best value of another file transfer program at a point.
fn best_peer(grid: &Grid<'_>, row: usize, column: usize) -> Option<f64> {
    grid.programs()
        .filter(|(_, program)| !is_ours(&program.key) && !is_limit(&program.key))
        .filter_map(|(program, _)| grid.median(program, grid.counterpart(program, row), column))
        .reduce(better(grid))
}

fn better(grid: &Grid<'_>) -> fn(f64, f64) -> f64 {
    if grid.results.higher_is_better {
        f64::max
    } else {
        f64::min
    }
}

fn statement(what: String, spread: Spread) -> Statement {
    let shown = |ratio: f64| number::ratio(ratio);
    let all = format!("{}\u{2013}{}", shown(spread.low), shown(spread.high));
    let half = format!(
        "{}\u{2013}{}",
        shown(spread.first_quartile),
        shown(spread.third_quartile)
    );
    let detail = match spread.points {
        1 => "one point".to_owned(),
        2..=4 => format!("{} points: {all}", spread.points),
        _ => format!("half of {} points {half}, all {all}", spread.points),
    };
    Statement {
        what,
        figure: format!("\u{d7}{}", shown(spread.median)),
        detail,
        spread,
    }
}

fn coverage(grid: &Grid<'_>) -> String {
    let mut measured = 0;
    let (mut wanted, mut all, mut valid) = (0, 0, 0);
    let own = grid.cells().filter(|(_, cell)| cell.chosen.is_none());
    for (_, cell) in own {
        let runs = Runs::of(cell);
        wanted += 1;
        measured += usize::from(cell.median.is_some());
        all += runs.all;
        valid += runs.valid;
    }
    // Of the whole experiment, if its results say how large that is.
    let wanted = wanted.max(grid.results.planned);
    let mut text = format!(
        "{measured} of {wanted} cells measured, {}",
        number::count(all, "run")
    );
    if valid < all {
        text.push_str(&format!(", {} left out", all - valid));
    }
    text
}

/// longhaul itself, under whatever settings.
fn is_ours(key: &str) -> bool {
    key == "longhaul" || key.starts_with("longhaul-")
}

/// The papers that measured a GridFTP program measured this one.
fn is_measured_by_papers(key: &str) -> bool {
    key == "globus"
}

/// iperf3 moves no file: it shows the limit of the network.
fn is_limit(key: &str) -> bool {
    key.starts_with("iperf")
}

/// Quantile of sorted values, between the nearest two.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = u32::try_from(sorted.len().checked_sub(1)?).ok()?;
    let at = f64::from(last) * share;
    let below = (0..=last).rev().find(|index| f64::from(*index) <= at)?;
    let low = *sorted.get(usize::try_from(below).ok()?)?;
    let high = sorted
        .get(usize::try_from(below).ok()? + 1)
        .copied()
        .unwrap_or(low);
    Some(low + (high - low) * (at - f64::from(below)))
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;
    use crate::experiment::results::Results;

    #[test]
    fn statements_come_from_the_cells() {
        let results = samples::two_by_two();
        let summary = of(&Grid::of(&results));
        assert_eq!(summary.papers.len(), 1);
        assert_eq!(summary.papers[0].what, "globus-url-copy / published");
        assert_eq!(summary.papers[0].figure, "×1.25");
        assert_eq!(summary.papers[0].detail, "4 points: 1.25\u{2013}1.25");
        // 100/500, 200/600, 300/700, 400/800
        assert_eq!(summary.peers[0].figure, "×0.38");
        assert_eq!(summary.coverage, "8 of 8 cells measured, 24 runs");
    }

    #[test]
    fn the_program_that_was_measured_reproduces_then_any_other_then_the_limit() {
        let mut results = samples::two_by_two();
        let names = |results: &Results| -> Vec<String> {
            let grid = Grid::of(results);
            let found = reproducers(&grid).into_iter();
            found.map(|(_, program)| program.key.clone()).collect()
        };
        assert_eq!(names(&results), ["longhaul", "guc"]);
        results.programs[1].key = "globus".to_owned();
        assert_eq!(names(&results), ["globus"]);
        results.programs[1].key = "iperf3-udp".to_owned();
        assert_eq!(names(&results), ["longhaul"]);
        results.programs.remove(0);
        assert_eq!(names(&results), ["iperf3-udp"]);
    }

    #[test]
    fn the_limit_is_no_peer_and_less_can_be_better() {
        let mut results = samples::two_by_two();
        results.programs[1].key = "iperf3".to_owned();
        for cell in &mut results.cells[4..] {
            cell.program = "iperf3".to_owned();
        }
        assert!(of(&Grid::of(&results)).peers.is_empty());

        let mut results = samples::two_by_two();
        results.higher_is_better = false;
        let peers = of(&Grid::of(&results)).peers;
        assert_eq!(peers[0].what, "longhaul / best peer (less is better)");
    }

    #[test]
    fn the_best_of_several_peers_counts() {
        let mut results = samples::two_by_two();
        let mut curl = results.programs[1].clone();
        curl.key = "curl".to_owned();
        results.programs.push(curl);
        let mut cell = results.cells[4].clone();
        cell.program = "curl".to_owned();
        cell.median = Some(1000.0);
        results.cells.push(cell);
        assert_eq!(best_peer(&Grid::of(&results), 0, 0), Some(1000.0));
        results.higher_is_better = false;
        assert_eq!(best_peer(&Grid::of(&results), 0, 0), Some(500.0));
    }

    #[test]
    fn who_chooses_is_held_against_the_best_choice_of_others() {
        let results = samples::with_auto();
        let summary = of(&Grid::of(&results));
        let statement = &summary.peers[1];
        assert_eq!(
            statement.what,
            "longhaul, which chooses / best peer at any parallel streams"
        );
        // 900 against 700 with 8 streams, not 500 with one; 1000 against 800.
        assert_eq!(statement.detail, "2 points: 1.25\u{2013}1.29");
        assert_eq!(summary.coverage, "10 of 10 cells measured, 30 runs");
    }

    #[test]
    fn with_a_baseline_everybody_else_is_held_against_it() {
        let mut results = samples::with_auto();
        results.baseline = Some("guc".to_owned());
        let peers = of(&Grid::of(&results)).peers;
        // Streams 1 and 8; the program that chooses has no row in common with it.
        let [ours] = peers.as_slice() else {
            panic!("{peers:?}");
        };
        assert_eq!(ours.what, "longhaul / globus-url-copy");
        assert_eq!(ours.figure, "×0.38");
        results.programs[0].published_ratio = Some(9.0);
        let detail = of(&Grid::of(&results)).peers[0].detail.clone();
        assert!(detail.ends_with("; published up to ×9.00"), "{detail}");
        results.baseline = Some("absent".to_owned());
        assert!(of(&Grid::of(&results)).peers.is_empty());
    }

    #[test]
    fn quantiles_lie_between_values() {
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.5), Some(2.5));
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.25), Some(2.0));
        assert_eq!(quantile(&[7.0], 0.75), Some(7.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn what_was_left_out_is_counted() {
        let mut results = samples::two_by_two();
        results.cells[0].median = None;
        results.cells[0].samples.truncate(1);
        results.cells[0].samples[0].value = None;
        let summary = of(&Grid::of(&results));
        assert_eq!(
            summary.coverage,
            "7 of 8 cells measured, 22 runs, 1 left out"
        );
    }
}
