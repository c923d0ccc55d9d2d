//! Errors of TLS in plain words.

use std::fmt::{self, Display, Formatter};

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
    /// The peer refused this end.
    #[error("the peer has refused the connection: {0}")]
    Alert(TlsAlert),
    /// Received bytes are no valid TLS, or the ends have no version or cipher in common.
    #[error("{0}")]
    Protocol(String),
}

/// The alert with which a peer ends a connection: its number (RFC 8446 §6). The text says its meaning and its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsAlert(pub u8);

impl TlsAlert {
    /// Whether the peer refuses this end's certificate, or its absence. `handshake_failure` (40) counts: TLS 1.2 has no
    /// alert of its own for a missing one.
    pub fn is_about_certificate(self) -> bool {
        matches!(self.0, 40..=46 | 48 | 49 | 116)
    }
}

/// OpenSSL's library number of TLS (ERR_LIB_SSL).
const SSL_LIBRARY: i32 = 20;

/// SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE.
const NO_CERTIFICATE: i32 = 199;

/// OpenSSL's reason codes of alerts are their numbers above this one (SSL_AD_REASON_OFFSET).
const ALERT_REASONS: i32 = 1000;

impl TlsError {
    /// From what OpenSSL reports of a connection.
    pub(super) fn of_stack(stack: &ErrorStack) -> Self {
        for error in ssl_errors(stack) {
            let reason = error.reason_code();
            if let Ok(number) = u8::try_from(reason - ALERT_REASONS) {
                return Self::Alert(TlsAlert(number));
            }
            if reason == NO_CERTIFICATE {
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

impl Display for TlsAlert {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self.meaning() {
            Some(meaning) => write!(f, "{meaning} (alert '{name}')"),
            None => write!(f, "alert '{name}'"),
        }
    }
}

impl TlsAlert {
    fn meaning(self) -> Option<&'static str> {
        Some(match self.of_openssl()? {
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
            _ => return None,
        })
    }

    /// The name (RFC 8446 §6), or the number.
    fn name(self) -> String {
        // OpenSSL calls these 'unknown'.
        match self.0 {
            86 => "inappropriate fallback".to_owned(),
            109 => "missing extension".to_owned(),
            116 => "certificate required".to_owned(),
            120 => "no application protocol".to_owned(),
            number => match self.of_openssl().map(|alert| alert.to_string()) {
                Some(name) if name != "unknown" => name,
                _ => format!("number {number}"),
            },
        }
    }

    fn of_openssl(self) -> Option<SslAlert> {
        SslAlert::from_reason_code(ALERT_REASONS + i32::from(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_alert_has_a_name_or_a_number() {
        let text = |number| TlsAlert(number).to_string();
        assert!(text(116).ends_with("none was shown (alert 'certificate required')"));
        assert_eq!(text(120), "alert 'no application protocol'");
        assert_eq!(text(254), "alert 'number 254'");
        for number in 0..=255 {
            assert!(!text(number).contains("'unknown'"), "{number}");
        }
    }
}
