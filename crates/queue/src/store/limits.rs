//! Limits of endpoints, and the state of the fleet that they are held against.

use sqlx::{PgConnection, Row};

use crate::decisions::fleet::{DayHours, EndpointLimit, FleetState, RunningJob};

use super::{QueueError, TransferQueue, notify};

/// Most running jobs that are looked at: more than any fleet has slots.
const MOST_RUNNING: i64 = 100_000;
/// Most limits.
const MOST_LIMITS: i64 = 10_000;

/// A change of one endpoint's limits. `None` leaves a limit as it is, `Some(None)` removes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LimitChange {
    /// Most sessions.
    pub sessions: Option<Option<u32>>,
    /// Rate, bits per second.
    pub rate: Option<Option<u64>>,
    /// When jobs may run.
    pub hours: Option<Option<DayHours>>,
    /// Time zone of the hours.
    pub zone: Option<String>,
}

impl TransferQueue {
    /// Limits and running jobs.
    ///
    /// # Errors
    /// The database fails.
    pub async fn fleet(&self) -> Result<FleetState, QueueError> {
        self.within(async {
            let mut connection = self.pool.acquire().await?;
            fleet(&mut connection).await
        })
        .await
    }

    /// Changes the limits of an endpoint. One without any limit is forgotten.
    ///
    /// # Errors
    /// `Zone`, or the database fails.
    pub async fn set_limit(&self, endpoint: &str, change: &LimitChange) -> Result<(), QueueError> {
        if let Some(zone) = &change.zone {
            let is_known: bool = self
                .within(
                    sqlx::query_scalar(
                        "SELECT EXISTS (SELECT FROM pg_timezone_names WHERE name = $1)",
                    )
                    .bind(zone)
                    .fetch_one(&self.pool),
                )
                .await?;
            if !is_known {
                return Err(QueueError::Zone(zone.clone()));
            }
        }
        self.within(self.write_limit(endpoint, change)).await
    }

    async fn write_limit(&self, endpoint: &str, change: &LimitChange) -> Result<(), sqlx::Error> {
        let mut transaction = self.pool.begin().await?;
        let minutes = change.hours.flatten().map(DayHours::minutes);
        sqlx::query("INSERT INTO limits (endpoint) VALUES ($1) ON CONFLICT DO NOTHING")
            .bind(endpoint)
            .execute(&mut *transaction)
            .await?;
        sqlx::query(
            "UPDATE limits SET \
               sessions = CASE WHEN $2 THEN $3 ELSE sessions END, \
               rate_bps = CASE WHEN $4 THEN $5 ELSE rate_bps END, \
               from_minute = CASE WHEN $6 THEN $7 ELSE from_minute END, \
               to_minute = CASE WHEN $6 THEN $8 ELSE to_minute END, \
               zone = COALESCE($9, zone) \
             WHERE endpoint = $1",
        )
        .bind(endpoint)
        .bind(change.sessions.is_some())
        .bind(
            change
                .sessions
                .flatten()
                .map(|sessions| i32::try_from(sessions).unwrap_or(i32::MAX)),
        )
        .bind(change.rate.is_some())
        .bind(
            change
                .rate
                .flatten()
                .map(|rate| i64::try_from(rate).unwrap_or(i64::MAX)),
        )
        .bind(change.hours.is_some())
        .bind(minutes.map(|(from, _)| i32::from(from)))
        .bind(minutes.map(|(_, to)| i32::from(to)))
        .bind(&change.zone)
        .execute(&mut *transaction)
        .await?;
        sqlx::query(
            "DELETE FROM limits WHERE endpoint = $1 AND sessions IS NULL AND rate_bps IS NULL AND from_minute IS NULL",
        )
        .bind(endpoint)
        .execute(&mut *transaction)
        .await?;
        notify(&mut transaction).await?;
        transaction.commit().await
    }
}

/// Limits and running jobs. What this version does not understand counts as no limit.
pub(super) async fn fleet(connection: &mut PgConnection) -> Result<FleetState, sqlx::Error> {
    let rows = sqlx::query(
        "SELECT endpoint, sessions, rate_bps, from_minute, to_minute, zone, \
           (EXTRACT(HOUR FROM there) * 60 + EXTRACT(MINUTE FROM there))::int AS minute \
         FROM (SELECT limits.*, clock_timestamp() AT TIME ZONE zone AS there FROM limits) AS l \
         ORDER BY endpoint LIMIT $1",
    )
    .bind(MOST_LIMITS)
    .fetch_all(&mut *connection)
    .await?;
    let mut limits = Vec::with_capacity(rows.len());
    for row in &rows {
        let minute = |name: &str| -> Result<Option<u16>, sqlx::Error> {
            let minute: Option<i32> = row.try_get(name)?;
            Ok(minute.and_then(|minute| u16::try_from(minute).ok()))
        };
        let hours = minute("from_minute")?.zip(minute("to_minute")?);
        let sessions: Option<i32> = row.try_get("sessions")?;
        let rate: Option<i64> = row.try_get("rate_bps")?;
        limits.push(EndpointLimit {
            endpoint: row.try_get("endpoint")?,
            sessions: sessions.map(|sessions| u32::try_from(sessions).unwrap_or(0)),
            rate: rate.map(|rate| u64::try_from(rate).unwrap_or(0)),
            hours: hours.and_then(|(from, to)| DayHours::new(from, to)),
            zone: row.try_get("zone")?,
            minute: minute("minute")?.unwrap_or(0),
        });
    }
    let rows = sqlx::query(
        "SELECT owner, endpoints, granted FROM jobs WHERE state = 'running' ORDER BY id LIMIT $1",
    )
    .bind(MOST_RUNNING)
    .fetch_all(connection)
    .await?;
    let mut running = Vec::with_capacity(rows.len());
    for row in &rows {
        let granted: Option<i32> = row.try_get("granted")?;
        running.push(RunningJob {
            owner: row.try_get("owner")?,
            endpoints: row.try_get("endpoints")?,
            sessions: granted.map_or(1, |granted| u32::try_from(granted).unwrap_or(1)),
        });
    }
    Ok(FleetState { limits, running })
}
