//! Failures of a bucket as errors of files, and of reads and writes.

use std::io;
use std::time::{Duration, Instant};

use ftp::{Failure, FailureKind};
use parking_lot::Mutex;
use proto::server::{FileError, FileErrorKind};

/// Least time between two messages of the log about failures.
const TOLD_INTERVAL: Duration = Duration::from_secs(10);

/// When a failure was logged last.
static LAST_TOLD: Mutex<Option<Instant>> = Mutex::new(None);

/// The error of a file request. Its text is for the server's clients: what the administrator could do about it is logged.
pub(super) fn file_error(failure: &Failure) -> FileError {
    let kind = file_error_kind(failure);
    let is_told = !matches!(failure.kind(), FailureKind::Usage | FailureKind::NotFound)
        && kind != FileErrorKind::Aborted
        && may_tell(&mut LAST_TOLD.lock(), Instant::now());
    if is_told {
        tracing::warn!(%failure, "the bucket refuses requests, or cannot be reached");
    }
    FileError::new(kind, failure.reason().to_string())
}

/// Whether a failure is logged now: clients decide how many there are.
fn may_tell(last: &mut Option<Instant>, now: Instant) -> bool {
    let is_due = last.is_none_or(|last| now.duration_since(last) >= TOLD_INTERVAL);
    if is_due {
        *last = Some(now);
    }
    is_due
}

fn file_error_kind(failure: &Failure) -> FileErrorKind {
    match failure.kind() {
        FailureKind::NotFound => FileErrorKind::NotFound,
        FailureKind::Refused | FailureKind::LoginLimit | FailureKind::Usage => {
            FileErrorKind::Denied
        }
        FailureKind::NameTooLong => FileErrorKind::NameTooLong,
        FailureKind::ServerDiskFull | FailureKind::LocalDiskFull => FileErrorKind::NoSpace,
        FailureKind::Interrupted => FileErrorKind::Aborted,
        _ if failure.may_retry() => FileErrorKind::Unavailable,
        _ => FileErrorKind::Other,
    }
}

/// The error of a read or a write. A version that is gone is as a file that is gone: going on at another time would mix two.
pub(super) fn io_error(failure: &Failure) -> io::Error {
    let error = file_error(failure);
    let kind = match (failure.kind(), error.kind) {
        (FailureKind::Integrity, _) | (_, FileErrorKind::NotFound) => io::ErrorKind::NotFound,
        (_, FileErrorKind::Denied) => io::ErrorKind::PermissionDenied,
        (_, FileErrorKind::NoSpace) => io::ErrorKind::StorageFull,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_logged_now_and_then() {
        let (mut last, now) = (None, Instant::now());
        assert!(may_tell(&mut last, now));
        assert!(!may_tell(&mut last, now + TOLD_INTERVAL / 2));
        assert!(may_tell(&mut last, now + TOLD_INTERVAL));
    }

    #[test]
    fn a_version_that_is_gone_is_as_a_file_that_is_gone() {
        let gone = io_error(&Failure::new(FailureKind::Integrity, "it changed"));
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
        let away = io_error(&Failure::unreachable("no answer"));
        assert_eq!(
            (away.kind(), away.to_string()),
            (io::ErrorKind::Other, "no answer".to_owned())
        );
    }
}
