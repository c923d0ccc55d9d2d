//! Parts of an upload.

use crate::ranges::ByteRange;

/// Fewest bytes of a part but the last one.
pub const MIN_PART: u64 = 5 << 20;
/// Most bytes of a part.
pub const MAX_PART: u64 = 5 << 30;
/// Most parts of an object.
pub const MAX_PARTS: u64 = 10_000;
/// Most bytes of an object.
pub const MAX_OBJECT: u64 = 5 << 40;
/// Usual bytes of a part: it is sent in a second or less on a fast path, and again if its connection is lost.
const USUAL_PART: u64 = 16 << 20;
/// Parts have a multiple of this many bytes.
const PART_UNIT: u64 = 1 << 20;

/// How an object is cut into parts of one size, of which the last may be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartPlan {
    /// Bytes of the object.
    size: u64,
    /// Bytes of a part.
    part: u64,
}

impl PartPlan {
    /// For an object of `size` bytes over `streams` connections. `None`: no object is so large.
    pub fn for_object(size: u64, streams: u64) -> Option<Self> {
        if size > MAX_OBJECT {
            return None;
        }
        // Each connection gets parts of its own, and all of them end at about the same time.
        let share = size.div_ceil(streams.max(1)).clamp(MIN_PART, USUAL_PART);
        let least = size.div_ceil(MAX_PARTS);
        let part = share.max(least).next_multiple_of(PART_UNIT).min(MAX_PART);
        Some(Self { size, part })
    }

    /// With parts of this size, as an earlier upload had them. `None` if these cannot make the object.
    pub fn with_part(size: u64, part: u64) -> Option<Self> {
        let fits = (MIN_PART..=MAX_PART).contains(&part)
            && size <= MAX_OBJECT
            && size.div_ceil(part) <= MAX_PARTS;
        fits.then_some(Self { size, part })
    }

    /// Bytes of a part of a file that a server stores as an object while it arrives; `None`: nobody has announced its size. Senders to
    /// several machines of such a server keep to it, too.
    pub fn part_of_arriving(announced: Option<u64>) -> u64 {
        announced
            .and_then(|size| Self::for_object(size, 1))
            .map_or(USUAL_PART, |plan| plan.part.max(USUAL_PART))
    }

    /// Bytes of a part.
    pub fn part_size(self) -> u64 {
        self.part
    }

    /// Number of parts: 1 for an empty object.
    pub fn count(self) -> u32 {
        // At most `MAX_PARTS`.
        u32::try_from(self.size.div_ceil(self.part).max(1)).unwrap_or(u32::MAX)
    }

    /// The bytes of a part, whose numbers begin with 1. `None`: there is no such part.
    pub fn range(self, number: u32) -> Option<ByteRange> {
        let start = u64::from(number.checked_sub(1)?).checked_mul(self.part)?;
        ByteRange::new(start, start.saturating_add(self.part).min(self.size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_suit_the_object_and_its_connections() {
        let part = |size, streams| PartPlan::for_object(size, streams).unwrap().part_size();
        assert_eq!(part(20 << 20, 4), MIN_PART);
        assert_eq!(part(1 << 30, 8), USUAL_PART);
        let largest = PartPlan::for_object(MAX_OBJECT, 8).unwrap();
        assert!(u64::from(largest.count()) <= MAX_PARTS && largest.part_size() <= MAX_PART);
        assert_eq!(PartPlan::for_object(MAX_OBJECT + 1, 8), None);
    }

    #[test]
    fn the_parts_are_the_object() {
        let plan = PartPlan::with_part(13 << 20, MIN_PART).unwrap();
        assert_eq!(plan.count(), 3);
        let ranges: Vec<_> = (1..=3).map(|n| plan.range(n).unwrap()).collect();
        assert_eq!((ranges[0].start, ranges[2].end), (0, 13 << 20));
        assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert_eq!((plan.range(0), plan.range(4)), (None, None));
    }

    #[test]
    fn an_earlier_part_size_must_fit_the_object() {
        assert_eq!(PartPlan::with_part(1 << 40, MIN_PART), None);
        assert_eq!(PartPlan::with_part(1 << 30, 1000), None);
    }
}
