//! Sessions that later connections resume.

use std::sync::{Arc, Mutex, OnceLock};

use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::ssl::{Ssl, SslContextBuilder, SslRef, SslSession, SslSessionRef};
use openssl::x509::X509;

use super::config::{SharedContext, TlsConfig, lock};

/// A session that a later connection to the same server may resume: one of the same [`TlsConfig`],
/// or of [`TlsConfig::with_expected`]. Others ignore it.
#[derive(Clone)]
pub struct TlsSession {
    session: SslSession,
    /// The chain of the server, leaf first: a resumed handshake does not show it again.
    chain: Vec<X509>,
    context: Arc<SharedContext>,
}

/// Gives a session to a connection before its handshake: SSL_set_session(3). It may rely on both
/// belonging to one SSL_CTX.
pub type SessionSetter = fn(&mut SslRef, &SslSessionRef) -> Result<(), ErrorStack>;

static SESSION_SETTER: OnceLock<SessionSetter> = OnceLock::new();

/// Sets the function by which clients resume sessions; the first call counts. It is unsafe code,
/// which this crate has none of. Without it every handshake is a full one.
pub fn install_session_setter(setter: SessionSetter) {
    let _ = SESSION_SETTER.set(setter);
}

/// Newest session of a connection. OpenSSL reports it while bytes are read.
pub(super) type NewestSession = Arc<Mutex<Option<SslSession>>>;

static NEWEST_SESSION: OnceLock<Index<Ssl, NewestSession>> = OnceLock::new();

fn newest_session_index() -> Result<Index<Ssl, NewestSession>, ErrorStack> {
    if let Some(index) = NEWEST_SESSION.get() {
        return Ok(*index);
    }
    let index = Ssl::new_ex_index()?;
    Ok(*NEWEST_SESSION.get_or_init(|| index))
}

/// Connections of the context keep their newest session.
pub(super) fn keep_newest(builder: &mut SslContextBuilder) -> Result<(), ErrorStack> {
    let index = newest_session_index()?;
    builder.set_new_session_callback(move |ssl, session| {
        if let Some(newest) = ssl.ex_data(index) {
            *lock(newest) = Some(session);
        }
    });
    Ok(())
}

/// The place where a connection finds its newest session.
pub(super) fn attach(ssl: &mut SslRef) -> Result<NewestSession, ErrorStack> {
    let newest = NewestSession::default();
    ssl.set_ex_data(newest_session_index()?, Arc::clone(&newest));
    Ok(newest)
}

impl TlsSession {
    pub(super) fn new(session: SslSession, chain: Vec<X509>, config: &TlsConfig) -> Self {
        let context = Arc::clone(config.shared());
        Self {
            session,
            chain,
            context,
        }
    }

    /// Has a connection of `config` ask for this session. Returns whether it will.
    pub(super) fn offer(&self, ssl: &mut SslRef, config: &TlsConfig) -> Result<bool, ErrorStack> {
        if !Arc::ptr_eq(&self.context, config.shared()) {
            return Ok(false);
        }
        let Some(setter) = SESSION_SETTER.get() else {
            return Ok(false);
        };
        setter(ssl, &self.session)?;
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
