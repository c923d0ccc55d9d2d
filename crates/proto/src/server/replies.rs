//! The one place that gives a failure its reply (RFC 959 §4.2, §5.4).
//!
//! File errors have the structured form of the globus server, which its clients and gfal search
//! for the system's words:
//!
//! ```text
//! 550-GlobusError: v=1 c=PATH_NOT_FOUND
//! 550-GridFTP-Errno: 2
//! 550-GridFTP-Reason: RETR /data/x
//! 550-GridFTP-Error-String: No such file or directory
//! 550 End.
//! ```
//!
//! Who owns a file that is being stored is told in one line with the words `another upload`, which
//! `longhaul cp` looks for: it does not try again then.
//!
//! A code of 4xx invites clients to try again without change (lftp does so without end), so
//! only what may pass by itself gets one; a full directory or a missing name is 550 although the
//! globus server answers some of them with 451 or 500.

use super::{FileError, FileErrorKind, SessionAction, TransferError};
use crate::address::AddressError;
use crate::command::CommandError;
use crate::path::{PathError, VPath};
use crate::reply::Reply;

/// Actions for a command; the error is the actions when an argument is refused, so that `?`
/// ends the command there.
pub(super) type CommandResult = Result<Vec<SessionAction>, Vec<SessionAction>>;

/// Subject of a piece of work, for the text of its reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommandTarget {
    /// The command.
    pub(super) verb: &'static str,
    /// The path it works on.
    pub(super) path: VPath,
}

/// Everything that can go wrong with a command.
#[derive(Debug)]
pub(super) enum CommandFailure<'a> {
    /// The line is not a command.
    Command(&'a CommandError),
    /// The path argument cannot be one.
    Path(PathError),
    /// Work on files without a data channel.
    File(&'a CommandTarget, &'a FileError),
    /// No listener could be opened.
    Listen(&'a FileError),
    /// A transfer.
    Transfer(&'a CommandTarget, &'a TransferError),
}

/// The reply of a failure.
pub(super) fn failure_reply(failure: &CommandFailure<'_>) -> Reply {
    match failure {
        CommandFailure::Command(error) => command_error(error),
        CommandFailure::Path(error) => path_error(*error),
        CommandFailure::File(subject, error) if error.kind == FileErrorKind::Aborted => {
            Reply::new(426, format!("{} aborted.", subject.verb))
        }
        CommandFailure::File(subject, error) if error.kind == FileErrorKind::InUse => {
            in_use(subject)
        }
        CommandFailure::File(subject, error) => {
            file_error(metadata_code(error.kind), subject, error)
        }
        CommandFailure::Listen(error) => Reply::new(425, format!("Cannot listen: {}", error.text)),
        CommandFailure::Transfer(subject, error) => transfer_error(subject, error),
    }
}

/// One reply as all there is to do.
pub(super) fn reply(code: u16, text: impl AsRef<[u8]>) -> Vec<SessionAction> {
    vec![SessionAction::Reply(Reply::new(code, text))]
}

/// [`failure_reply`] as all there is to do.
pub(super) fn refuse(what: &CommandFailure<'_>) -> Vec<SessionAction> {
    vec![SessionAction::Reply(failure_reply(what))]
}

/// The error of a command that the account's rights do not allow.
pub(super) fn read_only_error() -> FileError {
    FileError {
        kind: FileErrorKind::Denied,
        errno: None,
        text: "Permission denied: this account may not change files".to_owned(),
    }
}

fn command_error(error: &CommandError) -> Reply {
    let code = match error {
        CommandError::UnknownVerb(_) => 500,
        CommandError::NotImplemented(_) => 502,
        CommandError::Syntax { .. } | CommandError::Address(AddressError::Malformed) => 501,
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
    }
}

fn transfer_error(subject: &CommandTarget, error: &TransferError) -> Reply {
    match error {
        TransferError::File(error) if error.kind == FileErrorKind::InUse => in_use(subject),
        TransferError::File(error) => file_error(transfer_code(error.kind), subject, error),
        TransferError::NoConnection(why) => {
            Reply::new(425, format!("Cannot open data connection: {why}"))
        }
        TransferError::Broken(why) => Reply::new(
            426,
            format!("Data connection closed; transfer aborted: {why}"),
        ),
        TransferError::Aborted => Reply::new(426, "Transfer aborted; data connection closed."),
        TransferError::Superseded => {
            reply_about_path(426, subject, "another upload took this file over.")
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

/// It passes by itself, when the other upload ends.
fn in_use(subject: &CommandTarget) -> Reply {
    reply_about_path(450, subject, "another upload is writing this file.")
}

fn reply_about_path(code: u16, subject: &CommandTarget, what: &str) -> Reply {
    Reply::new(
        code,
        [subject.path.as_bytes(), b": ", what.as_bytes()].concat(),
    )
}

fn file_error(code: u16, subject: &CommandTarget, error: &FileError) -> Reply {
    let (class, words) = globus_class_and_phrase(error.kind);
    let mut lines = vec![format!("GlobusError: v=1 c={class}").into_bytes()];
    if let Some(errno) = error.errno {
        lines.push(format!("GridFTP-Errno: {errno}").into_bytes());
    }
    let mut reason = format!("GridFTP-Reason: {} ", subject.verb).into_bytes();
    reason.extend_from_slice(subject.path.as_bytes());
    lines.push(reason);
    let text = if error.text.contains(words) {
        error.text.clone()
    } else {
        format!("{words}: {}", error.text)
    };
    lines.push(format!("GridFTP-Error-String: {text}").into_bytes());
    Reply::multi_line(code, lines)
}

/// The globus class of an error, and the words that clients look for in its text.
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
        FileErrorKind::OutsideRoot => ("PERMISSION_DENIED", "Permission denied"),
        FileErrorKind::Busy | FileErrorKind::InUse => ("INTERNAL_ERROR", "Server busy"),
        FileErrorKind::Aborted | FileErrorKind::Other => ("INTERNAL_ERROR", ""),
    }
}

fn metadata_code(kind: FileErrorKind) -> u16 {
    match kind {
        FileErrorKind::Busy | FileErrorKind::InUse => 450,
        FileErrorKind::NoSpace => 452,
        FileErrorKind::Exists => 553,
        _ => 550,
    }
}

fn transfer_code(kind: FileErrorKind) -> u16 {
    match kind {
        FileErrorKind::Busy | FileErrorKind::InUse => 450,
        FileErrorKind::NoSpace => 552,
        FileErrorKind::Other => 451,
        FileErrorKind::Exists => 553,
        _ => 550,
    }
}
