//! The result of an attempt is written, once, however late.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, Row};
use units::Exit;

use crate::decisions::retry::{AttemptEnd, JobCounts, JobVerdict, StopReason, verdict};

use super::{QueueError, TransferQueue, notify};

/// The result of an attempt, as the worker keeps it until the database has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobResult {
    /// The job.
    pub id: i64,
    /// Number of the attempt.
    pub number: u32,
    /// The process that ran it.
    pub session: String,
    /// How it ended.
    #[serde(with = "end_words")]
    pub end: AttemptEnd,
    /// The reason, in one line.
    pub error: Option<String>,
    /// Bytes that were moved.
    pub bytes: Option<u64>,
    /// Files that were copied.
    pub files: Option<u64>,
    /// Time that it took, seconds.
    pub seconds: Option<f64>,
    /// How the copy was verified.
    pub verified: Option<String>,
}

/// An end as a word and a number.
mod end_words {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{AttemptEnd, StopReason};

    const STOPS: [(&str, StopReason); 4] = [
        ("cancelled", StopReason::Cancelled),
        ("lease", StopReason::Lease),
        ("hours", StopReason::Hours),
        ("worker ends", StopReason::WorkerEnds),
    ];

    pub(super) fn serialize<S: Serializer>(end: &AttemptEnd, to: S) -> Result<S::Ok, S::Error> {
        let words = match end {
            AttemptEnd::Exited(code) => ("exited", i32::from(*code)),
            AttemptEnd::Killed(signal) => ("killed", *signal),
            AttemptEnd::NotStarted => ("not started", 0),
            AttemptEnd::Stopped(reason) => {
                let found = STOPS.iter().find(|(_, stop)| stop == reason);
                (found.map_or("lease", |(word, _)| word), 0)
            }
        };
        words.serialize(to)
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<AttemptEnd, D::Error> {
        let (word, number) = <(String, i32)>::deserialize(from)?;
        let unknown = || D::Error::custom("an unknown end");
        Ok(match word.as_str() {
            "exited" => AttemptEnd::Exited(u8::try_from(number).map_err(|_| unknown())?),
            "killed" => AttemptEnd::Killed(number),
            "not started" => AttemptEnd::NotStarted,
            word => {
                let found = STOPS.iter().find(|(name, _)| *name == word);
                AttemptEnd::Stopped(found.ok_or_else(unknown)?.1)
            }
        })
    }
}

impl JobResult {
    /// The exit code, if the program ended by itself.
    fn exit(&self) -> Option<i32> {
        match self.end {
            AttemptEnd::Exited(code) => Some(i32::from(code)),
            _ => None,
        }
    }

    fn outcome(&self) -> &'static str {
        match self.end {
            AttemptEnd::Exited(code) if code == Exit::Done as u8 => "done",
            AttemptEnd::Stopped(_) => "stopped",
            _ => "failed",
        }
    }
}

impl TransferQueue {
    /// Writes a result, and what follows from it for the job. One that is written already changes nothing. Where the lease has
    /// ended meanwhile, the attempt gets its result; the job is done by it only if nobody has begun another attempt.
    ///
    /// # Errors
    /// The database fails. No answer in time: call it again.
    pub async fn finish(&self, result: &JobResult) -> Result<(), QueueError> {
        self.within(async {
            let mut transaction = self.pool.begin().await?;
            let number = i32::try_from(result.number).unwrap_or(0);
            let job = sqlx::query(
                "SELECT state, session, failures, retries, cancel_asked FROM jobs \
                 WHERE id = $1 AND attempts = $2 FOR UPDATE",
            )
            .bind(result.id)
            .bind(number)
            .fetch_optional(&mut *transaction)
            .await?;
            if let Some(job) = &job {
                let state: String = job.try_get("state")?;
                let session: Option<String> = job.try_get("session")?;
                let counts = counts(result.id, job)?;
                let decided = verdict(result.end, counts);
                let is_held = state == "running" && session.as_deref() == Some(result.session.as_str());
                let is_late_success = state == "waiting" && decided == JobVerdict::Done;
                if is_held || is_late_success {
                    settle(&mut transaction, result, decided, counts).await?;
                }
            }
            sqlx::query(
                "UPDATE attempts SET outcome = $3, ended_at = COALESCE(ended_at, clock_timestamp()), exit = $4, \
                   error = $5, bytes = $6, files = $7, seconds = $8, verified = $9 \
                 WHERE job = $1 AND number = $2 AND session = $10 AND (outcome IS NULL OR outcome = 'lost')",
            )
            .bind(result.id)
            .bind(number)
            .bind(result.outcome())
            .bind(result.exit())
            .bind(&result.error)
            .bind(result.bytes.map(|n| i64::try_from(n).unwrap_or(i64::MAX)))
            .bind(result.files.map(|n| i64::try_from(n).unwrap_or(i64::MAX)))
            .bind(result.seconds)
            .bind(&result.verified)
            .bind(&result.session)
            .execute(&mut *transaction)
            .await?;
            notify(&mut transaction).await?;
            transaction.commit().await
        })
        .await
    }
}

fn counts(id: i64, job: &sqlx::postgres::PgRow) -> Result<JobCounts, sqlx::Error> {
    let number = |name: &str| -> Result<u32, sqlx::Error> {
        let number: i32 = job.try_get(name)?;
        Ok(u32::try_from(number).unwrap_or(0))
    };
    Ok(JobCounts {
        id,
        failures: number("failures")?,
        retries: number("retries")?,
        is_cancelled: job.try_get("cancel_asked")?,
    })
}

async fn settle(
    connection: &mut PgConnection,
    result: &JobResult,
    decided: JobVerdict,
    counts: JobCounts,
) -> Result<(), sqlx::Error> {
    let (state, after, is_failure) = match decided {
        JobVerdict::Done => ("done", Duration::ZERO, false),
        JobVerdict::Failed => ("failed", Duration::ZERO, true),
        JobVerdict::Cancelled => ("cancelled", Duration::ZERO, false),
        JobVerdict::Again { after, is_failure } => ("waiting", after, is_failure),
    };
    let failures = counts.failures.saturating_add(u32::from(is_failure));
    // A stop for reasons of the worker is not what the job is known by.
    let error = match result.end {
        AttemptEnd::Stopped(StopReason::Cancelled) => Some("cancelled".to_owned()),
        AttemptEnd::Stopped(_) => None,
        _ => result.error.clone(),
    };
    sqlx::query(
        "UPDATE jobs SET state = $2, failures = $3, not_before = clock_timestamp() + make_interval(secs => $4), \
           waits_from = clock_timestamp(), ended_at = CASE WHEN $2 = 'waiting' THEN NULL ELSE clock_timestamp() END, exit = $5, error = $6, \
           worker = NULL, holder = NULL, session = NULL, lease_until = NULL, granted = NULL, now_bps = NULL, \
           left_seconds = NULL, \
           total_bytes = CASE WHEN $2 = 'done' THEN COALESCE(total_bytes, $7) ELSE total_bytes END, \
           done_bytes = CASE WHEN $2 = 'done' THEN COALESCE(total_bytes, $7) ELSE done_bytes END \
         WHERE id = $1",
    )
    .bind(result.id)
    .bind(state)
    .bind(i32::try_from(failures).unwrap_or(i32::MAX))
    .bind(after.as_secs_f64())
    .bind(result.exit())
    .bind(error)
    .bind(result.bytes.map(|n| i64::try_from(n).unwrap_or(i64::MAX)))
    .execute(connection)
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_survives_its_file() {
        let ends = [
            AttemptEnd::Exited(5),
            AttemptEnd::Killed(9),
            AttemptEnd::NotStarted,
            AttemptEnd::Stopped(StopReason::Lease),
            AttemptEnd::Stopped(StopReason::WorkerEnds),
        ];
        for end in ends {
            let result = JobResult {
                id: 7,
                number: 2,
                session: "s".to_owned(),
                end,
                error: Some("x".to_owned()),
                bytes: Some(1),
                files: None,
                seconds: Some(0.5),
                verified: None,
            };
            let text = serde_json::to_string(&result).unwrap();
            assert_eq!(serde_json::from_str::<JobResult>(&text).unwrap(), result);
        }
        assert!(serde_json::from_str::<JobResult>(r#"{"id":1}"#).is_err());
    }
}
