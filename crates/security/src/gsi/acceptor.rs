//! The server's side of an exchange.

use super::context::{GsiContext, GsiError, GsiStep, exchange_engine, feed, plain_bytes};
use crate::tls::{Handshake, TlsConfig, TlsEngine, TlsRole};
use crate::x509::der;
use crate::x509::{PeerIdentity, ProxyRequest};

/// Size of the RSA key of a delegated credential, bits. A client cannot ask for a larger one, which
/// takes many times as long to make; all peers sign for this one.
const KEY_BITS: u32 = 2048;

/// Whether a client may delegate.
type DelegationRule = dyn Fn(&PeerIdentity) -> bool + Send;

/// The server's side of an exchange.
pub struct GsiAcceptor {
    may_delegate: Box<DelegationRule>,
    state: AcceptorState,
}

enum AcceptorState {
    Handshaking(Box<TlsEngine>),
    /// The client says whether it delegates.
    AwaitsFlag(Box<TlsEngine>),
    /// The request for a proxy is sent.
    AwaitsCertificate(Box<TlsEngine>, ProxyRequest),
    /// Complete or failed.
    Ended,
}

impl GsiAcceptor {
    /// Before the first token. `accept_delegation`: whether the flag `D` is followed; otherwise the
    /// exchange fails.
    ///
    /// # Errors
    /// See [`GsiError`].
    pub fn new(config: &TlsConfig, accept_delegation: bool) -> Result<Self, GsiError> {
        let engine = exchange_engine(config, TlsRole::Server)?;
        Ok(Self {
            may_delegate: Box::new(move |_| accept_delegation),
            state: AcceptorState::Handshaking(Box::new(engine)),
        })
    }

    /// Accepts a delegation only from the clients to which `may_delegate` applies; it decides when the client
    /// asks, before a key is made. The exchange of others that ask fails.
    #[must_use]
    pub fn with_delegators(
        self,
        may_delegate: impl Fn(&PeerIdentity) -> bool + Send + 'static,
    ) -> Self {
        let before = self.may_delegate;
        Self {
            may_delegate: Box::new(move |peer| before(peer) && may_delegate(peer)),
            state: self.state,
        }
    }

    /// Takes the initiator's token and returns the next one.
    ///
    /// # Errors
    /// See [`GsiError`]; the exchange has failed then.
    pub fn step(&mut self, token: &[u8]) -> Result<GsiStep, GsiError> {
        // An error leaves the state as it is here.
        match std::mem::replace(&mut self.state, AcceptorState::Ended) {
            AcceptorState::Handshaking(mut engine) => {
                feed(&mut engine, token)?;
                self.continue_handshake(engine)
            }
            AcceptorState::AwaitsFlag(mut engine) => {
                feed(&mut engine, token)?;
                self.follow_flag(engine)
            }
            AcceptorState::AwaitsCertificate(mut engine, request) => {
                feed(&mut engine, token)?;
                accept_delegated(engine, request)
            }
            AcceptorState::Ended => Err(unexpected("a token after the end of the exchange")),
        }
    }

    fn continue_handshake(&mut self, mut engine: Box<TlsEngine>) -> Result<GsiStep, GsiError> {
        let progress = engine.handshake()?;
        if progress == Handshake::Complete && engine.outgoing().is_empty() {
            // TLS 1.3: the server has nothing to say, but the exchange needs a token.
            engine.write(&[0])?;
        }
        let token = engine.take_outgoing();
        if token.is_empty() {
            return Err(unexpected("an incomplete part of the handshake"));
        }
        self.state = match progress {
            Handshake::NeedsInput => AcceptorState::Handshaking(engine),
            Handshake::Complete => AcceptorState::AwaitsFlag(engine),
        };
        Ok(GsiStep::Continue(token))
    }

    fn follow_flag(&mut self, mut engine: Box<TlsEngine>) -> Result<GsiStep, GsiError> {
        match &plain_bytes(&mut engine)?[..] {
            b"0" => Ok(GsiStep::Complete(
                None,
                Box::new(GsiContext::new(*engine, None)?),
            )),
            b"D" => {
                self.check_delegator(engine.peer())?;
                let request = ProxyRequest::new(KEY_BITS)?;
                engine.write(&request.to_der()?)?;
                let token = engine.take_outgoing();
                self.state = AcceptorState::AwaitsCertificate(engine, request);
                Ok(GsiStep::Continue(token))
            }
            _ => Err(unexpected("no flag of delegation")),
        }
    }

    fn check_delegator(&self, peer: Option<&PeerIdentity>) -> Result<(), GsiError> {
        let Some(peer) = peer else {
            return Err(GsiError::Token("the peer is not verified".to_owned()));
        };
        if (self.may_delegate)(peer) {
            return Ok(());
        }
        Err(GsiError::NotDelegator(peer.identity.clone()))
    }
}

fn accept_delegated(
    mut engine: Box<TlsEngine>,
    request: ProxyRequest,
) -> Result<GsiStep, GsiError> {
    let certificates = plain_bytes(&mut engine)?;
    // Further certificates may follow; the chain is the one of the handshake. A certificate has 128 bytes at least and 65535
    // at most.
    let delegated = match der::read(&certificates) {
        Some((der::SEQUENCE, content, behind)) if (128..=65535).contains(&content.len()) => {
            &certificates[..certificates.len() - behind.len()]
        }
        _ => return Err(unexpected("no certificate for the delegation")),
    };
    let delegated = request.complete(delegated, &engine.peer_certificates())?;
    let context = GsiContext::new(*engine, Some(delegated))?;
    Ok(GsiStep::Complete(None, Box::new(context)))
}

fn unexpected(what: &str) -> GsiError {
    GsiError::Token(format!("the client has sent {what}"))
}

impl std::fmt::Debug for GsiAcceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GsiAcceptor")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for AcceptorState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Handshaking(_) => "Handshaking",
            Self::AwaitsFlag(_) => "AwaitsFlag",
            Self::AwaitsCertificate(..) => "AwaitsCertificate",
            Self::Ended => "Ended",
        })
    }
}
