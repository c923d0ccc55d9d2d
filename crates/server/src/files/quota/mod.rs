//! Quotas: how many bytes and files a root may hold.
//!
//! The server counts a root's tree once, and then keeps account of what its own sessions change. It counts again
//! after an hour, after a reload, after the removal of a tree, and before it refuses anything, because other
//! programs may have made room. A file that is being stored counts with the size that it may reach.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use data::store::root::{CreationRules, Root, TreeUsage};
use proto::server::{FileError, FileErrorKind};
use rustix::io::Errno;

use crate::config::QuotaBounds;
use crate::files::uploads::Inode;

mod changes;

/// Age of a count after which the tree is counted again at the next store: other programs may write there, too.
const OLD_COUNT: Duration = Duration::from_secs(3600);

/// Age of a count that suffices to refuse something. A client that tries again and again must not keep the disk busy.
const FRESH_COUNT: Duration = Duration::from_secs(10);

/// Largest number of roots whose counts are kept while nobody uses them.
const MOST_KEPT: usize = 4096;

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
}

#[derive(Debug, Default)]
struct UsageCount {
    used: TreeUsage,
    counted_at: Option<Instant>,
    /// Files that are being stored.
    open: HashMap<Inode, OpenCharge>,
}

/// A file that is being stored.
#[derive(Debug)]
struct OpenCharge {
    /// The size with which it counts.
    size: u64,
    /// Stores of ranges may share a file.
    stores: usize,
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
        if roots.len() >= MOST_KEPT {
            roots.retain(|_, usage| Arc::strong_count(usage) > 1);
        }
        let usage = roots.entry(inode).or_insert_with(|| {
            Arc::new(RootUsage {
                root: root.with_creation_rules(CreationRules::default()),
                count: Mutex::default(),
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
            usage.count().counted_at = None;
        }
    }

    fn roots(&self) -> MutexGuard<'_, HashMap<Inode, Arc<RootUsage>>> {
        self.roots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RootUsage {
    /// Locks the count. A poisoned lock is used all the same: at worst a count is off until the next one.
    fn count(&self) -> MutexGuard<'_, UsageCount> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UsageCount {
    /// Counts the tree, without the file `new`, if the last count is older than `age`. If that fails, the old count
    /// stays.
    fn refresh(&mut self, root: &Root, age: Duration, new: Option<Inode>) {
        if self.counted_at.is_some_and(|at| at.elapsed() < age) {
            return;
        }
        let has_new = Cell::new(false);
        let seen = RefCell::new(HashSet::new());
        let size_of = |inode, size| match self.open.get(&inode) {
            Some(open) => {
                seen.borrow_mut().insert(inode);
                open.size.max(size)
            }
            None if new == Some(inode) => {
                has_new.set(true);
                0
            }
            None => size,
        };
        match root.usage(size_of) {
            Ok(used) => {
                self.used = used;
                self.subtract(0, has_new.get().into());
                // Files without a name take space until their store ends, and then return their charge.
                let open = self.open.iter();
                let nameless = open.filter(|(inode, _)| !seen.borrow().contains(*inode));
                let sizes: Vec<u64> = nameless.map(|(_, open)| open.size).collect();
                self.add(sizes.iter().sum(), sizes.len() as u64);
            }
            Err(error) => {
                let path = root.host_path().display();
                tracing::warn!(root = %path, %error, "what a root holds cannot be counted for its quota");
            }
        }
        self.counted_at = Some(Instant::now());
    }

    fn has_room(&self, bounds: QuotaBounds, bytes: u64, files: u64) -> bool {
        let fits = |used: u64, more: u64, bound: Option<u64>| {
            more == 0 || bound.is_none_or(|bound| used.saturating_add(more) <= bound)
        };
        fits(self.used.bytes, bytes, bounds.bytes) && fits(self.used.files, files, bounds.files)
    }

    fn add(&mut self, bytes: u64, files: u64) {
        self.used.bytes = self.used.bytes.saturating_add(bytes);
        self.used.files = self.used.files.saturating_add(files);
    }

    fn subtract(&mut self, bytes: u64, files: u64) {
        self.used.bytes = self.used.bytes.saturating_sub(bytes);
        self.used.files = self.used.files.saturating_sub(files);
    }
}

impl SessionQuota {
    /// Fails if there is no room for so many bytes and files.
    pub(super) fn require(&self, bytes: u64, files: u64) -> Result<(), FileError> {
        self.reserve(bytes, files, None).map(drop)
    }

    /// Charges new files that are not stores: directories, links, members of bundles.
    pub(super) fn add(&self, bytes: u64, files: u64) -> Result<(), FileError> {
        self.reserve(bytes, files, None)?.add(bytes, files);
        Ok(())
    }

    /// The count, if there is room in it; the file `new` is not counted yet.
    fn reserve(
        &self,
        bytes: u64,
        files: u64,
        new: Option<Inode>,
    ) -> Result<MutexGuard<'_, UsageCount>, FileError> {
        let mut count = self.usage.count();
        count.refresh(&self.usage.root, OLD_COUNT, new);
        if !count.has_room(self.bounds, bytes, files) {
            count.refresh(&self.usage.root, FRESH_COUNT, new);
        }
        if count.has_room(self.bounds, bytes, files) {
            return Ok(count);
        }
        Err(self.refusal(count.used, bytes))
    }

    /// Returns what was charged.
    pub(super) fn subtract(&self, bytes: u64, files: u64) {
        self.usage.count().subtract(bytes, files);
    }

    /// Takes note of a removed name ([`Root::usage_of`]). A store that has its file open returns the charge itself.
    pub(super) fn note_removed(&self, removed: Option<(Inode, TreeUsage)>) {
        let mut count = self.usage.count();
        if let Some((inode, usage)) = removed
            && !count.open.contains_key(&inode)
        {
            count.subtract(usage.bytes, usage.files);
        }
    }

    /// Has the tree counted again before the next store.
    pub(super) fn forget_count(&self) {
        self.usage.count().counted_at = None;
    }

    /// Charges a file that is opened for a store: it has `size` bytes and may reach `end`. `is_new`: this store has
    /// created it.
    pub(super) fn open_file(
        &self,
        inode: Inode,
        size: u64,
        end: u64,
        is_new: bool,
    ) -> Result<FileCharge, FileError> {
        // A file that others store into may be charged with more already.
        let charged = self
            .usage
            .count()
            .open
            .get(&inode)
            .map_or(size, |open| open.size);
        let more = end.saturating_sub(charged);
        let mut count = self.reserve(more, is_new.into(), is_new.then_some(inode))?;
        count.add(more, is_new.into());
        let open = count
            .open
            .entry(inode)
            .or_insert(OpenCharge { size, stores: 0 });
        open.stores += 1;
        open.size += more;
        let charged = open.size;
        drop(count);
        Ok(FileCharge {
            quota: self.clone(),
            inode,
            size_before: size,
            charged: AtomicU64::new(charged),
        })
    }

    fn refusal(&self, used: TreeUsage, more: u64) -> FileError {
        let bytes = self.bounds.bytes.map(|bound| {
            let (used, bound) = (units::show::bytes(used.bytes), units::show::bytes(bound));
            format!("{used} of {bound}")
        });
        let files = self.bounds.files;
        let files = files.map(|bound| format!("{} of {bound} files", used.files));
        let parts: Vec<String> = bytes.into_iter().chain(files).collect();
        FileError {
            kind: FileErrorKind::NoSpace,
            errno: Some(Errno::DQUOT.raw_os_error()),
            text: format!(
                "Disk quota exceeded: {} are in use, {} more are needed",
                parts.join(" and "),
                units::show::bytes(more)
            ),
        }
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
        let bounds = self.quota.bounds;
        let mut count = usage.count();
        let size_now = |count: &UsageCount| count.open.get(&self.inode).map_or(0, |o| o.size);
        let more = end.saturating_sub(size_now(&count));
        if !count.has_room(bounds, more, 0) {
            count.refresh(&usage.root, FRESH_COUNT, None);
            if !count.has_room(bounds, more, 0) {
                return Err(Errno::DQUOT.into());
            }
        }
        count.add(more, 0);
        if let Some(open) = count.open.get_mut(&self.inode) {
            open.size += more;
            self.charged.store(open.size, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Ends the charge; the file has this size from now on, `None`: it has no name any more.
    pub(super) fn settle(&self, size: Option<u64>) {
        let mut count = self.quota.usage.count();
        let Some(open) = count.open.get_mut(&self.inode) else {
            return;
        };
        open.stores -= 1;
        if open.stores > 0 {
            return;
        }
        let charged = open.size;
        count.open.remove(&self.inode);
        count.subtract(charged, u64::from(size.is_none()));
        count.add(size.unwrap_or(0), 0);
    }
}
