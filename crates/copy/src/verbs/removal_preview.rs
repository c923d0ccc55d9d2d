//! `rm --dry-run`: what a removal would delete. Nothing is changed.

use std::ops::ControlFlow;

use proto::listing::{EntryKind, ListedEntry};

use crate::storage::collected::CollectedEntries;
use crate::storage::contract::Storage;
use crate::storage::entry_names::{MAX_DEPTH, check_name, join_path};
use ftp::Failure;
use ftp::answers::{EntryVisitor, SymlinkCheckScope, SymlinkCheckedEntry};
use ftp::session::links::ambiguous_link_failure;

/// Shows `visit` what the removal of `top` would delete, each entry under its full path, a directory before its
/// content. Links are shown and never followed. `Break` ends the listing. Memory is bounded by the largest directory
/// and the number of directories that wait.
///
/// # Errors
/// As the removal: `Usage` for a directory without `recursive`, `NotFound`, a listing that is refused. Entries may have
/// been shown before.
pub(crate) async fn preview_removal(
    storage: &mut dyn Storage,
    top: &[u8],
    recursive: bool,
    visit: &mut EntryVisitor<'_>,
) -> Result<(), Failure> {
    let found = find(storage, top).await?;
    let is_directory = is_real_directory(storage.name(), &found, top)?;
    let entry = ListedEntry {
        name: top.to_vec(),
        ..found.entry
    };
    if is_directory && !recursive {
        return Err(directory_failure(storage.name(), top));
    }
    if visit(entry).is_break() || !is_directory {
        return Ok(());
    }
    let mut pending = vec![(top.to_vec(), 0)];
    while let Some((directory, depth)) = pending.pop() {
        let scope = SymlinkCheckScope::Everything;
        let listed = CollectedEntries::of(storage, &directory, scope).await?;
        let mut listed = listed.complete()?;
        listed.sort_by(|a, b| a.entry.name.cmp(&b.entry.name));
        let mut below = Vec::new();
        for checked in listed {
            check_name(&checked.entry.name)?;
            let path = join_path(&directory, &checked.entry.name);
            if is_real_directory(storage.name(), &checked, &path)? {
                if depth >= MAX_DEPTH {
                    let why = format!("more than {MAX_DEPTH} directories deep: a loop of links?");
                    return Err(Failure::protocol(why));
                }
                below.push((path.clone(), depth + 1));
            }
            let entry = ListedEntry {
                name: path,
                ..checked.entry
            };
            if visit(entry) == ControlFlow::Break(()) {
                return Ok(());
            }
        }
        // The first of them comes next.
        pending.extend(below.into_iter().rev());
    }
    Ok(())
}

/// The entry of a path. The listing of its parent tells a link that the server does not show by itself, such as one that
/// points nowhere, or shows as a directory.
async fn find(storage: &mut dyn Storage, path: &[u8]) -> Result<SymlinkCheckedEntry, Failure> {
    let found = storage.stat(path).await;
    let may_be_link = match &found {
        Ok(entry) => entry.kind == EntryKind::Dir && !storage.tells_links(),
        Err(failure) => failure.is_missing(),
    };
    if may_be_link && let Some(listed) = find_in_parent(storage, path).await {
        return Ok(listed);
    }
    Ok(SymlinkCheckedEntry {
        is_certain: !may_be_link,
        entry: found?,
    })
}

async fn find_in_parent(storage: &mut dyn Storage, path: &[u8]) -> Option<SymlinkCheckedEntry> {
    let at = path.iter().rposition(|b| *b == b'/')?;
    let (parent, name) = (&path[..at.max(1)], &path[at + 1..]);
    let scope = SymlinkCheckScope::Everything;
    let listed = CollectedEntries::of(storage, parent, scope).await.ok()?;
    let mut entries = listed.entries.into_iter();
    entries.find(|listed| listed.entry.name == name)
}

/// The refusal to remove a directory as a file.
pub(crate) fn directory_failure(storage: &str, path: &[u8]) -> Failure {
    Failure::usage(format!(
        "{} is a directory on {storage}: `longhaul rm -r` removes it with all that is in it",
        ftp::session::display_path(path),
    ))
}

/// Whether an entry is a directory whose content would be removed. Only a removal, which tries DELE first, can tell a
/// link from a directory on some servers.
fn is_real_directory(
    storage: &str,
    checked: &SymlinkCheckedEntry,
    path: &[u8],
) -> Result<bool, Failure> {
    if checked.entry.kind != EntryKind::Dir || checked.entry.is_symlink() {
        return Ok(false);
    }
    match checked.is_certain {
        true => Ok(true),
        false => Err(ambiguous_link_failure(storage, path)),
    }
}
