//! Decides which test of which client starts when. It reads no clock and runs nothing: [`crate::service`]
//! asks it for the next job and tells it the outcome.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use tune::path::{ByteBudget, IntervalBounds, TestInterval};
use units::splitmix::SplitMix64;

use crate::clock::Moment;

mod counters;
mod job;
#[cfg(test)]
mod tests;

pub use counters::ScheduleCounters;
pub use job::{Gate, NextJob, ScheduledTest, TestJob, TestOutcome};

/// Most jobs that one call looks at, so that a long queue of jobs that may not start holds nobody up.
const MOST_LOOKS: usize = 256;
/// Of so many starts on demand in a row, the next one is a periodic test that is due.
const ON_DEMAND_STREAK: u32 = 3;
/// Part of a test's interval that is the shortest, and multiple that is the longest.
const SHORTEST_PART: u32 = 8;
const LONGEST_MULTIPLE: u32 = 4;
/// Largest number of on-demand tests that wait, for each kind of test.
const MOST_ON_DEMAND: usize = 10_000;

/// The tests of one client.
#[derive(Debug, Default)]
struct ClientTests {
    slots: Vec<TestSlot>,
}

#[derive(Debug)]
struct TestSlot {
    test: usize,
    /// Place in the queue of periodic tests.
    due: Option<(Moment, u64)>,
    /// Place in the queue of tests on demand.
    asked: Option<u64>,
    is_running: bool,
    last: Option<Moment>,
    interval: TestInterval,
}

/// Queues of one kind of test.
#[derive(Debug)]
struct TestQueue {
    plan: ScheduledTest,
    periodic: BTreeSet<(Moment, u64, IpAddr)>,
    on_demand: BTreeSet<(u64, IpAddr)>,
    running: usize,
    /// The budget has no room for this kind of test before then.
    no_budget_before: Option<Moment>,
}

/// The plan of all tests.
#[derive(Debug)]
pub struct TestSchedule {
    queues: Vec<TestQueue>,
    clients: HashMap<IpAddr, ClientTests>,
    workers: usize,
    running: usize,
    budget: ByteBudget,
    random: SplitMix64,
    places: u64,
    streak: u32,
    counters: ScheduleCounters,
}

impl TestSchedule {
    /// A plan without clients. In any hour at most `bytes_per_hour` are granted; `seed` is for the jitter.
    pub fn new(tests: Vec<ScheduledTest>, workers: usize, bytes_per_hour: u64, seed: u64) -> Self {
        let queue = |plan| TestQueue {
            plan,
            periodic: BTreeSet::new(),
            on_demand: BTreeSet::new(),
            running: 0,
            no_budget_before: None,
        };
        // The bucket's content and an hour's inflow together are the hour's budget.
        let burst = (bytes_per_hour / 4).max(1);
        let inflow = bytes_per_hour.saturating_sub(burst).max(1);
        Self {
            queues: tests.into_iter().map(queue).collect(),
            clients: HashMap::new(),
            workers: workers.max(1),
            running: 0,
            budget: ByteBudget::new(inflow, burst),
            random: SplitMix64::new(seed),
            places: 0,
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

    /// Adds a client with its periodic tests, or chooses other ones for it: those in `chosen`, by number, or
    /// else all that are periodic. `measured`: when it was last measured, if ever. A client that never was is
    /// tested as soon as a worker is free.
    pub fn set_client(
        &mut self,
        client: IpAddr,
        chosen: Option<&[usize]>,
        measured: Option<Moment>,
        now: Moment,
    ) {
        let wanted = |number: usize, plan: &ScheduledTest| {
            chosen.map_or(plan.is_periodic, |chosen| chosen.contains(&number))
        };
        let tests: Vec<usize> = (0..self.queues.len())
            .filter(|number| wanted(*number, &self.queues[*number].plan))
            .collect();
        let known = self.clients.remove(&client).unwrap_or_default();
        let mut slots = Vec::with_capacity(tests.len());
        for mut slot in known.slots {
            let kept = tests.contains(&slot.test);
            // One that runs, or was asked for, ends first.
            if kept || slot.is_running || slot.asked.is_some() {
                if let Some((at, place)) = slot.due.take_if(|_| !kept) {
                    self.queues[slot.test].periodic.remove(&(at, place, client));
                }
                slots.push(slot);
            } else if let Some((at, place)) = slot.due {
                self.queues[slot.test].periodic.remove(&(at, place, client));
            }
        }
        for test in tests {
            if slots
                .iter()
                .any(|slot| slot.test == test && (slot.due.is_some() || slot.is_running))
            {
                continue;
            }
            let mut slot = self.new_slot(test);
            slot.last = measured;
            // Clients of an earlier run are spread over one interval after their last test.
            let due = measured.map_or(now, |last| last.after(slot.interval.next(self.jitter())));
            slot.due = Some(self.enqueue(test, client, due.max(now)));
            slots.push(slot);
        }
        self.clients.insert(client, ClientTests { slots });
    }

    /// Forgets a client. A test of it that runs ends as if it were known.
    pub fn remove_client(&mut self, client: IpAddr) {
        let Some(known) = self.clients.remove(&client) else {
            return;
        };
        for slot in known.slots {
            let queue = &mut self.queues[slot.test];
            if let Some((at, place)) = slot.due {
                queue.periodic.remove(&(at, place, client));
            }
            if let Some(place) = slot.asked {
                queue.on_demand.remove(&(place, client));
            }
        }
    }

    /// Asks for a test of a known client as soon as possible. `false`: the client is unknown, or too many
    /// tests wait. One that waits or runs already is enough.
    pub fn request(&mut self, client: IpAddr, test: usize) -> bool {
        if !self.clients.contains_key(&client) || test >= self.queues.len() {
            return false;
        }
        let new = self.new_slot(test);
        let place = self.next_place();
        let (Some(known), Some(queue)) = (self.clients.get_mut(&client), self.queues.get_mut(test))
        else {
            return false;
        };
        let number = known.slots.iter().position(|slot| slot.test == test);
        let number = number.unwrap_or_else(|| {
            known.slots.push(new);
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
        let mut places = self.places;
        let Some(known) = self.clients.get_mut(&client) else {
            return;
        };
        for slot in &mut known.slots {
            slot.interval.on_question(bytes);
            let (Some(last), Some((due, place))) = (slot.last, slot.due) else {
                continue;
            };
            let sooner = last.after(slot.interval.next(jitter)).max(now);
            if sooner < due {
                let queue = &mut self.queues[slot.test];
                queue.periodic.remove(&(due, place, client));
                places += 1;
                queue.periodic.insert((sooner, places, client));
                slot.due = Some((sooner, places));
            }
        }
        self.places = places;
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
        let queue = &mut self.queues[job.test];
        queue.running = queue.running.saturating_sub(1);
        self.settle(job, sent, now);
        self.counters.count(outcome);
        let jitter = self.jitter();
        let Some(known) = self.clients.get_mut(&job.client) else {
            return;
        };
        let Some(number) = known.slots.iter().position(|slot| slot.test == job.test) else {
            return;
        };
        let slot = &mut known.slots[number];
        slot.is_running = false;
        match outcome {
            TestOutcome::Steady => slot.interval.on_steady(),
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
        let again = slot.due.is_some() || matches!(outcome, TestOutcome::PutOff(_));
        if !again {
            known.slots.swap_remove(number);
            return;
        }
        let was = slot.due.take();
        let due = self.enqueue(job.test, job.client, now.after(wait));
        let slots = self
            .clients
            .get_mut(&job.client)
            .map(|known| &mut known.slots);
        if let Some(slot) = slots.and_then(|slots| slots.get_mut(number)) {
            slot.due = Some(due);
        }
        if let Some((at, place)) = was {
            self.queues[job.test]
                .periodic
                .remove(&(at, place, job.client));
        }
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
            .filter(|slot| slot.test == test)
            .find_map(|slot| slot.due.map(|(at, _)| at))
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
            queue.running < queue.plan.concurrency.max(1)
                && queue.no_budget_before.is_none_or(|before| before <= now)
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
                let (at, place, client) = self.queues[*test].periodic.first()?;
                (*at <= now).then_some((*at, *place, *client, *test))
            })
            .min();
        match (asked, due) {
            (Some((_, client, test)), None) => Some((client, test, true)),
            (Some((_, client, test)), Some(_)) if self.streak < ON_DEMAND_STREAK => {
                Some((client, test, true))
            }
            (_, Some((_, _, client, test))) => Some((client, test, false)),
            (None, None) => None,
        }
    }

    /// The next moment at which a queue that may run has a job.
    fn next_due(&self, now: Moment) -> Option<Moment> {
        let of_queue = |queue: &TestQueue| {
            if queue.running >= queue.plan.concurrency.max(1) {
                return None;
            }
            let due = queue.periodic.first().map(|(at, _, _)| *at);
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
        let slots = self.clients.get_mut(&client).map(|known| &mut known.slots);
        let slot = slots.and_then(|slots| slots.iter_mut().find(|slot| slot.test == test));
        let Some(slot) = slot else {
            return;
        };
        slot.is_running = true;
        // One run serves both who asked and the period.
        if let Some(place) = slot.asked.take() {
            queue.on_demand.remove(&(place, client));
        }
        if let Some((at, place)) = &mut slot.due {
            queue.periodic.remove(&(*at, *place, client));
            (*at, *place) = (now, *place);
        }
    }

    /// Moves a job that may not start now to a later moment; one on demand becomes periodic once.
    fn put_off(&mut self, client: IpAddr, test: usize, until: Moment) {
        let due = self.enqueue(test, client, until);
        let queue = &mut self.queues[test];
        let slots = self.clients.get_mut(&client).map(|known| &mut known.slots);
        let slot = slots.and_then(|slots| slots.iter_mut().find(|slot| slot.test == test));
        let Some(slot) = slot else {
            queue.periodic.remove(&(due.0, due.1, client));
            return;
        };
        if let Some(place) = slot.asked.take() {
            queue.on_demand.remove(&(place, client));
        }
        if let Some((at, place)) = slot.due.replace(due) {
            queue.periodic.remove(&(at, place, client));
        }
    }

    fn enqueue(&mut self, test: usize, client: IpAddr, due: Moment) -> (Moment, u64) {
        let place = self.next_place();
        self.queues[test].periodic.insert((due, place, client));
        (due, place)
    }

    fn next_place(&mut self) -> u64 {
        self.places += 1;
        self.places
    }

    fn new_slot(&self, test: usize) -> TestSlot {
        let initial = self.queues[test].plan.interval;
        TestSlot {
            test,
            due: None,
            asked: None,
            is_running: false,
            last: None,
            interval: TestInterval::new(IntervalBounds {
                shortest: initial / SHORTEST_PART,
                initial,
                longest: initial * LONGEST_MULTIPLE,
            }),
        }
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
