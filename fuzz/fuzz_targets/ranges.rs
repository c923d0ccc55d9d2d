//! Range sets: the text form is parsed back, and operations agree with a bitmap.

#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::ranges::RangeSet;

/// Size of the bitmap: every byte of the input is an offset.
const SPACE: usize = 256;

/// Runs operations of three bytes each: an odd first byte inserts, an even one removes; the second and third
/// byte are start and end.
fn run(data: &[u8]) -> (RangeSet, [bool; SPACE]) {
    let mut set = RangeSet::new();
    let mut bits = [false; SPACE];
    for step in data.chunks_exact(3) {
        let (start, end) = (usize::from(step[1]), usize::from(step[2]));
        let insert = step[0] % 2 == 1;
        (start..end).for_each(|i| bits[i] = insert);
        if insert {
            set.insert(start as u64, end as u64);
        } else {
            set.remove(start as u64, end as u64);
        }
    }
    (set, bits)
}

fuzz_target!(|data: &[u8]| {
    if let Ok(set) = RangeSet::parse(&String::from_utf8_lossy(data))
        && !set.is_empty()
    {
        assert_eq!(RangeSet::parse(&set.to_string()), Ok(set));
    }
    let (set, bits) = run(data);
    let ranges: Vec<_> = set.iter().collect();
    assert!(ranges.windows(2).all(|w| w[0].end < w[1].start));
    for (offset, bit) in (0u64..).zip(bits) {
        assert_eq!(set.contains(offset, offset + 1), bit);
    }
    let missing = set.gaps(0, SPACE as u64);
    assert_eq!(missing.byte_count() + set.byte_count(), SPACE as u64);
});
