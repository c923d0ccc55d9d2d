//! The entries of the destination: hashes of their paths with their facts in memory, their paths in a file if extra ones are to
//! be deleted.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;
use proto::timestamp::Timestamp;

use super::same_tree::SameTreeWatch;
use crate::local::partial::is_unfinished;
use crate::plan::{
    CopyPlan, NewEntry, NextEntry, PlanReader, PlanTop, PlannedEntry, join_location,
};
use crate::storage::entry_names::{join_path, parents};
use crate::tree::{TreeEntry, TreeVisitor};
use ftp::answers::SourceFacts;
use ftp::location::Location;
use ftp::{Failure, FailureKind};

/// An entry of the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryThere {
    Directory,
    File(FileThere),
    /// Hash of the content.
    Link(u64),
}

/// A file of the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileThere {
    pub(crate) size: Option<u64>,
    pub(crate) time: TimeThere,
}

/// The modification time of a file of the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeThere {
    Exact(Timestamp),
    /// This moment or a later one.
    NotBefore(Timestamp),
    Unknown,
}

impl FileThere {
    pub(crate) fn from_facts(facts: SourceFacts) -> Self {
        let coarse = || {
            facts
                .coarse_time
                .map(|time| TimeThere::NotBefore(time.earliest()))
        };
        let time = facts.modified.map(TimeThere::Exact).or_else(coarse);
        Self {
            size: facts.size,
            time: time.unwrap_or(TimeThere::Unknown),
        }
    }
}

/// An entry in 24 bytes.
#[derive(Debug, Clone, Copy)]
struct PackedEntry {
    /// Hash of the path; the last two bits are the kind.
    hash: u64,
    /// Size of a file, or hash of the content of a link.
    size: u64,
    time: i64,
}

const KIND: u64 = 3;
const DIRECTORY: u64 = 0;
const FILE: u64 = 1;
const LINK: u64 = 2;
/// A file whose time is [`TimeThere::NotBefore`].
const COARSE_FILE: u64 = 3;
/// Values of what is unknown.
const NO_SIZE: u64 = u64::MAX;
const NO_TIME: i64 = i64::MIN;

impl PackedEntry {
    fn new(hash: u64, there: EntryThere) -> Self {
        let (kind, size, time) = match there {
            EntryThere::Directory => (DIRECTORY, NO_SIZE, NO_TIME),
            EntryThere::File(file) => {
                let (kind, time) = match file.time {
                    TimeThere::Exact(time) => (FILE, time.0),
                    TimeThere::NotBefore(time) => (COARSE_FILE, time.0),
                    TimeThere::Unknown => (FILE, NO_TIME),
                };
                (kind, file.size.unwrap_or(NO_SIZE), time)
            }
            EntryThere::Link(content) => (LINK, content, NO_TIME),
        };
        Self {
            hash: (hash & !KIND) | kind,
            size,
            time,
        }
    }

    fn key(self) -> u64 {
        self.hash & !KIND
    }

    fn unpack(self) -> EntryThere {
        match self.hash & KIND {
            DIRECTORY => EntryThere::Directory,
            LINK => EntryThere::Link(self.size),
            kind => EntryThere::File(FileThere {
                size: Some(self.size).filter(|size| *size != NO_SIZE),
                time: match (kind, self.time) {
                    (_, NO_TIME) => TimeThere::Unknown,
                    (FILE, time) => TimeThere::Exact(Timestamp(time)),
                    (_, time) => TimeThere::NotBefore(Timestamp(time)),
                },
            }),
        }
    }
}

/// Entries, sorted by their keys when they are first looked up.
#[derive(Debug, Default)]
struct PackedEntries {
    entries: Vec<PackedEntry>,
    is_sorted: bool,
    /// One bit for each entry that the source has, too.
    kept: Vec<u64>,
}

impl PackedEntries {
    fn position(&mut self, hash: u64) -> Option<usize> {
        if !self.is_sorted {
            self.entries.sort_unstable_by_key(|entry| entry.key());
            self.kept = vec![0; self.entries.len() / 64 + 1];
            self.is_sorted = true;
        }
        let key = hash & !KIND;
        let found = self.entries.binary_search_by_key(&key, |entry| entry.key());
        found.ok()
    }

    fn is_kept(&self, position: usize) -> bool {
        let word = self.kept.get(position / 64);
        word.is_some_and(|word| word & (1 << (position % 64)) != 0)
    }
}

/// The entries of the destination: 24 bytes of memory for each. All are added before the first is looked up.
pub(crate) struct DestinationIndex {
    /// Sees the directories.
    watch: Arc<SameTreeWatch>,
    entries: Mutex<PackedEntries>,
    hasher: RandomState,
    /// Their paths.
    paths: CopyPlan,
    top: PlanTop,
    keeps_paths: bool,
    /// The times of files are compared.
    needs_times: bool,
    /// Hashes of directories that hold an unfinished file.
    unfinished: Mutex<HashSet<u64>>,
    /// Hashes of paths below which everything is kept.
    kept_trees: Mutex<HashSet<u64>>,
    /// Paths whose entries are not all known, with the reasons.
    unlisted: Mutex<UnlistedPlaces>,
}

/// Most places of [`UnlistedPlaces`] that are told one by one.
const MAX_UNLISTED: usize = 1000;

#[derive(Debug, Default)]
struct UnlistedPlaces {
    first: Vec<(Vec<u8>, Failure)>,
    more: u64,
}

impl UnlistedPlaces {
    fn add(&mut self, path: Vec<u8>, failure: Failure) {
        match self.first.len() < MAX_UNLISTED {
            true => self.first.push((path, failure)),
            false => self.more += 1,
        }
    }

    fn take(&mut self) -> Vec<(Vec<u8>, Failure)> {
        let Self { mut first, more } = std::mem::take(self);
        if more > 0 {
            let message = format!("{more} more directories could not be listed in full");
            first.push((Vec::new(), Failure::new(FailureKind::Partial, message)));
        }
        first
    }
}

impl DestinationIndex {
    /// An empty index of the tree `to`. With `keeps_paths` the paths are added to the plan `paths`. `needs_times`: the times
    /// of files are compared.
    pub(crate) fn new(
        watch: &Arc<SameTreeWatch>,
        paths: CopyPlan,
        to: &Location,
        keeps_paths: bool,
        needs_times: bool,
    ) -> Self {
        let top = paths.add_top(to, to);
        Self {
            watch: Arc::clone(watch),
            entries: Mutex::default(),
            hasher: RandomState::new(),
            paths,
            top,
            keeps_paths,
            needs_times,
            unfinished: Mutex::default(),
            kept_trees: Mutex::default(),
            unlisted: Mutex::default(),
        }
    }

    /// The places whose entries are not all known, with the reasons. They are taken.
    pub(crate) fn take_unlisted(&self) -> Vec<(Location, Failure)> {
        let unlisted = self.unlisted.lock().take().into_iter();
        let located = unlisted.map(|(path, failure)| {
            let at = join_location(&self.top.destination, &path);
            (at, failure)
        });
        located.collect()
    }

    /// The source has this relative path, and nobody knows what is below it.
    pub(crate) fn keep_tree(&self, path: &[u8]) {
        self.kept_trees.lock().insert(self.hasher.hash_one(path));
    }

    /// Whether another copy may be writing a file below a relative path.
    pub(crate) fn holds_unfinished(&self, path: &[u8]) -> bool {
        self.unfinished.lock().contains(&self.hasher.hash_one(path))
    }

    /// The file at a relative path.
    pub(crate) fn file(&self, path: &[u8]) -> Option<FileThere> {
        let mut entries = self.entries.lock();
        let position = entries.position(self.hasher.hash_one(path))?;
        match entries.entries.get(position)?.unpack() {
            EntryThere::File(file) => Some(file),
            EntryThere::Directory | EntryThere::Link(_) => None,
        }
    }

    /// The entry at a relative path. It is noted that the source has this path.
    pub(crate) fn find_and_keep(&self, path: &[u8]) -> Option<EntryThere> {
        let mut entries = self.entries.lock();
        let position = entries.position(self.hasher.hash_one(path))?;
        if let Some(word) = entries.kept.get_mut(position / 64) {
            *word |= 1 << (position % 64);
        }
        entries.entries.get(position).map(|entry| entry.unpack())
    }

    /// Whether there is a directory at a relative path.
    pub(crate) fn has_directory(&self, path: &[u8]) -> bool {
        self.find(path) == Some(EntryThere::Directory)
    }

    /// Whether the source has a relative path, too, or may have it.
    pub(crate) fn is_kept(&self, path: &[u8]) -> bool {
        let kept_trees = self.kept_trees.lock();
        let mut above = parents(path);
        if !kept_trees.is_empty()
            && above.any(|above| kept_trees.contains(&self.hasher.hash_one(above)))
        {
            return true;
        }
        drop(kept_trees);
        let mut entries = self.entries.lock();
        let position = entries.position(self.hasher.hash_one(path));
        position.is_some_and(|position| entries.is_kept(position))
    }

    /// Visits each directory, but the top, in which at least so many of these relative paths are. For an index that keeps
    /// paths.
    ///
    /// # Errors
    /// `Local`: the list cannot be read.
    pub(crate) fn visit_directories_with(
        &self,
        sample: &[Vec<u8>],
        least: usize,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<(), Failure> {
        if sample.is_empty() {
            return Ok(());
        }
        self.paths.end(true);
        let mut reader = PlanReader::of(&self.paths);
        loop {
            match reader
                .next(&self.paths)
                .map_err(|error| unreadable(&error))?
            {
                NextEntry::Entry(PlannedEntry::Directory { at, .. }) => {
                    let path = at.path().get(self.prefix()..).unwrap_or_default();
                    let below = sample.iter().map(|name| join_path(path, name));
                    if below.filter(|path| self.find(path).is_some()).count() >= least {
                        visit(path);
                    }
                }
                NextEntry::Entry(_) => {}
                NextEntry::Pending | NextEntry::End => return Ok(()),
            }
        }
    }

    /// The entry at a relative path.
    fn find(&self, path: &[u8]) -> Option<EntryThere> {
        let mut entries = self.entries.lock();
        let position = entries.position(self.hasher.hash_one(path))?;
        entries.entries.get(position).map(|entry| entry.unpack())
    }

    /// The hash by which contents of links are compared.
    pub(crate) fn hash_of_link(&self, target: &[u8]) -> u64 {
        self.hasher.hash_one(target)
    }

    /// The paths, parents first. Complete when the listing is.
    pub(crate) fn paths(&self) -> &CopyPlan {
        &self.paths
    }

    /// Bytes of the path of an entry before its part that is relative to the top.
    pub(crate) fn prefix(&self) -> usize {
        let top = self.top.destination.path();
        match top {
            b"" => 0,
            top if top.ends_with(b"/") => top.len(),
            top => top.len() + 1,
        }
    }
}

/// The failure of a list of extra files that cannot be read.
pub(crate) fn unreadable(error: &std::io::Error) -> Failure {
    Failure::local(format!("the list of extra files cannot be read: {error}"))
}

impl TreeVisitor for DestinationIndex {
    fn needs_time(&self, _directory: &[u8], _name: &[u8], _facts: SourceFacts) -> bool {
        self.needs_times
    }

    fn visit(&self, directory: &[u8], name: &[u8], entry: TreeEntry) -> Result<(), Failure> {
        let path = join_path(directory, name);
        if directory.is_empty() {
            self.watch.see_name(name);
        }
        let (there, new) = match entry {
            TreeEntry::Directory(facts) => {
                self.watch.see_destination(&path, facts);
                (EntryThere::Directory, NewEntry::Directory(facts))
            }
            TreeEntry::File(facts) | TreeEntry::LinkedFile(facts, _) => {
                let there = EntryThere::File(FileThere::from_facts(facts));
                (there, NewEntry::File(facts))
            }
            TreeEntry::Link(target) => (
                EntryThere::Link(self.hash_of_link(&target)),
                NewEntry::Link(target),
            ),
            // Nothing is known of it, so nothing is done with it.
            TreeEntry::Skipped(_) => return Ok(()),
            TreeEntry::Failed(failure) | TreeEntry::Unlisted(failure) => {
                self.unlisted.lock().add(path, failure);
                return Ok(());
            }
        };
        let hash = self.hasher.hash_one(&path);
        self.entries
            .lock()
            .entries
            .push(PackedEntry::new(hash, there));
        if self.keeps_paths {
            if is_unfinished(name) {
                let mut unfinished = self.unfinished.lock();
                unfinished.extend(parents(&path).map(|above| self.hasher.hash_one(above)));
            }
            let (directory, name) = match there {
                EntryThere::Directory => (&path[..], &b""[..]),
                _ => (directory, name),
            };
            self.paths.add(&self.top, directory, name, new)?;
        }
        Ok(())
    }
}
