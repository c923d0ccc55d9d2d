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
mod tests {
    use super::*;

    fn found(rows: &[&[usize]]) -> Vec<bool> {
        let rows: Vec<BTreeSet<usize>> = rows
            .iter()
            .map(|row| row.iter().copied().collect())
            .collect();
        free(&rows)
    }

    #[test]
    fn a_row_whose_programs_are_in_no_other_is_free() {
        assert_eq!(found(&[&[0, 1, 3], &[0, 1], &[2]]), [false, false, true]);
        assert_eq!(found(&[&[0, 1], &[2]]), [false, true]);
    }

    #[test]
    fn a_program_of_one_row_does_not_free_it() {
        assert_eq!(found(&[&[0, 1, 2], &[0, 1]]), [false, false]);
    }

    #[test]
    fn some_row_is_left_to_compare_with() {
        assert_eq!(found(&[&[0], &[1]]), [false, true]);
        assert_eq!(found(&[&[0]]), [false]);
        assert_eq!(found(&[&[], &[0], &[]]), [false, false, false]);
        assert!(found(&[]).is_empty());
    }
}
