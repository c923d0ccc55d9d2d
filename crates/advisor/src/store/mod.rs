//! The database: it only persists. Questions are answered from memory ([`crate::path_table`]).
//!
//! One SQL text serves SQLite and PostgreSQL. Several servers may share one database; each reads and writes
//! rows of its own name, and the leases of all.

use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use sqlx::any::{AnyPoolOptions, install_default_drivers};
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{AnyConnection, AnyPool, Connection as _, Row, SqlSafeStr};

use crate::chosen_tests::ChosenTests;
use crate::config::{HistoryConfig, StoreUrl};
use crate::measurement::{Measurement, Quantity};

pub mod writer;

/// Time to wait for a connection, or for another process's lock on an SQLite file.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why the database did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The directory of the SQLite file cannot be made.
    #[error("cannot make the directory of {url}: {cause}")]
    Directory {
        /// The database, without its password.
        url: String,
        /// The system's reason.
        cause: std::io::Error,
    },
    /// The tables cannot be made or brought up to date.
    #[error("cannot prepare the tables of {url}: {cause}")]
    Migrate {
        /// The database, without its password.
        url: String,
        /// The database's reason.
        cause: sqlx::migrate::MigrateError,
    },
    /// A statement failed, or the database cannot be reached.
    #[error("{url}: {cause}")]
    Database {
        /// The database, without its password.
        url: String,
        /// The database's reason.
        cause: sqlx::Error,
    },
    /// The file of the database was deleted or replaced.
    #[error("{url}: the file was deleted or replaced")]
    Gone {
        /// The database.
        url: String,
    },
}

/// An entry for the database.
#[derive(Debug, Clone, PartialEq)]
pub enum StoreEntry {
    /// A result of a test.
    Measured(Measurement),
    /// A client is new or has changed.
    Client(StoredClient),
    /// A client is forgotten, with its measurements.
    Forget(IpAddr),
}

/// A client as the database keeps it.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredClient {
    /// Its address.
    pub client: IpAddr,
    /// How it became known, by the name of its source.
    pub source: String,
    /// When it became known.
    pub added: Timestamp,
    /// When it was last seen.
    pub seen: Timestamp,
    /// When it, or somebody for it, last asked.
    pub asked: Option<Timestamp>,
    /// Bytes of all transfers that it asked about.
    pub asked_bytes: u64,
    /// Tests chosen for it; `None`: those of the configuration.
    pub tests: Option<ChosenTests>,
}

/// One value of the history.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryPoint {
    /// The client.
    pub client: IpAddr,
    /// The test that gave it.
    pub test: String,
    /// The quantity.
    pub quantity: Quantity,
    /// End of the test, or begin of the span.
    pub at: Timestamp,
    /// Length of the span that `value` is the mean of; zero for one measurement.
    pub span: Duration,
    /// Measurements in the span.
    pub samples: u64,
    /// The value, or mean.
    pub value: f64,
}

/// A connection to the database, for one server. Clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    pool: AnyPool,
    url: StoreUrl,
    server: String,
    /// Device and inode of the SQLite file.
    file: Option<(u64, u64)>,
}

impl Store {
    /// Connects, and brings the tables up to date.
    ///
    /// # Errors
    /// The database cannot be reached or changed.
    pub async fn open(url: &StoreUrl, server: &str, now: Timestamp) -> Result<Self, DatabaseError> {
        install_default_drivers();
        let (address, is_sqlite) = match url {
            StoreUrl::Sqlite(path) => {
                make_directory(path).map_err(|cause| DatabaseError::Directory {
                    url: url.to_string(),
                    cause,
                })?;
                (format!("sqlite://{}?mode=rwc", path.display()), true)
            }
            StoreUrl::Postgres(address) => (address.clone(), false),
        };
        let pool = AnyPoolOptions::new()
            .max_connections(4)
            .acquire_timeout(PATIENCE)
            .after_connect(move |connection, _| {
                Box::pin(async move {
                    if is_sqlite {
                        for pragma in SQLITE_PRAGMAS {
                            sqlx::query(pragma).execute(&mut *connection).await?;
                        }
                    }
                    Ok(())
                })
            })
            .connect(&address)
            .await;
        let pool = match pool {
            Ok(pool) => pool,
            Err(cause) => return Err(database_error(url, plain_cause(cause, &address).await)),
        };
        migrator()
            .run(&pool)
            .await
            .map_err(|cause| DatabaseError::Migrate {
                url: url.to_string(),
                cause,
            })?;
        let file = match url {
            StoreUrl::Sqlite(path) => identity(path),
            StoreUrl::Postgres(_) => None,
        };
        let store = Self {
            pool,
            url: url.clone(),
            server: server.to_owned(),
            file,
        };
        sqlx::query(
            "INSERT INTO servers (name, started_ms) VALUES ($1, $2) \
             ON CONFLICT (name) DO UPDATE SET started_ms = excluded.started_ms",
        )
        .bind(server)
        .bind(now.as_millisecond())
        .execute(&store.pool)
        .await
        .map_err(|cause| store.error(cause))?;
        Ok(store)
    }

    /// Whether the SQLite file is still the one that was opened. SQLite itself goes on writing to a deleted
    /// file.
    pub fn is_in_place(&self) -> bool {
        match &self.url {
            StoreUrl::Sqlite(path) => identity(path) == self.file,
            StoreUrl::Postgres(_) => true,
        }
    }

    /// Up to `most` clients of this server after the client `after` in the order of their texts.
    ///
    /// # Errors
    /// The database fails.
    pub async fn clients(
        &self,
        after: &str,
        most: u32,
    ) -> Result<Vec<StoredClient>, DatabaseError> {
        let rows = sqlx::query(
            "SELECT client, source, added_ms, seen_ms, asked_ms, asked_bytes, tests FROM clients \
             WHERE server = $1 AND client > $2 ORDER BY client LIMIT $3",
        )
        .bind(&self.server)
        .bind(after)
        .bind(i64::from(most))
        .fetch_all(&self.pool)
        .await
        .map_err(|cause| self.error(cause))?;
        let read = rows.iter().map(|row| -> Result<_, sqlx::Error> {
            let tests: Option<String> = row.try_get("tests")?;
            Ok(row
                .try_get::<String, _>("client")?
                .parse()
                .ok()
                .map(|client| (client, tests, row)))
        });
        let mut clients = Vec::with_capacity(rows.len());
        for one in read {
            // A row with another kind of address is not from this program: it is left alone.
            let Some((client, tests, row)) = one.map_err(|cause| self.error(cause))? else {
                continue;
            };
            let number = |name| {
                row.try_get::<i64, _>(name)
                    .map_err(|cause| self.error(cause))
            };
            let asked: Option<i64> = row.try_get("asked_ms").map_err(|cause| self.error(cause))?;
            clients.push(StoredClient {
                client,
                source: row.try_get("source").map_err(|cause| self.error(cause))?,
                added: timestamp(number("added_ms")?),
                seen: timestamp(number("seen_ms")?),
                asked: asked.map(timestamp),
                asked_bytes: u64::try_from(number("asked_bytes")?).unwrap_or(0),
                tests: tests.as_deref().and_then(chosen_tests),
            });
        }
        Ok(clients)
    }

    /// The latest `values` of each quantity of up to `clients` clients after the client `after` in the order of
    /// their texts, oldest first within a quantity. Values that are dated after `now` count as the oldest: the
    /// clock was wrong when they were written, and they must not hide later ones.
    ///
    /// # Errors
    /// The database fails.
    pub async fn latest(
        &self,
        after: &str,
        clients: u32,
        values: u32,
        now: Timestamp,
    ) -> Result<Vec<HistoryPoint>, DatabaseError> {
        let rows = sqlx::query(
            "SELECT client, test, quantity, span_ms, at_ms, samples, value FROM ( \
               SELECT client, test, quantity, span_ms, at_ms, samples, value, \
                 CASE WHEN at_ms > $5 THEN 1 ELSE 0 END AS late, ROW_NUMBER() OVER ( \
                 PARTITION BY client, quantity \
                 ORDER BY CASE WHEN at_ms > $5 THEN 1 ELSE 0 END, at_ms DESC) AS place \
               FROM measurements WHERE server = $1 AND client IN ( \
                 SELECT client FROM clients WHERE server = $1 AND client > $2 \
                 ORDER BY client LIMIT $3)) AS latest \
             WHERE place <= $4 ORDER BY client, quantity, late DESC, at_ms",
        )
        .bind(&self.server)
        .bind(after)
        .bind(i64::from(clients))
        .bind(i64::from(values))
        .bind(now.as_millisecond())
        .fetch_all(&self.pool)
        .await
        .map_err(|cause| self.error(cause))?;
        self.points(&rows)
    }

    /// History of one quantity of a client from `from` to `to`, oldest first, at most `most` points (the
    /// latest ones).
    ///
    /// # Errors
    /// The database fails.
    pub async fn history(
        &self,
        client: IpAddr,
        quantity: Quantity,
        (from, to): (Timestamp, Timestamp),
        most: u32,
    ) -> Result<Vec<HistoryPoint>, DatabaseError> {
        let rows = sqlx::query(
            "SELECT client, test, quantity, span_ms, at_ms, samples, value FROM measurements \
             WHERE server = $1 AND client = $2 AND quantity = $3 AND at_ms >= $4 AND at_ms <= $5 \
             ORDER BY at_ms DESC LIMIT $6",
        )
        .bind(&self.server)
        .bind(client.to_string())
        .bind(quantity.name())
        .bind(from.as_millisecond())
        .bind(to.as_millisecond())
        .bind(i64::from(most))
        .fetch_all(&self.pool)
        .await
        .map_err(|cause| self.error(cause))?;
        let mut points = self.points(&rows)?;
        points.reverse();
        Ok(points)
    }

    /// The latest details of a client, by test.
    ///
    /// # Errors
    /// The database fails.
    pub async fn details(
        &self,
        client: IpAddr,
    ) -> Result<Vec<(String, Timestamp, serde_json::Value)>, DatabaseError> {
        self.details_of(&self.server, client).await
    }

    async fn details_of(
        &self,
        server: &str,
        client: IpAddr,
    ) -> Result<Vec<(String, Timestamp, serde_json::Value)>, DatabaseError> {
        let rows = sqlx::query(
            "SELECT test, at_ms, body FROM details WHERE server = $1 AND client = $2 ORDER BY test",
        )
        .bind(server)
        .bind(client.to_string())
        .fetch_all(&self.pool)
        .await
        .map_err(|cause| self.error(cause))?;
        let read = |row: &sqlx::any::AnyRow| -> Result<_, sqlx::Error> {
            let body: String = row.try_get("body")?;
            let at = timestamp(row.try_get("at_ms")?);
            let body = serde_json::from_str(&body).unwrap_or(serde_json::Value::Null);
            Ok((row.try_get("test")?, at, body))
        };
        let details: Result<_, _> = rows.iter().map(read).collect();
        details.map_err(|cause| self.error(cause))
    }

    /// The latest details of up to `clients` clients after the client `after`, oldest first.
    ///
    /// # Errors
    /// The database fails.
    pub async fn details_after(
        &self,
        after: &str,
        clients: u32,
    ) -> Result<Vec<(IpAddr, serde_json::Value)>, DatabaseError> {
        let rows = sqlx::query(
            "SELECT client, body FROM details WHERE server = $1 AND client IN ( \
               SELECT client FROM clients WHERE server = $1 AND client > $2 \
               ORDER BY client LIMIT $3) ORDER BY at_ms",
        )
        .bind(&self.server)
        .bind(after)
        .bind(i64::from(clients))
        .fetch_all(&self.pool)
        .await
        .map_err(|cause| self.error(cause))?;
        let read = |row: &sqlx::any::AnyRow| -> Option<(IpAddr, serde_json::Value)> {
            let client: String = row.try_get("client").ok()?;
            let body: String = row.try_get("body").ok()?;
            Some((client.parse().ok()?, serde_json::from_str(&body).ok()?))
        };
        Ok(rows.iter().filter_map(read).collect())
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    fn points(&self, rows: &[sqlx::any::AnyRow]) -> Result<Vec<HistoryPoint>, DatabaseError> {
        let mut points = Vec::with_capacity(rows.len());
        for row in rows {
            let point = point(row).map_err(|cause| self.error(cause))?;
            // Rows that this version does not understand are left alone.
            points.extend(point);
        }
        Ok(points)
    }

    fn error(&self, cause: sqlx::Error) -> DatabaseError {
        database_error(&self.url, cause)
    }
}

/// Properties of each SQLite connection. With a write-ahead log readers and the writer do not wait for each
/// other; a crash of the machine may lose the last seconds, never the file.
const SQLITE_PRAGMAS: [&str; 3] = [
    "PRAGMA busy_timeout = 1000",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",
];

fn migrator() -> Migrator {
    let migration = |version, name: &'static str, sql: &'static str| {
        let kind = MigrationType::Simple;
        Migration::new(version, name.into(), kind, sql.into_sql_str(), false)
    };
    Migrator::with_migrations(vec![
        migration(1, "paths", include_str!("../../migrations/0001_paths.sql")),
        migration(
            2,
            "test intervals",
            include_str!("../../migrations/0002_test_intervals.sql"),
        ),
    ])
}

fn make_directory(file: &Path) -> std::io::Result<()> {
    let Some(directory) = file.parent() else {
        return Ok(());
    };
    // The history tells who transfers from where.
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
}

/// Whether a file can be made in it.
fn is_writable_directory(path: &Path) -> std::io::Result<()> {
    if !path.is_dir() {
        return Err(std::io::ErrorKind::NotADirectory.into());
    }
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    Ok(rustix::fs::access(path, access)?)
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Looks whether a database can be reached; nothing is made or changed. A file that does not exist yet is no error if its
/// directory exists or can be made.
///
/// # Errors
/// Why it cannot be reached.
pub async fn check_reachable(url: &StoreUrl) -> Result<(), DatabaseError> {
    install_default_drivers();
    let address = match url {
        StoreUrl::Sqlite(path) if path.exists() => format!("sqlite://{}?mode=ro", path.display()),
        StoreUrl::Sqlite(path) => {
            let existing = path.ancestors().skip(1).find(|folder| folder.exists());
            let is_usable = existing.map_or(Ok(()), is_writable_directory);
            return is_usable.map_err(|cause| DatabaseError::Directory {
                url: url.to_string(),
                cause,
            });
        }
        StoreUrl::Postgres(address) => address.clone(),
    };
    let connection = tokio::time::timeout(PATIENCE, AnyConnection::connect(&address)).await;
    let connection = connection.unwrap_or(Err(sqlx::Error::PoolTimedOut));
    let connection = connection.map_err(|cause| database_error(url, cause))?;
    let closed = connection.close().await;
    closed.map_err(|cause| database_error(url, cause))
}

/// Why no connection was made. A pool tries again until its time is over and then tells only that: one more attempt tells the
/// reason.
async fn plain_cause(cause: sqlx::Error, address: &str) -> sqlx::Error {
    if !matches!(cause, sqlx::Error::PoolTimedOut) {
        return cause;
    }
    let attempt = tokio::time::timeout(PATIENCE, AnyConnection::connect(address));
    match attempt.await {
        Ok(Err(plain)) => plain,
        Ok(Ok(_)) | Err(_) => cause,
    }
}

fn database_error(url: &StoreUrl, cause: sqlx::Error) -> DatabaseError {
    DatabaseError::Database {
        url: url.to_string(),
        cause,
    }
}

/// The tests chosen for a client. A text that this version does not understand counts as no choice.
fn chosen_tests(text: &str) -> Option<ChosenTests> {
    ChosenTests::from_json(&serde_json::from_str(text).ok()?).ok()
}

/// A time of the database; one that no calendar has is the beginning of time.
fn timestamp(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn point(row: &sqlx::any::AnyRow) -> Result<Option<HistoryPoint>, sqlx::Error> {
    let client: String = row.try_get("client")?;
    let quantity: String = row.try_get("quantity")?;
    let (Ok(client), Some(quantity)) = (client.parse(), Quantity::from_name(&quantity)) else {
        return Ok(None);
    };
    let span: i64 = row.try_get("span_ms")?;
    let samples: i64 = row.try_get("samples")?;
    Ok(Some(HistoryPoint {
        client,
        test: row.try_get("test")?,
        quantity,
        at: timestamp(row.try_get("at_ms")?),
        span: Duration::from_millis(u64::try_from(span).unwrap_or(0)),
        samples: u64::try_from(samples).unwrap_or(0),
        value: row.try_get("value")?,
    }))
}

/// Longest time of a lease. One that ends later was written by a wrong clock and does not count.
pub const LONGEST_LEASE: Duration = Duration::from_secs(10 * 60);

/// A lease that is held: the right to test what several servers share, for a time.
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

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

impl Store {
    /// Thins the history out by age at `now`: measurements become averages of hours, then of days, then go. Doing it again changes nothing.
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
        .bind(client.asked.map(Timestamp::as_millisecond))
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
