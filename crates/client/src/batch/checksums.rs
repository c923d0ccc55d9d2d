//! Checksums of the two ends of a copy, wherever they are.

use std::sync::Arc;

use data::store::Source;
use proto::checksum::ChecksumAlgorithm;
use proto::ranges::{ByteRange, RangeSet};

use crate::CopyFailure;
use crate::storage::contract::{AvailableChecksums, Storage};
use crate::verify::checksum_local;

/// Bytes at the end of each safe range that are compared before a copy is resumed.
const SPOT: u64 = 4 << 20;
/// Most ranges that are compared.
const SPOTS: usize = 16;
/// Most sums of ranges of an open file that are worth computing.
const MOST_HERE: usize = 128;

/// One end of a copy: bytes that can be summed. `origin` is where the copy's byte 0 is.
pub(super) enum ChecksumEndpoint<'a> {
    /// Open here.
    Open {
        /// The file.
        source: Arc<dyn Source>,
        /// Offset of the part.
        origin: u64,
    },
    /// By its name, where it is kept.
    Named {
        /// Idle.
        storage: &'a mut dyn Storage,
        /// The file.
        path: &'a [u8],
        /// Offset of the part.
        origin: u64,
    },
}

impl ChecksumEndpoint<'_> {
    /// Most sums of ranges that are worth asking for.
    pub(super) fn questions(&self) -> usize {
        match self {
            Self::Named { storage, .. } => storage.capabilities().concurrency,
            Self::Open { .. } => MOST_HERE,
        }
    }

    /// The sums of ranges, in their order.
    pub(super) async fn sums(
        &mut self,
        algorithm: ChecksumAlgorithm,
        ranges: &[ByteRange],
    ) -> Result<Vec<String>, CopyFailure> {
        match self {
            Self::Open { source, origin } => {
                let mut sums = Vec::with_capacity(ranges.len());
                for range in ranges {
                    let (source, start) = (Arc::clone(source), *origin + range.start);
                    sums.push(checksum_local(algorithm, source, start, Some(range.len())).await?);
                }
                Ok(sums)
            }
            Self::Named {
                storage,
                path,
                origin,
            } => {
                let at = |range: &ByteRange| (*origin + range.start, range.len());
                let ranges: Vec<(u64, u64)> = ranges.iter().map(at).collect();
                storage.checksums(algorithm, &ranges, path).await
            }
        }
    }

    async fn sum(
        &mut self,
        algorithm: ChecksumAlgorithm,
        range: ByteRange,
    ) -> Result<String, CopyFailure> {
        let (start, length) = (range.start, Some(range.len()));
        self.of(algorithm, start, length).await
    }

    /// The sum from the origin on: of `length` bytes, or to the end. Storages that sum whole files only
    /// can do that, too.
    pub(super) async fn total(
        &mut self,
        algorithm: ChecksumAlgorithm,
        length: Option<u64>,
    ) -> Result<String, CopyFailure> {
        self.of(algorithm, 0, length).await
    }

    async fn of(
        &mut self,
        algorithm: ChecksumAlgorithm,
        start: u64,
        length: Option<u64>,
    ) -> Result<String, CopyFailure> {
        match self {
            Self::Open { source, origin } => {
                checksum_local(algorithm, Arc::clone(source), *origin + start, length).await
            }
            Self::Named {
                storage,
                path,
                origin,
            } => {
                let offset = *origin + start;
                storage.checksum(algorithm, offset, length, path).await
            }
        }
    }
}

/// Compares the ends of the safe ranges (at most 4 MiB of each, at most 16 ranges, the last ones).
pub(super) async fn spots_agree(
    a: &mut ChecksumEndpoint<'_>,
    b: &mut ChecksumEndpoint<'_>,
    algorithm: ChecksumAlgorithm,
    safe: &RangeSet,
) -> Result<bool, CopyFailure> {
    let skip = safe.range_count().saturating_sub(SPOTS);
    for range in safe.iter().skip(skip) {
        let spot = ByteRange {
            start: range.start.max(range.end.saturating_sub(SPOT)),
            end: range.end,
        };
        if !agree(a, b, algorithm, spot).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Compares one range.
pub(super) async fn agree(
    a: &mut ChecksumEndpoint<'_>,
    b: &mut ChecksumEndpoint<'_>,
    algorithm: ChecksumAlgorithm,
    range: ByteRange,
) -> Result<bool, CopyFailure> {
    let (a, b) = tokio::join!(a.sum(algorithm, range), b.sum(algorithm, range));
    Ok(a?.eq_ignore_ascii_case(&b?))
}

/// The cheapest algorithm for parts of files that all ends have.
pub(super) fn partial_algorithm(ends: &[&AvailableChecksums]) -> Option<ChecksumAlgorithm> {
    ChecksumAlgorithm::CHEAPEST_FIRST
        .into_iter()
        .find(|a| ends.iter().all(|sums| sums.parts.contains(a)))
}
