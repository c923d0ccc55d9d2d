//! Replies to failures of files, transfers, listeners, paths and lines: this module decides their codes (RFC 959 §4.2,
//! §5.4). A command that its module refuses in its own state has its code there.
//!
//! File errors have the structured form of the globus server, so that its clients and gfal find the
//! system's error text where they expect it:
//!
//! ```text
//! 550-GlobusError: v=1 c=PATH_NOT_FOUND
//! 550-GridFTP-Errno: 2
//! 550-GridFTP-Reason: RETR /data/x
//! 550-GridFTP-Error-String: No such file or directory
//! 550 End.
//! ```
//!
//! When another upload owns a file, the reply is one line with the words `another upload`.
//! `longhaul cp` looks for them and does not retry.
//!
//! Clients repeat a command after 4xx without change (lftp does so forever), so only conditions that
//! may pass by themselves get such a code. A missing file or a directory that is not empty is 550,
//! although the globus server answers some of these with 451 or 500.

use super::{FileError, FileErrorKind, SessionAction, TransferError};
use crate::address::AddressError;
use crate::command::CommandError;
use crate::path::{PathError, VPath};
use crate::reply::Reply;

/// Actions of a command. The error holds the actions that refuse an argument, so that `?` ends the
/// command there.
pub(super) type CommandResult = Result<Vec<SessionAction>, Vec<SessionAction>>;

/// Command and path, for the text of replies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommandTarget {
    /// The command.
    pub(super) verb: &'static str,
    /// The path that it operates on.
    pub(super) path: VPath,
}

/// Failure of a command.
#[derive(Debug)]
pub(super) enum CommandFailure<'a> {
    /// The line is not a command.
    Command(&'a CommandError),
    /// The path argument is invalid.
    Path(PathError),
    /// A file operation without data channel failed.
    File(&'a CommandTarget, &'a FileError),
    /// The listener could not be opened.
    Listen(&'a FileError),
    /// A transfer failed.
    Transfer(&'a CommandTarget, &'a TransferError),
}

/// The reply to a failure.
pub(super) fn failure_reply(failure: &CommandFailure<'_>) -> Reply {
    match failure {
        CommandFailure::Command(error) => command_error(error),
        CommandFailure::Path(error) => path_error(*error),
        // RFC 959 §4.1.3: an aborted command gets 426 before the 226 for ABOR.
        CommandFailure::File(target, error) if error.kind == FileErrorKind::Aborted => {
            Reply::new(426, format!("{} aborted.", target.verb))
        }
        CommandFailure::File(target, error) if error.kind == FileErrorKind::InUse => in_use(target),
        CommandFailure::File(target, error) => {
            file_error(metadata_code(target.verb, error.kind), target, error)
        }
        CommandFailure::Listen(error) => Reply::new(425, format!("Cannot listen: {}", error.text)),
        CommandFailure::Transfer(target, error) => transfer_error(target, error),
    }
}

/// A single reply as the only action.
pub(super) fn reply(code: u16, text: impl AsRef<[u8]>) -> Vec<SessionAction> {
    vec![SessionAction::Reply(Reply::new(code, text))]
}

/// The reply to every accepted OPTS that has none of its own.
pub(super) fn options_accepted() -> Vec<SessionAction> {
    reply(200, "OPTS Command Successful.")
}

/// [`failure_reply`] as the only action.
pub(super) fn refuse(failure: &CommandFailure<'_>) -> Vec<SessionAction> {
    vec![SessionAction::Reply(failure_reply(failure))]
}

/// Error of a command that needs the right to write.
pub(super) fn read_only_error() -> FileError {
    FileError::new(
        FileErrorKind::Denied,
        "Permission denied: this account may not change files",
    )
}

fn command_error(error: &CommandError) -> Reply {
    let code = match error {
        CommandError::UnknownVerb(_) => 500,
        CommandError::NotImplemented(_) => 502,
        CommandError::Syntax { .. } | CommandError::Address(AddressError::Malformed) => 501,
        // RFC 2228 §3 has 536 for a level that the mechanism does not support, and 504 for an unknown one.
        // The globus server replies 536 to both.
        CommandError::UnsupportedParameter { verb: "PROT", .. } => 536,
        CommandError::UnsupportedParameter { .. } => 504,
        CommandError::Address(AddressError::UnsupportedProtocol) => 522,
    };
    let text = match error {
        CommandError::UnknownVerb(verb) if verb.is_empty() => {
            "An empty line is no command.".to_owned()
        }
        CommandError::Address(AddressError::Malformed) => {
            "Illegal host-port: expected h1,h2,h3,h4,p1,p2 or |protocol|address|port|.".to_owned()
        }
        CommandError::Address(AddressError::UnsupportedProtocol) => {
            "Network protocol not supported, use (1,2).".to_owned()
        }
        other => other.to_string(),
    };
    Reply::new(code, text)
}

fn path_error(error: PathError) -> Reply {
    match error {
        PathError::Nul | PathError::Empty | PathError::NotAName => {
            Reply::new(501, format!("Bad path: {error}."))
        }
        PathError::TooLong => Reply::new(550, "File name too long"),
        // Clients search for the first words.
        PathError::NoSuchUser => Reply::new(550, "No such file or directory: no such user"),
    }
}

fn transfer_error(target: &CommandTarget, error: &TransferError) -> Reply {
    match error {
        TransferError::File(error) if error.kind == FileErrorKind::InUse => in_use(target),
        TransferError::File(error) => file_error(transfer_code(error.kind), target, error),
        TransferError::NoConnection(reason) => {
            Reply::new(425, format!("Cannot open data connection: {reason}"))
        }
        TransferError::Broken(reason) => Reply::new(
            426,
            format!("Data connection closed; transfer aborted: {reason}"),
        ),
        TransferError::Aborted => Reply::new(426, "Transfer aborted; data connection closed."),
        TransferError::Superseded => {
            reply_about_path(426, target, "another upload took this file over.")
        }
        TransferError::Checksum { computed, expected } => Reply::multi_line(
            550,
            vec![
                b"GlobusError: v=1 c=INCORRECT_CHECKSUM".to_vec(),
                format!("GridFTP-Computed-Checksum: {computed}").into_bytes(),
                format!("GridFTP-Expected-Checksum: {expected}").into_bytes(),
            ],
        ),
    }
}

/// Reply when another upload owns the file. 450, since the condition passes when that upload ends.
fn in_use(target: &CommandTarget) -> Reply {
    reply_about_path(450, target, "another upload is writing this file.")
}

fn reply_about_path(code: u16, target: &CommandTarget, failure: &str) -> Reply {
    Reply::new(
        code,
        [target.path.as_bytes(), b": ", failure.as_bytes()].concat(),
    )
}

fn file_error(code: u16, target: &CommandTarget, error: &FileError) -> Reply {
    let (class, phrase) = globus_class_and_phrase(error.kind);
    let mut lines = vec![format!("GlobusError: v=1 c={class}").into_bytes()];
    if let Some(errno) = error.errno {
        lines.push(format!("GridFTP-Errno: {errno}").into_bytes());
    }
    let mut reason = format!("GridFTP-Reason: {} ", target.verb).into_bytes();
    reason.extend_from_slice(target.path.as_bytes());
    lines.push(reason);
    // Clients show or search the text for these phrases, so they are added when the system text has other
    // words.
    let text = if error.text.contains(phrase) {
        error.text.clone()
    } else {
        format!("{phrase}: {}", error.text)
    };
    lines.push(format!("GridFTP-Error-String: {text}").into_bytes());
    Reply::multi_line(code, lines)
}

/// The globus error class of an error, and the phrase that clients look for in its text.
fn globus_class_and_phrase(kind: FileErrorKind) -> (&'static str, &'static str) {
    match kind {
        FileErrorKind::NotFound => ("PATH_NOT_FOUND", "No such file or directory"),
        FileErrorKind::Denied => ("PERMISSION_DENIED", "Permission denied"),
        FileErrorKind::Exists => ("PATH_EXISTS", "File exists"),
        FileErrorKind::NotADirectory => ("NOT_A_DIRECTORY", "Not a directory"),
        FileErrorKind::IsADirectory => ("IS_A_DIRECTORY", "Is a directory"),
        FileErrorKind::NotEmpty => ("INTERNAL_ERROR", "Directory not empty"),
        FileErrorKind::NoSpace => ("INTERNAL_ERROR", "No space left"),
        FileErrorKind::NameTooLong => ("INTERNAL_ERROR", "File name too long"),
        // The reply must not reveal whether a file exists outside the root.
        FileErrorKind::OutsideRoot => ("PERMISSION_DENIED", "Permission denied"),
        FileErrorKind::Busy | FileErrorKind::InUse => ("INTERNAL_ERROR", "Server busy"),
        FileErrorKind::Unavailable
        | FileErrorKind::Unsupported
        | FileErrorKind::Aborted
        | FileErrorKind::Other => ("INTERNAL_ERROR", ""),
    }
}

fn metadata_code(verb: &str, kind: FileErrorKind) -> u16 {
    match kind {
        FileErrorKind::Busy | FileErrorKind::InUse => 450,
        // 550 would say of a file that it is not there.
        FileErrorKind::Unavailable => 451,
        // A client that reads 502 does without the command.
        FileErrorKind::Unsupported => 502,
        FileErrorKind::NoSpace => 452,
        // RFC 959 §5.4 has 550 for MKD, and 553 for RNTO. rclone takes only 550 and 521 for "it exists already".
        FileErrorKind::Exists if verb == "RNTO" => 553,
        _ => 550,
    }
}

fn transfer_code(kind: FileErrorKind) -> u16 {
    match kind {
        FileErrorKind::Busy | FileErrorKind::InUse => 450,
        // 452 would invite clients such as lftp to repeat the whole transfer.
        FileErrorKind::NoSpace => 552,
        // An unknown error during a transfer may pass (RFC 959 §4.2.2: 451 local error in processing).
        FileErrorKind::Unavailable | FileErrorKind::Other => 451,
        // The command is known; this form of it (with REST, at an offset) is not.
        FileErrorKind::Unsupported => 504,
        FileErrorKind::Exists => 553,
        _ => 550,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_is_away_is_no_missing_file_and_what_it_cannot_do_is_not_implemented() {
        let codes = |kind| (metadata_code("SIZE", kind), transfer_code(kind));
        assert_eq!(codes(FileErrorKind::Unavailable), (451, 451));
        assert_eq!(codes(FileErrorKind::Unsupported), (502, 504));
        assert_eq!(codes(FileErrorKind::NotFound), (550, 550));
    }
}
