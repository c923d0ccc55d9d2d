//! The single-file verbs: one session each, no retries.

use std::ops::ControlFlow;
use std::sync::Arc;

use data::store::durability::SyncPolicy;
use data::store::file::FileSource;
use proto::checksum::ChecksumAlgorithm;

use crate::answers::EntryVisitor;
use crate::batch::plan::make_with_parents;
use crate::location::{Location, Server, StorageId};
use crate::partial::{hashed_partial_path, local_failure};
use crate::session::{SessionOpening, display_path};
use crate::storage::StorageAccess;
use crate::storage::contract::Storage;
use crate::verify::checksum_local;
use crate::{CopyFailure, Exit, RemoteEntry, RemoteOptions};

/// A URL's server and path; local paths are for the system's own tools.
fn parse_remote_url(url: &str) -> Result<(Server, Vec<u8>), CopyFailure> {
    match Location::parse(url)? {
        Location::Remote { server, path } => Ok((server, path)),
        other => Err(CopyFailure::new(
            Exit::Usage,
            format!(
                "{} is not remote: give an ftp:, gsiftp:, http: or https: URL",
                other.display()
            ),
        )),
    }
}

async fn open_storage(
    server: &Server,
    options: &RemoteOptions,
) -> Result<Box<dyn Storage>, CopyFailure> {
    let access = StorageAccess {
        timeout: options.timeout,
        foreign_data: false,
        sync_policy: SyncPolicy::default(),
    };
    let id = StorageId::Server(server.clone());
    access.open(&id, SessionOpening::default()).await
}

/// Without trailing slashes, as servers want names; the root stays.
fn without_trailing_slash(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|b| *b != b'/').map_or(1, |i| i + 1);
    &path[..end]
}

pub(crate) async fn list(
    url: &str,
    options: &RemoteOptions,
) -> Result<Vec<RemoteEntry>, CopyFailure> {
    let (server, path) = parse_remote_url(url)?;
    let mut session = open_storage(&server, options).await?;
    let result = async {
        let mut entries = match path.ends_with(b"/") {
            true => collect_entries(&mut *session, without_trailing_slash(&path)).await?,
            false => list_directory_or_file(&mut *session, &path).await?,
        };
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }
    .await;
    session.close().await;
    result
}

/// [`list`], entry by entry in the server's order, in bounded memory.
pub(crate) async fn list_each(
    url: &str,
    options: &RemoteOptions,
    visit: &mut EntryVisitor<'_>,
) -> Result<(), CopyFailure> {
    let (server, path) = parse_remote_url(url)?;
    let mut session = open_storage(&server, options).await?;
    let result = async {
        if path.ends_with(b"/") {
            return session
                .list_each(without_trailing_slash(&path), visit)
                .await;
        }
        match stat_if_file(&mut *session, &path).await? {
            Some(entry) => {
                let _ = visit(entry);
                Ok(())
            }
            None => session.list_each(&path, visit).await,
        }
    }
    .await;
    session.close().await;
    result
}

/// Most entries of a directory that is kept in memory.
const MAX_LISTED_ENTRIES: usize = 2_000_000;

async fn collect_entries(
    session: &mut dyn Storage,
    path: &[u8],
) -> Result<Vec<RemoteEntry>, CopyFailure> {
    let mut entries = Vec::new();
    let mut keep = |entry| {
        entries.push(entry);
        match entries.len() > MAX_LISTED_ENTRIES {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    session.list_each(path, &mut keep).await?;
    if entries.len() > MAX_LISTED_ENTRIES {
        let message = format!(
            "{} has more than {MAX_LISTED_ENTRIES} entries",
            display_path(path)
        );
        return Err(CopyFailure::new(Exit::Protocol, message));
    }
    Ok(entries)
}

/// A directory's entries, or the entry of a file under its last component.
async fn list_directory_or_file(
    session: &mut dyn Storage,
    path: &[u8],
) -> Result<Vec<RemoteEntry>, CopyFailure> {
    match stat_if_file(session, path).await? {
        Some(entry) => Ok(vec![entry]),
        None => collect_entries(session, path).await,
    }
}

/// The file at `path` under its last component; `None` for what may be listed.
async fn stat_if_file(
    session: &mut dyn Storage,
    path: &[u8],
) -> Result<Option<RemoteEntry>, CopyFailure> {
    let mut entry = session.stat(path).await?;
    if entry.kind == proto::listing::EntryKind::Dir {
        return Ok(None);
    }
    let start = path.iter().rposition(|b| *b == b'/').map_or(0, |i| i + 1);
    entry.name = path[start..].to_vec();
    Ok(Some(entry))
}

pub(crate) async fn stat(url: &str, options: &RemoteOptions) -> Result<RemoteEntry, CopyFailure> {
    let (server, path) = parse_remote_url(url)?;
    let mut session = open_storage(&server, options).await?;
    let result = session.stat(without_trailing_slash(&path)).await;
    session.close().await;
    result
}

pub(crate) async fn remove(
    url: &str,
    recursive: bool,
    options: &RemoteOptions,
) -> Result<(), CopyFailure> {
    let (server, path) = parse_remote_url(url)?;
    let path = without_trailing_slash(&path);
    if path == b"/" {
        return Err(CopyFailure::new(Exit::Usage, "the root is not removed"));
    }
    let mut session = open_storage(&server, options).await?;
    let result = if recursive {
        session.remove_tree(path).await
    } else {
        remove_file(&mut *session, path).await
    };
    session.close().await;
    result
}

/// A file, and what an upload of it left unfinished, if its name had to be replaced by a hash: nobody
/// else could tell what that is.
async fn remove_file(session: &mut dyn Storage, path: &[u8]) -> Result<(), CopyFailure> {
    let removed = remove_existing(session, path).await;
    let gone = removed
        .as_ref()
        .err()
        .is_none_or(|f| f.exit == Exit::NotFound);
    let Some(partial) = hashed_partial_path(path).filter(|_| gone) else {
        return removed;
    };
    match (removed, session.remove(&partial).await) {
        (Err(_), Ok(())) => Ok(()),
        // Most often there is none.
        (removed, _) => removed,
    }
}

/// Servers refuse DELE of a directory with many words, and some with none.
async fn remove_existing(session: &mut dyn Storage, path: &[u8]) -> Result<(), CopyFailure> {
    let Err(failure) = session.remove(path).await else {
        return Ok(());
    };
    if failure.transient || failure.exit == Exit::NotFound {
        return Err(failure);
    }
    match session.stat(path).await {
        Ok(entry) if entry.kind == proto::listing::EntryKind::Dir => Err(CopyFailure::new(
            Exit::Usage,
            format!(
                "{} is a directory on {}: `longhaul rm -r` removes it with all that is in it",
                display_path(path),
                session.name()
            ),
        )),
        _ => Err(failure),
    }
}

pub(crate) async fn make_dir(
    url: &str,
    parents: bool,
    options: &RemoteOptions,
) -> Result<(), CopyFailure> {
    let (server, path) = parse_remote_url(url)?;
    let mut session = open_storage(&server, options).await?;
    let result = if parents {
        make_with_parents(&mut *session, &path).await
    } else {
        match session.make_dir(without_trailing_slash(&path)).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                let directory = Location::Remote {
                    server: server.clone(),
                    path: path.clone(),
                };
                let message = format!(
                    "{} exists already (`longhaul mkdir -p` takes that for done)",
                    directory.display()
                );
                Err(CopyFailure::new(Exit::Protocol, message))
            }
            Err(failure) => Err(failure),
        }
    };
    session.close().await;
    result
}

pub(crate) async fn rename(
    from: &str,
    to: &str,
    options: &RemoteOptions,
) -> Result<(), CopyFailure> {
    let (server, from) = parse_remote_url(from)?;
    let (other, to) = parse_remote_url(to)?;
    if (&server.host, server.port) != (&other.host, other.port) {
        return Err(CopyFailure::new(
            Exit::Usage,
            "both names must be on one server: copy with cp and remove with rm instead",
        ));
    }
    let mut session = open_storage(&server, options).await?;
    let result = session
        .rename(
            without_trailing_slash(&from),
            without_trailing_slash(&to),
            None,
        )
        .await;
    let result = result.map_err(|refused| refused.failure);
    session.close().await;
    result
}

pub(crate) async fn checksum(
    url: &str,
    algorithm: ChecksumAlgorithm,
    offset: u64,
    length: Option<u64>,
    options: &RemoteOptions,
) -> Result<String, CopyFailure> {
    match Location::parse(url)? {
        Location::StandardStreams => Err(CopyFailure::new(
            Exit::Usage,
            "standard input cannot be summed here: name a file",
        )),
        Location::Local(path) => {
            let file = std::fs::File::open(&path).map_err(|e| {
                let exit = match e.kind() {
                    std::io::ErrorKind::NotFound => Exit::NotFound,
                    _ => Exit::Local,
                };
                CopyFailure::new(exit, format!("{}: {e}", path.display()))
            })?;
            let source = FileSource::new(file, path.to_string_lossy())
                .map_err(|e| local_failure(&path, e))?;
            checksum_local(algorithm, Arc::new(source), offset, length).await
        }
        Location::Remote { server, path } => {
            let mut session = open_storage(&server, options).await?;
            let mut result = session
                .checksum(algorithm, offset, length, without_trailing_slash(&path))
                .await;
            if result
                .as_ref()
                .is_err_and(|f| f.exit == Exit::Protocol && !f.transient)
                && let Err(missing) = session.stat(without_trailing_slash(&path)).await
            {
                // A server that has no such sum may have no such file either.
                result = Err(missing);
            }
            session.close().await;
            result
        }
    }
}
