//! Thinning of the history: old measurements become averages of hours, then of days, then go.

use std::time::Duration;

use jiff::Timestamp;

use super::{DatabaseError, Store};
use crate::config::HistoryConfig;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

impl Store {
    /// Averages and deletes by age at `now`. Doing it again changes nothing.
    ///
    /// # Errors
    /// The database fails; the history is then as before.
    pub async fn thin(&self, now: Timestamp, ages: &HistoryConfig) -> Result<(), DatabaseError> {
        self.thin_all(now.as_millisecond(), ages)
            .await
            .map_err(|cause| self.error(cause))
    }

    async fn thin_all(&self, now: i64, ages: &HistoryConfig) -> Result<(), sqlx::Error> {
        let before = |age: Duration| now - i64::try_from(age.as_millis()).unwrap_or(i64::MAX / 2);
        for (span, age) in [(HOUR_MS, ages.single), (DAY_MS, ages.hours)] {
            // Only whole spans are averaged.
            let before = before(age).div_euclid(span) * span;
            let mut transaction = self.pool.begin().await?;
            sqlx::query(
                "INSERT INTO measurements \
                 (server, client, test, quantity, span_ms, at_ms, samples, value) \
                 SELECT server, client, test, quantity, $2, at_ms / $2 * $2, \
                   CAST(SUM(samples) AS BIGINT), SUM(value * samples) / SUM(samples) \
                 FROM measurements WHERE server = $1 AND span_ms < $2 AND at_ms < $3 \
                 GROUP BY server, client, test, quantity, at_ms / $2 * $2 \
                 ON CONFLICT (server, client, test, quantity, span_ms, at_ms) DO UPDATE SET \
                   value = (measurements.value * measurements.samples \
                     + excluded.value * excluded.samples) \
                     / (measurements.samples + excluded.samples), \
                   samples = measurements.samples + excluded.samples",
            )
            .bind(&self.server)
            .bind(span)
            .bind(before)
            .execute(&mut *transaction)
            .await?;
            sqlx::query(
                "DELETE FROM measurements WHERE server = $1 AND span_ms < $2 AND at_ms < $3",
            )
            .bind(&self.server)
            .bind(span)
            .bind(before)
            .execute(&mut *transaction)
            .await?;
            transaction.commit().await?;
        }
        sqlx::query("DELETE FROM measurements WHERE server = $1 AND at_ms < $2")
            .bind(&self.server)
            .bind(before(ages.days))
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}
