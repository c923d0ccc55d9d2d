//! Jobs come, are cancelled and are asked for again.

use std::time::Duration;

use crate::copy::QueuedCopy;

use super::{QueueError, TransferQueue, notify};

/// Most jobs of one call.
pub const MOST_AT_ONCE: usize = 500;

impl TransferQueue {
    /// Adds jobs, all or none, that start not before `after`; returns their numbers, in order.
    ///
    /// # Errors
    /// The database fails. No answer in time: the jobs may be there all the same.
    pub async fn submit(
        &self,
        jobs: &[QueuedCopy],
        after: Duration,
    ) -> Result<Vec<i64>, QueueError> {
        let rows: Vec<_> = jobs.iter().enumerate().map(row_of).collect();
        let rows = serde_json::Value::from(rows).to_string();
        self.within(async {
            let mut transaction = self.pool.begin().await?;
            sqlx::query(
                "INSERT INTO owners (name) SELECT DISTINCT owner FROM jsonb_to_recordset($1::jsonb) AS job (owner text) \
                 ON CONFLICT DO NOTHING",
            )
            .bind(&rows)
            .execute(&mut *transaction)
            .await?;
            // All in one statement: a database may be far away.
            let ids = sqlx::query_scalar(
                "INSERT INTO jobs (owner, verb, places, options, endpoints, sessions, rate_bps, credential, \
                   retries, not_before) \
                 SELECT owner, verb, places, options, endpoints, sessions, rate_bps, credential, retries, \
                   clock_timestamp() + make_interval(secs => $2) \
                 FROM jsonb_to_recordset($1::jsonb) AS job (position bigint, owner text, verb text, places text[], options text[], \
                   endpoints text[], sessions integer, rate_bps bigint, credential text, retries integer) \
                 ORDER BY position RETURNING id",
            )
            .bind(&rows)
            .bind(after.as_secs_f64())
            .fetch_all(&mut *transaction)
            .await?;
            notify(&mut transaction).await?;
            transaction.commit().await?;
            Ok(ids)
        })
        .await
    }

    /// Cancels jobs that wait, and asks for the end of those that run; returns the numbers of both.
    ///
    /// # Errors
    /// The database fails.
    pub async fn cancel(&self, jobs: &[i64]) -> Result<Vec<i64>, QueueError> {
        self.change(
            "UPDATE jobs SET cancel_asked = TRUE, \
               ended_at = CASE WHEN state = 'waiting' THEN clock_timestamp() END, \
               state = CASE WHEN state = 'waiting' THEN 'cancelled' ELSE state END \
             WHERE id = ANY($1) AND state IN ('waiting', 'running') RETURNING id",
            jobs,
        )
        .await
    }

    /// Has jobs that failed or were cancelled run again, and jobs that wait for their next attempt run now; returns their
    /// numbers. Their history stays.
    ///
    /// # Errors
    /// The database fails.
    pub async fn retry(&self, jobs: &[i64]) -> Result<Vec<i64>, QueueError> {
        self.change(
            "UPDATE jobs SET state = 'waiting', cancel_asked = FALSE, ended_at = NULL, failures = 0, losses = 0, \
               not_before = clock_timestamp(), waits_from = clock_timestamp() \
             WHERE id = ANY($1) AND state IN ('waiting', 'failed', 'cancelled') RETURNING id",
            jobs,
        )
        .await
    }

    async fn change(&self, statement: &'static str, jobs: &[i64]) -> Result<Vec<i64>, QueueError> {
        self.within(async {
            let mut transaction = self.pool.begin().await?;
            let mut changed: Vec<i64> = sqlx::query_scalar(statement)
                .bind(jobs)
                .fetch_all(&mut *transaction)
                .await?;
            notify(&mut transaction).await?;
            transaction.commit().await?;
            changed.sort_unstable();
            Ok(changed)
        })
        .await
    }
}

/// A job as a row for `jsonb_to_recordset`.
fn row_of((position, job): (usize, &QueuedCopy)) -> serde_json::Value {
    let parts = job.parts();
    serde_json::json!({
        "position": position,
        "owner": parts.owner,
        "verb": parts.verb.word(),
        "places": parts.places,
        "options": parts.options,
        "endpoints": job.endpoints(),
        "sessions": i32::try_from(parts.sessions).unwrap_or(i32::MAX),
        "rate_bps": parts.rate.map(|rate| i64::try_from(rate).unwrap_or(i64::MAX)),
        "credential": parts.credential,
        "retries": i32::try_from(parts.retries).unwrap_or(i32::MAX),
    })
}
