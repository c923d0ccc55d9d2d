//! Carries out a plan: several workers take files, and bundles of files, from one queue.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;

use super::bundle::{self, BatchWork};
use super::plan::{self, CopyPlan, NextEntry, PlanReader, PlannedEntry, PlannedFile, PlannedLink};
use super::totals::BatchTotals;
use super::work::WorkQueue;
use super::{BatchContext, FileOutcome, file, lock, progress};
use crate::answers::SourceFacts;
use crate::{CopyEvent, CopyFailure, CopyObserver, Exit};

/// How often a dry run looks for more entries.
const DRY_RUN_POLL: Duration = Duration::from_millis(50);
/// Most files at a time.
const MAX_CONCURRENCY: usize = 64;

/// Executes a plan, also while it is still written. The journal is removed if everything is done.
pub(super) async fn execute(
    ctx: &Arc<BatchContext>,
    plan: &Arc<CopyPlan>,
    totals: &Arc<Mutex<BatchTotals>>,
) {
    if ctx.options.dry_run {
        return show(ctx, plan, totals).await;
    }
    let mut keeper = JoinSet::new();
    if plan.is_kept() {
        let plan = Arc::clone(plan);
        keeper.spawn(async move { plan.keep_synced().await });
    }
    let concurrency = ctx.options.concurrency.clamp(1, MAX_CONCURRENCY);
    let batch = Arc::new(RunningBatch {
        ctx: Arc::clone(ctx),
        plan: Arc::clone(plan),
        totals: Arc::clone(totals),
    });
    let workers = async {
        // One queue for all workers, so that large files do not hold up a fixed share of the batch.
        let queue = Arc::new(WorkQueue::new(ctx, plan, concurrency));
        // More workers than work would only log in and leave.
        let workers = queue
            .first(&|source, failure| batch.fail(source, failure))
            .await;
        let mut running = JoinSet::new();
        for _ in 0..workers {
            let (batch, queue) = (Arc::clone(&batch), Arc::clone(&queue));
            running.spawn(async move { batch.work(&queue).await });
        }
        while let Some(result) = running.join_next().await {
            if let Err(e) = result {
                // A panic in one copy must not be mistaken for success.
                let message = format!("a copy ended unexpectedly: {e}");
                batch.fail(String::new(), CopyFailure::new(Exit::Local, message));
            }
        }
    };
    progress::report_while(ctx, workers, totals).await;
    batch.make_links().await;
    keeper.shutdown().await;
    let is_done = plan.is_listed() && !lock(totals).has_failures();
    let plan = Arc::clone(plan);
    // The rest of it is for --resume, also after a power cut.
    let _ = tokio::task::spawn_blocking(move || match is_done {
        true => plan.remove_journal(),
        false => plan.sync(),
    })
    .await;
}

/// Reports what would be copied.
async fn show(ctx: &BatchContext, plan: &CopyPlan, totals: &Mutex<BatchTotals>) {
    let mut reader = PlanReader::of(plan);
    loop {
        match reader.next(plan) {
            Ok(NextEntry::Entry(PlannedEntry::File(item))) => {
                ctx.observer.on_event(CopyEvent::WouldCopy {
                    source: item.source.display(),
                    destination: item.destination.display(),
                    bytes: item.facts.size,
                });
            }
            Ok(NextEntry::Entry(_)) => {}
            Ok(NextEntry::Pending) => {
                let _ = tokio::time::timeout(DRY_RUN_POLL, plan.grown()).await;
            }
            Ok(NextEntry::End) => return,
            Err(error) => {
                let message = format!("the plan of the copy cannot be read: {error}");
                let failure = CopyFailure::new(Exit::Local, message);
                return report_failure(&ctx.observer, totals, String::new(), failure);
            }
        }
    }
}

/// A batch that runs.
struct RunningBatch {
    ctx: Arc<BatchContext>,
    plan: Arc<CopyPlan>,
    totals: Arc<Mutex<BatchTotals>>,
}

impl RunningBatch {
    fn fail(&self, source: String, failure: CopyFailure) {
        report_failure(&self.ctx.observer, &self.totals, source, failure);
    }

    /// One worker: does what is next in the queue until nothing follows.
    async fn work(&self, queue: &WorkQueue) {
        while let Some(work) = queue
            .next(&|source, failure| self.fail(source, failure))
            .await
        {
            match work {
                BatchWork::File(item) => self.copy_one(*item).await,
                BatchWork::Bundle(files) => self.copy_bundle(files).await,
            }
            self.warn_of_journal();
        }
    }

    fn warn_of_journal(&self) {
        if let Some(error) = self.plan.take_failure() {
            self.ctx.warn(format!(
                "the batch journal cannot be written: {error}; --resume will repeat what follows"
            ));
        }
    }

    /// Creates the links of the plan. This happens after the files are written, so that no file is
    /// written through a link.
    async fn make_links(&self) {
        if self.plan.link_count() == 0 {
            return;
        }
        let mut reader = PlanReader::of(&self.plan);
        loop {
            match reader.next(&self.plan) {
                Ok(NextEntry::Entry(PlannedEntry::Link(link))) => self.make_link(&link).await,
                Ok(NextEntry::Entry(_)) => {}
                Ok(NextEntry::Pending | NextEntry::End) => return,
                Err(error) => {
                    let message = format!("the plan of the copy cannot be read: {error}");
                    return self.fail(String::new(), CopyFailure::new(Exit::Local, message));
                }
            }
        }
    }

    async fn make_link(&self, link: &PlannedLink) {
        let source = link.source.display();
        match plan::make_link(&self.ctx, link).await {
            Ok(None) => self.plan.mark_done(&[link.entry]),
            Ok(Some(reason)) => {
                lock(&self.totals).file_skipped();
                let skipped = CopyEvent::Skipped { source, reason };
                self.ctx.observer.on_event(skipped);
            }
            Err(failure) => self.fail(source, failure),
        }
    }

    /// A file that an earlier run listed may have changed since.
    async fn refresh(&self, item: &mut PlannedFile) -> Result<(), CopyFailure> {
        // A file of this machine is looked at when it is opened.
        if !self.plan.is_resumed() || !item.source.storage_id().is_server() {
            return Ok(());
        }
        let id = item.source.storage_id();
        let path = item.source.path();
        let mut session = self.ctx.session_for_path(&id, Some(path)).await?;
        let found = session.stat(path).await;
        self.ctx.return_session(&id, session, &found);
        item.facts = SourceFacts::from_entry(&found?);
        Ok(())
    }

    async fn copy_one(&self, mut item: PlannedFile) {
        let (ctx, totals) = (&*self.ctx, &*self.totals);
        let source = item.source.display();
        let copied = match self.refresh(&mut item).await {
            Ok(()) => file::copy_file(ctx, &item).await,
            Err(failure) => Err((0, failure)),
        };
        match copied {
            Ok(FileOutcome::Done {
                bytes,
                verified,
                measured,
            }) => {
                lock(totals).file_done(bytes, &verified, measured.map(|m| *m));
                self.plan.mark_done(&[item.entry]);
                report_finished(ctx, &item, bytes, verified);
            }
            Ok(FileOutcome::Kept) => {
                lock(totals).file_kept();
                self.plan.mark_done(&[item.entry]);
                let destination = item.destination.display();
                ctx.observer.on_event(CopyEvent::Kept {
                    source,
                    destination,
                });
            }
            Err((bytes, failure)) => {
                lock(totals).add_bytes(bytes);
                self.fail(source, failure);
            }
        }
    }

    /// Moves a bundle, and then the files that it could not move, one after the other.
    async fn copy_bundle(&self, files: Vec<PlannedFile>) {
        let (ctx, totals) = (&*self.ctx, &*self.totals);
        for item in &files {
            ctx.report_started(item, item.facts.size, 0);
        }
        let moved = match bundle::copy_bundle(ctx, &files).await {
            Ok(moved) => moved,
            Err((bytes, failure)) => {
                lock(totals).add_bytes(bytes);
                // After all retries: each file alone would wait for the same server again.
                let is_lost = failure.transient && failure.exit == Exit::Unreachable;
                tracing::debug!(%failure, "a bundle of files was not moved");
                for item in files {
                    match is_lost {
                        true => {
                            let source = item.source.display();
                            self.fail(source, failure.clone());
                        }
                        false => self.copy_one(item).await,
                    }
                }
                return;
            }
        };
        // Measured once, for all of its files.
        let mut measured = Some(moved.measured);
        // Bytes of files that failed have moved, too.
        let mut others = moved.bytes;
        let mut left = Vec::new();
        let is_moved = |(index, _): &(usize, &PlannedFile)| !moved.failed.contains(index);
        let done = files.iter().enumerate().filter(is_moved);
        let mut done: Vec<u32> = done.map(|(_, item)| item.entry).collect();
        // Their names are on disk: a bundle ends with that.
        done.sort_unstable();
        self.plan.mark_done(&done);
        for (index, item) in files.into_iter().enumerate() {
            if moved.failed.contains(&index) {
                left.push(item);
                continue;
            }
            let bytes = item.facts.size.unwrap_or(0);
            others = others.saturating_sub(bytes);
            lock(totals).file_done(bytes, &moved.verified, measured.take());
            report_finished(ctx, &item, bytes, moved.verified.clone());
        }
        lock(totals).add_bytes(others);
        for item in left {
            self.copy_one(item).await;
        }
    }
}

fn report_finished(ctx: &BatchContext, item: &PlannedFile, bytes: u64, verified: String) {
    ctx.observer.on_event(CopyEvent::Finished {
        source: item.source.display(),
        destination: item.destination.display(),
        bytes,
        verified,
    });
}

pub(super) fn report_failure(
    observer: &Arc<dyn CopyObserver>,
    totals: &Mutex<BatchTotals>,
    source: String,
    failure: CopyFailure,
) {
    lock(totals).file_failed(&failure);
    observer.on_event(CopyEvent::Failed { source, failure });
}
