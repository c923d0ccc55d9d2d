//! Carries out a plan: several workers take files, and bundles of files, from one queue.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::hard_links::FilesNotCopied;
use super::records::BatchRecords;
use super::{dry_run, hard_links, progress, workers};
use crate::batch::BatchContext;
use crate::batch::measurement::TransferMeasurement;
use crate::batch::totals::{BatchTotals, report_failure, report_shared};
use crate::events::CopyEvent;
use crate::plan::{
    CopyPlan, NextEntry, PlanReader, PlannedEntry, PlannedFile, PlannedHardLink, PlannedLink,
};
use crate::work::mover::{WorkAccount, WorkMover};
use crate::work::queue::WorkQueue;
use crate::{nodes, plan};
use ftp::Failure;
use ftp::location::Location;

/// Executes a plan, also while it is still written. The journal is removed if everything is done. `root`: the directory that
/// will hold everything, if there is one.
///
/// # Errors
/// The root cannot be made: nothing was copied.
pub(crate) async fn execute(
    ctx: &Arc<BatchContext>,
    plan: &Arc<CopyPlan>,
    root: Option<Location>,
    records: &Arc<BatchRecords>,
    totals: &Arc<Mutex<BatchTotals>>,
) -> Result<(), Failure> {
    if ctx.options.dry_run {
        dry_run::show(ctx, plan, totals).await;
        return Ok(());
    }
    totals.lock().set_earlier_files(plan.earlier_files());
    let mut keeper = JoinSet::new();
    if plan.is_kept() {
        let plan = Arc::clone(plan);
        keeper.spawn(async move { plan.keep_synced().await });
    }
    let account = Arc::new(BatchAccount {
        ctx: Arc::clone(ctx),
        plan: Arc::clone(plan),
        records: Arc::clone(records),
        totals: Arc::clone(totals),
        not_copied: Mutex::default(),
    });
    let mover = Arc::new(WorkMover {
        ctx: Arc::clone(ctx),
        account: Arc::clone(&account) as Arc<dyn WorkAccount>,
        full: Arc::default(),
        has_old_facts: plan.has_complete_listing(),
        continues: plan.continues(),
    });
    let batch = Arc::new(RunningBatch { account, mover });
    let reporting = Arc::clone(&batch);
    let report = move |at: Option<&Location>, failure| reporting.fail_directory(at, failure);
    let queue = Arc::new(WorkQueue::new(ctx, plan, root, Box::new(report)));
    let workers = async {
        let (ramp, limits) = queue.first().await;
        if !ctx.options.nodes.nodes.is_empty() {
            let (sessions, mover) = (ramp.sessions(), &batch.mover);
            for message in nodes::run(ctx, &queue, sessions, mover, totals).await {
                batch.account.fail(String::new(), Failure::local(message));
            }
            return;
        }
        let worker = {
            let batch = Arc::clone(&batch);
            move |work| {
                let batch = Arc::clone(&batch);
                async move { batch.mover.carry_out(work).await }
            }
        };
        for message in workers::run(ctx, &queue, ramp, limits, totals, worker).await {
            // A panic in one copy must not be mistaken for success.
            batch.account.fail(String::new(), Failure::local(message));
        }
    };
    progress::report_while(ctx, plan, workers, totals).await;
    totals.lock().set_resent(ctx.meter.resent());
    if let Some(failure) = queue.refusal() {
        keeper.shutdown().await;
        totals.lock().batch_refused(&failure);
        if !plan.has_done_files() {
            plan.remove_journal();
        }
        return Err(failure);
    }
    batch.make_links().await;
    keeper.shutdown().await;
    let is_done = plan.is_listed() && !totals.lock().has_failures();
    let plan = Arc::clone(plan);
    // The rest of it is for --resume, also after a power cut.
    let _ = tokio::task::spawn_blocking(move || match is_done {
        true => plan.remove_journal(),
        false => plan.sync(),
    })
    .await;
    Ok(())
}

/// A batch that runs in this process.
struct RunningBatch {
    account: Arc<BatchAccount>,
    mover: Arc<WorkMover>,
}

/// The account of a batch: its plan, its totals, and what its observer is told.
struct BatchAccount {
    ctx: Arc<BatchContext>,
    plan: Arc<CopyPlan>,
    records: Arc<BatchRecords>,
    totals: Arc<Mutex<BatchTotals>>,
    /// For hard links.
    not_copied: Mutex<FilesNotCopied>,
}

impl BatchAccount {
    fn fail(&self, source: String, failure: Failure) {
        report_failure(&self.ctx.observer, &self.totals, source, failure);
    }

    fn fail_for(&self, source: String, shared: (Failure, String)) {
        report_shared(&self.ctx.observer, &self.totals, source, shared.0, shared.1);
    }

    fn warn_of_journal(&self) {
        if let Some(error) = self.plan.take_failure() {
            self.ctx.warn(format!(
                "the batch journal cannot be written: {error}; a later run repeats what follows"
            ));
        }
    }

    /// Whether nothing is left to do for a file that is in place. One whose checksum is asked for and unknown has failed.
    async fn is_complete(&self, item: &PlannedFile, bytes: u64, verified: &str) -> bool {
        if let Err(failure) = self.records.add(&self.ctx, item, verified).await {
            self.totals.lock().add_bytes(bytes);
            self.fail(item.source.display(), failure);
            return false;
        }
        true
    }

    fn report_finished(&self, item: &PlannedFile, bytes: u64, verified: String) {
        self.ctx.observer.on_event(CopyEvent::Finished {
            source: item.source.display(),
            destination: item.destination.display(),
            bytes,
            verified,
        });
    }
}

#[async_trait]
impl WorkAccount for BatchAccount {
    async fn done(
        &self,
        files: Vec<(PlannedFile, u64)>,
        verified: &str,
        measured: Option<TransferMeasurement>,
    ) {
        let mut complete = Vec::with_capacity(files.len());
        for (item, bytes) in files {
            if self.is_complete(&item, bytes, verified).await {
                complete.push((item, bytes));
            }
        }
        // The marks come before the events: nothing that was reported moves again.
        let mut marked: Vec<u32> = complete.iter().map(|(item, _)| item.entry).collect();
        marked.sort_unstable();
        self.plan.mark_done(&marked);
        // Measured once, for all of them.
        let mut measured = measured;
        for (item, bytes) in complete {
            self.totals
                .lock()
                .file_done(bytes, verified, measured.take());
            self.report_finished(&item, bytes, verified.to_owned());
        }
        self.warn_of_journal();
    }

    /// Done for this command alone: one without `--keep-existing` has another journal.
    async fn kept(&self, item: PlannedFile) {
        self.totals.lock().file_kept();
        if self.ctx.options.file.preserve.hard_links {
            self.not_copied.lock().add(&item.destination);
        }
        self.records.kept(item.entry);
        self.plan.mark_done(&[item.entry]);
        self.ctx.observer.on_event(CopyEvent::Kept {
            source: item.source.display(),
            destination: item.destination.display(),
        });
        self.warn_of_journal();
    }

    async fn failed(&self, item: PlannedFile, bytes: u64, failure: Failure, cause: String) {
        self.totals.lock().add_bytes(bytes);
        self.fail_for(item.source.display(), (failure, cause));
    }

    fn moved_in_vain(&self, bytes: u64) {
        self.totals.lock().add_bytes(bytes);
    }
}

impl RunningBatch {
    /// A directory was not made, or the plan cannot be read.
    fn fail_directory(&self, directory: Option<&Location>, failure: Failure) {
        let Some(at) = directory else {
            return self.account.fail(String::new(), failure);
        };
        let cause = self.mover.full.directory_failed(at, &failure);
        self.account.fail_for(at.display(), (failure, cause));
    }

    /// Creates the links of the plan. This happens after the files are written, so that no file is
    /// written through a link; hard links come first.
    async fn make_links(&self) {
        if self.account.plan.link_count() == 0 {
            return;
        }
        let unreadable = |error| {
            let message = format!("the plan of the copy cannot be read: {error}");
            self.account.fail(String::new(), Failure::local(message));
        };
        if let Err(error) = self
            .account
            .not_copied
            .lock()
            .add_rest_of(&self.account.plan)
        {
            return unreadable(error);
        }
        for hard in [true, false] {
            let mut reader = PlanReader::of(&self.account.plan);
            loop {
                match reader.next(&self.account.plan) {
                    Ok(NextEntry::Entry(PlannedEntry::HardLink(link))) if hard => {
                        self.make_hard_link(link).await;
                    }
                    Ok(NextEntry::Entry(PlannedEntry::Link(link))) if !hard => {
                        self.make_link(&link).await;
                    }
                    Ok(NextEntry::Entry(_)) => {}
                    Ok(NextEntry::Pending | NextEntry::End) => break,
                    Err(error) => return unreadable(error),
                }
            }
        }
    }

    /// Gives a file its further name. One that a file system does not give is copied as a file of its own.
    async fn make_hard_link(&self, link: PlannedHardLink) {
        if self.account.ctx.options.file.keep_existing
            && hard_links::is_taken(&self.account.ctx, &link)
        {
            return self.mover.copy_one(link.file).await;
        }
        let outcome =
            match hard_links::make(&self.account.ctx, &link, &self.account.not_copied).await {
                Ok(outcome) => outcome,
                Err(failure) => {
                    let warning = format!("{failure}; copied as a file of its own");
                    self.account.ctx.warn(warning);
                    return self.mover.copy_one(link.file).await;
                }
            };
        let file = &link.file;
        let records = &self.account.records;
        if let Err(failure) = records.add(&self.account.ctx, file, "hard link").await {
            return self.account.fail(file.source.display(), failure);
        }
        self.account.plan.mark_done(&[file.entry]);
        if outcome == hard_links::LinkOutcome::Made {
            self.account.totals.lock().file_linked();
            self.account
                .report_finished(file, 0, "hard link".to_owned());
        }
    }

    async fn make_link(&self, link: &PlannedLink) {
        let source = link.source.display();
        match plan::make_link(&self.account.ctx, link).await {
            Ok(None) => self.account.plan.mark_done(&[link.entry]),
            Ok(Some(reason)) => {
                self.account.totals.lock().file_skipped();
                let skipped = CopyEvent::Skipped { source, reason };
                self.account.ctx.observer.on_event(skipped);
            }
            Err(failure) => self.account.fail(link.source.display(), failure),
        }
    }
}
