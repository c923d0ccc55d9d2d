//! Many files: planned, moved several at a time over pooled sessions, summed up.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use data::rate::RateLimit;
use data::store::file::FileSink;
use proto::listing::ListedEntry;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::answers::SourceFacts;
use crate::credentials::netrc_warning;
use crate::location::{Location, StorageId};
use crate::partial::PartialFile;
use crate::retry::RetryBudget;
use crate::storage::StorageAccess;
use crate::storage::contract::Storage;
use crate::trace::TraceFile;
use crate::{CopyEvent, CopyFailure, CopyObserver, CopyOptions, CopySummary, Exit};

mod attempt_watch;
mod block_proof;
mod checksums;
mod copying;
mod destination;
mod destination_state;
mod disk;
mod download;
mod file;
mod measurement;
mod meter;
pub(crate) mod plan;
pub(crate) mod pool;
mod progress;
mod relay;
mod resume;
mod stall;
mod stream_plan;
mod totals;
mod upload;

use measurement::TransferMeasurement;
use meter::BatchMeter;
use plan::{CopyPlan, PlannedFile};
use pool::StorageSessionPool;
use totals::BatchTotals;

/// Most files at a time.
const MAX_CONCURRENCY: usize = 64;
/// How long after the first look a file is looked at again that another copy writes; and after each of
/// many.
const TURN_FIRST: Duration = Duration::from_millis(100);
const TURN_MOST: Duration = Duration::from_secs(5);

/// What all files of a batch share.
pub(crate) struct BatchContext {
    pub(crate) options: CopyOptions,
    pub(crate) observer: Arc<dyn CopyObserver>,
    pub(crate) pool: Arc<StorageSessionPool>,
    meter: Arc<BatchMeter>,
    trace: Option<TraceFile>,
    /// For the jitter of waits.
    seed: u64,
    started: Instant,
    warned: Mutex<HashSet<String>>,
}

impl BatchContext {
    pub(crate) fn new(
        options: CopyOptions,
        observer: Arc<dyn CopyObserver>,
    ) -> Result<Self, CopyFailure> {
        let trace = options
            .trace
            .as_deref()
            .map(TraceFile::create)
            .transpose()?;
        Ok(Self {
            pool: Arc::new(StorageSessionPool::new(StorageAccess {
                timeout: options.transfer.stall,
                foreign_data: options.foreign_data,
                sync_policy: options.sync_policy,
            })),
            meter: Arc::default(),
            trace,
            seed: RandomState::new().hash_one(std::process::id()),
            started: Instant::now(),
            warned: Mutex::default(),
            options,
            observer,
        })
    }

    /// A session for planning: lost connections are tried again as for transfers.
    pub(crate) async fn session(&self, id: &StorageId) -> Result<Box<dyn Storage>, CopyFailure> {
        self.session_for(id, None).await
    }

    /// As [`BatchContext::session`], for somebody who will ask for the facts of `look_at` first.
    pub(crate) async fn session_for(
        &self,
        id: &StorageId,
        look_at: Option<&[u8]>,
    ) -> Result<Box<dyn Storage>, CopyFailure> {
        let mut retries = RetryBudget::new(self.options.retries, self.seed);
        loop {
            let failure = match self.pool.take_for(id, look_at).await {
                Ok(session) => return Ok(session),
                Err(failure) => failure,
            };
            let Some((attempt, after)) = retries.next_attempt(&failure, 0) else {
                return Err(failure);
            };
            self.observer.on_event(CopyEvent::Retrying {
                source: id.to_string(),
                reason: failure.message,
                attempt,
                after,
            });
            tokio::time::sleep(after).await;
        }
    }

    /// Makes this copy the only writer of a local file; says so once where nobody can tell.
    fn own(&self, partial: &PartialFile) -> Result<Arc<FileSink>, CopyFailure> {
        let (sink, locked) = partial.lock(self.options.sync_policy)?;
        if !locked {
            self.warn(format!(
                "{}: this file system has no locks, so that nothing stops another copy from \
                 writing the same file at the same time",
                partial
                    .destination
                    .parent()
                    .unwrap_or(&partial.destination)
                    .display()
            ));
        }
        Ok(sink)
    }

    /// Lets some time pass until a file may be free that another copy writes: longer each time.
    async fn wait_for_turn(&self, failure: &CopyFailure, waited: u32) {
        let message = failure.message.as_str();
        // The advice was taken already.
        let reason = message
            .rsplit_once("; ")
            .map_or(message, |(reason, _)| reason);
        self.warn(format!("{reason}; waiting"));
        let pause = TURN_FIRST * 2_u32.saturating_pow(waited);
        tokio::time::sleep(pause.min(TURN_MOST)).await;
    }

    /// Tells that a file's bytes begin to move; `resumed` of them are safe already.
    fn started(&self, item: &PlannedFile, bytes: Option<u64>, resumed: u64) {
        self.observer.on_event(CopyEvent::Started {
            source: item.source.display(),
            destination: item.destination.display(),
            bytes,
            resumed,
        });
    }

    /// Tells the user something, once.
    pub(crate) fn warn(&self, text: String) {
        if lock(&self.warned).insert(text.clone()) {
            self.observer.on_event(CopyEvent::Warning(text));
        }
    }

    fn warn_all(&self, texts: Vec<String>) {
        for text in texts {
            self.warn(text);
        }
    }

    /// Keeps a session that is still in order: after success, and after a refusal that left
    /// nothing running.
    fn give_back<T>(
        &self,
        id: &StorageId,
        session: Box<dyn Storage>,
        result: &Result<T, CopyFailure>,
    ) {
        let in_order = result.as_ref().err().is_none_or(|failure| {
            !failure.transient && matches!(failure.exit, Exit::NotFound | Exit::Refused)
        });
        if in_order {
            self.pool.give(id, session);
        } else if result
            .as_ref()
            .is_err_and(|f| f.transient && !f.is_occupied())
        {
            // Whatever cut this session off has probably cut the idle ones off, too.
            self.pool.forget(id);
        }
    }
}

/// How a file that did not fail ended.
#[derive(Debug)]
enum FileOutcome {
    /// In place and verified as asked.
    Done {
        /// Moved in this run.
        bytes: u64,
        /// What was compared.
        verified: String,
        /// What was seen of the last attempt.
        measured: Option<Box<TransferMeasurement>>,
    },
    /// There was something at the destination, which was left alone.
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

/// The whole of [`crate::copy`].
pub(crate) async fn copy(
    sources: &[String],
    destination: &str,
    options: &CopyOptions,
    observer: Arc<dyn CopyObserver>,
) -> CopySummary {
    let started = Instant::now();
    let tally = Arc::new(Mutex::new(BatchTotals::new(options.transfer.buffers)));
    if let Err(failure) = run(sources, destination, options, &observer, &tally).await {
        let source = sources.first().map_or("", String::as_str);
        fail(&observer, &tally, shown(source), failure);
    }
    let tally = lock(&tally);
    tally.summary(started.elapsed())
}

/// An argument for people; one that cannot be read is not shown, as it may hold a password.
fn shown(argument: &str) -> String {
    Location::parse(argument).map_or_else(|_| "arguments".to_owned(), |at| at.display())
}

async fn run(
    sources: &[String],
    destination: &str,
    options: &CopyOptions,
    observer: &Arc<dyn CopyObserver>,
    tally: &Arc<Mutex<BatchTotals>>,
) -> Result<(), CopyFailure> {
    if sources.is_empty() {
        return Err(CopyFailure::new(
            Exit::Usage,
            "there is nothing to copy: name a source",
        ));
    }
    let parsed: Result<Vec<_>, _> = sources.iter().map(|s| Location::parse(s)).collect();
    let (sources, destination) = (parsed?, Location::parse(destination)?);
    check(&sources, &destination, options)?;
    let ctx = BatchContext::new(options.clone(), Arc::clone(observer))?;
    if let Some(trouble) = netrc_warning() {
        ctx.warn(trouble.to_owned());
    }
    let plan = plan::plan(&ctx, &sources, &destination).await?;
    if plan.items.len() > 1 && (options.offset.is_some() || options.length.is_some()) {
        return Err(CopyFailure::new(
            Exit::Usage,
            "--offset and --length are for one file",
        ));
    }
    let workers = options
        .concurrency
        .clamp(1, MAX_CONCURRENCY)
        .min(plan.items.len().max(1));
    lock(tally).limit(options.transfer.rate.as_ref().map(RateLimit::rate));
    execute(&Arc::new(ctx), plan, workers, tally).await;
    Ok(())
}

/// What makes no sense whatever the files are.
fn check(
    sources: &[Location],
    destination: &Location,
    options: &CopyOptions,
) -> Result<(), CopyFailure> {
    let usage = |message: &str| Err(CopyFailure::new(Exit::Usage, message));
    if let Some(trace) = &options.trace {
        let trace = Location::Local(trace.clone());
        let mut ends = sources.iter().chain([destination]);
        if ends.any(|end| plan::same_place(&trace, end)) {
            return usage("--trace would write over a file that is to be copied: name another one");
        }
    }
    let pipes = sources
        .iter()
        .filter(|s| **s == Location::StandardStreams)
        .count();
    if pipes > 1 || (pipes == 1 && sources.len() > 1) {
        return usage("standard input cannot be one of several sources");
    }
    if pipes == 1 && *destination == Location::StandardStreams {
        return usage("standard input to standard output needs no copy");
    }
    let passes =
        |at: &Location| matches!(at, Location::Remote { server, .. } if server.scheme.is_ftp());
    if options.transfer.rate.is_some() && passes(destination) && sources.iter().any(passes) {
        return usage(
            "--limit-rate cannot be kept between two servers, because the bytes do not pass this \
             machine: leave it out, or copy by way of this machine",
        );
    }
    if pipes == 1 && (options.offset.is_some() || options.length.is_some()) {
        return usage("--offset and --length need a source with a size, not standard input");
    }
    Ok(())
}

/// Carries a plan out.
async fn execute(
    ctx: &Arc<BatchContext>,
    plan: CopyPlan,
    workers: usize,
    tally: &Arc<Mutex<BatchTotals>>,
) {
    for (source, failure) in plan.failed {
        fail(&ctx.observer, tally, source, failure);
    }
    for (source, reason) in plan.skipped {
        lock(tally).skip();
        ctx.observer.on_event(CopyEvent::Skipped { source, reason });
    }
    for directory in &plan.directories {
        if let Err(failure) = plan::make_directory(ctx, directory).await {
            fail(&ctx.observer, tally, directory.display(), failure);
        }
    }
    let queue = Arc::new(Mutex::new(VecDeque::from(plan.items)));
    let mut running = JoinSet::new();
    for _ in 0..workers {
        let (ctx, queue, tally) = (Arc::clone(ctx), Arc::clone(&queue), Arc::clone(tally));
        running.spawn(async move { work(&ctx, &queue, &tally).await });
    }
    let all = async {
        while let Some(ended) = running.join_next().await {
            if let Err(e) = ended {
                let message = format!("a copy ended unexpectedly: {e}");
                fail(
                    &ctx.observer,
                    tally,
                    String::new(),
                    CopyFailure::new(Exit::Local, message),
                );
            }
        }
    };
    progress::while_running(ctx, all, tally).await;
    link(ctx, plan.links, tally).await;
    ctx.pool.close().await;
}

/// Makes the links of a plan: after the files, so that none is written through one.
async fn link(ctx: &BatchContext, links: Vec<plan::PlannedLink>, tally: &Arc<Mutex<BatchTotals>>) {
    for one in links {
        let source = one.source.display();
        match plan::make_link(ctx, &one).await {
            Ok(None) => {}
            Ok(Some(reason)) => {
                lock(tally).skip();
                ctx.observer.on_event(CopyEvent::Skipped { source, reason });
            }
            Err(failure) => fail(&ctx.observer, tally, source, failure),
        }
    }
}

/// One worker: the next file, until there is none.
async fn work(
    ctx: &BatchContext,
    queue: &Mutex<VecDeque<PlannedFile>>,
    tally: &Mutex<BatchTotals>,
) {
    loop {
        let Some(item) = lock(queue).pop_front() else {
            return;
        };
        let source = item.source.display();
        match file::copy(ctx, &item).await {
            Ok(FileOutcome::Done {
                bytes,
                verified,
                measured,
            }) => {
                lock(tally).done(bytes, &verified, measured.map(|m| *m));
                ctx.observer.on_event(CopyEvent::Finished {
                    source,
                    destination: item.destination.display(),
                    bytes,
                    verified,
                });
            }
            Ok(FileOutcome::Kept) => {
                lock(tally).keep();
                let destination = item.destination.display();
                ctx.observer.on_event(CopyEvent::Kept {
                    source,
                    destination,
                });
            }
            Err((bytes, failure)) => {
                lock(tally).moved(bytes);
                fail(&ctx.observer, tally, source, failure);
            }
        }
    }
}

fn fail(
    observer: &Arc<dyn CopyObserver>,
    tally: &Mutex<BatchTotals>,
    source: String,
    failure: CopyFailure,
) {
    lock(tally).fail(&failure);
    observer.on_event(CopyEvent::Failed { source, failure });
}

/// Runs `side` beside `main`: dropped when `main` fails, waited for when it succeeds.
async fn alongside<T, S>(
    main: impl Future<Output = Result<T, CopyFailure>>,
    side: impl Future<Output = S>,
) -> Result<(T, S), CopyFailure> {
    tokio::pin!(main, side);
    tokio::select! {
        biased;
        moved = &mut main => Ok((moved?, side.await)),
        beside = &mut side => Ok((main.await?, beside)),
    }
}

/// Fails when a remote source is not what it was when the copy was planned.
fn unchanged(source: &Location, before: SourceFacts, now: &ListedEntry) -> Result<(), CopyFailure> {
    let differs = |a: Option<i64>, b: Option<i64>| matches!((a, b), (Some(a), Some(b)) if a != b);
    let time = |t: Option<proto::timestamp::Timestamp>| t.map(|t| t.0);
    let size = before.size.zip(now.size).is_some_and(|(a, b)| a != b);
    if size || differs(time(before.modified), time(now.modified)) {
        return Err(changed(source));
    }
    Ok(())
}

fn changed(source: &Location) -> CopyFailure {
    CopyFailure::new(
        Exit::Integrity,
        format!(
            "{} changed while it was copied; the copy keeps its partial name",
            source.display()
        ),
    )
}

/// The data behind is whole after every statement, so a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A timer that does not catch up.
fn every(period: Duration) -> tokio::time::Interval {
    let mut timer = tokio::time::interval(period);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    timer.reset();
    timer
}

#[cfg(test)]
pub(crate) mod tests;
