//! The files that a run must leave behind, and the check of them. A run that left something else is no measurement.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The check of the file or tree that a run must leave behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ArrivalCheck {
    /// A file of this size.
    Size { received: PathBuf, bytes: u64 },
    /// A file or tree with the names and the content of another one, and nothing else.
    Equal { received: PathBuf, sent: PathBuf },
}

impl ArrivalCheck {
    /// Compares what is there with what must be there. `None`: it is the same.
    pub(crate) fn difference(&self) -> Option<String> {
        match self {
            Self::Size { received, bytes } => {
                let found = std::fs::metadata(received).map_or(0, |m| m.len());
                (found != *bytes).then(|| format!("received {found} of {bytes} bytes"))
            }
            Self::Equal { received, sent } => {
                let mut comparison = TreeComparison::default();
                match comparison.compare(sent, received) {
                    Ok(()) => comparison.to_text(),
                    Err(e) => Some(format!("what was received cannot be read: {e}")),
                }
            }
        }
    }
}

/// The files that were compared, and the first difference of each kind.
#[derive(Debug, Default)]
struct TreeComparison {
    /// Files that were sent, and those of them that arrived with their content.
    sent: u64,
    equal: u64,
    first: Option<String>,
}

impl TreeComparison {
    /// Compares two files or two trees.
    fn compare(&mut self, sent: &Path, received: &Path) -> io::Result<()> {
        let kind = |path: &Path| match path.symlink_metadata() {
            Ok(metadata) => Ok(Some(metadata.file_type())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        };
        let (wanted, found) = (kind(sent)?, kind(received)?);
        match (wanted, found) {
            (Some(a), Some(b)) if a.is_dir() && b.is_dir() => self.compare_entries(sent, received),
            (Some(a), b) if a.is_dir() => {
                self.note(
                    received,
                    if b.is_some() {
                        "no directory"
                    } else {
                        "missing"
                    },
                );
                self.sent += count_files(sent)?;
                Ok(())
            }
            (Some(_), b) => {
                self.sent += 1;
                let is_file = b.is_some_and(|kind| kind.is_file());
                if is_file && has_same_content(sent, received)? {
                    self.equal += 1;
                } else {
                    let what = if is_file { "other content" } else { "missing" };
                    self.note(received, what);
                }
                Ok(())
            }
            (None, _) => {
                self.note(received, "was not sent");
                Ok(())
            }
        }
    }

    /// Compares all entries of two directories.
    fn compare_entries(&mut self, sent: &Path, received: &Path) -> io::Result<()> {
        let names = |path: &Path| -> io::Result<BTreeSet<OsString>> {
            std::fs::read_dir(path)?
                .map(|entry| Ok(entry?.file_name()))
                .collect()
        };
        for name in names(sent)?.union(&names(received)?) {
            self.compare(&sent.join(name), &received.join(name))?;
        }
        Ok(())
    }

    fn note(&mut self, path: &Path, what: &str) {
        self.first
            .get_or_insert_with(|| format!("{}: {what}", path.display()));
    }

    /// Describes the differences. `None`: there are none.
    fn to_text(&self) -> Option<String> {
        let first = self.first.as_ref()?;
        let (sent, equal) = (self.sent, self.equal);
        Some(format!(
            "{equal} of {sent} files arrived as they were; {first}"
        ))
    }
}

/// Counts the files of a tree.
fn count_files(directory: &Path) -> io::Result<u64> {
    let mut files = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        files += match entry.file_type()?.is_dir() {
            true => count_files(&entry.path())?,
            false => 1,
        };
    }
    Ok(files)
}

/// The bytes that are compared at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Whether two files have the same bytes.
fn has_same_content(one: &Path, other: &Path) -> io::Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    let size = one.metadata()?.len();
    if other.metadata()?.len() != size {
        return Ok(false);
    }
    let piece = usize::try_from(size).map_or(PIECE_BYTES, |size| size.clamp(1, PIECE_BYTES));
    let mut pieces = [vec![0; piece], vec![0; piece]];
    let mut left = size;
    while left > 0 {
        let next = usize::try_from(left).map_or(piece, |left| left.min(piece));
        let [a, b] = &mut pieces;
        one.read_exact(&mut a[..next])?;
        other.read_exact(&mut b[..next])?;
        if a[..next] != b[..next] {
            return Ok(false);
        }
        left -= next as u64;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(root: &Path, files: &[(&str, &[u8])]) -> PathBuf {
        for (name, content) in files {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        root.to_owned()
    }

    #[test]
    fn every_difference_of_two_trees_is_found() {
        let around = tempfile::tempdir().unwrap();
        let long = vec![7; PIECE_BYTES + 9];
        let mut changed = long.clone();
        *changed.last_mut().unwrap() = 8;
        let all: [(&str, &[u8]); 3] = [("a/x", b"1"), ("a/b/y", b""), ("z", &long)];
        let sent = tree(&around.path().join("sent"), &all);
        let difference = |name: &str, files: &[(&str, &[u8])]| {
            let received = tree(&around.path().join(name), files);
            let sent = sent.clone();
            ArrivalCheck::Equal { received, sent }.difference()
        };
        assert_eq!(difference("same", &all), None);
        for (name, files, expected) in [
            ("nothing", &[][..], "0 of 3 files"),
            ("less", &[all[0], all[1]], "z: missing"),
            ("without a directory", &[all[2]], "1 of 3 files"),
            (
                "shorter",
                &[("a/x", b""), all[1], all[2]],
                "a/x: other content",
            ),
            (
                "changed",
                &[all[0], all[1], ("z", &changed)],
                "z: other content",
            ),
            (
                "more",
                &[all[0], all[1], all[2], ("a/.part", b"1")],
                "a/.part: was not sent",
            ),
            ("another kind", &[("a", b"1"), all[2]], "a: no directory"),
        ] {
            let found = difference(name, files).unwrap();
            assert!(found.contains(expected), "{name}: {found}");
        }
    }

    #[test]
    fn a_file_of_another_size_is_a_difference() {
        let around = tempfile::tempdir().unwrap();
        let received = around.path().join("sink");
        let arrival = ArrivalCheck::Size {
            received: received.clone(),
            bytes: 3,
        };
        assert_eq!(
            arrival.difference().as_deref(),
            Some("received 0 of 3 bytes")
        );
        std::fs::write(received, "abc").unwrap();
        assert_eq!(arrival.difference(), None);
    }
}
