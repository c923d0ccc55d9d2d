//! Reading and replacing the users file.

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use smallfile::{FileReplacement, regular_file};

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
    /// There is an account of the name that is to be added.
    #[error(
        "users file {} has {name} already; `longhaul user change` changes its password, root or rights",
        path.display()
    )]
    Taken {
        /// The file.
        path: PathBuf,
        /// The account.
        name: String,
    },
    /// Clients log in anonymously by the name that is to be added.
    #[error(
        "{name} is the name of anonymous sessions, which have no account; `anonymous` in the settings permits them"
    )]
    Anonymous {
        /// The name.
        name: String,
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

impl UsersError {
    /// Whether this process may not read the file.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self, Self::Read { cause, .. } if cause.kind() == io::ErrorKind::PermissionDenied)
    }
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

/// A change of the users file. No other command changes it until it is committed or dropped.
#[derive(Debug)]
pub(super) struct UsersFileChange {
    path: PathBuf,
    change: FileReplacement,
}

impl UsersFileChange {
    /// Begins a change of `path`.
    pub(super) fn begin(path: &Path) -> Result<Self, UsersError> {
        let change = FileReplacement::begin(path).map_err(|cause| match cause.kind() {
            // Another command is at work, or one was killed: the message names the file to remove.
            io::ErrorKind::AlreadyExists => UsersError::Busy {
                lock: FileReplacement::new_path(path),
            },
            _ => UsersError::Write {
                path: path.to_owned(),
                cause,
            },
        })?;
        Ok(Self {
            path: path.to_owned(),
            change,
        })
    }

    /// Replaces the file's content with `text`.
    pub(super) fn commit(self, text: &[u8]) -> Result<(), UsersError> {
        let Self { path, change } = self;
        change
            .commit(text)
            .map_err(|cause| UsersError::Write { path, cause })
    }
}
