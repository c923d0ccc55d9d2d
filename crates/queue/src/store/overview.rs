//! The state of the queue as a whole, for the page, JSON and metrics.

use std::collections::BTreeMap;

use sqlx::Row;

use crate::decisions::fleet::EndpointLimit;

use super::{JobFilter, JobRow, JobState, QueueError, TransferQueue, limits};

/// Most jobs of each kind that are shown.
const MOST_JOBS: u32 = 100;
/// Most owners and workers that are shown.
const MOST_ROWS: i64 = 1000;

/// Number of jobs in each state.
pub type StateCounts = BTreeMap<JobState, u64>;

/// The jobs of an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerCounts {
    /// The owner.
    pub owner: String,
    /// Number of the jobs in each state.
    pub jobs: StateCounts,
}

/// A worker that is there.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerRow {
    /// Its name.
    pub name: String,
    /// Jobs that it runs at a time.
    pub slots: u32,
    /// Jobs that it runs now.
    pub running: u64,
    /// When it started, seconds since 1970.
    pub started: f64,
}

/// The state of the queue.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueOverview {
    /// Jobs of all owners.
    pub jobs: StateCounts,
    /// Jobs of each owner: those with the most.
    pub owners: Vec<OwnerCounts>,
    /// Attempts by their outcome.
    pub attempts: BTreeMap<String, u64>,
    /// Bytes that attempts have moved.
    pub bytes: u64,
    /// Workers.
    pub workers: Vec<WorkerRow>,
    /// Limits of endpoints.
    pub limits: Vec<EndpointLimit>,
    /// Jobs that run, the latest first.
    pub running: Vec<JobRow>,
    /// Jobs that ended, the latest submitted first.
    pub ended: Vec<JobRow>,
}

impl TransferQueue {
    /// The state of the queue now.
    ///
    /// # Errors
    /// The database fails.
    pub async fn overview(&self) -> Result<QueueOverview, QueueError> {
        let of = |states: &[JobState]| JobFilter {
            states: states.to_vec(),
            most: MOST_JOBS,
            ..JobFilter::default()
        };
        let running = self.jobs(&of(&[JobState::Running])).await?;
        let ended = [JobState::Done, JobState::Failed, JobState::Cancelled];
        let ended = self.jobs(&of(&ended)).await?;
        self.within(async {
            let mut connection = self.pool.acquire().await?;
            let counted: Vec<(String, String, i64)> =
                sqlx::query_as("SELECT owner, state, COUNT(*) FROM jobs GROUP BY owner, state")
                    .fetch_all(&mut *connection)
                    .await?;
            let (jobs, owners) = counts(&counted);
            let counted: Vec<(String, i64, Option<i64>)> = sqlx::query_as(
                "SELECT COALESCE(outcome, 'running'), COUNT(*), SUM(bytes)::bigint FROM attempts GROUP BY outcome",
            )
            .fetch_all(&mut *connection)
            .await?;
            let bytes = counted.iter().filter_map(|(_, _, bytes)| *bytes).sum::<i64>();
            let attempts = counted
                .into_iter()
                .map(|(outcome, count, _)| (outcome, u64::try_from(count).unwrap_or(0)));
            let rows = sqlx::query(
                "SELECT name, slots, EXTRACT(EPOCH FROM started_at)::float8 AS started, \
                   (SELECT COUNT(*) FROM jobs WHERE state = 'running' AND jobs.session = workers.session) AS running \
                 FROM workers WHERE seen_until > clock_timestamp() ORDER BY name LIMIT $1",
            )
            .bind(MOST_ROWS)
            .fetch_all(&mut *connection)
            .await?;
            let mut workers = Vec::with_capacity(rows.len());
            for row in &rows {
                let (slots, running): (i32, i64) =
                    (row.try_get("slots")?, row.try_get("running")?);
                workers.push(WorkerRow {
                    name: row.try_get("name")?,
                    slots: u32::try_from(slots).unwrap_or(0),
                    running: u64::try_from(running).unwrap_or(0),
                    started: row.try_get("started")?,
                });
            }
            let fleet = limits::fleet(&mut connection).await?;
            Ok(QueueOverview {
                jobs,
                owners,
                attempts: attempts.collect(),
                bytes: u64::try_from(bytes).unwrap_or(0),
                workers,
                limits: fleet.limits,
                running,
                ended,
            })
        })
        .await
    }
}

/// Counts of all, and of the owners with the most jobs that are not over.
fn counts(counted: &[(String, String, i64)]) -> (StateCounts, Vec<OwnerCounts>) {
    let mut all: StateCounts = JobState::ALL.map(|state| (state, 0)).into();
    let mut owners: BTreeMap<&str, StateCounts> = BTreeMap::new();
    for (owner, state, count) in counted {
        let Some(state) = JobState::from_name(state) else {
            continue;
        };
        let count = u64::try_from(*count).unwrap_or(0);
        *all.entry(state).or_default() += count;
        *owners.entry(owner).or_default().entry(state).or_default() += count;
    }
    let mut owners: Vec<OwnerCounts> = owners
        .into_iter()
        .map(|(owner, jobs)| OwnerCounts {
            owner: owner.to_owned(),
            jobs,
        })
        .collect();
    let open = |row: &OwnerCounts| -> u64 {
        let of = |state| row.jobs.get(&state).copied().unwrap_or(0);
        of(JobState::Waiting) + of(JobState::Running)
    };
    owners.sort_by_key(|row| std::cmp::Reverse(open(row)));
    owners.truncate(usize::try_from(MOST_ROWS).unwrap_or(usize::MAX));
    (all, owners)
}
