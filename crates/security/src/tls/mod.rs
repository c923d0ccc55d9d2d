//! TLS 1.2 and 1.3 (OpenSSL) without sockets: bytes in, bytes out.

mod config;
mod engine;
mod error;
mod http;
mod memory;
mod newest_session;
mod session;
#[cfg(test)]
pub(crate) mod tests;
mod ticket_secret;
mod verification;

pub use config::{
    ClientCertificates, ExpectedPeer, TlsConfig, TlsOptions, TlsProfile, TlsRole, TlsVersion,
};
pub use engine::{Handshake, ReadResult, TlsEngine};
pub use error::{TlsAlert, TlsError};
pub use http::{CertificateSink, HttpsConnector, HttpsTransport};
pub use session::{SessionSetter, TlsSession, install_session_setter};
pub use ticket_secret::{TicketKeySetter, TicketSecret, install_ticket_key_setter};
