//! Bytes that may be there although nothing says so: each block of them is kept if its checksum is
//! the source's.
//!
//! A process that is killed leaves more in the partial file than its journal tells, and a server has
//! stored more than its last marker said. Sending that again costs up to a second's worth of bytes;
//! proving it costs a few questions.

use proto::checksum::ChecksumAlgorithm;
use proto::ranges::{ByteRange, RangeSet};

use super::checksums::ChecksumEndpoint;
use crate::CopyFailure;

/// Smallest block that is compared, bytes. At most so many good bytes of each stream are sent again.
pub(super) const BLOCK: u64 = 256 << 10;
/// Largest one, bytes.
const MAX_BLOCK: u64 = 4 << 20;
/// Most bytes of doubt that are looked at; the rest is sent again.
const MOST: u64 = 256 << 20;
/// Blocks that are compared at a time: their sums are asked for in one flight.
const FLIGHT: usize = 16;

/// Adds to `safe` what else of the first `end` bytes is as at the source. A server that cannot tell
/// leaves `safe` as it is; errors are those of connections.
pub(super) async fn prove(
    mut safe: RangeSet,
    end: u64,
    algorithm: ChecksumAlgorithm,
    source: &mut ChecksumEndpoint<'_>,
    destination: &mut ChecksumEndpoint<'_>,
) -> Result<RangeSet, CopyFailure> {
    let most = source.questions().min(destination.questions());
    let blocks = blocks(&doubtful(&safe, end), end, most);
    for flight in blocks.chunks(FLIGHT) {
        let sums = tokio::join!(
            source.sums(algorithm, flight),
            destination.sums(algorithm, flight)
        );
        let (source, copy) = match sums {
            (Ok(source), Ok(copy)) => (source, copy),
            (Err(failure), _) | (_, Err(failure)) if failure.transient => return Err(failure),
            _ => break,
        };
        for (block, (source, copy)) in flight.iter().zip(source.iter().zip(&copy)) {
            if source.eq_ignore_ascii_case(copy) {
                safe.insert(block.start, block.end);
            }
        }
    }
    Ok(safe)
}

/// Takes the end off a file of `size` bytes that is found whole at a server: the transfer of that end
/// is what makes the server force the file to disk and say so.
pub(super) fn leave_end(safe: &mut RangeSet, size: Option<u64>) {
    if let Some(size) = size.filter(|size| safe.contains(0, *size)) {
        safe.remove(size.saturating_sub(BLOCK), size);
    }
}

/// What is not in `safe` below `end`. Streams write forwards, so that each gap holds good bytes at its
/// start if anywhere: where there is too much doubt, each gap gives an equal share from there.
fn doubtful(safe: &RangeSet, end: u64) -> RangeSet {
    let gaps = safe.gaps(0, end);
    if gaps.byte_count() <= MOST {
        return gaps;
    }
    let share = (MOST / gaps.range_count() as u64).max(BLOCK);
    let mut doubt = RangeSet::new();
    for gap in gaps.iter() {
        doubt.insert(gap.start, gap.end.min(gap.start + share));
    }
    doubt
}

/// The blocks below `end` that have doubtful bytes, at most `most`: as small as possible, and of too
/// many the last ones.
fn blocks(doubt: &RangeSet, end: u64, most: usize) -> Vec<ByteRange> {
    let mut size = BLOCK;
    loop {
        let mut blocks = cut(doubt, end, size);
        if blocks.len() <= most {
            return blocks;
        }
        if size >= MAX_BLOCK {
            return blocks.split_off(blocks.len() - most);
        }
        size *= 2;
    }
}

/// The blocks of `size` bytes (the last one ends at `end`) that have bytes of `doubt`.
fn cut(doubt: &RangeSet, end: u64, size: u64) -> Vec<ByteRange> {
    let mut blocks: Vec<ByteRange> = Vec::new();
    for range in doubt.iter() {
        let covered = blocks.last().map_or(0, |block| block.end);
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
    fn blocks_are_those_with_doubtful_bytes() {
        let doubt = ranges(&[(1, 2), (3, 4), (300 * KIB, 600 * KIB)]);
        let found = blocks(&doubt, 600 * KIB, 128);
        let wanted = [(0, 256), (256, 512), (512, 600)].map(|(a, b)| (a * KIB, b * KIB));
        assert_eq!(ends(&found), wanted);
        assert_eq!(blocks(&RangeSet::new(), 600 * KIB, 128), []);
    }

    #[test]
    fn much_doubt_is_cut_into_larger_blocks_and_too_much_is_left() {
        let found = blocks(&ranges(&[(0, 64 * MIB)]), 64 * MIB, 128);
        assert_eq!((found.len(), found[0].len()), (128, 512 * KIB));
        // Scattered over more than so many of the largest blocks: the last ones.
        let far: Vec<_> = (0..200).map(|n| (n * 10 * MIB, n * 10 * MIB + 1)).collect();
        let found = blocks(&ranges(&far), 2000 * MIB, 128);
        assert_eq!((found.len(), found[0].start), (128, 720 * MIB));
    }

    #[test]
    fn of_wide_gaps_their_starts_are_looked_at() {
        let safe = ranges(&[(0, MIB), (1000 * MIB, 1001 * MIB)]);
        let doubt = doubtful(&safe, 2000 * MIB);
        let wanted = [(MIB, 129 * MIB), (1001 * MIB, 1129 * MIB)];
        assert_eq!(doubt, ranges(&wanted));
        assert_eq!(doubtful(&safe, 100 * MIB), ranges(&[(MIB, 100 * MIB)]));
        assert!(doubtful(&safe, MIB).is_empty());
    }

    #[test]
    fn the_end_of_a_whole_file_is_left_to_be_confirmed() {
        let left = |safe: &[(u64, u64)], size| {
            let mut safe = ranges(safe);
            leave_end(&mut safe, Some(size));
            safe
        };
        assert_eq!(left(&[(0, MIB)], MIB), ranges(&[(0, MIB - BLOCK)]));
        assert_eq!(left(&[(0, 9)], 9), RangeSet::new());
        assert_eq!(left(&[(0, 9)], 10), ranges(&[(0, 9)]));
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
    async fn blocks_that_are_the_same_are_kept_and_the_others_are_not() {
        let size = usize::try_from(4 * BLOCK + 10).unwrap();
        let source: Vec<u8> = (0..=250).cycle().take(size).collect();
        let mut copy = source.clone();
        let hole = usize::try_from(BLOCK).unwrap();
        copy[hole + 5..hole + 9].fill(0);
        copy.truncate(size - 3);
        let length = copy.len() as u64;
        let safe = ranges(&[(0, 100), (BLOCK, BLOCK + 2)]);
        let (mut source, mut copy) = (end(&source), end(&copy));
        let sum = ChecksumAlgorithm::Crc32c;
        let proved = prove(safe, length, sum, &mut source, &mut copy).await;
        // What was safe before stays so.
        let wanted = [(0, BLOCK + 2), (2 * BLOCK, length)];
        assert_eq!(proved.unwrap(), ranges(&wanted));
    }
}
