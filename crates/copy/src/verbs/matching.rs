//! Arguments of `ls` and `rm`: the entries that a pattern stands for, and the trees below them.

use std::ops::ControlFlow;

use proto::listing::{EntryKind, ListedEntry};

use crate::plan::{NamePattern, trim_trailing_slashes};
use crate::storage::collected::CollectedEntries;
use crate::storage::contract::Storage;
use crate::storage::entry_names::{MAX_DEPTH, check_name, join_path};
use ftp::answers::{EntryVisitor, SymlinkCheckScope};
use ftp::location::Location;
use ftp::{Failure, FailureKind};

/// The entries that the pattern in the last component of a location stands for, by name.
#[derive(Debug)]
pub(crate) struct MatchedEntries {
    /// Directory of the entries.
    pub(crate) parent: Vec<u8>,
    /// At least one, in the order of their names. Links are entries of their own.
    pub(crate) entries: Vec<ListedEntry>,
    /// Why there may be more.
    pub(crate) incomplete: Option<Failure>,
}

/// The entries that a location stands for; `None` if it has no pattern, or something has exactly this name.
///
/// # Errors
/// `NotFound`: nothing matches, or a name in braces does not exist. As [`Storage::list`], also if that is unknown.
pub(crate) async fn expand(
    storage: &mut dyn Storage,
    at: &Location,
) -> Result<Option<MatchedEntries>, Failure> {
    let Some(pattern) = NamePattern::of(at)? else {
        return Ok(None);
    };
    let path = trim_trailing_slashes(at.path());
    let start = path.iter().rposition(|b| *b == b'/').map_or(0, |i| i + 1);
    let parent = trim_trailing_slashes(&path[..start]).to_vec();
    let listed = CollectedEntries::of(storage, &parent, SymlinkCheckScope::Everything).await?;
    let (mut entries, incomplete) = listed.into_usable_parts();
    if pattern.select(&mut entries) {
        return Ok(None);
    }
    if let Some(name) = pattern.missing_name(&entries) {
        let name = at.with_path(join_path(&parent, name)).display();
        let missing = "no such file or directory";
        let failure = Failure::about(FailureKind::NotFound, name, missing);
        return Err(incomplete.unwrap_or(failure));
    }
    if entries.is_empty() {
        let nothing = "nothing matches";
        let failure = Failure::about(FailureKind::NotFound, at.display(), nothing);
        return Err(incomplete.unwrap_or(failure));
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Some(MatchedEntries {
        parent,
        entries,
        incomplete,
    }))
}

/// A tree whose entries are shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShownTree<'a> {
    /// Path of its top.
    pub(crate) top: &'a [u8],
    /// Path that precedes the paths below the top in the names of the entries; may be empty.
    pub(crate) prefix: &'a [u8],
}

/// Directories that could not be listed, or not completely.
#[derive(Debug, Default)]
pub(crate) struct UnlistedDirectories {
    first: Option<Failure>,
    further: u64,
}

impl UnlistedDirectories {
    /// Adds one.
    pub(crate) fn add(&mut self, failure: Failure) {
        match self.first {
            None => self.first = Some(failure),
            Some(_) => self.further += 1,
        }
    }

    /// The failure that stands for all; the other directories were listed.
    ///
    /// # Errors
    /// `Partial`, if there is a directory.
    pub(crate) fn result(self) -> Result<(), Failure> {
        let Some(first) = self.first else {
            return Ok(());
        };
        let message = match self.further {
            0 => first.to_string(),
            n => format!("{first} (and {n} more directories)"),
        };
        Err(Failure::new(FailureKind::Partial, message))
    }
}

/// Shows `visit` everything below a directory: a directory before its content, links not followed. `Break` ends it.
/// Memory is bounded by the largest directory and the number of directories that wait.
///
/// # Errors
/// Nothing of the top can be listed, or the session is lost. Other directories that are not known to be listed completely go
/// to `unlisted`.
pub(crate) async fn visit_tree(
    storage: &mut dyn Storage,
    tree: ShownTree<'_>,
    unlisted: &mut UnlistedDirectories,
    visit: &mut EntryVisitor<'_>,
) -> Result<ControlFlow<()>, Failure> {
    let mut pending: Vec<(Vec<u8>, usize)> = Vec::new();
    let mut flow = ControlFlow::Continue(());
    let mut is_shown = false;
    let mut show = |entry| {
        is_shown = true;
        flow = show_listed(tree, entry, &mut pending, visit);
        flow
    };
    match storage.list_tree(tree.top, &mut show).await {
        Ok(true) => {}
        Ok(false) => pending = vec![(Vec::new(), 0)],
        Err(failure) if failure.may_retry() || !is_shown => return Err(failure),
        Err(failure) => unlisted.add(failure),
    }
    while let Some((directory, depth)) = pending.pop() {
        if flow.is_break() {
            return Ok(flow);
        }
        let path = join_below(tree.top, &directory);
        let scope = SymlinkCheckScope::Directories;
        let (mut entries, incomplete) = match CollectedEntries::of(storage, &path, scope).await {
            Ok(listed) => listed.into_usable_parts(),
            Err(failure) if failure.may_retry() || directory.is_empty() => return Err(failure),
            Err(failure) => (Vec::new(), Some(failure)),
        };
        if let Some(failure) = incomplete {
            unlisted.add(failure);
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let mut below = Vec::new();
        for mut entry in entries {
            let path = join_path(&directory, &entry.name);
            if entry.kind == EntryKind::Dir && !entry.is_symlink() {
                if depth >= MAX_DEPTH {
                    let why = format!("more than {MAX_DEPTH} directories deep: a loop of links?");
                    return Err(Failure::protocol(why));
                }
                below.push((path.clone(), depth + 1));
            }
            entry.name = join_path(tree.prefix, &path);
            flow = visit(entry);
            if flow.is_break() {
                return Ok(flow);
            }
        }
        // The first of them comes next.
        pending.extend(below.into_iter().rev());
    }
    Ok(flow)
}

/// Shows an entry of a listing of a whole tree, which has its path below the top for its name. A directory that such a
/// listing leaves out waits in `pending` for a listing of its own, which says why.
fn show_listed(
    tree: ShownTree<'_>,
    mut entry: ListedEntry,
    pending: &mut Vec<(Vec<u8>, usize)>,
    visit: &mut EntryVisitor<'_>,
) -> ControlFlow<()> {
    let is_harmless = |name: &[u8]| check_name(name).is_ok();
    if entry.name == b"." || !entry.name.split(|b| *b == b'/').all(is_harmless) {
        return ControlFlow::Continue(());
    }
    if entry.may_list == Some(false) && entry.kind == EntryKind::Dir && !entry.is_symlink() {
        let depth = 1 + entry.name.iter().filter(|b| **b == b'/').count();
        pending.push((entry.name.clone(), depth));
    }
    entry.name = join_path(tree.prefix, &entry.name);
    visit(entry)
}

fn join_below(top: &[u8], below: &[u8]) -> Vec<u8> {
    match below {
        b"" => top.to_vec(),
        below => join_path(top, below),
    }
}
