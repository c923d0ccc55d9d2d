//! Carries out a plan: several workers take files, and bundles of files, from one queue.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::hard_links::FilesNotCopied;
use super::out_of_space::FullDestinations;
use super::sums::BatchSums;
use super::work::WorkQueue;
use super::{dry_run, file, hard_links, leftovers, progress, workers};
use crate::batch::BatchContext;
use crate::batch::measurement::TransferMeasurement;
use crate::batch::totals::{BatchTotals, report_failure, report_shared};
use crate::events::CopyEvent;
use crate::file::preserve;
use crate::file::{FileOutcome, report_started};
use crate::plan::{
    CopyPlan, NextEntry, PlanReader, PlannedEntry, PlannedFile, PlannedHardLink, PlannedLink,
};
use crate::small_files::{BatchWork, MovedBundle};
use crate::{plan, small_files};
use ftp::Failure;
use ftp::answers::SourceFacts;

/// Executes a plan, also while it is still written. The journal is removed if everything is done.
pub(crate) async fn execute(
    ctx: &Arc<BatchContext>,
    plan: &Arc<CopyPlan>,
    sums: Option<&Arc<BatchSums>>,
    totals: &Arc<Mutex<BatchTotals>>,
) {
    if ctx.options.dry_run {
        return dry_run::show(ctx, plan, totals).await;
    }
    totals.lock().set_earlier_files(plan.earlier_files());
    let mut keeper = JoinSet::new();
    if plan.is_kept() {
        let plan = Arc::clone(plan);
        keeper.spawn(async move { plan.keep_synced().await });
    }
    let batch = Arc::new(RunningBatch {
        ctx: Arc::clone(ctx),
        plan: Arc::clone(plan),
        sums: sums.map(Arc::clone),
        totals: Arc::clone(totals),
        not_copied: Mutex::default(),
        full: FullDestinations::default(),
    });
    let workers = async {
        let reporting = Arc::clone(&batch);
        let report = move |place, failure| reporting.fail_directory(place, failure);
        let queue = Arc::new(WorkQueue::new(ctx, plan, Box::new(report)));
        let (ramp, limits) = queue.first().await;
        let worker = {
            let batch = Arc::clone(&batch);
            move |work| {
                let batch = Arc::clone(&batch);
                async move { batch.carry_out(work).await }
            }
        };
        for message in workers::run(ctx, &queue, ramp, limits, totals, worker).await {
            // A panic in one copy must not be mistaken for success.
            batch.fail(String::new(), Failure::local(message));
        }
    };
    progress::report_while(ctx, plan, workers, totals).await;
    totals.lock().set_resent(ctx.meter.resent());
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
}

/// A batch that runs.
struct RunningBatch {
    ctx: Arc<BatchContext>,
    plan: Arc<CopyPlan>,
    sums: Option<Arc<BatchSums>>,
    totals: Arc<Mutex<BatchTotals>>,
    /// For hard links.
    not_copied: Mutex<FilesNotCopied>,
    full: FullDestinations,
}

impl RunningBatch {
    fn fail(&self, source: String, failure: Failure) {
        report_failure(&self.ctx.observer, &self.totals, source, failure);
    }

    fn fail_for(&self, source: String, shared: (Failure, String)) {
        report_shared(&self.ctx.observer, &self.totals, source, shared.0, shared.1);
    }

    /// A directory was not made, or the plan cannot be read.
    fn fail_directory(&self, directory: String, failure: Failure) {
        let cause = self.full.directory_failed(&failure);
        self.fail_for(directory, (failure, cause));
    }

    async fn carry_out(&self, work: BatchWork) {
        match work {
            BatchWork::File(item) => self.copy_one(*item).await,
            BatchWork::Bundle(files) => {
                let files = self.with_room(files);
                if !files.is_empty() {
                    self.report_started(&files);
                    let moved = small_files::copy_bundle(&self.ctx, &files).await;
                    self.finish_bundle(files, moved).await;
                }
            }
            BatchWork::Series(files) => {
                let files = self.with_room(files);
                if !files.is_empty() {
                    self.report_started(&files);
                    let moved = small_files::copy_series(&self.ctx, &files).await;
                    self.finish_bundle(files, moved).await;
                }
            }
        }
        self.warn_of_journal();
    }

    /// The files whose destination is not known to be full. The others have failed.
    fn with_room(&self, files: Vec<PlannedFile>) -> Vec<PlannedFile> {
        let has_room = |item: &PlannedFile| !self.is_refused(item);
        files.into_iter().filter(has_room).collect()
    }

    /// Whether a file is not begun because its destination is full. It has failed then.
    fn is_refused(&self, item: &PlannedFile) -> bool {
        let refusal = self.full.refusal(&item.destination);
        let is_refused = refusal.is_some();
        if let Some(shared) = refusal {
            self.fail_for(item.source.display(), (shared.failure, shared.cause));
        }
        is_refused
    }

    fn warn_of_journal(&self) {
        if let Some(error) = self.plan.take_failure() {
            self.ctx.warn(format!(
                "the batch journal cannot be written: {error}; a later run repeats what follows"
            ));
        }
    }

    /// Creates the links of the plan. This happens after the files are written, so that no file is
    /// written through a link; hard links come first.
    async fn make_links(&self) {
        if self.plan.link_count() == 0 {
            return;
        }
        let unreadable = |error| {
            let message = format!("the plan of the copy cannot be read: {error}");
            self.fail(String::new(), Failure::local(message));
        };
        if let Err(error) = self.not_copied.lock().add_rest_of(&self.plan) {
            return unreadable(error);
        }
        for hard in [true, false] {
            let mut reader = PlanReader::of(&self.plan);
            loop {
                match reader.next(&self.plan) {
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
        if self.ctx.options.file.keep_existing && hard_links::is_taken(&self.ctx, &link) {
            return self.copy_one(link.file).await;
        }
        let outcome = match hard_links::make(&self.ctx, &link, &self.not_copied).await {
            Ok(outcome) => outcome,
            Err(failure) => {
                let warning = format!("{failure}; copied as a file of its own");
                self.ctx.warn(warning);
                return self.copy_one(link.file).await;
            }
        };
        let file = &link.file;
        if let Some(sums) = &self.sums
            && let Err(failure) = sums.add(&self.ctx, file).await
        {
            return self.fail(file.source.display(), failure);
        }
        self.plan.mark_done(&[file.entry]);
        if outcome == hard_links::LinkOutcome::Made {
            self.totals.lock().file_linked();
            self.report_finished(file, 0, "hard link".to_owned());
        }
    }

    async fn make_link(&self, link: &PlannedLink) {
        let source = link.source.display();
        match plan::make_link(&self.ctx, link).await {
            Ok(None) => self.plan.mark_done(&[link.entry]),
            Ok(Some(reason)) => {
                self.totals.lock().file_skipped();
                let skipped = CopyEvent::Skipped { source, reason };
                self.ctx.observer.on_event(skipped);
            }
            Err(failure) => self.fail(link.source.display(), failure),
        }
    }

    /// A file that an earlier run listed may have changed since.
    async fn refresh(&self, item: &mut PlannedFile) -> Result<(), Failure> {
        // A file of this machine is looked at when it is opened.
        if !self.plan.has_complete_listing() || !item.source.storage_id().is_server() {
            return Ok(());
        }
        let source = &item.source;
        let found = self
            .ctx
            .stat_to_read(&source.storage_id(), source.path())
            .await?;
        item.facts = SourceFacts::from_entry(&found);
        Ok(())
    }

    async fn copy_one(&self, mut item: PlannedFile) {
        if self.is_refused(&item) {
            return;
        }
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
                preserve::finish_files(ctx, &[&item]).await;
                if self.is_complete(&item, bytes).await {
                    // The mark comes before the event: nothing that was reported moves again.
                    self.plan.mark_done(&[item.entry]);
                    self.report_done(&item, bytes, verified, measured.map(|m| *m));
                }
            }
            // Done for this command alone: one without `--keep-existing` has another journal.
            Ok(FileOutcome::Kept) => {
                totals.lock().file_kept();
                if ctx.options.file.preserve.hard_links {
                    self.not_copied.lock().add(&item.destination);
                }
                self.plan.mark_done(&[item.entry]);
                let destination = item.destination.display();
                ctx.observer.on_event(CopyEvent::Kept {
                    source,
                    destination,
                });
            }
            Err((bytes, failure)) => {
                totals.lock().add_bytes(bytes);
                let cause = self.full.failed(&item.destination, &failure);
                self.fail_for(source, (failure, cause));
            }
        }
    }

    fn report_started(&self, files: &[PlannedFile]) {
        for item in files {
            report_started(&self.ctx, item, item.facts.size, 0);
        }
    }

    /// After a bundle or a series: copies the files that it did not move, one after the other.
    async fn finish_bundle(
        &self,
        files: Vec<PlannedFile>,
        moved: Result<MovedBundle, (u64, Failure)>,
    ) {
        let (ctx, totals) = (&*self.ctx, &*self.totals);
        let moved = match moved {
            Ok(moved) => moved,
            Err((bytes, failure)) => {
                totals.lock().add_bytes(bytes);
                // After all retries: each file alone would wait for the same server again.
                let lost = failure.is_lost();
                tracing::debug!(%failure, "a bundle of files was not moved");
                return self.copy_left(files, Some(failure).filter(|_| lost)).await;
            }
        };
        let mut is_moved = vec![true; files.len()];
        for index in &moved.failed {
            if let Some(is_moved) = is_moved.get_mut(*index) {
                *is_moved = false;
            }
        }
        let mut is_moved = is_moved.into_iter();
        let (done, left): (Vec<_>, Vec<_>) = files
            .into_iter()
            .partition(|_| is_moved.next().unwrap_or(false));
        let done_files: Vec<_> = done.iter().collect();
        preserve::finish_files(ctx, &done_files).await;
        leftovers::remove(ctx, self.plan.continues(), &done_files).await;
        // Measured once, for all of its files.
        let mut measured = Some(moved.measured);
        // Bytes of files that failed have moved, too.
        let mut others = moved.bytes;
        let mut complete = Vec::with_capacity(done.len());
        for item in &done {
            let bytes = item.facts.size.unwrap_or(0);
            others = others.saturating_sub(bytes);
            if self.is_complete(item, bytes).await {
                complete.push((item, bytes));
            }
        }
        // Their names are on disk: a bundle ends with that.
        let mut marked: Vec<u32> = complete.iter().map(|(item, _)| item.entry).collect();
        marked.sort_unstable();
        self.plan.mark_done(&marked);
        for (item, bytes) in complete {
            self.report_done(item, bytes, moved.verified.clone(), measured.take());
        }
        totals.lock().add_bytes(others);
        self.copy_left(left, moved.lost).await;
    }

    /// Copies files that a bundle did not move, unless their server is lost.
    async fn copy_left(&self, files: Vec<PlannedFile>, lost: Option<Failure>) {
        for item in files {
            match &lost {
                Some(failure) => self.fail(item.source.display(), failure.clone()),
                None => self.copy_one(item).await,
            }
        }
    }

    /// Whether nothing is left to do for a file that is in place. One whose checksum is asked for and unknown has failed.
    async fn is_complete(&self, item: &PlannedFile, bytes: u64) -> bool {
        if let Some(sums) = &self.sums
            && let Err(failure) = sums.add(&self.ctx, item).await
        {
            self.totals.lock().add_bytes(bytes);
            self.fail(item.source.display(), failure);
            return false;
        }
        true
    }

    fn report_done(
        &self,
        item: &PlannedFile,
        bytes: u64,
        verified: String,
        measured: Option<TransferMeasurement>,
    ) {
        self.totals.lock().file_done(bytes, &verified, measured);
        self.full.stored(&item.destination);
        self.report_finished(item, bytes, verified);
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
