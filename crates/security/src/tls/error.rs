//! Errors of TLS in plain words.

use openssl::error::{Error, ErrorStack};
use openssl::ssl::SslAlert;

use crate::x509::TrustError;

/// Error of a TLS connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// The configuration cannot be used.
    #[error("{0}")]
    Config(String),
    /// The peer's certificate is refused.
    #[error(transparent)]
    Peer(#[from] TrustError),
    /// The peer refused this end with an alert (RFC 8446 §6.2); the text names it.
    #[error("the peer has refused the connection: {0}")]
    Alert(String),
    /// Received bytes are no valid TLS, or the ends have no version or cipher in common.
    #[error("{0}")]
    Protocol(String),
}

/// OpenSSL's library number of TLS (ERR_LIB_SSL).
const SSL_LIBRARY: i32 = 20;

impl TlsError {
    /// From what OpenSSL reports of a connection.
    pub(super) fn of_stack(stack: &ErrorStack) -> Self {
        for error in ssl_errors(stack) {
            if let Some(alert) = SslAlert::from_reason_code(error.reason_code()) {
                return Self::Alert(alert_in_words(alert));
            }
            if error.reason() == Some("peer did not return a certificate") {
                return Self::Peer(TrustError::NoCertificate);
            }
        }
        Self::Protocol(in_words(stack))
    }
}

fn ssl_errors(stack: &ErrorStack) -> impl Iterator<Item = &Error> {
    stack
        .errors()
        .iter()
        .filter(|error| error.library_code() == SSL_LIBRARY)
}

/// The reason of a failure: the first one that OpenSSL gives, in plain words where they are known.
pub(super) fn in_words(stack: &ErrorStack) -> String {
    let first = ssl_errors(stack).next().or(stack.errors().first());
    let Some(reason) = first.and_then(Error::reason) else {
        return "OpenSSL gives no reason".to_owned();
    };
    let known = REASONS.iter().find(|(theirs, _)| *theirs == reason);
    known.map_or_else(
        || format!("TLS failed: {reason}"),
        |&(_, ours)| ours.to_owned(),
    )
}

/// OpenSSL's reasons that people meet, and what they mean.
const REASONS: &[(&str, &str)] = &[
    (
        "wrong version number",
        "the peer does not speak TLS: it has sent something else",
    ),
    ("http request", "the peer speaks HTTP, not TLS"),
    ("https proxy request", "the peer speaks HTTP, not TLS"),
    (
        "packet length too long",
        "the peer does not speak TLS: a record is too long",
    ),
    (
        "unsupported protocol",
        "the peer has no TLS version that is accepted here",
    ),
    (
        "no shared cipher",
        "the ends have no cipher suite in common",
    ),
    (
        "no suitable signature algorithm",
        "the ends have no signature algorithm in common",
    ),
    (
        "decryption failed or bad record mac",
        "a record was altered on its way: its authentication fails",
    ),
    (
        "bad record type",
        "the peer has sent bytes that are no TLS record",
    ),
    (
        "unexpected message",
        "the peer has sent a TLS message out of turn",
    ),
    (
        "unexpected record",
        "the peer has sent a TLS record out of turn",
    ),
    (
        "length mismatch",
        "the peer has sent a TLS message of wrong length",
    ),
    (
        "bad signature",
        "the peer does not have the key of its certificate",
    ),
    (
        "ee key too small",
        "the key of the certificate is too small: RSA keys need 2048 bits",
    ),
    (
        "ca key too small",
        "the key of an authority in the chain is too small: RSA keys need 2048 bits",
    ),
    (
        "ca md too weak",
        "the signature of the certificate is too weak: SHA-256 or better is needed",
    ),
    (
        "unsafe legacy renegotiation disabled",
        "the peer lacks secure renegotiation (RFC 5746)",
    ),
    (
        "dh key too small",
        "the Diffie-Hellman key of the peer is too small",
    ),
    (
        "key values mismatch",
        "the private key does not belong to the certificate",
    ),
    (
        "protocol is shutdown",
        "this end has already closed the connection",
    ),
];

fn alert_in_words(alert: SslAlert) -> String {
    let words = match alert {
        SslAlert::UNKNOWN_CA => "it does not know the authority of the certificate shown to it",
        SslAlert::CERTIFICATE_EXPIRED => {
            "the certificate shown to it has expired or is not yet valid"
        }
        SslAlert::CERTIFICATE_REVOKED => "the certificate shown to it is revoked",
        SslAlert::BAD_CERTIFICATE => "the certificate shown to it is invalid",
        SslAlert::UNSUPPORTED_CERTIFICATE => {
            "the certificate shown to it is of the wrong kind or for another use"
        }
        SslAlert::CERTIFICATE_UNKNOWN => "it does not accept the certificate shown to it",
        SslAlert::CERTIFICATE_REQUIRED => "it requires a certificate, and none was shown",
        SslAlert::HANDSHAKE_FAILURE => {
            "it finds no acceptable cipher, certificate or option in the handshake"
        }
        SslAlert::PROTOCOL_VERSION => "it accepts none of the TLS versions offered",
        SslAlert::INSUFFICIENT_SECURITY => "it requires stronger ciphers than offered",
        SslAlert::UNRECOGNIZED_NAME => "it does not serve the host name asked for",
        SslAlert::ACCESS_DENIED => "it denies access",
        SslAlert::BAD_RECORD_MAC => "a record was altered on its way to it",
        SslAlert::NO_RENEGOTIATION => "it refuses to renegotiate",
        SslAlert::INTERNAL_ERROR => "it has an internal error",
        _ => return format!("alert '{}'", alert_name(alert)),
    };
    format!("{words} (alert '{}')", alert_name(alert))
}

/// OpenSSL's alert numbers as reason codes begin here (SSL_AD_REASON_OFFSET).
const ALERT_REASONS: i32 = 1000;

/// The name of an alert (RFC 8446 §6), or its number.
fn alert_name(alert: SslAlert) -> String {
    let number = alert.reason_code() - ALERT_REASONS;
    // OpenSSL calls these 'unknown'.
    match number {
        86 => "inappropriate fallback".to_owned(),
        109 => "missing extension".to_owned(),
        116 => "certificate required".to_owned(),
        120 => "no application protocol".to_owned(),
        _ => match alert.to_string() {
            name if name == "unknown" => format!("number {number}"),
            name => name,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_alert_has_a_name_or_a_number() {
        let name = |number| {
            let alert = SslAlert::from_reason_code(ALERT_REASONS + number).unwrap();
            alert_in_words(alert)
        };
        assert!(name(116).ends_with("none was shown (alert 'certificate required')"));
        assert_eq!(name(120), "alert 'no application protocol'");
        assert_eq!(name(254), "alert 'number 254'");
        for number in 0..=255 {
            assert!(!name(number).contains("'unknown'"), "{number}");
        }
    }
}
