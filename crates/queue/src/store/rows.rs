//! Jobs and attempts as the database has them.

use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::copy::{CopyParts, CopyRefused, CopyVerb, QueuedCopy};
use crate::decisions::estimate::{QueueFacts, time_left};

use super::{QueueError, TransferQueue};

/// Most attempts that are shown of a job: the latest ones.
const MOST_ATTEMPTS: i64 = 200;
/// Attempts whose mean time is the estimate of the next ones.
const RECENT: i64 = 100;

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobState {
    /// It waits for a worker, for a limit, or for its next attempt.
    Waiting,
    /// A worker runs it.
    Running,
    /// Everything was copied and verified.
    Done,
    /// It failed for good.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl JobState {
    /// All states.
    pub const ALL: [Self; 5] = [
        Self::Waiting,
        Self::Running,
        Self::Done,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The state of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// A job. Times are seconds since 1970 by the database's clock.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRow {
    /// Its number.
    pub id: i64,
    /// The command, or why this version cannot understand it.
    pub copy: Result<QueuedCopy, CopyRefused>,
    /// Its state; `None`: one that this version does not know.
    pub state: Option<JobState>,
    /// Somebody has cancelled it.
    pub is_cancelled: bool,
    /// When it came.
    pub submitted: f64,
    /// Not before this time it starts; only of one that waits.
    pub not_before: f64,
    /// The database's time now.
    pub now: f64,
    /// When it ended.
    pub ended: Option<f64>,
    /// Attempts so far.
    pub attempts: u32,
    /// Those that failed.
    pub failures: u32,
    /// Those whose worker died.
    pub losses: u32,
    /// The worker that runs it.
    pub worker: Option<String>,
    /// Sessions that it has now.
    pub granted: Option<u32>,
    /// How far the last attempt is, or was.
    pub progress: super::JobProgress,
    /// Exit code of the last attempt.
    pub exit: Option<i32>,
    /// The reason of the last failure.
    pub error: Option<String>,
}

/// An attempt of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct AttemptRow {
    /// Its number, from 1.
    pub number: u32,
    /// The worker.
    pub worker: String,
    /// When it began, seconds since 1970.
    pub started: f64,
    /// When it ended.
    pub ended: Option<f64>,
    /// `done`, `failed`, `stopped` or `lost`; `None`: it runs.
    pub outcome: Option<String>,
    /// The exit code.
    pub exit: Option<i32>,
    /// The reason of the failure.
    pub error: Option<String>,
    /// Bytes moved.
    pub bytes: Option<i64>,
    /// Files copied.
    pub files: Option<i64>,
    /// Time that the program took, seconds.
    pub seconds: Option<f64>,
    /// How the copy was verified.
    pub verified: Option<String>,
}

/// Which jobs are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// Of this owner.
    pub owner: Option<String>,
    /// In one of these states; empty: in any.
    pub states: Vec<JobState>,
    /// With numbers below this one.
    pub below: Option<i64>,
    /// At most so many.
    pub most: u32,
}

/// The columns of a [`JobRow`].
macro_rules! job_columns {
    () => {
        "id, owner, verb, places, options, sessions, rate_bps, credential, retries, state, cancel_asked, attempts, \
         failures, losses, worker, granted, done_bytes, total_bytes, done_files, total_files, now_bps, left_seconds, exit, \
         error, EXTRACT(EPOCH FROM submitted_at)::float8 AS submitted, EXTRACT(EPOCH FROM not_before)::float8 AS not_before, \
         EXTRACT(EPOCH FROM ended_at)::float8 AS ended, EXTRACT(EPOCH FROM clock_timestamp())::float8 AS now"
    };
}

impl TransferQueue {
    /// Jobs, the latest first.
    ///
    /// # Errors
    /// The database fails.
    pub async fn jobs(&self, filter: &JobFilter) -> Result<Vec<JobRow>, QueueError> {
        let states: Vec<&str> = filter.states.iter().map(|state| state.name()).collect();
        let rows = sqlx::query(concat!(
            "SELECT ",
            job_columns!(),
            " FROM jobs WHERE ($1::text IS NULL OR owner = $1) AND (cardinality($2::text[]) = 0 OR state = ANY($2)) \
               AND ($3::bigint IS NULL OR id < $3) ORDER BY id DESC LIMIT $4"
        ))
        .bind(&filter.owner)
        .bind(states)
        .bind(filter.below)
        .bind(i64::from(filter.most))
        .fetch_all(&self.pool);
        self.within(async { rows.await?.iter().map(job).collect() })
            .await
    }

    /// A job with its latest attempts, oldest first; `None`: there is no such job.
    ///
    /// # Errors
    /// The database fails.
    pub async fn job(&self, id: i64) -> Result<Option<(JobRow, Vec<AttemptRow>)>, QueueError> {
        self.within(async {
            let row = sqlx::query(concat!(
                "SELECT ",
                job_columns!(),
                " FROM jobs WHERE id = $1"
            ))
            .bind(id)
            .fetch_optional(&self.pool)
            .await?;
            let Some(row) = row else {
                return Ok(None);
            };
            let rows = sqlx::query(
                "SELECT number, worker, outcome, exit, error, bytes, files, seconds, verified, \
                   EXTRACT(EPOCH FROM started_at)::float8 AS started, EXTRACT(EPOCH FROM ended_at)::float8 AS ended \
                 FROM attempts WHERE job = $1 ORDER BY number DESC LIMIT $2",
            )
            .bind(id)
            .bind(MOST_ATTEMPTS)
            .fetch_all(&self.pool)
            .await?;
            let mut attempts: Vec<AttemptRow> = Vec::with_capacity(rows.len());
            for row in rows.iter().rev() {
                attempts.push(attempt(row)?);
            }
            Ok(Some((job(&row)?, attempts)))
        })
        .await
    }

    /// Time until a job that waits will be done; `None`: unknown.
    ///
    /// # Errors
    /// The database fails.
    pub async fn time_left(&self, id: i64) -> Result<Option<Duration>, QueueError> {
        let facts = self.within(async {
            let counts: Vec<(String, i64, i64)> = sqlx::query_as(
                "SELECT owner, COUNT(*), COUNT(*) FILTER (WHERE id < $1) FROM jobs WHERE state = 'waiting' GROUP BY owner",
            )
            .bind(id)
            .fetch_all(&self.pool)
            .await?;
            let owner: Option<String> = sqlx::query_scalar("SELECT owner FROM jobs WHERE id = $1")
                .bind(id)
                .fetch_optional(&self.pool)
                .await?;
            let slots: Option<i64> = sqlx::query_scalar("SELECT SUM(slots) FROM workers WHERE seen_until > clock_timestamp()")
                .fetch_one(&self.pool)
                .await?;
            let mean: Option<f64> = sqlx::query_scalar(
                "SELECT AVG(seconds)::float8 FROM (SELECT seconds FROM attempts WHERE outcome = 'done' \
                 ORDER BY ended_at DESC LIMIT $1) AS recent",
            )
            .bind(RECENT)
            .fetch_one(&self.pool)
            .await?;
            let is_own = |name: &String| Some(name) == owner.as_ref();
            let number = |count: i64| u64::try_from(count).unwrap_or(0);
            let own_before = counts.iter().filter(|(name, ..)| is_own(name));
            let others = counts.iter().filter(|(name, ..)| !is_own(name));
            Ok(QueueFacts {
                own_before: own_before.map(|(_, _, before)| number(*before)).sum(),
                others: others.map(|(_, jobs, _)| number(*jobs)).collect(),
                slots: number(slots.unwrap_or(0)),
                mean: mean.and_then(|mean| Duration::try_from_secs_f64(mean).ok()),
            })
        });
        Ok(time_left(&facts.await?))
    }
}

/// The command of a row; it is checked like one that is submitted, because other programs may write rows.
pub(super) fn copy(row: &PgRow) -> Result<Result<QueuedCopy, CopyRefused>, sqlx::Error> {
    let number = |name: &str| -> Result<u32, sqlx::Error> {
        let number: i32 = row.try_get(name)?;
        Ok(u32::try_from(number).unwrap_or(0))
    };
    let verb: String = row.try_get("verb")?;
    let Some(verb) = CopyVerb::from_word(&verb) else {
        return Ok(Err(CopyRefused::Own(verb)));
    };
    let rate: Option<i64> = row.try_get("rate_bps")?;
    Ok(QueuedCopy::new(CopyParts {
        verb,
        places: row.try_get("places")?,
        options: row.try_get("options")?,
        owner: row.try_get("owner")?,
        sessions: number("sessions")?,
        rate: rate.and_then(|rate| u64::try_from(rate).ok()),
        credential: row.try_get("credential")?,
        retries: number("retries")?,
    }))
}

pub(super) fn job(row: &PgRow) -> Result<JobRow, sqlx::Error> {
    let small = |name: &str| -> Result<u32, sqlx::Error> {
        let number: i32 = row.try_get(name)?;
        Ok(u32::try_from(number).unwrap_or(0))
    };
    let large = |name: &str| -> Result<Option<u64>, sqlx::Error> {
        let number: Option<i64> = row.try_get(name)?;
        Ok(number.and_then(|number| u64::try_from(number).ok()))
    };
    let granted: Option<i32> = row.try_get("granted")?;
    let state: String = row.try_get("state")?;
    Ok(JobRow {
        id: row.try_get("id")?,
        copy: copy(row)?,
        state: JobState::from_name(&state),
        is_cancelled: row.try_get("cancel_asked")?,
        submitted: row.try_get("submitted")?,
        not_before: row.try_get("not_before")?,
        now: row.try_get("now")?,
        ended: row.try_get("ended")?,
        attempts: small("attempts")?,
        failures: small("failures")?,
        losses: small("losses")?,
        worker: row.try_get("worker")?,
        granted: granted.and_then(|granted| u32::try_from(granted).ok()),
        progress: super::JobProgress {
            done_bytes: large("done_bytes")?,
            total_bytes: large("total_bytes")?,
            done_files: large("done_files")?,
            total_files: large("total_files")?,
            now_bps: row.try_get("now_bps")?,
            left_seconds: row.try_get("left_seconds")?,
        },
        exit: row.try_get("exit")?,
        error: row.try_get("error")?,
    })
}

fn attempt(row: &PgRow) -> Result<AttemptRow, sqlx::Error> {
    let number: i32 = row.try_get("number")?;
    Ok(AttemptRow {
        number: u32::try_from(number).unwrap_or(0),
        worker: row.try_get("worker")?,
        started: row.try_get("started")?,
        ended: row.try_get("ended")?,
        outcome: row.try_get("outcome")?,
        exit: row.try_get("exit")?,
        error: row.try_get("error")?,
        bytes: row.try_get("bytes")?,
        files: row.try_get("files")?,
        seconds: row.try_get("seconds")?,
        verified: row.try_get("verified")?,
    })
}
