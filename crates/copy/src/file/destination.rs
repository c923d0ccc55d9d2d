//! The destination of one file over all attempts: written by this process, or stored by name at a
//! storage.

use std::sync::Arc;

use data::job::TransferControl;
use data::store::Source;
use proto::checksum::ChecksumAlgorithm;
use proto::ranges::RangeSet;

use super::checksums::{ChecksumEndpoint, ComparableSource};
use super::download::LocalDestination;
use super::stream_plan::CopyRange;
use super::upload::StorageDestination;
use super::upload_names::UploadFinish;
use crate::batch::BatchContext;
use crate::file::verify::Verification;
use crate::local::journal::{CopyIdentity, Journal, StoredRanges};
use crate::plan::PlannedFile;
use crate::storage::capabilities::AvailableChecksums;
use crate::storage::contract::Storage;
use crate::storage::open_source::OpenSource;
use ftp::Failure;
use ftp::answers::{KeptMetadata, SourceFacts};

/// The destination of a copy.
pub(crate) enum CopyDestination<'a> {
    /// A file that this process has open.
    Local(Box<LocalDestination>),
    /// A storage that stores the file.
    Storage(Box<StorageDestination<'a>>),
}

impl<'a> CopyDestination<'a> {
    /// Takes the lock of the destination before a session is opened.
    pub(crate) fn lock(&mut self, ctx: &BatchContext, item: &PlannedFile) -> Result<(), Failure> {
        match self {
            Self::Local(download) => download.lock_early(ctx),
            Self::Storage(upload) => upload.lock(ctx, item),
        }
    }

    /// Ranges that are safe at the destination when an attempt begins.
    pub(crate) fn safe_ranges(&self) -> &RangeSet {
        match self {
            Self::Local(download) => &download.state.safe,
            Self::Storage(upload) => &upload.state.safe,
        }
    }

    /// Whether the copy begins with the first byte, as far as is known before anything was compared.
    pub(crate) fn is_new(&self, ctx: &BatchContext) -> bool {
        let has_none = self.safe_ranges().is_empty();
        has_none
            && match self {
                Self::Local(download) => download.is_new(ctx),
                Self::Storage(_) => !ctx.options.file.resume,
            }
    }

    /// Whether all bytes are at the destination already.
    pub(crate) fn is_whole(&self, range: CopyRange) -> bool {
        let safe = self.safe_ranges();
        !safe.is_empty() && range.size.is_some_and(|size| safe.contains(0, size))
    }

    /// Whether bytes can be written at any offset.
    pub(crate) fn is_seekable(&self) -> bool {
        match self {
            Self::Local(download) => download.is_seekable(),
            Self::Storage(_) => true,
        }
    }

    /// The checksums that the destination can provide of the finished copy.
    pub(crate) async fn available_checksums(
        &self,
        to: &mut dyn Storage,
    ) -> Result<AvailableChecksums, Failure> {
        match self {
            Self::Local(download) => Ok(download.available_checksums()),
            Self::Storage(upload) => upload.available_checksums(to).await,
        }
    }

    /// With `--resume`: facts of the file that has the final name, if it has the right size and no
    /// partial file is beside it, together with the endpoint for its checksum.
    pub(crate) async fn file_in_place<'e>(
        &self,
        ctx: &BatchContext,
        size: Option<u64>,
        to: &'e mut dyn Storage,
    ) -> Result<Option<(SourceFacts, ChecksumEndpoint<'e>)>, Failure>
    where
        'a: 'e,
    {
        // The copy starts at byte 0 of its file even if it is a part of the source.
        let origin = 0;
        match self {
            Self::Local(download) => {
                let existing = download.file_in_place(ctx, size)?;
                Ok(existing.map(|OpenSource { source, facts, .. }| {
                    (
                        facts.unwrap_or_default(),
                        ChecksumEndpoint::Open { source, origin },
                    )
                }))
            }
            Self::Storage(upload) => {
                let existing = upload.file_in_place(ctx, size, to).await?;
                let path = upload.path();
                let endpoint = ChecksumEndpoint::Named {
                    storage: to,
                    path,
                    origin,
                };
                Ok(existing.map(|facts| (facts, endpoint)))
            }
        }
    }

    /// Accepts the file with the final name as the finished copy.
    pub(crate) async fn confirm_in_place(
        &self,
        ctx: &BatchContext,
        item: &PlannedFile,
        source: &str,
        size: Option<u64>,
    ) -> Result<(), Failure> {
        match self {
            Self::Local(download) => download.confirm_in_place(ctx, item, size).await,
            Self::Storage(upload) => {
                upload.confirm_in_place(ctx, item, source, size);
                Ok(())
            }
        }
    }

    /// Before each attempt: finds out which bytes are safe at the destination.
    pub(crate) async fn prepare(
        &mut self,
        ctx: &BatchContext,
        item: &PlannedFile,
        check: Verification,
        identity: CopyIdentity,
        source: ComparableSource<'_>,
        to: &mut dyn Storage,
    ) -> Result<(), Failure> {
        match self {
            Self::Local(download) => download.prepare(ctx, item, check, identity, source).await,
            Self::Storage(upload) => upload.prepare(ctx, item, check, identity, source, to).await,
        }
    }

    /// The journal, and a function that returns the ranges to write to it while an attempt runs.
    pub(crate) fn journal_and_progress(
        &mut self,
        control: &Arc<TransferControl>,
    ) -> (
        Option<&mut Journal>,
        Box<dyn Fn() -> StoredRanges + Send + Sync>,
    ) {
        match self {
            Self::Local(download) => {
                let stored_ranges = download.stored_ranges_during(control);
                (download.state.journal.as_mut(), Box::new(stored_ranges))
            }
            Self::Storage(upload) => {
                let safe = upload.safe_ranges();
                let stored_ranges = move || StoredRanges::safe_only(safe());
                (upload.state.journal.as_mut(), Box::new(stored_ranges))
            }
        }
    }

    /// Whether the length of an interrupted copy shows which bytes are there. `in_order`: bytes are
    /// written from first to last.
    pub(crate) fn length_shows_progress(&self, in_order: bool) -> bool {
        match self {
            Self::Local(_) => in_order,
            Self::Storage(upload) => upload.length_shows_progress(),
        }
    }

    /// Checksum of the copy: of what was written here, otherwise from the storage. The outer error
    /// is a failure of this machine.
    pub(crate) async fn checksum(
        &self,
        algorithm: ChecksumAlgorithm,
        to: &mut dyn Storage,
    ) -> Result<Result<String, Failure>, Failure> {
        match self {
            Self::Local(download) => {
                let unreadable = || Failure::local("what was written cannot be read again");
                let checksum = download.checksum(algorithm).await?;
                Ok(checksum.ok_or_else(unreadable))
            }
            Self::Storage(upload) => {
                let path = upload.store_path();
                Ok(to.checksum(algorithm, 0, None, &path).await)
            }
        }
    }

    /// Compares the size of the copy with `expected`. Returns `false` if the size is unknown.
    pub(crate) async fn check_size(
        &self,
        to: &mut dyn Storage,
        expected: Option<u64>,
    ) -> Result<bool, Failure> {
        match (self, expected) {
            // The length was checked when the last byte had arrived.
            (Self::Local(_), expected) => Ok(expected.is_some()),
            (Self::Storage(upload), Some(expected)) => upload.check_size(to, expected).await,
            (Self::Storage(_), None) => Ok(false),
        }
    }

    /// Name of the file for messages about a comparison.
    pub(crate) fn display_name(&self, item: &PlannedFile) -> String {
        match self {
            Self::Local(_) => item.source.display(),
            Self::Storage(upload) => upload.display_name.clone(),
        }
    }

    /// Whether some bytes came in an attempt that a peer did not confirm.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        match self {
            Self::Local(download) => download.state.unconfirmed,
            Self::Storage(upload) => upload.state.unconfirmed,
        }
    }

    /// Passes on the result of a verification and discards bytes that it proved wrong.
    pub(crate) async fn after_verification<T>(
        &mut self,
        verified: Result<T, Failure>,
    ) -> Result<T, Failure> {
        match self {
            Self::Local(download) => download.after_verification(verified).await,
            Self::Storage(upload) => upload.after_verification(verified),
        }
    }

    /// Takes ranges that differ from the source out of the safe ones, so that the next transfer moves them again.
    pub(crate) fn remove_wrong(&mut self, wrong: &RangeSet) {
        match self {
            Self::Local(download) => download.remove_wrong(wrong),
            Self::Storage(upload) => upload.remove_wrong(wrong),
        }
    }

    /// Gives the complete and verified file what it keeps and its final name. Permissions at a server are set later.
    pub(crate) async fn finish(
        &mut self,
        ctx: &BatchContext,
        to: &mut dyn Storage,
        kept: KeptMetadata,
        can_resend: bool,
    ) -> Result<UploadFinish, Failure> {
        match self {
            Self::Local(download) => {
                download.finish(kept).await?;
                Ok(UploadFinish::InPlace)
            }
            Self::Storage(upload) => upload.finish(ctx, to, kept.modified, can_resend).await,
        }
    }

    /// Adds to a permanent failure the location of a verified file that could not be renamed.
    pub(crate) fn explain_failure(&self, failure: Failure) -> Failure {
        match self {
            Self::Local(_) => failure,
            Self::Storage(upload) => upload.explain_failure(failure),
        }
    }

    /// Uses nothing of an earlier run: the source cannot be read again, to compare.
    pub(crate) fn ignore_leftovers(&mut self) {
        match self {
            Self::Local(download) => download.state.ignore_leftovers = true,
            Self::Storage(upload) => upload.state.ignore_leftovers = true,
        }
    }

    /// Discards what was resumed, or all of it if the copy `differs` in unknown places. Returns `false` when there is
    /// nothing to discard.
    pub(crate) fn start_over(&mut self, differs: bool) -> bool {
        match self {
            Self::Local(download) => download.start_over(differs),
            Self::Storage(upload) => upload.start_over(differs),
        }
    }

    /// Whether the bytes of the last attempt are sent again.
    pub(crate) fn attempt_was_wasted(&self) -> bool {
        match self {
            Self::Local(download) => download.state.attempt_wasted,
            Self::Storage(upload) => upload.state.attempt_wasted,
        }
    }

    /// Whether the written bytes cannot be read again, as in a pipe.
    pub(crate) fn is_unreadable(&self) -> bool {
        matches!(self, Self::Local(download) if !download.is_file())
    }
}

/// Endpoint of a source that is open in this process.
pub(crate) fn open_endpoint(source: &Arc<dyn Source>, origin: u64) -> ChecksumEndpoint<'static> {
    ChecksumEndpoint::Open {
        source: Arc::clone(source),
        origin,
    }
}
