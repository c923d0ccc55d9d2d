//! Converts statuses and errors of connections to failures.

use std::io;
use std::time::Duration;

use ftp::failure::{Operation, Sentence};
use ftp::incomplete_listing::IncompleteListing;
use ftp::{Failure, FailureKind};
use proto::printable::printable;
use proto::sftp::{SftpError, SftpReply, SftpStatus, SftpStatusCode};

/// Why a request has no result.
#[derive(Debug)]
pub(super) enum SftpFailed {
    /// The server refuses it.
    Refused(SftpStatus),
    /// The server refuses it, and its file system has no room for it.
    Full(SftpStatus),
    /// The connection has ended.
    Lost(io::Error),
    /// Nothing came for so long.
    Silent(Duration),
    /// The server breaks the protocol.
    Broken(SftpError),
    /// A reply belongs to no request, or to one of another kind.
    Unasked,
    /// The listing of this directory is not known to be complete.
    Incomplete(IncompleteListing, Vec<u8>),
    /// A failure of another part.
    Other(Failure),
}

impl SftpFailed {
    /// The code of a refusal.
    pub(super) fn code(&self) -> Option<SftpStatusCode> {
        match self {
            Self::Refused(status) => Some(status.code),
            _ => None,
        }
    }

    /// Whether the server may have ended.
    pub(super) fn is_loss(&self) -> bool {
        match self {
            Self::Refused(status) => status.code == SftpStatusCode::Lost,
            Self::Lost(_) | Self::Silent(_) | Self::Broken(_) | Self::Unasked => true,
            Self::Full(_) | Self::Incomplete(..) | Self::Other(_) => false,
        }
    }

    /// Whether the server has refused it for a reason that has no code: in this version most have none.
    pub(super) fn is_plain_refusal(&self) -> bool {
        matches!(
            self.code(),
            Some(SftpStatusCode::Failure | SftpStatusCode::Other(_))
        )
    }

    /// The failure for people.
    pub(super) fn failure(self, server: &str, operation: &Operation) -> Failure {
        let lost = |reason: String| {
            let reason = Sentence::cannot(operation)
                .words(format_args!(" at {server}: "))
                .words(reason);
            Failure::unreachable(reason)
        };
        match self {
            Self::Refused(status) => refusal(server, operation, &status),
            Self::Full(status) => operation
                .failed(
                    FailureKind::ServerDiskFull,
                    format_args!("the file system at {server} is full ({})", said(&status)),
                )
                .advise("make room there"),
            Self::Lost(error) => lost(format!("the connection was lost: {error}")),
            Self::Silent(time) => lost(format!("no answer in {} s", time.as_secs())),
            Self::Broken(error) => operation.failed(
                FailureKind::Protocol,
                format_args!("{server} does not speak SFTP 3: {error}"),
            ),
            Self::Unasked => operation.failed(
                FailureKind::Protocol,
                format_args!("{server} sends a reply that was not asked for"),
            ),
            Self::Incomplete(reason, path) => reason.failure(server, &path),
            Self::Other(failure) => failure,
        }
    }
}

fn refusal(server: &str, operation: &Operation, status: &SftpStatus) -> Failure {
    let (kind, advice) = match status.code {
        SftpStatusCode::NoSuchFile => (FailureKind::NotFound, "check the path"),
        SftpStatusCode::PermissionDenied => {
            (FailureKind::Refused, "this login may not do that there")
        }
        SftpStatusCode::Lost => (FailureKind::Unreachable, "try again"),
        SftpStatusCode::Unsupported => (FailureKind::Protocol, "the server cannot do that"),
        _ => (
            FailureKind::Protocol,
            "the server tells no other reason: check the space there, and what has the name",
        ),
    };
    operation
        .failed(kind, format_args!("{server} says: {}", said(status)))
        .retried(kind == FailureKind::Unreachable)
        .advise(advice)
}

/// The words of a status.
fn said(status: &SftpStatus) -> String {
    match printable(&status.text).to_string() {
        empty if empty.is_empty() => format!("status {:?}", status.code),
        text => text,
    }
}

/// The result of a request that has none but a status.
pub(super) fn done(reply: SftpReply) -> Result<(), SftpFailed> {
    match reply {
        SftpReply::Status(status) if status.code == SftpStatusCode::Ok => Ok(()),
        other => Err(unexpected(other)),
    }
}

/// The error of a reply that is no result.
pub(super) fn unexpected(reply: SftpReply) -> SftpFailed {
    match reply {
        SftpReply::Status(status) if status.code != SftpStatusCode::Ok => {
            SftpFailed::Refused(status)
        }
        _ => SftpFailed::Unasked,
    }
}
