//! Gridmap files: certificate subjects and the accounts that they may use.

use std::path::Path;

use crate::x509::DistinguishedName;

/// A gridmap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gridmap {
    entries: Vec<GridmapEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct GridmapEntry {
    /// With attribute types in one spelling.
    subject: String,
    accounts: Vec<String>,
}

/// Error in a gridmap.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct GridmapError {
    /// File, and line if one is at fault.
    pub place: String,
    /// The problem in plain words.
    pub problem: String,
}

impl Gridmap {
    /// Reads a file. It must not be writable by others than its owner.
    ///
    /// # Errors
    /// See [`GridmapError`].
    pub fn load(path: &Path) -> Result<Self, GridmapError> {
        let _ = path;
        todo!()
    }

    /// Parses the text of a gridmap; `place` names it in errors.
    ///
    /// # Errors
    /// See [`GridmapError`].
    pub fn parse(text: &[u8], place: &str) -> Result<Self, GridmapError> {
        let _ = (text, place);
        todo!()
    }

    /// The accounts of a subject, the default first; empty: none.
    pub fn accounts(&self, subject: &DistinguishedName) -> &[String] {
        let _ = (subject, &self.entries);
        todo!()
    }
}
