//! Certificate authorities, signing policies and revocation lists, and the verification of a peer's
//! chain against them.

use std::path::Path;
use std::time::SystemTime;

use openssl::x509::X509;

use super::DistinguishedName;

/// Trusted authorities. A grid directory (`HASH.0`, `HASH.signing_policy`, `HASH.r0`) also has
/// signing policies and revocation lists, and is read again when its files change.
#[derive(Debug)]
pub struct TrustStore {}

/// What a certificate is used for; decides the rules of its verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateUsage {
    /// The server of a TLS connection: extended key usage serverAuth or none; no proxies.
    TlsServer,
    /// The client of a TLS connection: clientAuth or none; no proxies.
    TlsClient,
    /// Either end of a GSI connection: any purpose, proxies allowed, signing policies required.
    Grid,
}

/// A verified peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerIdentity {
    /// Subject of the certificate that was shown.
    pub subject: DistinguishedName,
    /// The identity behind it: proxies stripped (equal to `subject` without proxies).
    pub identity: DistinguishedName,
    /// A limited proxy is in the chain.
    pub limited: bool,
    /// The chain as verified, leaf first, without the authority.
    pub chain: Vec<Vec<u8>>,
    /// End of validity of the chain.
    pub expires: SystemTime,
}

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
    /// A check of the chain failed.
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

impl TrustStore {
    /// The authorities of this system: SSL_CERT_FILE and SSL_CERT_DIR, else OpenSSL's defaults.
    ///
    /// # Errors
    /// [`TrustError::Store`]
    pub fn system() -> Result<Self, TrustError> {
        todo!()
    }

    /// The authorities of a PEM file, or of a directory (hashed or grid).
    ///
    /// # Errors
    /// [`TrustError::Store`]
    pub fn from_path(path: &Path) -> Result<Self, TrustError> {
        let _ = path;
        todo!()
    }

    /// The grid directory of X509_CERT_DIR, else `$HOME/.globus/certificates`, else
    /// `/etc/grid-security/certificates`.
    ///
    /// # Errors
    /// [`TrustError::Store`] naming the places that were searched.
    pub fn grid() -> Result<Self, TrustError> {
        todo!()
    }

    /// Trusts exactly these certificates, also if they are self-signed and no authorities (DCSC).
    pub fn exactly(certificates: Vec<X509>) -> Self {
        let _ = certificates;
        todo!()
    }

    /// Verifies a chain, leaf first.
    ///
    /// # Errors
    /// See [`TrustError`].
    pub fn verify(
        &self,
        chain: &[X509],
        usage: CertificateUsage,
        now: SystemTime,
    ) -> Result<PeerIdentity, TrustError> {
        let _ = (chain, usage, now);
        todo!()
    }
}

impl PeerIdentity {
    /// Checks that the leaf names `host` (a DNS name or an address).
    ///
    /// # Errors
    /// [`TrustError::Name`] with the names of the certificate.
    pub fn check_host(&self, host: &str) -> Result<(), TrustError> {
        let _ = host;
        todo!()
    }
}
