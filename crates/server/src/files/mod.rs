//! A session's files: what the state machine asks for, done inside the session's root.
//!
//! Everything here blocks; the driver calls it on a blocking thread.

use std::sync::Arc;

use data::store::root::{Identity, Root};
use proto::path::VPath;
use proto::server::{FileAnswer, FileError, FileErrorKind, FileRequest, ListRequest, Rights};

mod checksum;
mod listing;
mod room;
mod sums;
mod transfer;

#[cfg(test)]
mod tests;

pub use checksum::Summing;
pub(crate) use checksum::aborted;
pub use room::{Room, Share};
pub use sums::Sums;
pub use transfer::{Opened, Sending, Storing};

/// The files of one session.
#[derive(Debug, Clone)]
pub struct Files {
    root: Arc<Root>,
    rights: Rights,
    sums: Arc<Sums>,
    room: Room,
}

impl Files {
    /// The files below `root`, used with `rights`; `sums` and `room` are shared by all sessions.
    pub fn new(root: Arc<Root>, rights: Rights, sums: Arc<Sums>, room: Room) -> Self {
        Self {
            root,
            rights,
            sums,
            room,
        }
    }

    /// A listing for a reply, and the memory that it takes until the reply is sent.
    pub fn list(&self, request: &ListRequest) -> Result<(FileAnswer, Share), FileError> {
        let (lines, share) = self.list_lines(request)?;
        Ok((FileAnswer::Lines(lines), share))
    }

    /// Carries out a request. `progress` is called now and then during a checksum with the bytes
    /// summed so far; `false` stops it ([`FileErrorKind::Aborted`]).
    pub fn run(
        &self,
        request: &FileRequest,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<FileAnswer, FileError> {
        match request {
            FileRequest::Stat(path) => Ok(FileAnswer::Entry(Box::new(self.stat(path)?))),
            FileRequest::ChangeDir(path) => done(self.root.enter(path)),
            FileRequest::List(request) => self.list(request).map(|(answer, _)| answer),
            FileRequest::Checksum {
                algorithm,
                path,
                offset,
                length,
                marker_seconds: _,
            } => self
                .checksum(*algorithm, path, *offset, *length, progress)
                .map(FileAnswer::Digest),
            change => self.change(change),
        }
    }

    /// The requests that need the right to write.
    fn change(&self, request: &FileRequest) -> Result<FileAnswer, FileError> {
        self.require_write()?;
        let root = &self.root;
        match request {
            FileRequest::MakeDir(path) => done(root.make_dir(path)),
            FileRequest::RemoveDir(path) => done(root.remove_dir(path)),
            FileRequest::Delete(path) => done(root.delete(path)),
            FileRequest::RemoveTree(path) => done(root.remove_tree(path)),
            FileRequest::Rename { from, to } => {
                self.keeping_sums(from, to, || done(root.rename(from, to)))
            }
            FileRequest::SetModified(path, time) => {
                self.keeping_sums(path, path, || done(root.set_modified(path, *time)))
            }
            FileRequest::Chmod(path, mode) => {
                self.keeping_sums(path, path, || done(root.chmod(path, *mode)))
            }
            FileRequest::Chgrp(path, group) => {
                self.keeping_sums(path, path, || done(root.chgrp(path, group)))
            }
            FileRequest::Symlink { target, link } => done(root.symlink(target, link)),
            FileRequest::Truncate(path, length) => done(root.truncate(path, *length)),
            FileRequest::Stat(_)
            | FileRequest::ChangeDir(_)
            | FileRequest::List(_)
            | FileRequest::Checksum { .. } => Ok(FileAnswer::Done),
        }
    }

    fn stat(&self, path: &VPath) -> Result<proto::listing::Entry, FileError> {
        let mut entry = self.root.stat(path)?;
        entry.access.write &= self.rights.write;
        Ok(entry)
    }

    fn require_write(&self) -> Result<(), FileError> {
        if self.rights.write {
            return Ok(());
        }
        Err(FileError {
            kind: FileErrorKind::Denied,
            errno: None,
            text: "Permission denied: this session may only read".to_owned(),
        })
    }

    /// Runs a change that touches no content, and lets the file keep the checksums known of it.
    fn keeping_sums(
        &self,
        before: &VPath,
        after: &VPath,
        change: impl FnOnce() -> Result<FileAnswer, FileError>,
    ) -> Result<FileAnswer, FileError> {
        let old: Option<Identity> = self.root.identity(before).ok();
        let answer = change()?;
        if let (Some(old), Ok(new)) = (old, self.root.identity(after)) {
            self.sums.carry(&old, new);
        }
        Ok(answer)
    }
}

fn done(result: Result<(), data::store::root::StoreError>) -> Result<FileAnswer, FileError> {
    result?;
    Ok(FileAnswer::Done)
}
