//! Failures of security exchanges, with what the user can do.

use std::io;

use data::transport::tls_error;
use proto::reply::Reply;
use security::gsi::GsiError;
use security::tls::TlsError;
use security::x509::TrustError;

use crate::Failure;
use crate::failure::display_reply;

/// The failure of a TLS handshake or connection with `server`. `trust_advice` says how to trust its
/// authority.
fn peer_failure(server: &str, error: &TlsError, trust_advice: &str) -> Failure {
    match error {
        TlsError::Peer(TrustError::Name(names)) => Failure::refused(format!(
            "{server} is not the host that its certificate names: {names}; connect by a name of the \
             certificate"
        )),
        TlsError::Peer(TrustError::NoCertificate) => Failure::refused(format!(
            "{server} has shown no certificate, so it cannot be verified; ask its administrator"
        )),
        TlsError::Peer(reason @ TrustError::UnknownAuthority { .. }) => Failure::refused(format!(
            "the certificate of {server} is refused: {reason}; if you trust its authority, {trust_advice}"
        )),
        // Expired, revoked, not for servers, against a signing policy.
        TlsError::Peer(reason) => Failure::refused(format!(
            "the certificate of {server} is refused: {reason}; ask its administrator for a valid one, or \
             check your certificate authorities"
        )),
        TlsError::Alert(alert) if alert.is_about_certificate() => Failure::refused(format!(
            "{server} refused this client's certificate or its absence: {alert}; name a certificate \
             that it accepts with --cert and --key"
        )),
        TlsError::Alert(alert) => Failure::protocol(format!(
            "{server} refused the TLS handshake: {alert}; ask its administrator for TLS 1.2 or newer"
        )),
        TlsError::Config(problem) => {
            Failure::refused(format!("cannot use TLS with {server}: {problem}"))
        }
        TlsError::Protocol(problem) => Failure::protocol(format!(
            "{server} broke the TLS protocol: {problem}; check host and port"
        )),
    }
}

/// The failure of TLS with an FTP server.
pub(crate) fn tls_failure(server: &str, error: &TlsError) -> Failure {
    peer_failure(server, error, "name the file of its certificate with --ca")
}

/// The failure of a TLS handshake: TLS itself, or the connection below.
pub(crate) fn handshake_failure(server: &str, error: &io::Error) -> Failure {
    match tls_error(error) {
        Some(error) => tls_failure(server, error),
        None => Failure::unreachable(format!(
            "lost {server} in the TLS handshake: {error}; try again"
        )),
    }
}

/// The failure of a GSI exchange, or of a message inside it.
pub(crate) fn gsi_failure(server: &str, error: &GsiError) -> Failure {
    let advice = "put it into ~/.globus/certificates, or name its directory with --ca";
    match error {
        GsiError::Tls(error) => peer_failure(server, error, advice),
        GsiError::Delegation(problem) => Failure::refused(format!(
            "cannot delegate a credential to {server}: {problem}; leave out --delegate"
        )),
        // The other one is an error of servers alone.
        GsiError::Token(_) | GsiError::NotDelegator(_) => Failure::protocol(format!(
            "{server} broke the GSI protocol: {error}; report this to its administrator"
        )),
    }
}

/// The failure when the server refuses a security mechanism.
pub(crate) fn auth_refused_failure(server: &str, mechanism: &str, reply: &Reply) -> Failure {
    let reply_text = display_reply(reply);
    match mechanism {
        "GSSAPI" => Failure::refused(format!(
            "{server} has no GSI security (AUTH GSSAPI): {reply_text}; for a server without security use ftp:, \
             for one with TLS ftps:"
        )),
        _ => Failure::refused(format!(
            "{server} has no TLS (AUTH TLS): {reply_text}; only ftp: without --tls require works there, \
             in clear"
        )),
    }
}

/// The failure when a server that had TLS before refuses it with `--tls try`.
pub(crate) fn tls_withdrawn_failure(server: &str, reply: &Reply) -> Failure {
    Failure::refused(format!(
        "{server} had TLS before and refuses it now ({}): somebody on the path may have changed its reply, \
         so this session is not opened in clear; try again",
        display_reply(reply)
    ))
}

/// The failure when the server ends a GSI exchange.
pub(crate) fn exchange_refused_failure(server: &str, reply: &Reply) -> Failure {
    if reply.is_transient_error() {
        return Failure::unreachable(format!(
            "{server} ended the GSI exchange: {}; try again later",
            display_reply(reply)
        ));
    }
    let lines: Vec<String> = reply.lines.iter().map(|line| line_text(line)).collect();
    let reasons: Vec<&str> = lines
        .iter()
        .map(|line| line.trim())
        .filter(|line| !line.is_empty() && *line != "End.")
        .collect();
    Failure::refused(format!(
        "{server} refused your certificate: {} {}; check that it knows the authority of your certificate \
         (`longhaul proxy info`)",
        reply.code,
        reasons.join(" ").trim_end_matches('.')
    ))
}

fn line_text(line: &[u8]) -> String {
    proto::printable::printable(line).to_string()
}

/// The failure of a configuration.
pub(crate) fn config_failure(error: &TlsError) -> Failure {
    Failure::refused(format!("cannot use this certificate for TLS: {error}"))
}

/// The failure to read authorities.
pub(crate) fn authorities_failure(error: &TrustError) -> Failure {
    Failure::refused(format!(
        "cannot verify servers: {error}; name a file or directory of certificate authorities with --ca"
    ))
}

/// The warning when `--tls try` goes on in clear.
pub(crate) fn clear_fallback_warning(server: &str, reply: &Reply) -> String {
    format!(
        "{server} has no TLS ({}): this session is in clear; --tls require refuses that",
        display_reply(reply)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FailureKind;
    use security::tls::TlsAlert;
    use security::x509::DistinguishedName;

    /// Alerts of RFC 8446 §6.
    const HANDSHAKE_FAILURE: u8 = 40;
    const PROTOCOL_VERSION: u8 = 70;
    const CERTIFICATE_REQUIRED: u8 = 116;

    #[test]
    fn failures_have_the_exit_class_of_their_cause_and_say_what_to_do() {
        let subject = || DistinguishedName::from_text("/CN=h");
        let unknown = TrustError::UnknownAuthority {
            subject: subject(),
            problem: "its issuer is unknown".to_owned(),
        };
        let expired = TrustError::Chain {
            subject: subject(),
            problem: "expired at 2020".to_owned(),
        };
        let table = [
            (unknown.into(), FailureKind::Refused, "with --ca"),
            (expired.into(), FailureKind::Refused, "administrator"),
            (
                TlsError::Peer(TrustError::Name("it names other.example".to_owned())),
                FailureKind::Refused,
                "other.example",
            ),
            (
                TlsError::Peer(TrustError::NoCertificate),
                FailureKind::Refused,
                "no certificate",
            ),
            (
                TlsError::Alert(TlsAlert(CERTIFICATE_REQUIRED)),
                FailureKind::Refused,
                "--cert",
            ),
            (
                TlsError::Alert(TlsAlert(HANDSHAKE_FAILURE)),
                FailureKind::Refused,
                "--cert",
            ),
            (
                TlsError::Alert(TlsAlert(PROTOCOL_VERSION)),
                FailureKind::Protocol,
                "TLS 1.2",
            ),
            (
                TlsError::Protocol("wrong version number".to_owned()),
                FailureKind::Protocol,
                "check host and port",
            ),
        ];
        for (error, kind, word) in table {
            let failure = tls_failure("h:21", &error);
            assert_eq!(failure.kind(), kind, "{failure}");
            assert!(
                failure.to_string().contains(word) && failure.to_string().contains("h:21"),
                "{failure}"
            );
            assert!(!failure.may_retry());
        }
    }

    #[test]
    fn a_refused_gsi_exchange_shows_the_servers_reasons_in_one_line() {
        let lines = [
            "globus_xio: Authentication Error",
            "",
            "certificate has expired",
            "End.",
        ];
        let reply = Reply {
            code: 530,
            lines: lines.iter().map(|line| line.as_bytes().to_vec()).collect(),
        };
        let failure = exchange_refused_failure("h:2811", &reply);
        assert_eq!(failure.kind(), FailureKind::Refused);
        assert!(
            failure
                .to_string()
                .contains("530 globus_xio: Authentication Error certificate has expired;"),
            "{failure}"
        );
    }
}
