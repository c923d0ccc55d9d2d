//! docs/measured.md and the targets of docs/benchmarks.md are those that the results in docs/results give.

use std::error::Error;
use std::path::Path;

/// Compares a file of the report of the committed results with a page, or with the part of it between two lines.
fn assert_same(file: &str, page: &str, part: Option<[&str; 2]>) -> Result<(), Box<dyn Error>> {
    let documentation = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let out = tempfile::tempdir()?;
    lab::report::write(&documentation.join("results"), out.path())?;
    let written = std::fs::read_to_string(out.path().join(file))?;
    let page = std::fs::read_to_string(documentation.join(page))?;
    let (written, documented) = match part {
        None => (written, &*page),
        Some([from, to]) => {
            let (_, begun) = page.split_once(from).ok_or(from)?;
            let (part, _) = begun.split_once(to).ok_or(to)?;
            (written.replace("(tables.md#", "(measured.md#"), part)
        }
    };
    let mut lines = written.lines().zip(documented.lines());
    let first = lines.find(|(one, other)| one != other);
    assert!(
        written == documented,
        "run packaging/measured; the first line that differs: {first:?}"
    );
    Ok(())
}

#[test]
fn the_documentation_has_the_tables_of_the_committed_results() {
    assert_same("tables.md", "measured.md", None).unwrap();
}

#[test]
fn the_benchmarks_begin_with_the_targets_and_what_the_committed_results_give() {
    let part = ["<!-- targets -->\n", "<!-- end of targets -->\n"];
    assert_same("targets.md", "benchmarks.md", Some(part)).unwrap();
}
