//! Finds the ranges in which a copy differs from its source, by checksums of ever smaller ranges.
//!
//! Each end reads the file once, and then only what differs. A file of any size takes few queries if little of it is
//! wrong.

use proto::checksum::ChecksumAlgorithm;
use proto::ranges::{ByteRange, RangeSet};

use super::block_proof::MIN_BLOCK;
use super::checksums::{ChecksumEndpoint, ranges_agree};
use ftp::Failure;

/// Ranges into which one that differs is cut.
const PIECES: u64 = 16;
/// Ranges compared at a time. Their checksums are requested in one pipelined group.
const PIPELINED_RANGES: usize = 32;
/// Most queries after the first ones, as a multiple of those. Ranges that would take more count as wrong whole.
const MAX_FURTHER_QUERIES: usize = 16;

/// The blocks of the first `size` bytes that differ, as far as queries last; ranges of [`MIN_BLOCK`] bytes if they do.
/// `None`: an end cannot provide the checksums of ranges. Errors are lost connections.
pub(crate) async fn wrong_ranges(
    size: u64,
    algorithm: ChecksumAlgorithm,
    source: &mut ChecksumEndpoint<'_>,
    destination: &mut ChecksumEndpoint<'_>,
) -> Result<Option<RangeSet>, Failure> {
    let queries = source.max_queries().min(destination.max_queries()).max(1);
    let mut left = queries.saturating_mul(MAX_FURTHER_QUERIES);
    let whole = ByteRange {
        start: 0,
        end: size,
    };
    let mut suspects = pieces(whole, queries as u64);
    let mut wrong = RangeSet::new();
    while !suspects.is_empty() {
        let mut smaller = Vec::new();
        for group in suspects.chunks(PIPELINED_RANGES) {
            let Some(agree) = ranges_agree(source, destination, algorithm, group).await? else {
                return Ok(None);
            };
            for (range, _) in group.iter().zip(agree).filter(|(_, agrees)| !agrees) {
                let cut = pieces(*range, PIECES);
                match range.len() <= MIN_BLOCK || cut.len() > left {
                    true => drop(wrong.insert(range.start, range.end)),
                    false => {
                        left -= cut.len();
                        smaller.extend(cut);
                    }
                }
            }
        }
        suspects = smaller;
    }
    Ok(Some(wrong))
}

/// Cuts a range into at most `count` pieces, each a multiple of [`MIN_BLOCK`] bytes except the last.
fn pieces(range: ByteRange, count: u64) -> Vec<ByteRange> {
    let length = range.len().div_ceil(count).next_multiple_of(MIN_BLOCK);
    let mut pieces = Vec::new();
    let mut start = range.start;
    while start < range.end {
        let end = range.end.min(start.saturating_add(length));
        pieces.push(ByteRange { start, end });
        start = end;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use data::store::memory::MemorySource;
    use proptest::prelude::*;

    use super::*;

    fn end(bytes: &[u8]) -> ChecksumEndpoint<'static> {
        ChecksumEndpoint::Open {
            source: Arc::new(MemorySource::new(bytes.to_vec(), "x")),
            origin: 0,
        }
    }

    async fn found(source: &[u8], copy: &[u8]) -> RangeSet {
        let (mut source, mut copy_end) = (end(source), end(copy));
        let sum = ChecksumAlgorithm::Crc32c;
        let size = copy.len() as u64;
        let found = wrong_ranges(size, sum, &mut source, &mut copy_end).await;
        found.unwrap().unwrap()
    }

    #[tokio::test]
    async fn only_the_blocks_that_differ_are_found() {
        let block = usize::try_from(MIN_BLOCK).unwrap();
        // More blocks than first queries, so that ranges are cut twice.
        let source = vec![7; 300 * block + 5];
        let mut copy = source.clone();
        let mut expected = RangeSet::new();
        for (at, block) in [
            (0, 0),
            (3 * block - 1, 2),
            (200 * block + 1, 200),
            (300 * block + 4, 300),
        ] {
            copy[at] ^= 1;
            let start = block * MIN_BLOCK;
            expected.insert(start, (start + MIN_BLOCK).min(source.len() as u64));
        }
        assert_eq!(found(&source, &copy).await, expected);
        assert!(found(&source, &source).await.is_empty());
        assert!(found(&[], &[]).await.is_empty());
    }

    proptest! {
        #[test]
        fn pieces_cover_their_range(start in 0..1_u64 << 50, length in 0..1_u64 << 50, count in 1..200_u64) {
            let range = ByteRange { start, end: start + length };
            let cut = pieces(range, count);
            prop_assert!(cut.len() as u64 <= count);
            let mut at = start;
            for piece in &cut {
                prop_assert_eq!(piece.start, at);
                prop_assert!(piece.end > piece.start);
                at = piece.end;
            }
            prop_assert_eq!(at, range.end);
            // A range that can be cut becomes smaller pieces.
            prop_assert!(length <= MIN_BLOCK || count == 1 || cut.len() > 1);
        }
    }
}
