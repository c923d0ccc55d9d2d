//! Directories and symbolic links that a plan makes at its destination.

use super::PlannedLink;
use super::paths::trimmed;
use crate::batch::BatchContext;
use crate::location::Location;
use crate::storage::contract::Storage;
use crate::{CopyFailure, Exit};

/// Makes a directory of the plan; one that exists is fine.
pub(crate) async fn make_directory(ctx: &BatchContext, at: &Location) -> Result<(), CopyFailure> {
    let id = at.storage_id();
    let mut session = ctx.session(&id).await?;
    make_with_parents(&mut *session, at.path()).await?;
    ctx.pool.give(&id, session);
    Ok(())
}

/// Makes a directory, and when that fails for want of a parent, the parents first.
pub(crate) async fn make_with_parents(
    storage: &mut dyn Storage,
    path: &[u8],
) -> Result<(), CopyFailure> {
    let path = trimmed(path);
    let Err(failure) = storage.make_dir(path).await else {
        return Ok(());
    };
    if failure.transient {
        return Err(failure);
    }
    let mut reason = failure;
    for (end, _) in path.iter().enumerate().skip(1).filter(|(_, b)| **b == b'/') {
        // A parent that exists but may not be made is fine; the last one tells the truth.
        match storage.make_dir(&path[..end]).await {
            Err(failure) if failure.transient => return Err(failure),
            Err(failure) if failure.exit != Exit::NotFound => reason = failure,
            _ => {}
        }
    }
    storage
        .make_dir(path)
        .await
        .map(drop)
        .map_err(|failure| match failure.exit {
            Exit::NotFound => reason,
            _ => failure,
        })
}

/// Makes one link; a link that is there already is replaced. `Ok(Some(why))` when the destination has no
/// links.
pub(crate) async fn make_link(
    ctx: &BatchContext,
    link: &PlannedLink,
) -> Result<Option<String>, CopyFailure> {
    let (id, path) = (link.at.storage_id(), link.at.path());
    let mut session = ctx.session(&id).await?;
    let absolute = resolved(path, &link.target);
    let made = session.make_link(&link.target, &absolute, path).await?;
    ctx.pool.give(&id, session);
    Ok((!made).then(|| format!("{id} makes no symbolic links")))
}

/// The path that `target` in the link `link` leads to, `..` taken by the text.
fn resolved(link: &[u8], target: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = link
        .split(|b| *b == b'/')
        .filter(|p| !p.is_empty())
        .collect();
    parts.pop();
    for part in target.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    [b"/", parts.join(&b'/').as_slice()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_resolved_from_the_links_directory() {
        assert_eq!(resolved(b"/t/a/l", b"../f"), b"/t/f");
        assert_eq!(resolved(b"/t/l", b"b/./c"), b"/t/b/c");
        assert_eq!(resolved(b"/l", b"."), b"/");
    }
}
