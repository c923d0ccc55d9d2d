//! TLS 1.2 and 1.3 (OpenSSL) without sockets: bytes in, bytes out.

mod config;
mod engine;

pub use config::{
    ClientCertificates, ExpectedPeer, TlsConfig, TlsOptions, TlsProfile, TlsRole, TlsVersion,
};
pub use engine::{Handshake, ReadResult, TlsEngine, TlsError, TlsSession};
