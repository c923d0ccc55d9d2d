//! The lines of a sweep, which its table and its figures show: one for each program in each row, and one for what was
//! published.

use super::grid::ResultGrid;
use super::palette::LineStyle;
use super::text;
use crate::experiment::results::ResultCell;

/// One line of a chart or of a table.
#[derive(Clone)]
pub(super) struct Line<'a> {
    pub(super) label: String,
    pub(super) style: LineStyle,
    /// Number of its program; `None`: published for all of them, or over time.
    pub(super) program: Option<usize>,
    /// A point for each value of a sweep (`None`: not measured), or for each sample over time.
    pub(super) points: Vec<Option<Point<'a>>>,
}

/// One point of a line.
#[derive(Clone, Default)]
pub(super) struct Point<'a> {
    /// Value on the horizontal axis.
    pub(super) x: f64,
    /// Value; `None`: the measurement failed.
    pub(super) value: Option<f64>,
    /// Half-width of the error bar.
    pub(super) half_width: Option<f64>,
    /// Text of the tooltip, one fact per line; empty: the point has no marker.
    pub(super) tip: String,
    /// The cell, if the value was measured in one.
    pub(super) cell: Option<&'a ResultCell>,
}

/// The lines of a row, most important first; what was published comes before what was measured. With `compared`,
/// programs that have a row of their own are among them, with the values of that row. `numbers` are those of the
/// columns on the horizontal axis.
pub(super) fn lines_of_row<'a>(
    grid: &ResultGrid<'a>,
    numbers: &[f64],
    row: usize,
    compared: bool,
) -> Vec<Line<'a>> {
    let results = grid.results;
    let style = |key: &str| LineStyle::of_program(key, &results.programs);
    let published = |label: String, program: Option<usize>| {
        let of_program = |program: usize| style(&results.programs[program].key);
        let style = program.map_or(LineStyle::PUBLISHED, of_program);
        let point = |(column, x): (usize, &f64)| {
            let value = match program {
                Some(program) => grid.paper(program, row, column)?,
                None => grid.published(row, column)?,
            };
            let tip = text::describe_published(grid, &label, (row, column), value);
            Some(Point {
                x: *x,
                value: Some(value),
                tip,
                ..Point::default()
            })
        };
        let points = numbers.iter().enumerate().map(point).collect();
        Line {
            label,
            style: LineStyle {
                published: true,
                ..style
            },
            program,
            points,
        }
    };
    let measured = |program: usize, label: &str, key: &str| {
        let row = if compared {
            grid.compared_row(program, row)
        } else {
            row
        };
        let point = |(column, x): (usize, &f64)| {
            let cell = grid.cell(program, row, column)?;
            let value = grid.median(program, row, column);
            (value.is_some() || !cell.samples.is_empty()).then(|| Point {
                x: *x,
                value,
                half_width: cell
                    .half_width
                    .filter(|half| half.is_finite() && *half > 0.0),
                tip: text::describe_measured(grid, program, (row, column), cell),
                cell: Some(cell),
            })
        };
        let points = numbers.iter().enumerate().map(point).collect();
        Line {
            label: label.to_owned(),
            style: style(key),
            program: Some(program),
            points,
        }
    };
    let mut lines = Vec::new();
    if grid.has_shared_publication {
        lines.push(published(results.reference.clone(), None));
    } else {
        let label = |label: &str| format!("{}, {label}", results.reference);
        lines.extend(
            grid.programs()
                .map(|(program, one)| published(label(&one.label), Some(program))),
        );
    }
    lines.extend(
        grid.programs()
            .map(|(program, one)| measured(program, &one.label, &one.key)),
    );
    lines.retain(|line| line.points.iter().any(Option::is_some));
    lines
}
