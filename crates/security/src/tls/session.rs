//! Sessions that later connections resume.

use std::sync::{Arc, OnceLock};

use openssl::error::ErrorStack;
use openssl::ssl::{SslRef, SslSession, SslSessionRef};
use openssl::x509::X509;
use zeroize::Zeroizing;

use super::config::{SharedContext, TlsConfig};

/// A session that a later connection to the same server may resume: one of the same [`TlsConfig`],
/// or of [`TlsConfig::with_expected`]. Others ignore it.
#[derive(Clone)]
pub struct TlsSession {
    /// The session, DER. Each connection gets a session of its own: OpenSSL spoils the session of a
    /// connection that ends without close_notify, and all copies of the same object with it.
    der: Arc<Zeroizing<Vec<u8>>>,
    /// The chain of the server, leaf first: a resumed handshake does not show it again.
    chain: Vec<X509>,
    context: Arc<SharedContext>,
}

/// Gives a session to a connection before its handshake: SSL_set_session(3). The session is a fresh
/// one for this connection: it comes from a connection of the same SSL_CTX, and is in no cache.
pub type SessionSetter = fn(&mut SslRef, &SslSessionRef) -> Result<(), ErrorStack>;

static SESSION_SETTER: OnceLock<SessionSetter> = OnceLock::new();

/// Sets the function by which clients resume sessions; the first call counts. It is unsafe code,
/// which this crate has none of. Without it every handshake is a full one.
pub fn install_session_setter(setter: SessionSetter) {
    let _ = SESSION_SETTER.set(setter);
}

impl TlsSession {
    /// `None` if OpenSSL cannot encode the session.
    pub(super) fn new(
        session: &SslSessionRef,
        chain: Vec<X509>,
        config: &TlsConfig,
    ) -> Option<Self> {
        Some(Self {
            der: Arc::new(Zeroizing::new(session.to_der().ok()?)),
            chain,
            context: Arc::clone(config.shared()),
        })
    }

    /// Has a connection of `config` ask for this session. Returns whether it will.
    pub(super) fn offer(&self, ssl: &mut SslRef, config: &TlsConfig) -> Result<bool, ErrorStack> {
        if !Arc::ptr_eq(&self.context, config.shared()) {
            return Ok(false);
        }
        let Some(setter) = SESSION_SETTER.get() else {
            return Ok(false);
        };
        setter(ssl, &*SslSession::from_der(&self.der)?)?;
        Ok(true)
    }

    /// The server's chain, if this is its leaf.
    pub(super) fn chain_of(&self, leaf: &X509) -> Option<&[X509]> {
        (self.chain.first() == Some(leaf)).then_some(&self.chain[..])
    }
}

impl std::fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsSession")
    }
}
