//! Whether results are what their targets ask for.

use std::fmt::Write as _;

use units::show;

use super::ExperimentSection;
use super::grid::{ResultGrid, ratio, value_name};
use super::markdown::{anchor, escaped, line};
use super::text::{self, format_ratio, format_value};
use crate::LabError;
use crate::experiment::results::{ResultCell, SweepAxis};
use crate::experiment::{ResultTarget, shipped_targets};

/// Most points of a missed target that are named.
const MAX_NAMED: usize = 3;

/// A point of a sweep.
struct JudgedPoint {
    name: String,
    /// The value that is judged; `None`: the program or the one it is compared with has no valid one.
    value: Option<f64>,
    is_met: bool,
}

impl ResultTarget {
    /// All points that count, at which the program and the one it is compared with were run. `run` has all cells, `grid` those
    /// with the measure that is judged.
    fn points(&self, run: &ResultGrid<'_>, grid: &ResultGrid<'_>) -> Vec<JudgedPoint> {
        let other = self.to.as_deref().filter(|key| *key != Self::REFERENCE);
        let was_run = |(row, column): &(usize, usize)| {
            let mut both = [Some(&*self.program), other].into_iter().flatten();
            both.all(|key| cell(run, key, *row, *column).is_some())
        };
        let value = |row: usize, column: usize| {
            let median = |key: &str| cell(grid, key, row, column)?.median;
            let own = median(&self.program);
            match self.to.as_deref() {
                None => own,
                Some(Self::REFERENCE) => ratio(own, cell(grid, &self.program, row, column)?.paper),
                Some(key) => ratio(own, median(key)),
            }
            .filter(|value| value.is_finite())
        };
        let counts = |axis: Option<&SweepAxis>, at: usize| {
            let only = axis.and_then(|axis| self.at.get(&axis.key).zip(axis.values.get(at)));
            only.is_none_or(|(only, value)| only.contains(value))
        };
        let points = grid.points().filter(|(row, column)| {
            counts(grid.results.down.as_ref(), *row) && counts(Some(&grid.results.across), *column)
        });
        let judged = points.filter(was_run).map(|(row, column)| {
            let value = value(row, column);
            JudgedPoint {
                name: point_name(grid, row, column),
                value,
                is_met: value.is_some_and(|value| self.is_met(value)),
            }
        });
        judged.collect()
    }

    /// Whether the value is as asked, to the digits that are shown.
    fn is_met(&self, value: f64) -> bool {
        // Thousands are separated by narrow spaces.
        let shown = self.shown(value).replace('\u{202f}', "");
        let shown = shown.parse().unwrap_or(value);
        self.at_least.is_none_or(|least| shown >= least)
            && self.at_most.is_none_or(|most| shown <= most)
    }

    fn shown(&self, value: f64) -> String {
        match self.to {
            Some(_) => format_ratio(value),
            None => format_value(value),
        }
    }

    /// `×1.00 or more`, `×0.95 to ×1.05`, `500 or less`.
    fn asked(&self) -> String {
        let limit = |value: f64| format!("{}{}", self.sign(), self.shown(value));
        match (self.at_least.map(limit), self.at_most.map(limit)) {
            (Some(least), Some(most)) => format!("{least} to {most}"),
            (Some(least), None) => format!("{least} or more"),
            (None, Some(most)) => format!("{most} or less"),
            (None, None) => String::new(),
        }
    }

    fn sign(&self) -> &'static str {
        match self.to {
            Some(_) => "\u{d7}",
            None => "",
        }
    }

    /// The lowest and the highest value, and how many points there are.
    fn measured(&self, points: &[JudgedPoint]) -> String {
        let values = || points.iter().filter_map(|point| point.value);
        let (Some(low), Some(high)) = (values().reduce(f64::min), values().reduce(f64::max)) else {
            return "\u{2013}".to_owned();
        };
        let (sign, low, high) = (self.sign(), self.shown(low), self.shown(high));
        let range = match low == high {
            true => format!("{sign}{low}"),
            false => format!("{sign}{low} to {sign}{high}"),
        };
        format!("{range}, {}", show::count(values().count(), "point"))
    }

    /// Whether it is met at all points, and where it is not.
    fn verdict(&self, points: &[JudgedPoint]) -> String {
        let missed = points.iter().filter(|point| !point.is_met);
        let missed = missed.filter_map(|point| Some((point, point.value?)));
        let mut missed: Vec<(&JudgedPoint, f64)> = missed.collect();
        let without = points.iter().filter(|point| point.value.is_none()).count();
        let open = match without {
            0 => String::new(),
            count => format!("no valid value at {count} of {}", points.len()),
        };
        if points.is_empty() {
            return "no result".to_owned();
        }
        if missed.is_empty() {
            return match (without, points.len() - without) {
                (0, _) => "met".to_owned(),
                (_, 0) => open,
                (_, count) => format!("met at {count}; {open}"),
            };
        }
        let count = missed.len();
        // The worst ones first.
        let off = |value: f64| {
            let below = self.at_least.map(|least| least - value);
            let above = self.at_most.map(|most| value - most);
            below.into_iter().chain(above).fold(0.0, f64::max)
        };
        missed.sort_by(|(_, one), (_, other)| off(*other).total_cmp(&off(*one)));
        let named = missed.iter().take(MAX_NAMED).map(|(point, value)| {
            let name = escaped(&point.name);
            format!("{name}: {}{}", self.sign(), self.shown(*value))
        });
        let named: Vec<String> = named.collect();
        let more = match count.saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!("; {more} more"),
        };
        let of = points.len();
        let open = text::joined(&["", &open], "; ");
        format!(
            "**missed** at {count} of {of} ({}{more}){open}",
            named.join("; ")
        )
    }
}

/// The cell of the program with this key.
fn cell<'a>(grid: &ResultGrid<'a>, key: &str, row: usize, column: usize) -> Option<&'a ResultCell> {
    let (program, _) = grid.programs().find(|(_, program)| program.key == key)?;
    grid.cell(program, row, column)
}

/// The values of a point whose axes have more than one.
fn point_name(grid: &ResultGrid<'_>, row: usize, column: usize) -> String {
    let across = Some((&grid.results.across, column));
    let down = grid.results.down.as_ref().map(|down| (down, row));
    let several = |(axis, _): &(&SweepAxis, usize)| axis.values.len() > 1;
    let named = [down, across].into_iter().flatten().filter(several);
    let named: Vec<String> = named.map(|(axis, at)| value_name(axis, at)).collect();
    match named.is_empty() {
        true => "its only point".to_owned(),
        false => named.join(", "),
    }
}

/// A table of all targets as Markdown, whose links lead to the tables in `tables`.
///
/// # Errors
/// The shipped file has a mistake.
pub(super) fn markdown(
    tables: &str,
    sections: &[ExperimentSection<'_>],
) -> Result<String, LabError> {
    let mut out = String::new();
    let headings = ["target", "asked", "measured", "result"];
    line(&mut out, &headings);
    line(&mut out, &["---"; 4]);
    let (mut met, mut missed, mut open) = (0, 0, 0);
    for target in &shipped_targets()? {
        let of_experiment = sections
            .iter()
            .filter(|section| section.loaded.results.experiment == target.experiment);
        let results: Vec<(String, Vec<JudgedPoint>)> = of_experiment
            .filter_map(|section| {
                let name = &section.loaded.name;
                let run = measured_by(section, None)?;
                let points = target.points(run, measured_by(section, target.measure.as_deref())?);
                let link = format!("[{name}]({tables}#{})", anchor(name));
                (!points.is_empty()).then_some((link, points))
            })
            .collect();
        let is_met = |(_, points): &(String, Vec<JudgedPoint>)| points.iter().all(|p| p.is_met);
        let is_missed = |point: &JudgedPoint| point.value.is_some() && !point.is_met;
        let all = || results.iter().flat_map(|(_, points)| points);
        match results.is_empty() {
            false if results.iter().all(is_met) => met += 1,
            _ if all().any(is_missed) => missed += 1,
            _ => open += 1,
        }
        let none = [(target.experiment.clone(), Vec::new())];
        let rows = match results.is_empty() {
            true => &none[..],
            false => &results,
        };
        for (link, points) in rows {
            let first = format!("{} ({link})", target.says);
            let cells = [
                first,
                target.asked(),
                target.measured(points),
                target.verdict(points),
            ];
            line(&mut out, &cells);
        }
    }
    // Writing to a string does not fail.
    let all = show::count(met + missed + open, "target");
    let _ = writeln!(
        out,
        "\n{all}: {met} met at every point, {missed} missed at some, {open} open."
    );
    Ok(out)
}

/// The results of a section with this measure as the main one.
fn measured_by<'a, 'b>(
    section: &'a ExperimentSection<'b>,
    measure: Option<&str>,
) -> Option<&'a ResultGrid<'b>> {
    let index = match measure {
        None => 0,
        Some(key) => {
            let also = &section.loaded.results.also;
            1 + also.iter().position(|also| also.key == key)?
        }
    };
    section.measures.get(index).map(|measure| &measure.grid)
}

#[cfg(test)]
mod tests {
    use super::super::load::LoadedResults;
    use super::super::{samples, section};
    use super::*;

    fn target(more: &str) -> ResultTarget {
        let text = format!("says = \"s\"\nexperiment = \"bbc-5.1\"\n{more}");
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn each_point_is_judged_as_it_is_shown() {
        // longhaul has 100 to 400 where the other has 500 to 800.
        let results = samples::two_by_two();
        let grid = ResultGrid::of(&results);
        let (ours, other) = (&results.programs[0].key, &results.programs[1].key);
        let judged = |more: &str| {
            let target = target(&format!("program = \"{ours}\"\n{more}"));
            let points = target.points(&grid, &grid);
            (target.measured(&points), target.verdict(&points))
        };
        let (measured, verdict) = judged(&format!("to = \"{other}\"\nat-least = 0.2"));
        assert_eq!(measured, "\u{d7}0.20 to \u{d7}0.50, 4 points");
        assert_eq!(verdict, "met");
        let (_, verdict) = judged(&format!("to = \"{other}\"\nat-least = 0.5"));
        assert!(verdict.starts_with("**missed** at 3 of 4 ("), "{verdict}");
        assert!(verdict.contains("\u{d7}0.20"), "{verdict}");
        let (measured, verdict) = judged("at-most = 400");
        assert_eq!(measured, "100 to 400, 4 points");
        assert_eq!(verdict, "met");
        let (_, verdict) = judged("at-least = 150\nat-most = 350");
        assert!(verdict.starts_with("**missed** at 2 of 4 ("), "{verdict}");
    }

    #[test]
    fn only_the_named_points_count_and_nothing_measured_is_no_success() {
        let results = samples::two_by_two();
        let grid = ResultGrid::of(&results);
        let (key, value) = (&results.across.key, &results.across.values[0]);
        let ours = &results.programs[0].key;
        let text =
            format!("program = \"{ours}\"\nat-least = 1\nat = {{ \"{key}\" = [\"{value}\"] }}");
        assert_eq!(target(&text).points(&grid, &grid).len(), 2);
        let absent = target("program = \"absent\"\nat-least = 1");
        let points = absent.points(&grid, &grid);
        assert_eq!(absent.verdict(&points), "no result");
        let mut results = results.clone();
        results.cells[0].median = None;
        let grid = ResultGrid::of(&results);
        let points = target(&text).points(&grid, &grid);
        let verdict = target(&text).verdict(&points);
        assert_eq!(verdict, "met at 1; no valid value at 1 of 2");
    }

    #[test]
    fn the_table_has_each_target_and_counts_those_without_results() {
        let loaded = [LoadedResults::new("one".to_owned(), samples::two_by_two())];
        let sections = [section(&loaded[0]).unwrap()];
        let text = markdown("measured.md", &sections).unwrap();
        let all = shipped_targets().unwrap().len();
        assert_eq!(text.matches("no result").count(), all);
        let counted = format!("{all} targets: 0 met at every point, 0 missed at some, {all} open.");
        assert!(text.ends_with(&format!("{counted}\n")), "{text}");
    }
}
