//! Byte ranges: restart markers (GFD.20 §3.7), REST arguments, what has arrived, what is missing.
//!
//! Ends are exclusive everywhere: a complete store of 3 000 000 bytes is `0-3000000`.

use std::fmt;

/// Bytes `start..end` of a file. `start < end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl ByteRange {
    /// `None` when empty or reversed.
    pub fn new(start: u64, end: u64) -> Option<Self> {
        (start < end).then_some(Self { start, end })
    }

    /// Number of bytes, at least 1.
    #[allow(clippy::len_without_is_empty, reason = "a range is never empty")]
    pub fn len(self) -> u64 {
        self.end - self.start
    }
}

/// Most ranges taken from one REST command or one 111 reply.
pub const MAX_RANGES: usize = 65_536;

/// Why a range list could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// Not `a-b,c-d`.
    #[error("not a list of byte ranges (a-b,c-d)")]
    Malformed,
    /// `b < a` somewhere.
    #[error("a byte range ends before it starts")]
    Reversed,
    /// More than [`MAX_RANGES`].
    #[error("too many byte ranges")]
    TooMany,
}

/// A set of bytes, kept as sorted, disjoint, non-adjacent ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    ranges: Vec<ByteRange>,
}

impl RangeSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `start..end`; empty when `start >= end`. Returns how many bytes were new.
    pub fn insert(&mut self, start: u64, end: u64) -> u64 {
        if start >= end {
            return 0;
        }
        let first = self.ranges.partition_point(|r| r.end < start);
        let last = self.ranges.partition_point(|r| r.start <= end);
        let before: u64 = self.ranges[first..last].iter().map(|r| r.len()).sum();
        let merged = ByteRange {
            start: self.ranges[first..last]
                .first()
                .map_or(start, |r| r.start.min(start)),
            end: self.ranges[first..last]
                .last()
                .map_or(end, |r| r.end.max(end)),
        };
        self.ranges.splice(first..last, [merged]);
        merged.len() - before
    }

    /// Takes `start..end` out.
    pub fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let first = self.ranges.partition_point(|r| r.end <= start);
        let last = self.ranges.partition_point(|r| r.start < end);
        let left = self.ranges[first..last]
            .first()
            .and_then(|r| ByteRange::new(r.start, start));
        let right = self.ranges[first..last]
            .last()
            .and_then(|r| ByteRange::new(end, r.end));
        self.ranges
            .splice(first..last, left.into_iter().chain(right));
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
        gaps.insert(start, end);
        for r in self.iter() {
            gaps.remove(r.start, r.end);
        }
        gaps
    }

    /// Whether all of `start..end` is in the set (true for an empty span).
    pub fn contains(&self, start: u64, end: u64) -> bool {
        start >= end || self.ranges.iter().any(|r| r.start <= start && end <= r.end)
    }

    /// Bytes in the set.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|r| r.len()).sum()
    }

    /// End of the run that starts at 0; 0 when byte 0 is missing.
    pub fn prefix(&self) -> u64 {
        self.ranges
            .first()
            .filter(|r| r.start == 0)
            .map_or(0, |r| r.end)
    }

    /// One past the last byte; 0 when empty.
    pub fn end(&self) -> u64 {
        self.ranges.last().map_or(0, |r| r.end)
    }

    /// Ascending ranges.
    pub fn iter(&self) -> impl Iterator<Item = ByteRange> + '_ {
        self.ranges.iter().copied()
    }

    /// Number of ranges.
    pub fn count(&self) -> usize {
        self.ranges.len()
    }

    /// No bytes.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Reads `a-b,c-d`. Overlapping or unordered ranges are merged; `a-a` is empty and allowed.
    pub fn parse(text: &str) -> Result<Self, RangeError> {
        let mut set = Self::new();
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

/// Digits only: `u64::from_str` would take a leading `+`.
fn parse_number(text: &str) -> Result<u64, RangeError> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(RangeError::Malformed);
    }
    text.parse().map_err(|_| RangeError::Malformed)
}

impl fmt::Display for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, r) in self.ranges.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{}-{}", r.start, r.end)?;
        }
        Ok(())
    }
}
