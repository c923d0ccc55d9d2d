//! Maps a server's refusal to a failure for the user: the one place where reply codes and texts
//! become exit classes.

use proto::reply::Reply;

use crate::{CopyFailure, Exit};

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
    /// The server does not support the command or its argument.
    Unsupported,
    /// Anything else.
    Other,
}

const MISSING: [&str; 12] = [
    "no such file",
    "no such directory",
    "path_not_found",
    "not found",
    // IIS: "The system cannot find the file specified."
    "cannot find the",
    "does not exist",
    "doesn't exist",
    // vsftpd says no more about a file that it cannot open, stat or enter.
    "failed to open file",
    "could not get file size",
    "failed to change directory",
    // ProFTPD, Pure-FTPd
    "cannot be listed",
    "can't check for file existence",
];
const VAGUE: [&str; 3] = [
    "failed to open file",
    "could not get file size",
    "failed to change directory",
];
const EXISTS: [&str; 3] = ["file exists", "already exists", "directory exists"];
const DIRECTORY: [&str; 1] = ["is a directory"];
const NO_FILE: [&str; 4] = [
    "not a plain file",
    "not a file",
    // ProFTPD, Pure-FTPd
    "not a regular file",
    "only retrieve regular files",
];
const DENIED: [&str; 10] = [
    "permission",
    "denied",
    "not allowed",
    "not permitted",
    "read-only",
    "readonly",
    "forbidden",
    "not authorized",
    "prohibited",
    "anonymous users",
];
const FULL: [&str; 6] = [
    "no space left",
    "disk full",
    "quota exceeded",
    "insufficient storage",
    // RFC 959's texts for 452 and 552, which some servers send with other codes.
    "insufficient system storage",
    "exceeded storage allocation",
];
/// globus-gridftp-server answers every error with code 500. Elsewhere the code means that the server does not know the
/// command, whatever its words ("SIZE: command not found").
const GLOBUS: [&str; 4] = ["globus", "gridftp-", "command failed", "system error in"];
const LOST: [&str; 8] = [
    "unable to connect",
    "connection refused",
    "connection reset",
    "timed out",
    "broken pipe",
    "end-of-file was reached",
    "callback failed",
    // globus-gridftp-server, of a data connection that has gone while it was used.
    "handle not in the proper state",
];

/// Texts of a longhaul server: 450 for an upload beside a running one, 426 for an upload that a
/// newer one replaces. No other server is known to send them.
const OCCUPIED: [&str; 1] = ["another upload"];

/// Words of servers that have as many sessions as they serve at a time, for all or for one user.
const SESSION_LIMIT: [&str; 4] = ["too many", "maximum", "limit", "already logged in"];

/// Words of servers that refuse a clear data connection.
const UNPROTECTED: [&str; 5] = ["encrypt", "prot ", "protect", "ssl", "tls"];

/// Reads the cause of a refusal. A code with one meaning decides alone. Otherwise the text comes first, since servers agree
/// more on the system's error strings than on codes.
pub(crate) fn refusal_cause(reply: &Reply) -> RefusalCause {
    let text = lowercase_text(reply);
    let contains_any = |words: &[&str]| words.iter().any(|w| text.contains(w));
    match reply.code {
        426 | 450 if contains_any(&OCCUPIED) => return RefusalCause::Occupied,
        421 => return RefusalCause::Lost,
        452 | 552 => return RefusalCause::Full,
        // RFC 4217 §10.1 and RFC 2228: 521 is also "directory exists".
        521 | 522 | 533 | 534 if contains_any(&UNPROTECTED) => return RefusalCause::Unprotected,
        430 | 530 | 532 | 534 => return RefusalCause::Denied,
        521 => return RefusalCause::Exists,
        202 | 502 | 504 => return RefusalCause::Unsupported,
        500 if !contains_any(&GLOBUS) => {
            return match () {
                () if contains_any(&FULL) => RefusalCause::Full,
                () if contains_any(&LOST) => RefusalCause::Lost,
                () => RefusalCause::Unsupported,
            };
        }
        _ => {}
    }
    // Full is checked before Missing and Denied, since "not allowed: quota exceeded" is about
    // space.
    if contains_any(&FULL) {
        RefusalCause::Full
    } else if contains_any(&MISSING) {
        RefusalCause::Missing
    } else if contains_any(&EXISTS) {
        RefusalCause::Exists
    } else if contains_any(&DIRECTORY) {
        RefusalCause::Directory
    } else if contains_any(&NO_FILE) {
        RefusalCause::NoFile
    } else if contains_any(&DENIED) {
        RefusalCause::Denied
    } else if matches!(reply.code, 425 | 426) || contains_any(&LOST) {
        RefusalCause::Lost
    } else if text.contains("not empty") {
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

/// The failure for a refusal. `operation` is in the infinitive, with the path: `read /data/x`.
pub(crate) fn refusal_failure(server: &str, operation: &str, reply: &Reply) -> CopyFailure {
    let (exit, transient, hint) = match refusal_cause(reply) {
        RefusalCause::Missing => (Exit::NotFound, false, "check the path"),
        RefusalCause::Exists => (
            Exit::Protocol,
            false,
            "choose another name, or remove it first",
        ),
        RefusalCause::Directory => (Exit::Usage, false, "it is a directory: use -r"),
        RefusalCause::NoFile => (
            Exit::Usage,
            false,
            "name a regular file, or use -r if it is a directory",
        ),
        RefusalCause::Denied => (
            Exit::Refused,
            false,
            "log in as a user who may, or ask the server's administrator",
        ),
        RefusalCause::Unprotected => (
            Exit::Refused,
            false,
            "it wants protected data: use ftps: or gsiftp:, with --data-protection private",
        ),
        // As with a full local disk: only free space helps, so a retry is no use.
        RefusalCause::Full => (
            Exit::Local,
            false,
            "the server's disk or quota is full: make room there and repeat the command",
        ),
        RefusalCause::Lost => (Exit::Unreachable, true, "try again"),
        RefusalCause::Busy => (Exit::Unreachable, true, "try again later"),
        // As `CopyFailure::occupied`.
        RefusalCause::Occupied => (
            Exit::Local,
            true,
            "wait until the other copy ends, or use --wait",
        ),
        RefusalCause::Unsupported | RefusalCause::Other => (
            Exit::Protocol,
            false,
            "see the server's own log for the reason",
        ),
    };
    let message = format!(
        "{server} refused to {operation}: {}; {hint}",
        display_reply(reply)
    );
    CopyFailure {
        transient,
        no_room: refusal_cause(reply) == RefusalCause::Full,
        ..CopyFailure::new(exit, message)
    }
}

/// Whether a permanent refusal gives no reason (vsftpd: "Delete operation failed.").
pub(crate) fn gives_no_reason(reply: &Reply) -> bool {
    matches!(reply.code, 550 | 553)
        && refusal_cause(reply) == RefusalCause::Other
        && !lowercase_text(reply).contains("not empty")
}

/// Whether the server uses one text for a missing file and for a file without permission (vsftpd:
/// "Failed to open file.").
pub(crate) fn hides_existence(reply: &Reply) -> bool {
    let text = lowercase_text(reply);
    refusal_cause(reply) == RefusalCause::Missing && VAGUE.iter().any(|word| text.contains(word))
}

/// The failure for a path that the server does not show.
pub(crate) fn not_found_failure(server: &str, path: &str, reply: &Reply) -> CopyFailure {
    CopyFailure::new(
        Exit::NotFound,
        format!(
            "{server} has no {path} ({}); check the path",
            display_reply(reply)
        ),
    )
}

/// Whether a refused session or login says that there are too many sessions, by its code or its words.
pub(crate) fn names_session_limit(reply: &Reply) -> bool {
    let text = lowercase_text(reply);
    reply.code == 421 || SESSION_LIMIT.iter().any(|word| text.contains(word))
}

/// Whether the server does not support the command, so that an alternative is worth trying.
pub(crate) fn is_unsupported(reply: &Reply) -> bool {
    matches!(reply.code, 202 | 500 | 501 | 502 | 503 | 504)
        && refusal_cause(reply) == RefusalCause::Unsupported
}

/// Code and text in one line, without a full stop at its end: it stands inside a sentence.
pub(crate) fn display_reply(reply: &Reply) -> String {
    let text = reply.summary();
    let text = text.trim();
    let text = match text.strip_suffix('.') {
        Some(sentence) if !sentence.ends_with('.') => sentence,
        _ => text,
    };
    format!("{} {text}", reply.code)
}

fn lowercase_text(reply: &Reply) -> String {
    reply
        .lines
        .iter()
        .map(|line| String::from_utf8_lossy(line).to_lowercase())
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(code: u16, lines: &[&str]) -> Reply {
        Reply {
            code,
            lines: lines.iter().map(|l| l.as_bytes().to_vec()).collect(),
        }
    }

    #[test]
    fn a_reply_stands_inside_a_sentence() {
        let shown = |text| display_reply(&reply(530, &[text]));
        assert_eq!(shown("Send AUTH TLS first. "), "530 Send AUTH TLS first");
        assert_eq!(shown("Wait ..."), "530 Wait ...");
        assert_eq!(shown("No"), "530 No");
    }

    #[test]
    fn refusal_texts_of_real_servers_have_exit_classes() {
        let table: &[(u16, &[&str], Exit, bool)] = &[
            (550, &["Failed to open file."], Exit::NotFound, false),
            (
                550,
                &["/x: No such file or directory"],
                Exit::NotFound,
                false,
            ),
            (
                550,
                &["GlobusError: v=1 c=PATH_NOT_FOUND", "End."],
                Exit::NotFound,
                false,
            ),
            (
                500,
                &[
                    "Command failed. : x",
                    "globus_xio: System error in open: Permission denied",
                ],
                Exit::Refused,
                false,
            ),
            (550, &["Permission denied."], Exit::Refused, false),
            (
                530,
                &["Please login with USER and PASS."],
                Exit::Refused,
                false,
            ),
            (552, &["Exceeded storage allocation"], Exit::Local, false),
            (452, &["Transfer failed."], Exit::Local, false),
            (451, &["No space left on device"], Exit::Local, false),
            (
                500,
                &[
                    "Command failed. : x",
                    "globus_xio: System error in write: Disk quota exceeded",
                ],
                Exit::Local,
                false,
            ),
            (450, &["file busy"], Exit::Unreachable, true),
            (421, &["Idle Timeout"], Exit::Unreachable, true),
            (
                425,
                &["Can't open data connection."],
                Exit::Unreachable,
                true,
            ),
            (
                426,
                &["Failure writing network stream."],
                Exit::Unreachable,
                true,
            ),
            (
                500,
                &[
                    "Command failed. : x",
                    "globus_xio: Unable to connect to 1.2.3.4:5",
                ],
                Exit::Unreachable,
                true,
            ),
            (500, &["Unknown command."], Exit::Protocol, false),
            (550, &["/d: File exists"], Exit::Protocol, false),
            (521, &["Directory exists"], Exit::Protocol, false),
            (
                522,
                &["Data connections must be encrypted."],
                Exit::Refused,
                false,
            ),
            (
                521,
                &["Data connection cannot be opened with this PROT setting"],
                Exit::Refused,
                false,
            ),
            (550, &["/d: Is a directory"], Exit::Usage, false),
            (550, &["/d: Not a regular file"], Exit::Usage, false),
            (451, &["Directory not empty"], Exit::Protocol, false),
        ];
        for (code, lines, exit, transient) in table {
            let failure = refusal_failure("h:21", "read /x", &reply(*code, lines));
            assert_eq!(
                (failure.exit, failure.transient),
                (*exit, *transient),
                "{code} {lines:?}"
            );
            assert!(failure.message.contains("h:21") && failure.message.contains("/x"));
        }
    }

    #[test]
    fn a_concurrent_upload_is_reported_as_occupied() {
        let refused = |code, text| refusal_failure("h:21", "write /x", &reply(code, &[text]));
        let taken = "/x: another upload took this file over.";
        for (code, text) in [
            (450, "/x: another upload is writing this file"),
            (426, taken),
        ] {
            let failure = refused(code, text);
            assert!(
                failure.is_destination_busy() && failure.exit == Exit::Local,
                "{text}"
            );
        }
        assert!(!refused(450, "/x: file busy").is_destination_busy());
        assert!(!refused(226, "another upload").is_destination_busy());
    }

    #[test]
    fn a_limit_of_sessions_is_told_by_code_or_words() {
        for (code, text) in [
            (421, "Service not available"),
            (530, "Sorry, the maximum number of clients is connected"),
            (530, "You are already logged in"),
        ] {
            assert!(names_session_limit(&reply(code, &[text])), "{text}");
        }
        assert!(!names_session_limit(&reply(530, &["Login incorrect."])));
    }

    #[test]
    fn only_unknown_commands_count_as_unsupported() {
        assert!(is_unsupported(&reply(500, &["Unknown command."])));
        assert!(is_unsupported(&reply(502, &["Command not implemented."])));
        assert!(!is_unsupported(&reply(550, &["Permission denied."])));
        let globus = ["Command failed. : x", "No such file or directory"];
        assert!(!is_unsupported(&reply(500, &globus)));
    }

    #[test]
    fn words_beside_the_code_of_an_unknown_command_say_nothing_about_the_file() {
        for (code, text) in [
            (500, "SIZE: command not found"),
            (500, "x: No such file or directory"),
            (502, "SIZE not found"),
            (504, "Permission denied"),
        ] {
            assert!(is_unsupported(&reply(code, &[text])), "{code} {text}");
        }
    }

    #[test]
    fn only_an_explicit_text_means_directory() {
        let cause = |text| refusal_cause(&reply(550, &[text]));
        assert_eq!(cause("/d: Is a directory"), RefusalCause::Directory);
        // A device, say.
        assert_eq!(cause("/d: not a plain file"), RefusalCause::NoFile);
        assert_eq!(cause("Delete operation failed."), RefusalCause::Other);
        assert_eq!(cause("No such file or directory"), RefusalCause::Missing);
    }
}
