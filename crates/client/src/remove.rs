//! `rm -r`: a tree goes, and nothing outside of it. Links are removed, never followed.

use proto::listing::EntryKind;

use crate::session::ClientSession;
use crate::session::links::{SymlinkCheckScope, UnlinkResult, ambiguous_link_failure};
use crate::tree::{MAX_DEPTH, check_name, join_path};
use crate::{CopyFailure, Exit};

/// Removes what `top` names: a file, a link, or a directory with everything below.
pub(crate) async fn remove_tree(
    session: &mut ClientSession,
    top: &[u8],
) -> Result<(), CopyFailure> {
    let entry = match session.stat(top).await {
        Ok(entry) => entry,
        // A link that leads nowhere is invisible on many servers, and can be deleted all the same.
        Err(missing) if missing.exit == Exit::NotFound => {
            return match session.unlink(top).await? {
                UnlinkResult::Removed => Ok(()),
                _ => Err(missing),
            };
        }
        Err(failure) => return Err(failure),
    };
    if entry.is_symlink() || entry.kind != EntryKind::Dir {
        return session.delete(top).await;
    }
    if !session.reports_symlinks() {
        let named = match session.unlink(top).await? {
            UnlinkResult::Unknown => remove_link_by_parent_listing(session, top).await?,
            clear => clear,
        };
        match named {
            UnlinkResult::Removed => return Ok(()),
            UnlinkResult::IsDirectory => {}
            UnlinkResult::Unknown => return Err(ambiguous_link_failure(session.name(), top)),
        }
    }
    let content = collect_content(session, top).await?;
    for path in &content.files {
        session.delete(path).await?;
    }
    for directory in content.directories.iter().rev() {
        session.remove_dir(directory).await?;
    }
    session.remove_dir(top).await
}

/// Looks `top` up in the listing of the directory above; a link is removed.
async fn remove_link_by_parent_listing(
    session: &mut ClientSession,
    top: &[u8],
) -> Result<UnlinkResult, CopyFailure> {
    let Some(at) = top.iter().rposition(|b| *b == b'/') else {
        return Ok(UnlinkResult::Unknown);
    };
    let (above, name) = (&top[..at.max(1)], &top[at + 1..]);
    let listed = match session
        .list_with_symlinks(above, SymlinkCheckScope::Everything)
        .await
    {
        Err(failure) if failure.transient => return Err(failure),
        listed => listed.unwrap_or_default(),
    };
    match listed.into_iter().find(|marked| marked.entry.name == name) {
        Some(marked) if marked.entry.is_symlink() => {
            session.delete(top).await?;
            Ok(UnlinkResult::Removed)
        }
        Some(marked) if marked.is_certain && marked.entry.kind == EntryKind::Dir => {
            Ok(UnlinkResult::IsDirectory)
        }
        _ => Ok(UnlinkResult::Unknown),
    }
}

/// The content of a tree.
#[derive(Debug, Default)]
struct TreeContent {
    /// Everything that DELE removes, links among them.
    files: Vec<Vec<u8>>,
    /// Directories below the top, parents first.
    directories: Vec<Vec<u8>>,
}

/// Finds everything before anything is deleted: what cannot be listed, or may lie outside, stops it.
async fn collect_content(
    session: &mut ClientSession,
    top: &[u8],
) -> Result<TreeContent, CopyFailure> {
    let mut content = TreeContent::default();
    let mut pending = vec![(top.to_vec(), 0)];
    while let Some((directory, depth)) = pending.pop() {
        let mut listed = session
            .list_with_symlinks(&directory, SymlinkCheckScope::Everything)
            .await?;
        listed.sort_by(|a, b| a.entry.name.cmp(&b.entry.name));
        listed.dedup_by(|a, b| a.entry.name == b.entry.name);
        for marked in listed {
            check_name(&marked.entry.name)?;
            let path = join_path(&directory, &marked.entry.name);
            if marked.entry.kind != EntryKind::Dir || marked.entry.is_symlink() {
                content.files.push(path);
                continue;
            }
            if depth >= MAX_DEPTH {
                let why = format!("more than {MAX_DEPTH} directories deep: a loop of links?");
                return Err(CopyFailure::new(Exit::Protocol, why));
            }
            if !marked.is_certain {
                match session.unlink(&path).await? {
                    UnlinkResult::Removed => continue,
                    UnlinkResult::IsDirectory => {}
                    UnlinkResult::Unknown => {
                        return Err(ambiguous_link_failure(session.name(), &path));
                    }
                }
            }
            content.directories.push(path.clone());
            pending.push((path, depth + 1));
        }
    }
    Ok(content)
}
