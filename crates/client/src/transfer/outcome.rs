//! Combines the data side's result and the server's final reply. A transfer is complete only when
//! both say so.

use std::io::ErrorKind;

use data::error::{DataError, ProtectionFault};
use data::job::TransferReport;
use proto::eblock::BlockError;
use proto::reply::Reply;

use super::TransferConfirmation;
use crate::network_proxy::proxy_advice;
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
    /// More bytes came than the server was asked for.
    pub(crate) overrun: bool,
    /// All has come, as the server says, though the connection ended without close_notify.
    pub(crate) end_is_unproved: bool,
    /// Reading or writing this machine's store failed. A full disk at the server, which has the
    /// same exit code, does not set this.
    pub(crate) store_failed: bool,
}

impl FailedTransfer {
    pub(crate) fn no_data_channel(server: &str, operation: &str) -> Self {
        Self::from(CopyFailure::transient(
            Exit::Protocol,
            format!("no data connection is prepared to {operation} at {server}; try again"),
        ))
    }

    pub(crate) fn data_thread_lost(server: &str, operation: &str) -> Self {
        Self::from(CopyFailure::new(
            Exit::Local,
            format!(
                "the thread for the transfer ({operation} at {server}) ended unexpectedly; \
                 report this with the output above"
            ),
        ))
    }
}

impl From<CopyFailure> for FailedTransfer {
    fn from(failure: CopyFailure) -> Self {
        Self {
            failure,
            refusal: None,
            refused_before_data: false,
            disputed: false,
            overrun: false,
            end_is_unproved: false,
            store_failed: false,
        }
    }
}

impl From<FailedTransfer> for CopyFailure {
    fn from(failed: FailedTransfer) -> Self {
        failed.failure
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

/// Combines both sides. `final_reply` is the reply itself, the loss of the control connection, or
/// `None` when it was not waited for.
pub(crate) fn combine_results(
    server: &str,
    operation: &str,
    data_result: Result<TransferReport, DataError>,
    final_reply: Option<Result<Reply, CopyFailure>>,
) -> Result<TransferReport, FailedTransfer> {
    let error = match (data_result, final_reply) {
        // Success needs both: the data side's result and a 2xx reply.
        (Ok(report), Some(Ok(reply))) if reply.is_success() => return Ok(report),
        (Err(DataError::Aborted), Some(Ok(reply)))
            if !reply.is_success() && refusal_cause(&reply) == RefusalCause::Lost =>
        {
            // The server lost a data connection whose end this side has not seen.
            let mut failed = refused_by_server(server, operation, reply);
            failed.disputed = false;
            return Err(failed);
        }
        (Ok(_) | Err(DataError::Aborted), Some(Ok(reply))) if !reply.is_success() => {
            return Err(refused_by_server(server, operation, reply));
        }
        (Ok(_) | Err(DataError::Aborted), Some(Err(lost))) => return Err(lost.into()),
        (Ok(_), _) => return Err(FailedTransfer::no_data_channel(server, operation)),
        // A remote refusal with a reason explains the broken data connection.
        (Err(error), Some(Ok(reply))) if !reply.is_success() && !is_local_error(&error) => {
            if refusal_cause(&reply) != RefusalCause::Lost {
                return Err(refused_by_server(server, operation, reply));
            }
            let mut failed = data_side_error(server, operation, &error);
            failed.failure.message = format!(
                "{} ({server}: {})",
                failed.failure.message,
                display_reply(&reply)
            );
            return Err(failed);
        }
        // The server reports success although the data connection broke: the two contradict each
        // other.
        (Err(error), Some(Ok(reply))) if reply.is_success() && !is_local_error(&error) => {
            let mut failed = data_side_error(server, operation, &error);
            failed.disputed = true;
            failed.end_is_unproved = matches!(
                error,
                DataError::Security {
                    fault: ProtectionFault::NoCloseNotify,
                    ..
                }
            );
            return Err(failed);
        }
        (Err(error), _) => error,
    };
    Err(data_side_error(server, operation, &error))
}

/// A transfer that the server refused.
pub(super) fn refused_by_server(server: &str, operation: &str, reply: Reply) -> FailedTransfer {
    FailedTransfer {
        failure: refusal_failure(server, operation, &reply),
        refusal: Some(reply),
        refused_before_data: false,
        disputed: true,
        overrun: false,
        end_is_unproved: false,
        store_failed: false,
    }
}

/// A failure of the data side.
pub(super) fn data_side_error(server: &str, operation: &str, error: &DataError) -> FailedTransfer {
    FailedTransfer {
        disputed: is_peer_fault(error),
        overrun: matches!(error, DataError::OutOfRange { .. }),
        store_failed: matches!(error, DataError::Read { .. } | DataError::Write { .. }),
        ..data_failure(server, operation, error).into()
    }
}

/// The failure for an error of [`data::pull`]. The reader's own failure is passed on unchanged.
pub(crate) fn pull_failure(
    storage: &str,
    operation: &str,
    error: &DataError,
    confirmation: &TransferConfirmation,
) -> CopyFailure {
    if let DataError::Read { source, .. } = error
        && let Some(own_failure) = source
            .get_ref()
            .and_then(|e| e.downcast_ref::<CopyFailure>())
    {
        return own_failure.clone();
    }
    let mut failed = data_side_error(storage, operation, error);
    if let DataError::Shrunk { .. } = error {
        // Only this end counted the bytes: what arrived is not what was announced.
        failed.failure.exit = Exit::Integrity;
    }
    confirmation.record_failure(&failed);
    failed.into()
}

/// The failure for an error of the data side.
fn data_failure(server: &str, operation: &str, error: &DataError) -> CopyFailure {
    let (exit, hint) = match error {
        DataError::Read { source, .. } | DataError::Write { source, .. } => {
            (Exit::Local, storage_error_advice(source))
        }
        DataError::Shrunk { .. } => (Exit::Local, "copy it again when it no longer changes"),
        DataError::Listen { .. } => (Exit::Local, "check --data-ports, or use --mode s"),
        DataError::Setup { .. } => (Exit::Local, "leave the setting to the system"),
        DataError::TooManyStreams { .. } => (Exit::Local, "use fewer streams (-p)"),
        DataError::Aborted => (Exit::Interrupted, "repeat the command to go on"),
        DataError::OutOfRange { .. } => (
            Exit::Protocol,
            "the file grew, or the server is faulty: copy it again",
        ),
        DataError::NoPeer { .. } => {
            return CopyFailure::unreachable(format!(
                "{error}: cannot {operation} at {server}; if a firewall is between, use --mode s"
            ));
        }
        DataError::HostNotAllowed { .. } => {
            return CopyFailure::unreachable(format!(
                "{error}: cannot {operation} at {server}; use --mode s, or let the server's other hosts \
                 connect with --allow-foreign-data-address"
            ));
        }
        DataError::Tunnel { source, .. } => {
            let (exit, transient, advice) = proxy_advice(source);
            return CopyFailure {
                transient,
                ..CopyFailure::new(
                    exit,
                    format!("{error}: cannot {operation} at {server}; {advice}"),
                )
            };
        }
        DataError::Scattered { .. } => (
            Exit::Protocol,
            "the server's extended blocks are faulty: use --mode s",
        ),
        DataError::Block { source, .. } if *source != BlockError::Truncated => (
            Exit::Protocol,
            "the server's extended blocks are faulty: use --mode s",
        ),
        // A server that dies under TLS says no more than one whose connection somebody cuts. Either
        // way the bytes so far are good.
        DataError::Security {
            fault: ProtectionFault::NoCloseNotify,
            ..
        } => {
            return CopyFailure::unreachable(format!(
                "{error}: cannot {operation} at {server}; try again"
            ));
        }
        DataError::Security { .. } => (
            Exit::Refused,
            "check the certificates of both ends and --data-protection",
        ),
        DataError::Block { .. }
        | DataError::Connect { .. }
        | DataError::Wire { .. }
        | DataError::Stalled { .. } => {
            return CopyFailure::unreachable(format!(
                "{error}: cannot {operation} at {server}; try again"
            ));
        }
    };
    let message = match exit {
        // The server is not involved.
        Exit::Local | Exit::Interrupted => format!("{error}; {hint}"),
        _ => format!("{error}: cannot {operation} at {server}; {hint}"),
    };
    match error {
        DataError::Write { source, .. } => CopyFailure::of_store(message, source),
        _ => CopyFailure::new(exit, message),
    }
}

/// Advice for an error of this machine's store.
fn storage_error_advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "make room there and repeat the command"
        }
        // Standard output, which nothing resumes.
        ErrorKind::BrokenPipe => "the program that reads it has ended",
        _ => "correct that and repeat the command",
    }
}
