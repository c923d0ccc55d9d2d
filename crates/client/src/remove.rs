//! `rm -r`: a tree goes, and nothing outside of it. Links are removed, never followed.

use proto::listing::Kind;

use crate::session::Session;
use crate::session::links::{Scrutiny, Unlinked, in_doubt};
use crate::tree::{MAX_DEPTH, check_name, join};
use crate::{Exit, Failure};

/// Removes what `top` names: a file, a link, or a directory with everything below.
pub(crate) async fn remove_tree(session: &mut Session, top: &[u8]) -> Result<(), Failure> {
    let entry = match session.stat(top).await {
        Ok(entry) => entry,
        // A link that leads nowhere is invisible on many servers, and can be deleted all the same.
        Err(missing) if missing.exit == Exit::NotFound => {
            return match session.unlink(top).await? {
                Unlinked::Gone => Ok(()),
                _ => Err(missing),
            };
        }
        Err(failure) => return Err(failure),
    };
    if entry.is_link() || entry.kind != Kind::Dir {
        return session.delete(top).await;
    }
    if !session.tells_links() {
        let named = match session.unlink(top).await? {
            Unlinked::Unclear => as_listed_above(session, top).await?,
            clear => clear,
        };
        match named {
            Unlinked::Gone => return Ok(()),
            Unlinked::Directory => {}
            Unlinked::Unclear => return Err(in_doubt(session.name(), top)),
        }
    }
    let content = collect(session, top).await?;
    for path in &content.files {
        session.delete(path).await?;
    }
    for directory in content.directories.iter().rev() {
        session.remove_dir(directory).await?;
    }
    session.remove_dir(top).await
}

/// Looks `top` up in the listing of the directory above; a link is removed.
async fn as_listed_above(session: &mut Session, top: &[u8]) -> Result<Unlinked, Failure> {
    let Some(at) = top.iter().rposition(|b| *b == b'/') else {
        return Ok(Unlinked::Unclear);
    };
    let (above, name) = (&top[..at.max(1)], &top[at + 1..]);
    let listed = match session.list_marked(above, Scrutiny::Everything).await {
        Err(failure) if failure.transient => return Err(failure),
        listed => listed.unwrap_or_default(),
    };
    match listed.into_iter().find(|marked| marked.entry.name == name) {
        Some(marked) if marked.entry.is_link() => {
            session.delete(top).await?;
            Ok(Unlinked::Gone)
        }
        Some(marked) if marked.certain && marked.entry.kind == Kind::Dir => Ok(Unlinked::Directory),
        _ => Ok(Unlinked::Unclear),
    }
}

/// The content of a tree.
#[derive(Debug, Default)]
struct Content {
    /// Everything that DELE removes, links among them.
    files: Vec<Vec<u8>>,
    /// Directories below the top, parents first.
    directories: Vec<Vec<u8>>,
}

/// Finds everything before anything is deleted: what cannot be listed, or may lie outside, stops it.
async fn collect(session: &mut Session, top: &[u8]) -> Result<Content, Failure> {
    let mut content = Content::default();
    let mut pending = vec![(top.to_vec(), 0)];
    while let Some((directory, depth)) = pending.pop() {
        let mut listed = session
            .list_marked(&directory, Scrutiny::Everything)
            .await?;
        listed.sort_by(|a, b| a.entry.name.cmp(&b.entry.name));
        listed.dedup_by(|a, b| a.entry.name == b.entry.name);
        for marked in listed {
            check_name(&marked.entry.name)?;
            let path = join(&directory, &marked.entry.name);
            if marked.entry.kind != Kind::Dir || marked.entry.is_link() {
                content.files.push(path);
                continue;
            }
            if depth >= MAX_DEPTH {
                let why = format!("more than {MAX_DEPTH} directories deep: a loop of links?");
                return Err(Failure::new(Exit::Protocol, why));
            }
            if !marked.certain {
                match session.unlink(&path).await? {
                    Unlinked::Gone => continue,
                    Unlinked::Directory => {}
                    Unlinked::Unclear => return Err(in_doubt(session.name(), &path)),
                }
            }
            content.directories.push(path.clone());
            pending.push((path, depth + 1));
        }
    }
    Ok(content)
}
