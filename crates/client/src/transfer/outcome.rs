//! Combines the data side's result and the server's final reply. A transfer is complete only when
//! both say so.

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
    /// The failure shown to the user.
    pub(crate) failure: CopyFailure,
    /// The server's refusal, if that is the reason.
    pub(crate) refusal: Option<Reply>,
    /// The refusal came before the data side was started.
    pub(crate) refused_before_data: bool,
    /// The server refused the bytes it sent or received, or it contradicted itself, so the count of
    /// bytes proves nothing. A lost connection alone does not set this.
    pub(crate) disputed: bool,
    /// Reading or writing this machine's store failed. A full disk at the server, which has the
    /// same exit code, does not set this.
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
                "the thread for the transfer ({doing} at {server}) ended unexpectedly; \
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

/// Whether the failure is local, so that the server's reply adds nothing.
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

/// Whether the received bytes show that the peer is faulty.
fn is_peer_fault(error: &DataError) -> bool {
    match error {
        DataError::OutOfRange { .. } | DataError::Scattered { .. } => true,
        DataError::Block { source, .. } => *source != BlockError::Truncated,
        _ => false,
    }
}

/// Combines both sides. `answer` is the final reply, the loss of the control connection, or `None`
/// when it was not waited for.
pub(crate) fn combine_results(
    server: &str,
    doing: &str,
    moved: Result<TransferReport, DataError>,
    answer: Option<Result<Reply, CopyFailure>>,
) -> Result<TransferReport, FailedTransfer> {
    let error = match (moved, answer) {
        // Success needs both: the data side's result and a 2xx reply.
        (Ok(report), Some(Ok(reply))) if reply.is_success() => return Ok(report),
        (Err(DataError::Aborted), Some(Ok(reply)))
            if !reply.is_success() && refusal_cause(&reply) == RefusalCause::Lost =>
        {
            // The server lost a data connection whose end this side has not seen.
            let mut ended = refused_by_server(server, doing, reply);
            ended.disputed = false;
            return Err(ended);
        }
        (Ok(_) | Err(DataError::Aborted), Some(Ok(reply))) if !reply.is_success() => {
            return Err(refused_by_server(server, doing, reply));
        }
        (Ok(_) | Err(DataError::Aborted), Some(Err(lost))) => return Err(lost.into()),
        (Ok(_), _) => return Err(FailedTransfer::no_data_channel(server, doing)),
        // A remote refusal with a reason explains the broken data connection.
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
        // The server reports success although the data connection broke: the two contradict each
        // other.
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

/// The failure for an error of [`data::pull`]. The reader's own failure is passed on unchanged.
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
        // Only this end counted the bytes: what arrived is not what was announced.
        ended.failure.exit = Exit::Integrity;
    }
    said.record_failure(&ended);
    ended.into()
}

/// The failure for an error of the data side.
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
        // The server is not involved.
        Exit::Local | Exit::Interrupted => format!("{error}; {hint}"),
        _ => format!("{error}: cannot {doing} at {server}; {hint}"),
    };
    CopyFailure {
        exit,
        message,
        transient: false,
    }
}

/// Advice for an error of this machine's store.
fn storage_error_advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room there and use --resume",
        _ => "correct that and use --resume",
    }
}
