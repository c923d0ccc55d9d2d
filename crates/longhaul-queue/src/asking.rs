//! The database that a verb asks, and how it fails.

use std::future::Future;
use std::io;

use command_line::flags::queue::{DATABASE, QueueDatabaseArgs};
use queue::copy::CopyRefused;
use queue::store::{QueueError, TransferQueue};
use queue::worker::{CredentialsError, StateError};
use units::Exit;

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QueueFailure {
    #[error("{0}")]
    Usage(String),
    #[error("line {line} of {file}: {cause}")]
    Line {
        file: String,
        line: usize,
        cause: String,
    },
    #[error(transparent)]
    Refused(#[from] CopyRefused),
    #[error(transparent)]
    Database(#[from] QueueError),
    #[error("there is no job {0}")]
    NoJob(i64),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(transparent)]
    Guard(#[from] queue::guard::GuardError),
    #[error("{what}: {cause}")]
    Local { what: String, cause: io::Error },
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
    #[error("{0}")]
    Missing(String),
}

impl QueueFailure {
    pub(crate) fn local(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |cause| Self::Local { what, cause }
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) | Self::Line { .. } | Self::Refused(_) => Exit::Usage,
            Self::Database(QueueError::Url | QueueError::Zone(_)) => Exit::Usage,
            Self::Database(refused) if refused.is_login() => Exit::Refused,
            Self::Database(_) => Exit::Unreachable,
            Self::NoJob(_) => Exit::NotFound,
            Self::Credentials(_) => Exit::Usage,
            Self::State(_)
            | Self::Guard(_)
            | Self::Local { .. }
            | Self::Output(_)
            | Self::Missing(_) => Exit::Local,
        }
    }
}

/// The queue in the database of the flags.
pub(crate) fn open(args: &QueueDatabaseArgs) -> Result<TransferQueue, QueueFailure> {
    let url = match &args.database {
        Some(url) => url.clone(),
        None => std::env::var(DATABASE).map_err(|_| {
            QueueFailure::Usage(format!(
                "which database? Give --database postgres://USER@HOST/NAME, or set {DATABASE}"
            ))
        })?,
    };
    Ok(TransferQueue::new(&url)?)
}

/// Runs a verb with the database, whose tables are brought up to date first.
pub(crate) fn ask<T>(
    args: &QueueDatabaseArgs,
    verb: impl AsyncFnOnce(TransferQueue) -> Result<T, QueueFailure>,
) -> Result<T, QueueFailure> {
    block_on(async {
        let queue = open(args)?;
        queue.prepare().await?;
        let answer = verb(queue.clone()).await;
        queue.close().await;
        answer
    })
}

/// Runs on one thread: a worker's bytes move in other processes.
pub(crate) fn block_on<T>(
    future: impl Future<Output = Result<T, QueueFailure>>,
) -> Result<T, QueueFailure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(QueueFailure::local("cannot start"))?
        .block_on(future)
}
