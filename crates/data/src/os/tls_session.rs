//! The resumption of TLS sessions by clients.

/// Lets TLS clients of this process resume sessions. May be called any number of times.
pub(crate) fn permit_resumption() {
    security::tls::install_session_setter(|ssl, session| {
        // SAFETY: the session must belong to the SSL_CTX of the connection. `SessionSetter` is called
        // for no other: `TlsSession` compares the contexts first.
        unsafe { ssl.set_session(session) }
    });
}
