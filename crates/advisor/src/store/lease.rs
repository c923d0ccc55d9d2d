//! Leases: the right to test what several servers share, for a time.

use std::time::Duration;

use jiff::Timestamp;

use super::{DatabaseError, Store};

/// Longest time of a lease. One that ends later was written by a wrong clock and does not count.
pub const LONGEST_LEASE: Duration = Duration::from_secs(10 * 60);

/// A lease that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    name: String,
    holder: String,
}

impl Store {
    /// Takes the lease `name` for `time` (at most [`LONGEST_LEASE`]); `None` if it is held. `holder` is unique
    /// in the database. The servers' clocks should differ by less than `time`.
    ///
    /// # Errors
    /// The database fails.
    pub async fn take_lease(
        &self,
        name: &str,
        holder: &str,
        now: Timestamp,
        time: Duration,
    ) -> Result<Option<Lease>, DatabaseError> {
        let milliseconds = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX / 4);
        let now = now.as_millisecond();
        let taken = sqlx::query(
            "INSERT INTO leases (name, holder, until_ms) VALUES ($1, $2, $3) \
             ON CONFLICT (name) DO UPDATE SET \
               holder = excluded.holder, until_ms = excluded.until_ms \
             WHERE leases.until_ms <= $4 OR leases.until_ms > $5",
        )
        .bind(name)
        .bind(holder)
        .bind(now + milliseconds(time.min(LONGEST_LEASE)))
        .bind(now)
        .bind(now + 2 * milliseconds(LONGEST_LEASE))
        .execute(&self.pool)
        .await
        .map_err(|cause| self.error(cause))?;
        Ok((taken.rows_affected() == 1).then(|| Lease {
            name: name.to_owned(),
            holder: holder.to_owned(),
        }))
    }

    /// Gives a lease back. One that another server has taken since stays.
    ///
    /// # Errors
    /// The database fails; the lease then ends by itself.
    pub async fn release_lease(&self, lease: &Lease) -> Result<(), DatabaseError> {
        sqlx::query("DELETE FROM leases WHERE name = $1 AND holder = $2")
            .bind(&lease.name)
            .bind(&lease.holder)
            .execute(&self.pool)
            .await
            .map_err(|cause| self.error(cause))?;
        Ok(())
    }
}
