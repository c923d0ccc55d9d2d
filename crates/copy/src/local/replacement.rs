//! A file that is written under a temporary name, and replaces another one when it is complete.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::OnceLock;

use data::store::durability::SyncPolicy;

use crate::local::local_name::LocalName;

/// A new name `KIND-....longhaul-partial`. Not a secret: whoever uses it creates it, and leaves what is there already alone.
pub(crate) fn temporary_name(kind: &str) -> String {
    format!("{kind}-{:016x}.longhaul-partial", random_token())
}

/// The first half of the tokens of this process, if another one chose it.
static TOKEN_PREFIX: OnceLock<u32> = OnceLock::new();

/// A part of a name that nobody else uses. Not a secret: O_EXCL decides whose name it is.
pub(crate) fn random_token() -> u64 {
    let random = RandomState::new().hash_one(std::process::id());
    match TOKEN_PREFIX.get() {
        Some(prefix) => u64::from(*prefix) << 32 | random >> 32,
        None => random,
    }
}

/// Has all tokens of this process begin so from now on: whoever chose the prefix knows the unfinished files of this process by
/// their names.
pub(crate) fn set_token_prefix(prefix: u32) {
    // The first one counts.
    let _ = TOKEN_PREFIX.set(prefix);
}

/// Whether there is something at `path` that no file may take the place of: a device, a pipe, a directory.
pub(crate) fn is_other_than_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file())
}

/// A file that is not complete. It is removed if it is dropped.
#[derive(Debug)]
pub(crate) struct Replacement {
    out: BufWriter<File>,
    name: LocalName,
    temporary: LocalName,
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
        let name = LocalName::at(path)?;
        let temporary = name.beside(temporary_name(kind).as_bytes());
        Ok(Self {
            // Neither a file that is there is written, nor one that a link points to.
            out: BufWriter::new(temporary.create_new(mode)?),
            name,
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
        self.temporary.rename_open(self.out.get_ref(), &self.name)?;
        self.is_in_place = true;
        self.name.sync_directory(policy)
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
            let _ = self.temporary.remove_open(self.out.get_ref());
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
