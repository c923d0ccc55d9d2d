//! The resumption of TLS sessions by clients.

use openssl::ssl::SslSession;

/// Lets TLS clients of this process resume sessions. May be called any number of times.
pub(crate) fn permit_resumption() {
    security::tls::install_session_setter(|ssl, session| {
        // Each connection gets a copy: OpenSSL forbids the resumption of a session whose connection
        // ends without close_notify (ssl_clear_bad_session), and one session serves many.
        let copy = SslSession::from_der(&session.to_der()?)?;
        // SAFETY: the session must belong to the SSL_CTX of the connection. `SessionSetter` is called
        // for no other, since `TlsSession` compares the contexts first, and a copy made from its
        // encoding belongs to none.
        unsafe { ssl.set_session(&copy) }
    });
}
