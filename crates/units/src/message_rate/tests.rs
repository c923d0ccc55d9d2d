use super::*;
use proptest::prelude::*;

const EVERY: Duration = Duration::from_millis(10);

#[test]
fn after_a_burst_one_message_per_interval_passes() {
    let mut pace = MessageRateLimiter::new(EVERY, 3);
    let at = Duration::from_secs(1);
    let taken = |pace: &mut MessageRateLimiter, at| (0..10).filter(|_| pace.try_take(at)).count();
    assert_eq!(taken(&mut pace, at), 3);
    assert_eq!(taken(&mut pace, at + EVERY / 2), 0);
    assert_eq!(taken(&mut pace, at + EVERY), 1);
    assert_eq!(taken(&mut pace, at + EVERY * 3), 2);
    assert_eq!(taken(&mut pace, at * 100), 3);
}

proptest! {
    #[test]
    fn burst_and_rate_are_never_exceeded(
        steps in proptest::collection::vec(0u64..30_000_000, 1..300),
        burst in 1u32..20,
    ) {
        let mut pace = MessageRateLimiter::new(EVERY, burst);
        let (mut now, mut taken) = (Duration::ZERO, 0);
        for step in steps {
            now += Duration::from_nanos(step);
            taken += u128::from(pace.try_take(now));
            prop_assert!(taken <= u128::from(burst) + now.as_nanos() / EVERY.as_nanos());
        }
    }

    #[test]
    fn any_time_is_accepted(now: u64) {
        prop_assert!(MessageRateLimiter::new(EVERY, 1).try_take(Duration::new(now, 999_999_999)));
    }
}
