//! Directory trees: what is in them, and which names may be used.
//!
//! Names that a server lists are hostile until checked: a name with `/` or a `..` would lead out of
//! the destination.

use std::sync::Arc;

use proto::listing::{EntryKind, ListedEntry};

use crate::answers::{SourceFacts, SymlinkCheckedEntry};
use crate::session::display_path;
use crate::storage::contract::Storage;
use crate::{CopyFailure, Exit, SymlinkPolicy};

mod links;

use links::DirectoryChain;

/// Deepest nesting that is walked: a server that follows links may list a loop for ever.
pub(crate) const MAX_DEPTH: usize = 128;

/// Most entries of a tree, files and directories: a copy's plan holds them all, some 200 bytes for each.
const MAX_ENTRIES: usize = 5_000_000;

/// A tree's content. Paths are relative to its top, components separated by `/`.
#[derive(Debug, Default)]
pub(crate) struct DirectoryTree {
    /// Directories below the top, parents first.
    pub(crate) directories: Vec<Vec<u8>>,
    /// Regular files.
    pub(crate) files: Vec<(Vec<u8>, SourceFacts)>,
    /// Symbolic links to be made, and what they hold: a path within the tree.
    pub(crate) links: Vec<(Vec<u8>, Vec<u8>)>,
    /// Not copied, and why: links that nobody asked for or that lead nowhere, pipes, devices.
    pub(crate) skipped: Vec<(Vec<u8>, String)>,
    /// Refused or unreadable.
    pub(crate) failed: Vec<(Vec<u8>, CopyFailure)>,
}

/// Whether one component may be created below a destination: not empty, not `.` or `..`, without
/// `/` and NUL.
pub(crate) fn check_name(name: &[u8]) -> Result<(), CopyFailure> {
    let refuse = |why: &str| {
        let shown = String::from_utf8_lossy(name);
        Err(CopyFailure::new(
            Exit::Protocol,
            format!("refused the name {shown:?}: {why}"),
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

/// Whether a name can be sent on an FTP control channel.
pub(crate) fn check_sendable(name: &[u8]) -> Result<(), CopyFailure> {
    if name.iter().any(|b| matches!(b, b'\r' | b'\n')) {
        let shown = String::from_utf8_lossy(name);
        return Err(CopyFailure::new(
            Exit::Protocol,
            format!("{shown:?}: FTP cannot carry a name with a line break"),
        ));
    }
    Ok(())
}

/// `directory/name`, or `name` at the top.
pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() {
        return name.to_vec();
    }
    let slash: &[u8] = if directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, name].concat()
}

/// A directory that is still to be read.
#[derive(Debug, Clone, Default)]
struct PendingDirectory {
    /// Relative to the top.
    path: Vec<u8>,
    depth: usize,
    trail: Arc<DirectoryChain>,
}

impl PendingDirectory {
    fn top(id: Option<String>) -> Self {
        Self {
            trail: DirectoryChain::top(id),
            ..Self::default()
        }
    }
}

type PendingDirectories = Vec<PendingDirectory>;

impl DirectoryTree {
    /// Sorts one listed entry of a directory in that is no link.
    fn add(
        &mut self,
        branch: &PendingDirectory,
        entry: &ListedEntry,
        next: &mut PendingDirectories,
    ) {
        let relative = join(&branch.path, &entry.name);
        match entry.kind {
            EntryKind::CurrentDir | EntryKind::ParentDir => {}
            EntryKind::Dir => {
                let id = entry.unique.clone();
                if id.as_ref().is_some_and(|id| branch.trail.holds(id)) {
                    self.skipped.push((relative, links::LOOP.to_owned()));
                } else {
                    let trail = branch.trail.below(id, false);
                    self.descend(relative, branch.depth, trail, next);
                }
            }
            EntryKind::File => self.files.push((relative, SourceFacts::from_entry(entry))),
            EntryKind::SymLink => self.skipped.push((relative, links::NOWHERE.to_owned())),
            EntryKind::Other => self.skipped.push((relative, "not a regular file".into())),
        }
    }

    /// Whether the tree may be held.
    fn check_size(&self, top: &[u8], most: usize) -> Result<(), CopyFailure> {
        let kinds = [self.directories.len(), self.files.len(), self.skipped.len()];
        if kinds.iter().sum::<usize>() + self.failed.len() <= most {
            return Ok(());
        }
        Err(CopyFailure::new(
            Exit::Protocol,
            format!(
                "{} has more than {most} entries below it: name its directories one by one",
                display_path(top)
            ),
        ))
    }

    fn descend(
        &mut self,
        relative: Vec<u8>,
        depth: usize,
        trail: Arc<DirectoryChain>,
        next: &mut PendingDirectories,
    ) {
        if depth >= MAX_DEPTH {
            let why = format!("more than {MAX_DEPTH} directories deep: a loop of links?");
            self.failed
                .push((relative, CopyFailure::new(Exit::Protocol, why)));
            return;
        }
        self.directories.push(relative.clone());
        next.push(PendingDirectory {
            path: relative,
            depth: depth + 1,
            trail,
        });
    }

    /// A followed link to a directory; `id` tells which, if it can be known.
    fn descend_link(
        &mut self,
        relative: Vec<u8>,
        branch: &PendingDirectory,
        id: Option<String>,
        next: &mut PendingDirectories,
    ) {
        match &id {
            Some(id) if branch.trail.holds(id) => {
                self.skipped.push((relative, links::LOOP.to_owned()));
            }
            None if branch.trail.blind => {
                let why = "symbolic link below a symbolic link, and the server does not tell whether \
                           that is a loop: copy it under its own name";
                self.failed
                    .push((relative, CopyFailure::new(Exit::Protocol, why)));
            }
            _ => {
                let trail = branch.trail.below(id, true);
                self.descend(relative, branch.depth, trail, next);
            }
        }
    }

    /// A link of the directory `branch` that holds `target`, with `--links copy`.
    fn keep_link(
        &mut self,
        top: &[u8],
        branch: &PendingDirectory,
        relative: Vec<u8>,
        target: Option<&[u8]>,
    ) {
        let target = target.filter(|target| !target.is_empty());
        let Some(target) = target else {
            let why = "symbolic link, and the server does not tell where it points";
            self.skipped.push((relative, why.to_owned()));
            return;
        };
        match links::inner_target(top, &branch.path, target) {
            Some(target) => self.links.push((relative, target)),
            None => {
                let why = "symbolic link that points out of the copied tree".to_owned();
                self.skipped.push((relative, why));
            }
        }
    }

    /// Everything below the directory `top`. A directory that cannot be listed is among the failed; an
    /// error is returned only when the session is lost or `top` itself fails.
    pub(crate) async fn below(
        storage: &mut dyn Storage,
        top: &[u8],
        links: SymlinkPolicy,
    ) -> Result<Self, CopyFailure> {
        let mut tree = Self::default();
        let id = match links {
            SymlinkPolicy::Follow => storage.stat(top).await?.unique,
            SymlinkPolicy::Copy | SymlinkPolicy::Skip => None,
        };
        let walked = TreeWalk {
            top,
            resolved: storage.resolve_path(top),
            links,
        };
        let mut pending: PendingDirectories = vec![PendingDirectory::top(id)];
        while let Some(branch) = pending.pop() {
            let path = match branch.path.is_empty() {
                true => top.to_vec(),
                false => join(top, &branch.path),
            };
            let mut listed = match storage.list(&path).await {
                Ok(listed) => listed,
                Err(failure) if failure.transient || branch.path.is_empty() => return Err(failure),
                Err(failure) => {
                    tree.failed.push((branch.path, failure));
                    continue;
                }
            };
            listed.sort_by(|a, b| a.entry.name.cmp(&b.entry.name));
            listed.dedup_by(|a, b| a.entry.name == b.entry.name);
            for SymlinkCheckedEntry { entry, .. } in &listed {
                if let Err(failure) = check_name(&entry.name) {
                    let relative = join(&branch.path, &entry.name);
                    tree.failed.push((relative, failure));
                } else if entry.is_symlink() {
                    tree.add_link(storage, &walked, &branch, entry, &mut pending)
                        .await?;
                } else {
                    tree.add(&branch, entry, &mut pending);
                }
            }
            tree.check_size(top, MAX_ENTRIES)?;
        }
        Ok(tree)
    }

    async fn add_link(
        &mut self,
        storage: &mut dyn Storage,
        walked: &TreeWalk<'_>,
        branch: &PendingDirectory,
        entry: &ListedEntry,
        next: &mut PendingDirectories,
    ) -> Result<(), CopyFailure> {
        let relative = join(&branch.path, &entry.name);
        match walked.links {
            SymlinkPolicy::Skip => self.skipped.push((relative, links::NOT_ASKED.to_owned())),
            SymlinkPolicy::Copy => {
                let target = entry.link_target.as_deref();
                self.keep_link(&walked.resolved, branch, relative, target);
            }
            SymlinkPolicy::Follow => {
                let there = match storage.stat(&join(walked.top, &relative)).await {
                    Ok(there) => there,
                    Err(failure) if failure.transient => return Err(failure),
                    Err(_) => ListedEntry::new(&entry.name, EntryKind::SymLink),
                };
                match there.kind {
                    EntryKind::Dir => self.descend_link(relative, branch, there.unique, next),
                    _ => self.add(
                        branch,
                        &ListedEntry {
                            name: entry.name.clone(),
                            ..there
                        },
                        next,
                    ),
                }
            }
        }
        Ok(())
    }
}

/// The tree that is walked.
struct TreeWalk<'a> {
    top: &'a [u8],
    /// Beginning of absolute links into the tree.
    resolved: Vec<u8>,
    links: SymlinkPolicy,
}

#[cfg(test)]
mod tests;
