//! Security of the control connection (RFC 2228): mechanisms, tokens and the state of an exchange.
//! Client and server sessions share these types. The drivers compute what a mechanism needs.

pub(crate) mod base64;
mod data_channel;
mod secret;
mod token;

pub(crate) use base64::{decode_base64, encode_base64};
pub use data_channel::{
    DataChannelAuth, DataChannelProtection, DataCredential, MAX_CREDENTIAL, ProtectionLevel,
};
pub use secret::Secret;
pub use token::{MAX_TOKEN, MAX_TOKEN_LINE, SecurityToken, TokenError};

/// A security mechanism, as named by AUTH (RFC 2228 §3). IANA registers the names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityMechanism {
    /// `TLS` or `GSSAPI`; the case is ignored (RFC 2228 §3).
    pub name: String,
    /// Form of the exchange.
    pub exchange: ExchangeKind,
}

/// Names of the mechanism `TLS`. The others are from drafts of RFC 4217; clients and servers of their time
/// still send them.
const NAMES_OF_TLS: [&str; 4] = ["TLS", "TLS-C", "TLS-P", "SSL"];

/// Whether AUTH with this name starts TLS.
pub(crate) fn is_name_of_tls(name: &str) -> bool {
    NAMES_OF_TLS
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
}

impl SecurityMechanism {
    /// Whether AUTH with `name` selects this mechanism.
    pub fn is_named(&self, name: &str) -> bool {
        name.eq_ignore_ascii_case(&self.name) || (self.name == "TLS" && is_name_of_tls(name))
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
    /// None: what carries the connection protects it, and has identified both ends before the first byte (ssh).
    Carried,
}

impl ExchangeKind {
    /// Whether data connections have credentials of their own, which both ends agree on (DCAU, DCSC). Inside TLS they have
    /// those of the session.
    pub fn has_data_credentials(self) -> bool {
        matches!(self, Self::Tokens | Self::Carried)
    }
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
    /// The exchange was complete, and CCC has returned the commands to the clear.
    Cleared(SecurityMechanism),
}

/// Name of USER whose PASS is a bearer token.
pub const BEARER_USER: &str = ":bearer:";
