//! A row of the interoperability matrix: runs all cells, then fails with every failed one.

use std::fmt::Display;
use std::time::Instant;

use anyhow::Result;

/// Number of failures shown completely; the others are shown by their first line.
const MAX_COMPLETE_FAILURES: usize = 4;

/// The results of the cells of one row.
#[derive(Debug)]
pub struct MatrixRow {
    row: String,
    tried: usize,
    failures: Vec<String>,
}

impl MatrixRow {
    /// An empty row with this name.
    #[must_use]
    pub fn new(row: impl Into<String>) -> Self {
        Self {
            row: row.into(),
            tried: 0,
            failures: Vec::new(),
        }
    }

    /// Runs one cell and records its result.
    pub fn check(&mut self, cell: impl Display, attempt: impl FnOnce() -> Result<()>) {
        self.tried += 1;
        let start = Instant::now();
        let result = attempt();
        println!(
            "{}: {cell}: {:.2} s",
            self.row,
            start.elapsed().as_secs_f64()
        );
        if let Err(error) = result {
            let failure = format!("{}: {cell}: {error:#}", self.row);
            let shown = if self.failures.len() < MAX_COMPLETE_FAILURES {
                usize::MAX
            } else {
                1
            };
            self.failures
                .push(failure.lines().take(shown).collect::<Vec<_>>().join("\n"));
        }
    }

    /// Panics with all failed cells. A row without cells is an error in the test.
    pub fn finish(self) {
        assert!(self.tried > 0, "{}: no cell was run", self.row);
        assert!(
            self.failures.is_empty(),
            "{} of {} cells failed\n\n{}\n",
            self.failures.len(),
            self.tried,
            self.failures.join("\n\n")
        );
    }
}
