use proptest::collection::vec;
use proptest::prelude::*;
use proto::ranges::RangeSet;

/// Number of offsets in the naive model.
const SPACE: usize = 64;

#[derive(Debug, Clone, Copy)]
enum RangeOperation {
    Insert(usize, usize),
    Remove(usize, usize),
}

fn step() -> impl Strategy<Value = RangeOperation> {
    let place = || 0..=SPACE;
    prop_oneof![
        2 => (place(), place()).prop_map(|(a, b)| RangeOperation::Insert(a, b)),
        1 => (place(), place()).prop_map(|(a, b)| RangeOperation::Remove(a, b)),
    ]
}

type Bitmap = [bool; SPACE];

/// Applies the operations to a set and a bitmap, and checks the return values of `insert`.
fn run(steps: &[RangeOperation]) -> (RangeSet, Bitmap) {
    let mut set = RangeSet::new();
    let mut bits = [false; SPACE];
    for step in steps {
        match *step {
            RangeOperation::Insert(a, b) => {
                let fresh = (a..b).filter(|i| !bits[*i]).count();
                (a..b).for_each(|i| bits[i] = true);
                assert_eq!(set.insert(a as u64, b as u64), fresh as u64);
            }
            RangeOperation::Remove(a, b) => {
                (a..b).for_each(|i| bits[i] = false);
                set.remove(a as u64, b as u64);
            }
        }
    }
    (set, bits)
}

fn bits_of(set: &RangeSet) -> Bitmap {
    let mut bits = [false; SPACE];
    for r in set.iter() {
        (r.start..r.end).for_each(|i| bits[usize::try_from(i).unwrap_or(SPACE)] = true);
    }
    bits
}

fn is_normal(set: &RangeSet) -> bool {
    let ranges: Vec<_> = set.iter().collect();
    ranges.iter().all(|r| r.start < r.end) && ranges.windows(2).all(|w| w[0].end < w[1].start)
}

proptest! {
    #[test]
    fn a_set_agrees_with_a_bitmap(steps in vec(step(), 0..40), a in 0..=SPACE, b in 0..=SPACE) {
        let (set, bits) = run(&steps);
        prop_assert!(is_normal(&set));
        prop_assert_eq!(bits_of(&set), bits);
        let count = bits.iter().filter(|b| **b).count() as u64;
        prop_assert_eq!(set.byte_count(), count);
        prop_assert_eq!(set.is_empty(), count == 0);
        let prefix = bits.iter().take_while(|b| **b).count() as u64;
        prop_assert_eq!(set.prefix_len(), prefix);
        let end = bits.iter().rposition(|b| *b).map_or(0, |i| i as u64 + 1);
        prop_assert_eq!(set.end(), end);
        let holds = (a..b).all(|i| bits[i]);
        prop_assert_eq!(set.contains(a as u64, b as u64), holds);
        let gaps = set.gaps(a as u64, b as u64);
        prop_assert!(is_normal(&gaps));
        let missing: Vec<bool> = (0..SPACE).map(|i| (a..b).contains(&i) && !bits[i]).collect();
        prop_assert_eq!(bits_of(&gaps).to_vec(), missing);
    }

    #[test]
    fn a_union_agrees_with_a_bitmap(one in vec(step(), 0..20), other in vec(step(), 0..20)) {
        let ((mut set, a), (second, b)) = (run(&one), run(&other));
        set.extend(&second);
        prop_assert!(is_normal(&set));
        let both: Vec<bool> = a.iter().zip(b).map(|(a, b)| *a || b).collect();
        prop_assert_eq!(bits_of(&set).to_vec(), both);
    }

    #[test]
    fn a_list_is_parsed_back_in_any_order(steps in vec(step(), 1..40)) {
        let (set, _) = run(&steps);
        prop_assume!(!set.is_empty());
        let text = set.to_string();
        prop_assert_eq!(RangeSet::parse(&text), Ok(set.clone()));
        let reversed: Vec<&str> = text.split(',').rev().collect();
        prop_assert_eq!(RangeSet::parse(&reversed.join(",")), Ok(set));
    }

    #[test]
    fn offsets_up_to_the_largest_number_keep_sets_normal(a: u64, b: u64, c: u64, d: u64) {
        let mut set = RangeSet::new();
        set.insert(a, b);
        set.insert(c, d);
        prop_assert!(is_normal(&set));
        set.remove(b, c);
        prop_assert!(is_normal(&set.gaps(0, u64::MAX)));
    }

    #[test]
    fn arbitrary_text_never_panics(text in "[0-9, x-]{0,60}") {
        let _ = RangeSet::parse(&text);
    }
}
