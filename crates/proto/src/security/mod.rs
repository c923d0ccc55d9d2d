//! Security of the control connection (RFC 2228): mechanisms, tokens and the state of an exchange.
//! Client and server sessions share these types. The drivers compute what a mechanism needs.

mod base64;
mod protected_line;
mod token;

pub(crate) use base64::{decode_base64, encode_base64};
pub use protected_line::unwrap_line;
pub(crate) use token::without_token;
pub use token::{MAX_TOKEN, MAX_TOKEN_LINE, SecurityToken, TokenError};

use crate::command::{DataChannelAuth, ProtectionLevel, Secret};

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

/// Protection of data connections. The default is that of a clear session: none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataChannelProtection {
    /// DCAU: whom the peer must prove to be. Only sessions with GSSAPI have another value than
    /// [`DataChannelAuth::None`]; on FTPS the level decides alone.
    pub authentication: DataChannelAuth,
    /// PROT.
    pub level: ProtectionLevel,
}

impl Default for DataChannelProtection {
    fn default() -> Self {
        Self {
            authentication: DataChannelAuth::None,
            level: ProtectionLevel::Clear,
        }
    }
}

/// DCSC argument: credential of the server for data connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataCredential {
    /// D: the one that the client delegated, or the server's own.
    Default,
    /// P: PEM text with a certificate, its private key and further certificates.
    Pem(Secret),
}

/// Name of USER whose PASS is a bearer token.
pub const BEARER_USER: &str = ":bearer:";

/// Longest PEM text of DCSC, bytes.
pub const MAX_CREDENTIAL: usize = 64 * 1024;

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
