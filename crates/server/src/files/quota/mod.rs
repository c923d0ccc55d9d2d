//! Quotas: how many bytes and files a root may hold.
//!
//! The server counts a root's tree once, and then keeps account of what its own sessions change. It counts again
//! after an hour, after a reload, after the removal of a tree, and before it refuses anything, because other
//! programs may have made room. A file that is being stored counts with the size that it may reach.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use data::store::root::{CreationRules, EntryUsage, Root, TreeUsage};
use parking_lot::{Mutex, MutexGuard};
use proto::server::{FileError, FileErrorKind};
use rustix::io::Errno;

use crate::config::QuotaBounds;
use crate::files::uploads::Inode;
use count::{FRESH_COUNT, OLD_COUNT, UsageCount};

mod count;
pub(in crate::files) mod member;

/// Largest number of roots whose counts are kept while nobody uses them.
const MAX_KEPT: usize = 4096;

/// A name that holds no bytes: a directory, a link or an empty file.
pub(super) const ONE_NAME: TreeUsage = TreeUsage { bytes: 0, files: 1 };

/// The counts of all roots, shared by all sessions.
#[derive(Debug, Default)]
pub struct QuotaLedger {
    roots: Mutex<HashMap<Inode, Arc<RootUsage>>>,
}

/// The count of one root.
#[derive(Debug)]
struct RootUsage {
    root: Root,
    count: Mutex<UsageCount>,
    /// The tree is to be counted again. Not in the count, whose lock is held for as long as a count takes.
    is_old: AtomicBool,
    /// Held from the look at the size of a file until the change of its name or size is in the count: two changes must not
    /// return the same bytes.
    changing: Mutex<()>,
}

/// The quota of a session: its bounds, and what its root holds.
#[derive(Debug, Clone)]
pub struct SessionQuota {
    bounds: QuotaBounds,
    usage: Arc<RootUsage>,
}

impl QuotaLedger {
    /// The quota of a session with this root; `None` without bounds.
    ///
    /// # Errors
    /// Those of fstat(2).
    pub fn quota(&self, root: &Root, bounds: QuotaBounds) -> io::Result<Option<SessionQuota>> {
        if bounds == QuotaBounds::default() {
            return Ok(None);
        }
        let inode = root.inode()?;
        let mut roots = self.roots();
        if roots.len() >= MAX_KEPT {
            roots.retain(|_, usage| Arc::strong_count(usage) > 1);
        }
        let usage = roots.entry(inode).or_insert_with(|| {
            Arc::new(RootUsage {
                root: root.with_creation_rules(CreationRules::default()),
                count: Mutex::default(),
                is_old: AtomicBool::new(false),
                changing: Mutex::default(),
            })
        });
        Ok(Some(SessionQuota {
            bounds,
            usage: Arc::clone(usage),
        }))
    }

    /// Has every tree counted again before the next store.
    pub fn forget_counts(&self) {
        for usage in self.roots().values() {
            usage.is_old.store(true, Ordering::Relaxed);
        }
    }

    fn roots(&self) -> MutexGuard<'_, HashMap<Inode, Arc<RootUsage>>> {
        self.roots.lock()
    }
}

impl RootUsage {
    /// Locks the count. After a panic of its holder, at worst a count is off until the next one.
    fn count(&self) -> MutexGuard<'_, UsageCount> {
        self.count.lock()
    }

    /// Makes room, with counts of the tree if they may help.
    fn make_room(
        &self,
        count: &mut UsageCount,
        bounds: QuotaBounds,
        more: TreeUsage,
        new: Option<Inode>,
    ) -> bool {
        if self.is_old.swap(false, Ordering::Relaxed) {
            count.forget();
        }
        count.refresh(&self.root, OLD_COUNT, new);
        if !count.has_room(bounds, more) {
            count.refresh(&self.root, FRESH_COUNT, new);
        }
        count.has_room(bounds, more)
    }
}

impl SessionQuota {
    /// Fails if there is no room for so many bytes and files. `returned` tells how much of them is returned in the end; it is
    /// asked only if there is no room otherwise.
    pub(super) fn require(
        &self,
        more: TreeUsage,
        returned: impl FnOnce() -> TreeUsage,
    ) -> Result<(), FileError> {
        let mut count = self.usage.count();
        if self.usage.make_room(&mut count, self.bounds, more, None) {
            return Ok(());
        }
        match count.has_room(self.bounds, more.minus(returned())) {
            true => Ok(()),
            false => Err(self.refusal(&count, more.bytes)),
        }
    }

    /// Charges new files that are not stores: directories and links.
    pub(super) fn add(&self, more: TreeUsage) -> Result<(), FileError> {
        let mut count = self.usage.count();
        self.reserve(&mut count, more, None)?;
        count.add(more);
        Ok(())
    }

    /// Fails if there is no room; the file `new` is not counted yet.
    fn reserve(
        &self,
        count: &mut UsageCount,
        more: TreeUsage,
        new: Option<Inode>,
    ) -> Result<(), FileError> {
        match self.usage.make_room(count, self.bounds, more, new) {
            true => Ok(()),
            false => Err(self.refusal(count, more.bytes)),
        }
    }

    /// Returns what was charged.
    pub(super) fn subtract(&self, less: TreeUsage) {
        self.usage.count().subtract(less);
    }

    /// Takes note that a name was removed, and the file that had it.
    pub(super) fn note_removed(&self, removed: Option<EntryUsage>) {
        self.usage.count().note_removed(removed);
    }

    /// Holds back other changes of names and sizes, until the guard is dropped.
    pub(super) fn changing(&self) -> MutexGuard<'_, ()> {
        let changing = &self.usage.changing;
        changing.lock()
    }

    /// Has the tree counted again before the next store.
    pub(super) fn forget_count(&self) {
        self.usage.is_old.store(true, Ordering::Relaxed);
    }

    /// Holds the count, as one that takes long does.
    #[cfg(test)]
    pub(super) fn hold_count(&self) -> impl Drop + '_ {
        self.usage.count()
    }

    /// Charges a file that is opened for a store and may reach `end`. `is_new`: this store has created it. `failed` makes an
    /// error of the file system one of the session.
    pub(super) fn open_file(
        &self,
        file: &File,
        end: u64,
        is_new: bool,
        failed: impl FnOnce(io::Error) -> FileError,
    ) -> Result<FileCharge, FileError> {
        let changing = self.changing();
        let meta = file.metadata().map_err(failed)?;
        let inode = (meta.dev(), meta.ino());
        let has_name = meta.nlink() > 0;
        let mut count = self.usage.count();
        count.end_pledge(inode);
        if is_new && !has_name {
            // Somebody has removed it, and returned what is charged now.
            count.add(ONE_NAME);
        }
        let is_counted = has_name && !is_new;
        let size = if is_counted { meta.len() } else { 0 };
        // A file that others store into may be charged with more already.
        let open_size = count.open_size(inode);
        let charged = open_size.unwrap_or(size);
        let more = TreeUsage {
            bytes: end.max(meta.len()).saturating_sub(charged),
            files: u64::from(!is_counted && open_size.is_none()),
        };
        self.reserve(&mut count, more, is_new.then_some(inode))?;
        let charged = count.open(inode, size, more);
        drop((count, changing));
        Ok(FileCharge {
            quota: self.clone(),
            inode,
            size_before: meta.len(),
            charged: AtomicU64::new(charged),
        })
    }

    fn refusal(&self, count: &UsageCount, more: u64) -> FileError {
        let text = match count.unknown() {
            Some(reason) => format!("Disk quota: what is in use cannot be counted: {reason}"),
            None => self.excess(count.used(), more),
        };
        FileError {
            kind: FileErrorKind::NoSpace,
            errno: Some(Errno::DQUOT.raw_os_error()),
            text,
        }
    }

    fn excess(&self, used: TreeUsage, more: u64) -> String {
        let bytes = self.bounds.bytes.map(|bound| {
            let (used, bound) = (units::show::bytes(used.bytes), units::show::bytes(bound));
            format!("{used} of {bound}")
        });
        let files = self.bounds.files;
        let files = files.map(|bound| format!("{} of {bound} files", used.files));
        let parts: Vec<String> = bytes.into_iter().chain(files).collect();
        let needed = match more {
            0 => "one more file".to_owned(),
            more => format!("{} more", units::show::bytes(more)),
        };
        format!(
            "Disk quota exceeded: {} are in use, {needed} would be needed",
            parts.join(" and ")
        )
    }
}

/// The charge of a file while a store has it open.
#[derive(Debug)]
pub(super) struct FileCharge {
    quota: SessionQuota,
    inode: Inode,
    /// Size of the file before the store, bytes.
    pub(super) size_before: u64,
    /// The size that is charged, at least: this store need not ask below it.
    charged: AtomicU64,
}

impl FileCharge {
    /// Charges the file for bytes up to `end`.
    ///
    /// # Errors
    /// EDQUOT: the quota has no room for them.
    pub(super) fn grow_to(&self, end: u64) -> io::Result<()> {
        // Relaxed: the count itself is under its lock.
        if end <= self.charged.load(Ordering::Relaxed) {
            return Ok(());
        }
        let usage = &self.quota.usage;
        let mut count = usage.count();
        let size_now = count.open_size(self.inode).unwrap_or(0);
        let more = TreeUsage {
            bytes: end.saturating_sub(size_now),
            files: 0,
        };
        let bounds = self.quota.bounds;
        if !count.has_room(bounds, more) {
            count.refresh(&usage.root, FRESH_COUNT, None);
            if !count.has_room(bounds, more) {
                return Err(Errno::DQUOT.into());
            }
        }
        let charged = count.grow(self.inode, more.bytes);
        self.charged.store(charged, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the charge: the file has the size that it has now, or no name any more.
    pub(super) fn settle(&self, file: &File) {
        let _changing = self.quota.changing();
        let meta = file.metadata().ok();
        let named = meta.filter(|meta| meta.nlink() > 0);
        let size = named.map(|meta| meta.len());
        self.quota.usage.count().close(self.inode, size);
    }
}
