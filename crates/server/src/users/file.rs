//! The password file as a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use super::line::LineError;

/// Largest password file, bytes: some hundred thousand accounts.
const MAX_FILE: u64 = 64 << 20;

/// Why a password file could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    /// It cannot be read.
    #[error("cannot read users file {}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// System's reason.
        cause: io::Error,
    },
    /// It cannot be replaced.
    #[error("cannot write users file {}: {cause}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// System's reason.
        cause: io::Error,
    },
    /// Group or others may read or write it.
    #[error(
        "users file {} is open to other accounts (mode {mode:04o}); run: chmod 600 {0}",
        path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Above 64 MiB.
    #[error("users file {} is larger than {MAX_FILE} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// Another change is under way.
    #[error(
        "users file is being changed by another command; if none runs, remove {}",
        lock.display()
    )]
    Busy {
        /// The new file of the other change.
        lock: PathBuf,
    },
    /// A line is wrong.
    #[error("users file {}, line {line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Its number, from 1.
        line: usize,
        /// The mistake.
        reason: LineError,
    },
    /// An account that the file cannot hold.
    #[error(transparent)]
    Account(#[from] LineError),
    /// The password could not be hashed.
    #[error("cannot hash a password: {0}")]
    Hash(argon2::password_hash::Error),
}

/// Which state of a file was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UsersFileVersion {
    inode: (u64, u64),
    size: u64,
    changed: (i64, i64),
}

impl UsersFileVersion {
    /// The file as it is now.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        Ok(Self::from_metadata(&path.metadata()?))
    }

    fn from_metadata(meta: &std::fs::Metadata) -> Self {
        Self {
            inode: (meta.dev(), meta.ino()),
            size: meta.size(),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// Reads a file that only its owner may read or write.
pub(super) fn read_users_file(path: &Path) -> Result<(String, UsersFileVersion), UsersError> {
    let failed = |cause| UsersError::Read {
        path: path.to_owned(),
        cause,
    };
    let file = File::open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if meta.mode() & 0o077 != 0 {
        return Err(UsersError::Exposed {
            path: path.to_owned(),
            mode: meta.mode() & 0o7777,
        });
    }
    if meta.len() > MAX_FILE {
        return Err(UsersError::TooLarge {
            path: path.to_owned(),
        });
    }
    let mut text = String::new();
    file.take(MAX_FILE)
        .read_to_string(&mut text)
        .map_err(failed)?;
    Ok((text, UsersFileVersion::from_metadata(&meta)))
}

/// A file's replacement in the making, `FILE.new`, which keeps other changes out until it is put
/// in place or dropped.
#[derive(Debug)]
pub(super) struct UsersFileReplacement {
    path: PathBuf,
    new: PathBuf,
    file: File,
    placed: bool,
}

impl UsersFileReplacement {
    /// Begins a change of `path`.
    pub(super) fn begin(path: &Path) -> Result<Self, UsersError> {
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let new = PathBuf::from(new);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new);
        match file {
            Ok(file) => Ok(Self {
                path: path.to_owned(),
                new,
                file,
                placed: false,
            }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(UsersError::Busy { lock: new })
            }
            Err(cause) => Err(UsersError::Write {
                path: path.to_owned(),
                cause,
            }),
        }
    }

    /// Puts `text` in the file's place: after a crash there is the old or the new file, whole.
    pub(super) fn commit(mut self, text: &[u8]) -> Result<(), UsersError> {
        self.write(text).map_err(|cause| UsersError::Write {
            path: self.path.clone(),
            cause,
        })
    }

    /// A file that root changes for the account that serves stays that account's.
    fn keep_owner(&self) -> io::Result<()> {
        let owner = |meta: std::fs::Metadata| (meta.uid(), meta.gid());
        let old = match self.path.metadata() {
            Ok(meta) => owner(meta),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        if old == self.file.metadata().map(owner)? {
            return Ok(());
        }
        fchown(&self.file, Some(old.0), Some(old.1))
    }

    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        self.keep_owner()?;
        self.file.write_all(text)?;
        self.file.sync_all()?;
        std::fs::rename(&self.new, &self.path)?;
        self.placed = true;
        match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
            _ => File::open(".")?.sync_all(),
        }
    }
}

impl Drop for UsersFileReplacement {
    fn drop(&mut self) {
        if !self.placed {
            let _ = std::fs::remove_file(&self.new);
        }
    }
}
