//! Writes a checksum file, which has its name only when it is complete.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use data::store::durability::SyncPolicy;
use parking_lot::Mutex;
use proto::checksum::ChecksumAlgorithm;

use super::line::{format_line, parse_line};
use crate::local::partial::local_failure;
use crate::local::replacement::Replacement;
use ftp::Failure;

/// An open checksum file. Lines are in the order in which they were added.
#[derive(Debug)]
pub(crate) struct SumsWriter {
    algorithm: ChecksumAlgorithm,
    path: PathBuf,
    out: Mutex<Replacement>,
}

impl SumsWriter {
    /// Opens the file under a temporary name. An older file of the final name stays until [`SumsWriter::finish`].
    ///
    /// # Errors
    /// `Local`.
    pub(crate) fn create(path: &Path, algorithm: ChecksumAlgorithm) -> Result<Self, Failure> {
        let out = Replacement::create(path, "sums", 0o666).map_err(|e| local_failure(path, e))?;
        Ok(Self {
            algorithm,
            path: path.to_owned(),
            out: Mutex::new(out),
        })
    }

    pub(crate) fn algorithm(&self) -> ChecksumAlgorithm {
        self.algorithm
    }

    /// Adds a file.
    ///
    /// # Errors
    /// `Local`.
    pub(crate) fn add(&self, checksum: &str, name: &[u8]) -> Result<(), Failure> {
        let mut out = self.out.lock();
        out.write_all(&format_line(checksum, name))
            .map_err(|e| local_failure(&self.path, e))
    }

    /// Gives the file its name. It is on disk then, as `policy` says.
    ///
    /// # Errors
    /// `Local`.
    pub(crate) fn finish(&self, policy: SyncPolicy) -> Result<(), Failure> {
        let mut out = self.out.lock();
        out.put_in_place(policy)
            .map_err(|e| local_failure(&self.path, e))
    }
}

/// The checksums of an earlier file, by name; none if there is no such file. Lines of another form are left out.
///
/// # Errors
/// `Local`.
pub(crate) fn read_earlier(
    path: &Path,
    algorithm: ChecksumAlgorithm,
) -> Result<HashMap<Vec<u8>, String>, Failure> {
    let failure = |e| local_failure(path, e);
    let file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(HashMap::new()),
        file => file.map_err(failure)?,
    };
    let mut sums = HashMap::new();
    for line in BufReader::new(file).split(b'\n') {
        let line = line.map_err(failure)?;
        if let Some(sum) = parse_line(&line, Some(algorithm)) {
            sums.insert(sum.name, sum.checksum);
        }
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_older_file_stays_until_the_new_one_is_complete() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("MD5SUMS");
        fs::write(&path, "old").unwrap();
        let sums = SumsWriter::create(&path, ChecksumAlgorithm::Md5).unwrap();
        let checksum = "d41d8cd98f00b204e9800998ecf8427e";
        sums.add(checksum, b"a\nb").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        sums.finish(SyncPolicy::default()).unwrap();
        let earlier = read_earlier(&path, ChecksumAlgorithm::Md5).unwrap();
        assert_eq!(earlier.get(&b"a\nb"[..]).unwrap(), checksum);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        let none = read_earlier(&directory.path().join("none"), ChecksumAlgorithm::Md5);
        assert!(none.unwrap().is_empty());
    }
}
