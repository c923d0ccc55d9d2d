//! The meaning of a server's refusal: by its code where that has one meaning, otherwise by its [`words`].

mod words;

use proto::reply::Reply;

pub(super) use words::{Meaning, means, says};

use words::lowercase_text;

use crate::failure::{Operation, Sentence};
use crate::{Failure, FailureKind};

/// Cause of a refusal, whatever the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusalCause {
    /// The path does not exist.
    Missing,
    /// The name to be created exists.
    Exists,
    /// The path is a directory where a file is needed.
    Directory,
    /// The path is no file: a directory, a device, a link to nothing.
    NoFile,
    /// The account lacks permission, or the login is refused.
    Denied,
    /// The server wants protected data connections.
    Unprotected,
    /// The server's disk or quota is full.
    Full,
    /// A connection was lost or timed out: another attempt may succeed.
    Lost,
    /// The server is busy or the file is locked: another attempt may succeed.
    Busy,
    /// Another upload is storing the same file and has priority.
    Occupied,
    /// The server's file system cannot hold such a long name.
    NameTooLong,
    /// The server does not support the command or its argument.
    Unsupported,
    /// Anything else.
    Other,
}

/// Causes that words tell, whatever the code. Full is before Missing and Denied, since "not allowed: quota exceeded" is about
/// space.
const TOLD_CAUSES: [RefusalCause; 7] = [
    RefusalCause::Full,
    RefusalCause::Missing,
    RefusalCause::Exists,
    RefusalCause::Directory,
    RefusalCause::NoFile,
    RefusalCause::Denied,
    RefusalCause::NameTooLong,
];

/// Reads the cause of a refusal. A code with one meaning decides alone. Otherwise the text comes first, since servers agree
/// more on the system's error strings than on codes.
pub(crate) fn refusal_cause(reply: &Reply) -> RefusalCause {
    let text = lowercase_text(reply);
    let tells = |cause| means(&text, Meaning::Refused(cause));
    match reply.code {
        // Whatever the code: the command is known, and so is the name's fault.
        500 | 502 | 504 | 552 if tells(RefusalCause::NameTooLong) => {
            return RefusalCause::NameTooLong;
        }
        426 | 450 if tells(RefusalCause::Occupied) => return RefusalCause::Occupied,
        421 => return RefusalCause::Lost,
        452 | 552 => return RefusalCause::Full,
        // RFC 4217 §10.1 and RFC 2228: 521 is also "directory exists".
        521 | 522 | 533 | 534 if tells(RefusalCause::Unprotected) => {
            return RefusalCause::Unprotected;
        }
        430 | 530 | 532 | 534 => return RefusalCause::Denied,
        521 => return RefusalCause::Exists,
        202 | 502 | 504 => return RefusalCause::Unsupported,
        500 if !means(&text, Meaning::GlobusError) => {
            let told = [RefusalCause::Full, RefusalCause::Lost]
                .into_iter()
                .find(|cause| tells(*cause));
            return told.unwrap_or(RefusalCause::Unsupported);
        }
        _ => {}
    }
    if let Some(told) = TOLD_CAUSES.into_iter().find(|cause| tells(*cause)) {
        told
    } else if matches!(reply.code, 425 | 426) || tells(RefusalCause::Lost) {
        RefusalCause::Lost
    } else if means(&text, Meaning::NotEmpty) {
        // A 4xx to RMD of a directory that is not empty does not go away by itself.
        RefusalCause::Other
    } else if reply.is_transient_error() {
        RefusalCause::Busy
    } else if matches!(reply.code, 500..=504) {
        RefusalCause::Unsupported
    } else {
        RefusalCause::Other
    }
}

/// The failure for a refused operation.
pub(crate) fn refusal_failure(server: &str, operation: &Operation, reply: &Reply) -> Failure {
    use FailureKind::{
        DestinationBusy, NameTooLong, NotFound, Protocol, Refused, ServerDiskFull, Unreachable,
        Usage,
    };
    let (kind, advice) = match refusal_cause(reply) {
        RefusalCause::Missing => (NotFound, "check the path"),
        RefusalCause::Exists => (Protocol, "choose another name, or remove it first"),
        // The server's own reason says what there is to say.
        RefusalCause::Directory if !operation.takes_trees() => {
            return refused(Usage, server, operation, reply);
        }
        RefusalCause::Directory => (Usage, "it is a directory: use -r"),
        RefusalCause::NoFile if !operation.takes_trees() => (Usage, "name a regular file"),
        RefusalCause::NoFile => (Usage, "name a regular file, or use -r if it is a directory"),
        // No other login helps: the server's own words say whose matter it is.
        RefusalCause::Denied if says(reply, Meaning::ServersAccount) => {
            return refused(Refused, server, operation, reply);
        }
        RefusalCause::Denied => (
            Refused,
            "log in as a user who may, or ask the server's administrator",
        ),
        RefusalCause::Unprotected => (
            Refused,
            "it wants protected data: use ftps: or gsiftp:, with --data-protection private",
        ),
        // As with a full local disk: only free space helps, so a retry is no use.
        RefusalCause::Full => (
            ServerDiskFull,
            "the server's disk or quota is full: make room there and repeat the command",
        ),
        RefusalCause::Lost => (Unreachable, "try again"),
        RefusalCause::Busy => (Unreachable, "try again later"),
        RefusalCause::Occupied => (
            DestinationBusy,
            "wait until the other copy ends, or use --wait",
        ),
        RefusalCause::NameTooLong => (NameTooLong, "choose a shorter name"),
        RefusalCause::Unsupported | RefusalCause::Other => {
            (Protocol, "see the server's own log for the reason")
        }
    };
    let may_retry = matches!(kind, Unreachable | DestinationBusy);
    refused(kind, server, operation, reply)
        .retried(may_retry)
        .advise(advice)
}

/// A permanent failure of a refused operation, without advice.
pub(crate) fn refused(
    kind: FailureKind,
    server: &str,
    operation: &Operation,
    reply: &Reply,
) -> Failure {
    let reason = Sentence::from(format!("{server} refused to ")).operation(operation);
    Failure::new(kind, reason.words(": ").reply(reply))
}

/// Whether a permanent refusal gives no reason (vsftpd: "Delete operation failed.").
pub(crate) fn gives_no_reason(reply: &Reply) -> bool {
    matches!(reply.code, 550 | 553)
        && refusal_cause(reply) == RefusalCause::Other
        && !says(reply, Meaning::NotEmpty)
}

/// Whether the server uses one text for a missing file and for a file without permission (vsftpd:
/// "Failed to open file.").
pub(crate) fn hides_existence(reply: &Reply) -> bool {
    refusal_cause(reply) == RefusalCause::Missing && says(reply, Meaning::Failed)
}

/// The failure for a path that the server does not show.
pub(crate) fn not_found_failure(server: &str, path: &str, reply: &Reply) -> Failure {
    let reason = Sentence::from(format!("{server} has no ")).name(path);
    let reason = reason.words(" (").reply(reply).words(")");
    Failure::new(FailureKind::NotFound, reason).advise("check the path")
}

/// Whether a refused session or login says that there are too many sessions, by its code or its words.
pub(crate) fn names_session_limit(reply: &Reply) -> bool {
    reply.code == 421 || says(reply, Meaning::SessionLimit)
}

/// Whether the server does not support the command, so that an alternative is worth trying.
pub(crate) fn is_unsupported(reply: &Reply) -> bool {
    matches!(reply.code, 202 | 500 | 501 | 502 | 503 | 504)
        && refusal_cause(reply) == RefusalCause::Unsupported
}

#[cfg(test)]
mod tests;
