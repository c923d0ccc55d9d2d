//! A batch of files: planned, copied several at a time over pooled sessions, summed up.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use data::rate::RateLimit;
use data::store::file::FileSink;
use tokio::time::MissedTickBehavior;

use crate::credentials::netrc_warning;
use crate::local_name::directory_of;
use crate::local_trees::LocalTrees;
use crate::location::Location;
use crate::partial::PartialFile;
use crate::session::ListingUse;
use crate::storage::StorageAccess;
use crate::trace::TraceFile;
use crate::{CopyEvent, CopyFailure, CopyObserver, CopyOptions, CopySummary};

mod abandoned;
mod attempt_watch;
pub(crate) mod batch_journal;
mod block_proof;
mod bundle;
mod checksums;
mod copying;
mod decisions;
mod destination;
mod destination_state;
mod disk;
mod done_marks;
mod download;
mod ending;
mod execute;
mod failed_list;
mod failure_cause;
mod file;
mod hard_links;
pub(crate) mod journal_place;
mod leftovers;
mod measurement;
mod meter;
mod named_places;
mod outages;
mod pair_listing;
pub(crate) mod pairs;
mod path_advice;
mod path_knowledge;
mod path_memory;
pub(crate) mod plan;
pub(crate) mod pool;
mod preserve;
mod progress;
mod relay;
mod renames;
mod request;
mod resume;
mod retrying;
mod room;
mod session_plan;
pub(crate) mod side_files;
mod stall;
mod stream_plan;
mod sums;
mod sync;
mod totals;
mod upload;
mod work;
mod workers;
mod wrong_ranges;

use failed_list::FailedList;
use measurement::TransferMeasurement;
use meter::BatchMeter;
pub(crate) use pair_listing::copy_pairs;
use path_advice::AdviceQuestions;
use plan::PlannedFile;
use pool::StorageSessionPool;
use renames::KnownRenames;
use sums::BatchSums;
pub(crate) use sync::sync;
use totals::BatchTotals;

/// First and longest interval between two checks whether another copy has released a destination.
const FIRST_BUSY_POLL: Duration = Duration::from_millis(100);
const MAX_BUSY_POLL: Duration = Duration::from_secs(5);

/// State shared by all files of a batch.
pub(crate) struct BatchContext {
    pub(crate) options: CopyOptions,
    pub(crate) observer: Arc<dyn CopyObserver>,
    pub(crate) pool: Arc<StorageSessionPool>,
    /// The local directories that the command names.
    pub(crate) trees: Arc<LocalTrees>,
    meter: Arc<BatchMeter>,
    renames: KnownRenames,
    trace: Option<TraceFile>,
    /// Seed for the jitter of retry delays.
    seed: u64,
    started: Instant,
    given_warnings: Mutex<HashSet<String>>,
    advice: AdviceQuestions,
    sums: Option<BatchSums>,
}

impl BatchContext {
    pub(crate) fn new(
        options: CopyOptions,
        observer: Arc<dyn CopyObserver>,
    ) -> Result<Self, CopyFailure> {
        Self::for_use(ListingUse::Reading, options, observer)
    }

    /// A batch that uses listings so.
    fn for_use(
        listing_use: ListingUse,
        options: CopyOptions,
        observer: Arc<dyn CopyObserver>,
    ) -> Result<Self, CopyFailure> {
        let trace = options
            .trace
            .as_deref()
            .map(TraceFile::create)
            .transpose()?;
        let trees = Arc::new(LocalTrees::default());
        Ok(Self {
            pool: Arc::new(StorageSessionPool::new(StorageAccess {
                timeout: options.transfer.stall,
                foreign_data: options.allow_foreign_data,
                listing_use,
                sync_policy: options.sync_policy,
                trees: Arc::clone(&trees),
            })),
            trees,
            meter: Arc::default(),
            renames: KnownRenames::default(),
            trace,
            // Jitter differs between processes, so that copies that lost the same server do not
            // reconnect in step.
            seed: RandomState::new().hash_one(std::process::id()),
            started: Instant::now(),
            given_warnings: Mutex::default(),
            advice: AdviceQuestions::new(options.advice.clone()),
            sums: None,
            options,
            observer,
        })
    }

    /// Begins a batch of any kind: warnings of ~/.netrc, and the limit of the rate.
    fn begin_totals(&self, totals: &Mutex<BatchTotals>) {
        if let Some(problem) = netrc_warning() {
            self.warn(problem.to_owned());
        }
        let rate = self.options.transfer.rate.as_ref();
        lock(totals).set_rate_limit(rate.map(RateLimit::rate));
    }

    /// Opens the checksum file that the options ask for. Names in it are relative to `top`.
    pub(crate) fn writing_sums(self, top: &Location) -> Result<Self, CopyFailure> {
        let sums = BatchSums::create(&self.options, top)?;
        Ok(Self { sums, ..self })
    }

    /// Takes the exclusive lock of a local partial file. Warns once where the file system has no
    /// locks.
    fn lock_partial_file(&self, partial: &PartialFile) -> Result<Arc<FileSink>, CopyFailure> {
        let locked = partial.lock(self.options.sync_policy)?;
        if !locked.has_lock {
            let directory = directory_of(partial.destination.path());
            self.warn(format!(
                "{}: this file system has no locks, so nothing prevents another copy from \
                 writing the same file at the same time",
                directory.display()
            ));
        }
        if locked.was_foreign {
            self.warn(format!(
                "{} was discarded: others could read or write it (a file that a copy leaves belongs to its user, has mode \
                 0600 and one name)",
                partial.name.path().display()
            ));
        }
        Ok(locked.sink)
    }

    /// Waits before the next check whether another copy has released the file, longer each time.
    async fn wait_for_other_copy(&self, failure: &CopyFailure, waited: u32) {
        // The advice is to use --wait, which the user already follows.
        self.warn(format!("{}; waiting", failure.reason()));
        let pause = FIRST_BUSY_POLL * 2_u32.saturating_pow(waited);
        tokio::time::sleep(pause.min(MAX_BUSY_POLL)).await;
    }

    /// Reports that a file's transfer begins. `resumed` bytes are safe already.
    fn report_started(&self, item: &PlannedFile, bytes: Option<u64>, resumed: u64) {
        self.observer.on_event(CopyEvent::Started {
            source: item.source.display(),
            destination: item.destination.display(),
            bytes,
            resumed,
        });
    }

    /// Warns the user. Equal texts are reported once.
    pub(crate) fn warn(&self, text: String) {
        if lock(&self.given_warnings).insert(text.clone()) {
            self.observer.on_event(CopyEvent::Warning(text));
        }
    }

    fn warn_all(&self, texts: Vec<String>) {
        for text in texts {
            self.warn(text);
        }
    }
}

/// Result of a file that did not fail.
#[derive(Debug)]
enum FileOutcome {
    /// Complete and verified as requested.
    Done {
        /// Bytes moved in this run.
        bytes: u64,
        /// Name of the comparison that was made.
        verified: String,
        /// Measurements of the last attempt.
        measured: Option<Box<TransferMeasurement>>,
    },
    /// The destination existed and was left alone.
    Kept,
}

impl FileOutcome {
    fn done(bytes: u64, verified: String, measured: Option<TransferMeasurement>) -> Self {
        Self::Done {
            bytes,
            verified,
            measured: measured.map(Box::new),
        }
    }
}

/// Implementation of [`crate::copy`].
pub(crate) async fn copy(
    sources: &[String],
    destination: &str,
    options: &CopyOptions,
    observer: Arc<dyn CopyObserver>,
) -> CopySummary {
    let started = Instant::now();
    let totals = Arc::new(Mutex::new(BatchTotals::new(options.transfer.buffers)));
    // On the heap, here and below: together these futures are large.
    let copying = plan_and_execute(sources, destination, options, &observer, &totals);
    let source = || display_argument(sources.first().map_or("", String::as_str));
    ending::run_to_end(Box::pin(copying), source, (options, &observer), &totals).await;
    ending::summary(&totals, options, started.elapsed())
}

/// The locations of arguments, whose servers may be used with the options' security.
fn secured_locations(
    sources: &[String],
    destination: &str,
    options: &CopyOptions,
) -> Result<(Vec<Location>, Location), CopyFailure> {
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
fn display_argument(argument: &str) -> String {
    Location::parse(argument).map_or_else(|_| "arguments".to_owned(), |at| at.display())
}

async fn plan_and_execute(
    sources: &[String],
    destination: &str,
    options: &CopyOptions,
    observer: &Arc<dyn CopyObserver>,
    totals: &Arc<Mutex<BatchTotals>>,
) -> Result<(), CopyFailure> {
    if sources.is_empty() {
        return Err(CopyFailure::usage(
            "there is nothing to copy: name a source",
        ));
    }
    let (sources, destination) = secured_locations(sources, destination, options)?;
    request::check_copy(&sources, &destination, options)?;
    let ctx = BatchContext::new(options.clone(), Arc::clone(observer))?;
    let ends: Vec<&Location> = sources.iter().collect();
    request::check_rate_limit(&ctx, &ends, &destination)?;
    ctx.begin_totals(totals);
    let ctx = Arc::new(ctx.writing_sums(&destination)?);
    let result = Box::pin(copy_arguments(&ctx, &sources, &destination, totals)).await;
    ctx.pool.close().await;
    result?;
    sums::finish(&ctx)
}

/// Lists and copies. A copy of one tree begins while the tree is still listed.
async fn copy_arguments(
    ctx: &Arc<BatchContext>,
    sources: &[Location],
    destination: &Location,
    totals: &Arc<Mutex<BatchTotals>>,
) -> Result<(), CopyFailure> {
    sources.iter().for_each(|source| ctx.name_source(source));
    let opening = journal_place::JournalOpening::of_copy(ctx, sources, destination);
    // A complete listing of an earlier run needs neither arguments nor listings to be looked at.
    let earlier = opening.open_earlier(ctx).await?.map(Arc::new);
    if ctx.sums.is_some() && earlier.as_ref().is_some_and(|plan| plan.has_done_files()) {
        return Err(CopyFailure::usage(
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
        Box::pin(execute::execute(ctx, plan, totals)).await;
        preserve::finish_directories(ctx, plan).await;
        return Ok(());
    }
    let outline = plan::PlanOutline::examine(ctx, sources, destination, noted).await?;
    let is_part = ctx.options.offset.is_some() || ctx.options.length.is_some();
    if is_part && outline.is_many() {
        return Err(CopyFailure::usage("--offset and --length are for one file"));
    }
    let plan = match earlier {
        Some(plan) => plan,
        None => Arc::new(opening.open_new(ctx, outline.is_many()).await?),
    };
    plan.note_destination(outline.destination_number());
    let _failed_list = FailedList::of(ctx, &plan);
    let streams = !outline.may_conflict();
    let filler = Arc::new(plan::PlanFiller::new(ctx, &plan, totals, streams));
    let listing = Box::pin(plan::list_sources(&filler, outline));
    let copying = Box::pin(execute::execute(ctx, &plan, totals));
    if streams {
        tokio::join!(listing, copying);
    } else {
        listing.await;
        if let Err(failure) = plan::check_conflicts(&plan, &ctx.trees) {
            plan.remove_journal();
            lock(totals).batch_refused(&failure);
            return Err(failure);
        }
        // Not before the check: a run that ends in between is followed by one that lists and checks.
        filler.accept();
        copying.await;
    }
    preserve::finish_directories(ctx, &plan).await;
    Ok(())
}

fn report_size(ctx: &BatchContext, plan: &plan::CopyPlan) {
    let (files, bytes) = plan.size();
    ctx.observer.on_event(CopyEvent::Planned { files, bytes });
}

/// Runs `side` beside `main`. `side` is dropped when `main` fails and awaited when it succeeds.
async fn run_with_side_task<T, S>(
    main: impl Future<Output = Result<T, CopyFailure>>,
    side: impl Future<Output = S>,
) -> Result<(T, S), CopyFailure> {
    tokio::pin!(main, side);
    // `biased`: when both are ready, a failure of `main` takes precedence.
    tokio::select! {
        biased;
        main_result = &mut main => Ok((main_result?, side.await)),
        side_result = &mut side => Ok((main.await?, side_result)),
    }
}

/// The data is consistent after every statement, so a poisoned lock is still usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A timer that does not catch up on missed ticks.
fn periodic_timer(period: Duration) -> tokio::time::Interval {
    let mut timer = tokio::time::interval(period);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    timer.reset();
    timer
}

#[cfg(test)]
pub(crate) mod tests;
