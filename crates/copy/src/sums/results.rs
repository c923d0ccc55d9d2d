//! Results of a check.

use ftp::Failure;

/// Result of the check of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckedSum {
    /// The file has this checksum.
    Matches,
    /// The file has another one.
    Differs,
    /// There is no such file.
    Missing,
    /// The file cannot be read.
    Unreadable(Failure),
}

/// A file of a checksum file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedFile {
    /// Its name there.
    pub name: Vec<u8>,
    /// Result of its check.
    pub result: CheckedSum,
}

/// Numbers of files by the result of their check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckTotals {
    /// Files with the right checksum.
    pub matching: u64,
    /// Files with another one.
    pub differing: u64,
    /// Files that do not exist.
    pub missing: u64,
    /// Files that cannot be read.
    pub unreadable: u64,
    /// Lines of the checksum file that are none.
    pub malformed: u64,
}

impl CheckTotals {
    /// Number of files.
    pub fn files(&self) -> u64 {
        self.matching + self.differing + self.missing + self.unreadable
    }

    pub(crate) fn count(&mut self, result: &CheckedSum) {
        let number = match result {
            CheckedSum::Matches => &mut self.matching,
            CheckedSum::Differs => &mut self.differing,
            CheckedSum::Missing => &mut self.missing,
            CheckedSum::Unreadable(_) => &mut self.unreadable,
        };
        *number += 1;
    }
}
