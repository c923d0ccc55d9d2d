//! Expands source arguments: resolves patterns and finds out what each source is.

use proto::listing::{EntryKind, ListedEntry};

use super::name_pattern::NamePattern;
use super::paths::trim_trailing_slashes;
use crate::answers::{SourceFacts, SymlinkCheckScope};
use crate::batch::BatchContext;
use crate::location::Location;
use crate::retry::RetryBudget;
use crate::storage::collected::CollectedEntries;
use crate::storage::contract::Storage;
use crate::tree::{check_name, join_path};
use crate::{CopyFailure, Exit};

/// A source that exists.
#[derive(Debug)]
pub(crate) struct FoundSource {
    pub(super) location: Location,
    pub(super) is_directory: bool,
    pub(super) facts: SourceFacts,
}

/// Whether an entry is a directory, under any of the types that a listing uses (RFC 3659 section
/// 7.5.1).
pub(crate) fn is_directory(entry: &ListedEntry) -> bool {
    matches!(
        entry.kind,
        EntryKind::Dir | EntryKind::CurrentDir | EntryKind::ParentDir
    )
}

/// Files and directories that a source argument stands for. At least one.
pub(super) async fn expand_source(
    ctx: &BatchContext,
    source: &Location,
) -> Result<Vec<FoundSource>, CopyFailure> {
    if *source == Location::StandardStreams {
        return Ok(vec![FoundSource {
            location: Location::StandardStreams,
            is_directory: false,
            facts: SourceFacts::default(),
        }]);
    }
    let Some(pattern) = NamePattern::of(source)? else {
        return Ok(vec![examine_source(ctx, source).await?]);
    };
    let id = source.storage_id();
    let mut retries = RetryBudget::new(ctx.options.retries, ctx.seed);
    loop {
        let mut session = ctx.session(&id).await?;
        let found = expand_pattern(&mut *session, source, &pattern).await;
        ctx.return_session(&id, session, &found);
        match found {
            Err(failure) if failure.transient => {
                ctx.wait_for_retry(&id.to_string(), (&mut retries, 0), failure)
                    .await?;
            }
            found => return found,
        }
    }
}

/// The source that an argument names exactly, whatever pattern its name looks like.
pub(crate) async fn examine_source(
    ctx: &BatchContext,
    source: &Location,
) -> Result<FoundSource, CopyFailure> {
    let path = trim_trailing_slashes(source.path());
    let entry = ctx.stat(&source.storage_id(), path).await?;
    found_source(source, &entry)
}

fn found_source(at: &Location, entry: &ListedEntry) -> Result<FoundSource, CopyFailure> {
    if entry.kind == EntryKind::SymLink {
        let message = format!("{}: dangling symbolic link", at.display());
        return Err(CopyFailure::new(Exit::NotFound, message));
    }
    Ok(FoundSource {
        location: at.clone(),
        is_directory: is_directory(entry),
        facts: SourceFacts::from_entry(entry),
    })
}

/// Expands a pattern. The shell has already expanded patterns of local paths; this is for remote
/// paths and for callers without a shell. A file whose name equals the pattern takes precedence. A name without wildcards
/// in braces must exist.
async fn expand_pattern(
    storage: &mut dyn Storage,
    source: &Location,
    pattern: &NamePattern,
) -> Result<Vec<FoundSource>, CopyFailure> {
    // Only where a lookup costs no round trip: a file may be named like the pattern.
    let path = trim_trailing_slashes(source.path());
    if storage.capabilities().rtt.is_zero()
        && let Ok(entry) = storage.stat(path).await
        && let Ok(found) = found_source(source, &entry)
    {
        return Ok(vec![found]);
    }
    let start = path.iter().rposition(|b| *b == b'/').map_or(0, |i| i + 1);
    let parent = &path[..start];
    let directory = match parent {
        b"" => b".",
        parent => trim_trailing_slashes(parent),
    };
    let listed = CollectedEntries::of(storage, directory, SymlinkCheckScope::Directories).await?;
    let (mut entries, incomplete) = listed.into_parts();
    if let Some(failure) = incomplete {
        return Err(failure);
    }
    // Checked before any use, because names in a server's listing are untrusted.
    entries.retain(|e| e.kind != EntryKind::Other && check_name(&e.name).is_ok());
    let is_named = pattern.select(&mut entries);
    // Links that are named or matched are followed, as a shell's arguments are.
    for entry in entries.iter_mut().filter(|e| e.kind == EntryKind::SymLink) {
        let name = std::mem::take(&mut entry.name);
        match storage.stat(&join_path(parent, &name)).await {
            Ok(target_entry) => {
                *entry = ListedEntry {
                    name,
                    ..target_entry
                }
            }
            Err(failure) if failure.transient => return Err(failure),
            Err(_) => {}
        }
    }
    entries.retain(|e| matches!(e.kind, EntryKind::File | EntryKind::Dir));
    if !is_named && let Some(name) = pattern.missing_name(&entries) {
        let name = source.with_path(join_path(parent, name));
        let message = format!("{}: no such file or directory", name.display());
        return Err(CopyFailure::new(Exit::NotFound, message));
    }
    if entries.is_empty() {
        let message = format!("{}: nothing matches", source.display());
        return Err(CopyFailure::new(Exit::NotFound, message));
    }
    // Servers list in any order; the order of the copies should not depend on it.
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let found = entries.iter().map(|entry| FoundSource {
        location: source.with_path(join_path(parent, &entry.name)),
        is_directory: is_directory(entry),
        facts: SourceFacts::from_entry(entry),
    });
    Ok(found.collect())
}
