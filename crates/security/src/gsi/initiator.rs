//! The client's side of an exchange.

use std::time::Duration;

use super::context::{
    Delegation, GsiContext, GsiError, GsiStep, exchange_engine, feed, plain_bytes,
};
use crate::tls::{Handshake, TlsConfig, TlsEngine, TlsRole};
use crate::x509::{ProxyKind, ProxyOptions, sign_proxy};

/// The client's side of an exchange.
#[derive(Debug)]
pub struct GsiInitiator {
    delegation: Delegation,
    state: InitiatorState,
}

#[derive(Debug)]
enum InitiatorState {
    Handshaking(Box<TlsEngine>),
    /// TLS 1.3: the last flight is sent; the server answers with one byte, or session tickets.
    AwaitsAnswer(Box<TlsEngine>),
    /// The flag `D` is sent; the server answers with its request.
    AwaitsRequest(Box<TlsEngine>),
    /// Complete or failed.
    Ended,
}

impl GsiInitiator {
    /// Before the first token.
    ///
    /// # Errors
    /// See [`GsiError`].
    pub fn new(config: &TlsConfig, delegation: Delegation) -> Result<Self, GsiError> {
        let engine = exchange_engine(config, TlsRole::Client)?;
        Ok(Self {
            delegation,
            state: InitiatorState::Handshaking(Box::new(engine)),
        })
    }

    /// Takes the acceptor's token (`None` at the start) and returns the next one.
    ///
    /// # Errors
    /// See [`GsiError`]; the exchange has failed then.
    pub fn step(&mut self, token: Option<&[u8]>) -> Result<GsiStep, GsiError> {
        // An error leaves the state as it is here.
        match std::mem::replace(&mut self.state, InitiatorState::Ended) {
            InitiatorState::Handshaking(mut engine) => {
                if let Some(token) = token {
                    feed(&mut engine, token)?;
                }
                self.continue_handshake(engine)
            }
            InitiatorState::AwaitsAnswer(mut engine) => {
                feed(&mut engine, token.unwrap_or_default())?;
                if plain_bytes(&mut engine)?.len() > 1 {
                    return Err(unexpected("more than one byte after the handshake"));
                }
                self.send_flag(engine)
            }
            InitiatorState::AwaitsRequest(mut engine) => {
                feed(&mut engine, token.unwrap_or_default())?;
                self.sign(engine)
            }
            InitiatorState::Ended => Err(unexpected("a token after the end of the exchange")),
        }
    }

    fn continue_handshake(&mut self, mut engine: Box<TlsEngine>) -> Result<GsiStep, GsiError> {
        let progress = engine.handshake()?;
        let token = engine.take_outgoing();
        match progress {
            Handshake::NeedsInput if token.is_empty() => {
                Err(unexpected("an incomplete part of the handshake"))
            }
            Handshake::NeedsInput => {
                self.state = InitiatorState::Handshaking(engine);
                Ok(GsiStep::Continue(token))
            }
            Handshake::Complete if token.is_empty() => self.send_flag(engine),
            Handshake::Complete => {
                self.state = InitiatorState::AwaitsAnswer(engine);
                Ok(GsiStep::Continue(token))
            }
        }
    }

    fn send_flag(&mut self, mut engine: Box<TlsEngine>) -> Result<GsiStep, GsiError> {
        if self.delegation == Delegation::None {
            engine.write(b"0")?;
            return complete(engine);
        }
        engine.write(b"D")?;
        let token = engine.take_outgoing();
        self.state = InitiatorState::AwaitsRequest(engine);
        Ok(GsiStep::Continue(token))
    }

    /// Answers the server's request with a proxy of this end's credential.
    fn sign(&self, mut engine: Box<TlsEngine>) -> Result<GsiStep, GsiError> {
        let request = plain_bytes(&mut engine)?;
        let (kind, seconds) = match self.delegation {
            Delegation::Limited { seconds } => (ProxyKind::Limited, seconds),
            Delegation::Full { seconds } => (ProxyKind::Full, seconds),
            Delegation::None => return Err(unexpected("a request for a proxy")),
        };
        let Some(issuer) = engine.config().options().credential.clone() else {
            return Err(unexpected("a request for a proxy"));
        };
        let options = ProxyOptions {
            kind,
            valid: Duration::from_secs(seconds),
            path_length: None,
            key_bits: 2048,
        };
        let certificate = sign_proxy(&issuer, &request, &options)?;
        engine.write(&certificate)?;
        complete(engine)
    }
}

fn complete(mut engine: Box<TlsEngine>) -> Result<GsiStep, GsiError> {
    let token = engine.take_outgoing();
    let context = GsiContext::new(*engine, None)?;
    Ok(GsiStep::Complete(Some(token), Box::new(context)))
}

fn unexpected(what: &str) -> GsiError {
    GsiError::Token(format!("the server has sent {what}"))
}
