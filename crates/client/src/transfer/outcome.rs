//! Verdict on a transfer, from the data side's result and the server's final reply. A transfer is
//! whole only when both say so.

use std::io::ErrorKind;

use data::error::DataError;
use data::job::TransferReport;
use proto::eblock::BlockError;
use proto::reply::Reply;

use super::TransferConfirmation;
use crate::session::control::unreachable_failure;
use crate::session::replies::{RefusalCause, display_reply, refusal_cause, refusal_failure};
use crate::{CopyFailure, Exit};

/// A transfer that failed.
#[derive(Debug)]
pub(crate) struct FailedTransfer {
    /// The failure that the user is told.
    pub(crate) failure: CopyFailure,
    /// The server's refusal, when that is the reason.
    pub(crate) refusal: Option<Reply>,
    /// The refusal came before the data side was started.
    pub(crate) refused_before_data: bool,
    /// The server refused what it had sent or taken, or it contradicted itself: the count of bytes
    /// proves nothing. A lost connection is no such thing.
    pub(crate) disputed: bool,
    /// This machine's store refused to be read or written. A full disk of the server's, whose exit code
    /// is the same, is no such thing.
    pub(crate) store_failed: bool,
}

impl FailedTransfer {
    pub(crate) fn no_data_channel(server: &str, doing: &str) -> Self {
        Self::from(CopyFailure {
            exit: Exit::Protocol,
            message: format!("no data connection is prepared to {doing} at {server}; try again"),
            transient: true,
        })
    }

    pub(crate) fn data_thread_lost(server: &str, doing: &str) -> Self {
        Self::from(CopyFailure {
            exit: Exit::Local,
            message: format!(
                "the thread that was to {doing} at {server} ended unexpectedly; \
                 report this with the output above"
            ),
            transient: false,
        })
    }
}

impl From<CopyFailure> for FailedTransfer {
    fn from(failure: CopyFailure) -> Self {
        Self {
            failure,
            refusal: None,
            refused_before_data: false,
            disputed: false,
            store_failed: false,
        }
    }
}

impl From<FailedTransfer> for CopyFailure {
    fn from(ended: FailedTransfer) -> Self {
        ended.failure
    }
}

/// Whether the failure is this end's own, so that the server's words would add nothing.
pub(crate) fn is_local_error(error: &DataError) -> bool {
    matches!(
        error,
        DataError::Read { .. }
            | DataError::Write { .. }
            | DataError::Shrunk { .. }
            | DataError::OutOfRange { .. }
            | DataError::Scattered { .. }
            | DataError::Listen { .. }
            | DataError::Setup { .. }
            | DataError::TooManyStreams { .. }
    )
}

/// Whether the bytes themselves show that the peer is faulty.
fn is_peer_fault(error: &DataError) -> bool {
    match error {
        DataError::OutOfRange { .. } | DataError::Scattered { .. } => true,
        DataError::Block { source, .. } => *source != BlockError::Truncated,
        _ => false,
    }
}

/// Weighs both sides. `answer` is the final reply, the loss of the control connection, or `None`
/// when it was not waited for.
pub(crate) fn combine_results(
    server: &str,
    doing: &str,
    moved: Result<TransferReport, DataError>,
    answer: Option<Result<Reply, CopyFailure>>,
) -> Result<TransferReport, FailedTransfer> {
    let error = match (moved, answer) {
        (Ok(report), Some(Ok(reply))) if reply.is_success() => return Ok(report),
        (Err(DataError::Aborted), Some(Ok(reply)))
            if !reply.is_success() && refusal_cause(&reply) == RefusalCause::Lost =>
        {
            // The server lost a data connection whose end has not been seen here.
            let mut ended = refused_by_server(server, doing, reply);
            ended.disputed = false;
            return Err(ended);
        }
        (Ok(_) | Err(DataError::Aborted), Some(Ok(reply))) if !reply.is_success() => {
            return Err(refused_by_server(server, doing, reply));
        }
        (Ok(_) | Err(DataError::Aborted), Some(Err(lost))) => return Err(lost.into()),
        (Ok(_), _) => return Err(FailedTransfer::no_data_channel(server, doing)),
        (Err(error), Some(Ok(reply))) if !reply.is_success() && !is_local_error(&error) => {
            if refusal_cause(&reply) != RefusalCause::Lost {
                return Err(refused_by_server(server, doing, reply));
            }
            let mut ended = data_side_error(server, doing, &error);
            ended.failure.message = format!(
                "{} ({server}: {})",
                ended.failure.message,
                display_reply(&reply)
            );
            return Err(ended);
        }
        (Err(error), Some(Ok(reply))) if reply.is_success() && !is_local_error(&error) => {
            let mut ended = data_side_error(server, doing, &error);
            ended.disputed = true;
            return Err(ended);
        }
        (Err(error), _) => error,
    };
    Err(data_side_error(server, doing, &error))
}

/// A transfer that the server refused.
pub(super) fn refused_by_server(server: &str, doing: &str, reply: Reply) -> FailedTransfer {
    FailedTransfer {
        failure: refusal_failure(server, doing, &reply),
        refusal: Some(reply),
        refused_before_data: false,
        disputed: true,
        store_failed: false,
    }
}

/// A failure of the data side.
pub(super) fn data_side_error(server: &str, doing: &str, error: &DataError) -> FailedTransfer {
    FailedTransfer {
        disputed: is_peer_fault(error),
        store_failed: matches!(error, DataError::Read { .. } | DataError::Write { .. }),
        ..data_failure(server, doing, error).into()
    }
}

/// The failure that an error of [`data::pull`] stands for: a reader's own failure is told as it is.
pub(crate) fn pull_failure(
    place: &str,
    doing: &str,
    error: &DataError,
    said: &TransferConfirmation,
) -> CopyFailure {
    if let DataError::Read { source, .. } = error
        && let Some(own) = source
            .get_ref()
            .and_then(|e| e.downcast_ref::<CopyFailure>())
    {
        return own.clone();
    }
    let mut ended = data_side_error(place, doing, error);
    if let DataError::Shrunk { .. } = error {
        // Nobody but this end has looked: what came is not what was announced.
        ended.failure.exit = Exit::Integrity;
    }
    said.record_failure(&ended);
    ended.into()
}

/// The failure that an error of the data side stands for.
fn data_failure(server: &str, doing: &str, error: &DataError) -> CopyFailure {
    let (exit, hint) = match error {
        DataError::Read { source, .. } | DataError::Write { source, .. } => {
            (Exit::Local, storage_error_advice(source))
        }
        DataError::Shrunk { .. } => (Exit::Local, "copy it again when it no longer changes"),
        DataError::Listen { .. } => (Exit::Local, "check --data-ports, or use --mode s"),
        DataError::Setup { .. } => (Exit::Local, "leave the setting to the system"),
        DataError::TooManyStreams { .. } => (Exit::Local, "use fewer streams (-p)"),
        DataError::Aborted => (Exit::Interrupted, "use --resume to go on"),
        DataError::OutOfRange { .. } => (
            Exit::Protocol,
            "the file grew, or the server is faulty: copy it again",
        ),
        DataError::NoPeer { .. } => {
            return unreachable_failure(format!(
                "{error}: cannot {doing} at {server}; if a firewall is between, use --mode s"
            ));
        }
        DataError::HostNotAllowed { .. } => {
            return unreachable_failure(format!(
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
            return unreachable_failure(format!(
                "{error}: cannot {doing} at {server}; try again, with --resume"
            ));
        }
    };
    let message = match exit {
        // The server has no part in it.
        Exit::Local | Exit::Interrupted => format!("{error}; {hint}"),
        _ => format!("{error}: cannot {doing} at {server}; {hint}"),
    };
    CopyFailure {
        exit,
        message,
        transient: false,
    }
}

/// Advice against an error of this machine's store.
fn storage_error_advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room there and use --resume",
        _ => "mend that and use --resume",
    }
}
