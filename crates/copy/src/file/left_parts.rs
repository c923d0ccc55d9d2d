//! Which parts of an unfinished upload are those of the source: the ones whose checksums are the same.

use proto::checksum::ChecksumAlgorithm;
use proto::ranges::{ByteRange, RangeSet};

use crate::file::checksums::ComparableSource;
use crate::storage::contract::Storage;
use crate::storage::optional::LeftPart;
use ftp::Failure;

/// The ranges of a copy of `size` bytes that an earlier one has left at the storage, proved part by part.
///
/// # Errors
/// A lost session.
pub(crate) async fn proved_parts(
    session: &mut dyn Storage,
    path: &[u8],
    size: u64,
    mut source: ComparableSource<'_>,
) -> Result<RangeSet, Failure> {
    let mut proved = RangeSet::new();
    let Some(uploads) = session.unfinished_uploads() else {
        return Ok(proved);
    };
    let parts = match uploads.left_parts(path, size).await {
        Err(failure) if failure.may_retry() => return Err(failure),
        // Without them the file is sent whole.
        parts => parts.unwrap_or_default(),
    };
    let together = source.endpoint.max_queries().max(1);
    for parts in parts.chunk_by(|a, b| a.algorithm == b.algorithm) {
        let algorithm = parts.first().map(|part| part.algorithm);
        let Some(algorithm) = algorithm.filter(|algorithm| has(&source, *algorithm)) else {
            continue;
        };
        for parts in parts.chunks(together) {
            let ranges: Vec<ByteRange> = parts.iter().map(|part| part.range).collect();
            let sums = match source.endpoint.checksums(algorithm, &ranges).await {
                Err(failure) if failure.may_retry() => return Err(failure),
                Err(_) => return Ok(proved),
                Ok(sums) => sums,
            };
            let equal =
                |(part, sum): &(&LeftPart, &String)| part.checksum.eq_ignore_ascii_case(sum);
            for (part, _) in parts.iter().zip(&sums).filter(equal) {
                proved.insert(part.range.start, part.range.end);
            }
        }
    }
    Ok(proved)
}

fn has(source: &ComparableSource<'_>, algorithm: ChecksumAlgorithm) -> bool {
    source.checksums.ranges.contains(&algorithm)
}
