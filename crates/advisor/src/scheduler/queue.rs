//! The tests of a client, and the queues in which they wait.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::time::Duration;

use tune::path::{IntervalBounds, TestInterval};

use super::job::ScheduledTest;
use crate::clock::Moment;

/// Part of a test's interval that is the shortest, and multiple that is the longest.
const SHORTEST_PART: u32 = 8;
const LONGEST_MULTIPLE: u32 = 4;

/// The tests of one client.
#[derive(Debug, Default)]
pub(super) struct ClientTests {
    pub(super) slots: Vec<TestSlot>,
}

/// One test of one client. There are several of each client: it is small.
#[derive(Debug, Clone)]
pub(super) struct TestSlot {
    /// When it runs periodically: its place in that queue.
    pub(super) due: Option<Moment>,
    /// Place in the queue of tests on demand.
    pub(super) asked: Option<NonZeroU64>,
    pub(super) last: Option<Moment>,
    pub(super) interval: TestInterval,
    pub(super) test: u16,
    pub(super) is_running: bool,
    /// It is one of the client's periodic tests, and not only asked for once.
    pub(super) is_periodic: bool,
    /// It starts when the running test of the same client ends.
    pub(super) waits_for_other: bool,
}

impl TestSlot {
    pub(super) fn is_of(&self, test: usize) -> bool {
        usize::from(self.test) == test
    }
}

/// Queues of one kind of test.
#[derive(Debug)]
pub(super) struct TestQueue {
    pub(super) plan: ScheduledTest,
    pub(super) periodic: BTreeSet<(Moment, IpAddr)>,
    pub(super) on_demand: BTreeSet<(NonZeroU64, IpAddr)>,
    pub(super) running: usize,
    /// The budget has no room for this kind of test before then.
    pub(super) no_budget_before: Option<Moment>,
}

impl TestQueue {
    /// An empty queue.
    pub(super) fn new(plan: ScheduledTest) -> Self {
        Self {
            plan,
            periodic: BTreeSet::new(),
            on_demand: BTreeSet::new(),
            running: 0,
            no_budget_before: None,
        }
    }

    /// A test of a client that is neither due nor asked for. `interval`: the client's own.
    pub(super) fn new_slot(&self, test: usize, interval: Option<Duration>) -> TestSlot {
        let initial = interval.unwrap_or(self.plan.interval);
        TestSlot {
            due: None,
            asked: None,
            last: None,
            interval: TestInterval::new(IntervalBounds {
                shortest: initial / SHORTEST_PART,
                initial,
                longest: initial.saturating_mul(LONGEST_MULTIPLE),
            }),
            test: u16::try_from(test).unwrap_or(u16::MAX),
            is_running: false,
            is_periodic: false,
            waits_for_other: false,
        }
    }

    /// Moves a client to another place in the queue of periodic tests, or out of it.
    pub(super) fn plan(&mut self, client: IpAddr, place: &mut Option<Moment>, due: Option<Moment>) {
        if let Some(was) = place.take() {
            self.periodic.remove(&(was, client));
        }
        if let Some(due) = due {
            self.periodic.insert((due, client));
        }
        *place = due;
    }

    /// Takes a client out of the queue of tests on demand.
    pub(super) fn no_longer_asked(&mut self, client: IpAddr, asked: &mut Option<NonZeroU64>) {
        if let Some(place) = asked.take() {
            self.on_demand.remove(&(place, client));
        }
    }
}
