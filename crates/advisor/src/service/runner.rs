//! Runs the tests that the scheduler names.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tune::path::{SeriesEvent, ValueCorrelation};

use super::Core;
use super::asked::AskedTest;
use crate::measurement::Quantity;
use crate::path_table::MeasuredPaths;
use crate::path_test::{Target, TestFailure};
use crate::scheduler::{NextJob, TestJob, TestOutcome};
use crate::store::writer::StoreQueue;
use crate::store::{LONGEST_LEASE, Lease, Store};

/// Longest time of a test: it ends before its lease does.
const LONGEST_TEST: Duration = Duration::from_secs(5 * 60);
/// Seconds after which a test is tried again whose bottleneck another server tests: at random, so that several
/// servers do not try at the same time again and again.
const TRY_LEASE_AGAIN: std::ops::Range<f64> = 5.0..15.0;

/// Starts tests until the service ends; those that run then are dropped.
pub(super) async fn run(core: Arc<Core>) {
    let mut stop = core.stop.subscribe();
    let mut running = JoinSet::new();
    loop {
        let now = core.clock.moment();
        let (next, target) = {
            let budget = core.config.bytes_per_hour;
            core.state().next_job(&core.tests, budget, now)
        };
        let wait = match (next, target) {
            (NextJob::Start(job), Some(target)) => {
                running.spawn(run_job(Arc::clone(&core), job, target));
                continue;
            }
            (NextJob::Start(_), None) => continue,
            (NextJob::Wait(until), _) => until.map(|until| until.since(now)),
        };
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            () = core.wake.notified() => {}
            Some(_) = running.join_next() => {}
            () = tokio::time::sleep(wait.unwrap_or(LONGEST_TEST)) => {}
        }
    }
}

async fn run_job(core: Arc<Core>, job: TestJob, target: Target) {
    // Its end is told however it ends: a test that panics must not hold its worker for ever.
    let mut end = JobEnd {
        core: Arc::clone(&core),
        job,
        outcome: TestOutcome::Failed,
        sent: job.bytes,
        result: Err("the test broke off".to_owned()),
    };
    let Some(test) = core.tests.get(job.test) else {
        return;
    };
    let lease = match core.take_lease(&job).await {
        LeaseAnswer::NotNeeded => None,
        LeaseAnswer::Held(store, lease) => Some((store, lease)),
        LeaseAnswer::Refused => {
            let wait = Duration::from_secs_f64(rand::random_range(TRY_LEASE_AGAIN));
            end.outcome = TestOutcome::PutOff(wait);
            end.sent = 0;
            return;
        }
    };
    let result = tokio::time::timeout(LONGEST_TEST, test.run(&target)).await;
    if let Some((store, lease)) = lease
        && let Err(error) = store.release_lease(&lease).await
    {
        tracing::debug!(%error, "a lease ends by itself");
    }
    match result {
        Ok(Ok(measurement)) => {
            end.sent = measurement.cost_bytes;
            if let Err(error) = MeasuredPaths::check(&measurement) {
                tracing::warn!(test = test.name(), %error, "a test gave what cannot be");
                end.result = Err(error.to_string());
                return;
            }
            let mut measurement = measurement;
            measurement.client = job.client;
            end.result = Ok(measurement.values.clone());
            let events = core.record(measurement, core.clock.moment());
            let measures = test.profile().measures;
            let correlation = core.state().table.correlation(job.client, measures);
            end.outcome = outcome(&events, correlation);
        }
        Ok(Err(failure)) => {
            tracing::debug!(%failure, "a test has no result");
            if matches!(failure, TestFailure::NotBegun { .. }) {
                end.sent = 0;
            }
            end.result = Err(failure.reason());
        }
        Err(_) => {
            tracing::debug!(test = test.name(), client = %job.client, "a test took too long");
            let limit = units::show::time(LONGEST_TEST);
            end.result = Err(format!("it did not end within {limit}"));
        }
    }
}

fn outcome(events: &[SeriesEvent], correlation: ValueCorrelation) -> TestOutcome {
    let is_shift = |event: &SeriesEvent| matches!(event, SeriesEvent::Shift { .. });
    if events.iter().any(is_shift) {
        TestOutcome::Shift
    } else if events.is_empty() {
        TestOutcome::Steady(correlation)
    } else {
        TestOutcome::Outlier
    }
}

/// Tells the scheduler the end of a job when dropped.
struct JobEnd {
    core: Arc<Core>,
    job: TestJob,
    outcome: TestOutcome,
    sent: u64,
    /// The measured values, or why there are none.
    result: Result<Vec<(Quantity, f64)>, String>,
}

impl Drop for JobEnd {
    fn drop(&mut self) {
        let (now, wall) = (self.core.clock.moment(), self.core.clock.wall());
        let name = self.core.tests.get(self.job.test).map(|test| test.name());
        let name = name.unwrap_or_default();
        let mut state = self.core.state();
        if matches!(self.outcome, TestOutcome::PutOff(_)) {
            state.groups.put_off(self.job.client, self.job.test);
            let reason = "another server tests this bottleneck";
            state.asked.waits(self.job.client, name, reason);
        } else {
            let result = std::mem::replace(&mut self.result, Ok(Vec::new()));
            let end = match result {
                Ok(values) => AskedTest::Measured(wall, values),
                Err(reason) => AskedTest::Failed(wall, reason),
            };
            state.asked.ended(self.job.client, name, end);
        }
        state
            .schedule
            .finished(&self.job, self.outcome, self.sent, now);
        drop(state);
        self.core.wake.notify_one();
    }
}

enum LeaseAnswer {
    /// The test disturbs nobody, or there is no database to ask.
    NotNeeded,
    Held(Store, Lease),
    /// Another server tests there.
    Refused,
}

impl Core {
    /// The right to test the bottleneck before this client, among all servers of the database, for tests that need the
    /// path for themselves.
    async fn take_lease(&self, job: &TestJob) -> LeaseAnswer {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let fills_path = self
            .tests
            .get(job.test)
            .is_some_and(|test| test.profile().fills_path);
        let Some(store) = self
            .queue
            .get()
            .and_then(StoreQueue::store)
            .filter(|_| fills_path)
        else {
            return LeaseAnswer::NotNeeded;
        };
        let known = self.state().bottleneck(job.client);
        if known.is_none()
            && let Err(error) = self.read_shared(&store, job.client).await
        {
            tracing::debug!(%error, "the bottlenecks that other servers found cannot be read");
        }
        let name = self.bottleneck_of(job.client);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let (server, process) = (&self.config.server_name, std::process::id());
        let holder = format!("{server}/{process}/{number}");
        let now = self.clock.wall();
        match store.take_lease(&name, &holder, now, LONGEST_LEASE).await {
            Ok(Some(lease)) => LeaseAnswer::Held(store, lease),
            Ok(None) => LeaseAnswer::Refused,
            Err(error) => {
                tracing::debug!(%error, "no lease: tests are not coordinated with other servers");
                LeaseAnswer::NotNeeded
            }
        }
    }

    fn bottleneck_of(&self, client: IpAddr) -> String {
        match self.state().bottleneck(client) {
            Some(router) => format!("router {router}"),
            None => format!("client {client}"),
        }
    }
}
