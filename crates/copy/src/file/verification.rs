//! Comparison of a copy with its source.

use std::sync::Arc;

use data::store::root::FileChange;
use proto::checksum::ChecksumAlgorithm;

use super::moving::MoveResult;
use super::{CopyState, FileCopy, StorageSessions};
use crate::file::checksums::ChecksumEndpoint;
use crate::file::composite::{composite_sum, sum_of_parts};
use crate::file::destination::CopyDestination;
use crate::file::stream_plan::offset_and_length;
use crate::file::verify::{
    ChecksumComparison, ComparisonResult, PARTIAL_NAME, Verification, choose_verification,
    compare_checksums,
};
use crate::options::VerifyMode;
use crate::storage::capabilities::AvailableChecksums;
use crate::storage::contract::Storage;
use crate::storage::local_checksum::checksum_local;
use crate::storage::open_source::OpenSource;
use ftp::answers::SourceFacts;
use ftp::failure::Sentence;
use ftp::location::Location;
use ftp::session::checksum::CONCURRENT_FROM;
use ftp::{Failure, FailureKind};

/// Verification label of a copy that shares its source's blocks (FICLONE).
const REFLINK_LABEL: &str = "reflink";

/// Result of a verification.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The checksums are the same, or the copy has the source's blocks. The label of the comparison.
    Equal(String),
    /// No checksums were compared, and no size differs. The label of the comparison.
    SameSize(String),
    /// The checksums differ. The failure says how.
    Different(Failure),
}

/// Name of the comparison of a file's parts in summaries.
fn composite_label(algorithm: ChecksumAlgorithm) -> String {
    format!("{}-composite", algorithm.name().to_ascii_lowercase())
}

/// Checksums that are known before they are asked for.
#[derive(Default)]
struct KnownChecksums {
    source: Option<String>,
    copy: Option<String>,
    /// The source's, used if it turns out to be unable to checksum this file.
    fallback: Option<String>,
}

impl FileCopy<'_> {
    /// Compares both ends. `checksums` are those that the source can provide.
    pub(super) async fn verify(
        &self,
        state: &CopyState<'_>,
        sessions: &mut StorageSessions,
        check: Verification,
        checksums: &AvailableChecksums,
        moved: &MoveResult,
    ) -> Result<Verdict, Failure> {
        let Some(algorithm) = check.algorithm() else {
            let label = self.verify_by_size(state, sessions, check, moved).await?;
            let available = self
                .checksum_available_now(state, sessions, check, checksums)
                .await?;
            return match available.and_then(|available| Some((available, available.algorithm()?))) {
                Some((available, algorithm)) => {
                    let unknown = KnownChecksums::default();
                    self.verify_by_checksum(state, sessions, available, algorithm, unknown, moved)
                        .await
                }
                None => match self
                    .verify_by_parts(state, sessions, check, checksums)
                    .await?
                {
                    Some(verdict) => Ok(verdict),
                    None => Ok(Verdict::SameSize(label)),
                },
            };
        };
        let report = moved.report.as_ref();
        if report.is_some_and(|report| report.shares_blocks) && !check.is_required() {
            return Ok(Verdict::Equal(REFLINK_LABEL.to_owned()));
        }
        // The checksum of the bytes that passed through this machine is the source's if they were
        // read here or the source cannot provide one. It is the copy's if they were stored here.
        let passing_checksum = report.and_then(|report| report.checksum.clone());
        let (source, copy) = match (state.source_is_local(), state.destination_is_storage()) {
            (true, _) => (passing_checksum.clone(), moved.copy_checksum.clone()),
            (false, true) => (
                passing_checksum
                    .clone()
                    .filter(|_| state.checksums_passing_bytes),
                None,
            ),
            (false, false) => (moved.source_checksum.clone(), passing_checksum.clone()),
        };
        let known = KnownChecksums {
            source,
            copy,
            fallback: passing_checksum.filter(|_| state.destination_is_storage()),
        };
        self.verify_by_checksum(state, sessions, check, algorithm, known, moved)
            .await
    }

    /// The verification by a checksum that the storage provides only after the copy is stored (for
    /// example a Repr-Digest header, RFC 9530).
    async fn checksum_available_now(
        &self,
        state: &CopyState<'_>,
        sessions: &mut StorageSessions,
        check: Verification,
        checksums: &AvailableChecksums,
    ) -> Result<Option<Verification>, Failure> {
        if check != Verification::Size || !state.destination_is_storage() || state.is_pipe() {
            return Ok(None);
        }
        let copy = state
            .destination
            .available_checksums(&mut *sessions.to)
            .await?;
        choose_verification(
            VerifyMode::Auto,
            &state.checksum_abilities(checksums, &copy),
        )
        .map(Some)
    }

    /// Compares the checksum of one end's parts with that of the same parts at the other end. `None`: no end has one, or the
    /// other end cannot checksum these parts.
    async fn verify_by_parts(
        &self,
        state: &CopyState<'_>,
        sessions: &mut StorageSessions,
        check: Verification,
        source_checksums: &AvailableChecksums,
    ) -> Result<Option<Verdict>, Failure> {
        if check != Verification::Size || state.is_pipe() || state.range.part.is_some() {
            return Ok(None);
        }
        let path = self.item.source.path();
        let StorageSessions { from, to } = sessions;
        let store_path = match &state.destination {
            CopyDestination::Local(_) => Vec::new(),
            CopyDestination::Storage(upload) => upload.store_path(),
        };
        let of_source = match state.source_is_local() {
            true => None,
            false => composite_sum(&mut **from, path).await?,
        };
        let of_source_is_stored = of_source.is_some();
        let (sum, compared) = match of_source {
            Some(sum) => {
                let copy = state.destination.available_checksums(&mut **to).await?;
                let endpoint = match &state.destination {
                    _ if !copy.ranges.contains(&sum.algorithm) => return Ok(None),
                    CopyDestination::Local(download) => match download.reader() {
                        Some(source) => ChecksumEndpoint::Open { source, origin: 0 },
                        None => return Ok(None),
                    },
                    CopyDestination::Storage(_) => ChecksumEndpoint::Named {
                        storage: &mut **to,
                        path: &store_path,
                        origin: 0,
                    },
                };
                let compared = sum_of_parts(endpoint, &sum).await?;
                (sum, compared)
            }
            None => {
                let sum = match state.destination_is_storage() {
                    true => composite_sum(&mut **to, &store_path).await?,
                    false => None,
                };
                let Some(sum) = sum else {
                    return Ok(None);
                };
                if !source_checksums.ranges.contains(&sum.algorithm) {
                    return Ok(None);
                }
                let compared = sum_of_parts(state.source_endpoint(&mut **from, path), &sum).await?;
                (sum, compared)
            }
        };
        let Some(compared) = compared else {
            return Ok(None);
        };
        let name = state.destination.display_name(self.item);
        let algorithm = sum.algorithm;
        let (source, copy) = match of_source_is_stored {
            true => (&sum.sum, &compared),
            false => (&compared, &sum.sum),
        };
        Ok(match compare_checksums(algorithm, source, copy, &name) {
            Ok(()) => Some(Verdict::Equal(composite_label(algorithm))),
            Err(mismatch) if sum.is_certain => Some(Verdict::Different(mismatch)),
            Err(_) => None,
        })
    }

    /// Compares checksums by `algorithm`, that of `check`. Those that are known already are not requested.
    async fn verify_by_checksum(
        &self,
        state: &CopyState<'_>,
        sessions: &mut StorageSessions,
        check: Verification,
        algorithm: ChecksumAlgorithm,
        known: KnownChecksums,
        moved: &MoveResult,
    ) -> Result<Verdict, Failure> {
        let StorageSessions { from, to } = sessions;
        let (source, copy) = tokio::join!(
            self.source_checksum(state, &mut **from, algorithm, known.source),
            self.copy_checksum(state, &mut **to, algorithm, known.copy)
        );
        let source = match (source?, known.fallback) {
            (Err(failure), Some(checksum)) if !failure.may_retry() => Ok(checksum),
            (source, _) => source,
        };
        let comparison = ChecksumComparison {
            check,
            display_name: &state.destination.display_name(self.item),
            unconfirmed: state.destination.is_unconfirmed(),
        };
        match comparison.evaluate(algorithm, source, copy?)? {
            ComparisonResult::Same => Ok(Verdict::Equal(check.label())),
            ComparisonResult::Different(mismatch) => Ok(Verdict::Different(mismatch)),
            ComparisonResult::SizeOnly(warning) => {
                let label = self.verify_by_size(state, sessions, check, moved).await?;
                self.ctx.warn(warning);
                Ok(Verdict::SameSize(label))
            }
        }
    }

    async fn verify_by_size(
        &self,
        state: &CopyState<'_>,
        sessions: &mut StorageSessions,
        check: Verification,
        moved: &MoveResult,
    ) -> Result<String, Failure> {
        let bytes_moved = moved.report.as_ref().map(|report| report.evidence.bytes);
        let bytes_moved =
            bytes_moved.map(|bytes| state.destination.safe_ranges().byte_count().max(bytes));
        let known = state
            .range
            .size
            .or(bytes_moved.filter(|_| state.source_is_local()));
        let to = &mut *sessions.to;
        let available = state.destination.check_size(to, known).await?;
        if !available && known.is_some() && check != Verification::ByteCount {
            self.ctx.warn(format!(
                "{} shows no size of what it stores: only its confirmation proves the copies",
                to.name()
            ));
        }
        Ok(check.size_label(available))
    }

    /// Checksum of the copied part at the source. The outer error is a failure of this machine.
    async fn source_checksum(
        &self,
        state: &CopyState<'_>,
        from: &mut dyn Storage,
        algorithm: ChecksumAlgorithm,
        known: Option<String>,
    ) -> Result<Result<String, Failure>, Failure> {
        if let Some(checksum) = known {
            return Ok(Ok(checksum));
        }
        let Some(opened) = &state.source else {
            let (offset, length) = offset_and_length(state.range.part);
            let path = self.item.source.path();
            return Ok(from.checksum(algorithm, offset, length, path).await);
        };
        // Without facts the source is a pipe.
        if opened.facts.is_none() {
            let message = "the source cannot be read again";
            return Ok(Err(Failure::local(message)));
        }
        let (source, origin) = (Arc::clone(&opened.source), state.range.origin());
        checksum_local(algorithm, source, origin, state.range.size)
            .await
            .map(Ok)
    }

    /// Checksum of the copy: as computed during the transfer, otherwise of the stored bytes.
    async fn copy_checksum(
        &self,
        state: &CopyState<'_>,
        to: &mut dyn Storage,
        algorithm: ChecksumAlgorithm,
        known: Option<String>,
    ) -> Result<Result<String, Failure>, Failure> {
        match known {
            Some(checksum) => Ok(Ok(checksum)),
            None => state.destination.checksum(algorithm, to).await,
        }
    }

    /// Whether the source's facts are read again after the transfer. A large file may have changed
    /// while it moved; the checksum of a small one, requested afterwards, would have shown it.
    /// Local files are always checked, because that costs no round trip.
    pub(super) fn rechecks_source(&self, state: &CopyState<'_>, check: Verification) -> bool {
        if state.source_is_local() {
            return !state.is_pipe();
        }
        let large = state.range.size.is_none_or(|size| size >= CONCURRENT_FROM);
        check != Verification::ByteCount && large && state.facts.size.is_some()
    }

    /// Fails when the source changed since the copy began. `label`: the name of the comparison that was made. A local file of
    /// which only attributes changed is compared once more: one who rewrites it can set its time back. Without a checksum it
    /// is unknown whether the copy is of one version, and the copy starts over, once. Returns the name of the last
    /// comparison.
    pub(super) async fn confirm_source(
        &mut self,
        state: &mut CopyState<'_>,
        sessions: &mut StorageSessions,
        check: Verification,
        checksums: &AvailableChecksums,
        mut label: String,
    ) -> Result<String, Failure> {
        if !self.rechecks_source(state, check) {
            return Ok(label);
        }
        let source = &self.item.source;
        if !state.source_is_local() {
            let now = sessions.from.stat_to_read(source.path()).await?;
            let now = SourceFacts::from_entry(&now);
            return match is_unchanged(state.facts, now, check.algorithm().is_some()) {
                true => Ok(label),
                false => Err(source_changed_failure(source)),
            };
        }
        for _ in 0..MAX_LOOKS {
            let opened = state.source.as_mut();
            match opened.map_or(Ok(FileChange::None), OpenSource::change_since_last_look)? {
                FileChange::None => return Ok(label),
                FileChange::Content => return Err(source_changed_failure(source)),
                FileChange::Attributes => {}
            }
            // Nothing that is known of the source counts any more.
            let unknown = MoveResult::default();
            label = match self
                .verify(state, sessions, check, checksums, &unknown)
                .await?
            {
                Verdict::Equal(label) => label,
                Verdict::SameSize(_) if self.repairs.doubt(state.is_sequential()) => {
                    return Err(attributes_changed_failure(source));
                }
                // Somebody keeps changing them. That alone fails no copy.
                Verdict::SameSize(label) => {
                    let failure = attributes_changed_failure(source);
                    self.ctx.warn(failure.to_string());
                    label
                }
                Verdict::Different(_) => return Err(source_changed_failure(source)),
            };
        }
        // Somebody keeps changing its attributes. Each time all of its content was in the copy.
        Ok(label)
    }
}

/// Most times that a file is compared whose attributes keep changing.
const MAX_LOOKS: u32 = 3;

/// Whether a remote source is what it was at planning time. Servers may omit any fact; a missing one is no sign of a change.
/// `has_checksum`: the bytes that arrived are known to be those of one version.
fn is_unchanged(before: SourceFacts, now: SourceFacts, has_checksum: bool) -> bool {
    let is_same = |before: Option<u64>, now: Option<u64>| {
        before.zip(now).is_none_or(|(before, now)| before == now)
    };
    let time = |facts: SourceFacts| facts.modified.map(|time| time.0.cast_unsigned());
    is_same(before.size, now.size)
        && is_same(time(before), time(now))
        && (has_checksum
            || is_same(before.version, now.version) && is_same(before.identity, now.identity))
}

pub(super) fn source_changed_failure(source: &Location) -> Failure {
    let reason = Sentence::about(source.display()).words(" changed while it was copied");
    Failure::new(FailureKind::Integrity, reason).advise(PARTIAL_NAME)
}

fn attributes_changed_failure(source: &Location) -> Failure {
    let reason = Sentence::from("attributes of ").name(source.display());
    Failure::new(
        FailureKind::Integrity,
        reason.words(" changed while it was copied, and no checksum shows whether its content did"),
    )
}

#[cfg(test)]
mod tests {
    use proto::timestamp::Timestamp;

    use super::*;

    #[test]
    fn a_remote_source_is_known_by_all_that_its_server_tells() {
        let before = SourceFacts {
            size: Some(5),
            modified: Some(Timestamp(7)),
            version: Some(1),
            identity: Some(1),
            ..SourceFacts::default()
        };
        let with = |change: fn(&mut SourceFacts)| {
            let mut now = before;
            change(&mut now);
            now
        };
        for (now, has_checksum, unchanged) in [
            (before, false, true),
            (SourceFacts::default(), false, true),
            (with(|now| now.size = Some(6)), true, false),
            (with(|now| now.modified = Some(Timestamp(8))), true, false),
            (with(|now| now.version = Some(2)), false, false),
            (with(|now| now.version = Some(2)), true, true),
            (with(|now| now.identity = Some(2)), false, false),
            (with(|now| now.identity = Some(2)), true, true),
        ] {
            assert_eq!(
                is_unchanged(before, now, has_checksum),
                unchanged,
                "{now:?}"
            );
        }
    }
}
