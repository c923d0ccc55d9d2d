//! The context of a control connection.

use super::record::is_whole_records;
use crate::tls::{ExpectedPeer, ReadResult, TlsConfig, TlsEngine, TlsError, TlsProfile, TlsRole};
use crate::x509::{CertifiedKey, DistinguishedName, PeerIdentity, ProxyError};

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
    /// Acceptor: this client wants to delegate a proxy, which is not accepted from it.
    #[error("{0} wants to delegate a proxy, which is not accepted from this subject")]
    NotDelegator(DistinguishedName),
    /// A token does not fit the state of the exchange.
    #[error("{0}")]
    Token(String),
}

/// A complete context: protects messages.
#[derive(Debug)]
pub struct GsiContext {
    engine: TlsEngine,
    peer: PeerIdentity,
    delegated: Option<CertifiedKey>,
    /// A token has failed its checks.
    is_dead: bool,
}

impl GsiContext {
    /// Of a complete exchange.
    pub(super) fn new(
        engine: TlsEngine,
        delegated: Option<CertifiedKey>,
    ) -> Result<Self, GsiError> {
        let Some(peer) = engine.peer().cloned() else {
            return Err(GsiError::Token("the peer is not verified".to_owned()));
        };
        Ok(Self {
            engine,
            peer,
            delegated,
            is_dead: false,
        })
    }

    /// The peer.
    pub fn peer(&self) -> &PeerIdentity {
        &self.peer
    }

    /// Acceptor: the credential that the initiator delegated. Taken once.
    pub fn take_delegated(&mut self) -> Option<CertifiedKey> {
        self.delegated.take()
    }

    /// Initiator: the token of the reply that ends the exchange (`235 ADAT=`), if there is one. It
    /// may hold session tickets, but no message.
    ///
    /// # Errors
    /// See [`GsiError`]; the context cannot be used afterwards.
    pub fn receive_last_token(&mut self, token: &[u8]) -> Result<(), GsiError> {
        let plain = self.plain_bytes(token)?;
        if plain.is_empty() && self.engine.outgoing().is_empty() {
            return Ok(());
        }
        self.is_dead = true;
        Err(GsiError::Token(
            "the server's last token does not end the exchange".to_owned(),
        ))
    }

    /// Protects one message.
    ///
    /// # Errors
    /// See [`GsiError`]; also an empty message, of which there is no token.
    pub fn wrap(&mut self, message: &[u8]) -> Result<Vec<u8>, GsiError> {
        self.check_alive()?;
        if message.is_empty() {
            return Err(GsiError::Token("there is no message to protect".to_owned()));
        }
        self.engine.write(message)?;
        Ok(self.engine.take_outgoing())
    }

    /// Checks and removes the protection of one message.
    ///
    /// # Errors
    /// See [`GsiError`]; the context cannot be used afterwards.
    pub fn unwrap(&mut self, token: &[u8]) -> Result<Vec<u8>, GsiError> {
        let plain = self.plain_bytes(token)?;
        if plain.is_empty() {
            self.is_dead = true;
            return Err(GsiError::Token("a token has no message".to_owned()));
        }
        Ok(plain)
    }

    /// As [`TlsEngine::peer_fingerprint`].
    pub fn peer_fingerprint(&self) -> Option<String> {
        self.engine.peer_fingerprint()
    }

    /// Protocol version and cipher suite, for people.
    pub fn description(&self) -> String {
        self.engine.description()
    }

    fn check_alive(&self) -> Result<(), GsiError> {
        if self.is_dead {
            return Err(GsiError::Token(
                "the security context has failed before".to_owned(),
            ));
        }
        Ok(())
    }

    fn plain_bytes(&mut self, token: &[u8]) -> Result<Vec<u8>, GsiError> {
        self.check_alive()?;
        let plain = feed(&mut self.engine, token).and_then(|()| plain_bytes(&mut self.engine));
        self.is_dead = plain.is_err();
        plain
    }
}

/// The engine of an exchange.
pub(super) fn exchange_engine(config: &TlsConfig, role: TlsRole) -> Result<TlsEngine, GsiError> {
    let options = config.options();
    let problem = match () {
        () if options.role != role => "a GSI initiator is a TLS client, an acceptor a TLS server",
        () if options.profile != TlsProfile::Grid => "GSI needs the grid's rules of certificates",
        () if options.expected == ExpectedPeer::Unverified => {
            "GSI always verifies the peer: name the directory of its certificate authority"
        }
        () => return Ok(TlsEngine::new(config, None)?),
    };
    Err(TlsError::Config(problem.to_owned()).into())
}

/// Gives a token to TLS. It must be whole records, so that nothing of it waits for the next one.
pub(super) fn feed(engine: &mut TlsEngine, token: &[u8]) -> Result<(), GsiError> {
    if token.is_empty() {
        return Err(GsiError::Token("a token is empty".to_owned()));
    }
    if !is_whole_records(token) {
        return Err(GsiError::Token(
            "a token is truncated, or holds something else than TLS records".to_owned(),
        ));
    }
    engine.receive(token);
    Ok(())
}

/// All plain bytes of the token that TLS has been given; fewer than the token has.
pub(super) fn plain_bytes(engine: &mut TlsEngine) -> Result<Vec<u8>, GsiError> {
    let mut plain = Vec::new();
    loop {
        let start = plain.len();
        plain.resize(start + engine.unprocessed().max(256), 0);
        let result = engine.read(&mut plain[start..])?;
        let count = match result {
            ReadResult::Bytes(count) => count,
            ReadResult::NeedsInput | ReadResult::Closed => 0,
        };
        plain.truncate(start + count);
        match result {
            ReadResult::Bytes(_) => {}
            ReadResult::Closed if plain.is_empty() => {
                return Err(GsiError::Token(
                    "the peer has closed the context".to_owned(),
                ));
            }
            ReadResult::NeedsInput | ReadResult::Closed => return Ok(plain),
        }
    }
}
