//! Security of the control connection (RFC 2228): mechanisms, tokens and the state of an exchange.
//! Client and server sessions share these types. The drivers compute what a mechanism needs.

mod token;

pub(crate) use token::without_token;
pub use token::{MAX_TOKEN, SecurityToken, TokenError};

/// A security mechanism, as named by AUTH (RFC 2228 §3). IANA registers the names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityMechanism {
    /// `TLS` or `GSSAPI`; the case is ignored (RFC 2228 §3).
    pub name: String,
    /// Form of the exchange.
    pub exchange: ExchangeKind,
}

impl SecurityMechanism {
    /// Whether AUTH with `name` selects this mechanism.
    pub fn is_named(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

/// Form of a mechanism's exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExchangeKind {
    /// A handshake on the connection directly after the 234. Afterwards every byte is secured (TLS,
    /// RFC 4217 §4).
    Handshake,
    /// Tokens in ADAT commands and 335 replies on the clear connection. Afterwards each command is
    /// sent inside MIC, CONF or ENC (GSSAPI, RFC 2228 §3).
    Tokens,
}

/// Security state of a control connection. `Step` is the input that this end waits for during an exchange.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SecurityState<Step> {
    /// Not secured.
    #[default]
    Clear,
    /// The exchange after AUTH is in progress.
    Exchanging(SecurityMechanism, Step),
    /// The exchange is complete.
    Secured(SecurityMechanism),
}

/// Protection of a command inside MIC, CONF or ENC (RFC 2228 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandProtection {
    /// MIC: integrity.
    Safe,
    /// CONF: confidentiality.
    Confidential,
    /// ENC: both.
    Private,
}
