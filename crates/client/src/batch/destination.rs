//! The destination of one file over all attempts: written by this process, or stored by its name at a
//! storage.

use std::sync::Arc;

use data::job::TransferControl;
use data::store::Source;
use proto::checksum::ChecksumAlgorithm;
use proto::ranges::RangeSet;
use proto::timestamp::Timestamp;

use super::checksums::ChecksumEndpoint;
use super::download::LocalDestination;
use super::stream_plan::CopyRange;
use super::upload::{StorageDestination, UploadFinish};
use super::{BatchContext, PlannedFile};
use crate::answers::SourceFacts;
use crate::journal::{CopyIdentity, Journal, StoredRanges};
use crate::storage::contract::{AvailableChecksums, OpenSource, Storage};
use crate::verify::Verification;
use crate::{CopyFailure, Exit};

/// Where the bytes go.
pub(super) enum CopyDestination<'a> {
    /// Into an open file of this process.
    Here(Box<LocalDestination>),
    /// To a storage that stores them.
    There(Box<StorageDestination<'a>>),
}

impl<'a> CopyDestination<'a> {
    /// Makes the destination this copy's own, before anybody else is troubled.
    pub(super) fn own(
        &mut self,
        ctx: &BatchContext,
        item: &PlannedFile,
    ) -> Result<(), CopyFailure> {
        match self {
            Self::Here(download) => download.own_early(ctx),
            Self::There(upload) => upload.own(item),
        }
    }

    /// Safe at the destination when an attempt begins.
    pub(super) fn have(&self) -> &RangeSet {
        match self {
            Self::Here(download) => &download.standing.have,
            Self::There(upload) => &upload.standing.have,
        }
    }

    /// Everything is there already.
    pub(super) fn is_whole(&self, span: CopyRange) -> bool {
        let have = self.have();
        !have.is_empty() && span.size.is_some_and(|size| have.contains(0, size))
    }

    /// Bytes are taken at any offset.
    pub(super) fn is_seekable(&self) -> bool {
        match self {
            Self::Here(download) => download.is_seekable(),
            Self::There(_) => true,
        }
    }

    /// The checksums that can be had of the finished copy.
    pub(super) async fn sums(
        &self,
        to: &mut dyn Storage,
    ) -> Result<AvailableChecksums, CopyFailure> {
        match self {
            Self::Here(download) => Ok(download.sums()),
            Self::There(upload) => upload.sums(to).await,
        }
    }

    /// Facts of the file that has the final name, if `--resume` asks for it to be looked at and it has this size; and
    /// the end that can be summed.
    pub(super) async fn in_place<'e>(
        &self,
        ctx: &BatchContext,
        size: Option<u64>,
        to: &'e mut dyn Storage,
    ) -> Result<Option<(SourceFacts, ChecksumEndpoint<'e>)>, CopyFailure>
    where
        'a: 'e,
    {
        let origin = 0;
        match self {
            Self::Here(download) => {
                let there = download.in_place(ctx, size)?;
                Ok(there.map(|OpenSource { source, facts }| {
                    (
                        facts.unwrap_or_default(),
                        ChecksumEndpoint::Open { source, origin },
                    )
                }))
            }
            Self::There(upload) => {
                let there = upload.in_place(ctx, size, to).await?;
                let path = upload.path();
                let end = ChecksumEndpoint::Named {
                    storage: to,
                    path,
                    origin,
                };
                Ok(there.map(|facts| (facts, end)))
            }
        }
    }

    /// The file that has the final name is the one that was to be copied.
    pub(super) async fn found_in_place(
        &self,
        ctx: &BatchContext,
        item: &PlannedFile,
        (source, size): (&str, Option<u64>),
    ) -> Result<(), CopyFailure> {
        match self {
            Self::Here(download) => download.found_in_place(ctx, item, size).await,
            Self::There(upload) => {
                upload.found_in_place(ctx, item, source, size);
                Ok(())
            }
        }
    }

    /// Before each attempt: finds out what is safe at the destination.
    pub(super) async fn prepare(
        &mut self,
        asked: (&BatchContext, &PlannedFile, Verification),
        identity: CopyIdentity,
        source: (&mut ChecksumEndpoint<'_>, &AvailableChecksums),
        to: &mut dyn Storage,
    ) -> Result<(), CopyFailure> {
        match self {
            Self::Here(download) => download.prepare(asked, identity, source).await,
            Self::There(upload) => upload.prepare(asked, identity, source, to).await,
        }
    }

    /// The state while an attempt runs, and the journal that it is written to.
    pub(super) fn watched(
        &mut self,
        control: &Arc<TransferControl>,
    ) -> (
        Option<&mut Journal>,
        Box<dyn Fn() -> StoredRanges + Send + Sync>,
    ) {
        match self {
            Self::Here(download) => {
                let state = download.state_during(control);
                (download.standing.journal.as_mut(), Box::new(state))
            }
            Self::There(upload) => {
                let safe = upload.safe();
                let state = move || StoredRanges::safe_only(safe());
                (upload.standing.journal.as_mut(), Box::new(state))
            }
        }
    }

    /// The length of an interrupted copy tells what is there; `in_order`: bytes come from the first to
    /// the last.
    pub(super) fn size_tells(&self, in_order: bool) -> bool {
        match self {
            Self::Here(_) => in_order,
            Self::There(upload) => upload.size_tells(),
        }
    }

    /// The sum of the copy: of what was written here, else the storage's own. The outer failure is this
    /// machine's.
    pub(super) async fn sum(
        &self,
        algorithm: ChecksumAlgorithm,
        to: &mut dyn Storage,
    ) -> Result<Result<String, CopyFailure>, CopyFailure> {
        match self {
            Self::Here(download) => {
                let missing = || {
                    let message = "what was written cannot be read again";
                    CopyFailure::new(Exit::Local, message)
                };
                let sum = download.sum(algorithm).await?;
                Ok(sum.ok_or_else(missing))
            }
            Self::There(upload) => {
                let path = upload.store_path();
                Ok(to.checksum(algorithm, 0, None, &path).await)
            }
        }
    }

    /// Compares the copy's size with `expected`; `false` when it is not told.
    pub(super) async fn check_size(
        &self,
        to: &mut dyn Storage,
        expected: Option<u64>,
    ) -> Result<bool, CopyFailure> {
        match (self, expected) {
            // Its length was compared when the last byte had come.
            (Self::Here(_), expected) => Ok(expected.is_some()),
            (Self::There(upload), Some(expected)) => upload.check_size(to, expected).await,
            (Self::There(_), None) => Ok(false),
        }
    }

    /// For messages about a comparison.
    pub(super) fn shown(&self, item: &PlannedFile) -> String {
        match self {
            Self::Here(_) => item.source.display(),
            Self::There(upload) => upload.shown.clone(),
        }
    }

    /// Some of the bytes came in an attempt that a peer did not stand by.
    pub(super) fn is_disputed(&self) -> bool {
        match self {
            Self::Here(download) => download.standing.disputed,
            Self::There(upload) => upload.standing.disputed,
        }
    }

    /// Passes the result of a verification on, and keeps nothing that it proved wrong.
    pub(super) async fn judged<T>(
        &mut self,
        verified: Result<T, CopyFailure>,
    ) -> Result<T, CopyFailure> {
        match self {
            Self::Here(download) => download.judged(verified).await,
            Self::There(upload) => upload.judged(verified),
        }
    }

    /// Gives the whole and verified file its time and its name.
    pub(super) async fn finish(
        &mut self,
        ctx: &BatchContext,
        to: &mut dyn Storage,
        modified: Option<Timestamp>,
        again: bool,
    ) -> Result<UploadFinish, CopyFailure> {
        match self {
            Self::Here(download) => {
                download.finish(modified).await?;
                Ok(UploadFinish::InPlace)
            }
            Self::There(upload) => upload.finish(ctx, to, modified, again).await,
        }
    }

    /// Adds to a final failure where a whole and verified file is that did not get its name.
    pub(super) fn explained(&self, failure: CopyFailure) -> CopyFailure {
        match self {
            Self::Here(_) => failure,
            Self::There(upload) => upload.explained(failure),
        }
    }

    /// Gives up what was resumed; `false` when nothing was.
    pub(super) fn forget_resumed(&mut self) -> bool {
        match self {
            Self::Here(download) => download.forget_resumed(),
            Self::There(upload) => upload.forget_resumed(),
        }
    }

    /// The last attempt's bytes are sent again.
    pub(super) fn in_vain(&self) -> bool {
        match self {
            Self::Here(download) => download.standing.in_vain,
            Self::There(upload) => upload.standing.in_vain,
        }
    }

    /// Nothing can be compared with a source that is open here, too: a pipe cannot be read again.
    pub(super) fn is_unreadable(&self) -> bool {
        matches!(self, Self::Here(download) if !download.is_file())
    }
}

/// A source that was open here is given by the name of its end.
pub(super) fn open_end(source: &Arc<dyn Source>, origin: u64) -> ChecksumEndpoint<'static> {
    ChecksumEndpoint::Open {
        source: Arc::clone(source),
        origin,
    }
}
