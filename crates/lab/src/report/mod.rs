//! The report: results as one self-contained HTML page, with tables, figures, SVG and CSV.

use std::path::{Path, PathBuf};

use crate::LabError;

/// What was written.
#[derive(Debug)]
pub struct Written {
    /// `OUT/index.html`.
    pub page: PathBuf,
    /// Each figure's SVG and each table's CSV.
    pub files: Vec<PathBuf>,
}

/// Draws every results file (`*.json`) in `results` into `out`.
///
/// # Errors
/// No results there, a file that is none, or a full disk.
pub fn write(results: &Path, out: &Path) -> Result<Written, LabError> {
    let _ = (results, out);
    todo!()
}
