use super::*;
use ftp::FailureKind;

const PATIENCE: Duration = Duration::from_secs(600);

fn budget(retries: u32, patience: Duration) -> RetryBudget {
    RetryBudget::new(RetryOptions { retries, patience }, 1)
}

fn lost() -> Failure {
    Failure::transient(FailureKind::Unreachable, "lost")
}

#[test]
fn transient_failures_are_retried_up_to_the_limit() {
    let missing = Failure::new(FailureKind::NotFound, "missing");
    let mut retries = budget(2, PATIENCE);
    assert_eq!(retries.next_attempt(&missing, 0, None), None);
    assert!(!retries.is_retry());
    let (attempt, first) = retries.next_attempt(&lost(), 0, None).unwrap();
    assert!(retries.is_retry());
    assert_eq!(attempt, 2);
    let (attempt, second) = retries.next_attempt(&lost(), 0, None).unwrap();
    assert_eq!(attempt, 3);
    assert!(first <= Duration::from_secs(1) && second <= Duration::from_secs(2));
    assert_eq!(retries.next_attempt(&lost(), 0, None), None);
}

#[test]
fn progress_resets_the_retry_count() {
    let mut retries = budget(1, PATIENCE);
    for attempt in 2..10 {
        let next = retries
            .next_attempt(&lost(), FRESH_START_BYTES, None)
            .unwrap();
        assert_eq!(next.0, attempt);
        assert!(next.1 <= Duration::from_secs(1));
    }
    assert_eq!(retries.next_attempt(&lost(), 0, None), None);
}

#[test]
fn zero_retries_makes_every_failure_final() {
    let mut retries = budget(0, Duration::ZERO);
    assert_eq!(retries.next_attempt(&lost(), u64::MAX, None), None);
    let away = Some(Duration::from_secs(1));
    assert_eq!(retries.next_attempt(&lost(), 0, away), None);
}

#[test]
fn a_peer_that_is_away_is_waited_for_until_its_time_is_over() {
    let mut retries = budget(1, PATIENCE);
    // The connection broke.
    assert!(retries.next_attempt(&lost(), 0, None).is_some());
    let (mut away, mut tries) = (Duration::ZERO, 0);
    while let Some((_, wait)) = retries.next_attempt(&lost(), 0, Some(away)) {
        assert!(wait <= tune::backoff::MAX_DELAY);
        away += wait;
        tries += 1;
    }
    assert_eq!(away, PATIENCE);
    assert!((15..60).contains(&tries), "{tries}");
}

#[test]
fn a_peer_that_is_back_and_fails_has_the_retries_of_others() {
    let mut retries = budget(2, PATIENCE);
    let mut waits = Vec::new();
    for away in [
        None,
        Some(Duration::ZERO),
        Some(Duration::from_secs(60)),
        None,
    ] {
        waits.push(retries.next_attempt(&lost(), 0, away).unwrap().1);
    }
    assert_eq!(retries.next_attempt(&lost(), 0, None), None);
    // After the next outage the first tries follow soon again.
    let (_, wait) = retries
        .next_attempt(&lost(), 0, Some(Duration::ZERO))
        .unwrap();
    assert!(wait <= Duration::from_secs(1), "{waits:?} {wait:?}");
}
