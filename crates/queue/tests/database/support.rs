//! A queue on a new database, and jobs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use queue::copy::{CopyParts, CopyVerb, QueuedCopy};
use queue::decisions::lease::LeaseTime;
use queue::decisions::retry::AttemptEnd;
use queue::store::{ClaimedJob, HeldJob, JobProgress, JobResult, JobState};
use queue::store::{TransferQueue, WorkerIdentity};
use sqlx::{Connection, PgConnection};
use test_postgres::Postgres;

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// A queue, and the database behind its back.
pub(crate) struct QueueFixture {
    pub(crate) queue: TransferQueue,
    pub(crate) url: String,
    /// Seconds of the clock by which the queue watches leases.
    watched: Arc<AtomicU64>,
    _server: Postgres,
}

impl QueueFixture {
    pub(crate) async fn new(test: &str) -> Option<Self> {
        let server = Postgres::start(test)?;
        let url = server.database("queue");
        let watched = Arc::new(AtomicU64::new(0));
        let clock = Arc::clone(&watched);
        let queue = TransferQueue::new(&url)
            .unwrap()
            .with_clock(move || Duration::from_secs(clock.load(Ordering::Relaxed)));
        queue.prepare().await.unwrap();
        Some(Self {
            queue,
            url,
            watched,
            _server: server,
        })
    }

    /// Runs a statement that no part of the program has.
    pub(crate) async fn alter(&self, statement: &'static str) {
        let mut database = PgConnection::connect(&self.url).await.unwrap();
        sqlx::query(statement).execute(&mut database).await.unwrap();
        database.close().await.unwrap();
    }

    /// The queue sees all leases as they are, and then more time passes for it than a lease has, in which nobody renews one.
    pub(crate) async fn end_leases(&self) {
        assert!(self.claim("watcher", 0).await.is_empty());
        self.watched.fetch_add(MINUTE.as_secs(), Ordering::Relaxed);
    }

    /// Sets the clock of the database: all its times are as much earlier, or later, by the new clock.
    pub(crate) async fn set_clock(&self, days_forward: i32) {
        let mut database = PgConnection::connect(&self.url).await.unwrap();
        for statement in [
            "UPDATE longhaul_queue.jobs SET lease_until = lease_until - make_interval(days => $1), \
               not_before = not_before - make_interval(days => $1), waits_from = waits_from - make_interval(days => $1)",
            "UPDATE longhaul_queue.workers SET seen_until = seen_until - make_interval(days => $1)",
            "UPDATE longhaul_queue.owners SET served_at = served_at - make_interval(days => $1)",
        ] {
            let set = sqlx::query(statement).bind(days_forward);
            set.execute(&mut database).await.unwrap();
        }
        database.close().await.unwrap();
    }

    pub(crate) async fn submit(&self, owner: &str, source: &str) -> i64 {
        let jobs = [job(owner, source)];
        let ids = self.queue.submit(&jobs, Duration::ZERO);
        ids.await.unwrap()[0]
    }

    pub(crate) async fn claim(&self, worker: &str, most: usize) -> Vec<ClaimedJob> {
        let lease = LeaseTime::new(MINUTE);
        let worker = identity(worker);
        let claimed = self.queue.claim(&worker, most, lease);
        claimed.await.unwrap()
    }

    pub(crate) async fn finish(&self, worker: &str, job: &ClaimedJob, end: AttemptEnd) {
        let result = JobResult {
            id: job.id,
            number: job.number,
            session: identity(worker).session,
            end,
            error: None,
            bytes: Some(10),
            files: Some(1),
            seconds: Some(1.0),
            verified: None,
        };
        self.queue.finish(&result).await.unwrap();
        // An answer may have been lost.
        self.queue.finish(&result).await.unwrap();
    }

    /// Renews one lease; returns the jobs that are kept, and whether they are cancelled.
    pub(crate) async fn renew(&self, worker: &str, job: &ClaimedJob) -> BTreeMap<i64, bool> {
        let (worker, held) = (identity(worker), [held(job)]);
        let lease = LeaseTime::new(MINUTE);
        let answer = self.queue.renew(&worker, 2, lease, &held);
        answer.await.unwrap().kept
    }

    /// State and outcomes of the attempts of a job.
    pub(crate) async fn state(&self, id: i64) -> (JobState, Vec<String>) {
        let (job, attempts) = self.queue.job(id).await.unwrap().unwrap();
        let outcome = |outcome: &Option<String>| outcome.clone().unwrap_or("running".to_owned());
        let outcomes = attempts.iter().map(|attempt| outcome(&attempt.outcome));
        (job.state.unwrap(), outcomes.collect())
    }
}

pub(crate) fn identity(name: &str) -> WorkerIdentity {
    WorkerIdentity {
        name: name.to_owned(),
        holder: format!("{name}/boot"),
        session: format!("{name}-session"),
    }
}

fn held(job: &ClaimedJob) -> HeldJob {
    HeldJob {
        id: job.id,
        number: job.number,
        progress: JobProgress {
            done_bytes: Some(1),
            total_bytes: Some(2),
            ..JobProgress::default()
        },
    }
}

pub(crate) fn job(owner: &str, source: &str) -> QueuedCopy {
    QueuedCopy::new(CopyParts {
        verb: CopyVerb::Cp,
        places: vec![source.to_owned(), "/archive/".to_owned()],
        options: vec!["-r".to_owned()],
        owner: owner.to_owned(),
        sessions: 4,
        rate: None,
        credential: None,
        retries: 1,
    })
    .unwrap()
}
