//! Sources: patterns, and what each source is.

use proto::listing::{EntryKind, ListedEntry};
use proto::pattern::{GlobPattern, has_wildcard};

use super::paths::{name_of, trimmed};
use crate::answers::SourceFacts;
use crate::batch::BatchContext;
use crate::location::Location;
use crate::storage::contract::Storage;
use crate::tree::{check_name, join};
use crate::{CopyFailure, Exit};

/// A source that exists.
#[derive(Debug)]
pub(super) struct FoundSource {
    pub(super) at: Location,
    pub(super) directory: bool,
    pub(super) facts: SourceFacts,
}

/// Whether an entry is a directory, whatever the listing calls it.
pub(super) fn is_directory(entry: &ListedEntry) -> bool {
    matches!(
        entry.kind,
        EntryKind::Dir | EntryKind::CurrentDir | EntryKind::ParentDir
    )
}

/// Files and directories that a source argument stands for; at least one.
pub(super) async fn expand(
    ctx: &BatchContext,
    source: &Location,
) -> Result<Vec<FoundSource>, CopyFailure> {
    if *source == Location::StandardStreams {
        return Ok(vec![FoundSource {
            at: Location::StandardStreams,
            directory: false,
            facts: SourceFacts::default(),
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
fn pattern_of(location: &Location) -> Option<GlobPattern> {
    let name = name_of(location)?;
    has_wildcard(&name).then(|| GlobPattern::new(&name))
}

async fn look(storage: &mut dyn Storage, at: &Location) -> Result<FoundSource, CopyFailure> {
    let entry = storage.stat(trimmed(at.path())).await?;
    if entry.kind == EntryKind::SymLink {
        let message = format!("{}: symbolic link that leads nowhere", at.display());
        return Err(CopyFailure::new(Exit::NotFound, message));
    }
    Ok(FoundSource {
        at: at.clone(),
        directory: is_directory(&entry),
        facts: SourceFacts::from_entry(&entry),
    })
}

/// The shell has expanded the patterns of local paths already; this is for callers without one, and for
/// servers. A file that has the pattern as its name is what was meant.
async fn matching(
    storage: &mut dyn Storage,
    source: &Location,
    pattern: &GlobPattern,
) -> Result<Vec<FoundSource>, CopyFailure> {
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
    let mut entries: Vec<ListedEntry> = listed.into_iter().map(|marked| marked.entry).collect();
    entries.retain(|e| e.kind != EntryKind::Other && check_name(&e.name).is_ok());
    if entries.iter().any(|e| e.name == wanted) {
        entries.retain(|e| e.name == wanted);
    } else {
        entries.retain(|e| pattern.matches(&e.name));
    }
    // What is named is followed, as a shell's arguments are.
    for entry in entries.iter_mut().filter(|e| e.kind == EntryKind::SymLink) {
        let name = std::mem::take(&mut entry.name);
        match storage.stat(&join(parent, &name)).await {
            Ok(there) => *entry = ListedEntry { name, ..there },
            Err(failure) if failure.transient => return Err(failure),
            Err(_) => {}
        }
    }
    entries.retain(|e| matches!(e.kind, EntryKind::File | EntryKind::Dir));
    if entries.is_empty() {
        let message = format!("{}: nothing matches", source.display());
        return Err(CopyFailure::new(Exit::NotFound, message));
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let found = entries.iter().map(|entry| FoundSource {
        at: source.with_path(join(parent, &entry.name)),
        directory: is_directory(entry),
        facts: SourceFacts::from_entry(entry),
    });
    Ok(found.collect())
}
