//! A walk through a tree: directories are listed, by several sessions at a time, until none is left.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proto::listing::{EntryKind, ListedEntry};

use super::links::{self, DirectoryChain, ListedLinks};
use super::pending::{PendingDirectories, PendingDirectory};
use super::{NO_REGULAR_FILE, TreeEntry, TreeVisitor};
use crate::options::SymlinkPolicy;
use crate::storage::contract::Storage;
use crate::storage::entry_names::{MAX_DEPTH, check_name, join_path};
use ftp::Failure;
use ftp::answers::{SourceFacts, SymlinkCheckScope, SymlinkCheckedEntry};
use ftp::session::display_path;
use ftp::session::path_names::directory_and_name;

mod times;

/// Most further attempts to list one directory: a server that refuses it for the moment may do so for ever.
const MAX_ATTEMPTS: u32 = 2;

/// Most entries of a tree: a server could list without end. Each takes some bytes of memory and some ten of the disk.
const MAX_ENTRIES: u64 = 50_000_000;

/// The walk through one tree.
pub(crate) struct TreeWalk {
    top: Vec<u8>,
    /// The path with which absolute links into the tree begin.
    resolved_top: Vec<u8>,
    links: SymlinkPolicy,
    visitor: Arc<dyn TreeVisitor>,
    pending: PendingDirectories,
    entries: AtomicU64,
    /// Of names, in [`PendingDirectory::seen`] and `visited_at_once`. Its keys are secret, so that no server can choose names
    /// of one hash.
    hasher: RandomState,
    /// Hashes of the paths that a listing of the whole tree brought before it broke off. Empty after one that did not.
    visited_at_once: HashSet<u64>,
    /// The links among them.
    links_at_once: ListedLinks,
    /// Questions may be sent ahead of answers, also to servers that do not announce it.
    may_go_ahead: AtomicBool,
    /// Most further attempts to list a directory that is refused for the moment.
    max_attempts: u32,
    /// Directories that need no further attempt.
    done: AtomicU64,
}

impl TreeWalk {
    /// A walk through the directory `top`.
    pub(crate) fn new(top: &[u8], links: SymlinkPolicy, visitor: Arc<dyn TreeVisitor>) -> Self {
        Self {
            top: top.to_vec(),
            resolved_top: top.to_vec(),
            links,
            visitor,
            pending: PendingDirectories::default(),
            entries: AtomicU64::new(0),
            hasher: RandomState::new(),
            visited_at_once: HashSet::new(),
            links_at_once: ListedLinks::default(),
            may_go_ahead: AtomicBool::new(false),
            max_attempts: 0,
            done: AtomicU64::new(0),
        }
    }

    /// With questions ahead of answers.
    pub(crate) fn going_ahead(self, may_go_ahead: bool) -> Self {
        Self {
            may_go_ahead: AtomicBool::new(may_go_ahead),
            ..self
        }
    }

    /// With further attempts to list a directory that is refused for the moment.
    pub(crate) fn retrying(self, retries: u32) -> Self {
        Self {
            max_attempts: retries.min(MAX_ATTEMPTS),
            ..self
        }
    }

    /// Number of directories that are listed or given up.
    pub(crate) fn progress(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Whether that did no harm.
    pub(crate) fn may_go_ahead(&self) -> bool {
        self.may_go_ahead.load(Ordering::Relaxed)
    }

    /// Begins. Where one listing brings the whole tree, it is read here. [`TreeWalk::run`] lists the rest.
    ///
    /// # Errors
    /// The session is lost: the walk can begin again with another one, and visits nothing twice. The visitor's failure.
    pub(crate) async fn begin(&mut self, storage: &mut dyn Storage) -> Result<(), Failure> {
        let id = match self.links {
            // Only needed to detect loops.
            SymlinkPolicy::Follow => storage.stat(&self.top).await?.unique,
            SymlinkPolicy::Copy | SymlinkPolicy::Skip => None,
        };
        self.resolved_top = storage.resolve_path(&self.top);
        // Followed links lead to directories that no listing of a tree enters. A listing that broke off would repeat what it
        // brought; directory by directory, less is lost.
        let at_once = self.links != SymlinkPolicy::Follow && self.visited_at_once.is_empty();
        if !(at_once && self.is_listed_at_once(storage).await?) {
            self.pending = PendingDirectories::default();
            self.pending.add(vec![PendingDirectory::root(id)]);
        }
        Ok(())
    }

    /// Lists directories until none is left, beside others that do the same. A directory whose listing is refused, or not
    /// known to be complete, is visited as [`TreeEntry::Unlisted`] after the entries that are known; the top is too.
    ///
    /// # Errors
    /// Transient: the session is lost; the walk can go on with another one. Otherwise the walk is over: nothing of the top can
    /// be listed, or the visitor failed.
    pub(crate) async fn run(&self, storage: &mut dyn Storage) -> Result<(), Failure> {
        while let Some(mut directory) = self.pending.next().await? {
            let listed = match self.list_directory(storage, &mut directory).await {
                Err(failure) if failure.may_retry() && storage.is_usable() => {
                    directory.refusals += 1;
                    self.give_up_after(failure, &directory)
                }
                listed => listed,
            };
            match listed {
                Ok(()) => {
                    self.done.fetch_add(1, Ordering::Relaxed);
                    self.pending.listed();
                }
                Err(failure) => {
                    let is_over = !failure.may_retry();
                    if is_over {
                        self.pending.fail(failure.clone());
                    }
                    self.pending.put_back(directory);
                    return Err(failure);
                }
            }
        }
        Ok(())
    }

    /// Visits a directory as not listed if it was refused too often; one that is refused for ever does not end the walk.
    ///
    /// # Errors
    /// The failure, if another attempt follows.
    fn give_up_after(&self, failure: Failure, directory: &PendingDirectory) -> Result<(), Failure> {
        if directory.refusals <= self.max_attempts || self.knows_nothing(directory) {
            return Err(failure);
        }
        self.visit_path(&directory.path, TreeEntry::Unlisted(failure.retried(false)))
    }

    /// Whether this is the top, and nothing of it is known.
    fn knows_nothing(&self, directory: &PendingDirectory) -> bool {
        directory.path.is_empty() && self.entries.load(Ordering::Relaxed) == 0
    }

    /// Waits until one more session could list something.
    pub(crate) async fn wants_help(&self) {
        self.pending.crowded().await;
    }

    async fn list_directory(
        &self,
        storage: &mut dyn Storage,
        directory: &mut PendingDirectory,
    ) -> Result<(), Failure> {
        let path = match directory.path.is_empty() {
            true => self.top.clone(),
            false => join_path(&self.top, &directory.path),
        };
        let mut found = Vec::new();
        let mut stopped = None;
        let mut visit = |checked: SymlinkCheckedEntry| match self.visit_listed(
            directory,
            checked.entry,
            &mut found,
        ) {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => {
                stopped = Some(failure);
                ControlFlow::Break(())
            }
        };
        let scope = SymlinkCheckScope::Directories;
        let listed = storage.list(&path, scope, &mut visit).await;
        // Also those of a listing that broke off: they are not visited again.
        self.pending.add(found);
        if let Some(failure) = stopped {
            return Err(failure);
        }
        if listed.as_ref().is_err_and(Failure::may_retry) {
            return listed;
        }
        self.ask_times(storage, directory).await?;
        self.follow_links(storage, directory).await?;
        match listed {
            Ok(()) => Ok(()),
            Err(failure) if self.knows_nothing(directory) => Err(failure),
            Err(failure) => self.visit_path(&directory.path, TreeEntry::Unlisted(failure)),
        }
    }

    /// Visits an entry of a directory, unless it was listed before.
    fn visit_listed(
        &self,
        directory: &mut PendingDirectory,
        entry: ListedEntry,
        found: &mut Vec<PendingDirectory>,
    ) -> Result<(), Failure> {
        if !directory.seen.insert(self.hasher.hash_one(&entry.name)) {
            return Ok(());
        }
        let path = join_path(&directory.path, &entry.name);
        if let Err(failure) = check_name(&entry.name).and(self.links_at_once.check(&path)) {
            return self.visit(&directory.path, &entry.name, TreeEntry::Failed(failure));
        }
        if self.lacks_time(&directory.path, &entry) {
            directory.timeless.push(entry);
            return Ok(());
        }
        if !entry.is_symlink() {
            return self.visit_entry(directory, &entry, found);
        }
        match self.links {
            SymlinkPolicy::Follow => directory.links.push(entry),
            _ => self.visit_link(&directory.path, &entry)?,
        }
        Ok(())
    }

    /// Visits an entry that is not a link.
    fn visit_entry(
        &self,
        directory: &PendingDirectory,
        entry: &ListedEntry,
        found: &mut Vec<PendingDirectory>,
    ) -> Result<(), Failure> {
        let visited = match entry.kind {
            EntryKind::CurrentDir | EntryKind::ParentDir => return Ok(()),
            EntryKind::Dir => {
                let id = entry.unique.clone();
                // A server may list an ancestor as its own child (bind mounts, followed links).
                let is_loop = id
                    .as_ref()
                    .is_some_and(|id| directory.ancestors.contains(id));
                match is_loop {
                    true => TreeEntry::Skipped(links::LINK_LOOP.to_owned()),
                    false => {
                        let ancestors = directory.ancestors.child(id, false);
                        return self.visit_directory(directory, entry, ancestors, found);
                    }
                }
            }
            EntryKind::File => {
                let facts = SourceFacts::from_entry(entry);
                match (entry.link_count, &entry.unique) {
                    (Some(2..), Some(unique)) => TreeEntry::LinkedFile(facts, unique.clone()),
                    _ => TreeEntry::File(facts),
                }
            }
            EntryKind::SymLink => TreeEntry::Skipped(links::DANGLING_LINK.to_owned()),
            EntryKind::Other => TreeEntry::Skipped(NO_REGULAR_FILE.to_owned()),
        };
        self.visit(&directory.path, &entry.name, visited)
    }

    fn visit_directory(
        &self,
        directory: &PendingDirectory,
        entry: &ListedEntry,
        ancestors: Arc<DirectoryChain>,
        found: &mut Vec<PendingDirectory>,
    ) -> Result<(), Failure> {
        // Only loops that identities cannot reveal get this deep.
        if directory.depth >= MAX_DEPTH {
            let reason = format!("more than {MAX_DEPTH} directories deep: a loop of links?");
            let failure = Failure::protocol(reason);
            return self.visit(&directory.path, &entry.name, TreeEntry::Unlisted(failure));
        }
        found.push(PendingDirectory {
            path: join_path(&directory.path, &entry.name),
            depth: directory.depth + 1,
            ancestors,
            ..PendingDirectory::default()
        });
        let facts = SourceFacts::from_entry(entry);
        self.visit(&directory.path, &entry.name, TreeEntry::Directory(facts))
    }

    /// Visits a link that is not followed.
    fn visit_link(&self, directory: &[u8], entry: &ListedEntry) -> Result<(), Failure> {
        let target = entry.link_target.as_deref();
        let visited = match (self.links, target.filter(|target| !target.is_empty())) {
            (SymlinkPolicy::Skip, _) => TreeEntry::Skipped(links::LINK_SKIPPED.to_owned()),
            (_, None) => {
                let reason = "symbolic link, and the server does not report its target";
                TreeEntry::Skipped(reason.to_owned())
            }
            (_, Some(target)) => {
                match links::target_within_tree(&self.resolved_top, directory, target) {
                    Some(target) => TreeEntry::Link(target),
                    None => {
                        let reason = "symbolic link that points out of the copied tree";
                        TreeEntry::Skipped(reason.to_owned())
                    }
                }
            }
        };
        self.visit(directory, &entry.name, visited)
    }

    /// Follows the links of a directory that was listed.
    async fn follow_links(
        &self,
        storage: &mut dyn Storage,
        directory: &mut PendingDirectory,
    ) -> Result<(), Failure> {
        while let Some(link) = directory.links.last() {
            let relative = join_path(&directory.path, &link.name);
            let target = storage.stat(&join_path(&self.top, &relative)).await;
            if let Err(failure) = &target
                && failure.may_retry()
            {
                return Err(failure.clone());
            }
            let Some(link) = directory.links.pop() else {
                return Ok(());
            };
            let target = match target {
                Ok(target) => target,
                Err(failure) if failure.is_missing() => ListedEntry::new(b"", EntryKind::SymLink),
                // Something may be there, and what it is is unknown.
                Err(failure) => {
                    self.visit_path(&relative, TreeEntry::Failed(failure))?;
                    continue;
                }
            };
            let target = ListedEntry {
                name: link.name,
                ..target
            };
            let mut found = Vec::new();
            match target.kind {
                EntryKind::Dir => self.visit_linked_directory(directory, &target, &mut found)?,
                _ => self.visit_entry(directory, &target, &mut found)?,
            }
            self.pending.add(found);
        }
        Ok(())
    }

    /// Visits a followed link to a directory: `target` has the link's name.
    fn visit_linked_directory(
        &self,
        directory: &PendingDirectory,
        target: &ListedEntry,
        found: &mut Vec<PendingDirectory>,
    ) -> Result<(), Failure> {
        let visited = match &target.unique {
            Some(id) if directory.ancestors.contains(id) => {
                TreeEntry::Skipped(links::LINK_LOOP.to_owned())
            }
            None if directory.ancestors.followed_unknown_link => {
                let reason = "symbolic link below a symbolic link, and the server does not report whether \
                           that is a loop: copy it under its own name";
                TreeEntry::Failed(Failure::protocol(reason))
            }
            _ => {
                let ancestors = directory.ancestors.child(target.unique.clone(), true);
                return self.visit_directory(directory, target, ancestors, found);
            }
        };
        self.visit(&directory.path, &target.name, visited)
    }

    /// Visits everything below the top from one listing, except the content of directories that cannot be read, which are
    /// left for a listing of their own that shows why. Returns whether the storage has such a listing, and it is complete:
    /// otherwise the directories that lack something are found one by one.
    async fn is_listed_at_once(&mut self, storage: &mut dyn Storage) -> Result<bool, Failure> {
        let mut stopped = None;
        let mut visited = HashSet::new();
        let mut has_repeated = false;
        let mut links = ListedLinks::default();
        let mut visit = |entry: ListedEntry| {
            if !visited.insert(self.hasher.hash_one(&entry.name)) {
                has_repeated = true;
                return ControlFlow::Continue(());
            }
            match self.visit_in_tree(entry, &mut links) {
                Ok(()) => ControlFlow::Continue(()),
                Err(failure) => {
                    stopped = Some(failure);
                    ControlFlow::Break(())
                }
            }
        };
        let listed = storage.list_tree(&self.top, &mut visit).await;
        if let Some(failure) = stopped {
            return Err(failure);
        }
        let is_listed = matches!(listed, Ok(true)) && !has_repeated;
        if !is_listed {
            (self.visited_at_once, self.links_at_once) = (visited, links);
        }
        match listed {
            Err(failure) if failure.may_retry() => Err(failure),
            _ => Ok(is_listed),
        }
    }

    /// Visits an entry with a path relative to the top.
    fn visit_in_tree(
        &self,
        mut entry: ListedEntry,
        links: &mut ListedLinks,
    ) -> Result<(), Failure> {
        let path = std::mem::take(&mut entry.name);
        if path == b"." {
            return Ok(());
        }
        let names = path.split(|b| *b == b'/').try_for_each(check_name);
        if let Err(failure) = names.and_then(|()| links.check(&path)) {
            return self.visit_path(&path, TreeEntry::Failed(failure));
        }
        let (directory, name) = directory_and_name(&path);
        let directory = directory.unwrap_or_default();
        entry.name = name.to_vec();
        if entry.is_symlink() {
            links.add(&path);
            return self.visit_link(directory, &entry);
        }
        let directory = PendingDirectory {
            depth: path.iter().filter(|b| **b == b'/').count(),
            path: directory.to_vec(),
            ..PendingDirectory::default()
        };
        let mut found = Vec::new();
        self.visit_entry(&directory, &entry, &mut found)?;
        // The content of others follows in this listing.
        if entry.may_list == Some(false) {
            self.pending.add(found);
        }
        Ok(())
    }

    fn visit_path(&self, path: &[u8], entry: TreeEntry) -> Result<(), Failure> {
        let (directory, name) = directory_and_name(path);
        self.visit(directory.unwrap_or_default(), name, entry)
    }

    fn visit(&self, directory: &[u8], name: &[u8], entry: TreeEntry) -> Result<(), Failure> {
        // A directory that was visited may still fail.
        let may_repeat = !matches!(entry, TreeEntry::Failed(_) | TreeEntry::Unlisted(_))
            && !self.visited_at_once.is_empty();
        let path = || self.hasher.hash_one(join_path(directory, name));
        if may_repeat && self.visited_at_once.contains(&path()) {
            return Ok(());
        }
        if self.entries.fetch_add(1, Ordering::Relaxed) >= MAX_ENTRIES {
            let top = display_path(&self.top);
            return Err(Failure::protocol(format!(
                "{top} has more than {MAX_ENTRIES} entries below it: name its directories one by one"
            )));
        }
        self.visitor.visit(directory, name, entry)
    }
}

#[cfg(test)]
mod tests;
