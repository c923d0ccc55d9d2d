//! The shared cursor: hands out what is to be sent next, so that a slow stream never holds the
//! file back.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use proto::ranges::{ByteRange, RangeSet};

use crate::locks::lock;

/// Where blocks come from.
#[derive(Debug)]
pub(crate) enum SendCursor {
    /// Parts of a source that can be read anywhere.
    Ranges {
        /// Not yet handed out.
        left: Mutex<RemainingRanges>,
        /// Where the last range ends.
        end: u64,
    },
    /// A source that must be read in order: whoever has the lock reads the next block.
    Sequential(Mutex<SequentialPosition>),
}

/// The smallest part that is handed out so that all lanes have something to send, bytes.
pub(crate) const MIN_PART: u64 = 64 << 10;

/// Part that a stream is to send next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendPart {
    pub(crate) range: ByteRange,
    /// So little is left that blocks have become smaller. (The end of a range among many may be small
    /// at any time.)
    pub(crate) is_near_end: bool,
}

/// Ranges that were not handed out yet.
#[derive(Debug, Default)]
pub(crate) struct RemainingRanges {
    ranges: VecDeque<ByteRange>,
    /// In all.
    bytes: u64,
}

/// State of an in-order source.
#[derive(Debug, Default)]
pub(crate) struct SequentialPosition {
    /// Offset of the next read.
    pub(crate) offset: u64,
    /// The source has ended.
    pub(crate) ended: bool,
}

impl SendCursor {
    pub(crate) fn ranges(ranges: &RangeSet) -> Self {
        Self::Ranges {
            left: Mutex::new(RemainingRanges {
                ranges: ranges.iter().collect(),
                bytes: ranges.byte_count(),
            }),
            end: ranges.end(),
        }
    }

    pub(crate) fn sequential() -> Self {
        Self::Sequential(Mutex::default())
    }

    /// The next part to send, at most `block` bytes; `None` when all was handed out. Several `lanes`
    /// get smaller parts of the little that is left, so that none waits long for another's last.
    pub(crate) fn next(
        left: &Mutex<RemainingRanges>,
        block: u64,
        lanes: usize,
    ) -> Option<SendPart> {
        Self::next_at_least(left, block, lanes, MIN_PART)
    }

    /// As [`SendCursor::next`], but parts do not become smaller than `least`, a multiple of [`MIN_PART`].
    pub(crate) fn next_at_least(
        left: &Mutex<RemainingRanges>,
        block: u64,
        lanes: usize,
        least: u64,
    ) -> Option<SendPart> {
        let mut left = lock(left);
        let block = block.max(1);
        let most = left.part(block, lanes as u64, least);
        let whole = left.ranges.front_mut()?;
        let end = whole.end.min(whole.start.saturating_add(most));
        let range = ByteRange {
            start: whole.start,
            end,
        };
        whole.start = end;
        if whole.start == whole.end {
            left.ranges.pop_front();
        }
        left.bytes -= range.len();
        let at_last = most < block;
        Some(SendPart {
            range,
            is_near_end: at_last,
        })
    }

    /// The turn to read an in-order source.
    pub(crate) fn lock_sequential(
        order: &Mutex<SequentialPosition>,
    ) -> MutexGuard<'_, SequentialPosition> {
        lock(order)
    }
}

impl RemainingRanges {
    /// Nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// A range that was handed out and not moved is the next part again.
    pub(crate) fn return_range(&mut self, range: ByteRange) {
        self.bytes += range.len();
        self.ranges.push_front(range);
    }

    /// How large the next part may be, bytes: of what is left, a quarter of what each of `lanes` would
    /// get, so that one which is four times slower than the others is done when they are. In steps that
    /// keep reads of whole ranges aligned to pages.
    fn part(&self, block: u64, lanes: u64, least: u64) -> u64 {
        if lanes <= 1 {
            return block;
        }
        let share = self.bytes / (4 * lanes);
        block.min(least.max(share - share % MIN_PART))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn hands_out_every_byte_once_in_order(
            spans in proptest::collection::vec((0u64..5000, 1u64..900), 0..8),
            block in 0u64..700,
            lanes in 0usize..40,
        ) {
            let mut ranges = RangeSet::new();
            for (start, len) in spans {
                ranges.insert(start, start + len);
            }
            let SendCursor::Ranges { left, end } = SendCursor::ranges(&ranges) else { unreachable!() };
            prop_assert_eq!(end, ranges.end());
            let mut seen = RangeSet::new();
            let mut last = 0;
            while let Some(SendPart { range: part, .. }) = SendCursor::next(&left, block, lanes) {
                prop_assert!(part.start >= last && part.len() <= block.max(1));
                prop_assert_eq!(seen.insert(part.start, part.end), part.len());
                last = part.end;
            }
            prop_assert_eq!(seen, ranges);
        }
    }

    fn parts(bytes: u64, block: u64, lanes: usize) -> Vec<u64> {
        let mut ranges = RangeSet::new();
        ranges.insert(0, bytes);
        let SendCursor::Ranges { left, .. } = SendCursor::ranges(&ranges) else {
            unreachable!()
        };
        let next = || SendCursor::next(&left, block, lanes).map(|part| part.range.len());
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn one_lane_gets_whole_blocks() {
        assert_eq!(parts(5 << 20, 2 << 20, 1), [2 << 20, 2 << 20, 1 << 20]);
    }

    #[test]
    fn every_lane_gets_something_of_a_small_file() {
        let parts = parts(1 << 20, 1 << 20, 4);
        assert_eq!(parts, [64 << 10; 16]);
    }

    #[test]
    fn parts_become_smaller_towards_the_end_only() {
        let parts = parts(100 << 20, 1 << 20, 4);
        let whole = parts.iter().take_while(|part| **part == 1 << 20).count();
        assert!(whole >= 84, "{whole}");
        assert!(parts.is_sorted_by(|a, b| a >= b), "{parts:?}");
        assert_eq!(parts.last(), Some(&MIN_PART));
    }

    #[test]
    fn a_small_range_is_not_the_end_of_the_file() {
        let mut ranges = RangeSet::new();
        ranges.insert(0, 1000);
        ranges.insert(1 << 20, 64 << 20);
        let SendCursor::Ranges { left, .. } = SendCursor::ranges(&ranges) else {
            unreachable!()
        };
        let first = SendCursor::next(&left, 1 << 20, 2).unwrap();
        assert_eq!((first.range.len(), first.is_near_end), (1000, false));
        let parts = std::iter::from_fn(|| SendCursor::next(&left, 1 << 20, 2));
        assert!(parts.last().unwrap().is_near_end);
    }
}
