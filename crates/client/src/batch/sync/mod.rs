//! `longhaul sync`: makes one tree like another. Both are listed, the difference becomes a plan that the copy engine
//! carries out, and what the source does not have is deleted last.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use proto::checksum::ChecksumAlgorithm;

use super::plan::{
    CopyPlan, check_conflicts, is_directory, is_inside, join_location, keep_hard_links, select,
};
use super::totals::BatchTotals;
use super::{BatchContext, execute, lock, preserve, secured_locations, sums};
use crate::answers::SourceFacts;
use crate::location::Location;
use crate::partial::is_unfinished;
use crate::storage::contract::Storage;
use crate::tree::DirectoryTree;
use crate::{
    CopyEvent, CopyFailure, CopyObserver, CopySummary, Exit, PreservedTimes, SymlinkPolicy,
    SyncOptions,
};

mod difference;

use difference::{TreeDifference, is_same_by_time};

/// Implementation of [`crate::sync`].
pub(crate) async fn sync(
    source: &str,
    destination: &str,
    options: &SyncOptions,
    observer: Arc<dyn CopyObserver>,
) -> CopySummary {
    let started = Instant::now();
    let buffers = options.copy.transfer.buffers;
    let totals = Arc::new(Mutex::new(BatchTotals::new(buffers)));
    let result = sync_trees(source, destination, options, &observer, &totals).await;
    if let Err(failure) = result {
        let shown = super::display_argument(source);
        execute::report_failure(&observer, &totals, shown, failure);
    }
    super::summary(&totals, &options.copy, started.elapsed())
}

async fn sync_trees(
    source: &str,
    destination: &str,
    options: &SyncOptions,
    observer: &Arc<dyn CopyObserver>,
    totals: &Arc<Mutex<BatchTotals>>,
) -> Result<(), CopyFailure> {
    let sources = [source.to_owned()];
    let (sources, to) = secured_locations(&sources, destination, &options.copy)?;
    let [from] = sources.as_slice() else {
        return Err(usage("sync takes one source".to_owned()));
    };
    if [from, &to].contains(&&Location::StandardStreams) {
        return Err(usage(
            "sync takes two directories, not standard input or output".to_owned(),
        ));
    }
    if is_inside(from, &to) || is_inside(&to, from) {
        let (from, to) = (from.display(), to.display());
        return Err(usage(format!("{from} and {to} contain one another")));
    }
    let ctx = BatchContext::new(options.copy.clone(), Arc::clone(observer))?;
    let ctx = Arc::new(ctx.writing_sums(&to)?);
    // Both at the same time: they are usually on different machines.
    let (source, destination) =
        tokio::try_join!(list_source(&ctx, from), list_destination(&ctx, &to))?;
    let source = keep_hard_links(&ctx, (from, &to), source);
    let source_is_whole = source.failed.is_empty();
    let mut difference = TreeDifference::between(&source, destination.as_ref());
    compare_content(&ctx, options, (from, &to), &mut difference).await?;
    let unchanged = sums::unchanged(&ctx, &source.files, &difference.to_copy);
    let earlier_sums = sums::earlier(&ctx)?;
    let has_files = !(source.files.is_empty() && source.links.is_empty());
    let extras = match (options.delete, destination) {
        (true, Some(destination)) => Extras::of(&ctx, &source, &destination),
        _ => Extras::default(),
    };
    let mut plan = plan(&ctx, (from, &to), source, difference)?;
    let directories = std::mem::take(&mut plan.directory_facts);
    execute::execute(&ctx, plan, totals).await;
    let may_delete = source_is_whole && has_files && !lock(totals).has_failures();
    let result = match extras.paths.is_empty() || may_delete {
        true => delete_extras(&ctx, &to, extras, totals).await,
        false => Err(CopyFailure::new(
            Exit::Refused,
            format!(
                "nothing was deleted at {}: {}",
                to.display(),
                match (source_is_whole, has_files) {
                    (false, _) => "a part of the source could not be listed",
                    (_, false) => "the source has no files; if that is right, use rm -r",
                    _ => "some files could not be copied",
                }
            ),
        )),
    };
    // Last: deletions change the times of directories.
    preserve::finish_directories(&ctx, directories).await;
    sums::add_unchanged(&ctx, (from, &to), (&unchanged, earlier_sums)).await?;
    ctx.pool.close().await;
    sums::finish(&ctx)?;
    result
}

async fn list_source(ctx: &BatchContext, at: &Location) -> Result<DirectoryTree, CopyFailure> {
    match list(ctx, at, ctx.options.symlinks).await? {
        Some(tree) => Ok(select(ctx, tree)),
        None => {
            let message = format!("{}: no such directory", at.display());
            Err(CopyFailure::new(Exit::NotFound, message))
        }
    }
}

/// `None`: there is nothing yet. Links are listed as such, so that none is followed to what it points to.
async fn list_destination(
    ctx: &BatchContext,
    at: &Location,
) -> Result<Option<DirectoryTree>, CopyFailure> {
    let links = match ctx.options.symlinks {
        SymlinkPolicy::Follow => SymlinkPolicy::Skip,
        links => links,
    };
    list(ctx, at, links).await
}

async fn list(
    ctx: &BatchContext,
    at: &Location,
    links: SymlinkPolicy,
) -> Result<Option<DirectoryTree>, CopyFailure> {
    let (id, path) = (
        at.storage_id(),
        super::plan::trim_trailing_slashes(at.path()),
    );
    let mut session = ctx.session_for_path(&id, Some(path)).await?;
    let found = match session.stat(path).await {
        Ok(entry) => Some(entry),
        Err(failure) if failure.exit == Exit::NotFound => None,
        Err(failure) => return Err(failure),
    };
    let tree = match found {
        None => None,
        Some(top) if is_directory(&top) => {
            let mut tree = DirectoryTree::walk(&mut *session, path, links).await?;
            let facts = SourceFacts::from_entry(&top);
            tree.directory_facts.insert(Vec::new(), facts);
            Some(tree)
        }
        Some(_) => {
            let message = format!(
                "{} is not a directory: sync takes two directories, cp copies files",
                at.display()
            );
            return Err(CopyFailure::new(Exit::Usage, message));
        }
    };
    ctx.pool.release(&id, session);
    Ok(tree)
}

/// Decides about the files of equal size: by time, or by checksum.
async fn compare_content(
    ctx: &BatchContext,
    options: &SyncOptions,
    (from, to): (&Location, &Location),
    difference: &mut TreeDifference,
) -> Result<(), CopyFailure> {
    let equal_sizes = std::mem::take(&mut difference.equal_sizes);
    if equal_sizes.is_empty() {
        return Ok(());
    }
    let (from_id, to_id) = (from.storage_id(), to.storage_id());
    let (mut source, mut destination) =
        tokio::try_join!(ctx.session(&from_id), ctx.session(&to_id))?;
    if options.checksum {
        let algorithm = common_algorithm(&mut *source, &mut *destination, (from, to)).await?;
        for (path, facts, _) in equal_sizes {
            let (a, b) = (join_location(from, &path), join_location(to, &path));
            let (a, b) = tokio::try_join!(
                source.checksum(algorithm, 0, None, a.path()),
                destination.checksum(algorithm, 0, None, b.path())
            )?;
            if !a.eq_ignore_ascii_case(&b) {
                difference.to_copy.push((path, facts));
            }
        }
    } else {
        let keeps_times = destination.capabilities().sets_time
            && options.copy.preserve.times != PreservedTimes::None;
        for (path, facts, there) in equal_sizes {
            if !is_same_by_time(facts, there, keeps_times) {
                difference.to_copy.push((path, facts));
            }
        }
    }
    ctx.pool.release(&from_id, source);
    ctx.pool.release(&to_id, destination);
    Ok(())
}

/// The cheapest checksum that both ends can compute of a file.
async fn common_algorithm(
    source: &mut dyn Storage,
    destination: &mut dyn Storage,
    (from, to): (&Location, &Location),
) -> Result<ChecksumAlgorithm, CopyFailure> {
    let of_source = source.available_checksums(from.path()).await?;
    let of_destination = destination.available_checksums(to.path()).await?;
    let all = ChecksumAlgorithm::CHEAPEST_FIRST.into_iter();
    let mut common = all.filter(|algorithm| {
        [&of_source, &of_destination]
            .iter()
            .all(|end| end.ranges.contains(algorithm) || end.whole_files.contains(algorithm))
    });
    common.next().ok_or_else(|| {
        let message = format!(
            "{} and {} have no checksum in common: leave out --checksum to compare sizes and times",
            source.name(),
            destination.name()
        );
        CopyFailure::new(Exit::Protocol, message)
    })
}

/// The plan of a copy of what differs, with the checks of every copied tree.
fn plan(
    ctx: &BatchContext,
    (from, to): (&Location, &Location),
    source: DirectoryTree,
    difference: TreeDifference,
) -> Result<CopyPlan, CopyFailure> {
    let mut plan = CopyPlan::default();
    let differing = DirectoryTree {
        directories: difference.missing_directories,
        files: difference.to_copy,
        links: difference.links_to_make,
        ..source
    };
    plan.add_tree_content(from, to, differing);
    check_conflicts(&plan)?;
    ctx.observer.on_event(CopyEvent::Planned {
        files: plan.items.len() as u64,
        bytes: plan.items.iter().filter_map(|item| item.facts.size).sum(),
    });
    Ok(plan)
}

/// Files and directories that the destination has and the source does not.
#[derive(Debug, Default)]
struct Extras {
    /// Relative paths; each stands for everything below it.
    paths: Vec<Vec<u8>>,
}

impl Extras {
    fn of(ctx: &BatchContext, source: &DirectoryTree, destination: &DirectoryTree) -> Self {
        let selection = &ctx.options.selection;
        let mut kept: HashSet<&[u8]> = source.directories.iter().map(Vec::as_slice).collect();
        kept.extend(source.files.iter().map(|(path, _)| path.as_slice()));
        kept.extend(source.links.iter().map(|(path, _)| path.as_slice()));
        kept.extend(source.hard_links.iter().map(|link| link.path.as_slice()));
        // Left out of the copy, but there.
        kept.extend(source.skipped.iter().map(|(path, _)| path.as_slice()));
        let mut paths: Vec<Vec<u8>> = Vec::new();
        // With a selection, a directory may hold what is not selected.
        let whole_directories = selection.selects_all() && ctx.options.files_from.is_none();
        let mut removed: HashSet<&[u8]> = HashSet::new();
        if whole_directories {
            // Parents come first.
            for directory in &destination.directories {
                let is_inside_removed =
                    super::plan::parents(directory).any(|p| removed.contains(p));
                if is_inside_removed || kept.contains(directory.as_slice()) {
                    continue;
                }
                removed.insert(directory);
                paths.push(directory.clone());
            }
        }
        let files = destination.files.iter().map(|(path, facts)| (path, *facts));
        let links = destination
            .links
            .iter()
            .map(|(path, _)| (path, SourceFacts::default()));
        for (path, facts) in files.chain(links) {
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
            let is_gone = super::plan::parents(path).any(|parent| removed.contains(parent));
            // Another copy may be writing it.
            let is_kept = kept.contains(path.as_slice()) || is_unfinished(name);
            if !is_gone && !is_kept && selection.selects(path, facts) && is_listed(ctx, path) {
                paths.push(path.clone());
            }
        }
        Self { paths }
    }
}

/// Whether `--files-from` permits to touch a path.
fn is_listed(ctx: &BatchContext, path: &[u8]) -> bool {
    match &ctx.options.files_from {
        None => true,
        Some(listed) => listed.iter().any(|wanted| wanted == path),
    }
}

async fn delete_extras(
    ctx: &BatchContext,
    to: &Location,
    extras: Extras,
    totals: &Mutex<BatchTotals>,
) -> Result<(), CopyFailure> {
    if ctx.options.dry_run {
        for path in &extras.paths {
            let path = join_location(to, path).display();
            ctx.observer.on_event(CopyEvent::WouldDelete { path });
        }
        return Ok(());
    }
    if extras.paths.is_empty() {
        return Ok(());
    }
    let id = to.storage_id();
    let mut session = ctx.session(&id).await?;
    for path in &extras.paths {
        let at = join_location(to, path);
        match session.remove_tree(at.path()).await {
            Ok(()) => {
                lock(totals).path_deleted();
                let path = at.display();
                ctx.observer.on_event(CopyEvent::Deleted { path });
            }
            Err(failure) if failure.transient => return Err(failure),
            Err(failure) => {
                execute::report_failure(&ctx.observer, totals, at.display(), failure);
            }
        }
    }
    ctx.pool.release(&id, session);
    Ok(())
}

fn usage(message: String) -> CopyFailure {
    CopyFailure::new(Exit::Usage, message)
}
