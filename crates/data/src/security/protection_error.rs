//! Failed checks of the protection of a data connection.

use std::io;

use security::tls::TlsError;
use security::x509::TrustError;

/// A check of a data connection's protection that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProtectionError {
    /// TLS, or the peer's certificate.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A stranger may have opened the connection.
    #[error("the connection does not resume the TLS session of the control connection")]
    NotResumed,
    /// RFC 8446 §6.1.
    #[error("the connection ended without close_notify, so the file may be cut off")]
    NoCloseNotify,
    /// FIN instead of an answer.
    #[error("the peer closed the connection during the TLS handshake")]
    ClosedInHandshake,
    /// See [`crate::tls_handshake::HANDSHAKE_TIMEOUT`].
    #[error("the TLS handshake did not finish within {seconds} s")]
    Timeout {
        /// The time limit.
        seconds: u64,
    },
}

/// The kind of a failed check of a protected data connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtectionFault {
    /// The peer has proved an identity, which is not the expected one.
    OtherIdentity,
    /// The connection ended without close_notify.
    NoCloseNotify,
    /// The peer ended, or was silent, before the handshake was done: it may be lost, or refuse without a word.
    NoAnswer,
    /// Any other.
    Other,
}

impl ProtectionError {
    /// Whether an error of a connection is a FIN without close_notify.
    pub(crate) fn is_missing_close(error: &io::Error) -> bool {
        let inner = error.get_ref().and_then(|e| e.downcast_ref());
        matches!(inner, Some(Self::NoCloseNotify))
    }

    /// The kind of the failure.
    pub(crate) fn fault(&self) -> ProtectionFault {
        match self {
            Self::Tls(TlsError::Peer(TrustError::Name(_))) => ProtectionFault::OtherIdentity,
            Self::NoCloseNotify => ProtectionFault::NoCloseNotify,
            Self::ClosedInHandshake | Self::Timeout { .. } => ProtectionFault::NoAnswer,
            _ => ProtectionFault::Other,
        }
    }
}

impl From<ProtectionError> for io::Error {
    fn from(error: ProtectionError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}
