//! One TLS connection.

use crate::tls::TlsConfig;
use crate::x509::{PeerIdentity, TrustError};

/// One TLS connection: received bytes go in, plain bytes and bytes to send come out.
///
/// A connection whose peer does not pass the checks of its [`TlsConfig`] never completes its
/// handshake, so no plain byte passes before.
pub struct TlsEngine {}

/// Progress of a handshake. In either case [`TlsEngine::outgoing`] may hold bytes to send first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handshake {
    /// Complete; the peer is verified.
    Complete,
    /// More bytes of the peer are needed.
    NeedsInput,
}

/// Result of reading plain bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadResult {
    /// So many bytes; not 0.
    Bytes(usize),
    /// More bytes of the peer are needed.
    NeedsInput,
    /// The peer has ended its direction (close_notify, RFC 8446 §6.1).
    Closed,
}

/// A session that a later connection to the same server may resume.
#[derive(Clone)]
pub struct TlsSession(pub(super) openssl::ssl::SslSession);

/// Error of a TLS connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// The configuration cannot be used.
    #[error("{0}")]
    Config(String),
    /// The peer's certificate is refused.
    #[error(transparent)]
    Peer(#[from] TrustError),
    /// The peer refused this end with an alert (RFC 8446 §6.2); the text names it.
    #[error("the peer has refused the connection: {0}")]
    Alert(String),
    /// Received bytes are no valid TLS.
    #[error("{0}")]
    Protocol(String),
}

impl TlsEngine {
    /// A connection before its handshake.
    ///
    /// # Errors
    /// [`TlsError::Config`]
    pub fn new(config: &TlsConfig, resume: Option<&TlsSession>) -> Result<Self, TlsError> {
        let _ = (config, resume);
        todo!()
    }

    /// Takes received bytes.
    pub fn receive(&mut self, bytes: &[u8]) {
        let _ = bytes;
        todo!()
    }

    /// Receives into the engine's own buffer, which saves a copy: `read` fills a part of the given
    /// space of at least 16 KiB and returns the number of bytes.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn receive_with<E>(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let _ = read;
        todo!()
    }

    /// Number of received bytes that are not processed yet.
    pub fn unprocessed(&self) -> usize {
        todo!()
    }

    /// Bytes to send.
    pub fn outgoing(&self) -> &[u8] {
        todo!()
    }

    /// Removes the first `count` bytes of [`TlsEngine::outgoing`]: they are sent.
    pub fn mark_sent(&mut self, count: usize) {
        let _ = count;
        todo!()
    }

    /// Continues the handshake.
    ///
    /// # Errors
    /// The peer is refused or has refused this end. `outgoing` may hold an alert.
    pub fn handshake(&mut self) -> Result<Handshake, TlsError> {
        todo!()
    }

    /// Takes plain bytes out.
    ///
    /// # Errors
    /// [`TlsError::Protocol`], [`TlsError::Alert`]; also before the handshake is complete.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<ReadResult, TlsError> {
        let _ = buffer;
        todo!()
    }

    /// Encrypts bytes into `outgoing`. One call makes records of at most 16 KiB; all bytes are taken.
    ///
    /// # Errors
    /// The handshake is not complete, or this direction is closed.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), TlsError> {
        let _ = bytes;
        todo!()
    }

    /// Ends this direction: close_notify into `outgoing`.
    ///
    /// # Errors
    /// OpenSSL's.
    pub fn close(&mut self) -> Result<(), TlsError> {
        todo!()
    }

    /// The verified peer; `None` before the handshake, without certificate or unverified.
    pub fn peer(&self) -> Option<&PeerIdentity> {
        todo!()
    }

    /// The certificates that the peer has shown, DER, leaf first; also unverified ones.
    pub fn peer_certificates(&self) -> Vec<openssl::x509::X509> {
        todo!()
    }

    /// Protocol version and cipher suite, for people: `TLSv1.3 TLS_AES_256_GCM_SHA384`.
    pub fn description(&self) -> String {
        todo!()
    }

    /// Whether the handshake resumed an earlier session.
    pub fn is_resumed(&self) -> bool {
        todo!()
    }

    /// Client: the newest session for later connections; with TLS 1.3 it arrives after the
    /// handshake, with the first bytes of the server.
    pub fn session(&self) -> Option<TlsSession> {
        todo!()
    }

    /// Whether the negotiated suite encrypts (all offered ones do).
    pub fn is_encrypted(&self) -> bool {
        todo!()
    }
}

impl std::fmt::Debug for TlsEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsEngine")
    }
}

impl std::fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsSession")
    }
}
