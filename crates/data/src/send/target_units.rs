//! Whole units for each target: several machines receive a file together, and each stores what it has all bytes of.

use parking_lot::Mutex;

use crate::cursor::{CursorPart, MIN_PART, RemainingRanges};

/// The units that are being sent.
#[derive(Debug)]
pub(super) struct TargetUnits {
    /// Units begin at multiples of this many bytes behind `origin`.
    unit: u64,
    origin: u64,
    /// By target: what is left of the unit that it has.
    open: Mutex<Vec<RemainingRanges>>,
}

impl TargetUnits {
    pub(super) fn new(unit: u64, origin: u64) -> Self {
        Self {
            unit,
            origin,
            open: Mutex::default(),
        }
    }

    /// The next part for one of the `streams` of a target, at most `block` bytes: of the target's unit, or of the next one that no
    /// target has. `None` when everything was handed out.
    pub(super) fn next(
        &self,
        target: usize,
        left: &Mutex<RemainingRanges>,
        block: u64,
        streams: usize,
    ) -> Option<CursorPart> {
        let mut all = self.open.lock();
        if all.len() <= target {
            all.resize_with(target + 1, RemainingRanges::default);
        }
        let open = all.get_mut(target)?;
        let mut left = left.lock();
        if open.is_empty() {
            open.append_rest(left.take_unit(self.unit, self.origin));
        }
        // Only the end of a target's last unit keeps its streams waiting for each other.
        let most = match left.is_empty() {
            true => open.max_part(block, streams as u64, MIN_PART),
            false => block,
        };
        Some(CursorPart {
            range: open.take_first(most)?,
            is_near_end: most < block,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proto::ranges::RangeSet;

    use super::*;
    use crate::cursor::TransferCursor;

    proptest! {
        #[test]
        fn each_unit_goes_to_one_target_and_nothing_is_left(
            spans in proptest::collection::vec((0u64..500, 1u64..300), 1..8),
            unit in 1u64..40,
            origin in 0u64..60,
            asking in proptest::collection::vec(0usize..3, 0..400),
        ) {
            let mut ranges = RangeSet::new();
            for (start, len) in spans {
                ranges.insert(origin + start, origin + start + len);
            }
            let TransferCursor::Ranges { left, .. } = TransferCursor::ranges(&ranges) else { unreachable!() };
            let units = TargetUnits::new(unit, origin);
            let mut owners = std::collections::HashMap::new();
            let mut sent = RangeSet::new();
            // In the end all targets ask until nothing is left.
            let rest = (0..3).flat_map(|target| std::iter::repeat_n(target, 2000));
            for target in asking.into_iter().chain(rest) {
                let Some(part) = units.next(target, &left, 7, 2) else { continue };
                let range = part.range;
                let number = (range.start - origin) / unit;
                prop_assert!(range.len() > 0 && number == (range.end - 1 - origin) / unit);
                prop_assert_eq!(*owners.entry(number).or_insert(target), target);
                prop_assert_eq!(sent.insert(range.start, range.end), range.len());
            }
            prop_assert_eq!(sent, ranges);
        }
    }
}
