//! A log file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Gid, OFlags, Uid, chownat};

/// The account to which new log files belong.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogOwner {
    pub(crate) user: u32,
    pub(crate) group: u32,
}

/// A file open for appending. It is opened again when the path leads to another file (log rotation).
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    state: Mutex<LogFileState>,
}

#[derive(Debug)]
struct LogFileState {
    file: File,
    /// The last append failed; the failure was logged.
    failing: bool,
}

impl LogFile {
    /// Opens the file. One that does not exist is made, and given to `owner`: those that replace it
    /// after a rotation belong to the account that serves, too.
    pub(super) fn open(path: &Path, owner: Option<LogOwner>) -> io::Result<Self> {
        let is_new = !path.try_exists()?;
        let file = open_append(path)?;
        if let Some(LogOwner { user, group }) = owner.filter(|_| is_new) {
            // The confined server has no fchown(2).
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
            chownat(&file, "", Some(user), Some(group), AtFlags::EMPTY_PATH)?;
        }
        Ok(Self {
            path: path.to_owned(),
            state: Mutex::new(LogFileState {
                file,
                failing: false,
            }),
        })
    }

    /// Appends one line with its end in one write: with `O_APPEND` (open(2)) lines of several processes
    /// do not mix.
    pub(super) fn append(&self, line: &[u8]) {
        let mut state = self.state.lock();
        if was_replaced(&state.file, &self.path) {
            // If the new file cannot be opened, because the server gave up root, appending to the
            // renamed file is better than losing the record.
            if let Ok(file) = open_append(&self.path) {
                state.file = file;
            }
        }
        let result = state.file.write_all(line);
        // Only the first failure in a row is logged: a full disk would repeat it for every transfer.
        if let (Err(error), false) = (&result, state.failing) {
            let path = self.path.display();
            tracing::error!(%path, %error, "transfer log cannot be written; transfers go on");
        }
        state.failing = result.is_err();
    }
}

fn open_append(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        // The records name users and files, so accounts outside of the group may not read them.
        .mode(0o640)
        // A pipe that nobody reads must hold up neither the start nor a transfer.
        .custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed())
        .open(path)
}

fn was_replaced(file: &File, path: &Path) -> bool {
    let inode = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    // A path that leads nowhere gives `None` and so differs, too: the file was moved away.
    path.metadata().ok().map(inode) != file.metadata().ok().map(inode)
}
