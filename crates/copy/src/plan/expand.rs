//! Expands source arguments: resolves patterns and finds out what each source is.

use proto::client::CommandLead;
use proto::listing::{EntryKind, ListedEntry};

use super::name_pattern::NamePattern;
use super::paths::trim_trailing_slashes;
use crate::batch::BatchContext;
use crate::options::PreservedTimes;
use crate::storage::collected::CollectedEntries;
use crate::storage::contract::Storage;
use crate::storage::entry_names::join_path;
use crate::tree::{DANGLING_LINK, NO_REGULAR_FILE};
use ftp::answers::{SourceFacts, SymlinkCheckScope};
use ftp::location::Location;
use ftp::{Failure, FailureKind};

/// A source that exists.
#[derive(Debug)]
pub(crate) struct FoundSource {
    pub(crate) location: Location,
    pub(crate) is_directory: bool,
    pub(crate) facts: SourceFacts,
}

/// The files and directories that a source argument stands for.
#[derive(Debug, Default)]
pub(crate) struct ExpandedSource {
    pub(crate) found: Vec<FoundSource>,
    /// Further matches that cannot be copied, with the reason.
    pub(crate) skipped: Vec<(Location, &'static str)>,
    /// Entries, and the rest of a directory, that could not be examined.
    pub(crate) failed: Vec<(Location, Failure)>,
}

impl From<FoundSource> for ExpandedSource {
    fn from(found: FoundSource) -> Self {
        Self {
            found: vec![found],
            ..Self::default()
        }
    }
}

/// Whether an entry is a directory, under any of the types that a listing uses (RFC 3659 section
/// 7.5.1).
pub(crate) fn is_directory(entry: &ListedEntry) -> bool {
    matches!(
        entry.kind,
        EntryKind::Dir | EntryKind::CurrentDir | EntryKind::ParentDir
    )
}

/// Files and directories that a source argument stands for. At least one is found.
pub(crate) async fn expand_source(
    ctx: &BatchContext,
    source: &Location,
) -> Result<ExpandedSource, Failure> {
    if *source == Location::StandardStreams {
        let found = FoundSource {
            location: Location::StandardStreams,
            is_directory: false,
            facts: SourceFacts::default(),
        };
        return Ok(found.into());
    }
    let Some(pattern) = NamePattern::of(source)? else {
        return Ok(examine_source(ctx, source).await?.into());
    };
    let id = source.storage_id();
    let mut request = ctx.request(&id);
    loop {
        let mut session = request.session().await?;
        let expanded = expand_pattern(&mut *session, source, &pattern).await;
        let found = with_times(ctx, source, &mut *session, expanded).await;
        if let Some(found) = request.end(session, found).await? {
            return Ok(found);
        }
    }
}

/// Asks for the times of matched files that a listing does not show exactly, if copies keep them.
async fn with_times(
    ctx: &BatchContext,
    source: &Location,
    storage: &mut dyn Storage,
    expanded: Result<ExpandedSource, Failure>,
) -> Result<ExpandedSource, Failure> {
    let mut expanded = expanded?;
    if ctx.options.file.preserve.times == PreservedTimes::None {
        return Ok(expanded);
    }
    let found = expanded.found.iter_mut();
    let mut timeless: Vec<_> = found
        .filter(|found| !found.is_directory && found.facts.modified.is_none())
        .collect();
    let paths: Vec<_> = timeless
        .iter()
        .map(|found| found.location.path().to_vec())
        .collect();
    let id = source.storage_id();
    let may_go_ahead = ctx.pool.series_lead(&id) > CommandLead::Lockstep;
    let answered = storage.modification_times(&paths, may_go_ahead).await;
    if answered.is_err() {
        // Perhaps a server that discards commands ahead: it gets none from now on.
        ctx.pool.limit_series_lead(&id, CommandLead::Lockstep);
    }
    let times = answered?;
    for (found, time) in timeless.iter_mut().zip(times) {
        found.facts.modified = time;
    }
    Ok(expanded)
}

/// The source that an argument names exactly, whatever pattern its name looks like.
pub(crate) async fn examine_source(
    ctx: &BatchContext,
    source: &Location,
) -> Result<FoundSource, Failure> {
    let path = trim_trailing_slashes(source.path());
    let entry = ctx.stat_to_read(&source.storage_id(), path).await?;
    found_source(source, &entry)
}

fn found_source(at: &Location, entry: &ListedEntry) -> Result<FoundSource, Failure> {
    if entry.kind == EntryKind::SymLink {
        let reason = "dangling symbolic link";
        return Err(Failure::about(FailureKind::NotFound, at.display(), reason));
    }
    Ok(FoundSource {
        location: at.clone(),
        is_directory: is_directory(entry),
        facts: SourceFacts::from_entry(entry),
    })
}

/// Expands a pattern. The shell has already expanded patterns of local paths; this is for remote
/// paths and for callers without a shell. A file whose name equals the pattern takes precedence. A name without wildcards
/// in braces must exist. What is known of a directory is used, also if there may be more in it.
async fn expand_pattern(
    storage: &mut dyn Storage,
    source: &Location,
    pattern: &NamePattern,
) -> Result<ExpandedSource, Failure> {
    // Only where a lookup costs no round trip: a file may be named like the pattern.
    let path = trim_trailing_slashes(source.path());
    if storage.capabilities().rtt.is_zero()
        && let Ok(entry) = storage.stat(path).await
        && let Ok(found) = found_source(source, &entry)
    {
        return Ok(found.into());
    }
    let start = path.iter().rposition(|b| *b == b'/').map_or(0, |i| i + 1);
    let parent = &path[..start];
    let directory = match parent {
        b"" => b".",
        parent => trim_trailing_slashes(parent),
    };
    let listed = CollectedEntries::of(storage, directory, SymlinkCheckScope::Directories).await?;
    let (mut entries, mut incomplete) = listed.into_usable_parts();
    let is_named = pattern.select(&mut entries);
    // The exact name is all that is asked for.
    if is_named {
        incomplete = None;
    }
    let mut expanded = ExpandedSource::default();
    // Servers list in any order; the order of the copies should not depend on it.
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in &entries {
        let location = source.with_path(join_path(parent, &entry.name));
        add_match(storage, location, entry, &mut expanded).await?;
    }
    if !is_named && let Some(name) = pattern.missing_name(&entries) {
        let name = source.with_path(join_path(parent, name));
        let reason = "no such file or directory";
        let missing = Failure::about(FailureKind::NotFound, name.display(), reason);
        return Err(incomplete.unwrap_or(missing));
    }
    if expanded.found.is_empty() && expanded.failed.is_empty() {
        let reason = "nothing matches";
        let nothing = Failure::about(FailureKind::NotFound, source.display(), reason);
        return Err(incomplete.unwrap_or(nothing));
    }
    let incomplete = incomplete.map(|failure| (source.clone(), failure));
    expanded.failed.extend(incomplete);
    Ok(expanded)
}

/// Adds an entry that is named or matched. Links are followed, as a shell's arguments are.
async fn add_match(
    storage: &mut dyn Storage,
    location: Location,
    entry: &ListedEntry,
    expanded: &mut ExpandedSource,
) -> Result<(), Failure> {
    let target = match entry.kind {
        EntryKind::SymLink => match storage.stat(location.path()).await {
            Ok(target) => target,
            Err(failure) if failure.may_retry() => return Err(failure),
            Err(failure) if failure.is_missing() => entry.clone(),
            Err(failure) => {
                expanded.failed.push((location, failure));
                return Ok(());
            }
        },
        _ => entry.clone(),
    };
    match target.kind {
        EntryKind::SymLink => expanded.skipped.push((location, DANGLING_LINK)),
        EntryKind::Other => expanded.skipped.push((location, NO_REGULAR_FILE)),
        _ => expanded.found.push(FoundSource {
            location,
            is_directory: is_directory(&target),
            facts: SourceFacts::from_entry(&target),
        }),
    }
    Ok(())
}
