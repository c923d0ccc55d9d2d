//! A row of the matrix: every cell is tried, and the test fails with all that failed.

use std::fmt::Display;
use std::time::Instant;

use anyhow::Result;

/// How many failures are shown in full; of the others the first line.
const IN_FULL: usize = 4;

/// The cells of one test.
#[derive(Debug)]
pub struct MatrixRow {
    row: String,
    tried: usize,
    failures: Vec<String>,
}

impl MatrixRow {
    /// An empty row of this name.
    #[must_use]
    pub fn new(row: impl Into<String>) -> Self {
        Self {
            row: row.into(),
            tried: 0,
            failures: Vec::new(),
        }
    }

    /// Tries one cell.
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
            let shown = if self.failures.len() < IN_FULL {
                usize::MAX
            } else {
                1
            };
            self.failures
                .push(failure.lines().take(shown).collect::<Vec<_>>().join("\n"));
        }
    }

    /// Panics with every failed cell; a row without cells is a failure of the test itself.
    pub fn finish(self) {
        assert!(self.tried > 0, "{}: no cell was tried", self.row);
        assert!(
            self.failures.is_empty(),
            "{} of {} cells failed\n\n{}\n",
            self.failures.len(),
            self.tried,
            self.failures.join("\n\n")
        );
    }
}
