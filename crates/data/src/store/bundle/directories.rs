//! Directories of the files of a bundle, kept open: most files follow others of their directory, and a name in an open
//! directory costs the kernel one step instead of one for each component of a path.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Directories that are open at a time. Streams carry blocks of different directories side by side.
const MAX_OPEN: usize = 8;
/// A directory is looked up again after this time, so that one that was renamed or replaced is soon noticed. Between a
/// lookup and its use, some time passes in any case.
const KEPT_FOR: Duration = Duration::from_millis(100);

/// Open directories by path.
#[derive(Debug, Default)]
pub struct OpenDirectories(Mutex<Vec<OpenDirectory>>);

#[derive(Debug)]
struct OpenDirectory {
    path: Vec<u8>,
    descriptor: Arc<OwnedFd>,
    since: Instant,
}

impl OpenDirectories {
    /// The directory `path`, which `open` opens if it is not open yet, or has been for long.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn get<E>(
        &self,
        path: &[u8],
        open: impl FnOnce() -> Result<OwnedFd, E>,
    ) -> Result<Arc<OwnedFd>, E> {
        let now = Instant::now();
        let found = {
            let kept = self.0.lock();
            let known = kept.iter().find(|known| known.path == path);
            known.map(|known| (Arc::clone(&known.descriptor), known.since))
        };
        if let Some((descriptor, since)) = found
            && now.duration_since(since) < KEPT_FOR
        {
            return Ok(descriptor);
        }
        let descriptor = Arc::new(open()?);
        let mut kept = self.0.lock();
        kept.retain(|other| other.path != path && now.duration_since(other.since) < KEPT_FOR);
        if kept.len() >= MAX_OPEN {
            // The oldest: they are in the order of their opening.
            kept.remove(0);
        }
        kept.push(OpenDirectory {
            path: path.to_owned(),
            descriptor: Arc::clone(&descriptor),
            since: now,
        });
        Ok(descriptor)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io;

    use super::*;

    fn open() -> io::Result<OwnedFd> {
        Ok(File::open(".")?.into())
    }

    #[test]
    fn a_directory_is_opened_once_and_those_used_last_stay_open() {
        let directories = OpenDirectories::default();
        let first = directories.get(b"a", open).unwrap();
        let count = |directories: &OpenDirectories| directories.0.lock().len();
        for name in 0..100_u8 {
            directories.get(&[name], open).unwrap();
            assert!(count(&directories) <= MAX_OPEN);
        }
        // Long ago, by now or by the number of others.
        let again = directories.get(b"a", open).unwrap();
        assert!(!Arc::ptr_eq(&first, &again));
    }

    #[test]
    fn a_directory_that_is_open_for_long_is_looked_up_again() {
        let directories = OpenDirectories::default();
        directories.get(b"a", open).unwrap();
        let moved = || Err(io::Error::from(io::ErrorKind::NotFound));
        directories.0.lock()[0].since -= KEPT_FOR;
        directories.get(b"a", moved).unwrap_err();
        directories.get(b"a", open).unwrap();
        directories.0.lock()[0].since += KEPT_FOR;
        directories.get(b"a", moved).unwrap();
    }
}
