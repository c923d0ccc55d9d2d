//! The single-file verbs: one session each, no retries.

use std::sync::Arc;

use data::store::file::FileSource;
use proto::checksum::Algorithm;

use crate::batch::plan::make_remote;
use crate::location::{Location, Server};
use crate::partial::local;
use crate::session::{Session, Visit};
use crate::tree::{Tree, join};
use crate::verify::sum_local;
use crate::{Exit, Failure, RemoteEntry, RemoteOptions};

/// A URL's server and path; local paths are for the system's own tools.
fn remote(url: &str) -> Result<(Server, Vec<u8>), Failure> {
    match Location::parse(url)? {
        Location::Remote { server, path } => Ok((server, path)),
        other => Err(Failure::new(
            Exit::Usage,
            format!(
                "{} is not remote: give an ftp: or gsiftp: URL",
                other.display()
            ),
        )),
    }
}

/// Without trailing slashes, as servers want names; the root stays.
fn name(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|b| *b != b'/').map_or(1, |i| i + 1);
    &path[..end]
}

pub(crate) async fn list(url: &str, options: &RemoteOptions) -> Result<Vec<RemoteEntry>, Failure> {
    let (server, path) = remote(url)?;
    let mut session = Session::open(&server, options.timeout).await?;
    let result = async {
        let mut entries = match path.ends_with(b"/") {
            true => session.list(name(&path)).await?,
            false => list_or_stat(&mut session, &path).await?,
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
    visit: &mut Visit<'_>,
) -> Result<(), Failure> {
    let (server, path) = remote(url)?;
    let mut session = Session::open(&server, options.timeout).await?;
    let result = async {
        if path.ends_with(b"/") {
            return session.list_each(name(&path), visit).await;
        }
        match file_at(&mut session, &path).await? {
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

/// A directory's entries, or the entry of a file under its last component.
async fn list_or_stat(session: &mut Session, path: &[u8]) -> Result<Vec<RemoteEntry>, Failure> {
    match file_at(session, path).await? {
        Some(entry) => Ok(vec![entry]),
        None => session.list(path).await,
    }
}

/// The file at `path` under its last component; `None` for what may be listed.
async fn file_at(session: &mut Session, path: &[u8]) -> Result<Option<RemoteEntry>, Failure> {
    let mut entry = session.stat(path).await?;
    if entry.kind != proto::listing::Kind::File {
        return Ok(None);
    }
    let start = path.iter().rposition(|b| *b == b'/').map_or(0, |i| i + 1);
    entry.name = path[start..].to_vec();
    Ok(Some(entry))
}

pub(crate) async fn stat(url: &str, options: &RemoteOptions) -> Result<RemoteEntry, Failure> {
    let (server, path) = remote(url)?;
    let mut session = Session::open(&server, options.timeout).await?;
    let result = session.stat(name(&path)).await;
    session.close().await;
    result
}

pub(crate) async fn remove(
    url: &str,
    recursive: bool,
    options: &RemoteOptions,
) -> Result<(), Failure> {
    let (server, path) = remote(url)?;
    let path = name(&path);
    if path == b"/" {
        return Err(Failure::new(Exit::Usage, "the root is not removed"));
    }
    let mut session = Session::open(&server, options.timeout).await?;
    let result = if recursive {
        remove_tree(&mut session, path).await
    } else {
        session.delete(path).await
    };
    session.close().await;
    result
}

/// Files first, then directories from the deepest up.
async fn remove_tree(session: &mut Session, top: &[u8]) -> Result<(), Failure> {
    let entry = session.stat(top).await?;
    if entry.kind == proto::listing::Kind::File {
        return session.delete(top).await;
    }
    let tree = Tree::remote(session, top).await?;
    if let Some((_, failure)) = tree.failed.into_iter().next() {
        return Err(failure);
    }
    let others = tree.skipped.iter().map(|(path, _)| path);
    for path in tree.files.iter().map(|(path, _)| path).chain(others) {
        session.delete(&join(top, path)).await?;
    }
    for directory in tree.directories.iter().rev() {
        session.remove_dir(&join(top, directory)).await?;
    }
    session.remove_dir(top).await
}

pub(crate) async fn make_dir(
    url: &str,
    parents: bool,
    options: &RemoteOptions,
) -> Result<(), Failure> {
    let (server, path) = remote(url)?;
    let mut session = Session::open(&server, options.timeout).await?;
    let result = if parents {
        make_remote(&mut session, &path).await
    } else {
        match session.make_dir(name(&path)).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                let shown = Location::Remote {
                    server: server.clone(),
                    path: path.clone(),
                };
                let message = format!("{} exists already", shown.display());
                Err(Failure::new(Exit::Refused, message))
            }
            Err(failure) => Err(failure),
        }
    };
    session.close().await;
    result
}

pub(crate) async fn rename(from: &str, to: &str, options: &RemoteOptions) -> Result<(), Failure> {
    let (server, from) = remote(from)?;
    let (other, to) = remote(to)?;
    if (&server.host, server.port) != (&other.host, other.port) {
        return Err(Failure::new(
            Exit::Usage,
            "both names must be on one server: copy with cp and remove with rm instead",
        ));
    }
    let mut session = Session::open(&server, options.timeout).await?;
    let result = session.rename(name(&from), name(&to)).await;
    session.close().await;
    result
}

pub(crate) async fn checksum(
    url: &str,
    algorithm: Algorithm,
    offset: u64,
    length: Option<u64>,
    options: &RemoteOptions,
) -> Result<String, Failure> {
    match Location::parse(url)? {
        Location::Pipe => Err(Failure::new(
            Exit::Usage,
            "standard input cannot be summed here: name a file",
        )),
        Location::Local(path) => {
            let file = std::fs::File::open(&path).map_err(|e| {
                let exit = match e.kind() {
                    std::io::ErrorKind::NotFound => Exit::NotFound,
                    _ => Exit::Local,
                };
                Failure::new(exit, format!("{}: {e}", path.display()))
            })?;
            let source =
                FileSource::new(file, path.to_string_lossy()).map_err(|e| local(&path, e))?;
            sum_local(algorithm, Arc::new(source), offset, length).await
        }
        Location::Remote { server, path } => {
            let mut session = Session::open(&server, options.timeout).await?;
            let result = session
                .checksum(algorithm, offset, length, name(&path))
                .await;
            session.close().await;
            result
        }
    }
}
