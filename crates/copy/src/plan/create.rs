//! Creates the directories and symbolic links of a plan at the destination.

use proto::client::CommandLead;

use super::entries::PlannedLink;
use super::paths::{is_below, trim_trailing_slashes};
use crate::batch::BatchContext;
use crate::storage::contract::Storage;
use ftp::location::Location;
use ftp::{Failure, FailureKind};

/// Creates the directories of a plan, parents first. Existing ones are accepted. Returns the positions of those that were not
/// made, and why; `None`: it is below one that was not.
pub(crate) async fn make_directories(
    ctx: &BatchContext,
    directories: &[Location],
) -> Vec<(usize, Option<Failure>)> {
    let mut failed: Vec<(usize, Option<Failure>)> = Vec::new();
    let mut unmade: Option<&Location> = None;
    let mut position = 0;
    for group in directories.chunk_by(|a, b| a.storage_id() == b.storage_id()) {
        let made = make_at_once(ctx, group).await;
        // The others one by one: they exist, lack a parent, or are refused for a reason to be told.
        for (at, made) in group.iter().zip(made) {
            if !made {
                // The one above precedes it.
                if unmade.is_some_and(|above| is_below(above, at)) {
                    failed.push((position, None));
                } else if let Err(failure) = make_directory(ctx, at).await {
                    unmade = Some(at);
                    failed.push((position, Some(failure)));
                }
            }
            position += 1;
        }
    }
    failed
}

/// Which directories of one storage were made in one go.
async fn make_at_once(ctx: &BatchContext, directories: &[Location]) -> Vec<bool> {
    let none = vec![false; directories.len()];
    let [first, _, ..] = directories else {
        return none;
    };
    let id = first.storage_id();
    let Ok(mut session) = ctx.session(&id).await else {
        return none;
    };
    let paths: Vec<&[u8]> = directories
        .iter()
        .map(|at| trim_trailing_slashes(at.path()))
        .collect();
    let may_go_ahead = ctx.pool.series_lead(&id) > CommandLead::Lockstep;
    let result = session.make_dirs(&paths, may_go_ahead).await;
    if result.is_err() {
        // Perhaps a server that discards commands ahead: it gets none from now on.
        ctx.pool.limit_series_lead(&id, CommandLead::Lockstep);
    }
    ctx.return_session(&id, session, &result);
    result.unwrap_or(none)
}

/// Creates a directory of the plan. An existing one is accepted.
async fn make_directory(ctx: &BatchContext, at: &Location) -> Result<(), Failure> {
    let id = at.storage_id();
    let mut request = ctx.request(&id);
    loop {
        let mut session = request.session().await?;
        // One that a lost try has made exists.
        let made = make_with_parents(&mut *session, at.path()).await;
        if request.end(session, made).await?.is_some() {
            return Ok(());
        }
    }
}

/// Creates a directory. If a parent is missing, creates the parents first.
pub(crate) async fn make_with_parents(
    storage: &mut dyn Storage,
    path: &[u8],
) -> Result<(), Failure> {
    let path = trim_trailing_slashes(path);
    // Optimistic: mostly the parents exist, and one command is enough.
    let Err(failure) = storage.make_dir(path).await else {
        return Ok(());
    };
    if failure.may_retry() {
        return Err(failure);
    }
    let mut reason = failure;
    for (slash, _) in path.iter().enumerate().skip(1).filter(|(_, b)| **b == b'/') {
        // A parent that exists may refuse to be created. The last directory decides.
        match storage.make_dir(&path[..slash]).await {
            Err(failure) if failure.may_retry() => return Err(failure),
            // A missing directory above is expected here; any other refusal explains the failure.
            Err(failure) if !failure.is_missing() => reason = failure,
            _ => {}
        }
    }
    storage
        .make_dir(path)
        .await
        .map(drop)
        .map_err(|failure| match failure.kind() {
            FailureKind::NotFound => reason,
            _ => failure,
        })
}

/// Creates one link, replacing an existing link. Returns `Some(reason)` if the destination does not
/// support links.
pub(crate) async fn make_link(
    ctx: &BatchContext,
    link: &PlannedLink,
) -> Result<Option<String>, Failure> {
    let (id, path) = (link.path.storage_id(), link.path.path());
    let absolute = resolve_link_target(path, &link.target);
    let mut request = ctx.request(&id);
    loop {
        let mut session = request.session().await?;
        // One that a lost try has made is replaced.
        let created = session.make_link(&link.target, &absolute, path).await;
        if let Some(created) = request.end(session, created).await? {
            return Ok((!created).then(|| format!("{id} does not support symbolic links")));
        }
    }
}

/// The path that `target` of the link `link` leads to. `..` is resolved textually.
fn resolve_link_target(link: &[u8], target: &[u8]) -> Vec<u8> {
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
    fn link_targets_are_resolved_from_the_directory_of_the_link() {
        assert_eq!(resolve_link_target(b"/t/a/l", b"../f"), b"/t/f");
        assert_eq!(resolve_link_target(b"/t/l", b"b/./c"), b"/t/b/c");
        assert_eq!(resolve_link_target(b"/l", b"."), b"/");
    }
}
