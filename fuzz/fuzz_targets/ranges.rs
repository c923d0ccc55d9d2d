//! Range sets: the text form comes back, and operations agree with a bitmap.

#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::ranges::RangeSet;

/// The bitmap's size: every byte of the input is a place.
const SPACE: usize = 256;

/// Three bytes are one step: odd inserts, even removes, from the second to the third.
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
    for (place, bit) in (0u64..).zip(bits) {
        assert_eq!(set.contains(place, place + 1), bit);
    }
    let missing = set.gaps(0, SPACE as u64);
    assert_eq!(missing.bytes() + set.bytes(), SPACE as u64);
});
