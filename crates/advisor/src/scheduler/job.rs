//! Jobs of the scheduler: their kinds, their permission, their outcome.

use std::net::IpAddr;
use std::time::Duration;

use crate::clock::Moment;
use crate::measurement::Quantity;

/// One kind of test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledTest {
    /// Its name.
    pub name: String,
    /// Time between two tests of a client of which little is known.
    pub interval: Duration,
    /// Most at one time.
    pub concurrency: usize,
    /// Whether it needs paths for itself: only one such test runs at a time.
    pub fills_path: bool,
    /// Whether it runs without being asked for.
    pub is_periodic: bool,
    /// The quantities that every result has; none, if that is not known before.
    pub measures: &'static [Quantity],
}

/// A test that starts now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestJob {
    /// The client.
    pub client: IpAddr,
    /// The test's number.
    pub test: usize,
    /// Somebody asked for it.
    pub on_demand: bool,
    /// Bytes that the budget was charged with.
    pub bytes: u64,
}

/// Answer to the question for the next job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextJob {
    /// Start this one.
    Start(TestJob),
    /// Nothing to start before this moment, unless a test ends or is asked for. `None`: at no known moment.
    Wait(Option<Moment>),
}

/// Whether a job may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Yes, at the cost of so many bytes at most.
    Open(u64),
    /// Not before this moment.
    Until(Moment),
}

/// Outcome of a test, as far as its next time depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestOutcome {
    /// The path is as before.
    Steady,
    /// A value was an outlier.
    Outlier,
    /// The path has changed.
    Shift,
    /// No result.
    Failed,
    /// It did not run after all: another server tests there. It is tried again after this time.
    PutOff(Duration),
}
