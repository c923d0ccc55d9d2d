//! Moves the work of a batch: single files, bundles and series. What becomes of each file is told to an account.

use std::sync::Arc;

use async_trait::async_trait;

use super::file;
use super::leftovers;
use super::refusing::RefusingDestinations;
use crate::batch::BatchContext;
use crate::batch::measurement::TransferMeasurement;
use crate::file::preserve;
use crate::file::shared_upload::store_part;
use crate::file::{FileOutcome, report_started};
use crate::plan::PlannedFile;
use crate::small_files::{self, BatchWork, MovedBundle};
use ftp::Failure;
use ftp::answers::SourceFacts;

/// Whoever keeps account of a batch: each file that is moved ends with one of the first three.
#[async_trait]
pub(crate) trait WorkAccount: Send + Sync {
    /// Files are in place, verified, and on disk as asked, each after this number of bytes.
    async fn done(
        &self,
        files: Vec<(PlannedFile, u64)>,
        verified: &str,
        measured: Option<TransferMeasurement>,
    );

    /// An existing destination was left alone.
    async fn kept(&self, file: PlannedFile);

    /// A file failed after this number of bytes, for a cause that others may share.
    async fn failed(&self, file: PlannedFile, bytes: u64, failure: Failure, cause: String);

    /// Bytes that moved for files which are moved again.
    fn moved_in_vain(&self, bytes: u64);
}

/// Moves work over the sessions of this process.
pub(crate) struct WorkMover {
    pub(crate) ctx: Arc<BatchContext>,
    pub(crate) account: Arc<dyn WorkAccount>,
    pub(crate) full: Arc<RefusingDestinations>,
    /// The facts of files are those of an earlier run, and may have changed since.
    pub(crate) has_old_facts: bool,
    /// An earlier run may have left unfinished files.
    pub(crate) continues: bool,
}

impl WorkMover {
    pub(crate) async fn carry_out(&self, work: BatchWork) {
        match work {
            BatchWork::File(item) => self.copy_one(*item).await,
            BatchWork::Bundle(files) => {
                let files = self.with_room(files).await;
                if !files.is_empty() {
                    self.report_started(&files);
                    let moved = small_files::copy_bundle(&self.ctx, &files).await;
                    self.finish_bundle(files, moved).await;
                }
            }
            BatchWork::Series(files) => {
                let files = self.with_room(files).await;
                if !files.is_empty() {
                    self.report_started(&files);
                    let moved = small_files::copy_series(&self.ctx, &files).await;
                    self.finish_bundle(files, moved).await;
                }
            }
        }
    }

    /// The files whose destination is not known to be full. The others have failed.
    async fn with_room(&self, files: Vec<PlannedFile>) -> Vec<PlannedFile> {
        let mut with_room = Vec::with_capacity(files.len());
        for item in files {
            with_room.extend(self.unless_full(item).await);
        }
        with_room
    }

    /// The file, unless it is not begun because its destination is full. It has failed then.
    async fn unless_full(&self, item: PlannedFile) -> Option<PlannedFile> {
        let Some(shared) = self.full.refusal(&item.destination) else {
            return Some(item);
        };
        self.account
            .failed(item, 0, shared.failure, shared.cause)
            .await;
        None
    }

    /// A file that an earlier run listed may have changed since.
    async fn refresh(&self, item: &mut PlannedFile) -> Result<(), Failure> {
        // A file of this machine is looked at when it is opened.
        if !self.has_old_facts || !item.source.storage_id().is_server() {
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

    /// Copies one file.
    pub(crate) async fn copy_one(&self, item: PlannedFile) {
        let Some(mut item) = self.unless_full(item).await else {
            return;
        };
        let copied = match self.refresh(&mut item).await {
            Ok(()) => match (&item.upload, item.part) {
                (Some(upload), Some(part)) => store_part(&self.ctx, &item, part, upload).await,
                _ => file::copy_file(&self.ctx, &item).await,
            },
            Err(failure) => Err((0, failure)),
        };
        match copied {
            Ok(FileOutcome::Done {
                bytes,
                verified,
                measured,
            }) => {
                // A part of an upload is no file.
                if item.upload.is_none() {
                    preserve::finish_files(&self.ctx, &[&item]).await;
                }
                self.full.stored(&item.destination);
                let measured = measured.map(|measured| *measured);
                self.account
                    .done(vec![(item, bytes)], &verified, measured)
                    .await;
            }
            Ok(FileOutcome::Kept) => self.account.kept(item).await,
            Err((bytes, failure)) => {
                let cause = self.full.failed(&item.destination, &failure);
                self.account.failed(item, bytes, failure, cause).await;
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
        let ctx = &*self.ctx;
        let moved = match moved {
            Ok(moved) => moved,
            Err((bytes, failure)) => {
                self.account.moved_in_vain(bytes);
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
        leftovers::remove(ctx, self.continues, &done_files).await;
        // Bytes of files that failed have moved, too.
        let mut others = moved.bytes;
        let done: Vec<_> = done
            .into_iter()
            .map(|item| {
                let bytes = item.facts.size.unwrap_or(0);
                others = others.saturating_sub(bytes);
                self.full.stored(&item.destination);
                (item, bytes)
            })
            .collect();
        self.account.moved_in_vain(others);
        if !done.is_empty() {
            let measured = Some(moved.measured);
            self.account.done(done, &moved.verified, measured).await;
        }
        self.copy_left(left, moved.lost).await;
    }

    /// Copies files that a bundle did not move, unless their server is lost.
    async fn copy_left(&self, files: Vec<PlannedFile>, lost: Option<Failure>) {
        for item in files {
            match &lost {
                Some(failure) => {
                    let cause = failure.cause();
                    self.account.failed(item, 0, failure.clone(), cause).await;
                }
                None => self.copy_one(item).await,
            }
        }
    }
}
