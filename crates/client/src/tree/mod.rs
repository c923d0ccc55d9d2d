//! Directory trees: their content, and which names are acceptable.
//!
//! Names in a server's listing are untrusted: a name with `/` or a `..` would lead out of the
//! destination.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use proto::listing::{EntryKind, ListedEntry};

use crate::answers::{SourceFacts, SymlinkCheckedEntry};
use crate::session::display_path;
use crate::storage::contract::Storage;
use crate::{CopyFailure, Exit, SymlinkPolicy};

mod links;

use links::DirectoryChain;

/// Greatest depth that is walked. A server that follows links may list a loop endlessly.
pub(crate) const MAX_DEPTH: usize = 128;

/// Most entries of a tree. A plan holds all of them, about 200 bytes each.
const MAX_ENTRIES: usize = 5_000_000;

/// Content of a tree. Paths are relative to its top, with components separated by `/`.
#[derive(Debug, Default)]
pub(crate) struct DirectoryTree {
    /// Directories below the top, parents first.
    pub(crate) directories: Vec<Vec<u8>>,
    /// Facts of directories, by their path.
    pub(crate) directory_facts: HashMap<Vec<u8>, SourceFacts>,
    /// Regular files.
    pub(crate) files: Vec<(Vec<u8>, SourceFacts)>,
    /// Files that have several names, with what identifies the file.
    pub(crate) linked_files: HashMap<Vec<u8>, String>,
    /// Further names of files.
    pub(crate) hard_links: Vec<HardLink>,
    /// Symbolic links to create, with their content: a path within the tree.
    pub(crate) links: Vec<(Vec<u8>, Vec<u8>)>,
    /// Skipped entries with the reason: links, pipes, devices.
    pub(crate) skipped: Vec<(Vec<u8>, String)>,
    /// Entries that were refused or could not be read.
    pub(crate) failed: Vec<(Vec<u8>, CopyFailure)>,
}

/// A further name of a file of the tree.
#[derive(Debug, Clone)]
pub(crate) struct HardLink {
    /// The further name.
    pub(crate) path: Vec<u8>,
    /// The name under which the file is copied.
    pub(crate) first: Vec<u8>,
    /// Facts of the file.
    pub(crate) facts: SourceFacts,
}

/// Checks that a name may be created below a destination: not empty, not `.` or `..`, without `/`
/// and NUL.
pub(crate) fn check_name(name: &[u8]) -> Result<(), CopyFailure> {
    let refuse = |reason: &str| {
        let display_name = String::from_utf8_lossy(name);
        Err(CopyFailure::new(
            Exit::Protocol,
            format!("refused the name {display_name:?}: {reason}"),
        ))
    };
    match name {
        b"" => refuse("it is empty"),
        b"." | b".." => refuse("it names a directory above the file"),
        _ if name.contains(&b'/') => refuse("it would lead out of the destination"),
        _ if name.contains(&0) => refuse("it contains a NUL byte"),
        _ => Ok(()),
    }
}

/// Checks that a name can be sent on an FTP control connection.
pub(crate) fn check_sendable(name: &[u8]) -> Result<(), CopyFailure> {
    if name.iter().any(|b| matches!(b, b'\r' | b'\n')) {
        let display_name = String::from_utf8_lossy(name);
        return Err(CopyFailure::new(
            Exit::Protocol,
            format!("{display_name:?}: FTP cannot carry a name with a line break"),
        ));
    }
    Ok(())
}

/// `directory/name`, or `name` if the directory is empty.
pub(crate) fn join_path(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() {
        return name.to_vec();
    }
    let slash: &[u8] = if directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, name].concat()
}

/// A directory that is still to be read.
#[derive(Debug, Clone, Default)]
struct PendingDirectory {
    /// Path relative to the top.
    path: Vec<u8>,
    depth: usize,
    ancestors: Arc<DirectoryChain>,
}

impl PendingDirectory {
    fn root(id: Option<String>) -> Self {
        Self {
            ancestors: DirectoryChain::root(id),
            ..Self::default()
        }
    }
}

type PendingDirectories = Vec<PendingDirectory>;

impl DirectoryTree {
    /// Notes each of the paths that the tree does not have as failed.
    pub(crate) fn add_missing(&mut self, wanted: &HashSet<&[u8]>) {
        let links = self.links.iter().map(|(path, _)| path);
        let skipped = self.skipped.iter().map(|(path, _)| path);
        let failed = self.failed.iter().map(|(path, _)| path);
        let files = self.files.iter().map(|(path, _)| path);
        let all = files
            .chain(&self.directories)
            .chain(links)
            .chain(skipped)
            .chain(failed);
        let found: HashSet<&[u8]> = all.map(Vec::as_slice).collect();
        let mut missing: Vec<Vec<u8>> = wanted
            .difference(&found)
            .map(|path| path.to_vec())
            .collect();
        missing.sort();
        for path in missing {
            let message = format!("{}: no such file in the source", display_path(&path));
            self.failed
                .push((path, CopyFailure::new(Exit::NotFound, message)));
        }
    }

    /// Adds one listed entry that is not a link.
    fn add_entry(
        &mut self,
        directory: &PendingDirectory,
        entry: &ListedEntry,
        pending: &mut PendingDirectories,
    ) {
        let relative = join_path(&directory.path, &entry.name);
        match entry.kind {
            EntryKind::CurrentDir | EntryKind::ParentDir => {}
            EntryKind::Dir => {
                let id = entry.unique.clone();
                // A server may list an ancestor as its own child (bind mounts, followed links).
                if id
                    .as_ref()
                    .is_some_and(|id| directory.ancestors.contains(id))
                {
                    self.skipped.push((relative, links::LINK_LOOP.to_owned()));
                } else {
                    let ancestors = directory.ancestors.child(id, false);
                    let facts = SourceFacts::from_entry(entry);
                    self.directory_facts.insert(relative.clone(), facts);
                    self.add_directory(relative, directory.depth, ancestors, pending);
                }
            }
            EntryKind::File => {
                // Remembered only for these, which are few.
                if let (Some(2..), Some(unique)) = (entry.link_count, &entry.unique) {
                    self.linked_files.insert(relative.clone(), unique.clone());
                }
                self.files.push((relative, SourceFacts::from_entry(entry)));
            }
            EntryKind::SymLink => self
                .skipped
                .push((relative, links::DANGLING_LINK.to_owned())),
            EntryKind::Other => self.skipped.push((relative, "not a regular file".into())),
        }
    }

    /// Checks that the tree is not larger than the limit.
    fn check_size(&self, top: &[u8], max_entries: usize) -> Result<(), CopyFailure> {
        let kinds = [self.directories.len(), self.files.len(), self.skipped.len()];
        if kinds.iter().sum::<usize>() + self.failed.len() <= max_entries {
            return Ok(());
        }
        Err(CopyFailure::new(
            Exit::Protocol,
            format!(
                "{} has more than {max_entries} entries below it: name its directories one by one",
                display_path(top)
            ),
        ))
    }

    fn add_directory(
        &mut self,
        relative: Vec<u8>,
        depth: usize,
        ancestors: Arc<DirectoryChain>,
        pending: &mut PendingDirectories,
    ) {
        // Only loops that identities cannot reveal get this deep.
        if depth >= MAX_DEPTH {
            let reason = format!("more than {MAX_DEPTH} directories deep: a loop of links?");
            self.failed
                .push((relative, CopyFailure::new(Exit::Protocol, reason)));
            return;
        }
        self.directories.push(relative.clone());
        pending.push(PendingDirectory {
            path: relative,
            depth: depth + 1,
            ancestors,
        });
    }

    /// Adds a followed link to a directory. `id` identifies that directory, if known.
    fn add_linked_directory(
        &mut self,
        relative: Vec<u8>,
        directory: &PendingDirectory,
        id: Option<String>,
        pending: &mut PendingDirectories,
    ) {
        match &id {
            Some(id) if directory.ancestors.contains(id) => {
                self.skipped.push((relative, links::LINK_LOOP.to_owned()));
            }
            None if directory.ancestors.followed_unknown_link => {
                let reason = "symbolic link below a symbolic link, and the server does not report whether \
                           that is a loop: copy it under its own name";
                self.failed
                    .push((relative, CopyFailure::new(Exit::Protocol, reason)));
            }
            _ => {
                let ancestors = directory.ancestors.child(id, true);
                self.add_directory(relative, directory.depth, ancestors, pending);
            }
        }
    }

    /// Adds a link of `directory` with content `target`, for `--links copy`.
    fn add_copied_link(
        &mut self,
        top: &[u8],
        directory: &PendingDirectory,
        relative: Vec<u8>,
        target: Option<&[u8]>,
    ) {
        let target = target.filter(|target| !target.is_empty());
        let Some(target) = target else {
            let reason = "symbolic link, and the server does not report its target";
            self.skipped.push((relative, reason.to_owned()));
            return;
        };
        match links::target_within_tree(top, &directory.path, target) {
            Some(target) => self.links.push((relative, target)),
            None => {
                let reason = "symbolic link that points out of the copied tree".to_owned();
                self.skipped.push((relative, reason));
            }
        }
    }

    /// Reads everything below the directory `top`. Directories that cannot be listed are recorded
    /// as failed. An error is returned only if the session is lost or `top` itself fails.
    pub(crate) async fn walk(
        storage: &mut dyn Storage,
        top: &[u8],
        links: SymlinkPolicy,
    ) -> Result<Self, CopyFailure> {
        let mut tree = Self::default();
        let id = match links {
            // Only needed to detect loops.
            SymlinkPolicy::Follow => storage.stat(top).await?.unique,
            SymlinkPolicy::Copy | SymlinkPolicy::Skip => None,
        };
        let walk = TreeWalk {
            top,
            resolved_top: storage.resolve_path(top),
            links,
        };
        let mut pending: PendingDirectories = Vec::new();
        // Followed links lead to directories that no listing of a tree enters.
        let at_once = links != SymlinkPolicy::Follow;
        if !(at_once && tree.list_at_once(storage, &walk, &mut pending).await?) {
            pending.push(PendingDirectory::root(id));
        }
        while let Some(directory) = pending.pop() {
            let path = match directory.path.is_empty() {
                true => top.to_vec(),
                false => join_path(top, &directory.path),
            };
            let mut entries = match storage.list(&path).await {
                Ok(entries) => entries,
                Err(failure) if failure.transient || directory.path.is_empty() => {
                    return Err(failure);
                }
                Err(failure) => {
                    tree.failed.push((directory.path, failure));
                    continue;
                }
            };
            // Some servers list a name twice; it must not be copied twice.
            entries.sort_by(|a, b| a.entry.name.cmp(&b.entry.name));
            entries.dedup_by(|a, b| a.entry.name == b.entry.name);
            for SymlinkCheckedEntry { entry, .. } in &entries {
                if let Err(failure) = check_name(&entry.name) {
                    let relative = join_path(&directory.path, &entry.name);
                    tree.failed.push((relative, failure));
                } else if entry.is_symlink() {
                    tree.add_link(storage, &walk, &directory, entry, &mut pending)
                        .await?;
                } else {
                    tree.add_entry(&directory, entry, &mut pending);
                }
            }
            tree.check_size(top, MAX_ENTRIES)?;
        }
        Ok(tree)
    }

    /// Adds everything below the top from one listing, except the content of directories that cannot be read, which are
    /// left for a listing of their own that shows why. Returns whether the storage has such a listing.
    async fn list_at_once(
        &mut self,
        storage: &mut dyn Storage,
        walk: &TreeWalk<'_>,
        pending: &mut PendingDirectories,
    ) -> Result<bool, CopyFailure> {
        let mut too_large = None;
        let mut visit = |entry: ListedEntry| {
            self.add_listed(walk, entry, pending);
            match self.check_size(walk.top, MAX_ENTRIES) {
                Ok(()) => ControlFlow::Continue(()),
                Err(failure) => {
                    too_large = Some(failure);
                    ControlFlow::Break(())
                }
            }
        };
        let listed = storage.list_tree(walk.top, &mut visit).await?;
        match too_large {
            Some(failure) => Err(failure),
            None => Ok(listed),
        }
    }

    /// Adds an entry with a path relative to the top.
    fn add_listed(
        &mut self,
        walk: &TreeWalk<'_>,
        mut entry: ListedEntry,
        pending: &mut PendingDirectories,
    ) {
        let path = std::mem::take(&mut entry.name);
        if path == b"." {
            return;
        }
        if let Some(failure) = path.split(|b| *b == b'/').find_map(|n| check_name(n).err()) {
            self.failed.push((path, failure));
            return;
        }
        let (directory, name) = match path.iter().rposition(|b| *b == b'/') {
            Some(slash) => (path[..slash].to_vec(), &path[slash + 1..]),
            None => (Vec::new(), &path[..]),
        };
        entry.name = name.to_vec();
        let directory = PendingDirectory {
            depth: path.iter().filter(|b| **b == b'/').count(),
            path: directory,
            ancestors: Arc::default(),
        };
        if entry.is_symlink() {
            self.add_unfollowed_link(walk, &directory, &entry);
            return;
        }
        let before = pending.len();
        self.add_entry(&directory, &entry, pending);
        if entry.may_list != Some(false) {
            // Its content follows in this listing.
            pending.truncate(before);
        }
    }

    /// Adds a link, unless links are followed. Returns whether it was added.
    fn add_unfollowed_link(
        &mut self,
        walk: &TreeWalk<'_>,
        directory: &PendingDirectory,
        entry: &ListedEntry,
    ) -> bool {
        let relative = join_path(&directory.path, &entry.name);
        match walk.links {
            SymlinkPolicy::Follow => return false,
            SymlinkPolicy::Skip => self
                .skipped
                .push((relative, links::LINK_SKIPPED.to_owned())),
            SymlinkPolicy::Copy => {
                let target = entry.link_target.as_deref();
                self.add_copied_link(&walk.resolved_top, directory, relative, target);
            }
        }
        true
    }

    async fn add_link(
        &mut self,
        storage: &mut dyn Storage,
        walk: &TreeWalk<'_>,
        directory: &PendingDirectory,
        entry: &ListedEntry,
        pending: &mut PendingDirectories,
    ) -> Result<(), CopyFailure> {
        if self.add_unfollowed_link(walk, directory, entry) {
            return Ok(());
        }
        let relative = join_path(&directory.path, &entry.name);
        let target_entry = match storage.stat(&join_path(walk.top, &relative)).await {
            Ok(target_entry) => target_entry,
            Err(failure) if failure.transient => return Err(failure),
            // A link whose target cannot be read is reported as dangling.
            Err(_) => ListedEntry::new(&entry.name, EntryKind::SymLink),
        };
        match target_entry.kind {
            EntryKind::Dir => {
                self.add_linked_directory(relative, directory, target_entry.unique, pending);
            }
            _ => self.add_entry(
                directory,
                &ListedEntry {
                    name: entry.name.clone(),
                    ..target_entry
                },
                pending,
            ),
        }
        Ok(())
    }
}

/// Parameters of a walk.
struct TreeWalk<'a> {
    top: &'a [u8],
    /// The path with which absolute links into the tree begin.
    resolved_top: Vec<u8>,
    links: SymlinkPolicy,
}

#[cfg(test)]
mod tests;
