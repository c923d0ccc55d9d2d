//! The names in a directory, read a bounded number at a time.

use std::os::fd::AsFd;

use rustix::fs::Dir;
use rustix::io::Errno;

/// Memory per name in a batch, in addition to the bytes of the name.
const NAME_OVERHEAD: usize = 32;

/// The names in a directory, without `.` and `..`. They are sorted if they fit into one batch. In a
/// larger directory each batch is sorted, and a name that changes meanwhile may be returned twice
/// or not at all, as with readdir(3).
#[derive(Debug)]
pub(super) struct DirectoryNames {
    /// `None` when everything was read.
    dir: Option<Dir>,
    /// Memory of a batch, bytes.
    size: usize,
    batch: std::vec::IntoIter<Box<[u8]>>,
}

impl DirectoryNames {
    /// Reads a directory in batches of at most `size` bytes of memory.
    pub(super) fn read(dir: impl AsFd, size: usize) -> Result<Self, Errno> {
        let mut names = Self {
            dir: Some(Dir::read_from(dir)?),
            size,
            batch: Vec::new().into_iter(),
        };
        names.fill()?;
        Ok(names)
    }

    /// Reads the next batch. Closes the descriptor with the last one.
    fn fill(&mut self) -> Result<(), Errno> {
        let Some(dir) = &mut self.dir else {
            return Ok(());
        };
        let mut batch: Vec<Box<[u8]>> = Vec::new();
        let mut memory = 0;
        while memory < self.size {
            let Some(item) = dir.next().transpose()? else {
                self.dir = None;
                break;
            };
            let name = item.file_name().to_bytes();
            if name != b"." && name != b".." {
                memory += name.len() + NAME_OVERHEAD;
                batch.push(name.into());
            }
        }
        // Sorting is possible only within a batch, because memory is bounded.
        batch.sort_unstable();
        self.batch = batch.into_iter();
        Ok(())
    }
}

impl Iterator for DirectoryNames {
    type Item = Result<Box<[u8]>, Errno>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.batch.as_slice().is_empty()
            && let Err(errno) = self.fill()
        {
            // An error ends the iteration.
            self.dir = None;
            return Some(Err(errno));
        }
        self.batch.next().map(Ok)
    }
}

/// The number of names.
pub(super) fn count(dir: impl AsFd) -> Result<u64, Errno> {
    let mut count = 0;
    for item in Dir::read_from(dir)? {
        let item = item?;
        let name = item.file_name().to_bytes();
        count += u64::from(name != b"." && name != b"..");
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn every_name_is_returned_once_for_any_batch_size() {
        let parent = tempfile::tempdir().unwrap();
        for n in 0..500 {
            File::create(parent.path().join(format!("{n:03}"))).unwrap();
        }
        let dir = File::open(parent.path()).unwrap();
        let expected: Vec<Vec<u8>> = (0..500).map(|n| format!("{n:03}").into_bytes()).collect();
        for size in [1, 100, 5000, 1 << 20] {
            let names = DirectoryNames::read(&dir, size).unwrap();
            let mut names_read: Vec<Vec<u8>> = names.map(|name| name.unwrap().into_vec()).collect();
            if size == 1 << 20 {
                assert_eq!(names_read, expected, "one batch is sorted");
            }
            names_read.sort();
            assert_eq!(names_read, expected);
        }
        assert_eq!(count(&dir), Ok(500));
    }
}
