//! `rm -r`: removes a directory tree and nothing outside of it. Symbolic links are removed, never
//! followed: what a listing calls a directory is entered only if the control connection says so, too.

use proto::listing::{EntryKind, ListedEntry};

use crate::storage::collected::CollectedEntries;
use crate::storage::entry_names::{MAX_DEPTH, check_name, join_path};
use ftp::answers::{SymlinkCheckScope, SymlinkCheckedEntry};
use ftp::session::ClientSession;
use ftp::session::links::{UnlinkResult, ambiguous_link_failure};
use ftp::{Failure, FailureKind};

/// Removes `top`: a file, a link, or a directory with everything in it.
pub(crate) async fn remove_tree(session: &mut ClientSession, top: &[u8]) -> Result<(), Failure> {
    let entry = match session.stat(top).await {
        Ok(entry) => entry,
        // Many servers do not show a dangling link, but DELE removes it.
        Err(missing) if missing.is_missing() => {
            return match session.unlink(top).await? {
                UnlinkResult::Removed => Ok(()),
                _ => Err(missing),
            };
        }
        Err(failure) => return Err(failure),
    };
    if !is_directory(&entry) {
        return session.delete(top).await;
    }
    // Without reliable facts, `top` may be a link to a directory elsewhere. DELE removes a link and
    // never a directory, so it is tried first.
    if !session.reports_symlinks() {
        let unlinked = match session.unlink(top).await? {
            UnlinkResult::Unknown => remove_link_by_parent_listing(session, top).await?,
            clear => clear,
        };
        match unlinked {
            UnlinkResult::Removed => return Ok(()),
            UnlinkResult::IsDirectory => {}
            UnlinkResult::Unknown => return Err(ambiguous_link_failure(session.name(), top)),
        }
    }
    let mut tree = TreeContent::default();
    match remove_content(session, top, &mut tree).await {
        // The line protocol cannot name what is left. Whatever moves bundles removes trees by itself, and follows no link.
        Err(failure)
            if matches!(
                failure.kind(),
                FailureKind::NotFound | FailureKind::Protocol
            ) && !failure.may_retry()
                && tree.has_masked_names
                && session.features().bundles =>
        {
            session.remove_whole_tree(top).await
        }
        removed => removed,
    }
}

/// Removes the directory `top` entry by entry. `tree` has what is found in it.
async fn remove_content(
    session: &mut ClientSession,
    top: &[u8],
    tree: &mut TreeContent,
) -> Result<(), Failure> {
    collect_content(session, top, tree).await?;
    for path in &tree.files {
        session.delete(path).await?;
    }
    // Children before parents: RMD removes only empty directories.
    for directory in tree.directories.iter().rev() {
        session.remove_dir(directory).await?;
    }
    session.remove_dir(top).await
}

/// Looks `top` up in the listing of its parent directory; removes it if it is a link.
async fn remove_link_by_parent_listing(
    session: &mut ClientSession,
    top: &[u8],
) -> Result<UnlinkResult, Failure> {
    let Some(at) = top.iter().rposition(|b| *b == b'/') else {
        return Ok(UnlinkResult::Unknown);
    };
    let (parent, name) = (&top[..at.max(1)], &top[at + 1..]);
    // The parent may not be listable; then the entry stays unknown.
    let listed = match session
        .list_with_symlinks(parent, SymlinkCheckScope::Everything)
        .await
    {
        Err(failure) if failure.may_retry() => return Err(failure),
        listed => listed.unwrap_or_default(),
    };
    match listed
        .into_iter()
        .find(|checked| checked.entry.name == name)
    {
        Some(checked) if checked.entry.is_symlink() => {
            session.delete(top).await?;
            Ok(UnlinkResult::Removed)
        }
        Some(checked) if checked.is_certain && checked.entry.kind == EntryKind::Dir => {
            Ok(UnlinkResult::IsDirectory)
        }
        _ => Ok(UnlinkResult::Unknown),
    }
}

/// The content of a directory tree.
#[derive(Debug, Default)]
struct TreeContent {
    /// Everything that DELE removes, including links.
    files: Vec<Vec<u8>>,
    /// Directories below the top, parents before their children.
    directories: Vec<Vec<u8>>,
    /// A listed name may stand for one with a line end, for which longhaul writes `?`.
    has_masked_names: bool,
}

fn is_directory(entry: &ListedEntry) -> bool {
    entry.kind == EntryKind::Dir && !entry.is_symlink()
}

/// Takes the word of MLST for what the listing of `directory` calls directories. Somebody on the way of the listing may have
/// made one of a link.
async fn confirm_directories(
    session: &mut ClientSession,
    directory: &[u8],
    listed: &mut [SymlinkCheckedEntry],
) -> Result<(), Failure> {
    let mut called: Vec<&mut SymlinkCheckedEntry> = listed
        .iter_mut()
        .filter(|checked| is_directory(&checked.entry))
        .collect();
    let names = called.iter().map(|checked| &checked.entry.name);
    let paths: Vec<Vec<u8>> = names.map(|name| join_path(directory, name)).collect();
    let paths: Vec<&[u8]> = paths.iter().map(Vec::as_slice).collect();
    let Some(facts) = session.facts_by_mlst(&paths).await? else {
        return Ok(());
    };
    for (checked, facts) in called.iter_mut().zip(facts) {
        if !is_directory(&facts) {
            checked.entry = facts;
        }
    }
    Ok(())
}

/// Lists the whole tree before anything is deleted. An entry that cannot be listed, or may lie
/// outside the tree, stops the removal.
async fn collect_content(
    session: &mut ClientSession,
    top: &[u8],
    tree: &mut TreeContent,
) -> Result<(), Failure> {
    let mut pending = vec![(top.to_vec(), 0)];
    while let Some((directory, depth)) = pending.pop() {
        let scope = SymlinkCheckScope::Everything;
        let listed = CollectedEntries::of(session, &directory, scope).await?;
        let mut names = listed.entries.iter().map(|checked| &checked.entry.name);
        tree.has_masked_names |= names.any(|name| name.contains(&b'?'));
        let mut listed = listed.complete()?;
        for checked in &listed {
            // A name with `/` or `..` would lead outside the tree.
            check_name(&checked.entry.name)?;
        }
        confirm_directories(session, &directory, &mut listed).await?;
        for checked in listed {
            let path = join_path(&directory, &checked.entry.name);
            if !is_directory(&checked.entry) {
                tree.files.push(path);
                continue;
            }
            if depth >= MAX_DEPTH {
                let why = format!("more than {MAX_DEPTH} directories deep: a loop of links?");
                return Err(Failure::protocol(why));
            }
            if !checked.is_certain {
                match session.unlink(&path).await? {
                    UnlinkResult::Removed => continue,
                    UnlinkResult::IsDirectory => {}
                    UnlinkResult::Unknown => {
                        return Err(ambiguous_link_failure(session.name(), &path));
                    }
                }
            }
            tree.directories.push(path.clone());
            pending.push((path, depth + 1));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
