//! `longhaul sync`: makes one tree like another. The destination is listed into an index of hashes, the source is compared
//! with it while it is listed, the difference is a plan that the copy engine carries out, and extra files are deleted last.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::plan::{
    CopyPlan, PlanFiller, PlanReader, check_conflicts, is_directory, trim_trailing_slashes,
    walk_tree,
};
use crate::batch::BatchContext;
use crate::batch::path_advice::ExpectedTransfers;
use crate::batch::totals::BatchTotals;
use crate::events::{CopyObserver, CopySummary};
use crate::file::preserve;
use crate::options::PreservedTimes;
use crate::options::{SymlinkPolicy, SyncOptions};
use crate::plan::batch_journal::BatchJournal;
use crate::run::records::BatchRecords;
use crate::run::sums::BatchSums;
use crate::run::{display_argument, ending, execute, request, secured_locations};
use crate::tree::TreeVisitor;
use ftp::answers::SourceFacts;
use ftp::location::Location;
use ftp::session::ListingUse;
use ftp::{Failure, FailureKind};

mod comparison;
mod contents;
mod deletion;
mod extras;
mod index;
mod same_tree;
mod times;

use comparison::Comparison;
use contents::compare_contents;
use deletion::delete_extras;
use index::DestinationIndex;
use same_tree::SameTreeWatch;
use times::KeptTimes;

/// Makes the tree `destination` like the tree `source`: copies files that are missing or differ in size or time.
/// Trailing slashes have no meaning. Otherwise as [`copy`](crate::copy()).
pub async fn sync(
    source: &str,
    destination: &str,
    options: &SyncOptions,
    observer: Arc<dyn CopyObserver>,
) -> CopySummary {
    let started = Instant::now();
    let buffers = options.copy.streams.transfer.buffers;
    let totals = Arc::new(Mutex::new(BatchTotals::new(buffers)));
    let syncing = sync_trees(source, destination, options, &observer, &totals);
    let shown = || display_argument(source);
    let copy = (&options.copy, &observer);
    ending::run_to_end(Box::pin(syncing), shown, copy.0, copy.1, &totals).await;
    ending::summary(&totals, &options.copy, started.elapsed())
}

async fn sync_trees(
    source: &str,
    destination: &str,
    options: &SyncOptions,
    observer: &Arc<dyn CopyObserver>,
    totals: &Arc<Mutex<BatchTotals>>,
) -> Result<(), Failure> {
    let sources = [source.to_owned()];
    let (sources, to) = secured_locations(&sources, destination, &options.copy)?;
    let [from] = sources.as_slice() else {
        return Err(Failure::usage("sync takes one source".to_owned()));
    };
    request::check_sync(from, &to, &options.copy)?;
    let listing_use = match options.delete {
        true => ListingUse::Deleting,
        false => ListingUse::Reading,
    };
    let ctx = BatchContext::for_use(listing_use, options.copy.clone(), Arc::clone(observer))?;
    request::check_rate_limit(&ctx, &[from], &to)?;
    ctx.advice.expect(ExpectedTransfers::between(&[from], &to));
    ctx.warn_of_netrc();
    let records = BatchRecords::create(&ctx.options, &to)?;
    let ctx = Arc::new(ctx);
    let result = Box::pin(compare_and_copy(&ctx, options, from, &to, &records, totals)).await;
    ctx.pool.close().await;
    result
}

async fn compare_and_copy(
    ctx: &Arc<BatchContext>,
    options: &SyncOptions,
    from: &Location,
    to: &Location,
    records: &Arc<BatchRecords>,
    totals: &Arc<Mutex<BatchTotals>>,
) -> Result<(), Failure> {
    ctx.name_source(from);
    ctx.name_destination(to);
    // Both at the same time: they are usually on different machines.
    let (source, destination) =
        tokio::try_join!(directory_facts(ctx, from), directory_facts(ctx, to))?;
    let Some(source) = source else {
        let message = format!("{}: no such directory", from.display());
        return Err(Failure::new(FailureKind::NotFound, message));
    };
    let plan = Arc::new(temporary_plan(&[from, to]));
    let filler = Arc::new(PlanFiller::new(ctx, &plan, totals, false));
    let watch = SameTreeWatch::new(from, source, to, destination, options.delete)?;
    let watch = Arc::new(watch);
    let there = Arc::new(DestinationIndex::new(
        &watch,
        temporary_plan(&[to]),
        to,
        options.delete,
        !options.checksum,
    ));
    if destination.is_some() {
        let links = match ctx.options.tree.symlinks {
            // Links are listed as such, so that none is followed to what it points to.
            SymlinkPolicy::Follow => SymlinkPolicy::Skip,
            links => links,
        };
        let visitor = Arc::clone(&there) as Arc<dyn TreeVisitor>;
        walk_tree(ctx, to, links, visitor).await?;
    }
    let unlisted = there.take_unlisted();
    let destination_is_whole = unlisted.is_empty();
    for (at, failure) in unlisted {
        match options.delete {
            true => filler.report(at.display(), failure),
            // Its files are copied, whatever is there.
            false => ctx.warn(failure.to_string()),
        }
    }
    let keeps_times =
        options.copy.file.preserve.times != PreservedTimes::None && keeps_times(ctx, to).await?;
    let top = plan.add_top(from, to);
    let undecided = temporary_plan(&[from, to]);
    let comparison = Comparison::new(ctx, &filler, &there, &watch, top, undecided);
    let comparison = match options.checksum {
        true => comparison,
        false => comparison.by_time(keeps_times),
    };
    let sums = records.sums.as_ref();
    let earlier_sums = sums
        .map(BatchSums::earlier)
        .transpose()?
        .unwrap_or_default();
    let comparison = Arc::new(match sums {
        Some(_) => comparison.noting_unchanged(temporary_plan(&[from, to])),
        None => comparison,
    });
    comparison.add_top(source, destination.is_some())?;
    let visitor = Arc::clone(&comparison) as Arc<dyn TreeVisitor>;
    watch.begin(ctx).await;
    let walked = walk_tree(ctx, from, ctx.options.tree.symlinks, visitor).await;
    // Also after a failure: the marker goes.
    watch.end(ctx, &there).await?;
    walked?;
    comparison.report_missing();
    match options.checksum {
        true => compare_contents(ctx, from, to, &comparison).await?,
        false => compare_kept_times(ctx, to, &comparison).await?,
    }
    filler.end().await;
    check_conflicts(&plan, &ctx.trees)
        .inspect_err(|failure| totals.lock().batch_refused(failure))?;
    Box::pin(execute::execute(
        ctx,
        &plan,
        Some(to.clone()),
        records,
        totals,
    ))
    .await?;
    let guard = match (comparison.source_is_whole(), comparison.has_files()) {
        (false, _) => Some("a part of the source could not be listed"),
        (_, false) => Some("the source has no files; if that is right, use rm -r"),
        _ if !destination_is_whole => Some("a part of it could not be listed"),
        _ if totals.lock().has_failures() => Some("some files could not be copied"),
        _ if !watch.is_certain() => Some(
            "nothing shows that it is not the source itself: a test directory could not be made in it, or not be looked for \
             in the source",
        ),
        _ => None,
    };
    let deleted = delete_extras(ctx, to, &there, &plan, guard, totals).await;
    // Last: deletions change the times of directories.
    preserve::finish_directories(ctx, &plan).await;
    if let Some(sums) = sums {
        if let Some(unchanged) = comparison.unchanged() {
            unchanged.end(true);
            sums.add_unchanged(ctx, unchanged, &earlier_sums).await?;
        }
        sums.add_left(&plan, &earlier_sums)?;
    }
    // A sync that could not compare leaves the earlier files.
    let failed = totals.lock().failed();
    records.finish(&ctx.options, failed)?;
    deleted
}

/// A plan that is not kept.
fn temporary_plan(known: &[&Location]) -> CopyPlan {
    let known: Vec<Location> = known.iter().map(|at| (*at).clone()).collect();
    CopyPlan::in_journal(BatchJournal::unnamed(), &known)
}

/// The facts of a directory; `None` if there is nothing yet.
async fn directory_facts(
    ctx: &BatchContext,
    at: &Location,
) -> Result<Option<SourceFacts>, Failure> {
    let (id, path) = (at.storage_id(), trim_trailing_slashes(at.path()));
    match ctx.stat(&id, path).await {
        Err(failure) if failure.is_missing() => Ok(None),
        Err(failure) => Err(failure),
        Ok(entry) if is_directory(&entry) => Ok(Some(SourceFacts::from_entry(&entry))),
        Ok(_) => Err(Failure::usage(format!(
            "{} is not a directory: sync takes two directories, cp copies files",
            at.display()
        ))),
    }
}

async fn keeps_times(ctx: &BatchContext, at: &Location) -> Result<bool, Failure> {
    let id = at.storage_id();
    let session = ctx.session(&id).await?;
    let keeps_times = session.capabilities().sets_time;
    ctx.pool.release(&id, session);
    Ok(keeps_times)
}

/// Adds the files of equal size whose times differ, unless that is for the way in which the destination keeps times.
async fn compare_kept_times(
    ctx: &BatchContext,
    to: &Location,
    comparison: &Comparison,
) -> Result<(), Failure> {
    let undecided = comparison.undecided();
    undecided.end(true);
    let mut reader = PlanReader::of(undecided);
    let mut kept_times = KeptTimes::unknown(to.storage_id().is_server());
    // Files that are left alone keep their times, too.
    let may_try = !ctx.options.dry_run && !ctx.options.file.keep_existing;
    while let Some(item) = reader.next_file(undecided)? {
        let times = item.facts.modified.zip(comparison.time_there(&item));
        let is_same = match times.filter(|_| may_try) {
            None => false,
            Some((time, found)) => {
                kept_times
                    .is_same(ctx, &item.destination, time, found)
                    .await?
            }
        };
        match is_same {
            true => comparison.keep(&item)?,
            false => comparison.copy(&item),
        }
    }
    if comparison.has_unknown_times() {
        ctx.warn(
            "files of equal size were copied again, since too little is known of their times; --checksum compares contents"
                .to_owned(),
        );
    }
    Ok(())
}
