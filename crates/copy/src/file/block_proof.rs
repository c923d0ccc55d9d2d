//! Block-wise comparison of bytes that may be at the destination although nothing confirms them. A
//! block is kept if both ends have the same checksum.
//!
//! A killed process leaves more in the partial file than its journal says, and a server has stored
//! more than its last marker named. Resending costs all bytes since that record, which may be
//! seconds old; comparing costs a few checksum queries.

use proto::checksum::ChecksumAlgorithm;
use proto::ranges::{ByteRange, RangeSet};

use super::checksums::{ChecksumEndpoint, ranges_agree};
use ftp::Failure;

/// Smallest block that is compared, bytes. Up to one such block of correct bytes is sent again for
/// each stream.
pub(crate) const MIN_BLOCK: u64 = 256 << 10;
/// Largest block that is compared, bytes.
const MAX_BLOCK: u64 = 4 << 20;
/// Most bytes that are compared. Further doubtful bytes are sent again.
const MAX_DOUBTFUL_BYTES: u64 = 256 << 20;
/// Blocks compared at a time. Their checksums are requested in one pipelined group.
const PIPELINED_BLOCKS: usize = 16;

/// Adds to `safe` those of the first `end` bytes that are the same at the source. If an end cannot
/// provide checksums, `safe` is returned unchanged. Errors are lost connections.
pub(crate) async fn prove_blocks(
    mut safe: RangeSet,
    end: u64,
    algorithm: ChecksumAlgorithm,
    source: &mut ChecksumEndpoint<'_>,
    destination: &mut ChecksumEndpoint<'_>,
) -> Result<RangeSet, Failure> {
    let max_blocks = source.max_queries().min(destination.max_queries());
    let blocks = blocks_to_compare(&doubtful_ranges(&safe, end), end, max_blocks);
    for group in blocks.chunks(PIPELINED_BLOCKS) {
        // A server that cannot checksum ranges just proves nothing.
        let Some(agree) = ranges_agree(source, destination, algorithm, group).await? else {
            break;
        };
        for (block, _) in group.iter().zip(agree).filter(|(_, agrees)| *agrees) {
            safe.insert(block.start, block.end);
        }
    }
    Ok(safe)
}

/// Removes the end of a file of `size` bytes that is complete at a server. Only the transfer of the
/// remaining bytes makes the server sync the file and confirm it with a 226.
pub(crate) fn exclude_tail(safe: &mut RangeSet, size: Option<u64>) {
    if let Some(size) = size.filter(|size| safe.contains(0, *size)) {
        safe.remove(size.saturating_sub(MIN_BLOCK), size);
    }
}

/// The ranges below `end` that are not in `safe`. If there are too many bytes, each gap contributes
/// an equal share from its start: streams write forwards, so correct bytes are at the start of a
/// gap.
fn doubtful_ranges(safe: &RangeSet, end: u64) -> RangeSet {
    let gaps = safe.gaps(0, end);
    if gaps.byte_count() <= MAX_DOUBTFUL_BYTES {
        return gaps;
    }
    let share = (MAX_DOUBTFUL_BYTES / gaps.range_count() as u64).max(MIN_BLOCK);
    let mut doubtful = RangeSet::new();
    for gap in gaps.iter() {
        doubtful.insert(gap.start, gap.end.min(gap.start + share));
    }
    doubtful
}

/// The blocks below `end` that contain doubtful bytes, at most `max_blocks`. Blocks are as small as that
/// limit allows; of too many of the largest blocks the last ones are used.
fn blocks_to_compare(doubtful: &RangeSet, end: u64, max_blocks: usize) -> Vec<ByteRange> {
    let mut size = MIN_BLOCK;
    loop {
        let mut blocks = cut_blocks(doubtful, end, size);
        if blocks.len() <= max_blocks {
            return blocks;
        }
        if size >= MAX_BLOCK {
            return blocks.split_off(blocks.len() - max_blocks);
        }
        size *= 2;
    }
}

/// The blocks of `size` bytes that contain bytes of `doubtful`. The last block ends at `end`.
fn cut_blocks(doubtful: &RangeSet, end: u64, size: u64) -> Vec<ByteRange> {
    let mut blocks: Vec<ByteRange> = Vec::new();
    for range in doubtful.iter() {
        let covered = blocks.last().map_or(0, |block| block.end);
        // Blocks start at multiples of their size, so that neighbouring gaps can share a block.
        let mut at = (range.start - range.start % size).max(covered);
        while at < range.end {
            let block = ByteRange {
                start: at,
                end: end.min(at.saturating_add(size)),
            };
            blocks.push(block);
            at = block.end;
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use data::store::file::FileSource;

    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    fn ranges(list: &[(u64, u64)]) -> RangeSet {
        let mut set = RangeSet::new();
        for (start, end) in list {
            set.insert(*start, *end);
        }
        set
    }

    fn ends(blocks: &[ByteRange]) -> Vec<(u64, u64)> {
        blocks.iter().map(|b| (b.start, b.end)).collect()
    }

    #[test]
    fn only_blocks_with_doubtful_bytes_are_compared() {
        let doubtful = ranges(&[(1, 2), (3, 4), (300 * KIB, 600 * KIB)]);
        let found = blocks_to_compare(&doubtful, 600 * KIB, 128);
        let expected = [(0, 256), (256, 512), (512, 600)].map(|(a, b)| (a * KIB, b * KIB));
        assert_eq!(ends(&found), expected);
        assert_eq!(blocks_to_compare(&RangeSet::new(), 600 * KIB, 128), []);
    }

    #[test]
    fn many_doubtful_bytes_use_larger_blocks_up_to_a_limit() {
        let found = blocks_to_compare(&ranges(&[(0, 64 * MIB)]), 64 * MIB, 128);
        assert_eq!((found.len(), found[0].len()), (128, 512 * KIB));
        // Spread over more blocks than allowed: the last ones are compared.
        let far: Vec<_> = (0..200).map(|n| (n * 10 * MIB, n * 10 * MIB + 1)).collect();
        let found = blocks_to_compare(&ranges(&far), 2000 * MIB, 128);
        assert_eq!((found.len(), found[0].start), (128, 720 * MIB));
    }

    #[test]
    fn only_the_starts_of_wide_gaps_are_compared() {
        let safe = ranges(&[(0, MIB), (1000 * MIB, 1001 * MIB)]);
        let doubtful = doubtful_ranges(&safe, 2000 * MIB);
        let expected = [(MIB, 129 * MIB), (1001 * MIB, 1129 * MIB)];
        assert_eq!(doubtful, ranges(&expected));
        assert_eq!(
            doubtful_ranges(&safe, 100 * MIB),
            ranges(&[(MIB, 100 * MIB)])
        );
        assert!(doubtful_ranges(&safe, MIB).is_empty());
    }

    #[test]
    fn the_tail_of_a_complete_file_is_sent_again() {
        let remaining = |safe: &[(u64, u64)], size| {
            let mut safe = ranges(safe);
            exclude_tail(&mut safe, Some(size));
            safe
        };
        assert_eq!(remaining(&[(0, MIB)], MIB), ranges(&[(0, MIB - MIN_BLOCK)]));
        assert_eq!(remaining(&[(0, 9)], 9), RangeSet::new());
        assert_eq!(remaining(&[(0, 9)], 10), ranges(&[(0, 9)]));
    }

    fn end(bytes: &[u8]) -> ChecksumEndpoint<'static> {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, bytes).unwrap();
        ChecksumEndpoint::Open {
            source: Arc::new(FileSource::new(file, "x").unwrap()),
            origin: 0,
        }
    }

    #[tokio::test]
    async fn only_blocks_with_equal_checksums_are_kept() {
        let size = usize::try_from(4 * MIN_BLOCK + 10).unwrap();
        let source: Vec<u8> = (0..=250).cycle().take(size).collect();
        let mut copy = source.clone();
        let hole = usize::try_from(MIN_BLOCK).unwrap();
        copy[hole + 5..hole + 9].fill(0);
        copy.truncate(size - 3);
        let length = copy.len() as u64;
        let safe = ranges(&[(0, 100), (MIN_BLOCK, MIN_BLOCK + 2)]);
        let (mut source, mut copy) = (end(&source), end(&copy));
        let sum = ChecksumAlgorithm::Crc32c;
        let proved = prove_blocks(safe, length, sum, &mut source, &mut copy).await;
        // Bytes that were safe before remain safe.
        let expected = [(0, MIN_BLOCK + 2), (2 * MIN_BLOCK, length)];
        assert_eq!(proved.unwrap(), ranges(&expected));
    }
}
