use proptest::prelude::*;

use super::*;

fn set(text: &str) -> RangeSet {
    RangeSet::parse(text).unwrap()
}

#[test]
fn only_the_missing_ranges_of_the_part_are_sent() {
    let plan = |part, have| {
        let plan = send_plan(100, part, &have);
        (plan.ranges.to_string(), plan.origin)
    };
    assert_eq!(plan(None, RangeSet::new()), ("0-100".to_owned(), 0));
    assert_eq!(
        plan(None, set("0-10,20-30")),
        ("10-20,30-100".to_owned(), 0)
    );
    assert_eq!(
        plan(Some((40, 20)), RangeSet::new()),
        ("40-60".to_owned(), 40)
    );
    assert_eq!(plan(Some((40, 20)), set("0-5")), ("45-60".to_owned(), 40));
    assert_eq!(
        plan(Some((90, 50)), RangeSet::new()),
        ("90-100".to_owned(), 90)
    );
    assert_eq!(plan(Some((200, 5)), RangeSet::new()), (String::new(), 200));
    assert_eq!(plan(None, set("0-200")), (String::new(), 0));
}

proptest! {
    #[test]
    fn no_offset_overflows(size: u64, offset: u64, length: u64, a: u64, b: u64) {
        let mut have = RangeSet::new();
        have.insert(a.min(b), a.max(b));
        let plan = send_plan(size, Some((offset, length)), &have);
        prop_assert!(plan.ranges.end() <= size);
        prop_assert!(plan.ranges.iter().all(|range| range.start >= offset));
    }
}

#[test]
fn the_command_decides_where_a_store_begins() {
    let plan = |disposition, mode| {
        let plan = recv_plan(&disposition, mode, 70);
        (plan.origin, plan.stream_start)
    };
    let resume = || StoreDisposition::Resume {
        already_stored: set("0-30,40-50"),
    };
    assert_eq!(
        plan(StoreDisposition::Truncate, TransferMode::Stream),
        (0, 0)
    );
    assert_eq!(plan(resume(), TransferMode::Stream), (0, 30));
    assert_eq!(plan(resume(), TransferMode::Extended), (0, 0));
    assert_eq!(
        plan(StoreDisposition::AtOffset(9), TransferMode::Extended),
        (9, 0)
    );
    assert_eq!(
        plan(StoreDisposition::Append, TransferMode::Stream),
        (70, 0)
    );
    assert_eq!(
        plan(StoreDisposition::Unique, TransferMode::Extended),
        (0, 0)
    );
}
