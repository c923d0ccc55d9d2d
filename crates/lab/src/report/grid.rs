//! Results as a grid of program × row × column, with the published value of each point.

use std::collections::{BTreeSet, HashMap};

use super::rows;
use crate::experiment::results::{Axis, Cell, Program, Results};

/// Where a cell is: indices of its program, its row (the axis down) and its column (across).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place {
    /// Index into [`Results::programs`].
    pub(super) program: usize,
    /// Index into the values of [`Results::down`]; 0 without such an axis.
    pub(super) row: usize,
    /// Index into the values of [`Results::across`].
    pub(super) column: usize,
}

/// The cells of one experiment by their place.
#[derive(Debug)]
pub(super) struct Grid<'a> {
    /// The results behind it.
    pub(super) results: &'a Results,
    /// Cells whose program or values are not in the axes, or that come twice.
    pub(super) strays: usize,
    /// Every program was published with the same value at the same point (or not at all): there is
    /// one published figure, not one for each program.
    pub(super) one_publication: bool,
    cells: HashMap<Place, &'a Cell>,
    free: Vec<bool>,
}

impl<'a> Grid<'a> {
    /// Sorts the cells of `results`.
    pub(super) fn of(results: &'a Results) -> Self {
        let mut cells = HashMap::new();
        let mut strays = 0;
        for cell in &results.cells {
            match place(results, cell) {
                Some(place) if !cells.contains_key(&place) => {
                    cells.insert(place, cell);
                }
                _ => strays += 1,
            }
        }
        let mut grid = Self {
            results,
            strays,
            one_publication: false,
            cells,
            free: Vec::new(),
        };
        grid.one_publication = grid.agrees();
        let programs: Vec<BTreeSet<usize>> = (0..grid.rows())
            .map(|row| {
                let all = grid.programs().map(|(program, _)| program);
                all.filter(|program| grid.takes_part(*program, row))
                    .collect()
            })
            .collect();
        grid.free = rows::free(&programs);
        grid
    }

    /// Number of rows; one where there is no axis down.
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

    /// The row stands for no value of the axis (see [`rows`]).
    pub(super) fn is_free(&self, row: usize) -> bool {
        self.free.get(row).copied().unwrap_or(false)
    }

    /// The program was to be measured somewhere in this row.
    pub(super) fn takes_part(&self, program: usize, row: usize) -> bool {
        (0..self.columns()).any(|column| self.cell(program, row, column).is_some())
    }

    /// The row of a program that is to be compared with `row`: the same, or the program's free one.
    pub(super) fn counterpart(&self, program: usize, row: usize) -> usize {
        let own = (0..self.rows()).find(|own| self.is_free(*own) && self.takes_part(program, *own));
        own.unwrap_or(row)
    }

    /// The programs, with their indices.
    pub(super) fn programs(&self) -> impl Iterator<Item = (usize, &'a Program)> + use<'a> {
        self.results.programs.iter().enumerate()
    }

    /// The cell at a place.
    pub(super) fn cell(&self, program: usize, row: usize, column: usize) -> Option<&'a Cell> {
        self.cells
            .get(&Place {
                program,
                row,
                column,
            })
            .copied()
    }

    /// The measured value at a place.
    pub(super) fn median(&self, program: usize, row: usize, column: usize) -> Option<f64> {
        self.cell(program, row, column)?
            .median
            .filter(|value| value.is_finite())
    }

    /// The value published for a program at a point.
    pub(super) fn paper(&self, program: usize, row: usize, column: usize) -> Option<f64> {
        self.cell(program, row, column)?
            .paper
            .filter(|value| value.is_finite())
    }

    /// The value published for a point, whichever program it is noted with.
    pub(super) fn published(&self, row: usize, column: usize) -> Option<f64> {
        (0..self.results.programs.len()).find_map(|program| self.paper(program, row, column))
    }

    /// Something was published about this experiment.
    pub(super) fn has_paper(&self) -> bool {
        self.points()
            .any(|(row, column)| self.published(row, column).is_some())
    }

    /// Every point of the sweep: row and column.
    pub(super) fn points(&self) -> impl Iterator<Item = (usize, usize)> + use<'a> {
        let columns = self.columns();
        (0..self.rows()).flat_map(move |row| (0..columns).map(move |column| (row, column)))
    }

    /// All cells with their places, in the order of program, row and column.
    pub(super) fn cells(&self) -> impl Iterator<Item = (Place, &'a Cell)> + '_ {
        self.programs().flat_map(move |(program, _)| {
            self.points().filter_map(move |(row, column)| {
                let cell = self.cell(program, row, column)?;
                Some((
                    Place {
                        program,
                        row,
                        column,
                    },
                    cell,
                ))
            })
        })
    }

    /// `4 parallel streams`-like name of a point: the row's value and the column's.
    pub(super) fn point_name(&self, row: usize, column: usize) -> String {
        let across = value_name(&self.results.across, column);
        match &self.results.down {
            Some(down) => format!("{}, {across}", value_name(down, row)),
            None => across,
        }
    }

    fn agrees(&self) -> bool {
        self.points().all(|(row, column)| {
            let mut published = (0..self.results.programs.len())
                .filter_map(|program| self.paper(program, row, column));
            match published.next() {
                Some(first) => published.all(|other| other == first),
                None => true,
            }
        })
    }
}

/// An axis's name with its unit: `one-way latency (ms)`.
pub(super) fn axis_name(axis: &Axis) -> String {
    if axis.unit.is_empty() {
        axis.label.clone()
    } else {
        format!("{} ({})", axis.label, axis.unit)
    }
}

/// One value of an axis with the axis's name: `one-way latency 50 ms`, `parallel streams 4`.
pub(super) fn value_name(axis: &Axis, index: usize) -> String {
    let value = axis.values.get(index).map_or("", String::as_str);
    let unit = if axis.unit.is_empty() || axis.unit == "%" {
        axis.unit.clone()
    } else {
        format!("\u{a0}{}", axis.unit)
    };
    format!("{} {value}{unit}", axis.label)
}

/// How many runs count, how many were made, and why the others do not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Runs {
    /// Runs whose value counts.
    pub(super) valid: usize,
    /// Runs that were made.
    pub(super) all: usize,
    /// Why runs were left out, each reason once, in order.
    pub(super) reasons: Vec<String>,
    /// No run gave a value at all, so the program failed; otherwise those left out were invalid.
    pub(super) failed: bool,
}

impl Runs {
    /// Counts the runs of a cell.
    pub(super) fn of(cell: &Cell) -> Self {
        let mut reasons: Vec<String> = Vec::new();
        for sample in &cell.samples {
            let mut add = |reason: &str| {
                if !reasons.iter().any(|known| known == reason) {
                    reasons.push(reason.to_owned());
                }
            };
            sample.invalid.iter().for_each(|reason| add(reason));
            if sample.value.is_none() && sample.invalid.is_empty() {
                add("failed without saying why");
            }
        }
        let counts =
            |value: &Option<f64>, invalid: &[String]| value.is_some() && invalid.is_empty();
        Self {
            valid: cell
                .samples
                .iter()
                .filter(|run| counts(&run.value, &run.invalid))
                .count(),
            all: cell.samples.len(),
            reasons,
            failed: cell.samples.iter().all(|run| run.value.is_none()),
        }
    }

    /// Some run does not count.
    pub(super) fn has_left_out(&self) -> bool {
        self.valid < self.all
    }

    /// Words to show where there is no value.
    pub(super) fn verdict(&self) -> &'static str {
        match (self.all, self.failed) {
            (0, _) => "\u{2013}",
            (_, true) => "failed",
            (_, false) => "invalid",
        }
    }
}

fn place(results: &Results, cell: &Cell) -> Option<Place> {
    let program = results
        .programs
        .iter()
        .position(|program| program.key == cell.program)?;
    let row = match &results.down {
        Some(axis) => index_on(axis, cell)?,
        None => 0,
    };
    Some(Place {
        program,
        row,
        column: index_on(&results.across, cell)?,
    })
}

fn index_on(axis: &Axis, cell: &Cell) -> Option<usize> {
    let value = cell.at.get(&axis.key)?;
    axis.values.iter().position(|known| known == value)
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn cells_find_their_places_and_strays_are_counted() {
        let mut results = samples::two_by_two();
        let mut lost = results.cells[0].clone();
        lost.at.insert("latency".to_owned(), "999".to_owned());
        results.cells.push(lost);
        results.cells.push(results.cells[0].clone());
        let grid = Grid::of(&results);
        assert_eq!(grid.strays, 2);
        assert_eq!((grid.rows(), grid.columns()), (2, 2));
        assert_eq!(grid.median(0, 1, 1), results.cells[3].median);
        assert_eq!(grid.cells().count(), 8);
    }

    #[test]
    fn a_program_that_ignores_the_axis_has_a_counterpart_in_every_row() {
        let results = samples::with_auto();
        let grid = Grid::of(&results);
        assert_eq!((grid.is_free(1), grid.is_free(2)), (false, true));
        assert!(grid.takes_part(2, 2) && !grid.takes_part(2, 0) && !grid.takes_part(0, 2));
        assert_eq!((grid.counterpart(2, 0), grid.counterpart(0, 1)), (2, 1));
    }

    #[test]
    fn one_publication_or_one_for_each_program() {
        let mut results = samples::two_by_two();
        assert!(Grid::of(&results).one_publication);
        results.cells[0].paper = Some(1.0);
        results.cells[4].paper = Some(2.0);
        assert!(!Grid::of(&results).one_publication);
    }

    #[test]
    fn runs_say_what_was_left_out() {
        let mut cell = samples::two_by_two().cells[0].clone();
        assert!(!Runs::of(&cell).has_left_out());
        cell.samples[0].invalid = vec!["the emulator was late".to_owned()];
        cell.samples[1].value = None;
        let runs = Runs::of(&cell);
        assert_eq!(
            (runs.valid, runs.all),
            (cell.samples.len() - 2, cell.samples.len())
        );
        assert_eq!(
            runs.reasons,
            ["the emulator was late", "failed without saying why"]
        );
        assert_eq!(runs.verdict(), "invalid");
        cell.samples.iter_mut().for_each(|run| run.value = None);
        assert_eq!(Runs::of(&cell).verdict(), "failed");
        cell.samples.clear();
        assert_eq!(Runs::of(&cell).verdict(), "–");
    }

    #[test]
    fn points_have_names() {
        let results = samples::two_by_two();
        let grid = Grid::of(&results);
        assert_eq!(
            grid.point_name(1, 0),
            "parallel streams 8, one-way latency 1\u{a0}ms"
        );
    }
}
