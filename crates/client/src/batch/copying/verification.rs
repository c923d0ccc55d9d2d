//! The comparison of a copy with its source.

use std::sync::Arc;

use proto::checksum::ChecksumAlgorithm;

use super::super::stream_plan::extent;
use super::moving::MoveResult;
use super::{CopyState, FileCopy, StorageSessions};
use crate::storage::contract::{AvailableChecksums, Storage};
use crate::verify::{
    ChecksumComparison, ComparisonResult, Verification, checksum_local, choose_verification,
};
use crate::{CopyFailure, Exit, VerifyMode};

/// The label of a copy that shares its source's blocks.
const SHARED: &str = "reflink";

impl FileCopy<'_> {
    /// Compares both ends; says what was compared. `sums` can be had of the source.
    pub(super) async fn verify(
        &self,
        begun: &CopyState<'_>,
        sessions: &mut StorageSessions,
        (check, sums): (Verification, &AvailableChecksums),
        moved: &MoveResult,
    ) -> Result<String, CopyFailure> {
        let Some(algorithm) = check.algorithm() else {
            let label = self.by_size(begun, sessions, check, moved).await?;
            let told = self.told_now(begun, sessions, (check, sums)).await?;
            return match told.and_then(|told| Some((told, told.algorithm()?))) {
                Some((told, algorithm)) => {
                    let (asked, unknown) = ((told, algorithm, None), (None, None));
                    self.by_sum(begun, sessions, asked, unknown, moved).await
                }
                None => Ok(label),
            };
        };
        let report = moved.report.as_ref();
        if report.is_some_and(|report| report.shares_blocks) && !check.is_required() {
            return Ok(SHARED.to_owned());
        }
        // The bytes that passed are the source's where it was read here, or where it cannot tell the sum;
        // the copy's where they were stored here.
        let passed = report.and_then(|report| report.checksum.clone());
        let known = match (begun.reads_here(), begun.stores_there()) {
            (true, _) => (passed.clone(), None),
            (false, true) => (passed.clone().filter(|_| begun.sums_what_passes), None),
            (false, false) => (moved.source_sum.clone(), passed.clone()),
        };
        // A source that cannot sum this file after all.
        let instead = passed.filter(|_| begun.stores_there());
        let asked = (check, algorithm, instead);
        self.by_sum(begun, sessions, asked, known, moved).await
    }

    /// The check by a sum that the storage tells of the copy only now that it is there.
    async fn told_now(
        &self,
        begun: &CopyState<'_>,
        sessions: &mut StorageSessions,
        (check, sums): (Verification, &AvailableChecksums),
    ) -> Result<Option<Verification>, CopyFailure> {
        if check != Verification::Size || !begun.stores_there() || begun.is_pipe() {
            return Ok(None);
        }
        let copy = begun.receiving.sums(&mut *sessions.to).await?;
        choose_verification(VerifyMode::Auto, &begun.summed(sums, &copy)).map(Some)
    }

    /// Compares sums; what is known of those of the source and the copy is not asked for.
    async fn by_sum(
        &self,
        begun: &CopyState<'_>,
        sessions: &mut StorageSessions,
        (check, algorithm, instead): (Verification, ChecksumAlgorithm, Option<String>),
        (source, copy): (Option<String>, Option<String>),
        moved: &MoveResult,
    ) -> Result<String, CopyFailure> {
        let StorageSessions { from, to } = sessions;
        let (source, copy) = tokio::join!(
            self.source_sum(begun, &mut **from, algorithm, source),
            self.copy_sum(begun, &mut **to, algorithm, copy)
        );
        let source = match (source?, instead) {
            (Err(failure), Some(sum)) if !failure.transient => Ok(sum),
            (source, _) => source,
        };
        let comparison = ChecksumComparison {
            check,
            shown: &begun.receiving.shown(self.item),
            disputed: begun.receiving.is_disputed(),
        };
        match comparison.of(algorithm, source, copy?)? {
            ComparisonResult::Same => Ok(check.label()),
            ComparisonResult::SizeOnly(warning) => {
                let label = self.by_size(begun, sessions, check, moved).await?;
                self.ctx.warn(warning);
                Ok(label)
            }
        }
    }

    async fn by_size(
        &self,
        begun: &CopyState<'_>,
        sessions: &mut StorageSessions,
        check: Verification,
        moved: &MoveResult,
    ) -> Result<String, CopyFailure> {
        let sent = moved.report.as_ref().map(|report| report.evidence.bytes);
        let sent = sent.map(|bytes| begun.receiving.have().byte_count().max(bytes));
        let known = begun.span.size.or(sent.filter(|_| begun.reads_here()));
        let to = &mut *sessions.to;
        let told = begun.receiving.check_size(to, known).await?;
        Ok(check.size_label(told))
    }

    /// The sum of what is copied, at the source. The outer failure is this machine's.
    async fn source_sum(
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
            let (offset, length) = extent(begun.span.part);
            let path = self.item.source.path();
            return Ok(from.checksum(algorithm, offset, length, path).await);
        };
        if opened.facts.is_none() {
            let message = "the source cannot be read again";
            return Ok(Err(CopyFailure::new(Exit::Local, message)));
        }
        let (source, origin) = (Arc::clone(&opened.source), begun.span.origin());
        checksum_local(algorithm, source, origin, begun.span.size)
            .await
            .map(Ok)
    }

    /// The copy's sum: as computed on the way, else of what is stored.
    async fn copy_sum(
        &self,
        begun: &CopyState<'_>,
        to: &mut dyn Storage,
        algorithm: ChecksumAlgorithm,
        known: Option<String>,
    ) -> Result<Result<String, CopyFailure>, CopyFailure> {
        match known {
            Some(sum) => Ok(Ok(sum)),
            None => begun.receiving.sum(algorithm, to).await,
        }
    }
}
