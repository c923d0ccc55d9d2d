//! Decides which test of which client starts when. It reads no clock and runs nothing: [`crate::service`]
//! asks it for the next job and tells it the outcome.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::time::Duration;

use tune::path::{ByteBudget, IntervalBounds, TestInterval, ValueCorrelation};
use units::splitmix::SplitMix64;

use crate::clock::Moment;
use crate::measurement::Quantity;

/// Most jobs that one call looks at, so that a long queue of jobs that may not start holds nobody up.
const MOST_LOOKS: usize = 256;
/// Of so many starts on demand in a row, the next one is a periodic test that is due.
const ON_DEMAND_STREAK: u32 = 3;
/// A test that waits for another one of its client starts after this time at the latest.
const LONGEST_TEST: Duration = Duration::from_secs(3600);
/// Largest number of on-demand tests that wait, for each kind of test.
const MOST_ON_DEMAND: usize = 10_000;

/// The plan of all tests.
#[derive(Debug)]
pub struct TestSchedule {
    queues: Vec<TestQueue>,
    clients: HashMap<IpAddr, ClientTests>,
    workers: usize,
    running: usize,
    /// A test that needs paths for itself runs.
    is_filling: bool,
    budget: ByteBudget,
    random: SplitMix64,
    places: NonZeroU64,
    streak: u32,
    counters: ScheduleCounters,
}

/// Most bytes of one run under a budget of `bytes_per_hour`. A test that may send more never runs.
pub fn most_at_once(bytes_per_hour: u64) -> u64 {
    (bytes_per_hour / 2).max(1)
}

/// Bytes of one run to which a test keeps that can make do with fewer: half of what may go at once, so that light tests
/// have room beside it, and it need not wait until they leave the budget alone.
pub fn share_of_one_test(bytes_per_hour: u64) -> u64 {
    most_at_once(bytes_per_hour) / 2
}

impl TestSchedule {
    /// A plan without clients. In any hour at most `bytes_per_hour` are granted; `seed` is for the jitter.
    pub fn new(tests: Vec<ScheduledTest>, workers: usize, bytes_per_hour: u64, seed: u64) -> Self {
        // The bucket's content and an hour's inflow together are the hour's budget.
        let burst = most_at_once(bytes_per_hour);
        let inflow = bytes_per_hour.saturating_sub(burst).max(1);
        Self {
            queues: tests.into_iter().map(TestQueue::new).collect(),
            clients: HashMap::new(),
            workers: workers.max(1),
            running: 0,
            is_filling: false,
            budget: ByteBudget::new(inflow, burst),
            random: SplitMix64::new(seed),
            places: NonZeroU64::MIN,
            streak: 0,
            counters: ScheduleCounters::default(),
        }
    }

    /// The kinds of tests, by number.
    pub fn tests(&self) -> impl Iterator<Item = &ScheduledTest> {
        self.queues.iter().map(|queue| &queue.plan)
    }

    /// The number of the test of this name.
    pub fn test_number(&self, name: &str) -> Option<usize> {
        self.tests().position(|test| test.name == name)
    }

    /// Adds a client with its periodic tests, or chooses other ones for it: those in `chosen`, by number and
    /// interval (`None`: the one of the plan), or else all that are periodic. `measured`: when the quantities
    /// of a test were last measured, if ever. A test of what never was starts as soon as a worker is free.
    pub fn set_client(
        &mut self,
        client: IpAddr,
        chosen: Option<&[(usize, Option<Duration>)]>,
        measured: &dyn Fn(&ScheduledTest) -> Option<Moment>,
        now: Moment,
    ) {
        let wanted: Vec<(usize, Option<Duration>)> = match chosen {
            Some(chosen) => chosen.to_vec(),
            None => {
                let periodic = |(number, queue): (usize, &TestQueue)| {
                    queue.plan.is_periodic.then_some((number, None))
                };
                self.queues
                    .iter()
                    .enumerate()
                    .filter_map(periodic)
                    .collect()
            }
        };
        let mut slots = self.clients.remove(&client).unwrap_or_default().slots;
        slots.retain_mut(|slot| {
            let Some(queue) = self.queues.get_mut(usize::from(slot.test)) else {
                return false;
            };
            let kept = wanted.iter().any(|(number, _)| slot.is_of(*number));
            slot.is_periodic = kept;
            if !kept {
                queue.plan(client, &mut slot.due, None);
            }
            // One that runs, or was asked for, ends first.
            kept || slot.is_running || slot.asked.is_some()
        });
        slots.reserve_exact(wanted.len().saturating_sub(slots.len()));
        for (test, interval) in wanted {
            let jitter = self.jitter();
            let Some(queue) = self.queues.get_mut(test) else {
                continue;
            };
            let mut fresh = queue.new_slot(test, interval);
            fresh.last = measured(&queue.plan);
            fresh.is_periodic = true;
            let place = slots.iter().position(|slot| slot.is_of(test));
            let place = place.unwrap_or_else(|| {
                slots.push(fresh.clone());
                slots.len() - 1
            });
            let slot = &mut slots[place];
            let is_other = slot.interval.initial() != fresh.interval.initial();
            if is_other {
                slot.interval = fresh.interval;
            }
            if slot.is_running {
                // It finds its next time when it ends.
                slot.due = Some(now);
            } else if is_other || slot.due.is_none() {
                // Clients of an earlier run are spread over one interval after their last test.
                let due = slot
                    .last
                    .map_or(now, |last| last.after(slot.interval.next(jitter)));
                queue.plan(client, &mut slot.due, Some(due.max(now)));
            }
        }
        self.clients.insert(client, ClientTests { slots });
    }

    /// Forgets a client. A test of it that runs ends as if it were known.
    pub fn remove_client(&mut self, client: IpAddr) {
        let Some(known) = self.clients.remove(&client) else {
            return;
        };
        for mut slot in known.slots {
            if let Some(queue) = self.queues.get_mut(usize::from(slot.test)) {
                queue.plan(client, &mut slot.due, None);
                queue.no_longer_asked(client, &mut slot.asked);
            }
        }
    }

    /// Asks for a test of a known client as soon as possible. `false`: the client is unknown, or too many
    /// tests wait. One that waits or runs already is enough.
    pub fn request(&mut self, client: IpAddr, test: usize) -> bool {
        let place = self.next_place();
        let (Some(known), Some(queue)) = (self.clients.get_mut(&client), self.queues.get_mut(test))
        else {
            return false;
        };
        let number = known.slots.iter().position(|slot| slot.is_of(test));
        let number = number.unwrap_or_else(|| {
            known.slots.reserve_exact(1);
            known.slots.push(queue.new_slot(test, None));
            known.slots.len() - 1
        });
        let slot = &mut known.slots[number];
        if slot.is_running || slot.asked.is_some() {
            return true;
        }
        if queue.on_demand.len() >= MOST_ON_DEMAND {
            self.counters.on_demand_refused += 1;
            return false;
        }
        slot.asked = Some(place);
        queue.on_demand.insert((place, client));
        true
    }

    /// Somebody asked about a client, for a transfer of `bytes` if known: its tests become more frequent.
    pub fn questioned(&mut self, client: IpAddr, bytes: Option<u64>, now: Moment) {
        let jitter = self.jitter();
        let Some(known) = self.clients.get_mut(&client) else {
            return;
        };
        for slot in &mut known.slots {
            slot.interval.on_question(bytes);
            let (Some(last), Some(due)) = (slot.last, slot.due) else {
                continue;
            };
            let sooner = last.after(slot.interval.next(jitter)).max(now);
            if sooner < due
                && !slot.is_running
                && let Some(queue) = self.queues.get_mut(usize::from(slot.test))
            {
                queue.plan(client, &mut slot.due, Some(sooner));
            }
        }
    }

    /// The next job. The one that has waited for the longest time comes first; tests on demand come before
    /// periodic ones, but never more than three in a row.
    pub fn next(
        &mut self,
        now: Moment,
        gate: &mut dyn FnMut(IpAddr, usize, bool) -> Gate,
    ) -> NextJob {
        let mut wake: Option<Moment> = None;
        if self.running >= self.workers {
            return NextJob::Wait(None);
        }
        for _ in 0..MOST_LOOKS {
            let Some((client, test, on_demand)) = self.candidate(now) else {
                return NextJob::Wait(earliest(wake, self.next_due(now)));
            };
            if self.is_tested(client) {
                self.wait_for_other_test(client, test, now);
                continue;
            }
            let bytes = match gate(client, test, on_demand) {
                Gate::Open(bytes) => bytes,
                Gate::Until(moment) => {
                    // A job that may start again at once would be looked at for ever.
                    let later = moment.max(now.after(Duration::from_millis(1)));
                    self.put_off(client, test, later);
                    continue;
                }
            };
            let clock = now.since(Moment::default());
            if !self.budget.is_possible(bytes) {
                self.counters.too_large += 1;
                let interval = self.queues[test].plan.interval;
                self.put_off(client, test, now.after(interval));
                continue;
            }
            if !self.budget.try_spend(clock, bytes) {
                let wait = self.budget.wait_for(clock, bytes).unwrap_or_default();
                let then = now.after(wait.max(Duration::from_millis(1)));
                self.queues[test].no_budget_before = Some(then);
                wake = earliest(wake, Some(then));
                continue;
            }
            self.start(client, test, on_demand, now);
            return NextJob::Start(TestJob {
                client,
                test,
                on_demand,
                bytes,
            });
        }
        NextJob::Wait(Some(now.after(Duration::from_millis(1))))
    }

    /// A job ended, having put `sent` bytes on the network.
    pub fn finished(&mut self, job: &TestJob, outcome: TestOutcome, sent: u64, now: Moment) {
        self.running = self.running.saturating_sub(1);
        self.is_filling &= !self.queues[job.test].plan.fills_path;
        let queue = &mut self.queues[job.test];
        queue.running = queue.running.saturating_sub(1);
        self.settle(job, sent, now);
        self.counters.count(outcome);
        let jitter = self.jitter();
        let Some(known) = self.clients.get_mut(&job.client) else {
            return;
        };
        for slot in known.slots.iter_mut().filter(|slot| slot.waits_for_other) {
            slot.waits_for_other = false;
            self.queues[usize::from(slot.test)].plan(job.client, &mut slot.due, Some(now));
        }
        let Some(number) = known.slots.iter().position(|slot| slot.is_of(job.test)) else {
            return;
        };
        let slot = &mut known.slots[number];
        slot.is_running = false;
        match outcome {
            TestOutcome::Steady(correlation) => slot.interval.on_steady(correlation),
            TestOutcome::Outlier => slot.interval.on_outlier(),
            TestOutcome::Shift => slot.interval.on_shift(),
            TestOutcome::Failed => slot.interval.on_failure(),
            TestOutcome::PutOff(_) => {}
        }
        let wait = match outcome {
            TestOutcome::PutOff(time) => time,
            _ => {
                slot.last = Some(now);
                slot.interval.next(jitter)
            }
        };
        // One that ran only because it was asked for does not become periodic.
        if !slot.is_periodic && !matches!(outcome, TestOutcome::PutOff(_)) {
            known.slots.swap_remove(number);
            return;
        }
        self.queues[job.test].plan(job.client, &mut slot.due, Some(now.after(wait)));
    }

    /// Numbers for people and metrics.
    pub fn counters(&mut self, now: Moment) -> ScheduleCounters {
        ScheduleCounters {
            running: self.running,
            waiting_on_demand: self.queues.iter().map(|queue| queue.on_demand.len()).sum(),
            budget_spent: self.budget.spent(),
            budget_left: self.budget.left(now.since(Moment::default())),
            budget_refusals: self.budget.refusals(),
            ..self.counters.clone()
        }
    }

    /// When a periodic test of this client is due.
    pub fn due(&self, client: IpAddr, test: usize) -> Option<Moment> {
        let slots = self.clients.get(&client)?.slots.iter();
        slots
            .filter(|slot| slot.is_of(test))
            .find_map(|slot| slot.due)
    }

    /// The periodic tests of a client by number, each with its interval and the grounds of it.
    pub fn intervals(&self, client: IpAddr) -> Vec<(usize, String)> {
        let known = self.clients.get(&client);
        let slots = known.into_iter().flat_map(|known| &known.slots);
        slots
            .filter(|slot| slot.is_periodic)
            .map(|slot| (usize::from(slot.test), slot.interval.to_string()))
            .collect()
    }

    fn settle(&mut self, job: &TestJob, sent: u64, now: Moment) {
        if sent <= job.bytes {
            self.budget.give_back(job.bytes - sent);
            return;
        }
        // It sent more than it said: the budget pays as far as it can, and the excess is told.
        let excess = sent - job.bytes;
        self.counters.excess_bytes = self.counters.excess_bytes.saturating_add(excess);
        let clock = now.since(Moment::default());
        let paid = excess.min(self.budget.left(clock));
        let _ = self.budget.try_spend(clock, paid);
    }

    /// The job to look at next.
    fn candidate(&mut self, now: Moment) -> Option<(IpAddr, usize, bool)> {
        let open = |queue: &TestQueue| {
            self.has_room(queue) && queue.no_budget_before.is_none_or(|before| before <= now)
        };
        let open: Vec<usize> = (0..self.queues.len())
            .filter(|number| open(&self.queues[*number]))
            .collect();
        let asked = open
            .iter()
            .filter_map(|test| {
                let (place, client) = self.queues[*test].on_demand.first()?;
                Some((*place, *client, *test))
            })
            .min();
        let due = open
            .iter()
            .filter_map(|test| {
                let (at, client) = self.queues[*test].periodic.first()?;
                (*at <= now).then_some((*at, *client, *test))
            })
            .min();
        match (asked, due) {
            (Some((_, client, test)), None) => Some((client, test, true)),
            (Some((_, client, test)), Some(_)) if self.streak < ON_DEMAND_STREAK => {
                Some((client, test, true))
            }
            (_, Some((_, client, test))) => Some((client, test, false)),
            (None, None) => None,
        }
    }

    /// Whether one more test of this kind may run beside those that run.
    fn has_room(&self, queue: &TestQueue) -> bool {
        queue.running < queue.plan.concurrency.max(1) && !(queue.plan.fills_path && self.is_filling)
    }

    /// Why a test of this kind does not start now, as far as this plan knows; `None`: nothing holds it back.
    pub fn held_back(&self, test: usize, now: Moment) -> Option<String> {
        let queue = self.queues.get(test)?;
        if let Some(before) = queue.no_budget_before.filter(|before| *before > now) {
            let wait = units::show::time(before.since(now));
            return Some(format!(
                "the tests of the last hour have used up bytes-per-hour; there is room for this one in {wait}"
            ));
        }
        if queue.plan.fills_path && self.is_filling {
            return Some("another test runs that needs the path for itself".to_owned());
        }
        if !self.has_room(queue) {
            return Some("tests of this kind run to other clients".to_owned());
        }
        (self.running >= self.workers).then(|| "all workers test other clients".to_owned())
    }

    /// The next moment at which a queue that may run has a job.
    fn next_due(&self, now: Moment) -> Option<Moment> {
        let of_queue = |queue: &TestQueue| {
            if !self.has_room(queue) {
                return None;
            }
            let due = queue.periodic.first().map(|(at, _)| *at);
            let first = if queue.on_demand.is_empty() {
                due
            } else {
                Some(now)
            };
            first.map(|at| queue.no_budget_before.map_or(at, |before| at.max(before)))
        };
        self.queues.iter().filter_map(of_queue).min()
    }

    fn start(&mut self, client: IpAddr, test: usize, on_demand: bool, now: Moment) {
        self.running += 1;
        self.streak = if on_demand { self.streak + 1 } else { 0 };
        self.counters.started += 1;
        let queue = &mut self.queues[test];
        queue.running += 1;
        self.is_filling |= queue.plan.fills_path;
        let slots = self.clients.get_mut(&client).map(|known| &mut known.slots);
        let slot = slots.and_then(|slots| slots.iter_mut().find(|slot| slot.is_of(test)));
        let Some(slot) = slot else {
            return;
        };
        slot.is_running = true;
        // One run serves both who asked and the period.
        queue.no_longer_asked(client, &mut slot.asked);
        if slot.due.is_some() {
            queue.plan(client, &mut slot.due, None);
            slot.due = Some(now);
        }
    }

    /// Whether a test of this client runs. Two at a time would delay each other's packets.
    fn is_tested(&self, client: IpAddr) -> bool {
        let known = self.clients.get(&client);
        known.is_some_and(|known| known.slots.iter().any(|slot| slot.is_running))
    }

    /// Takes a job out of the queues until the running test of its client ends.
    fn wait_for_other_test(&mut self, client: IpAddr, test: usize, now: Moment) {
        self.put_off(client, test, now.after(LONGEST_TEST));
        let slots = self.clients.get_mut(&client).map(|known| &mut known.slots);
        if let Some(slot) = slots.and_then(|slots| slots.iter_mut().find(|slot| slot.is_of(test))) {
            slot.waits_for_other = true;
        }
    }

    /// Moves a job that may not start now to a later moment.
    fn put_off(&mut self, client: IpAddr, test: usize, until: Moment) {
        let slots = self.clients.get_mut(&client).map(|known| &mut known.slots);
        let slot = slots.and_then(|slots| slots.iter_mut().find(|slot| slot.is_of(test)));
        if let (Some(slot), Some(queue)) = (slot, self.queues.get_mut(test)) {
            queue.no_longer_asked(client, &mut slot.asked);
            queue.plan(client, &mut slot.due, Some(until));
        }
    }

    fn next_place(&mut self) -> NonZeroU64 {
        self.places = self.places.saturating_add(1);
        self.places
    }

    /// A random number in 0..1.
    fn jitter(&mut self) -> f64 {
        // 53 bits fill the fraction of an f64.
        (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn earliest(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

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
    /// The path is as before; its values resemble each other for so long.
    Steady(ValueCorrelation),
    /// A value was an outlier.
    Outlier,
    /// The path has changed.
    Shift,
    /// No result.
    Failed,
    /// It did not run after all: another server tests there. It is tried again after this time.
    PutOff(Duration),
}

/// Part of a test's interval that is the shortest, and multiple that is the longest.
const SHORTEST_PART: u32 = 8;
const LONGEST_MULTIPLE: u32 = 4;

/// The tests of one client.
#[derive(Debug, Default)]
struct ClientTests {
    slots: Vec<TestSlot>,
}

/// One test of one client. There are several of each client: it is small.
#[derive(Debug, Clone)]
struct TestSlot {
    /// When it runs periodically: its place in that queue.
    due: Option<Moment>,
    /// Place in the queue of tests on demand.
    asked: Option<NonZeroU64>,
    last: Option<Moment>,
    interval: TestInterval,
    test: u16,
    is_running: bool,
    /// It is one of the client's periodic tests, and not only asked for once.
    is_periodic: bool,
    /// It starts when the running test of the same client ends.
    waits_for_other: bool,
}

impl TestSlot {
    fn is_of(&self, test: usize) -> bool {
        usize::from(self.test) == test
    }
}

/// Queues of one kind of test.
#[derive(Debug)]
struct TestQueue {
    plan: ScheduledTest,
    periodic: BTreeSet<(Moment, IpAddr)>,
    on_demand: BTreeSet<(NonZeroU64, IpAddr)>,
    running: usize,
    /// The budget has no room for this kind of test before then.
    no_budget_before: Option<Moment>,
}

impl TestQueue {
    /// An empty queue.
    fn new(plan: ScheduledTest) -> Self {
        Self {
            plan,
            periodic: BTreeSet::new(),
            on_demand: BTreeSet::new(),
            running: 0,
            no_budget_before: None,
        }
    }

    /// A test of a client that is neither due nor asked for. `interval`: the client's own.
    fn new_slot(&self, test: usize, interval: Option<Duration>) -> TestSlot {
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
    fn plan(&mut self, client: IpAddr, place: &mut Option<Moment>, due: Option<Moment>) {
        if let Some(was) = place.take() {
            self.periodic.remove(&(was, client));
        }
        if let Some(due) = due {
            self.periodic.insert((due, client));
        }
        *place = due;
    }

    /// Takes a client out of the queue of tests on demand.
    fn no_longer_asked(&mut self, client: IpAddr, asked: &mut Option<NonZeroU64>) {
        if let Some(place) = asked.take() {
            self.on_demand.remove(&(place, client));
        }
    }
}

/// Numbers since the start, and of now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScheduleCounters {
    /// Tests started.
    pub started: u64,
    /// Tests with a result.
    pub succeeded: u64,
    /// Tests without a result.
    pub failed: u64,
    /// Tests put off because another server tests behind the same bottleneck.
    pub put_off: u64,
    /// Tests on demand refused because too many wait.
    pub on_demand_refused: u64,
    /// Tests that need more bytes than the budget ever has.
    pub too_large: u64,
    /// Bytes sent beyond what tests had announced.
    pub excess_bytes: u64,
    /// Tests that run now.
    pub running: usize,
    /// Tests on demand that wait now.
    pub waiting_on_demand: usize,
    /// Bytes of tests since the start.
    pub budget_spent: u64,
    /// Bytes that may be spent now.
    pub budget_left: u64,
    /// Times that a test had to wait for the budget.
    pub budget_refusals: u64,
}

impl ScheduleCounters {
    fn count(&mut self, outcome: TestOutcome) {
        let counter = match outcome {
            TestOutcome::Steady(_) | TestOutcome::Outlier | TestOutcome::Shift => {
                &mut self.succeeded
            }
            TestOutcome::Failed => &mut self.failed,
            TestOutcome::PutOff(_) => &mut self.put_off,
        };
        *counter += 1;
    }
}

#[cfg(test)]
mod tests;
