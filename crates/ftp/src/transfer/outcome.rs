//! Combines the data side's result and the server's final reply. A transfer is complete only when
//! both say so.

use std::io::ErrorKind;

use data::error::{DataError, ProtectionFault};
use data::job::TransferReport;
use proto::eblock::BlockError;
use proto::reply::Reply;

use super::TransferConfirmation;
use crate::failure::{Operation, Sentence};
use crate::network_proxy::proxy_advice;
use crate::session::replies::{RefusalCause, refusal_cause, refusal_failure};
use crate::{Failure, FailureKind};

/// A transfer that failed.
#[derive(Debug)]
pub struct FailedTransfer {
    /// The failure shown to the user.
    pub failure: Failure,
    /// The server's refusal, if that is the reason.
    pub refusal: Option<Reply>,
    /// The refusal came before the data side was started.
    pub(crate) refused_before_data: bool,
    /// The server refused the bytes it sent or received, or it contradicted itself, so the count of
    /// bytes proves nothing. A lost connection alone does not set this.
    pub disputed: bool,
    /// More bytes came than the server was asked for.
    pub(crate) overrun: bool,
    /// All has come, as the server says, though the connection ended without close_notify.
    pub(crate) end_is_unproved: bool,
    /// Reading or writing this machine's store failed. A full disk at the server, which has the
    /// same exit code, does not set this.
    pub(crate) store_failed: bool,
}

impl FailedTransfer {
    pub(crate) fn no_data_channel(server: &str, operation: &Operation) -> Self {
        Self::from(Failure::transient(
            FailureKind::Protocol,
            Sentence::from("no data connection is prepared to ")
                .operation(operation)
                .words(format_args!(" at {server}; try again")),
        ))
    }

    pub(crate) fn data_thread_lost(server: &str, operation: &Operation) -> Self {
        Self::from(Failure::local(
            Sentence::from("the thread for the transfer (")
                .operation(operation)
                .words(format_args!(
                    " at {server}) ended unexpectedly; report this with the output above"
                )),
        ))
    }
}

impl From<Failure> for FailedTransfer {
    fn from(failure: Failure) -> Self {
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

impl From<FailedTransfer> for Failure {
    fn from(failed: FailedTransfer) -> Self {
        failed.failure
    }
}

/// Whether the failure is local, so that the server's reply adds nothing.
pub fn is_local_error(error: &DataError) -> bool {
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
pub fn combine_results(
    server: &str,
    operation: &Operation,
    data_result: Result<TransferReport, DataError>,
    final_reply: Option<Result<Reply, Failure>>,
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
            let said = Sentence::from(format!("{server}: ")).reply(&reply);
            failed.failure = failed.failure.aside(said);
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
pub(super) fn refused_by_server(
    server: &str,
    operation: &Operation,
    reply: Reply,
) -> FailedTransfer {
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
pub(super) fn data_side_error(
    server: &str,
    operation: &Operation,
    error: &DataError,
) -> FailedTransfer {
    FailedTransfer {
        disputed: is_peer_fault(error),
        overrun: matches!(error, DataError::OutOfRange { .. }),
        store_failed: matches!(error, DataError::Read { .. } | DataError::Write { .. }),
        ..data_failure(server, operation, error).into()
    }
}

/// The failure for an error of [`data::pull`]. The reader's own failure is passed on unchanged.
pub fn pull_failure(
    storage: &str,
    operation: &Operation,
    error: &DataError,
    confirmation: &TransferConfirmation,
) -> Failure {
    if let DataError::Read { source, .. } = error
        && let Some(own_failure) = source.get_ref().and_then(|e| e.downcast_ref::<Failure>())
    {
        return own_failure.clone();
    }
    let mut failed = data_side_error(storage, operation, error);
    if let DataError::Shrunk { .. } = error {
        // Only this end counted the bytes: what arrived is not what was announced.
        failed.failure = failed.failure.of_kind(FailureKind::Integrity);
    }
    confirmation.record_failure(&failed);
    failed.into()
}

/// The failure for an error of the data side.
fn data_failure(server: &str, operation: &Operation, error: &DataError) -> Failure {
    let (kind, advice) = match error {
        DataError::Read { source, .. } => (FailureKind::Local, storage_error_advice(source)),
        DataError::Write { source, .. } => {
            (FailureKind::of_store(source), storage_error_advice(source))
        }
        DataError::Shrunk { .. } => (
            FailureKind::Local,
            "copy it again when it no longer changes",
        ),
        DataError::Listen { .. } => (FailureKind::Local, "check --data-ports, or use --mode s"),
        DataError::Setup { .. } => (FailureKind::Local, "leave the setting to the system"),
        DataError::TooManyStreams { .. } => (FailureKind::Local, "use fewer streams (-p)"),
        DataError::Aborted => (FailureKind::Interrupted, "repeat the command to go on"),
        DataError::OutOfRange { .. } => (
            FailureKind::Protocol,
            "the file grew, or the server is faulty: copy it again",
        ),
        DataError::NoPeer { .. } => (
            FailureKind::Unreachable,
            "if a firewall is between, use --mode s",
        ),
        DataError::HostNotAllowed { .. } => (
            FailureKind::Unreachable,
            "use --mode s, or let the server's other hosts connect with --allow-foreign-data-address",
        ),
        DataError::Tunnel { source, .. } => {
            let (kind, may_retry, advice) = proxy_advice(source);
            return Failure::new(kind, at_server(server, operation, error))
                .retried(may_retry)
                .advise(advice);
        }
        DataError::Scattered { .. } => (
            FailureKind::Protocol,
            "the server's extended blocks are faulty: use --mode s",
        ),
        DataError::Block { source, .. } if *source != BlockError::Truncated => (
            FailureKind::Protocol,
            "the server's extended blocks are faulty: use --mode s",
        ),
        DataError::Security {
            fault: ProtectionFault::NoAnswer,
            ..
        } => (
            FailureKind::Unreachable,
            "try again; if it happens each time, check the certificates of both ends and --data-protection",
        ),
        DataError::Security { fault, .. } if *fault != ProtectionFault::NoCloseNotify => (
            FailureKind::Refused,
            "check the certificates of both ends and --data-protection",
        ),
        // A server that dies under TLS says no more than one whose connection somebody cuts. Either
        // way the bytes so far are good.
        DataError::Security { .. }
        | DataError::Block { .. }
        | DataError::Connect { .. }
        | DataError::Carrier { .. }
        | DataError::Wire { .. }
        | DataError::Stalled { .. } => (FailureKind::Unreachable, "try again"),
    };
    let reason = match error {
        DataError::Read { what, source } => Sentence::from("cannot read ")
            .name(what)
            .words(format_args!(": {source}")),
        DataError::Write { what, source } => Sentence::from("cannot write ")
            .name(what)
            .words(format_args!(": {source}")),
        DataError::Shrunk { what, at, expected } => Sentence::about(what).words(format_args!(
            " shrank while it was sent: it ended at {at} of {expected} bytes"
        )),
        // The server is not involved.
        _ if matches!(kind, FailureKind::Local | FailureKind::Interrupted) => {
            error.to_string().into()
        }
        _ => at_server(server, operation, error),
    };
    Failure::new(kind, reason)
        .retried(kind == FailureKind::Unreachable)
        .advise(advice)
}

fn at_server(server: &str, operation: &Operation, error: &DataError) -> Sentence {
    Sentence::from(format!("{error}: cannot "))
        .operation(operation)
        .words(format_args!(" at {server}"))
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
