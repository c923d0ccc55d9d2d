//! Checksums of the two ends of a copy.

use std::sync::Arc;

use data::store::Source;
use proto::checksum::ChecksumAlgorithm;
use proto::ranges::{ByteRange, RangeSet};

use crate::storage::capabilities::AvailableChecksums;
use crate::storage::contract::{FilePart, Storage};
use crate::storage::local_checksum::checksum_local;
use ftp::Failure;

/// Bytes at the end of each safe range that are compared before a copy is resumed.
const COMPARED_TAIL: u64 = 4 << 20;
/// Most ranges that are compared.
const MAX_COMPARED_RANGES: usize = 16;
/// Most range checksums that are computed of an open file.
const MAX_LOCAL_QUERIES: usize = 128;

/// One end of a copy, whose bytes can be checksummed. `origin` is the offset of the copy's byte 0.
pub(crate) enum ChecksumEndpoint<'a> {
    /// A file that this process has open.
    Open {
        /// The file.
        source: Arc<dyn Source>,
        /// Offset of the part.
        origin: u64,
    },
    /// A file at a storage.
    Named {
        /// A session that runs no other command.
        storage: &'a mut dyn Storage,
        /// Path of the file.
        path: &'a [u8],
        /// Offset of the part.
        origin: u64,
    },
}

/// The source of a copy, with which stored bytes are compared.
pub(crate) struct ComparableSource<'a> {
    /// Its bytes.
    pub(crate) endpoint: ChecksumEndpoint<'a>,
    /// The checksums that it can provide.
    pub(crate) checksums: &'a AvailableChecksums,
}

impl ChecksumEndpoint<'_> {
    /// Most range checksums that should be requested.
    pub(crate) fn max_queries(&self) -> usize {
        match self {
            Self::Named { storage, .. } => storage.capabilities().max_queries,
            Self::Open { .. } => MAX_LOCAL_QUERIES,
        }
    }

    /// The checksums of ranges, in order.
    pub(crate) async fn checksums(
        &mut self,
        algorithm: ChecksumAlgorithm,
        ranges: &[ByteRange],
    ) -> Result<Vec<String>, Failure> {
        match self {
            Self::Open { source, origin } => {
                let mut checksums = Vec::with_capacity(ranges.len());
                // One after the other: hashing a local file is bound by one CPU or the disk, not by
                // round trips.
                for range in ranges {
                    let (source, start) = (Arc::clone(source), *origin + range.start);
                    checksums
                        .push(checksum_local(algorithm, source, start, Some(range.len())).await?);
                }
                Ok(checksums)
            }
            Self::Named {
                storage,
                path,
                origin,
            } => {
                let part_of = |range: &ByteRange| FilePart {
                    offset: *origin + range.start,
                    length: Some(range.len()),
                };
                let parts: Vec<_> = ranges.iter().map(part_of).collect();
                storage.checksums(algorithm, &parts, path).await
            }
        }
    }

    async fn range_checksum(
        &mut self,
        algorithm: ChecksumAlgorithm,
        range: ByteRange,
    ) -> Result<String, Failure> {
        let (start, length) = (range.start, Some(range.len()));
        self.checksum(algorithm, start, length).await
    }

    /// The checksum from the origin on, of `length` bytes or to the end. Storages that can only
    /// checksum whole files support this too.
    pub(crate) async fn whole_checksum(
        &mut self,
        algorithm: ChecksumAlgorithm,
        length: Option<u64>,
    ) -> Result<String, Failure> {
        self.checksum(algorithm, 0, length).await
    }

    async fn checksum(
        &mut self,
        algorithm: ChecksumAlgorithm,
        start: u64,
        length: Option<u64>,
    ) -> Result<String, Failure> {
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

/// Compares the ends of the safe ranges: at most 4 MiB of each, and the last 16 ranges at most.
pub(crate) async fn range_ends_agree(
    a: &mut ChecksumEndpoint<'_>,
    b: &mut ChecksumEndpoint<'_>,
    algorithm: ChecksumAlgorithm,
    safe: &RangeSet,
) -> Result<bool, Failure> {
    // The last ranges are those most recently written, so the most likely to be incomplete.
    let skip = safe.range_count().saturating_sub(MAX_COMPARED_RANGES);
    for range in safe.iter().skip(skip) {
        let tail = ByteRange {
            start: range.start.max(range.end.saturating_sub(COMPARED_TAIL)),
            end: range.end,
        };
        if !range_agrees(a, b, algorithm, tail).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Compares the checksums of one range.
pub(crate) async fn range_agrees(
    a: &mut ChecksumEndpoint<'_>,
    b: &mut ChecksumEndpoint<'_>,
    algorithm: ChecksumAlgorithm,
    range: ByteRange,
) -> Result<bool, Failure> {
    let (a, b) = tokio::join!(
        a.range_checksum(algorithm, range),
        b.range_checksum(algorithm, range)
    );
    Ok(a?.eq_ignore_ascii_case(&b?))
}

/// Compares the checksums of a group of ranges, which are requested together. `None`: an end cannot provide them.
/// Errors are lost connections.
pub(crate) async fn ranges_agree(
    a: &mut ChecksumEndpoint<'_>,
    b: &mut ChecksumEndpoint<'_>,
    algorithm: ChecksumAlgorithm,
    ranges: &[ByteRange],
) -> Result<Option<Vec<bool>>, Failure> {
    let checksums = tokio::join!(
        a.checksums(algorithm, ranges),
        b.checksums(algorithm, ranges)
    );
    match checksums {
        (Ok(a), Ok(b)) => {
            let pairs = a.iter().zip(&b);
            Ok(Some(
                pairs.map(|(a, b)| a.eq_ignore_ascii_case(b)).collect(),
            ))
        }
        (Err(failure), _) | (_, Err(failure)) if failure.may_retry() => Err(failure),
        _ => Ok(None),
    }
}

/// The cheapest algorithm for parts of files that all ends support.
pub(crate) fn common_range_algorithm(ends: &[&AvailableChecksums]) -> Option<ChecksumAlgorithm> {
    ChecksumAlgorithm::CHEAPEST_FIRST
        .into_iter()
        .find(|a| ends.iter().all(|checksums| checksums.ranges.contains(a)))
}
