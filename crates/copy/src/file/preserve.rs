//! `--preserve` and `--sparse`: permissions of files and directories, times of directories, holes of files.
//!
//! A file of this machine has them before it has its name. At a server they are set afterwards, for many files at a time.
//! Directories come last, deepest first: storing a file changes the time of its directory, and a directory may be
//! read-only. None of this fails a copy, whose bytes are in place; the user is told once for each storage.

use data::store::Source;
use data::store::file::FileSink;
use data::store::holes::{HoleChoice, has_holes};

use crate::batch::BatchContext;
use crate::options::{Preserve, PreservedTimes, SparseFiles};
use crate::plan::{CopyPlan, NextEntry, PlanReader, PlannedEntry, PlannedFile};
use ftp::Failure;
use ftp::answers::{KeptMetadata, MetadataChange, SourceFacts};
use ftp::location::{Location, StorageId};

/// The permission bits that are kept. Whoever trusts a program to run under another identity (setuid, setgid) trusts
/// its owner, which a copy does not keep.
const PERMISSION_BITS: u32 = 0o777;

/// Most directories whose changes are sent together.
const MAX_CHANGES: usize = 1000;

/// The metadata that a copy of a file takes from its source.
pub(crate) fn kept_of_file(preserve: Preserve, facts: SourceFacts) -> KeptMetadata {
    KeptMetadata {
        modified: facts
            .modified
            .filter(|_| preserve.times != PreservedTimes::None),
        mode: permissions(preserve, facts),
    }
}

fn permissions(preserve: Preserve, facts: SourceFacts) -> Option<u32> {
    let mode = facts.mode.filter(|_| preserve.modes);
    mode.map(|mode| mode & PERMISSION_BITS)
}

/// `--sparse`: which zeros of a file that is written on this machine become holes. `source`: the open source, if it is on
/// this machine, too.
pub(crate) fn leave_holes(sparse: SparseFiles, source: Option<&dyn Source>, sink: &FileSink) {
    let source_has_holes = || source.and_then(Source::fd).is_some_and(has_holes);
    match sparse {
        SparseFiles::Always => sink.leave_holes(HoleChoice::All),
        SparseFiles::Auto if source_has_holes() => sink.leave_holes(HoleChoice::KeepThoseOfSource),
        SparseFiles::Auto | SparseFiles::Never => {}
    }
}

/// After files are complete: sets the permissions of those at a server.
pub(crate) async fn finish_files(ctx: &BatchContext, files: &[&PlannedFile]) {
    if ctx.options.tree.recursive && ctx.options.file.preserve.times != PreservedTimes::None {
        warn_of_unknown(ctx, files, "times", |facts| facts.modified.is_none());
    }
    if !ctx.options.file.preserve.modes {
        return;
    }
    let stored = files
        .iter()
        .filter(|file| file.destination.storage_id().is_server());
    let changes = stored.map(|file| {
        let kept = KeptMetadata {
            // It was set with the name.
            modified: None,
            mode: permissions(ctx.options.file.preserve, file.facts),
        };
        (&file.destination, kept)
    });
    warn_of_unknown(ctx, files, "permissions", |facts| facts.mode.is_none());
    change_each(ctx, changes).await;
}

/// Whether directories keep anything of their sources.
pub(crate) fn is_for_directories(preserve: Preserve) -> bool {
    keeps_directory_times(preserve) || preserve.modes
}

fn keeps_directory_times(preserve: Preserve) -> bool {
    preserve.times == PreservedTimes::FilesAndDirectories
}

/// Sets permissions and times of the directories of a plan.
pub(crate) async fn finish_directories(ctx: &BatchContext, plan: &CopyPlan) {
    if ctx.options.dry_run || !is_for_directories(ctx.options.file.preserve) {
        return;
    }
    let with_times = keeps_directory_times(ctx.options.file.preserve);
    let mut directories: Vec<(Location, SourceFacts)> = Vec::new();
    let mut reader = PlanReader::of_all(plan);
    loop {
        match reader.next(plan) {
            Ok(NextEntry::Entry(PlannedEntry::Directory { at, facts, .. })) => {
                directories.push((at, facts));
            }
            Ok(NextEntry::Entry(_)) => {}
            Ok(NextEntry::Pending | NextEntry::End) => break,
            Err(error) => return ctx.warn(format!("directories keep nothing: {error}")),
        }
    }
    // A path is greater than those that it begins with.
    directories.sort_by(|(a, _), (b, _)| b.path().cmp(a.path()));
    let changes = directories.iter().map(|(at, facts)| {
        let kept = KeptMetadata {
            modified: facts.modified.filter(|_| with_times),
            mode: permissions(ctx.options.file.preserve, *facts),
        };
        (at, kept)
    });
    change_each(ctx, changes).await;
}

/// Makes changes, each at its storage, in their order.
async fn change_each<'l>(
    ctx: &BatchContext,
    changes: impl Iterator<Item = (&'l Location, KeptMetadata)>,
) {
    // A copy has few storages.
    let mut of_storages = Vec::<(StorageId, Vec<MetadataChange<'l>>)>::new();
    for (at, kept) in changes.filter(|(_, kept)| *kept != KeptMetadata::default()) {
        let path = crate::plan::trim_trailing_slashes(at.path());
        let (id, change) = (at.storage_id(), MetadataChange { path, kept });
        match of_storages.iter_mut().find(|(known, _)| *known == id) {
            Some((_, changes)) => changes.push(change),
            None => of_storages.push((id, vec![change])),
        }
    }
    for (id, changes) in &of_storages {
        for changes in changes.chunks(MAX_CHANGES) {
            change(ctx, id, changes).await;
        }
    }
}

/// Makes changes at one storage.
async fn change(ctx: &BatchContext, id: &StorageId, changes: &[MetadataChange<'_>]) {
    match set(ctx, id, changes).await {
        Ok(set) if set.iter().all(|set| *set) => {}
        Ok(_) => ctx.warn(format!(
            "{id} did not take all permissions and times; the files themselves are complete"
        )),
        Err(failure) => ctx.warn(format!(
            "permissions and times are not kept: {}; the files themselves are complete",
            failure
        )),
    }
}

async fn set(
    ctx: &BatchContext,
    id: &StorageId,
    changes: &[MetadataChange<'_>],
) -> Result<Vec<bool>, Failure> {
    let mut request = ctx.request(id);
    loop {
        let mut session = request.session().await?;
        let set = session.set_metadata(changes).await;
        if let Some(set) = request.end(session, set).await? {
            return Ok(set);
        }
    }
}

/// Warns of a server that does not tell something of its files (`what`).
fn warn_of_unknown(
    ctx: &BatchContext,
    files: &[&PlannedFile],
    what: &str,
    is_unknown: impl Fn(SourceFacts) -> bool,
) {
    let unknown = files.iter().find(|file| is_unknown(file.facts));
    let server = unknown.map(|file| file.source.storage_id());
    if let Some(id) = server.filter(StorageId::is_server) {
        ctx.warn(format!(
            "{id} does not tell the {what} of its files: they are not kept"
        ));
    }
}
