use super::*;
use proptest::prelude::*;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn streams(rtt: Duration, bytes: Option<u64>, block: usize, most: u32) -> u32 {
    prior_from_rtt(rtt, bytes, block, most).streams.unwrap()
}

#[test]
fn longer_paths_begin_with_more_streams() {
    let first_streams = [0, 1, 5, 20, 60, 120, 500].map(|rtt| streams(ms(rtt), None, 1 << 20, 64));
    assert_eq!(first_streams, [1, 4, 8, 16, 16, 32, 32]);
    let advised = |rtt| advised_from_rtt(ms(rtt), None, 0, 64).streams;
    assert_eq!([1, 5, 20, 60, 120].map(advised), [1, 2, 4, 8, 16].map(Some));
    assert_eq!(
        prior_from_rtt(ms(200), None, 1 << 20, 3),
        Prior::with_streams(3)
    );
}

#[test]
fn a_small_file_gets_at_most_one_stream_per_part() {
    let streams = |bytes, block| streams(ms(200), Some(bytes), block, 64);
    assert_eq!(streams(0, 1 << 16), 1);
    assert_eq!(streams(1 << 20, 1 << 16), 4);
    assert_eq!(streams(8 << 20, 1 << 20), 8);
}

proptest! {
    #[test]
    fn the_number_of_streams_is_always_within_its_bounds(rtt in 0_u64..10_000, bytes: Option<u64>, block: usize, most: u32) {
        let streams = streams(ms(rtt), bytes, block, most);
        prop_assert!(streams >= 1 && streams <= most.max(1));
    }
}
