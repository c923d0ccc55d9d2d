//! The shared cursor: hands out the next part to send or to pull, so that a slow stream does not
//! delay the others.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use proto::ranges::{ByteRange, RangeSet};

/// The source of blocks.
#[derive(Debug)]
pub(crate) enum TransferCursor {
    /// Ranges of a source that can be read at any offset.
    Ranges {
        /// Not yet handed out.
        left: Arc<Mutex<RemainingRanges>>,
        /// End of the last range, bytes.
        end: u64,
    },
    /// A source that must be read in order: the holder of the lock reads the next block.
    Sequential(Mutex<SequentialPosition>),
}

/// Smallest part that is handed out so that every stream has something to send, bytes.
pub(crate) const MIN_PART: u64 = 64 << 10;

/// The part that a stream sends next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CursorPart {
    pub(crate) range: ByteRange,
    /// So little is left that parts are smaller than a block. (The end of one range among many may
    /// be small at any time.)
    pub(crate) is_near_end: bool,
}

/// Bytes that a stream has sent so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentSoFar {
    pub(crate) own: u64,
    /// All streams together since it has joined.
    pub(crate) all: u64,
}

/// Ranges that were not handed out yet.
#[derive(Debug, Default)]
pub(crate) struct RemainingRanges {
    ranges: VecDeque<ByteRange>,
    /// Total length of `ranges`.
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

impl TransferCursor {
    pub(crate) fn ranges(ranges: &RangeSet) -> Self {
        Self::Ranges {
            left: Arc::new(Mutex::new(RemainingRanges {
                ranges: ranges.iter().collect(),
                bytes: ranges.byte_count(),
            })),
            end: ranges.end(),
        }
    }

    pub(crate) fn sequential() -> Self {
        Self::Sequential(Mutex::default())
    }

    /// The next part to send, at most `block` bytes; `None` when everything was handed out. Near
    /// the end several streams get smaller parts, so that none waits long for another's last part; a stream that has sent less
    /// than the others gets even less.
    pub(crate) fn next(
        left: &Mutex<RemainingRanges>,
        block: u64,
        streams: usize,
        sent: SentSoFar,
    ) -> Option<CursorPart> {
        Self::next_at_least(left, block, streams, MIN_PART, Some(sent))
    }

    /// As [`TransferCursor::next`], but parts do not become smaller than `min_len`, a multiple of
    /// [`MIN_PART`]. Without `sent` all streams count as equally fast.
    pub(crate) fn next_at_least(
        left: &Mutex<RemainingRanges>,
        block: u64,
        streams: usize,
        min_len: u64,
        sent: Option<SentSoFar>,
    ) -> Option<CursorPart> {
        let mut left = left.lock();
        // A block size of 0 would never finish.
        let block = block.max(1);
        let streams = streams as u64;
        let equal = left.max_part(block, streams, min_len);
        let max_len = match sent {
            Some(sent) if streams > 1 => equal.min(left.max_part_of(sent).max(min_len)),
            _ => equal,
        };
        Some(CursorPart {
            range: left.take_first(max_len)?,
            is_near_end: equal < block,
        })
    }

    /// Locks an in-order source for one read.
    pub(crate) fn lock_sequential(
        sequential: &Mutex<SequentialPosition>,
    ) -> MutexGuard<'_, SequentialPosition> {
        sequential.lock()
    }
}

impl RemainingRanges {
    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Number of bytes that were not handed out.
    pub(crate) fn byte_count(&self) -> u64 {
        self.bytes
    }

    /// Takes away at most `bytes` of the first range, but at least one byte; `None`: nothing is left.
    pub(crate) fn take_first(&mut self, bytes: u64) -> Option<ByteRange> {
        let first = self.ranges.front_mut()?;
        let range = ByteRange {
            start: first.start,
            end: first.end.min(first.start.saturating_add(bytes.max(1))),
        };
        first.start = range.end;
        // An empty range at the front would be handed out as an empty part.
        if first.start == first.end {
            self.ranges.pop_front();
        }
        self.bytes -= range.len();
        Some(range)
    }

    /// Takes away what is left of the first unit that has some; units begin at multiples of `unit` bytes behind `origin`.
    pub(crate) fn take_unit(&mut self, unit: u64, origin: u64) -> Self {
        let mut taken = Self::default();
        let Some(first) = self.ranges.front() else {
            return taken;
        };
        let unit = unit.max(1);
        let number = first.start.saturating_sub(origin) / unit;
        let end = (number + 1).saturating_mul(unit).saturating_add(origin);
        while let Some(first) = self.ranges.front().filter(|first| first.start < end) {
            let Some(range) = self.take_first(end - first.start) else {
                break;
            };
            taken.bytes += range.len();
            taken.ranges.push_back(range);
        }
        taken
    }

    /// Adds ranges behind all others.
    pub(crate) fn append(&mut self, more: &RangeSet) {
        self.bytes += more.byte_count();
        self.ranges.extend(more.iter());
    }

    /// The ranges.
    pub(crate) fn to_set(&self) -> RangeSet {
        let mut set = RangeSet::new();
        for range in &self.ranges {
            set.insert(range.start, range.end);
        }
        set
    }

    /// Adds what is left elsewhere behind all others.
    pub(crate) fn append_rest(&mut self, mut more: Self) {
        self.bytes += more.bytes;
        self.ranges.append(&mut more.ranges);
    }

    /// Takes away at most `bytes` of those that would be handed out last. A range is cut at a multiple of [`MIN_PART`].
    pub(crate) fn take_last(&mut self, bytes: u64) -> RangeSet {
        let mut taken = RangeSet::new();
        let mut room = bytes;
        while let Some(last) = self.ranges.back_mut() {
            let start = match last.len() <= room {
                true => last.start,
                false => (last.end - room).next_multiple_of(MIN_PART).min(last.end),
            };
            let part = ByteRange {
                start,
                end: last.end,
            };
            if part.start == part.end {
                break;
            }
            last.end = start;
            if last.start == last.end {
                self.ranges.pop_back();
            }
            taken.insert(part.start, part.end);
            self.bytes -= part.len();
            room -= part.len();
        }
        taken
    }

    /// Returns a range that was handed out and not moved. It is the next part again.
    pub(crate) fn return_range(&mut self, range: ByteRange) {
        self.bytes += range.len();
        self.ranges.push_front(range);
    }

    /// Largest next part, bytes: a quarter of each stream's share of what is left, so that a stream
    /// four times slower than the others finishes when they do. Multiples of [`MIN_PART`] keep
    /// reads aligned to pages.
    pub(crate) fn max_part(&self, block: u64, streams: u64, min_len: u64) -> u64 {
        // A single stream gains nothing from small parts.
        if streams <= 1 {
            return block;
        }
        // A quarter of the share: see above for the ratio of stream speeds that this covers.
        let share = self.bytes / (4 * streams);
        block.min(min_len.max(share - share % MIN_PART))
    }

    /// The same for a stream by what it has sent: a quarter of what it will send of the rest, and no more than it has sent at all. Of
    /// a stream that begins, nobody knows how fast it is.
    fn max_part_of(&self, sent: SentSoFar) -> u64 {
        let part = u128::from(self.bytes) * u128::from(sent.own) / u128::from(sent.all.max(1)) / 4;
        let part = u64::try_from(part).unwrap_or(u64::MAX).min(sent.own);
        part - part % MIN_PART
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As fast as all streams together: only the number of streams bounds a part.
    const EVEN: SentSoFar = SentSoFar {
        own: u64::MAX,
        all: u64::MAX,
    };

    proptest! {
        #[test]
        fn every_byte_is_handed_out_once_and_in_order(
            spans in proptest::collection::vec((0u64..5000, 1u64..900), 0..8),
            block in 0u64..700,
            streams in 0usize..40,
            scale in prop_oneof![Just(1), Just(1000)],
            own: u64,
            all: u64,
        ) {
            let sent = SentSoFar { own, all };
            let block = block * scale;
            let mut ranges = RangeSet::new();
            for (start, len) in spans {
                ranges.insert(start * scale, (start + len) * scale);
            }
            // A block of 0 counts as one byte.
            prop_assume!(block > 0 || scale == 1);
            let TransferCursor::Ranges { left, end } = TransferCursor::ranges(&ranges) else { unreachable!() };
            prop_assert_eq!(end, ranges.end());
            let mut handed_out = RangeSet::new();
            let mut last = 0;
            while let Some(CursorPart { range: part, .. }) = TransferCursor::next(&left, block, streams, sent) {
                prop_assert!(part.start >= last && part.len() <= block.max(1));
                prop_assert_eq!(handed_out.insert(part.start, part.end), part.len());
                last = part.end;
            }
            prop_assert_eq!(handed_out, ranges);
        }
    }

    fn parts(bytes: u64, block: u64, streams: usize) -> Vec<u64> {
        let mut ranges = RangeSet::new();
        ranges.insert(0, bytes);
        let TransferCursor::Ranges { left, .. } = TransferCursor::ranges(&ranges) else {
            unreachable!()
        };
        let next =
            || TransferCursor::next(&left, block, streams, EVEN).map(|part| part.range.len());
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn what_would_come_last_is_taken_away_in_whole_parts() {
        let mut left = RemainingRanges::default();
        let mut ranges = RangeSet::new();
        ranges.insert(0, 10 * MIN_PART);
        ranges.insert(20 * MIN_PART, 20 * MIN_PART + 5);
        left.append(&ranges);
        let taken = left.take_last(2 * MIN_PART + 100);
        let spans: Vec<_> = taken.iter().map(|range| (range.start, range.end)).collect();
        let all = [
            (8 * MIN_PART, 10 * MIN_PART),
            (20 * MIN_PART, 20 * MIN_PART + 5),
        ];
        assert_eq!(spans, all);
        assert_eq!(left.byte_count(), 8 * MIN_PART);
        assert!(left.take_last(MIN_PART - 1).is_empty());
        assert_eq!(left.take_last(u64::MAX).byte_count(), 8 * MIN_PART);
        assert!(left.is_empty() && left.byte_count() == 0);
    }

    #[test]
    fn a_single_stream_gets_whole_blocks() {
        assert_eq!(parts(5 << 20, 2 << 20, 1), [2 << 20, 2 << 20, 1 << 20]);
    }

    #[test]
    fn every_stream_gets_a_part_of_a_small_file() {
        let parts = parts(1 << 20, 1 << 20, 4);
        assert_eq!(parts, [64 << 10; 16]);
    }

    #[test]
    fn parts_shrink_only_near_the_end() {
        let parts = parts(100 << 20, 1 << 20, 4);
        let first = parts.iter().take_while(|part| **part == 1 << 20).count();
        assert!(first >= 84, "{first}");
        assert!(parts.is_sorted_by(|a, b| a >= b), "{parts:?}");
        assert_eq!(parts.last(), Some(&MIN_PART));
    }

    #[test]
    fn a_small_range_does_not_count_as_the_end_of_the_file() {
        let mut ranges = RangeSet::new();
        ranges.insert(0, 1000);
        ranges.insert(1 << 20, 64 << 20);
        let TransferCursor::Ranges { left, .. } = TransferCursor::ranges(&ranges) else {
            unreachable!()
        };
        let first = TransferCursor::next(&left, 1 << 20, 2, EVEN).unwrap();
        assert_eq!((first.range.len(), first.is_near_end), (1000, false));
        let parts = std::iter::from_fn(|| TransferCursor::next(&left, 1 << 20, 2, EVEN));
        assert!(parts.last().unwrap().is_near_end);
    }

    #[test]
    fn a_slow_stream_gets_small_parts_and_a_new_one_the_smallest() {
        let mut ranges = RangeSet::new();
        ranges.insert(0, 64 << 20);
        let TransferCursor::Ranges { left, .. } = TransferCursor::ranges(&ranges) else {
            unreachable!()
        };
        let part = |own: u64, all: u64| {
            let sent = SentSoFar { own, all };
            let part = TransferCursor::next(&left, 1 << 20, 8, sent).unwrap();
            assert!(!part.is_near_end);
            part.range.len()
        };
        assert_eq!(part(0, 0), MIN_PART);
        assert_eq!(part(0, 50 << 20), MIN_PART);
        assert_eq!(part(300 << 10, 2 << 20), 256 << 10);
        assert_eq!(part(8 << 20, 64 << 20), 1 << 20);
        // It will send a hundredth of some 62 MiB.
        assert_eq!(part(1 << 20, 100 << 20), 128 << 10);
    }
}
