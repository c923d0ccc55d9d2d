//! Sources: patterns, and what each source is.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use proto::listing::{Kind, RemoteEntry};
use proto::pattern::{Pattern, has_wildcard};

use super::ends::{name_of, trimmed};
use crate::batch::Context;
use crate::location::{Location, Server};
use crate::partial::local;
use crate::tree::{Facts, check_name, join};
use crate::{Exit, Failure};

/// A source that exists.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) at: Location,
    pub(super) directory: bool,
    pub(super) facts: Facts,
}

/// Whether an entry is a directory, whatever the listing calls it.
pub(super) fn is_directory(entry: &RemoteEntry) -> bool {
    matches!(entry.kind, Kind::Dir | Kind::CurrentDir | Kind::ParentDir)
}

/// What a source argument stands for; at least one.
pub(super) async fn expand(ctx: &Context, source: &Location) -> Result<Vec<Found>, Failure> {
    match source {
        Location::Pipe => Ok(vec![Found {
            at: Location::Pipe,
            directory: false,
            facts: Facts::default(),
        }]),
        Location::Local(path) => expand_local(path),
        Location::Remote { server, path } => match pattern_of(source) {
            Some(pattern) => expand_remote(ctx, server, path, &pattern).await,
            None => Ok(vec![look_remote(ctx, server, path).await?]),
        },
    }
}

/// The pattern in the last component, if there is one.
fn pattern_of(location: &Location) -> Option<Pattern> {
    let name = name_of(location)?;
    has_wildcard(&name).then(|| Pattern::new(&name))
}

/// The shell has expanded patterns already; this is for callers without one. A file that has the
/// pattern as its name comes first.
fn expand_local(path: &Path) -> Result<Vec<Found>, Failure> {
    let error = match look_local(path) {
        Ok(found) => return Ok(vec![found]),
        Err(error) => error,
    };
    let Some(pattern) = pattern_of(&Location::Local(path.to_owned())) else {
        return Err(error);
    };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut names: Vec<_> = fs::read_dir(parent)
        .map_err(|e| local(parent, e))?
        .filter_map(|entry| entry.ok().map(|e| e.file_name()))
        .filter(|name| pattern.matches(name.as_bytes()))
        .collect();
    if names.is_empty() {
        return Err(error);
    }
    names.sort();
    names
        .iter()
        .map(|name| look_local(&path.with_file_name(name)))
        .collect()
}

fn look_local(path: &Path) -> Result<Found, Failure> {
    let meta = fs::metadata(path).map_err(|e| {
        let exit = match e.kind() {
            std::io::ErrorKind::NotFound => Exit::NotFound,
            _ => Exit::Local,
        };
        Failure::new(exit, format!("{}: {e}", path.display()))
    })?;
    Ok(Found {
        at: Location::Local(path.to_owned()),
        directory: meta.is_dir(),
        facts: if meta.is_file() {
            Facts::of_local(&meta)
        } else {
            Facts::default()
        },
    })
}

async fn look_remote(ctx: &Context, server: &Server, path: &[u8]) -> Result<Found, Failure> {
    let mut session = ctx.session_for(server, Some(trimmed(path))).await?;
    let result = session.stat(trimmed(path)).await;
    match &result {
        Err(failure) if failure.transient => {}
        _ => ctx.pool.give(server, session),
    }
    let entry = result?;
    Ok(Found {
        at: Location::Remote {
            server: server.clone(),
            path: path.to_vec(),
        },
        directory: is_directory(&entry),
        facts: Facts::of(&entry),
    })
}

async fn expand_remote(
    ctx: &Context,
    server: &Server,
    path: &[u8],
    pattern: &Pattern,
) -> Result<Vec<Found>, Failure> {
    let path = trimmed(path);
    let start = path.iter().rposition(|b| *b == b'/').map_or(0, |i| i + 1);
    let (parent, wanted) = path.split_at(start);
    let mut session = ctx.session(server).await?;
    let mut entries = session.list(trimmed(parent)).await?;
    entries.retain(|e| e.kind != Kind::Other && check_name(&e.name).is_ok());
    // A file that has the pattern as its name is what was meant.
    if entries.iter().any(|e| e.name == wanted) {
        entries.retain(|e| e.name == wanted);
    } else {
        entries.retain(|e| pattern.matches(&e.name));
    }
    // What is named is followed, as a shell's arguments are.
    for entry in entries.iter_mut().filter(|e| e.kind == Kind::SymLink) {
        let name = std::mem::take(&mut entry.name);
        match session.stat(&join(parent, &name)).await {
            Ok(there) => *entry = RemoteEntry { name, ..there },
            Err(failure) if failure.transient => return Err(failure),
            Err(_) => {}
        }
    }
    entries.retain(|e| matches!(e.kind, Kind::File | Kind::Dir));
    ctx.pool.give(server, session);
    if entries.is_empty() {
        let at = Location::Remote {
            server: server.clone(),
            path: path.to_vec(),
        };
        let message = format!("{}: nothing matches", at.display());
        return Err(Failure::new(Exit::NotFound, message));
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let found = entries.iter().map(|entry| Found {
        at: Location::Remote {
            server: server.clone(),
            path: join(parent, &entry.name),
        },
        directory: is_directory(entry),
        facts: Facts::of(entry),
    });
    Ok(found.collect())
}
