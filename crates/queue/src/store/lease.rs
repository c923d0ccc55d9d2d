//! A worker renews its leases, and learns what is asked of it.

use std::collections::BTreeMap;

use sqlx::{PgConnection, Row};

use crate::decisions::fleet::FleetState;
use crate::decisions::lease::LeaseTime;

use super::{QueueError, TransferQueue, WorkerIdentity, limits};

/// Progress of an attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct JobProgress {
    /// Bytes copied, of this and of earlier attempts.
    pub done_bytes: Option<u64>,
    /// Bytes of all files.
    pub total_bytes: Option<u64>,
    /// Files done.
    pub done_files: Option<u64>,
    /// All files.
    pub total_files: Option<u64>,
    /// Rate now, bits per second.
    pub now_bps: Option<f64>,
    /// Time to the end, seconds.
    pub left_seconds: Option<f64>,
}

/// A job that a worker holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeldJob {
    /// The job.
    pub id: i64,
    /// Number of its attempt.
    pub number: u32,
    /// How far it is.
    pub progress: JobProgress,
}

/// The answer to a renewal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RenewalAnswer {
    /// The jobs whose leases were renewed, and whether somebody cancelled them. The others are no longer this worker's.
    pub kept: BTreeMap<i64, bool>,
    /// Limits and running jobs.
    pub fleet: FleetState,
}

impl TransferQueue {
    /// Renews the leases of `held`, writes their progress, and says that the worker is there. Jobs that this process took
    /// and does not know of go back into the queue: the answer to its claim was lost.
    ///
    /// # Errors
    /// The database fails. No answer in time: the leases may be renewed all the same.
    pub async fn renew(
        &self,
        worker: &WorkerIdentity,
        slots: usize,
        lease: LeaseTime,
        held: &[HeldJob],
    ) -> Result<RenewalAnswer, QueueError> {
        self.within(async {
            let mut transaction = self.pool.begin().await?;
            see_worker(&mut transaction, worker, slots, lease).await?;
            let kept = extend(&mut transaction, worker, lease, held).await?;
            // A worker without room for more jobs watches, too, so that it knows when it has some.
            self.watch_leases(&mut transaction).await?;
            let ids: Vec<i64> = held.iter().map(|job| job.id).collect();
            sqlx::query(
                "WITH unknown AS (UPDATE jobs SET state = 'waiting', worker = NULL, holder = NULL, session = NULL, \
                   lease_until = NULL, granted = NULL \
                 WHERE state = 'running' AND session = $1 AND NOT id = ANY($2) RETURNING id, attempts) \
                 UPDATE attempts SET outcome = 'lost', ended_at = clock_timestamp() FROM unknown \
                 WHERE job = unknown.id AND number = unknown.attempts",
            )
            .bind(&worker.session)
            .bind(&ids)
            .execute(&mut *transaction)
            .await?;
            let fleet = limits::fleet(&mut transaction).await?;
            transaction.commit().await?;
            Ok(RenewalAnswer { kept, fleet })
        })
        .await
    }

    /// Says that a worker has ended.
    ///
    /// # Errors
    /// The database fails; the worker is then forgotten when it has not been seen for the time of a lease.
    pub async fn leave(&self, worker: &WorkerIdentity) -> Result<(), QueueError> {
        self.within(async {
            sqlx::query("DELETE FROM workers WHERE session = $1")
                .bind(&worker.session)
                .execute(&self.pool)
                .await?;
            Ok(())
        })
        .await
    }
}

async fn see_worker(
    connection: &mut PgConnection,
    worker: &WorkerIdentity,
    slots: usize,
    lease: LeaseTime,
) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM workers WHERE seen_until < clock_timestamp()")
        .execute(&mut *connection)
        .await?;
    sqlx::query(
        "INSERT INTO workers (session, name, slots, seen_until) \
         VALUES ($1, $2, $3, clock_timestamp() + make_interval(secs => $4)) \
         ON CONFLICT (session) DO UPDATE SET slots = excluded.slots, seen_until = excluded.seen_until",
    )
    .bind(&worker.session)
    .bind(&worker.name)
    .bind(i32::try_from(slots).unwrap_or(i32::MAX))
    .bind(lease.length().as_secs_f64())
    .execute(connection)
    .await?;
    Ok(())
}

async fn extend(
    connection: &mut PgConnection,
    worker: &WorkerIdentity,
    lease: LeaseTime,
    held: &[HeldJob],
) -> Result<BTreeMap<i64, bool>, sqlx::Error> {
    let count = |number: Option<u64>| number.map(|n| i64::try_from(n).unwrap_or(i64::MAX));
    let counts = |of: fn(&JobProgress) -> Option<u64>| -> Vec<Option<i64>> {
        held.iter().map(|job| count(of(&job.progress))).collect()
    };
    let ids: Vec<i64> = held.iter().map(|job| job.id).collect();
    let numbers: Vec<i32> = held
        .iter()
        .map(|job| i32::try_from(job.number).unwrap_or(0))
        .collect();
    let now: Vec<Option<f64>> = held.iter().map(|job| job.progress.now_bps).collect();
    let left: Vec<Option<f64>> = held.iter().map(|job| job.progress.left_seconds).collect();
    // Whether the database's clock is past its time says nothing: that clock may have been set. A child whose lease has ended stays
    // ended, also if nobody else has taken the job (`guard`).
    let rows = sqlx::query(
        "UPDATE jobs SET lease_until = clock_timestamp() + make_interval(secs => $1), lease_seconds = $1, \
           done_bytes = held.done_bytes, total_bytes = held.total_bytes, done_files = held.done_files, \
           total_files = held.total_files, now_bps = held.now_bps, left_seconds = held.left_seconds \
         FROM UNNEST($2::bigint[], $3::int[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::float8[], \
             $9::float8[]) \
           AS held (id, number, done_bytes, total_bytes, done_files, total_files, now_bps, left_seconds) \
         WHERE jobs.id = held.id AND jobs.attempts = held.number AND state = 'running' AND session = $10 \
         RETURNING jobs.id, jobs.cancel_asked",
    )
    .bind(lease.length().as_secs_f64())
    .bind(&ids)
    .bind(&numbers)
    .bind(counts(|progress| progress.done_bytes))
    .bind(counts(|progress| progress.total_bytes))
    .bind(counts(|progress| progress.done_files))
    .bind(counts(|progress| progress.total_files))
    .bind(&now)
    .bind(&left)
    .bind(&worker.session)
    .fetch_all(connection)
    .await?;
    let kept = |row: &sqlx::postgres::PgRow| -> Result<(i64, bool), sqlx::Error> {
        Ok((row.try_get("id")?, row.try_get("cancel_asked")?))
    };
    rows.iter().map(kept).collect()
}
