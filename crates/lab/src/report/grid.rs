//! Results as a grid of program × row × column.
//!
//! A *point* of a sweep is a row (a value of the axis down) and a column (a value of the axis across).

use std::collections::HashMap;

use crate::experiment::results::{ComparedProgram, ExperimentResults, ResultCell, SweepAxis};

/// The place of a cell in the grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct CellPlace {
    /// Index into [`ExperimentResults::programs`].
    pub(super) program: usize,
    /// Index into the values of [`ExperimentResults::down`]; 0 without such an axis.
    pub(super) row: usize,
    /// Index into the values of [`ExperimentResults::across`].
    pub(super) column: usize,
}

/// The cells of one experiment by their place.
pub(super) struct ResultGrid<'a> {
    pub(super) results: &'a ExperimentResults,
    /// Number of cells whose program or values are unknown, or whose place another cell has.
    pub(super) ignored_cells: usize,
    /// Whether no point has different published values for different programs.
    pub(super) has_shared_publication: bool,
    cells: HashMap<CellPlace, &'a ResultCell>,
    /// For each row, whether it [is independent](Self::is_independent).
    independent: Vec<bool>,
}

impl<'a> ResultGrid<'a> {
    /// Finds the places of the cells of `results`.
    pub(super) fn of(results: &'a ExperimentResults) -> Self {
        let mut grid = Self {
            results,
            ignored_cells: 0,
            has_shared_publication: false,
            cells: HashMap::new(),
            independent: Vec::new(),
        };
        for cell in &results.cells {
            match place(results, cell) {
                Some(place) if !grid.cells.contains_key(&place) => {
                    grid.cells.insert(place, cell);
                }
                _ => grid.ignored_cells += 1,
            }
        }
        grid.has_shared_publication = grid.points().all(|(row, column)| {
            let published = grid.published(row, column);
            let programs = 0..results.programs.len();
            let mut papers = programs.filter_map(|program| grid.paper(program, row, column));
            papers.all(|paper| Some(paper) == published)
        });
        grid.independent = grid.independent_rows();
        grid
    }

    /// Finds the independent rows: those whose programs have no cells in other rows.
    ///
    /// A program that chooses the number of streams itself has a row of its own (`auto`) on an axis of
    /// stream counts, and is compared with every other row. The row with most programs (the first if
    /// several have as many) is never independent, so that a row remains for the comparison.
    fn independent_rows(&self) -> Vec<bool> {
        let programs: Vec<Vec<usize>> = (0..self.rows())
            .map(|row| {
                let all = 0..self.results.programs.len();
                all.filter(|program| self.has_cell_in_row(*program, row))
                    .collect()
            })
            .collect();
        let most = programs.iter().map(Vec::len).max();
        let base = programs.iter().position(|row| Some(row.len()) == most);
        let elsewhere = |row: usize, program: &usize| {
            let mut others = programs
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != row);
            others.any(|(_, other)| other.contains(program))
        };
        let alone = |(row, own): (usize, &Vec<usize>)| {
            Some(row) != base && !own.is_empty() && !own.iter().any(|p| elsewhere(row, p))
        };
        programs.iter().enumerate().map(alone).collect()
    }

    /// Number of rows; 1 without an axis down.
    pub(super) fn rows(&self) -> usize {
        self.results
            .down
            .as_ref()
            .map_or(1, |axis| axis.values.len())
    }

    /// Number of columns.
    pub(super) fn columns(&self) -> usize {
        self.results.across.values.len()
    }

    /// Whether the programs of this row ignore the axis down, because they choose its value themselves.
    pub(super) fn is_independent(&self, row: usize) -> bool {
        self.independent.get(row).copied().unwrap_or(false)
    }

    /// Whether the program has a cell in this row.
    pub(super) fn has_cell_in_row(&self, program: usize, row: usize) -> bool {
        (0..self.columns()).any(|column| self.cell(program, row, column).is_some())
    }

    /// The row of `program` that is compared with `row`: the program's independent row if it has one,
    /// otherwise the same.
    pub(super) fn compared_row(&self, program: usize, row: usize) -> usize {
        let own = (0..self.rows())
            .find(|own| self.is_independent(*own) && self.has_cell_in_row(program, *own));
        own.unwrap_or(row)
    }

    /// The programs with their indices.
    pub(super) fn programs(
        &self,
    ) -> impl DoubleEndedIterator<Item = (usize, &'a ComparedProgram)> + use<'a> {
        // A zipped range can be reversed; `enumerate` here cannot.
        let programs = &self.results.programs;
        (0..programs.len()).zip(programs)
    }

    /// The label of a program; empty if there is none.
    pub(super) fn label(&self, program: usize) -> &'a str {
        let program = self.results.programs.get(program);
        program.map_or("", |program| program.label.as_str())
    }

    pub(super) fn cell(&self, program: usize, row: usize, column: usize) -> Option<&'a ResultCell> {
        let place = CellPlace {
            program,
            row,
            column,
        };
        self.cells.get(&place).copied()
    }

    /// The median at a place; `None`: there is no finite one.
    pub(super) fn median(&self, program: usize, row: usize, column: usize) -> Option<f64> {
        let median = self.cell(program, row, column)?.median;
        median.filter(|value| value.is_finite())
    }

    /// The value that was published for a program at a point.
    pub(super) fn paper(&self, program: usize, row: usize, column: usize) -> Option<f64> {
        let paper = self.cell(program, row, column)?.paper;
        paper.filter(|value| value.is_finite())
    }

    /// The value that was published for a point: that of the first program with one.
    pub(super) fn published(&self, row: usize, column: usize) -> Option<f64> {
        (0..self.results.programs.len()).find_map(|program| self.paper(program, row, column))
    }

    /// Whether any point has a published value.
    pub(super) fn has_paper(&self) -> bool {
        self.points()
            .any(|(row, column)| self.published(row, column).is_some())
    }

    /// All points of the sweep as row and column.
    pub(super) fn points(&self) -> impl Iterator<Item = (usize, usize)> + use<'a> {
        let columns = self.columns();
        (0..self.rows()).flat_map(move |row| (0..columns).map(move |column| (row, column)))
    }

    /// All cells with their places, in the order of program, row and column.
    pub(super) fn cells(&self) -> impl Iterator<Item = (CellPlace, &'a ResultCell)> + '_ {
        self.programs().flat_map(move |(program, _)| {
            self.points().filter_map(move |(row, column)| {
                let place = CellPlace {
                    program,
                    row,
                    column,
                };
                Some((place, self.cell(program, row, column)?))
            })
        })
    }

    /// The name of a point: `parallel streams 4, latency 5 ms`.
    pub(super) fn point_name(&self, row: usize, column: usize) -> String {
        let across = value_name(&self.results.across, column);
        match &self.results.down {
            Some(down) => format!("{}, {across}", value_name(down, row)),
            None => across,
        }
    }
}

/// An axis's name with its unit: `one-way latency (ms)`.
pub(super) fn axis_name(axis: &SweepAxis) -> String {
    match axis.unit.as_str() {
        "" => axis.label.clone(),
        unit => format!("{} ({unit})", axis.label),
    }
}

/// One value of an axis with the axis's name: `one-way latency 50 ms`, `parallel streams 4`.
pub(super) fn value_name(axis: &SweepAxis, index: usize) -> String {
    let value = axis.values.get(index).map_or("", String::as_str);
    let space = if axis.unit.is_empty() || axis.unit == "%" {
        ""
    } else {
        "\u{a0}"
    };
    format!("{} {value}{space}{}", axis.label, axis.unit)
}

/// `measured` divided by `published`; `None` without one of them, or if the ratio is not finite.
pub(super) fn ratio(measured: Option<f64>, published: Option<f64>) -> Option<f64> {
    let ratio = measured? / published.filter(|value| *value != 0.0)?;
    ratio.is_finite().then_some(ratio)
}

/// The numbers of runs and of valid runs of a cell, and why the others are invalid.
#[derive(Debug)]
pub(super) struct RunCounts {
    /// Number of valid runs: those with a value and without a reason against it.
    pub(super) valid: usize,
    /// Number of runs.
    pub(super) all: usize,
    /// Reasons for which runs are left out, in order and without repetition.
    pub(super) reasons: Vec<String>,
    /// Whether no run has a value, not even an invalid one.
    pub(super) failed: bool,
}

impl RunCounts {
    /// Counts the runs of a cell.
    pub(super) fn of(cell: &ResultCell) -> Self {
        let mut reasons: Vec<String> = Vec::new();
        for run in &cell.samples {
            let silent = run.value.is_none() && run.invalid.is_empty();
            let silent = silent.then(|| "failed without a reason".to_owned());
            for reason in run.invalid.iter().cloned().chain(silent) {
                if !reasons.contains(&reason) {
                    reasons.push(reason);
                }
            }
        }
        let valid = cell
            .samples
            .iter()
            .filter(|run| run.value.is_some() && run.invalid.is_empty());
        Self {
            valid: valid.count(),
            all: cell.samples.len(),
            reasons,
            failed: cell.samples.iter().all(|run| run.value.is_none()),
        }
    }

    /// Whether a run is left out.
    pub(super) fn has_left_out(&self) -> bool {
        self.valid < self.all
    }
}

/// The place of a cell; `None`: its program or a value is unknown.
fn place(results: &ExperimentResults, cell: &ResultCell) -> Option<CellPlace> {
    let index_on = |axis: &SweepAxis| {
        let value = cell.at.get(&axis.key)?;
        axis.values.iter().position(|known| known == value)
    };
    let programs = &results.programs;
    Some(CellPlace {
        program: programs
            .iter()
            .position(|program| program.key == cell.program)?,
        row: results.down.as_ref().map_or(Some(0), index_on)?,
        column: index_on(&results.across)?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn cells_are_at_their_places_and_ignored_ones_are_counted() {
        let mut results = samples::two_by_two();
        let mut lost = results.cells[0].clone();
        lost.at.insert("latency".to_owned(), "999".to_owned());
        results.cells.push(lost);
        results.cells.push(results.cells[0].clone());
        let grid = ResultGrid::of(&results);
        assert_eq!((grid.ignored_cells, grid.rows(), grid.columns()), (2, 2, 2));
        assert_eq!(grid.median(0, 1, 1), results.cells[3].median);
        assert_eq!(grid.cells().count(), 8);
        assert_eq!(
            grid.point_name(1, 0),
            "parallel streams 8, one-way latency 1\u{a0}ms"
        );
    }

    #[test]
    fn a_program_that_ignores_the_axis_is_compared_with_every_row() {
        let mut results = samples::with_auto();
        let grid = ResultGrid::of(&results);
        assert_eq!(grid.independent, [false, false, true]);
        assert!(
            grid.has_cell_in_row(2, 2)
                && !grid.has_cell_in_row(2, 0)
                && !grid.has_cell_in_row(0, 2)
        );
        assert_eq!((grid.compared_row(2, 0), grid.compared_row(0, 1)), (2, 1));
        // A program with one row only does not make that row independent if another program shares it, and
        // of two rows without common programs one is not independent.
        results
            .cells
            .retain(|cell| cell.program != "guc" || cell.at["streams"] == "1");
        assert_eq!(ResultGrid::of(&results).independent, [false, false, true]);
        results
            .cells
            .retain(|cell| cell.program != "longhaul" || cell.at["streams"] == "8");
        assert_eq!(ResultGrid::of(&results).independent, [false, true, true]);
    }

    #[test]
    fn published_values_are_shared_unless_programs_have_different_ones() {
        let mut results = samples::two_by_two();
        assert!(ResultGrid::of(&results).has_shared_publication);
        results.cells[0].paper = Some(1.0);
        assert!(!ResultGrid::of(&results).has_shared_publication);
        assert_eq!(ratio(Some(5.0), Some(2.0)), Some(2.5));
        assert_eq!(
            (ratio(Some(5.0), Some(0.0)), ratio(None, Some(2.0))),
            (None, None)
        );
    }

    #[test]
    fn run_counts_have_each_reason_once() {
        let mut cell = samples::two_by_two().cells[0].clone();
        assert!(!RunCounts::of(&cell).has_left_out());
        cell.samples[0].invalid = vec!["the emulator was late".to_owned()];
        cell.samples[1].value = None;
        let runs = RunCounts::of(&cell);
        assert_eq!((runs.valid, runs.all, runs.failed), (1, 3, false));
        assert_eq!(
            runs.reasons,
            ["the emulator was late", "failed without a reason"]
        );
        cell.samples.iter_mut().for_each(|run| run.value = None);
        assert!(RunCounts::of(&cell).failed);
    }
}
