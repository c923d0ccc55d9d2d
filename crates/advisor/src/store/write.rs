//! Writing of entries, many in one transaction.

use std::net::IpAddr;

use sqlx::AnyConnection;

use super::{DatabaseError, Store, StoreEntry, StoredClient};
use crate::measurement::Measurement;

impl Store {
    /// Writes all entries, or none. Writing them again changes nothing.
    ///
    /// # Errors
    /// The database is locked, full, or gone.
    pub async fn write(&self, entries: &[StoreEntry]) -> Result<(), DatabaseError> {
        if !self.is_in_place() {
            return Err(DatabaseError::Gone {
                url: self.url.to_string(),
            });
        }
        self.write_all(entries)
            .await
            .map_err(|cause| self.error(cause))
    }

    async fn write_all(&self, entries: &[StoreEntry]) -> Result<(), sqlx::Error> {
        let mut transaction = self.pool.begin().await?;
        for entry in entries {
            match entry {
                StoreEntry::Measured(measurement) => {
                    self.write_measurement(&mut transaction, measurement)
                        .await?;
                }
                StoreEntry::Client(client) => self.write_client(&mut transaction, client).await?,
                StoreEntry::Forget(client) => self.forget(&mut transaction, *client).await?,
            }
        }
        transaction.commit().await
    }

    async fn write_measurement(
        &self,
        connection: &mut AnyConnection,
        measurement: &Measurement,
    ) -> Result<(), sqlx::Error> {
        let client = measurement.client.to_string();
        let at = measurement.at.as_millisecond();
        for (quantity, value) in &measurement.values {
            sqlx::query(
                "INSERT INTO measurements \
                 (server, client, test, quantity, span_ms, at_ms, samples, value) \
                 VALUES ($1, $2, $3, $4, 0, $5, 1, $6) ON CONFLICT DO NOTHING",
            )
            .bind(&self.server)
            .bind(&client)
            .bind(&measurement.test)
            .bind(quantity.name())
            .bind(at)
            .bind(*value)
            .execute(&mut *connection)
            .await?;
        }
        let Some(detail) = &measurement.detail else {
            return Ok(());
        };
        // The later one to be written counts, whatever the clock says: it may have been set back.
        sqlx::query(
            "INSERT INTO details (server, client, test, at_ms, body) VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (server, client, test) \
             DO UPDATE SET at_ms = excluded.at_ms, body = excluded.body",
        )
        .bind(&self.server)
        .bind(&client)
        .bind(&measurement.test)
        .bind(at)
        .bind(detail.to_string())
        .execute(&mut *connection)
        .await?;
        Ok(())
    }

    async fn write_client(
        &self,
        connection: &mut AnyConnection,
        client: &StoredClient,
    ) -> Result<(), sqlx::Error> {
        let tests = client
            .tests
            .as_ref()
            .map(|tests| serde_json::Value::from(tests.to_json()).to_string());
        sqlx::query(
            "INSERT INTO clients \
             (server, client, source, added_ms, seen_ms, asked_ms, asked_bytes, tests) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (server, client) DO UPDATE SET \
             source = excluded.source, seen_ms = excluded.seen_ms, asked_ms = excluded.asked_ms, \
             asked_bytes = excluded.asked_bytes, tests = excluded.tests",
        )
        .bind(&self.server)
        .bind(client.client.to_string())
        .bind(&client.source)
        .bind(client.added.as_millisecond())
        .bind(client.seen.as_millisecond())
        .bind(client.asked.map(jiff::Timestamp::as_millisecond))
        .bind(i64::try_from(client.asked_bytes).unwrap_or(i64::MAX))
        .bind(tests)
        .execute(&mut *connection)
        .await?;
        Ok(())
    }

    async fn forget(
        &self,
        connection: &mut AnyConnection,
        client: IpAddr,
    ) -> Result<(), sqlx::Error> {
        for statement in [
            "DELETE FROM measurements WHERE server = $1 AND client = $2",
            "DELETE FROM details WHERE server = $1 AND client = $2",
            "DELETE FROM clients WHERE server = $1 AND client = $2",
        ] {
            sqlx::query(statement)
                .bind(&self.server)
                .bind(client.to_string())
                .execute(&mut *connection)
                .await?;
        }
        Ok(())
    }
}
