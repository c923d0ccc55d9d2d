//! Maps errors of the data channel to errors of the state machine.

use std::io;

use data::error::DataError;
use proto::server::{FileError, FileErrorKind, TransferError};

/// Classifies the error of a transfer: an error of the file, no data connection, or a broken data
/// connection. The class decides between the replies 425, 426 and those of file errors.
pub(crate) fn transfer_error(error: &DataError) -> TransferError {
    match error {
        DataError::Aborted => TransferError::Aborted,
        DataError::Connect { .. }
        | DataError::Tunnel { .. }
        | DataError::Carrier { .. }
        | DataError::NoPeer { .. } => {
            TransferError::NoConnection(error.to_string())
        }
        // The reply names the remedy for the client first, then the one for the administrator.
        DataError::HostNotAllowed { .. } => TransferError::NoConnection(format!(
            "{error}; others need an account that may make third-party transfers (it names the host with \
             SITE DATAPEER), or the server's setting foreign-data-addresses"
        )),
        // The log has the reason: a peer must not learn which check it failed.
        DataError::Security { .. } => TransferError::Broken(
            "the data connection failed its protection; check the certificates and PROT at both ends"
                .to_owned(),
        ),
        DataError::Wire { .. }
        | DataError::Stalled { .. }
        | DataError::Block { .. }
        | DataError::OutOfRange { .. }
        | DataError::Scattered { .. } => TransferError::Broken(error.to_string()),
        DataError::Read { .. }
        | DataError::Write { .. }
        | DataError::Shrunk { .. }
        | DataError::Listen { .. }
        | DataError::Setup { .. }
        | DataError::TooManyStreams { .. } => TransferError::File(file_error(error)),
    }
}

/// The same as a [`FileError`]. A resource that the system lacks for the moment (a port, memory for a
/// buffer, a thread) is [`FileErrorKind::Busy`].
pub(crate) fn file_error(error: &DataError) -> FileError {
    let text = error.to_string();
    let (kind, errno) = match error {
        DataError::Read { source, .. } | DataError::Write { source, .. } => {
            (kind_of(source), source.raw_os_error())
        }
        DataError::Listen { source, .. } | DataError::Setup { source, .. } => {
            (FileErrorKind::Busy, source.raw_os_error())
        }
        DataError::TooManyStreams { .. } => (FileErrorKind::Busy, None),
        _ => (FileErrorKind::Other, None),
    };
    FileError { kind, errno, text }
}

fn kind_of(source: &io::Error) -> FileErrorKind {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FileErrorKind::NoSpace,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            FileErrorKind::Denied
        }
        io::ErrorKind::IsADirectory => FileErrorKind::IsADirectory,
        io::ErrorKind::NotFound => FileErrorKind::NotFound,
        _ => FileErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENOSPC: i32 = 28;

    #[test]
    fn a_full_disk_is_a_file_error() {
        let error = transfer_error(&DataError::Write {
            what: "/f".to_owned(),
            source: io::Error::from_raw_os_error(ENOSPC),
        });
        let TransferError::File(error) = error else {
            panic!("{error:?}");
        };
        assert_eq!(error.kind, FileErrorKind::NoSpace);
        assert_eq!(error.errno, Some(ENOSPC));
        assert!(error.text.contains("No space left"), "{}", error.text);
    }

    #[test]
    fn missing_connections_are_distinguished_from_broken_ones() {
        assert!(matches!(
            transfer_error(&DataError::NoPeer { seconds: 9 }),
            TransferError::NoConnection(text) if text.contains("9 s")
        ));
        let foreign = DataError::HostNotAllowed {
            from: [192, 0, 2, 8].into(),
            seconds: 9,
        };
        assert!(matches!(
            transfer_error(&foreign),
            TransferError::NoConnection(text)
                if text.contains("192.0.2.8") && text.contains("foreign-data-addresses")
        ));
        assert!(matches!(
            transfer_error(&DataError::Stalled { seconds: 9 }),
            TransferError::Broken(_)
        ));
        assert_eq!(transfer_error(&DataError::Aborted), TransferError::Aborted);
    }
}
