//! A file that is written under a temporary name, and replaces another one when it is complete.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use data::store::durability::SyncPolicy;

use crate::local_name::directory_of;

/// A new name `KIND-....longhaul-partial` in the directory of `path`. Not a secret: whoever uses it creates it, and leaves
/// what is there already alone.
fn temporary_beside(path: &Path, kind: &str) -> PathBuf {
    path.with_file_name(temporary_name(kind))
}

/// A new name `KIND-....longhaul-partial`.
pub(crate) fn temporary_name(kind: &str) -> String {
    let token = RandomState::new().hash_one(kind);
    format!("{kind}-{token:016x}.longhaul-partial")
}

/// Whether there is something at `path` that no file may take the place of: a device, a pipe, a directory.
pub(crate) fn is_other_than_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file())
}

/// A file that is not complete. It is removed if it is dropped.
#[derive(Debug)]
pub(crate) struct Replacement {
    out: BufWriter<File>,
    path: PathBuf,
    temporary: PathBuf,
    is_in_place: bool,
}

impl Replacement {
    /// Begins a file that becomes `path`, with permissions of at most `mode`. What is at `path` stays for now.
    ///
    /// # Errors
    /// The disk's; `path` is no regular file, but a device, say.
    pub(crate) fn create(path: &Path, kind: &str, mode: u32) -> io::Result<Self> {
        if is_other_than_file(path) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is not a regular file",
            ));
        }
        let temporary = temporary_beside(path, kind);
        let mut options = File::options();
        // Neither a file that is there is written, nor one that a link points to.
        options.write(true).create_new(true).mode(mode);
        Ok(Self {
            out: BufWriter::new(options.open(&temporary)?),
            path: path.to_owned(),
            temporary,
            is_in_place: false,
        })
    }

    /// Gives the file its name: a reader sees the old or the new one. It is on disk then, as `policy` says.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn put_in_place(&mut self, policy: SyncPolicy) -> io::Result<()> {
        self.out.flush()?;
        if policy != SyncPolicy::None {
            self.out.get_ref().sync_all()?;
        }
        fs::rename(&self.temporary, &self.path)?;
        self.is_in_place = true;
        policy.sync_directory(directory_of(&self.path))
    }
}

impl Write for Replacement {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.is_in_place {
            // Nobody can tell what it lacks.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_when_it_is_complete_and_nothing_else_is_touched() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "old").unwrap();
        fs::write(directory.path().join("file~"), "of the user").unwrap();
        let mut dropped = Replacement::create(&path, "list", 0o600).unwrap();
        dropped.write_all(b"half").unwrap();
        drop(dropped);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        let mut new = Replacement::create(&path, "list", 0o600).unwrap();
        new.write_all(b"new").unwrap();
        new.put_in_place(SyncPolicy::default()).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }
    #[test]
    fn nothing_takes_the_place_of_a_device() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("null");
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        let refused = Replacement::create(&path, "list", 0o600).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
