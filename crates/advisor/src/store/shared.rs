//! Measurements of the other servers of a shared database.

use std::net::IpAddr;

use jiff::Timestamp;
use sqlx::Row;

use super::{DatabaseError, HistoryPoint, Store};

/// Measurements by another server of the path from itself to a client.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedPath {
    /// Name of that server.
    pub server: String,
    /// Values by quantity, oldest first.
    pub points: Vec<HistoryPoint>,
    /// The latest details of its tests, oldest first.
    pub details: Vec<serde_json::Value>,
}

impl Store {
    /// The latest `values` of each quantity of the path to a client as another server of the database measured
    /// it: the one that measured last. Values that are dated after `now` do not count. `None`: no other server
    /// measured it.
    ///
    /// # Errors
    /// The database fails.
    pub async fn shared_path(
        &self,
        client: IpAddr,
        values: u32,
        now: Timestamp,
    ) -> Result<Option<SharedPath>, DatabaseError> {
        let Some(server) = self
            .latest_of_others(client, now)
            .await
            .map_err(|cause| self.error(cause))?
        else {
            return Ok(None);
        };
        let rows = sqlx::query(
            "SELECT client, test, quantity, span_ms, at_ms, samples, value FROM ( \
               SELECT client, test, quantity, span_ms, at_ms, samples, value, \
                 ROW_NUMBER() OVER (PARTITION BY quantity ORDER BY at_ms DESC) AS place \
               FROM measurements WHERE server = $1 AND client = $2 AND at_ms <= $3) AS latest \
             WHERE place <= $4 ORDER BY quantity, at_ms",
        )
        .bind(&server)
        .bind(client.to_string())
        .bind(now.as_millisecond())
        .bind(i64::from(values))
        .fetch_all(&self.pool)
        .await
        .map_err(|cause| self.error(cause))?;
        let points = self.points(&rows)?;
        let details = self.details_of(&server, client).await?;
        Ok(Some(SharedPath {
            server,
            points,
            details: details.into_iter().map(|(_, _, body)| body).collect(),
        }))
    }

    /// The other server that measured the path to a client last.
    async fn latest_of_others(
        &self,
        client: IpAddr,
        now: Timestamp,
    ) -> Result<Option<String>, sqlx::Error> {
        // There are few servers; the primary key finds the client of each.
        let rows = sqlx::query(
            "SELECT name, (SELECT MAX(at_ms) FROM measurements WHERE server = name \
               AND client = $2 AND at_ms <= $3) AS newest_ms \
             FROM servers WHERE name <> $1",
        )
        .bind(&self.server)
        .bind(client.to_string())
        .bind(now.as_millisecond())
        .fetch_all(&self.pool)
        .await?;
        let mut latest: Option<(i64, String)> = None;
        for row in &rows {
            let newest: Option<i64> = row.try_get("newest_ms")?;
            if let Some(newest) = newest {
                latest = latest.max(Some((newest, row.try_get("name")?)));
            }
        }
        Ok(latest.map(|(_, server)| server))
    }
}
