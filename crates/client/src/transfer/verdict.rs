//! Verdict on a transfer, from the data side's result and the server's final reply. A transfer is
//! whole only when both say so.

use std::io::ErrorKind;

use data::error::DataError;
use data::job::Report;
use proto::eblock::BlockError;
use proto::reply::Reply;

use super::Confirmation;
use crate::session::control::unreachable;
use crate::session::replies::{Cause, cause, refusal, shown};
use crate::{Exit, Failure};

/// A transfer that failed.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The failure that the user is told.
    pub(crate) failure: Failure,
    /// The server's refusal, when that is the reason.
    pub(crate) refusal: Option<Reply>,
    /// The refusal came before the data side was started.
    pub(crate) before_data: bool,
    /// The server refused what it had sent or taken, or it contradicted itself: the count of bytes
    /// proves nothing. A lost connection is no such thing.
    pub(crate) disputed: bool,
    /// This machine's store refused to be read or written. A full disk of the server's, whose exit code
    /// is the same, is no such thing.
    pub(crate) store_failed: bool,
}

impl Ended {
    pub(crate) fn no_channel(server: &str, doing: &str) -> Self {
        Self::from(Failure {
            exit: Exit::Protocol,
            message: format!("no data connection is prepared to {doing} at {server}; try again"),
            transient: true,
        })
    }

    pub(crate) fn thread_lost(server: &str, doing: &str) -> Self {
        Self::from(Failure {
            exit: Exit::Local,
            message: format!(
                "the thread that was to {doing} at {server} ended unexpectedly; \
                 report this with the output above"
            ),
            transient: false,
        })
    }
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            refusal: None,
            before_data: false,
            disputed: false,
            store_failed: false,
        }
    }
}

impl From<Ended> for Failure {
    fn from(ended: Ended) -> Self {
        ended.failure
    }
}

/// Whether the failure is this end's own, so that the server's words would add nothing.
pub(crate) fn is_local(error: &DataError) -> bool {
    matches!(
        error,
        DataError::Read { .. }
            | DataError::Write { .. }
            | DataError::Shrunk { .. }
            | DataError::Outside { .. }
            | DataError::Scattered { .. }
            | DataError::Listen { .. }
            | DataError::Setup { .. }
            | DataError::TooManyStreams { .. }
    )
}

/// Whether the bytes themselves show that the peer is faulty.
fn is_faulty(error: &DataError) -> bool {
    match error {
        DataError::Outside { .. } | DataError::Scattered { .. } => true,
        DataError::Block { source, .. } => *source != BlockError::Truncated,
        _ => false,
    }
}

/// Weighs both sides. `answer` is the final reply, the loss of the control connection, or `None`
/// when it was not waited for.
pub(crate) fn of(
    server: &str,
    doing: &str,
    moved: Result<Report, DataError>,
    answer: Option<Result<Reply, Failure>>,
) -> Result<Report, Ended> {
    let error = match (moved, answer) {
        (Ok(report), Some(Ok(reply))) if reply.is_success() => return Ok(report),
        (Err(DataError::Aborted), Some(Ok(reply)))
            if !reply.is_success() && cause(&reply) == Cause::Lost =>
        {
            // The server lost a data connection whose end has not been seen here.
            let mut ended = refused(server, doing, reply);
            ended.disputed = false;
            return Err(ended);
        }
        (Ok(_) | Err(DataError::Aborted), Some(Ok(reply))) if !reply.is_success() => {
            return Err(refused(server, doing, reply));
        }
        (Ok(_) | Err(DataError::Aborted), Some(Err(lost))) => return Err(lost.into()),
        (Ok(_), _) => return Err(Ended::no_channel(server, doing)),
        (Err(error), Some(Ok(reply))) if !reply.is_success() && !is_local(&error) => {
            if cause(&reply) != Cause::Lost {
                return Err(refused(server, doing, reply));
            }
            let mut ended = broken(server, doing, &error);
            ended.failure.message =
                format!("{} ({server}: {})", ended.failure.message, shown(&reply));
            return Err(ended);
        }
        (Err(error), Some(Ok(reply))) if reply.is_success() && !is_local(&error) => {
            let mut ended = broken(server, doing, &error);
            ended.disputed = true;
            return Err(ended);
        }
        (Err(error), _) => error,
    };
    Err(broken(server, doing, &error))
}

/// A transfer that the server refused.
pub(super) fn refused(server: &str, doing: &str, reply: Reply) -> Ended {
    Ended {
        failure: refusal(server, doing, &reply),
        refusal: Some(reply),
        before_data: false,
        disputed: true,
        store_failed: false,
    }
}

/// A failure of the data side.
pub(super) fn broken(server: &str, doing: &str, error: &DataError) -> Ended {
    Ended {
        disputed: is_faulty(error),
        store_failed: matches!(error, DataError::Read { .. } | DataError::Write { .. }),
        ..data_failure(server, doing, error).into()
    }
}

/// The failure that an error of [`data::pull`] stands for: a reader's own failure is told as it is.
pub(crate) fn of_pull(place: &str, doing: &str, error: &DataError, said: &Confirmation) -> Failure {
    if let DataError::Read { source, .. } = error
        && let Some(own) = source.get_ref().and_then(|e| e.downcast_ref::<Failure>())
    {
        return own.clone();
    }
    let mut ended = broken(place, doing, error);
    if let DataError::Shrunk { .. } = error {
        // Nobody but this end has looked: what came is not what was announced.
        ended.failure.exit = Exit::Integrity;
    }
    said.note(&ended);
    ended.into()
}

/// The failure that an error of the data side stands for.
fn data_failure(server: &str, doing: &str, error: &DataError) -> Failure {
    let (exit, hint) = match error {
        DataError::Read { source, .. } | DataError::Write { source, .. } => {
            (Exit::Local, mend(source))
        }
        DataError::Shrunk { .. } => (Exit::Local, "copy it again when it no longer changes"),
        DataError::Listen { .. } => (Exit::Local, "check --data-ports, or use --mode s"),
        DataError::Setup { .. } => (Exit::Local, "leave the setting to the system"),
        DataError::TooManyStreams { .. } => (Exit::Local, "use fewer streams (-p)"),
        DataError::Aborted => (Exit::Interrupted, "use --resume to go on"),
        DataError::Outside { .. } => (
            Exit::Protocol,
            "the file grew, or the server is faulty: copy it again",
        ),
        DataError::NoPeer { .. } => {
            return unreachable(format!(
                "{error}: cannot {doing} at {server}; if a firewall is between, use --mode s"
            ));
        }
        DataError::Foreign { .. } => {
            return unreachable(format!(
                "{error}: cannot {doing} at {server}; use --mode s, or let the server's other hosts \
                 connect with --allow-foreign-data-address"
            ));
        }
        DataError::Scattered { .. } => (
            Exit::Protocol,
            "the server's extended blocks are faulty: use --mode s",
        ),
        DataError::Block { source, .. } if *source != BlockError::Truncated => (
            Exit::Protocol,
            "the server's extended blocks are faulty: use --mode s",
        ),
        DataError::Block { .. }
        | DataError::Connect { .. }
        | DataError::Wire { .. }
        | DataError::Stalled { .. } => {
            return unreachable(format!(
                "{error}: cannot {doing} at {server}; try again, with --resume"
            ));
        }
    };
    let message = match exit {
        // The server has no part in it.
        Exit::Local | Exit::Interrupted => format!("{error}; {hint}"),
        _ => format!("{error}: cannot {doing} at {server}; {hint}"),
    };
    Failure {
        exit,
        message,
        transient: false,
    }
}

/// Advice against an error of this machine's store.
fn mend(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room there and use --resume",
        _ => "mend that and use --resume",
    }
}
