//! The run of a batch: its files are planned, copied several at a time over pooled sessions, and summed up.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::batch::BatchContext;
use crate::batch::path_advice::ExpectedTransfers;
use crate::batch::totals::BatchTotals;
use crate::events::{CopyEvent, CopyObserver, CopySummary};
use crate::file::preserve;
use crate::options::CopyOptions;
use crate::plan;
use ftp::Failure;
use ftp::location::Location;

mod abandoned;
mod done_marks;
mod dry_run;
pub(crate) mod ending;
pub(crate) mod execute;
mod failed_list;
mod hard_links;
mod journal_place;
mod pair_listing;
mod progress;
mod receipt;
pub(crate) mod records;
pub(crate) mod request;
pub(crate) mod sums;
mod workers;

use failed_list::FailedList;
pub use pair_listing::copy_pairs;
use records::BatchRecords;

/// Copies sources (paths, URLs, `-`; globs in the last component) to a destination. Two remote ends
/// make a third-party transfer. Returns `Exit::Done` only if every byte arrived and was verified as
/// requested. Dropping the future, or [`CopyOptions::interrupt`], stops everything and leaves only partial files with a
/// recognisable name and their journals.
pub async fn copy(
    sources: &[String],
    destination: &str,
    options: &CopyOptions,
    observer: Arc<dyn CopyObserver>,
) -> CopySummary {
    let started = Instant::now();
    let totals = Arc::new(Mutex::new(BatchTotals::new(
        options.streams.transfer.buffers,
    )));
    // On the heap, here and below: together these futures are large.
    let copying = plan_and_execute(sources, destination, options, &observer, &totals);
    let source = || display_argument(sources.first().map_or("", String::as_str));
    ending::run_to_end(Box::pin(copying), source, options, &observer, &totals).await;
    ending::summary(&totals, options, started.elapsed())
}

/// The locations of arguments, whose servers may be used with the options' security.
pub(crate) fn secured_locations(
    sources: &[String],
    destination: &str,
    options: &CopyOptions,
) -> Result<(Vec<Location>, Location), Failure> {
    let parse = |text: &str| Location::parse_secured(text, &options.security);
    let parsed: Result<Vec<_>, _> = sources.iter().map(|source| parse(source)).collect();
    let (sources, destination) = (parsed?, parse(destination)?);
    let locations = sources.iter().chain([&destination]);
    let servers: Vec<_> = locations.filter_map(Location::server).collect();
    options.security.check_use(&servers)?;
    Ok((sources, destination))
}

/// An argument as shown to people. An argument that cannot be parsed is not shown, because it may
/// hold a password.
pub(crate) fn display_argument(argument: &str) -> String {
    Location::parse(argument).map_or_else(|_| "arguments".to_owned(), |at| at.display())
}

async fn plan_and_execute(
    sources: &[String],
    destination: &str,
    options: &CopyOptions,
    observer: &Arc<dyn CopyObserver>,
    totals: &Arc<Mutex<BatchTotals>>,
) -> Result<(), Failure> {
    if sources.is_empty() {
        return Err(Failure::usage("there is nothing to copy: name a source"));
    }
    let (sources, destination) = secured_locations(sources, destination, options)?;
    request::check_copy(&sources, &destination, options)?;
    let ctx = BatchContext::new(options.clone(), Arc::clone(observer))?;
    let ends: Vec<&Location> = sources.iter().collect();
    request::check_rate_limit(&ctx, &ends, &destination)?;
    let expected = ExpectedTransfers::between(&ends, &destination);
    ctx.advice.expect(expected);
    ctx.warn_of_netrc();
    let records = BatchRecords::create(&ctx.options, &destination)?;
    let ctx = Arc::new(ctx);
    let result = Box::pin(copy_arguments(
        &ctx,
        &sources,
        &destination,
        &records,
        totals,
    ))
    .await;
    ctx.pool.close().await;
    result?;
    let failed = totals.lock().failed();
    records.finish(&ctx.options, failed)
}

/// Lists and copies. A copy of one tree begins while the tree is still listed.
async fn copy_arguments(
    ctx: &Arc<BatchContext>,
    sources: &[Location],
    destination: &Location,
    records: &Arc<BatchRecords>,
    totals: &Arc<Mutex<BatchTotals>>,
) -> Result<(), Failure> {
    sources.iter().for_each(|source| ctx.name_source(source));
    let opening = journal_place::JournalOpening::of_copy(ctx, sources, destination);
    // A complete listing of an earlier run needs neither arguments nor listings to be looked at.
    let earlier = opening.open_earlier(ctx).await?.map(Arc::new);
    if records.sums.is_some() && earlier.as_ref().is_some_and(|plan| plan.has_done_files()) {
        return Err(Failure::usage(
            "--write-sums needs a complete run, and an earlier one has copied some of the files: leave out \
                       --resume, or repeat the command without --write-sums and use longhaul cksum",
        ));
    }
    let noted = earlier.as_ref().and_then(|plan| plan.noted_destination());
    if let Some(plan) = earlier.as_ref().filter(|plan| plan.has_complete_listing()) {
        if let Some(kind) = noted {
            plan::PlannedDestination::from_number(kind, destination).name(ctx);
        }
        for (source, destination) in plan.earlier_trees() {
            ctx.name_tree(&source, &destination);
        }
        let _failed_list = FailedList::of(ctx, plan);
        report_size(ctx, plan);
        let root = match (sources, plan.earlier_trees().as_slice()) {
            ([_], [(_, tree)]) => Some(tree.clone()),
            _ => None,
        };
        Box::pin(execute::execute(ctx, plan, root, records, totals)).await?;
        records.add_earlier(ctx, plan).await?;
        preserve::finish_directories(ctx, plan).await;
        return Ok(());
    }
    let outline = plan::PlanOutline::examine(ctx, sources, destination, noted).await?;
    let is_part = ctx.options.file.offset.is_some() || ctx.options.file.length.is_some();
    if is_part && outline.is_many() {
        return Err(Failure::usage("--offset and --length are for one file"));
    }
    let plan = match earlier {
        Some(plan) => plan,
        None => Arc::new(opening.open_new(ctx, outline.is_many()).await?),
    };
    plan.note_destination(outline.destination_number());
    let _failed_list = FailedList::of(ctx, &plan);
    let streams = !outline.needs_whole_listing();
    let filler = Arc::new(plan::PlanFiller::new(ctx, &plan, totals, streams));
    let root = outline.root();
    let mut listing = Box::pin(plan::list_sources(&filler, outline));
    let mut copying = Box::pin(execute::execute(ctx, &plan, root, records, totals));
    if streams {
        // Nothing need be listed that cannot be copied.
        tokio::select! {
            () = &mut listing => copying.await?,
            copied = &mut copying => {
                copied?;
                listing.await;
            }
        }
    } else {
        listing.await;
        if let Err(failure) = plan::check_conflicts(&plan, &ctx.trees) {
            plan.remove_journal();
            totals.lock().batch_refused(&failure);
            return Err(failure);
        }
        // Not before the check: a run that ends in between is followed by one that lists and checks.
        filler.accept();
        copying.await?;
    }
    records.add_earlier(ctx, &plan).await?;
    preserve::finish_directories(ctx, &plan).await;
    Ok(())
}

pub(crate) fn report_size(ctx: &BatchContext, plan: &plan::CopyPlan) {
    let (files, bytes) = plan.size();
    ctx.observer.on_event(CopyEvent::Planned { files, bytes });
}

#[cfg(test)]
pub(crate) mod tests;
