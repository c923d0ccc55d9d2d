//! The reason why a peer's certificate is refused.

use std::path::Path;

use super::name::DistinguishedName;

/// The reason why a peer's certificate is refused. The text has the failed check and the value that
/// failed, for the log and for the user at the client; peers are not told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    /// The authorities cannot be read.
    #[error("{0}")]
    Store(String),
    /// The peer showed no certificate.
    #[error("the peer has shown no certificate")]
    NoCertificate,
    /// No trusted authority vouches for the certificate.
    #[error("{subject}: {problem}")]
    UnknownAuthority {
        /// The certificate at fault.
        subject: DistinguishedName,
        /// The missing authority, and where it was looked for.
        problem: String,
    },
    /// Another check of the chain failed.
    #[error("{subject}: {problem}")]
    Chain {
        /// The certificate at fault.
        subject: DistinguishedName,
        /// The failed check, with its value.
        problem: String,
    },
    /// The certificate does not name the expected host or subject.
    #[error("{0}")]
    Name(String),
}

impl TrustError {
    /// The error of an action on a file or directory.
    pub(super) fn of_file(path: &Path, action: &str, problem: &dyn std::fmt::Display) -> Self {
        Self::Store(format!("cannot {action} {}: {problem}", path.display()))
    }
}
