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
