//! The database of the queue: a schema of its own, `longhaul_queue`, in any database of PostgreSQL.
//!
//! Every time in it is one of the database's clock; when leases end, the clocks of the workers decide. Each call ends within [`PATIENCE`], also when the network is cut.

use std::fmt;
use std::future::Future;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use sqlx::{Connection as _, PgConnection, PgPool, SqlSafeStr};

use crate::decisions::lease_watch::LeaseWatch;
use crate::guard::boot_time;

mod claim;
mod expiry;
mod lease;
mod limits;
mod overview;
mod result;
mod rows;
pub mod submit;

pub use claim::{ClaimedJob, WorkerIdentity};
pub use lease::{HeldJob, JobProgress, RenewalAnswer};
pub use limits::LimitChange;
pub use overview::{OwnerCounts, QueueOverview, StateCounts, WorkerRow};
pub use result::JobResult;
pub use rows::{AttemptRow, JobFilter, JobRow, JobState};

/// Longest time of one call.
pub const PATIENCE: Duration = Duration::from_secs(15);
/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Schema of the tables.
const SCHEMA: &str = "longhaul_queue";
/// Channel of LISTEN and NOTIFY.
const CHANNEL: &str = "longhaul_queue";
/// Key of the advisory lock under which the schema is made.
const SCHEMA_LOCK: i64 = 0x6c68_7175_6575_6501;
/// Key of the advisory lock under which jobs are taken: limits are those of the whole fleet.
const CLAIM_LOCK: i64 = 0x6c68_7175_6575_6502;

/// Why the database did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// The URL is none of a PostgreSQL database.
    #[error("the database's URL is not postgres://USER@HOST/DATABASE")]
    Url,
    /// A statement failed, or the database cannot be reached.
    #[error("database {database}: {}", reason(cause))]
    Database {
        /// Host and name of the database.
        database: String,
        /// The database's reason.
        cause: sqlx::Error,
    },
    /// No answer came in time.
    #[error("database {database}: no answer within {} s", PATIENCE.as_secs())]
    Slow {
        /// Host and name of the database.
        database: String,
    },
    /// The tables cannot be made or brought up to date.
    #[error("cannot prepare the tables of database {database}: {cause}")]
    Migrate {
        /// Host and name of the database.
        database: String,
        /// The reason.
        cause: sqlx::migrate::MigrateError,
    },
    /// The time zone of a limit.
    #[error("the database knows no time zone {0}")]
    Zone(String),
}

impl QueueError {
    /// Whether the database refuses the login.
    pub fn is_login(&self) -> bool {
        matches!(self, Self::Database { cause, .. } if has_state(cause, "28"))
    }
}

/// Whether an error has an SQLSTATE that begins so.
fn has_state(cause: &sqlx::Error, beginning: &str) -> bool {
    let refusal = cause.as_database_error();
    refusal.is_some_and(|told| told.code().is_some_and(|code| code.starts_with(beginning)))
}

/// The database's words, without those that the client of PostgreSQL puts around them.
fn reason(cause: &sqlx::Error) -> String {
    // A wrong password, or none.
    let advice = match has_state(cause, "28P") {
        true => "; passwords are in ~/.pgpass, which only its owner may read (chmod 600)",
        false => "",
    };
    match cause.as_database_error() {
        Some(told) => format!("{}{advice}", told.message()),
        None => cause.to_string(),
    }
}

/// A connection to the queue. Clones share it.
#[derive(Debug, Clone)]
pub struct TransferQueue {
    pool: PgPool,
    database: String,
    /// All leases as this process has seen them.
    watch: Arc<Mutex<LeaseWatch>>,
    clock: WatchClock,
}

/// The clock by which leases of others end: time since a fixed moment.
#[derive(Clone)]
struct WatchClock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl fmt::Debug for WatchClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WatchClock")
    }
}

impl TransferQueue {
    /// Prepares connections to a database. None is made yet.
    ///
    /// # Errors
    /// `Url`.
    pub fn new(url: &str) -> Result<Self, QueueError> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(QueueError::Url);
        }
        let options = PgConnectOptions::from_str(url).map_err(|_| QueueError::Url)?;
        let options = options.application_name("longhaul-queue").options([
            ("search_path", SCHEMA),
            ("statement_timeout", "10s"),
            // A client that stands still must not hold up the fleet.
            ("lock_timeout", "8s"),
            ("idle_in_transaction_session_timeout", "10s"),
            // Arithmetic of times must not depend on the server's settings.
            ("TimeZone", "UTC"),
        ]);
        let host = match options.get_socket() {
            Some(socket) => socket.display().to_string(),
            None => format!("{}:{}", options.get_host(), options.get_port()),
        };
        let name = options
            .get_database()
            .unwrap_or_else(|| options.get_username());
        let database = format!("{name} at {host}");
        let pool = PgPoolOptions::new()
            .max_connections(4)
            .acquire_timeout(CONNECT)
            .connect_lazy_with(options);
        Ok(Self {
            pool,
            database,
            watch: Arc::default(),
            clock: WatchClock(Arc::new(boot_time)),
        })
    }

    /// Watches leases by another clock than the machine's, which counts the time since it started.
    #[must_use]
    pub fn with_clock(self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        let clock = WatchClock(Arc::new(clock));
        Self { clock, ..self }
    }

    /// Makes the tables, or brings them up to date. Tables that are, need no right to change the schema.
    ///
    /// # Errors
    /// The database cannot be reached or changed, or is of a later version of longhaul.
    pub async fn prepare(&self) -> Result<(), QueueError> {
        let migrator = migrator();
        let latest = migrator.iter().map(|one| one.version).max().unwrap_or(0);
        let found = match self.within(self.version()).await {
            Ok(found) => found,
            Err(error) => return Err(self.plain_error(error).await),
        };
        if found == Some(latest) {
            return Ok(());
        }
        self.within(self.make_schema()).await?;
        let migrated = tokio::time::timeout(PATIENCE * 4, migrator.run(&self.pool)).await;
        let database = self.database.clone();
        match migrated {
            Ok(Ok(())) => Ok(()),
            Ok(Err(cause)) => Err(QueueError::Migrate { database, cause }),
            Err(_) => Err(QueueError::Slow { database }),
        }
    }

    /// Why there is no connection. A pool tries again until its time is over and then tells only that: one more attempt tells
    /// the reason.
    async fn plain_error(&self, error: QueueError) -> QueueError {
        let QueueError::Database {
            database,
            cause: sqlx::Error::PoolTimedOut,
        } = error
        else {
            return error;
        };
        let options = self.pool.connect_options();
        let attempt = tokio::time::timeout(CONNECT, PgConnection::connect_with(&options)).await;
        let cause = match attempt {
            Ok(Err(plain)) => plain,
            Ok(Ok(_)) | Err(_) => sqlx::Error::PoolTimedOut,
        };
        QueueError::Database { database, cause }
    }

    async fn version(&self) -> Result<Option<i64>, sqlx::Error> {
        let table: Option<String> = sqlx::query_scalar("SELECT to_regclass($1)::text")
            .bind(format!("{SCHEMA}._sqlx_migrations"))
            .fetch_one(&self.pool)
            .await?;
        if table.is_none() {
            return Ok(None);
        }
        sqlx::query_scalar("SELECT MAX(version) FROM _sqlx_migrations WHERE success")
            .fetch_one(&self.pool)
            .await
    }

    async fn make_schema(&self) -> Result<(), sqlx::Error> {
        let mut transaction = self.pool.begin().await?;
        lock(&mut transaction, SCHEMA_LOCK).await?;
        let schema: Option<String> = sqlx::query_scalar("SELECT to_regnamespace($1)::text")
            .bind(SCHEMA)
            .fetch_one(&mut *transaction)
            .await?;
        // Without this question the right to make schemas would be needed also where there is one.
        if schema.is_none() {
            sqlx::query("CREATE SCHEMA longhaul_queue")
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await
    }

    /// Waits for a change that may concern a worker. A notice can be lost: whoever waits looks at intervals, too.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn listen(&self) -> Result<QueueNotices, QueueError> {
        self.within(async {
            let mut listener = PgListener::connect_with(&self.pool).await?;
            listener.listen(CHANNEL).await?;
            Ok(QueueNotices(listener))
        })
        .await
    }

    /// Host and name of the database, for messages.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Closes all connections.
    pub async fn close(&self) {
        // A connection that is cut does not answer.
        let _ = tokio::time::timeout(Duration::from_secs(2), self.pool.close()).await;
    }

    /// Waits for a call, and no longer than it may take.
    async fn within<T>(
        &self,
        call: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, QueueError> {
        let database = || self.database.clone();
        match tokio::time::timeout(PATIENCE, call).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(cause)) => Err(QueueError::Database {
                database: database(),
                cause,
            }),
            Err(_) => Err(QueueError::Slow {
                database: database(),
            }),
        }
    }
}

/// Notices of changes.
#[derive(Debug)]
pub struct QueueNotices(PgListener);

impl QueueNotices {
    /// Waits for the next one. `false`: the connection is lost, and with it perhaps notices.
    pub async fn next(&mut self) -> bool {
        matches!(self.0.try_recv().await, Ok(Some(_)))
    }
}

/// Takes an advisory lock until the end of the transaction.
async fn lock(connection: &mut PgConnection, key: i64) -> Result<(), sqlx::Error> {
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(key)
        .execute(connection)
        .await?;
    Ok(())
}

/// Wakes the workers when the transaction is committed.
async fn notify(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query("SELECT pg_notify($1, '')")
        .bind(CHANNEL)
        .execute(connection)
        .await?;
    Ok(())
}

/// The migrations. They run under an advisory lock, and leave their versions in `_sqlx_migrations`.
fn migrator() -> Migrator {
    let migrations = [
        ("queue", include_str!("../../migrations/0001_queue.sql")),
        (
            "set clocks",
            include_str!("../../migrations/0002_set_clocks.sql"),
        ),
    ];
    let migrations = migrations
        .into_iter()
        .zip(1..)
        .map(|((name, sql), version)| {
            let kind = MigrationType::Simple;
            Migration::new(version, name.into(), kind, sql.into_sql_str(), false)
        });
    Migrator::with_migrations(migrations.collect())
}
