//! Sources: patterns, and what each source is.

use proto::listing::{Kind, RemoteEntry};
use proto::pattern::{Pattern, has_wildcard};

use super::ends::{name_of, trimmed};
use crate::batch::Context;
use crate::location::Location;
use crate::storage::contract::Storage;
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

/// Files and directories that a source argument stands for; at least one.
pub(super) async fn expand(ctx: &Context, source: &Location) -> Result<Vec<Found>, Failure> {
    if *source == Location::Pipe {
        return Ok(vec![Found {
            at: Location::Pipe,
            directory: false,
            facts: Facts::default(),
        }]);
    }
    let (id, path) = (source.storage_id(), trimmed(source.path()));
    let pattern = pattern_of(source);
    let look_at = Some(path).filter(|_| pattern.is_none());
    let mut session = ctx.session_for(&id, look_at).await?;
    let found = match &pattern {
        Some(pattern) => matching(&mut *session, source, pattern).await,
        None => look(&mut *session, source).await.map(|found| vec![found]),
    };
    match &found {
        Err(failure) if failure.transient => {}
        _ => ctx.pool.give(&id, session),
    }
    found
}

/// The pattern in the last component, if there is one.
fn pattern_of(location: &Location) -> Option<Pattern> {
    let name = name_of(location)?;
    has_wildcard(&name).then(|| Pattern::new(&name))
}

async fn look(storage: &mut dyn Storage, at: &Location) -> Result<Found, Failure> {
    let entry = storage.stat(trimmed(at.path())).await?;
    if entry.kind == Kind::SymLink {
        let message = format!("{}: symbolic link that leads nowhere", at.display());
        return Err(Failure::new(Exit::NotFound, message));
    }
    Ok(Found {
        at: at.clone(),
        directory: is_directory(&entry),
        facts: Facts::of(&entry),
    })
}

/// The shell has expanded the patterns of local paths already; this is for callers without one, and for
/// servers. A file that has the pattern as its name is what was meant.
async fn matching(
    storage: &mut dyn Storage,
    source: &Location,
    pattern: &Pattern,
) -> Result<Vec<Found>, Failure> {
    if storage.capabilities().rtt.is_zero()
        && let Ok(found) = look(storage, source).await
    {
        return Ok(vec![found]);
    }
    let path = trimmed(source.path());
    let start = path.iter().rposition(|b| *b == b'/').map_or(0, |i| i + 1);
    let (parent, wanted) = path.split_at(start);
    let directory = match parent {
        b"" => b".",
        parent => trimmed(parent),
    };
    let listed = storage.list(directory).await?;
    let mut entries: Vec<RemoteEntry> = listed.into_iter().map(|marked| marked.entry).collect();
    entries.retain(|e| e.kind != Kind::Other && check_name(&e.name).is_ok());
    if entries.iter().any(|e| e.name == wanted) {
        entries.retain(|e| e.name == wanted);
    } else {
        entries.retain(|e| pattern.matches(&e.name));
    }
    // What is named is followed, as a shell's arguments are.
    for entry in entries.iter_mut().filter(|e| e.kind == Kind::SymLink) {
        let name = std::mem::take(&mut entry.name);
        match storage.stat(&join(parent, &name)).await {
            Ok(there) => *entry = RemoteEntry { name, ..there },
            Err(failure) if failure.transient => return Err(failure),
            Err(_) => {}
        }
    }
    entries.retain(|e| matches!(e.kind, Kind::File | Kind::Dir));
    if entries.is_empty() {
        let message = format!("{}: nothing matches", source.display());
        return Err(Failure::new(Exit::NotFound, message));
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let found = entries.iter().map(|entry| Found {
        at: source.with_path(join(parent, &entry.name)),
        directory: is_directory(entry),
        facts: Facts::of(entry),
    });
    Ok(found.collect())
}
