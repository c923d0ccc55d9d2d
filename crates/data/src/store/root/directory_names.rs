//! The names in a directory, a bounded number at a time.

use std::os::fd::AsFd;

use rustix::fs::Dir;
use rustix::io::Errno;

/// Memory of a batch per name, beside the bytes of the name.
const NAME_OVERHEAD: usize = 32;

/// The names in a directory, without `.` and `..`. They come sorted if they fit into one batch; of
/// a larger directory each batch is sorted, and a name that is changed meanwhile may come twice or
/// not at all, as with `readdir`.
#[derive(Debug)]
pub(super) struct DirectoryNames {
    /// `None` when all was read.
    dir: Option<Dir>,
    /// Memory of a batch, bytes.
    size: usize,
    batch: std::vec::IntoIter<Box<[u8]>>,
}

impl DirectoryNames {
    /// In batches of at most `size` bytes of memory.
    pub(super) fn read(dir: impl AsFd, size: usize) -> Result<Self, Errno> {
        let mut names = Self {
            dir: Some(Dir::read_from(dir)?),
            size,
            batch: Vec::new().into_iter(),
        };
        names.fill()?;
        Ok(names)
    }

    /// The next batch. The descriptor is closed with the last one.
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
            self.dir = None;
            return Some(Err(errno));
        }
        self.batch.next().map(Ok)
    }
}

/// How many there are.
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
    fn every_name_comes_once_whatever_the_size_of_a_batch() {
        let place = tempfile::tempdir().unwrap();
        for n in 0..500 {
            File::create(place.path().join(format!("{n:03}"))).unwrap();
        }
        let dir = File::open(place.path()).unwrap();
        let expected: Vec<Vec<u8>> = (0..500).map(|n| format!("{n:03}").into_bytes()).collect();
        for size in [1, 100, 5000, 1 << 20] {
            let names = DirectoryNames::read(&dir, size).unwrap();
            let mut seen: Vec<Vec<u8>> = names.map(|name| name.unwrap().into_vec()).collect();
            if size == 1 << 20 {
                assert_eq!(seen, expected, "one batch is sorted");
            }
            seen.sort();
            assert_eq!(seen, expected);
        }
        assert_eq!(count(&dir), Ok(500));
    }
}
