//! Byte ranges and sets of them, for restart markers and REST (GFD.20 §3.7), and for received and missing
//! data.
//!
//! Ends are exclusive: a complete store of 3 000 000 bytes is `0-3000000`.

use std::collections::BTreeMap;
use std::fmt;

/// Largest accepted offset, length or size: the largest file offset, 2^63 - 1.
pub const MAX_FILE_OFFSET: u64 = i64::MAX as u64;

/// Bytes `start..end` of a file, `start < end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// Offset of the first byte.
    pub start: u64,
    /// Offset after the last byte.
    pub end: u64,
}

impl ByteRange {
    /// A range; `None` if it would be empty or reversed.
    pub fn new(start: u64, end: u64) -> Option<Self> {
        (start < end).then_some(Self { start, end })
    }

    /// Number of bytes, at least 1.
    #[allow(clippy::len_without_is_empty, reason = "a range is never empty")]
    pub fn len(self) -> u64 {
        self.end - self.start
    }
}

/// Most ranges accepted in one REST command or 111 reply.
pub const MAX_RANGES: usize = 65_536;

/// Error in a range list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// The text does not have the form `a-b,c-d`.
    #[error("not a list of byte ranges (a-b,c-d)")]
    Malformed,
    /// A range `a-b` has `b < a`.
    #[error("a byte range ends before it starts")]
    Reversed,
    /// The list has more than [`MAX_RANGES`] ranges.
    #[error("too many byte ranges")]
    TooMany,
}

/// A set of byte offsets, stored as sorted, disjoint, non-adjacent ranges. Changes take amortized
/// logarithmic time in any order, since a peer decides the order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// Range ends, keyed by range start.
    ranges: BTreeMap<u64, u64>,
    /// Total number of bytes.
    bytes: u64,
}

impl RangeSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `start..end`, which is empty if `start >= end`. Returns the number of new bytes.
    pub fn insert(&mut self, start: u64, end: u64) -> u64 {
        if start >= end {
            return 0;
        }
        let before = self.bytes;
        let mut merged = ByteRange { start, end };
        // Every touched range is removed and merged. Each range is removed at most once, so the cost
        // is amortized.
        while let Some(last) = self
            .last_starting_by(merged.end)
            .filter(|r| r.end >= merged.start)
        {
            self.ranges.remove(&last.start);
            self.bytes -= last.len();
            merged.start = merged.start.min(last.start);
            merged.end = merged.end.max(last.end);
        }
        self.ranges.insert(merged.start, merged.end);
        self.bytes += merged.len();
        self.bytes - before
    }

    /// Removes `start..end`.
    pub fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        while let Some(last) = self.last_starting_by(end - 1).filter(|r| r.end > start) {
            self.ranges.remove(&last.start);
            self.bytes -= last.len();
            let left = ByteRange::new(last.start, start);
            let right = ByteRange::new(end, last.end);
            for kept in left.into_iter().chain(right) {
                self.ranges.insert(kept.start, kept.end);
                self.bytes += kept.len();
            }
        }
    }

    /// The last range that starts at or before `start`.
    fn last_starting_by(&self, start: u64) -> Option<ByteRange> {
        let (start, end) = self.ranges.range(..=start).next_back()?;
        ByteRange::new(*start, *end)
    }

    /// Adds every range of `other`.
    pub fn extend(&mut self, other: &Self) {
        for r in other.iter() {
            self.insert(r.start, r.end);
        }
    }

    /// The bytes of `start..end` that are not in the set.
    pub fn gaps(&self, start: u64, end: u64) -> Self {
        let mut gaps = Self::new();
        let mut at = start;
        // The range that starts at or before `start` may reach into the searched range.
        let before = self.last_starting_by(start).into_iter();
        let later = self.ranges.range(start.saturating_add(1)..);
        let later = later.map(|(start, end)| ByteRange {
            start: *start,
            end: *end,
        });
        for r in before.chain(later).take_while(|r| r.start < end) {
            gaps.insert(at, r.start);
            at = at.max(r.end);
        }
        gaps.insert(at, end);
        gaps
    }

    /// The bytes of `start..end` that are in the set.
    pub fn within(&self, start: u64, end: u64) -> Self {
        let mut within = Self::new();
        within.insert(start, end);
        for gap in self.gaps(start, end).iter() {
            within.remove(gap.start, gap.end);
        }
        within
    }

    /// The first byte of the set at `from` or behind it.
    pub fn next_from(&self, from: u64) -> Option<u64> {
        let around = self.last_starting_by(from).filter(|range| range.end > from);
        let behind = || self.ranges.range(from..).next().map(|(start, _)| *start);
        around.map(|_| from).or_else(behind)
    }

    /// Whether all of `start..end` is in the set; true if `start..end` is empty.
    pub fn contains(&self, start: u64, end: u64) -> bool {
        start >= end || self.last_starting_by(start).is_some_and(|r| end <= r.end)
    }

    /// Number of bytes in the set.
    pub fn byte_count(&self) -> u64 {
        self.bytes
    }

    /// Length of the range that starts at 0; 0 if byte 0 is missing.
    pub fn prefix_len(&self) -> u64 {
        self.ranges.get(&0).copied().unwrap_or(0)
    }

    /// Offset after the last byte; 0 if the set is empty.
    pub fn end(&self) -> u64 {
        self.ranges.last_key_value().map_or(0, |(_, end)| *end)
    }

    /// The ranges in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = ByteRange> + '_ {
        self.ranges.iter().map(|(start, end)| ByteRange {
            start: *start,
            end: *end,
        })
    }

    /// Number of ranges.
    pub fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// Whether the set has no bytes.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Parses `a-b,c-d`. Overlapping and unordered ranges are merged; `a-a` is empty and allowed.
    ///
    /// # Errors
    /// See [`RangeError`].
    pub fn parse(text: &str) -> Result<Self, RangeError> {
        let mut set = Self::new();
        // The limit is checked per item, before more memory is used.
        for (n, item) in text.trim().split(',').enumerate() {
            if n >= MAX_RANGES {
                return Err(RangeError::TooMany);
            }
            let (a, b) = item.trim().split_once('-').ok_or(RangeError::Malformed)?;
            let (a, b) = (parse_number(a)?, parse_number(b)?);
            if b < a {
                return Err(RangeError::Reversed);
            }
            set.insert(a, b);
        }
        Ok(set)
    }
}

/// Parses digits only. `u64::from_str` alone would accept a leading `+`.
fn parse_number(text: &str) -> Result<u64, RangeError> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(RangeError::Malformed);
    }
    text.parse().map_err(|_| RangeError::Malformed)
}

impl fmt::Display for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, r) in self.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{}-{}", r.start, r.end)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(text: &str) -> RangeSet {
        RangeSet::parse(text).unwrap()
    }

    #[test]
    fn insert_merges_touching_ranges_and_counts_new_bytes() {
        let mut s = RangeSet::new();
        assert_eq!(s.insert(10, 20), 10);
        assert_eq!(s.insert(30, 40), 10);
        assert_eq!(s.insert(20, 30), 10, "fills the hole");
        assert_eq!(s.to_string(), "10-40");
        assert_eq!(s.insert(0, 50), 20, "covers");
        assert_eq!(s.insert(5, 6), 0, "is covered");
        assert_eq!(s.insert(7, 7), 0);
        assert_eq!(s.insert(8, 7), 0);
        assert_eq!(s.to_string(), "0-50");
        assert_eq!(s.insert(u64::MAX - 1, u64::MAX), 1);
        assert_eq!(s.end(), u64::MAX);
    }

    #[test]
    fn remove_shortens_and_splits_ranges() {
        let mut s = set("0-10,20-30,40-50");
        s.remove(12, 18);
        assert_eq!(s, set("0-10,20-30,40-50"), "nothing was there");
        s.remove(25, 25);
        s.remove(60, 70);
        assert_eq!(s.range_count(), 3);
        s.remove(22, 24);
        assert_eq!(s, set("0-10,20-22,24-30,40-50"));
        s.remove(5, 45);
        assert_eq!(s, set("0-5,45-50"));
        s.remove(0, u64::MAX);
        assert!(s.is_empty());
    }

    #[test]
    fn gaps_lie_within_the_given_range() {
        let s = set("10-20,30-40");
        assert_eq!(s.gaps(0, 50), set("0-10,20-30,40-50"));
        assert_eq!(s.gaps(15, 35), set("20-30"));
        assert_eq!(s.gaps(10, 20), RangeSet::new());
        assert_eq!(s.gaps(22, 25), set("22-25"));
        assert_eq!(s.gaps(25, 22), RangeSet::new());
        assert_eq!(RangeSet::new().gaps(0, 5), set("0-5"));
    }

    #[test]
    fn contains_requires_the_whole_range() {
        let s = set("10-20,30-40");
        assert!(s.contains(10, 20) && s.contains(35, 36) && s.contains(5, 5) && s.contains(6, 5));
        assert!(!s.contains(9, 20) && !s.contains(10, 21) && !s.contains(15, 35));
        assert!(!RangeSet::new().contains(0, 1));
    }

    #[test]
    fn prefix_end_and_byte_count_are_computed() {
        let s = set("0-10,20-30");
        assert_eq!((s.prefix_len(), s.end(), s.byte_count()), (10, 30, 20));
        assert_eq!(set("1-2").prefix_len(), 0);
        assert_eq!(RangeSet::new().end(), 0);
    }

    #[test]
    fn lists_in_any_order_are_parsed() {
        assert_eq!(set("20-30, 0-10,5-20"), set("0-30"));
        assert_eq!(set("7-7"), RangeSet::new());
        for text in [
            "",
            "0-",
            "-5",
            "x",
            "1",
            "1-2,",
            "1-2-3",
            "+1-2",
            "0-18446744073709551616",
        ] {
            assert_eq!(RangeSet::parse(text), Err(RangeError::Malformed), "{text}");
        }
        assert_eq!(RangeSet::parse("5-4"), Err(RangeError::Reversed));
    }

    proptest! {
        #[test]
        fn operations_agree_with_a_set_of_offsets(
            steps in proptest::collection::vec((any::<bool>(), 0u64..60, 0u64..60), 0..40),
            (start, end) in (0u64..70, 0u64..70),
        ) {
            let mut set = RangeSet::new();
            let mut bytes = std::collections::BTreeSet::new();
            for (add, a, b) in steps {
                if add {
                    let before = bytes.len();
                    bytes.extend(a..b);
                    prop_assert_eq!(set.insert(a, b), (bytes.len() - before) as u64);
                } else {
                    bytes.retain(|byte| !(a..b).contains(byte));
                    set.remove(a, b);
                }
            }
            let held = |set: &RangeSet| set.iter().flat_map(|r| r.start..r.end).collect::<Vec<_>>();
            prop_assert_eq!(held(&set), bytes.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(set.byte_count(), bytes.len() as u64);
            let ends: Vec<_> = set.iter().collect();
            prop_assert!(ends.windows(2).all(|w| w[0].end < w[1].start));
            let missing: Vec<u64> = (start..end).filter(|b| !bytes.contains(b)).collect();
            prop_assert_eq!(set.contains(start, end), missing.is_empty());
            prop_assert_eq!(held(&set.gaps(start, end)), missing);
        }
    }

    #[test]
    fn changes_in_descending_order_take_no_quadratic_time() {
        // With quadratic time this test would not end within minutes.
        let many = 400_000;
        let mut set = RangeSet::new();
        for n in (0..many).rev() {
            set.insert(n * 2, n * 2 + 1);
        }
        assert_eq!(set.range_count() as u64, many);
        for n in (0..many).rev() {
            set.remove(n * 2, n * 2 + 1);
        }
        assert!(set.is_empty());
    }

    #[test]
    fn a_list_with_too_many_ranges_is_refused() {
        let items: Vec<String> = (0..MAX_RANGES)
            .rev()
            .map(|n| format!("{}-{}", n * 2, n * 2 + 1))
            .collect();
        let text = items.join(",");
        assert_eq!(set(&text).range_count(), MAX_RANGES);
        assert_eq!(
            RangeSet::parse(&format!("{text},0-1")),
            Err(RangeError::TooMany)
        );
    }
}
