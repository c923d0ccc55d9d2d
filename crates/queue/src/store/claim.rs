//! A worker takes jobs.
//!
//! All workers take jobs one after the other, under an advisory lock: limits and fairness are about the whole fleet, and two
//! that decide at the same time could both take the last session. The rows themselves are locked with SKIP LOCKED, so that
//! nobody who changes a job is waited for.

use sqlx::{PgConnection, Row};

use crate::copy::{CopyRefused, QueuedCopy};
use crate::decisions::fleet::WaitingJob;
use crate::decisions::lease::LeaseTime;

use super::{CLAIM_LOCK, QueueError, TransferQueue, limits, lock, rows};

/// Most owners whose jobs are compared at a time.
const MOST_OWNERS: i64 = 10_000;

/// A job that a worker has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedJob {
    /// The job.
    pub id: i64,
    /// Number of this attempt, from 1.
    pub number: u32,
    /// The command; or why this worker cannot understand it.
    pub copy: Result<QueuedCopy, CopyRefused>,
    /// Sessions that it may have with each endpoint.
    pub sessions: u32,
    /// Its rate to begin with, bits per second.
    pub rate: Option<u64>,
}

/// Who takes jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerIdentity {
    /// Name, for people.
    pub name: String,
    /// State directory and start of the machine: jobs of an earlier process with these have no child any more.
    pub holder: String,
    /// The process.
    pub session: String,
}

impl TransferQueue {
    /// Takes up to `most` jobs for the time of a lease, by the decisions of [`crate::decisions::fleet`].
    ///
    /// # Errors
    /// The database fails. No answer in time: jobs may be taken all the same; the next
    /// [`renew`](Self::renew) gives back those that it is not told of.
    pub async fn claim(
        &self,
        worker: &WorkerIdentity,
        most: usize,
        lease: LeaseTime,
    ) -> Result<Vec<ClaimedJob>, QueueError> {
        self.within(async {
            let mut transaction = self.pool.begin().await?;
            lock(&mut transaction, CLAIM_LOCK).await?;
            self.expire(&mut transaction).await?;
            begin_waits_anew(&mut transaction).await?;
            let mut fleet = limits::fleet(&mut transaction).await?;
            let mut taken = Vec::new();
            while taken.len() < most {
                let waiting = waiting(&mut transaction, &fleet.closed()).await?;
                let Some((job, sessions)) = fleet.next(&waiting) else {
                    break;
                };
                let mut claimed = start(&mut transaction, worker, job.id, sessions, lease).await?;
                fleet.start(job, sessions);
                let own = claimed.copy.as_ref().ok();
                let own = own.and_then(|copy| copy.parts().rate);
                claimed.rate = fleet.rate_share(&job.endpoints, own);
                taken.push(claimed);
            }
            if !taken.is_empty() {
                // Shares of rates are smaller now.
                super::notify(&mut transaction).await?;
            }
            transaction.commit().await?;
            Ok(taken)
        })
        .await
    }
}

/// The clock was set back: a job would wait until its time comes again. It waits as long as it did when the wait began.
async fn begin_waits_anew(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query(
        "UPDATE jobs SET not_before = clock_timestamp() + (not_before - waits_from), waits_from = clock_timestamp() \
         WHERE state = 'waiting' AND waits_from > clock_timestamp()",
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// The oldest job of each owner that may start as far as time and endpoints tell.
async fn waiting(
    connection: &mut PgConnection,
    closed: &[String],
) -> Result<Vec<WaitingJob>, sqlx::Error> {
    let rows = sqlx::query(
        "SELECT job.id, owners.name AS owner, job.endpoints, job.sessions, \
           (EXTRACT(EPOCH FROM owners.served_at) * 1000)::bigint AS served_ms \
         FROM owners CROSS JOIN LATERAL ( \
           SELECT id, endpoints, sessions FROM jobs \
           WHERE jobs.owner = owners.name AND state = 'waiting' AND not_before <= clock_timestamp() \
             AND NOT endpoints && $1 \
           ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) AS job \
         ORDER BY owners.served_at NULLS FIRST LIMIT $2",
    )
    .bind(closed)
    .bind(MOST_OWNERS)
    .fetch_all(connection)
    .await?;
    let read = |row: &sqlx::postgres::PgRow| -> Result<WaitingJob, sqlx::Error> {
        let sessions: i32 = row.try_get("sessions")?;
        Ok(WaitingJob {
            id: row.try_get("id")?,
            owner: row.try_get("owner")?,
            endpoints: row.try_get("endpoints")?,
            sessions: u32::try_from(sessions).unwrap_or(1).max(1),
            served_ms: row.try_get("served_ms")?,
        })
    };
    rows.iter().map(read).collect()
}

async fn start(
    connection: &mut PgConnection,
    worker: &WorkerIdentity,
    id: i64,
    sessions: u32,
    lease: LeaseTime,
) -> Result<ClaimedJob, sqlx::Error> {
    let row = sqlx::query(
        "UPDATE jobs SET state = 'running', attempts = attempts + 1, worker = $2, holder = $3, session = $4, \
           lease_until = clock_timestamp() + make_interval(secs => $5), lease_seconds = $5, granted = $6, \
           done_bytes = NULL, total_bytes = NULL, done_files = NULL, total_files = NULL, now_bps = NULL, \
           left_seconds = NULL \
         WHERE id = $1 \
         RETURNING id, attempts, owner, verb, places, options, sessions, rate_bps, credential, retries",
    )
    .bind(id)
    .bind(&worker.name)
    .bind(&worker.holder)
    .bind(&worker.session)
    .bind(lease.length().as_secs_f64())
    .bind(i32::try_from(sessions).unwrap_or(i32::MAX))
    .fetch_one(&mut *connection)
    .await?;
    let number: i32 = row.try_get("attempts")?;
    sqlx::query("INSERT INTO attempts (job, number, worker, session) VALUES ($1, $2, $3, $4)")
        .bind(id)
        .bind(number)
        .bind(&worker.name)
        .bind(&worker.session)
        .execute(&mut *connection)
        .await?;
    // Later than all others also after the clock was set back: who was served before would wait until it is that late again.
    sqlx::query(
        "UPDATE owners SET served_at = \
           GREATEST(clock_timestamp(), (SELECT MAX(served_at) FROM owners) + interval '1 ms') \
         WHERE name = $1",
    )
    .bind(row.try_get::<String, _>("owner")?)
    .execute(connection)
    .await?;
    Ok(ClaimedJob {
        id,
        number: u32::try_from(number).unwrap_or(0),
        copy: rows::copy(&row)?,
        sessions,
        rate: None,
    })
}
