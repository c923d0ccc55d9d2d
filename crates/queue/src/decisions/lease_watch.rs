//! When a lease that nobody renews has ended, as one worker sees it.
//!
//! The database's clock may be set while leases run, by a day or more. So it does not decide: a worker that looks at the leases at
//! intervals counts by its own clock for how long a renewal has been the last one. Its holder has begun to count earlier, before it
//! asked for that renewal ([`super::lease`]), and so has ended its child when the watcher's time is over.

use std::collections::HashMap;
use std::time::Duration;

/// A lease as it stands in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunningLease {
    /// The job.
    pub job: i64,
    /// Number of its attempt.
    pub attempt: u32,
    /// Another value after each renewal: the time that the database noted, microseconds. It is compared, never counted with.
    pub renewal: i64,
    /// Length of the lease.
    pub length: Duration,
}

/// All leases as one worker has seen them.
#[derive(Debug, Default)]
pub struct LeaseWatch {
    /// The last renewal of each, and when it was seen first.
    seen: HashMap<i64, (RunningLease, Duration)>,
}

impl LeaseWatch {
    /// Takes all leases there are, as they were read before `now`, a time of the watcher's clock; returns those that have ended.
    /// A watcher that has just begun finds none.
    pub fn look(
        &mut self,
        now: Duration,
        leases: impl IntoIterator<Item = RunningLease>,
    ) -> Vec<RunningLease> {
        let mut before = std::mem::take(&mut self.seen);
        let mut ended = Vec::new();
        for lease in leases {
            let known = before.remove(&lease.job);
            let since = known.filter(|(seen, _)| *seen == lease);
            let since = since.map_or(now, |(_, since)| since);
            if now.saturating_sub(since) >= lease.length {
                ended.push(lease);
            }
            self.seen.insert(lease.job, (lease, since));
        }
        ended
    }
}

#[cfg(test)]
mod tests {
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
}
