//! TLS settings of plain FTP servers.

use std::path::PathBuf;

use anyhow::Result;

use super::PeerServer;
use crate::matrix::TestStore;
use crate::pki::authority::PeerCertificate;

/// Starts a server that serves the store over TLS.
pub type StartTlsPeer = fn(&TestStore, &PeerTls) -> Result<PeerServer>;

/// Certificates and demands of a server. Every session must protect its commands and data.
#[derive(Debug, Clone)]
pub struct PeerTls {
    /// The server's certificate.
    pub identity: PeerCertificate,
    /// Data connections must resume the session of the control connection.
    pub session_reuse: bool,
    /// TLS begins with the connection, without AUTH.
    pub implicit: bool,
    /// Clients must show a certificate of this authority.
    pub client_ca: Option<PathBuf>,
    /// TLS 1.3 is off.
    pub tls_1_2: bool,
}

impl PeerTls {
    /// A server that asks for AUTH TLS and protected data, and nothing more.
    #[must_use]
    pub fn new(identity: &PeerCertificate) -> Self {
        Self {
            identity: identity.clone(),
            session_reuse: false,
            implicit: false,
            client_ca: None,
            tls_1_2: false,
        }
    }
}
