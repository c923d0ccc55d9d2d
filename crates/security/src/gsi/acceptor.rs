//! The server's side of an exchange.

use openssl::x509::X509;

use super::context::{GsiContext, GsiError, GsiStep, exchange_engine, feed, plain_bytes};
use crate::tls::{Handshake, TlsConfig, TlsEngine, TlsRole};
use crate::x509::ProxyRequest;

/// Sizes of the key of a delegated credential, bits. Within them it is the size of the client's.
const KEY_BITS: std::ops::RangeInclusive<u32> = 2048..=4096;

/// The server's side of an exchange.
#[derive(Debug)]
pub struct GsiAcceptor {
    accept_delegation: bool,
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
            accept_delegation,
            state: AcceptorState::Handshaking(Box::new(engine)),
        })
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
        match (&plain_bytes(&mut engine)?[..], self.accept_delegation) {
            (b"0", _) => Ok(GsiStep::Complete(
                None,
                Box::new(GsiContext::new(*engine, None)?),
            )),
            (b"D", true) => {
                let request = ProxyRequest::new(key_bits(&engine.peer_certificates()))?;
                engine.write(&request.to_der()?)?;
                let token = engine.take_outgoing();
                self.state = AcceptorState::AwaitsCertificate(engine, request);
                Ok(GsiStep::Continue(token))
            }
            (b"D", false) => Err(GsiError::Token(
                "the client wants to delegate a proxy, which is not accepted here".to_owned(),
            )),
            _ => Err(unexpected("no flag of delegation")),
        }
    }
}

fn accept_delegated(
    mut engine: Box<TlsEngine>,
    request: ProxyRequest,
) -> Result<GsiStep, GsiError> {
    let certificates = plain_bytes(&mut engine)?;
    // Further certificates may follow; the chain is the one of the handshake.
    let Some(length) = der_length(&certificates) else {
        return Err(unexpected("no certificate for the delegation"));
    };
    let delegated = request.complete(&certificates[..length], &engine.peer_certificates())?;
    let context = GsiContext::new(*engine, Some(delegated))?;
    Ok(GsiStep::Complete(None, Box::new(context)))
}

/// Length of the DER sequence at the start, with its header (X.690 §8.1.3); a certificate has
/// 128 bytes at least and 65535 at most.
fn der_length(bytes: &[u8]) -> Option<usize> {
    let (header, content) = match bytes {
        [0x30, 0x81, length, ..] => (3, usize::from(*length)),
        [0x30, 0x82, high, low, ..] => (4, usize::from(u16::from_be_bytes([*high, *low]))),
        _ => return None,
    };
    let length = header + content;
    (length <= bytes.len()).then_some(length)
}

fn key_bits(chain: &[X509]) -> u32 {
    let key = chain.first().and_then(|leaf| leaf.public_key().ok());
    let bits = key
        .and_then(|key| key.rsa().ok())
        .map_or(0, |rsa| rsa.size() * 8);
    bits.clamp(*KEY_BITS.start(), *KEY_BITS.end())
}

fn unexpected(what: &str) -> GsiError {
    GsiError::Token(format!("the client has sent {what}"))
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
