//! Security of the control connection as values (RFC 2228): mechanisms, their tokens, and how far an
//! exchange has come. Both session machines use them; what a mechanism computes is its driver's.

mod token;

pub(crate) use token::without_token;
pub use token::{MAX_TOKEN, SecurityToken, TokenError};

/// A security mechanism, as AUTH names it (RFC 2228 §3; names are registered with IANA as FTP security
/// mechanisms).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityMechanism {
    /// `TLS`, `GSSAPI`; no case (RFC 2228 §3).
    pub name: String,
    /// How its exchange travels.
    pub exchange: ExchangeKind,
}

impl SecurityMechanism {
    /// Whether AUTH with `name` means this one.
    pub fn is_named(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

/// How the exchange of a mechanism travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExchangeKind {
    /// As a handshake on the connection itself right behind the 234; afterwards every byte is secured
    /// (TLS, RFC 4217 §4).
    Handshake,
    /// As tokens of ADAT and 335 on the clear connection; afterwards each command travels in MIC, CONF
    /// or ENC (GSSAPI, RFC 2228 §3).
    Tokens,
}

/// How far a control connection is secured. `Step` is what one end waits for during an exchange.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SecurityState<Step> {
    /// Not at all.
    #[default]
    Clear,
    /// AUTH was sent, and its exchange is not over.
    Exchanging(SecurityMechanism, Step),
    /// The exchange is over.
    Secured(SecurityMechanism),
}

/// Protection of a command that travels in another (RFC 2228 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandProtection {
    /// MIC: integrity.
    Safe,
    /// CONF: confidentiality.
    Confidential,
    /// ENC: both.
    Private,
}
