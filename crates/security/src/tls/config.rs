//! Configuration of TLS connections.

use std::sync::Arc;

use crate::tls::TlsError;
use crate::x509::{CertifiedKey, DistinguishedName, TrustStore};

/// Side of a TLS connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsRole {
    /// Sends the ClientHello.
    Client,
    /// Answers it.
    Server,
}

/// Oldest TLS version that is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    #[default]
    V1_2,
    /// TLS 1.3 (RFC 8446).
    V1_3,
}

/// Rules of the certificates and ciphers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsProfile {
    /// The web's rules: purposes checked, no proxies. FTPS (RFC 4217) and HTTPS.
    Web,
    /// GSI: any purpose, proxies, no session tickets, the certificate authority is sent with the
    /// chain. The TLS 1.2 suites without encryption are never offered or accepted.
    Grid,
}

/// Whether a server asks clients for certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientCertificates {
    /// No.
    #[default]
    None,
    /// Asks; a client without one is served, one with an invalid one is not.
    Optional,
    /// Refuses clients without one.
    Required,
}

/// Who the peer must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedPeer {
    /// Anyone whose chain is trusted.
    Trusted,
    /// The certificate names this host.
    Host(String),
    /// The identity is this one (DCAU A and S).
    Identity(DistinguishedName),
    /// The leaf is exactly this certificate (DER).
    Certificate(Vec<u8>),
    /// Nothing is checked (`--insecure`).
    Unverified,
}

/// Options of TLS connections.
#[derive(Debug, Clone)]
pub struct TlsOptions {
    /// Side.
    pub role: TlsRole,
    /// Rules.
    pub profile: TlsProfile,
    /// Own certificate; a server needs one.
    pub credential: Option<CertifiedKey>,
    /// Authorities for the peer's certificate; `None` with [`ExpectedPeer::Unverified`], or for a
    /// server that asks for no certificates.
    pub trust: Option<Arc<TrustStore>>,
    /// Server: client certificates. The grid profile always requires them, at both ends.
    pub client_certificates: ClientCertificates,
    /// Who the peer must be.
    pub expected: ExpectedPeer,
    /// Host name for SNI (RFC 6066), client only.
    pub server_name: Option<String>,
    /// Oldest version.
    pub oldest: TlsVersion,
    /// Server: session tickets may be given, so that a second connection resumes the first's
    /// session. Tickets are valid only for connections of the same [`TlsConfig`]: a server makes one
    /// per control connection, so a resumed data connection is the control connection's client.
    pub tickets: bool,
}

/// A checked configuration, shared by connections. Cheap to clone.
#[derive(Clone)]
pub struct TlsConfig {
    pub(super) inner: Arc<TlsConfigInner>,
}

pub(super) struct TlsConfigInner {
    pub(super) options: TlsOptions,
    pub(super) context: openssl::ssl::SslContext,
}

impl TlsConfig {
    /// Checks the options.
    ///
    /// # Errors
    /// [`TlsError::Config`]
    pub fn new(options: TlsOptions) -> Result<Self, TlsError> {
        let _ = options;
        todo!()
    }

    /// The options.
    pub fn options(&self) -> &TlsOptions {
        let _ = &self.inner.context;
        &self.inner.options
    }
}

impl std::fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsConfig")
            .field("role", &self.inner.options.role)
            .finish_non_exhaustive()
    }
}
