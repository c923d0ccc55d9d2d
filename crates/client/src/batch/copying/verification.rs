//! Comparison of a copy with its source.

use std::sync::Arc;

use proto::checksum::ChecksumAlgorithm;

use super::super::stream_plan::offset_and_length;
use super::moving::MoveResult;
use super::{CopyState, FileCopy, StorageSessions};
use crate::storage::contract::{AvailableChecksums, Storage};
use crate::verify::{
    ChecksumComparison, ComparisonResult, Verification, checksum_local, choose_verification,
};
use crate::{CopyFailure, Exit, VerifyMode};

/// Verification label of a copy that shares its source's blocks (FICLONE).
const REFLINK_LABEL: &str = "reflink";

impl FileCopy<'_> {
    /// Compares both ends and returns the label of the comparison. `checksums` are those that the
    /// source can provide.
    pub(super) async fn verify(
        &self,
        begun: &CopyState<'_>,
        sessions: &mut StorageSessions,
        (check, sums): (Verification, &AvailableChecksums),
        moved: &MoveResult,
    ) -> Result<String, CopyFailure> {
        let Some(algorithm) = check.algorithm() else {
            let label = self.verify_by_size(begun, sessions, check, moved).await?;
            let told = self
                .checksum_available_now(begun, sessions, (check, sums))
                .await?;
            return match told.and_then(|told| Some((told, told.algorithm()?))) {
                Some((told, algorithm)) => {
                    let (asked, unknown) = ((told, algorithm, None), (None, None));
                    self.verify_by_checksum(begun, sessions, asked, unknown, moved)
                        .await
                }
                None => Ok(label),
            };
        };
        let report = moved.report.as_ref();
        if report.is_some_and(|report| report.shares_blocks) && !check.is_required() {
            return Ok(REFLINK_LABEL.to_owned());
        }
        // The checksum of the bytes that passed through this machine is the source's if they were
        // read here or the source cannot provide one. It is the copy's if they were stored here.
        let passed = report.and_then(|report| report.checksum.clone());
        let known = match (begun.source_is_local(), begun.destination_is_storage()) {
            (true, _) => (passed.clone(), None),
            (false, true) => (
                passed.clone().filter(|_| begun.checksums_passing_bytes),
                None,
            ),
            (false, false) => (moved.source_checksum.clone(), passed.clone()),
        };
        // Used if the source turns out to be unable to checksum this file.
        let instead = passed.filter(|_| begun.destination_is_storage());
        let asked = (check, algorithm, instead);
        self.verify_by_checksum(begun, sessions, asked, known, moved)
            .await
    }

    /// The verification by a checksum that the storage provides only after the copy is stored (for
    /// example a Repr-Digest header, RFC 9530).
    async fn checksum_available_now(
        &self,
        begun: &CopyState<'_>,
        sessions: &mut StorageSessions,
        (check, sums): (Verification, &AvailableChecksums),
    ) -> Result<Option<Verification>, CopyFailure> {
        if check != Verification::Size || !begun.destination_is_storage() || begun.is_pipe() {
            return Ok(None);
        }
        let copy = begun
            .destination
            .available_checksums(&mut *sessions.to)
            .await?;
        choose_verification(VerifyMode::Auto, &begun.checksum_abilities(sums, &copy)).map(Some)
    }

    /// Compares checksums. Those that are known already are not requested.
    async fn verify_by_checksum(
        &self,
        begun: &CopyState<'_>,
        sessions: &mut StorageSessions,
        (check, algorithm, instead): (Verification, ChecksumAlgorithm, Option<String>),
        (source, copy): (Option<String>, Option<String>),
        moved: &MoveResult,
    ) -> Result<String, CopyFailure> {
        let StorageSessions { from, to } = sessions;
        let (source, copy) = tokio::join!(
            self.source_checksum(begun, &mut **from, algorithm, source),
            self.copy_checksum(begun, &mut **to, algorithm, copy)
        );
        let source = match (source?, instead) {
            (Err(failure), Some(sum)) if !failure.transient => Ok(sum),
            (source, _) => source,
        };
        let comparison = ChecksumComparison {
            check,
            display_name: &begun.destination.display_name(self.item),
            unconfirmed: begun.destination.is_unconfirmed(),
        };
        match comparison.evaluate(algorithm, source, copy?)? {
            ComparisonResult::Same => Ok(check.label()),
            ComparisonResult::SizeOnly(warning) => {
                let label = self.verify_by_size(begun, sessions, check, moved).await?;
                self.ctx.warn(warning);
                Ok(label)
            }
        }
    }

    async fn verify_by_size(
        &self,
        begun: &CopyState<'_>,
        sessions: &mut StorageSessions,
        check: Verification,
        moved: &MoveResult,
    ) -> Result<String, CopyFailure> {
        let sent = moved.report.as_ref().map(|report| report.evidence.bytes);
        let sent = sent.map(|bytes| begun.destination.safe_ranges().byte_count().max(bytes));
        let known = begun
            .range
            .size
            .or(sent.filter(|_| begun.source_is_local()));
        let to = &mut *sessions.to;
        let told = begun.destination.check_size(to, known).await?;
        Ok(check.size_label(told))
    }

    /// Checksum of the copied part at the source. The outer error is a failure of this machine.
    async fn source_checksum(
        &self,
        begun: &CopyState<'_>,
        from: &mut dyn Storage,
        algorithm: ChecksumAlgorithm,
        known: Option<String>,
    ) -> Result<Result<String, CopyFailure>, CopyFailure> {
        if let Some(sum) = known {
            return Ok(Ok(sum));
        }
        let Some(opened) = &begun.source else {
            let (offset, length) = offset_and_length(begun.range.part);
            let path = self.item.source.path();
            return Ok(from.checksum(algorithm, offset, length, path).await);
        };
        if opened.facts.is_none() {
            let message = "the source cannot be read again";
            return Ok(Err(CopyFailure::new(Exit::Local, message)));
        }
        let (source, origin) = (Arc::clone(&opened.source), begun.range.origin());
        checksum_local(algorithm, source, origin, begun.range.size)
            .await
            .map(Ok)
    }

    /// Checksum of the copy: as computed during the transfer, otherwise of the stored bytes.
    async fn copy_checksum(
        &self,
        begun: &CopyState<'_>,
        to: &mut dyn Storage,
        algorithm: ChecksumAlgorithm,
        known: Option<String>,
    ) -> Result<Result<String, CopyFailure>, CopyFailure> {
        match known {
            Some(sum) => Ok(Ok(sum)),
            None => begun.destination.checksum(algorithm, to).await,
        }
    }
}
