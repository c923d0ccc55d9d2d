//! The count of what one root holds.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use data::store::root::{EntryUsage, Root, TreeUsage};

use crate::config::QuotaBounds;
use crate::files::uploads::Inode;

/// Age of a count after which the tree is counted again at the next store: other programs may write there, too.
pub(super) const OLD_COUNT: Duration = Duration::from_secs(3600);

/// Age of a count that suffices to refuse something. A client that tries again and again must not keep the disk busy.
pub(super) const FRESH_COUNT: Duration = Duration::from_secs(10);

/// Bytes and files of a root, and the files on which stores have a claim.
#[derive(Debug)]
pub(super) struct UsageCount {
    used: TreeUsage,
    counted_at: Option<Instant>,
    /// The reason why nothing is known of what the tree held before: it could not be counted yet.
    unknown: Option<String>,
    /// Files that are being stored.
    open: HashMap<Inode, OpenCharge>,
    /// Files that the members of bundles will replace. Their space is the members' by now, so they do not count.
    pledged: HashMap<Inode, TreeUsage>,
}

/// A file that is being stored.
#[derive(Debug)]
struct OpenCharge {
    /// The size with which it counts.
    size: u64,
    /// Stores of ranges may share a file.
    stores: usize,
}

impl Default for UsageCount {
    fn default() -> Self {
        Self {
            used: TreeUsage::default(),
            counted_at: None,
            unknown: Some("it has not been tried".to_owned()),
            open: HashMap::new(),
            pledged: HashMap::new(),
        }
    }
}

impl UsageCount {
    pub(super) fn used(&self) -> TreeUsage {
        self.used
    }

    /// The reason why what is in use is not known.
    pub(super) fn unknown(&self) -> Option<&str> {
        self.unknown.as_deref()
    }

    /// Has the tree counted again, however young the count is.
    pub(super) fn forget(&mut self) {
        self.counted_at = None;
    }

    /// Counts the tree, without the file `new`, if the last count is older than `age`. If that fails, the old count
    /// stays; without one, nothing has room.
    pub(super) fn refresh(&mut self, root: &Root, age: Duration, new: Option<Inode>) {
        let age = match self.unknown {
            Some(_) => FRESH_COUNT,
            None => age,
        };
        if self.counted_at.is_some_and(|at| at.elapsed() < age) {
            return;
        }
        let not_counted = Cell::new(0);
        let seen = RefCell::new(HashSet::new());
        let size_of = |inode, size| {
            if let Some(open) = self.open.get(&inode) {
                seen.borrow_mut().insert(inode);
                return open.size.max(size);
            }
            if new == Some(inode) || self.pledged.contains_key(&inode) {
                not_counted.set(not_counted.get() + 1);
                return 0;
            }
            size
        };
        match root.usage(size_of) {
            Ok(used) => {
                self.used = used;
                self.unknown = None;
                self.subtract(TreeUsage {
                    bytes: 0,
                    files: not_counted.get(),
                });
                // Files without a name take space until their store ends, and then return their charge.
                let open = self.open.iter();
                let nameless = open.filter(|(inode, _)| !seen.borrow().contains(*inode));
                let sizes: Vec<u64> = nameless.map(|(_, open)| open.size).collect();
                self.add(TreeUsage {
                    bytes: sizes.iter().sum(),
                    files: sizes.len() as u64,
                });
            }
            Err(error) => {
                let path = root.host_path().display();
                tracing::warn!(root = %path, %error, "what a root holds cannot be counted for its quota");
                if self.unknown.is_some() {
                    self.unknown = Some(error.to_string());
                }
            }
        }
        self.counted_at = Some(Instant::now());
    }

    /// Whether so many more bytes and files are within the bounds.
    pub(super) fn has_room(&self, bounds: QuotaBounds, more: TreeUsage) -> bool {
        let fits = |used: u64, more: u64, bound: Option<u64>| {
            more == 0 || bound.is_none_or(|bound| used.saturating_add(more) <= bound)
        };
        let is_known = self.unknown.is_none();
        is_known
            && fits(self.used.bytes, more.bytes, bounds.bytes)
            && fits(self.used.files, more.files, bounds.files)
    }

    pub(super) fn add(&mut self, more: TreeUsage) {
        self.used = self.used.plus(more);
    }

    pub(super) fn subtract(&mut self, less: TreeUsage) {
        self.used = self.used.minus(less);
    }

    /// The size with which an open file counts.
    pub(super) fn open_size(&self, inode: Inode) -> Option<u64> {
        self.open.get(&inode).map(|open| open.size)
    }

    /// Takes note of a store into a file that has `size` bytes, and charges `more` bytes and files. Returns the size with
    /// which the file counts.
    pub(super) fn open(&mut self, inode: Inode, size: u64, more: TreeUsage) -> u64 {
        self.add(more);
        let new = OpenCharge { size, stores: 0 };
        let open = self.open.entry(inode).or_insert(new);
        open.stores += 1;
        open.size += more.bytes;
        open.size
    }

    /// Charges more bytes of an open file. Returns the size with which it counts.
    pub(super) fn grow(&mut self, inode: Inode, more: u64) -> u64 {
        self.add(TreeUsage {
            bytes: more,
            files: 0,
        });
        let Some(open) = self.open.get_mut(&inode) else {
            return 0;
        };
        open.size += more;
        open.size
    }

    /// A store ends; its file has this size, `None`: it has no name any more.
    pub(super) fn close(&mut self, inode: Inode, size: Option<u64>) {
        let Some(open) = self.open.get_mut(&inode) else {
            return;
        };
        open.stores -= 1;
        if open.stores > 0 {
            return;
        }
        let charged = open.size;
        self.open.remove(&inode);
        self.subtract(TreeUsage {
            bytes: charged,
            files: u64::from(size.is_none()),
        });
        self.add(TreeUsage {
            bytes: size.unwrap_or(0),
            files: 0,
        });
    }

    /// Takes note of a removed name ([`Root::usage_of`]). A store that has its file open returns the charge itself.
    pub(super) fn note_removed(&mut self, removed: Option<EntryUsage>) {
        let Some(EntryUsage { inode, usage }) = removed else {
            return;
        };
        if self.pledged.remove(&inode).is_none() && !self.open.contains_key(&inode) {
            self.subtract(usage);
        }
    }

    /// Stops counting a file that will be replaced. `false`: another store has a claim on it.
    pub(super) fn pledge(&mut self, replaced: EntryUsage) -> bool {
        let EntryUsage { inode, usage } = replaced;
        if self.open.contains_key(&inode) || self.pledged.contains_key(&inode) {
            return false;
        }
        self.pledged.insert(inode, usage);
        self.subtract(usage);
        true
    }

    /// Counts a file again that is not replaced after all.
    pub(super) fn end_pledge(&mut self, inode: Inode) {
        if let Some(usage) = self.pledged.remove(&inode) {
            self.add(usage);
        }
    }
}
