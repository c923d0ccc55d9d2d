//! Charges of the files of bundles.

use std::fs::File;
use std::io;

use data::store::root::{EntryUsage, Root};
use proto::path::VPath;
use proto::server::{FileError, FileErrorKind};

use super::{FileCharge, SessionQuota};
use crate::files::uploads::Inode;

/// The charge of a file of a bundle, until it is in place or given up.
#[derive(Debug)]
pub(in crate::files) struct MemberCharge {
    file: FileCharge,
    size: u64,
    /// The file that it replaces, whose space it has.
    replaced: Option<Inode>,
}

impl SessionQuota {
    /// Charges a file that was just created and will have `size` bytes. It has the space of the file that it `replaces`, unless
    /// another store has a claim on that one.
    pub(in crate::files) fn open_member(
        &self,
        file: &File,
        size: u64,
        replaces: Option<EntryUsage>,
    ) -> Result<MemberCharge, FileError> {
        let pledged = replaces.filter(|old| self.usage.count().pledge(*old));
        let replaced = pledged.map(|old| old.inode);
        let failed = |error: io::Error| FileError {
            kind: FileErrorKind::Other,
            errno: error.raw_os_error(),
            text: error.to_string(),
        };
        match self.open_file(file, size, true, failed) {
            Ok(file) => Ok(MemberCharge {
                file,
                size,
                replaced,
            }),
            Err(error) => {
                if let Some(old) = replaced {
                    self.usage.count().end_pledge(old);
                }
                Err(error)
            }
        }
    }
}

impl MemberCharge {
    /// Gives the file its name by `rename`. It stays charged if that fails.
    pub(in crate::files) fn put_in_place(
        &self,
        root: &Root,
        path: &VPath,
        rename: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let quota = &self.file.quota;
        let _changing = quota.changing();
        let there = root.usage_of(path);
        rename()?;
        let mut count = quota.usage.count();
        count.close(self.file.inode, Some(self.size));
        let is_there = |old: Inode| there.is_some_and(|entry| entry.inode == old);
        if let Some(old) = self.replaced.filter(|old| !is_there(*old)) {
            // It has another name by now.
            count.end_pledge(old);
        }
        count.note_removed(there);
        Ok(())
    }

    /// Returns the charge of a file that is removed.
    pub(in crate::files) fn give_up(&self) {
        let mut count = self.file.quota.usage.count();
        count.close(self.file.inode, None);
        if let Some(old) = self.replaced {
            count.end_pledge(old);
        }
    }
}
