//! The context of a control connection.

use crate::tls::{TlsConfig, TlsError};
use crate::x509::{CertifiedKey, PeerIdentity, ProxyError};

/// Whether the initiator delegates a proxy of its credential to the server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Delegation {
    /// No (the default of the client).
    #[default]
    None,
    /// A limited proxy, no longer valid than so many seconds.
    Limited {
        /// Longest validity, seconds.
        seconds: u64,
    },
    /// A full proxy.
    Full {
        /// Longest validity, seconds.
        seconds: u64,
    },
}

/// Result of a step of the exchange.
#[derive(Debug)]
pub enum GsiStep {
    /// Send this token and wait for the next one.
    Continue(Vec<u8>),
    /// The exchange is complete; send the token, if any (initiators: the peer must then be satisfied).
    Complete(Option<Vec<u8>>, Box<GsiContext>),
}

/// Error of a GSI exchange or message.
#[derive(Debug, thiserror::Error)]
pub enum GsiError {
    /// TLS or the peer's certificate.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The delegation failed.
    #[error("delegation: {0}")]
    Delegation(#[from] ProxyError),
    /// A token does not fit the state of the exchange.
    #[error("{0}")]
    Token(String),
}

/// The client's side of an exchange.
#[derive(Debug)]
pub struct GsiInitiator {}

/// The server's side of an exchange.
#[derive(Debug)]
pub struct GsiAcceptor {}

/// A complete context: protects messages.
#[derive(Debug)]
pub struct GsiContext {}

impl GsiInitiator {
    /// Before the first token.
    ///
    /// # Errors
    /// See [`GsiError`].
    pub fn new(config: &TlsConfig, delegation: Delegation) -> Result<Self, GsiError> {
        let _ = (config, delegation);
        todo!()
    }

    /// Takes the acceptor's token (`None` at the start) and returns the next one.
    ///
    /// # Errors
    /// See [`GsiError`]; the exchange has failed then.
    pub fn step(&mut self, token: Option<&[u8]>) -> Result<GsiStep, GsiError> {
        let _ = token;
        todo!()
    }
}

impl GsiAcceptor {
    /// Before the first token. `accept_delegation`: whether the flag `D` is followed; otherwise the
    /// exchange fails.
    ///
    /// # Errors
    /// See [`GsiError`].
    pub fn new(config: &TlsConfig, accept_delegation: bool) -> Result<Self, GsiError> {
        let _ = (config, accept_delegation);
        todo!()
    }

    /// Takes the initiator's token and returns the next one.
    ///
    /// # Errors
    /// See [`GsiError`]; the exchange has failed then.
    pub fn step(&mut self, token: &[u8]) -> Result<GsiStep, GsiError> {
        let _ = token;
        todo!()
    }
}

impl GsiContext {
    /// The peer.
    pub fn peer(&self) -> &PeerIdentity {
        todo!()
    }

    /// Acceptor: the credential that the initiator delegated. Taken once.
    pub fn take_delegated(&mut self) -> Option<CertifiedKey> {
        todo!()
    }

    /// Protects one message.
    ///
    /// # Errors
    /// See [`GsiError`].
    pub fn wrap(&mut self, message: &[u8]) -> Result<Vec<u8>, GsiError> {
        let _ = message;
        todo!()
    }

    /// Checks and removes the protection of one message.
    ///
    /// # Errors
    /// See [`GsiError`]; the context cannot be used afterwards.
    pub fn unwrap(&mut self, token: &[u8]) -> Result<Vec<u8>, GsiError> {
        let _ = token;
        todo!()
    }

    /// Protocol version and cipher suite, for people.
    pub fn description(&self) -> String {
        todo!()
    }
}
