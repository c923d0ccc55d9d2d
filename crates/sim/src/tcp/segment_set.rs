//! Sets of segment numbers, kept as sorted, disjoint ranges that do not touch.

use std::collections::VecDeque;

/// The segments `start..end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SegmentRange {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl SegmentRange {
    pub(crate) fn is_empty(self) -> bool {
        self.start >= self.end
    }

    fn contains(self, segment: u64) -> bool {
        (self.start..self.end).contains(&segment)
    }
}

/// A set of segments. The number of ranges depends on the number of gaps, not on the window, so
/// operations are cheap.
#[derive(Debug, Clone, Default)]
pub(super) struct SegmentSet {
    spans: VecDeque<SegmentRange>,
}

impl SegmentSet {
    pub(super) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Adds a range; calls `fresh` with the parts that were not in the set, in order.
    pub(super) fn insert(&mut self, new: SegmentRange, mut fresh: impl FnMut(SegmentRange)) {
        if new.is_empty() {
            return;
        }
        // `<` instead of `<=`: a range that touches the new one is merged with it.
        let first = self.spans.partition_point(|s| s.end < new.start);
        let mut merged = new;
        let mut covered = new.start;
        let mut last = first;
        while let Some(&old) = self.spans.get(last)
            && old.start <= new.end
        {
            // The part before an existing range is new.
            if covered < old.start {
                fresh(SegmentRange {
                    start: covered,
                    end: old.start,
                });
            }
            covered = covered.max(old.end);
            merged.start = merged.start.min(old.start);
            merged.end = merged.end.max(old.end);
            last += 1;
        }
        if covered < new.end {
            fresh(SegmentRange {
                start: covered,
                end: new.end,
            });
        }
        if first == last {
            self.spans.insert(first, merged);
        } else {
            self.spans[first] = merged;
            self.spans.drain(first + 1..last);
        }
    }

    /// Removes every segment before `segment`.
    pub(super) fn forget_before(&mut self, segment: u64) {
        while let Some(front) = self.spans.front_mut() {
            if front.end > segment {
                front.start = front.start.max(segment);
                return;
            }
            self.spans.pop_front();
        }
    }

    /// Removes and returns the first range if it begins at `segment`.
    pub(super) fn take_front(&mut self, segment: u64) -> Option<SegmentRange> {
        if self.spans.front()?.start != segment {
            return None;
        }
        self.spans.pop_front()
    }

    /// The range that contains `segment`.
    pub(super) fn range_containing(&self, segment: u64) -> Option<SegmentRange> {
        let at = self.spans.partition_point(|s| s.end <= segment);
        self.spans
            .get(at)
            .copied()
            .filter(|span| span.contains(segment))
    }

    /// The `n`th highest segment (from 1).
    pub(super) fn nth_highest(&self, n: u64) -> Option<u64> {
        let mut left = n;
        for span in self.spans.iter().rev() {
            let length = span.end - span.start;
            if left <= length {
                return Some(span.end - left);
            }
            left -= length;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_segment_set_behaves_like_a_btree_set(
            inserts in proptest::collection::vec((0u64..60, 0u64..12), 1..20),
            forget in 0u64..70,
            n in 1usize..20,
        ) {
            let mut spans = SegmentSet::default();
            let mut model = BTreeSet::new();
            for (start, length) in inserts {
                let span = SegmentRange { start, end: start + length };
                let mut added = Vec::new();
                spans.insert(span, |fresh| added.extend(fresh.start..fresh.end));
                let expected: Vec<u64> =
                    (span.start..span.end).filter(|s| model.insert(*s)).collect();
                prop_assert_eq!(added, expected);
            }
            spans.forget_before(forget);
            model.retain(|s| *s >= forget);
            for segment in 0..80 {
                prop_assert_eq!(spans.range_containing(segment).is_some(), model.contains(&segment));
            }
            let nth = model.iter().rev().nth(n - 1).copied();
            prop_assert_eq!(spans.nth_highest(n as u64), nth);
            let touching = spans.spans.iter().zip(spans.spans.iter().skip(1));
            for (a, b) in touching {
                prop_assert!(!a.is_empty() && a.end < b.start);
            }
        }
    }
}
