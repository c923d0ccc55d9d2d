//! The scheduler in simulated time.

use std::collections::BTreeSet;

use super::*;

/// A client of which nothing was measured.
const NEVER: fn(&ScheduledTest) -> Option<Moment> = |_| None;
const PING: usize = 0;
const BOTTLENECK: usize = 1;
const IPERF: usize = 2;
const HOUR: Duration = Duration::from_secs(3600);

fn client(n: u32) -> IpAddr {
    std::net::Ipv4Addr::from(0x0a00_0000 + n).into()
}

fn at(seconds: i64) -> Moment {
    Moment::from_millis(seconds * 1000)
}

fn tests() -> Vec<ScheduledTest> {
    let test = |name: &str, concurrency, is_periodic| ScheduledTest {
        measures: &[],
        name: name.to_owned(),
        interval: 4 * HOUR,
        concurrency,
        fills_path: concurrency == 1,
        is_periodic,
    };
    vec![
        test("ping", 10, true),
        test("bottleneck", 1, true),
        test("iperf3", 1, false),
    ]
}

fn schedule(bytes_per_hour: u64) -> TestSchedule {
    TestSchedule::new(tests(), 8, bytes_per_hour, 1)
}

/// Time and bytes of each test.
const COSTS: [(u64, u64); 3] = [(1, 15_000), (10, 100_000), (10, 5_000_000)];

/// A log of starts, from a simulation of all queues with scripted tests.
struct ScheduleRun {
    schedule: TestSchedule,
    now: Moment,
    running: BTreeSet<(Moment, u64)>,
    jobs: HashMap<u64, TestJob>,
    started: Vec<(Moment, TestJob)>,
    most_running: [usize; 3],
    outcome: TestOutcome,
}

impl ScheduleRun {
    fn new(schedule: TestSchedule) -> Self {
        Self {
            schedule,
            now: at(0),
            running: BTreeSet::new(),
            jobs: HashMap::new(),
            started: Vec::new(),
            most_running: [0; 3],
            outcome: TestOutcome::Steady(ValueCorrelation::Constant),
        }
    }

    fn run_until(&mut self, end: Moment) {
        loop {
            let mut gate = |_: IpAddr, test: usize, _: bool| Gate::Open(COSTS[test].1);
            let wait = match self.schedule.next(self.now, &mut gate) {
                NextJob::Start(job) => {
                    self.begin(job);
                    continue;
                }
                NextJob::Wait(wait) => wait,
            };
            let ends = self.running.first().map(|(at, _)| *at);
            let Some(next) = earliest(wait, ends).filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            assert!(next >= self.now, "time does not go back");
            self.now = next;
            while let Some((at, id)) = self.running.first().copied()
                && at <= self.now
            {
                self.running.pop_first();
                let job = self.jobs.remove(&id).unwrap();
                self.schedule
                    .finished(&job, self.outcome, job.bytes, self.now);
            }
        }
    }

    fn begin(&mut self, job: TestJob) {
        let id = self.started.len() as u64;
        let tested = self.jobs.values().any(|other| other.client == job.client);
        assert!(!tested, "two tests of a path delay each other's packets");
        let end = self.now.after(Duration::from_secs(COSTS[job.test].0));
        self.running.insert((end, id));
        self.jobs.insert(id, job);
        self.started.push((self.now, job));
        assert!(self.jobs.len() <= 8, "eight workers");
        for (test, most) in self.most_running.iter_mut().enumerate() {
            *most = (*most).max(self.jobs.values().filter(|job| job.test == test).count());
        }
    }

    fn starts(&self, test: usize) -> usize {
        self.started
            .iter()
            .filter(|(_, job)| job.test == test)
            .count()
    }
}

/// Two tests of whatever kind that fill paths would each measure what the other leaves.
#[test]
fn one_test_that_fills_a_path_runs_at_a_time() {
    let mut schedule = schedule(u64::MAX);
    for n in 0..20 {
        schedule.set_client(client(n), None, &NEVER, at(0));
        let test = [IPERF, BOTTLENECK, PING][n as usize % 3];
        assert!(schedule.request(client(n), test));
    }
    let mut filling = Vec::new();
    let mut running = 0;
    while let NextJob::Start(job) = schedule.next(at(0), &mut |_, _, _| Gate::Open(1)) {
        running += 1;
        if job.test != PING {
            filling.push(job);
        }
    }
    assert_eq!(running, 8, "the others ping");
    assert_eq!(filling.len(), 1);
    schedule.finished(
        &filling[0],
        TestOutcome::Steady(ValueCorrelation::Constant),
        1,
        at(1),
    );
    let next = schedule.next(at(1), &mut |_, _, _| Gate::Open(1));
    assert!(matches!(next, NextJob::Start(_)), "{next:?}");
}

/// The paper's load: 500 hosts, every test every 4 hours, 8 workers.
#[test]
fn five_hundred_hosts_are_tested_every_four_hours_within_the_budget() {
    let mut simulation = ScheduleRun::new(schedule(60_000_000));
    for n in 0..500 {
        simulation
            .schedule
            .set_client(client(n), None, &NEVER, at(0));
    }
    simulation.run_until(at(4 * 3600));
    for n in 0..500 {
        for test in [PING, BOTTLENECK] {
            let tested = simulation
                .started
                .iter()
                .any(|(_, job)| job.client == client(n) && job.test == test);
            assert!(tested, "client {n}, test {test}");
        }
    }
    assert_eq!(
        simulation.starts(IPERF),
        0,
        "heavy tests do not run by themselves"
    );
    assert_eq!(simulation.most_running[BOTTLENECK], 1);
    assert!(simulation.most_running[PING] <= 8);
    let counters = simulation.schedule.counters(at(4 * 3600));
    assert_eq!(counters.failed, 0);
    assert!(counters.budget_spent <= 4 * 60_000_000, "{counters:?}");
    // No client was tested twice by the same test before another one was tested once.
    let order: Vec<_> = simulation
        .started
        .iter()
        .map(|(_, job)| (job.test, job.client))
        .collect();
    let mut seen = std::collections::HashSet::new();
    assert!(
        order.iter().take(1000).all(|pair| seen.insert(*pair)),
        "the order is fair"
    );
}

#[test]
fn no_hour_spends_more_than_the_budget() {
    let budget = 10_000_000;
    let mut simulation = ScheduleRun::new(schedule(budget));
    for n in 0..500 {
        simulation
            .schedule
            .set_client(client(n), None, &NEVER, at(0));
    }
    simulation.run_until(at(8 * 3600));
    for from in 0..7 * 60 {
        let hour = at(from * 60)..at(from * 60 + 3600);
        let spent: u64 = simulation
            .started
            .iter()
            .filter(|(start, _)| hour.contains(start))
            .map(|(_, job)| job.bytes)
            .sum();
        assert!(spent <= budget, "{spent} in the hour from minute {from}");
    }
    assert!(simulation.schedule.counters(at(8 * 3600)).budget_refusals > 0);
    // Half of the budget flows in evenly.
    let spent: u64 = simulation.started.iter().map(|(_, job)| job.bytes).sum();
    assert!(
        spent > 8 * budget / 2 * 9 / 10,
        "{spent}: the budget is used"
    );
}

#[test]
fn steady_paths_are_tested_less_often_and_changed_ones_sooner() {
    let mut starts = Vec::new();
    let day = TestOutcome::Steady(ValueCorrelation::Until(HOUR * 6));
    for outcome in [
        TestOutcome::Steady(ValueCorrelation::Constant),
        day,
        TestOutcome::Shift,
    ] {
        let mut simulation = ScheduleRun::new(schedule(1 << 40));
        simulation.outcome = outcome;
        simulation
            .schedule
            .set_client(client(1), None, &NEVER, at(0));
        simulation.run_until(at(4 * 86_400));
        starts.push(simulation.starts(PING));
    }
    assert!(starts[0] <= 12 && starts[2] >= 4 * 24, "{starts:?}");
    // Four days of tests every six hours.
    assert!((15..=19).contains(&starts[1]), "{starts:?}");
}

#[test]
fn a_question_for_a_large_transfer_brings_the_next_test_forward() {
    let mut schedule = schedule(1 << 40);
    schedule.set_client(client(1), None, &|_| Some(at(0)), at(0));
    let before = schedule.due(client(1), PING).unwrap();
    schedule.questioned(client(1), Some(100_000_000_000), at(60));
    let after = schedule.due(client(1), PING).unwrap();
    assert!(
        after.since(at(0)) < before.since(at(0)) / 4,
        "{before:?} {after:?}"
    );
    schedule.questioned(client(2), None, at(60));
}

#[test]
fn a_new_client_is_tested_at_once_and_does_not_starve_the_others() {
    let mut simulation = ScheduleRun::new(schedule(1 << 40));
    for n in 0..50 {
        simulation
            .schedule
            .set_client(client(n), None, &NEVER, at(0));
    }
    for n in 100..300 {
        simulation
            .schedule
            .set_client(client(n), None, &|_| Some(at(0)), at(0));
        assert!(simulation.schedule.request(client(n), PING));
    }
    assert!(
        simulation.schedule.request(client(100), PING),
        "once is enough"
    );
    simulation.run_until(at(5));
    let first: Vec<bool> = simulation
        .started
        .iter()
        .take(8)
        .map(|(_, j)| j.on_demand)
        .collect();
    assert_eq!(first, [true, true, true, false, true, true, true, false]);
    simulation.run_until(at(600));
    let pings = simulation
        .started
        .iter()
        .filter(|(_, job)| job.test == PING);
    assert_eq!(pings.count(), 250, "each client once");
    assert!(!simulation.schedule.request(client(9999), PING), "unknown");
    assert!(!simulation.schedule.request(client(1), 99), "no such test");
}

#[test]
fn a_heavy_test_runs_once_when_asked_for() {
    let mut simulation = ScheduleRun::new(schedule(1 << 40));
    simulation
        .schedule
        .set_client(client(1), None, &NEVER, at(0));
    assert!(simulation.schedule.request(client(1), IPERF));
    simulation.run_until(at(86_400));
    assert_eq!(simulation.starts(IPERF), 1);
    simulation
        .schedule
        .set_client(client(1), Some(&[(IPERF, None)]), &NEVER, simulation.now);
    simulation.run_until(at(10 * 86_400));
    assert!(simulation.starts(IPERF) > 5, "chosen for this client");
    let pings = simulation.starts(PING);
    simulation.run_until(at(20 * 86_400));
    assert_eq!(simulation.starts(PING), pings, "and the others are not");
}

#[test]
fn a_heavy_test_that_waited_for_another_runs_once_and_not_periodically() {
    let mut simulation = ScheduleRun::new(schedule(60_000_000));
    simulation
        .schedule
        .set_client(client(1), None, &NEVER, at(0));
    simulation.run_until(at(0));
    assert_eq!(simulation.started.len(), 1, "the ping");
    assert!(simulation.schedule.request(client(1), IPERF));
    simulation.run_until(at(48 * 3600));
    assert_eq!(simulation.starts(IPERF), 1);
    let order: Vec<usize> = simulation.started[..3]
        .iter()
        .map(|(_, job)| job.test)
        .collect();
    assert_eq!(order, [PING, BOTTLENECK, IPERF]);
    // Each began when the one before ended.
    let begun: Vec<Moment> = simulation.started[..3].iter().map(|(at, _)| *at).collect();
    assert_eq!(begun, [at(0), at(1), at(11)]);
}

#[test]
fn a_client_has_an_interval_of_its_own() {
    let minutes = |minutes: u64| Some(Duration::from_secs(60 * minutes));
    let mut simulation = ScheduleRun::new(schedule(1 << 40));
    for n in 1..=2 {
        simulation
            .schedule
            .set_client(client(n), None, &NEVER, at(0));
    }
    simulation.run_until(at(60));
    let choice = [(PING, minutes(10)), (BOTTLENECK, None)];
    simulation
        .schedule
        .set_client(client(1), Some(&choice), &NEVER, simulation.now);
    let due = simulation.schedule.due(client(1), PING).unwrap();
    assert!(
        due <= at(60 + 11 * 60),
        "sooner than the plan says: {due:?}"
    );
    // Before the third test of a constant path, 24 hours after the first one.
    simulation.run_until(at(75_000));
    let of = |n: u32, test: usize| {
        let same = |job: &TestJob| job.client == client(n) && job.test == test;
        simulation
            .started
            .iter()
            .filter(|(_, job)| same(job))
            .count()
    };
    // Steady, its longest interval is 40 minutes.
    assert!(of(1, PING) >= 30, "{}", of(1, PING));
    assert_eq!(of(1, BOTTLENECK), of(2, BOTTLENECK));
    assert!(of(2, PING) <= 6, "{}", of(2, PING));
    // A choice without an interval is the plan's again.
    let now = simulation.now;
    simulation
        .schedule
        .set_client(client(1), Some(&[(PING, None)]), &NEVER, now);
    let due = simulation.schedule.due(client(1), PING).unwrap();
    assert!(due.since(now) > HOUR, "{due:?}");
    assert_eq!(simulation.schedule.due(client(1), BOTTLENECK), None);
}

#[test]
fn a_test_chosen_while_it_runs_becomes_periodic() {
    let mut schedule = schedule(1 << 40);
    let mut open = |_: IpAddr, _: usize, _: bool| Gate::Open(1000);
    schedule.set_client(client(1), Some(&[]), &NEVER, at(0));
    assert!(schedule.request(client(1), PING));
    let NextJob::Start(job) = schedule.next(at(0), &mut open) else {
        panic!("it was asked for");
    };
    schedule.set_client(client(1), Some(&[(PING, None)]), &NEVER, at(1));
    assert_eq!(
        schedule.next(at(1), &mut open),
        NextJob::Wait(None),
        "it runs"
    );
    schedule.finished(
        &job,
        TestOutcome::Steady(ValueCorrelation::Constant),
        1000,
        at(2),
    );
    assert!(schedule.due(client(1), PING).is_some());
}

#[test]
fn a_test_larger_than_the_budget_never_runs_and_is_counted() {
    let mut simulation = ScheduleRun::new(schedule(1_000_000));
    simulation
        .schedule
        .set_client(client(1), None, &NEVER, at(0));
    assert!(simulation.schedule.request(client(1), IPERF));
    simulation.run_until(at(86_400));
    assert_eq!(simulation.starts(IPERF), 0);
    assert!(simulation.schedule.counters(simulation.now).too_large > 0);
    assert!(simulation.starts(PING) > 0);
}

#[test]
fn a_test_put_off_comes_again_and_a_removed_client_does_not() {
    let mut schedule = schedule(1 << 40);
    let mut open = |_: IpAddr, _: usize, _: bool| Gate::Open(1000);
    schedule.set_client(client(1), Some(&[(BOTTLENECK, None)]), &NEVER, at(0));
    let NextJob::Start(job) = schedule.next(at(0), &mut open) else {
        panic!("a new client is tested");
    };
    schedule.finished(&job, TestOutcome::PutOff(Duration::from_secs(30)), 0, at(0));
    assert_eq!(schedule.next(at(0), &mut open), NextJob::Wait(Some(at(30))));
    let mut shut = |_: IpAddr, _: usize, _: bool| Gate::Until(at(50));
    assert_eq!(
        schedule.next(at(30), &mut shut),
        NextJob::Wait(Some(at(50)))
    );
    let NextJob::Start(job) = schedule.next(at(50), &mut open) else {
        panic!("the gate is open");
    };
    schedule.remove_client(client(1));
    schedule.finished(
        &job,
        TestOutcome::Steady(ValueCorrelation::Constant),
        500,
        at(51),
    );
    assert_eq!(schedule.next(at(1 << 30), &mut open), NextJob::Wait(None));
    let counters = schedule.counters(at(52));
    assert_eq!(
        (counters.put_off, counters.succeeded, counters.running),
        (1, 1, 0)
    );
    assert_eq!(
        counters.budget_spent, 500,
        "what was not sent is given back"
    );
}

#[test]
fn a_test_that_waits_tells_what_holds_it_back() {
    let mut schedule = schedule(1_000_000);
    schedule.set_client(client(1), Some(&[]), &NEVER, at(0));
    let mut gate = |_: IpAddr, _: usize, _: bool| Gate::Open(400_000);
    assert_eq!(schedule.held_back(BOTTLENECK, at(0)), None);
    assert!(schedule.request(client(1), BOTTLENECK));
    let NextJob::Start(job) = schedule.next(at(0), &mut gate) else {
        panic!("nothing holds it back");
    };
    let reason = schedule.held_back(IPERF, at(1)).unwrap();
    assert!(reason.contains("needs the path for itself"), "{reason}");
    assert_eq!(schedule.held_back(PING, at(1)), None);
    schedule.finished(
        &job,
        TestOutcome::Steady(ValueCorrelation::Constant),
        400_000,
        at(2),
    );
    assert!(schedule.request(client(1), BOTTLENECK));
    assert!(matches!(
        schedule.next(at(2), &mut gate),
        NextJob::Wait(Some(_))
    ));
    let reason = schedule.held_back(BOTTLENECK, at(2)).unwrap();
    assert!(reason.contains("bytes-per-hour"), "{reason}");
}
