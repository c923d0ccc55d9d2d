//! Jobs whose worker is gone go back into the queue.

use std::time::Duration;

use sqlx::{PgConnection, Row};

use crate::decisions::lease;
use crate::decisions::lease_watch::RunningLease;
use crate::decisions::retry::MOST_LOSSES;

use super::{QueueError, TransferQueue, WorkerIdentity};

/// Puts jobs whose worker is gone back into the queue. `$1`: most losses. The condition is the rest of the statement's part.
macro_rules! lose_jobs {
    ($condition:literal) => {
        concat!(
            "WITH lost AS (UPDATE jobs SET \
               state = CASE WHEN cancel_asked THEN 'cancelled' WHEN losses + 1 >= $1 THEN 'failed' ELSE 'waiting' END, \
               ended_at = CASE WHEN cancel_asked OR losses + 1 >= $1 THEN clock_timestamp() END, \
               error = CASE WHEN losses + 1 >= $1 THEN 'its workers died' ELSE error END, \
               losses = losses + 1, worker = NULL, holder = NULL, session = NULL, lease_until = NULL, granted = NULL, \
               now_bps = NULL, left_seconds = NULL \
             WHERE state = 'running' AND ",
            $condition,
            " RETURNING id, attempts) \
             UPDATE attempts SET outcome = 'lost', ended_at = clock_timestamp() FROM lost \
             WHERE job = lost.id AND number = lost.attempts"
        )
    };
}

const LOSE_EARLIER: &str = lose_jobs!("holder = $2 AND session <> $3");
// One that was renewed since the look stays.
const LOSE_ENDED: &str = lose_jobs!(
    "(id, attempts, (EXTRACT(EPOCH FROM lease_until) * 1000000)::bigint) IN \
       (SELECT * FROM UNNEST($2::bigint[], $3::int[], $4::bigint[]))"
);
/// All leases. The renewal is the database's time, microseconds.
const RUNNING: &str = "SELECT id, attempts, (EXTRACT(EPOCH FROM lease_until) * 1000000)::bigint AS renewal, lease_seconds \
     FROM jobs WHERE state = 'running'";

impl TransferQueue {
    /// Gives back the jobs of earlier processes of a worker: their children are known to be gone.
    ///
    /// # Errors
    /// The database fails.
    pub async fn release_earlier(&self, worker: &WorkerIdentity) -> Result<u64, QueueError> {
        self.within(async {
            let released = sqlx::query(LOSE_EARLIER)
                .bind(losses())
                .bind(&worker.holder)
                .bind(&worker.session)
                .execute(&self.pool)
                .await?;
            Ok(released.rows_affected())
        })
        .await
    }

    /// Ends leases that nobody has renewed for as long as they are, by this process's clock.
    pub(super) async fn expire(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let ended = self.watch_leases(connection).await?;
        if ended.is_empty() {
            return Ok(());
        }
        let jobs: Vec<i64> = ended.iter().map(|lease| lease.job).collect();
        let attempts: Vec<i32> = ended
            .iter()
            .map(|lease| i32::try_from(lease.attempt).unwrap_or(0))
            .collect();
        let renewals: Vec<i64> = ended.iter().map(|lease| lease.renewal).collect();
        sqlx::query(LOSE_ENDED)
            .bind(losses())
            .bind(jobs)
            .bind(attempts)
            .bind(renewals)
            .execute(connection)
            .await?;
        Ok(())
    }

    /// Looks at all leases; returns those that have ended.
    pub(super) async fn watch_leases(
        &self,
        connection: &mut PgConnection,
    ) -> Result<Vec<RunningLease>, sqlx::Error> {
        let rows = sqlx::query(RUNNING).fetch_all(connection).await?;
        let read = |row: &sqlx::postgres::PgRow| -> Result<RunningLease, sqlx::Error> {
            let attempt: i32 = row.try_get("attempts")?;
            let seconds: Option<f64> = row.try_get("lease_seconds")?;
            let length = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            Ok(RunningLease {
                job: row.try_get("id")?,
                attempt: u32::try_from(attempt).unwrap_or(0),
                renewal: row.try_get("renewal")?,
                length: length.unwrap_or(lease::LONGEST),
            })
        };
        let leases = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        // After the rows were read: they may have been renewed until then.
        let now = (self.clock.0)();
        Ok(self.watch.lock().look(now, leases))
    }
}

fn losses() -> i32 {
    i32::try_from(MOST_LOSSES).unwrap_or(i32::MAX)
}
