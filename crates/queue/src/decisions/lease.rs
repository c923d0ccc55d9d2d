//! Leases: how long a worker may believe that a job is its own.
//!
//! A worker counts the time of a lease by its own clock from the moment before it asked. Others count the same time by theirs from
//! the moment when they saw the renewal ([`super::lease_watch`]), so its end of the lease is never later than theirs. These clocks
//! count while the machine sleeps (CLOCK_BOOTTIME, clock_gettime(2)); clocks of the wall may be set, also the database's, and count
//! for nothing.

use std::time::Duration;

/// Shortest lease.
pub const SHORTEST: Duration = Duration::from_secs(2);
/// Longest lease.
pub const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Longest time between two renewals: they also bring progress to the database, and orders to the worker.
const RENEW_AT_LEAST: Duration = Duration::from_secs(10);

/// The length of leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTime(Duration);

impl LeaseTime {
    /// A length within [`SHORTEST`] and [`LONGEST`].
    pub fn new(length: Duration) -> Self {
        Self(length.clamp(SHORTEST, LONGEST))
    }

    /// The length.
    pub fn length(self) -> Duration {
        self.0
    }

    /// Time between two renewals.
    pub fn renew_every(self) -> Duration {
        (self.0 / 10).min(RENEW_AT_LEAST)
    }

    /// The deadlines of a lease that was asked for at `asked`, a time since the machine started. The child is told to end
    /// after four fifths of the lease, and killed after nine tenths.
    pub fn deadlines(self, asked: Duration) -> LeaseDeadlines {
        LeaseDeadlines {
            stop: asked.saturating_add(self.0 * 4 / 5),
            kill: asked.saturating_add(self.0 * 9 / 10),
        }
    }
}

/// When a child has to end, times since the machine started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseDeadlines {
    /// It is told to end, so that it can keep a journal (SIGTERM).
    pub stop: Duration,
    /// It is killed (SIGKILL).
    pub kill: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_gone_before_another_worker_may_take_its_job() {
        for seconds in [0, 2, 60, 600, 1_000_000] {
            let lease = LeaseTime::new(Duration::from_secs(seconds));
            let asked = Duration::from_secs(50);
            let deadlines = lease.deadlines(asked);
            assert!(asked + lease.renew_every() * 5 < deadlines.stop);
            assert!(deadlines.stop < deadlines.kill);
            assert!(deadlines.kill < asked + lease.length());
        }
    }

    #[test]
    fn minutes_without_a_database_stop_nothing_in_a_lease_of_ten() {
        let lease = LeaseTime::new(Duration::from_secs(600));
        let last_renewal = Duration::ZERO;
        assert!(lease.deadlines(last_renewal).stop >= Duration::from_secs(7 * 60));
    }
}
