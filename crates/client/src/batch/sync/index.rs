//! The entries of the destination: hashes of their paths with their facts in memory, their paths in a file if extra ones are to
//! be deleted.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::CopyFailure;
use crate::answers::SourceFacts;
use crate::batch::plan::{CopyPlan, NewEntry, PlanTop};
use crate::location::Location;
use crate::tree::{TreeEntry, TreeVisitor, join_path};

/// An entry of the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryThere {
    Directory,
    File(SourceFacts),
    /// Hash of the content.
    Link(u64),
}

/// The entries of the destination. About 60 bytes of memory for each.
pub(super) struct DestinationIndex {
    entries: Mutex<HashMap<u64, (EntryThere, bool)>>,
    hasher: RandomState,
    /// Their paths.
    paths: CopyPlan,
    top: PlanTop,
    keeps_paths: bool,
}

impl DestinationIndex {
    /// An empty index of the tree `to`. With `keeps_paths` the paths are added to the plan `paths`.
    pub(super) fn new(paths: CopyPlan, to: &Location, keeps_paths: bool) -> Self {
        let top = paths.add_top(to, to);
        Self {
            entries: Mutex::default(),
            hasher: RandomState::new(),
            paths,
            top,
            keeps_paths,
        }
    }

    /// The entry at a relative path. It is noted that the source has this path.
    pub(super) fn find_and_keep(&self, path: &[u8]) -> Option<EntryThere> {
        let mut entries = self.lock();
        let (entry, is_kept) = entries.get_mut(&self.hasher.hash_one(path))?;
        *is_kept = true;
        Some(*entry)
    }

    /// Whether there is a directory at a relative path.
    pub(super) fn has_directory(&self, path: &[u8]) -> bool {
        let found = self.lock().get(&self.hasher.hash_one(path)).copied();
        matches!(found, Some((EntryThere::Directory, _)))
    }

    /// Whether the source has a relative path, too.
    pub(super) fn is_kept(&self, path: &[u8]) -> bool {
        let found = self.lock().get(&self.hasher.hash_one(path)).copied();
        found.is_some_and(|(_, is_kept)| is_kept)
    }

    /// The hash by which contents of links are compared.
    pub(super) fn hash_of_link(&self, target: &[u8]) -> u64 {
        self.hasher.hash_one(target)
    }

    /// The paths, parents first. Complete when the listing is.
    pub(super) fn paths(&self) -> &CopyPlan {
        &self.paths
    }

    /// Bytes of the path of an entry before its part that is relative to the top.
    pub(super) fn prefix(&self) -> usize {
        let top = self.top.destination.path();
        match top {
            b"" => 0,
            top if top.ends_with(b"/") => top.len(),
            top => top.len() + 1,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, (EntryThere, bool)>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TreeVisitor for DestinationIndex {
    fn visit(&self, directory: &[u8], name: &[u8], entry: TreeEntry) -> Result<(), CopyFailure> {
        let path = join_path(directory, name);
        let (there, new) = match entry {
            TreeEntry::Directory(facts) => (EntryThere::Directory, NewEntry::Directory(facts)),
            TreeEntry::File(facts) | TreeEntry::LinkedFile(facts, _) => {
                (EntryThere::File(facts), NewEntry::File(facts))
            }
            TreeEntry::Link(target) => (
                EntryThere::Link(self.hash_of_link(&target)),
                NewEntry::Link(target),
            ),
            // Nothing is known of them, so nothing is done with them.
            TreeEntry::Skipped(_) | TreeEntry::Failed(_) => return Ok(()),
        };
        let hash = self.hasher.hash_one(&path);
        self.lock().insert(hash, (there, false));
        if self.keeps_paths {
            let place = match there {
                EntryThere::Directory => (&path[..], &b""[..]),
                _ => (directory, name),
            };
            self.paths.add(&self.top, place, new)?;
        }
        Ok(())
    }
}
