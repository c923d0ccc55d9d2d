//! docs/measured.md is the page that the results in docs/results give.

use std::path::Path;

#[test]
fn the_documentation_has_the_tables_of_the_committed_results() {
    let documentation = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let out = tempfile::tempdir().unwrap();
    lab::report::write(&documentation.join("results"), out.path()).unwrap();
    let written = std::fs::read_to_string(out.path().join("tables.md")).unwrap();
    let documented = std::fs::read_to_string(documentation.join("measured.md")).unwrap();
    let first = written
        .lines()
        .zip(documented.lines())
        .find(|(one, other)| one != other);
    assert!(
        written == documented,
        "run packaging/measured; the first line that differs: {first:?}"
    );
}
