//! Rows that stand for no value of their axis.
//!
//! A program that chooses the number of streams by itself has a row of its own (`auto`) on an axis of
//! stream counts. It is to be compared with every other row, not shown alone.

use std::collections::BTreeSet;

/// Which rows are free: none of their programs takes part in another row. `programs` are those of
/// each row. The row with most programs (the first of several) is what others are compared with, so
/// it is never free.
pub(super) fn free(programs: &[BTreeSet<usize>]) -> Vec<bool> {
    let most = programs.iter().map(BTreeSet::len).max().unwrap_or(0);
    let base = programs.iter().position(|row| row.len() == most);
    let alone = |row: usize| {
        let others = programs
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != row);
        others
            .map(|(_, other)| other)
            .all(|other| other.is_disjoint(&programs[row]))
    };
    (0..programs.len())
        .map(|row| Some(row) != base && !programs[row].is_empty() && alone(row))
        .collect()
}

#[cfg(test)]
mod tests;
