//! All tables as Markdown, for the documentation: a section for each paper, and in it one for each experiment.

use std::fmt::Write as _;

use units::show;

use super::axis::SweptAxis;
use super::grid::{self, ResultGrid, RunCounts, ratio};
use super::lines::{Line, Point, lines_of_row};
use super::load::CitedPaper;
use super::summary::{self, SummaryStatement};
use super::{ExperimentSection, MeasureSection, text};
use crate::experiment::results::PUBLISHED;

/// Most values of the axis across that become columns. More become lines, with a column for each program.
const MAX_COLUMNS: usize = 8;

/// The text of all papers.
pub(super) fn text(papers: &[CitedPaper], sections: &[ExperimentSection<'_>]) -> String {
    let mut out = String::from("# Measured\n\n");
    let about = show::count(sections.len(), "experiment");
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "The tables of {about}, as `longhaul lab report` writes them. A value is the median of the valid runs, with half the width of \
         the 95 % confidence interval of the mean where there are several; behind it stands its ratio to the published value. \u{2020}: \
         runs were left out. A ratio of two programs is the median over the points.\n"
    );
    for paper in papers {
        let _ = writeln!(out, "- {}", escaped(&paper.title));
        for (figure, index) in &paper.entries {
            let section = &sections[*index];
            let (to, title) = (anchor(&section.loaded.name), &section.loaded.results.title);
            let _ = writeln!(out, "  - [{}](#{to}): {}", escaped(figure), escaped(title));
        }
    }
    for paper in papers {
        let _ = writeln!(out, "\n## {}", escaped(&paper.title));
        for (_, index) in &paper.entries {
            experiment(&mut out, &sections[*index]);
        }
    }
    out
}

/// The anchor of the heading with this text, as mdBook and forges make it.
pub(super) fn anchor(name: &str) -> String {
    let kept = |character: &char| character.is_alphanumeric() || "-_".contains(*character);
    name.to_lowercase().chars().filter(kept).collect()
}

fn experiment(out: &mut String, section: &ExperimentSection<'_>) {
    let results = &section.loaded.results;
    let _ = writeln!(out, "\n### {}\n", section.loaded.name);
    let _ = writeln!(out, "**{}.**", escaped(&results.title));
    if !results.source.is_empty() {
        let whose = match results.reference.as_str() {
            PUBLISHED => "Published values: ".to_owned(),
            other => format!("Reference values ('{}'): ", escaped(other)),
        };
        let _ = writeln!(out, "{whose}{}.", escaped(&results.source));
    }
    let origin = escaped(&text::describe_origin(results));
    let command = text::rerun_command(results);
    let _ = writeln!(
        out,
        "{}: {origin}. Again: `{command}`",
        section.loaded.label()
    );
    for measure in &section.measures {
        measured(out, measure);
    }
    let notes: Vec<&String> = results.notes.iter().collect();
    if !notes.is_empty() {
        out.push('\n');
    }
    for note in notes {
        let _ = writeln!(out, "- {}", escaped(note));
    }
}

fn measured(out: &mut String, measure: &MeasureSection<'_>) {
    let grid = &measure.grid;
    let what = match measure.heading.as_str() {
        "" => String::new(),
        heading => format!("**{}**. ", escaped(&text::capitalize(heading))),
    };
    let unit = match grid.results.unit.as_str() {
        "" => String::new(),
        unit => format!("In {unit}. "),
    };
    let statements = summary::compare_with_published(grid)
        .into_iter()
        .chain(summary::compare_with_peers(grid));
    let statements: Vec<String> = statements.map(|one| statement(&one)).collect();
    let line = format!("{what}{unit}{}", statements.join("; "));
    let _ = writeln!(out, "\n{}\n", line.trim_end());
    table(out, grid);
}

fn statement(one: &SummaryStatement) -> String {
    format!("{} {} ({})", escaped(&one.name), one.median, one.detail)
}

fn table(out: &mut String, grid: &ResultGrid<'_>) {
    let across = &grid.results.across;
    let numbers = SweptAxis::of(across).numbers;
    let rows = (0..grid.rows()).map(|row| lines_of_row(grid, &numbers, row, false));
    let rows: Vec<Vec<Line<'_>>> = rows.collect();
    let down = grid.results.down.as_ref();
    let as_columns = across.values.len() <= MAX_COLUMNS;
    let mut headings: Vec<String> = down.map(grid::axis_name).into_iter().collect();
    let mut table: Vec<Vec<String>> = Vec::new();
    for (row, lines) in rows.iter().enumerate() {
        let at: Vec<String> = down
            .map(|axis| axis.values[row].clone())
            .into_iter()
            .collect();
        if as_columns {
            for line in lines {
                let cells = line.points.iter().map(|point| cell(point.as_ref()));
                let before = [&at[..], std::slice::from_ref(&line.label)].concat();
                table.push(before.into_iter().chain(cells).collect());
            }
            continue;
        }
        for (column, value) in across.values.iter().enumerate() {
            let cells = lines.iter().map(|line| cell(line.points[column].as_ref()));
            let before = [&at[..], std::slice::from_ref(value)].concat();
            table.push(before.into_iter().chain(cells).collect());
        }
    }
    match as_columns {
        true => {
            headings.push(grid::axis_name(across));
            headings.extend(across.values.iter().cloned());
        }
        false => {
            headings.push(grid::axis_name(across));
            let longest = rows.iter().max_by_key(|lines| lines.len());
            headings.extend(longest.into_iter().flatten().map(|line| line.label.clone()));
        }
    }
    let escaped_all =
        |cells: &[String]| -> Vec<String> { cells.iter().map(|cell| escaped(cell)).collect() };
    line(out, &escaped_all(&headings));
    line(out, &vec!["---"; headings.len()]);
    for cells in &table {
        line(out, &escaped_all(cells));
    }
}

/// A line of a table, whose cells are Markdown.
pub(super) fn line<Cell: AsRef<str>>(out: &mut String, cells: &[Cell]) {
    let cells: Vec<&str> = cells.iter().map(AsRef::as_ref).collect();
    let _ = writeln!(out, "| {} |", cells.join(" | "));
}

fn cell(point: Option<&Point<'_>>) -> String {
    let Some(point) = point else {
        return "\u{2013}".to_owned();
    };
    let runs = point.cell.map(RunCounts::of);
    let mark = match runs.as_ref().is_some_and(RunCounts::has_left_out) {
        true => "\u{2020}",
        false => "",
    };
    let Some(value) = point.value else {
        let has_failed = runs.is_some_and(|runs| runs.failed);
        return if has_failed { "failed" } else { "invalid" }.to_owned();
    };
    let half = point
        .half_width
        .map(|half| format!(" \u{b1} {}", text::format_half_width(half, value)));
    let ratio = ratio(Some(value), point.cell.and_then(|cell| cell.paper));
    let ratio = ratio.map(|ratio| format!(" (\u{d7}{})", text::format_ratio(ratio)));
    let (value, half) = (text::format_value(value), half.unwrap_or_default());
    format!("{value}{half}{mark}{}", ratio.unwrap_or_default())
}

/// Text that is neither a table's bar nor markup.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '|' | '*' | '_' | '[' | ']' | '\\' => out.extend(['\\', character]),
            '<' => out.push_str("&lt;"),
            '`' => out.push('\''),
            character if character.is_control() => out.push(' '),
            character => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::load::{self, LoadedResults};
    use super::super::{samples, section};
    use super::*;
    use crate::experiment::results::ExperimentResults;

    fn written(results: ExperimentResults) -> String {
        let loaded = [LoadedResults::new("one".to_owned(), results)];
        let sections = [section(&loaded[0]).unwrap()];
        text(&load::by_paper(&loaded), &sections)
    }

    #[test]
    fn each_experiment_has_a_line_in_the_contents_and_a_table() {
        let text = written(samples::with_more());
        for part in [
            "  - [table 5.1 (quick)](#one): Parallel streams against latency",
            "### one\n\n**Parallel streams against latency.**",
            "Again: `longhaul lab run bbc-5.1 --quick --seed 7`",
            "| 8 | globus-url-copy |",
            " 500 \u{b1} 25 (\u{d7}1.25) |",
            "**Time**. In s.",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn no_string_of_the_results_is_markup() {
        let mut results = samples::two_by_two();
        results.title = "a|b <img> [x](y)".to_owned();
        let text = written(results);
        assert!(text.contains("a\\|b &lt;img> \\[x\\](y)"), "{text}");
    }
}
