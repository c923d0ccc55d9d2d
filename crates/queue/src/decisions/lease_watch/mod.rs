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
mod tests;
