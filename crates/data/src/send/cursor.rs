//! The shared cursor: hands out what is to be sent next, so that a slow stream never holds the
//! file back.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use proto::ranges::{ByteRange, RangeSet};

use crate::lock::locked;

/// Where blocks come from.
#[derive(Debug)]
pub(super) enum Supply {
    /// Parts of a source that can be read anywhere.
    Ranges {
        /// Not yet handed out.
        left: Mutex<VecDeque<ByteRange>>,
        /// Where the last range ends.
        end: u64,
    },
    /// A source that must be read in order: whoever has the lock reads the next block.
    InOrder(Mutex<InOrder>),
}

/// State of an in-order source.
#[derive(Debug, Default)]
pub(super) struct InOrder {
    /// Offset of the next read.
    pub(super) offset: u64,
    /// The source has ended.
    pub(super) ended: bool,
}

impl Supply {
    pub(super) fn ranges(ranges: &RangeSet) -> Self {
        Self::Ranges {
            left: Mutex::new(ranges.iter().collect()),
            end: ranges.end(),
        }
    }

    pub(super) fn in_order() -> Self {
        Self::InOrder(Mutex::default())
    }

    /// The next part to send, at most `block` bytes; `None` when all was handed out.
    pub(super) fn next(left: &Mutex<VecDeque<ByteRange>>, block: u64) -> Option<ByteRange> {
        let mut left = locked(left);
        let range = left.front_mut()?;
        let end = range.end.min(range.start.saturating_add(block.max(1)));
        let part = ByteRange {
            start: range.start,
            end,
        };
        range.start = end;
        if range.start == range.end {
            left.pop_front();
        }
        Some(part)
    }

    /// The turn to read an in-order source.
    pub(super) fn turn(order: &Mutex<InOrder>) -> MutexGuard<'_, InOrder> {
        locked(order)
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
        ) {
            let mut ranges = RangeSet::new();
            for (start, len) in spans {
                ranges.insert(start, start + len);
            }
            let Supply::Ranges { left, end } = Supply::ranges(&ranges) else { unreachable!() };
            prop_assert_eq!(end, ranges.end());
            let mut seen = RangeSet::new();
            let mut last = 0;
            while let Some(part) = Supply::next(&left, block) {
                prop_assert!(part.start >= last && part.len() <= block.max(1));
                prop_assert_eq!(seen.insert(part.start, part.end), part.len());
                last = part.end;
            }
            prop_assert_eq!(seen, ranges);
        }
    }
}
