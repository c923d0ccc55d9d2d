//! Leases, watched by a clock that is not set.

use super::*;

const LENGTH: Duration = Duration::from_secs(600);

fn lease(job: i64, renewal: i64) -> RunningLease {
    RunningLease {
        job,
        attempt: 1,
        renewal,
        length: LENGTH,
    }
}

#[test]
fn a_lease_ends_when_its_last_renewal_is_as_old_as_it_is_long() {
    let mut watch = LeaseWatch::default();
    let at = Duration::from_secs;
    assert!(watch.look(at(1000), [lease(1, 5), lease(2, 5)]).is_empty());
    assert!(watch.look(at(1599), [lease(1, 5), lease(2, 6)]).is_empty());
    let ended = watch.look(at(1600), [lease(1, 5), lease(2, 6)]);
    assert_eq!(ended, [lease(1, 5)]);
    // It is a new one for whoever has it next.
    let next = RunningLease {
        attempt: 2,
        ..lease(1, 5)
    };
    assert!(watch.look(at(1601), [next]).is_empty());
    assert_eq!(watch.look(at(2201), [next]), [next]);
}

#[test]
fn a_clock_of_the_database_that_jumps_neither_ends_a_lease_nor_prolongs_one() {
    const DAY: i64 = 86_400_000_000;
    for jump in [DAY, -DAY] {
        let mut watch = LeaseWatch::default();
        let mut now = Duration::from_secs(50);
        watch.look(now, [lease(1, 0), lease(2, 0)]);
        // One is renewed, by the new time; the other's worker is gone.
        now += LENGTH / 2;
        assert!(watch.look(now, [lease(1, jump), lease(2, 0)]).is_empty());
        now += LENGTH / 2;
        assert_eq!(
            watch.look(now, [lease(1, jump), lease(2, 0)]),
            [lease(2, 0)]
        );
    }
}

#[test]
fn leases_that_are_no_more_are_forgotten() {
    let mut watch = LeaseWatch::default();
    watch.look(Duration::ZERO, [lease(1, 0)]);
    watch.look(Duration::ZERO, []);
    assert!(watch.seen.is_empty());
    assert!(watch.look(LENGTH, [lease(1, 0)]).is_empty());
}
