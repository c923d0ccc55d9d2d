//! Proxy certificates (RFC 3820) and their older forms: recognised, requested, signed, verified.

use std::time::Duration;

use openssl::pkey::{PKey, Private};
use openssl::x509::X509;

use super::CertifiedKey;

/// Kind of a proxy certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyKind {
    /// Inherits all rights of its issuer.
    Full,
    /// Limited: may not start processes by convention of the Globus toolkit; file transfer accepts it.
    Limited,
    /// An identity of its own.
    Independent,
}

/// Options of a new proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyOptions {
    /// Kind.
    pub kind: ProxyKind,
    /// Longest validity; the issuer's end bounds it.
    pub valid: Duration,
    /// Number of further proxies that may be made from it; `None`: any.
    pub path_length: Option<u32>,
    /// RSA key size, bits; 2048 to 8192.
    pub key_bits: u32,
}

/// The reason why a proxy cannot be made or delegated.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// OpenSSL refused a step.
    #[error("cannot {step}: {source}")]
    OpenSsl {
        /// What was being done.
        step: &'static str,
        /// OpenSSL's reason.
        source: openssl::error::ErrorStack,
    },
    /// The request or the certificate of the peer is invalid.
    #[error("{0}")]
    Invalid(String),
}

/// The acceptor's side of a delegation: a new key that never leaves this process, and its request.
pub struct ProxyRequest {
    key: PKey<Private>,
}

impl ProxyRequest {
    /// Makes a key (RSA, `key_bits`) and a request for it.
    ///
    /// # Errors
    /// See [`ProxyError`].
    pub fn new(key_bits: u32) -> Result<Self, ProxyError> {
        let _ = key_bits;
        todo!()
    }

    /// The PKCS#10 request, DER.
    ///
    /// # Errors
    /// See [`ProxyError`].
    pub fn to_der(&self) -> Result<Vec<u8>, ProxyError> {
        let _ = &self.key;
        todo!()
    }

    /// Joins the signed certificate (DER) with the key and the chain of the delegating peer, which
    /// the certificate must fit: issuer, public key, subject, signature.
    ///
    /// # Errors
    /// [`ProxyError::Invalid`]
    pub fn complete(
        self,
        certificate: &[u8],
        peer_chain: &[X509],
    ) -> Result<CertifiedKey, ProxyError> {
        let _ = (certificate, peer_chain);
        todo!()
    }
}

/// Signs a peer's request (PKCS#10 DER) with a credential: the delegating side. Returns the
/// certificate, DER. Subject, key usage and extensions of the request are ignored.
///
/// # Errors
/// See [`ProxyError`].
pub fn sign_proxy(
    issuer: &CertifiedKey,
    request: &[u8],
    options: &ProxyOptions,
) -> Result<Vec<u8>, ProxyError> {
    let _ = (issuer, request, options);
    todo!()
}

impl CertifiedKey {
    /// A new proxy of this credential, with a key of its own (`longhaul proxy init`).
    ///
    /// # Errors
    /// See [`ProxyError`].
    pub fn new_proxy(&self, options: &ProxyOptions) -> Result<Self, ProxyError> {
        let _ = options;
        todo!()
    }
}
