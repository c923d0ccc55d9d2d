//! The newest session of a connection, as OpenSSL reports it.

use std::sync::{Arc, OnceLock};

use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::ssl::{Ssl, SslContextBuilder, SslRef, SslSession};
use parking_lot::Mutex;

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
            *newest.lock() = Some(session);
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
