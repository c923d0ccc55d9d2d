//! Reading and replacing the users file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use smallfile::regular_file;

use super::line::LineError;

/// Largest users file, bytes: enough for some hundred thousand accounts.
const MAX_FILE: u64 = 64 << 20;

/// The reason why a users file could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    /// The file cannot be read.
    #[error(
        "cannot read users file {}: {cause}; check the path, or create the file with `longhaul user add`",
        path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// The file cannot be replaced.
    #[error("cannot write users file {}: {cause}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// Other accounts may read or write the file.
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
    /// The file is larger than 64 MiB.
    #[error("users file {} is larger than {MAX_FILE} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// Another command is changing the file.
    #[error(
        "users file is being changed by another command; if none runs, remove {}",
        lock.display()
    )]
    Busy {
        /// The new file of the other command.
        lock: PathBuf,
    },
    /// A line is malformed.
    #[error("users file {}, line {line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// The mistake.
        reason: LineError,
    },
    /// The account cannot be written to the file.
    #[error(transparent)]
    Account(#[from] LineError),
    /// The password could not be hashed.
    #[error("cannot hash a password: {0}")]
    Hash(argon2::password_hash::Error),
}

/// The version of a file. Every change of the file changes its ctime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UsersFileVersion {
    inode: (u64, u64),
    size: u64,
    changed: (i64, i64),
}

impl UsersFileVersion {
    /// The version of the file at `path`.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        Ok(Self::from_metadata(&path.metadata()?))
    }

    fn from_metadata(meta: &std::fs::Metadata) -> Self {
        Self {
            // The inode detects files that replace each other by rename with equal size and time.
            inode: (meta.dev(), meta.ino()),
            size: meta.size(),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// Reads the file; fails if others than its owner may read or write it.
pub(super) fn read_users_file(path: &Path) -> Result<(String, UsersFileVersion), UsersError> {
    let failed = |cause| UsersError::Read {
        path: path.to_owned(),
        cause,
    };
    let (file, meta) = regular_file::open(path).map_err(failed)?;
    // Of the open file, not of the path, which could be exchanged in between.
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
    // The file may have grown since its size was checked.
    file.take(MAX_FILE)
        .read_to_string(&mut text)
        .map_err(failed)?;
    Ok((text, UsersFileVersion::from_metadata(&meta)))
}

/// The new version of a users file, `FILE.new`, while it is being written. It excludes other changes
/// until it is committed or dropped, because only one process can create it (`O_EXCL`, open(2)).
#[derive(Debug)]
pub(super) struct UsersFileReplacement {
    path: PathBuf,
    new: PathBuf,
    file: File,
    committed: bool,
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
                committed: false,
            }),
            // Another command is at work, or one was killed: the message names the file to remove.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(UsersError::Busy { lock: new })
            }
            Err(cause) => Err(UsersError::Write {
                path: path.to_owned(),
                cause,
            }),
        }
    }

    /// Replaces the file's content with `text`, atomically: after a crash the old or the new file is
    /// there, complete.
    pub(super) fn commit(mut self, text: &[u8]) -> Result<(), UsersError> {
        self.write(text).map_err(|cause| UsersError::Write {
            path: self.path.clone(),
            cause,
        })
    }

    /// Gives the new file the owner of the old one. Otherwise a change by root would lock out a server
    /// that runs as another account.
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
        // Synced before the rename, or a crash could leave an empty users file (fsync(2)).
        self.file.sync_all()?;
        std::fs::rename(&self.new, &self.path)?;
        self.committed = true;
        // rename(2) is durable only once the directory is synced (fsync(2)).
        match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
            _ => File::open(".")?.sync_all(),
        }
    }
}

impl Drop for UsersFileReplacement {
    fn drop(&mut self) {
        if !self.committed {
            let _ = std::fs::remove_file(&self.new);
        }
    }
}
