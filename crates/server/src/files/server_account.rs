//! Words for the client about changes that the account that serves may not make: the remedy is at the server.

use proto::server::{FileError, FileErrorKind};
use rustix::io::Errno;

/// The error of a change that the session may make. If the system refuses it to the account that serves, the text says
/// whose matter that is: otherwise users look for the reason in their own account. By the last words a client of longhaul
/// knows that no other login helps.
pub(super) fn told_as_the_servers(error: FileError) -> FileError {
    let reason = match (error.kind, error.errno.map(Errno::from_raw_os_error)) {
        (FileErrorKind::Denied, Some(Errno::ROFS)) => {
            "the server has this file system mounted read-only"
        }
        (FileErrorKind::Denied, Some(_)) => "the account that the server runs as may not do this",
        _ => return error,
    };
    FileError {
        text: format!(
            "{}; {reason}, which its administrator can change",
            error.text
        ),
        ..error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(kind: FileErrorKind, errno: Option<Errno>) -> String {
        let text = "cannot open /f: Permission denied".to_owned();
        let errno = errno.map(Errno::raw_os_error);
        told_as_the_servers(FileError { kind, errno, text }).text
    }

    #[test]
    fn what_the_system_refuses_is_the_servers_matter_and_nothing_else() {
        let denied = FileErrorKind::Denied;
        let text = told(denied, Some(Errno::ACCESS));
        let told_last = "the account that the server runs as may not do this, which its administrator can change";
        assert!(text.ends_with(told_last), "{text}");
        assert!(told(denied, Some(Errno::ROFS)).contains("mounted read-only"));
        for (kind, errno) in [
            (denied, None),
            (FileErrorKind::NotFound, Some(Errno::NOENT)),
        ] {
            assert!(!told(kind, errno).contains("administrator"), "{kind:?}");
        }
    }
}
