//! Converts HTTP statuses and connection errors to failures.

use data::error::DataError;
use proto::http::url::HttpUrl;
use security::tls::TlsError;
use ureq::Error;

use super::agent::UnknownProxy;
use super::response::HttpResponse;
use crate::network_proxy::proxy_advice;
use crate::protection::is_unknown_authority;
use crate::{CopyFailure, Exit};

/// A request that did not succeed.
#[derive(Debug)]
pub(super) struct RefusedRequest {
    /// Status of the response, if there was one.
    pub(super) status: Option<u16>,
    pub(super) failure: CopyFailure,
}

impl From<CopyFailure> for RefusedRequest {
    fn from(failure: CopyFailure) -> Self {
        Self {
            status: None,
            failure,
        }
    }
}

/// The failure of a request that a server redirects to `target`, which it must not follow: what is there is unknown.
pub(super) fn redirected(action: &str, target: &HttpUrl) -> CopyFailure {
    let message = format!(
        "cannot {action}: the server redirects the request to {target}; if that is meant, name it instead"
    );
    CopyFailure::new(Exit::Protocol, message)
}

/// The failure of a request about a path of which the server does not say what it is.
pub(super) fn unknown_kind(action: &str) -> CopyFailure {
    let message =
        format!("cannot {action}: the server does not say whether that is a file or a directory");
    CopyFailure::new(Exit::Protocol, message)
}

/// The failure of a transfer of a file that has another version now.
pub(super) fn changed(action: &str) -> CopyFailure {
    let message = format!("cannot {action}: the file changed while it was copied; start over");
    CopyFailure::new(Exit::Integrity, message)
}

/// The failure for a status. `action`: `read http://host/f`.
pub(super) fn status_failure(action: &str, response: &HttpResponse) -> CopyFailure {
    let status = response.status();
    let permanent = |exit, reason: &str| {
        let message = format!("cannot {action}: {reason} (HTTP {status})");
        CopyFailure::new(exit, message)
    };
    let transient = |reason: &str| {
        let after = response
            .header("retry-after")
            .filter(|after| is_printable(after));
        let after = after.map_or_else(String::new, |after| {
            format!(", which says Retry-After: {after}")
        });
        let message = format!("cannot {action}: {reason} (HTTP {status}{after})");
        CopyFailure::transient(Exit::Unreachable, message)
    };
    match status {
        404 | 410 => permanent(
            Exit::NotFound,
            "the server has no such file or directory; check the path",
        ),
        // PUT and MKCOL below a missing collection (RFC 4918 sections 9.3.1 and 9.7.1).
        409 => permanent(
            Exit::NotFound,
            "the directory above it does not exist; make it first",
        ),
        401 => permanent(
            Exit::Refused,
            "the server requires a user and a password; put them into ~/.netrc or the URL",
        ),
        403 => permanent(
            Exit::Refused,
            "the server refuses it; a signed URL may have expired",
        ),
        407 => permanent(
            Exit::Refused,
            "the proxy requires a login; write it into the proxy's URL",
        ),
        405 | 501 => permanent(
            Exit::Protocol,
            "the server does not support this request; it may not be a WebDAV server",
        ),
        411 => permanent(
            Exit::Protocol,
            "the server requires the length in advance; copy a file, not a pipe",
        ),
        412 => permanent(
            Exit::Integrity,
            "it has changed, or another program has made it; try again",
        ),
        413 => permanent(Exit::Local, "the server does not accept files of this size"),
        416 => permanent(Exit::Integrity, "the file became shorter; start over"),
        423 => permanent(Exit::Refused, "it is locked; try again later"),
        // Insufficient Storage (RFC 4918 section 11.5).
        507 => CopyFailure {
            no_room: true,
            ..permanent(
                Exit::Local,
                "the server's disk or quota is full; make room there",
            )
        },
        408 | 425 | 429 => transient("the server asks to retry later"),
        500..=599 => transient("the server failed"),
        300..=399 => permanent(
            Exit::Protocol,
            "the server redirects in a way that cannot be followed",
        ),
        _ => permanent(Exit::Protocol, "the server refuses it"),
    }
}

/// Whether text from a peer is fit to be shown.
fn is_printable(text: &str) -> bool {
    text.len() <= 64 && text.bytes().all(|b| b == b' ' || b.is_ascii_graphic())
}

/// The failure of a request without a response, or with an incomplete one.
pub(super) fn request_failure(
    action: &str,
    error: &Error,
    dialer_error: Option<&DataError>,
) -> CopyFailure {
    if let Some(dialer_error) = dialer_error {
        return data_failure(action, dialer_error);
    }
    if let Some(tls_error) = tls_error(error) {
        return tls_failure(action, tls_error);
    }
    match error {
        Error::Other(inner) if inner.is::<UnknownProxy>() => CopyFailure::new(
            Exit::Unreachable,
            format!("cannot {action}: {inner}; check its name"),
        ),
        Error::Io(inner) => CopyFailure::transient(
            Exit::Unreachable,
            format!("cannot {action}: the connection was lost: {inner}"),
        ),
        Error::HostNotFound => CopyFailure::new(
            Exit::Unreachable,
            format!("cannot {action}: the server's name is unknown; check the spelling"),
        ),
        Error::ConnectProxyFailed(_) => CopyFailure::new(
            Exit::Unreachable,
            format!(
                "cannot {action}: the proxy refuses the connection; check --proxy, https_proxy and no_proxy"
            ),
        ),
        Error::Protocol(_) | Error::LargeResponseHeader(..) | Error::Http(_) => CopyFailure::new(
            Exit::Protocol,
            format!("cannot {action}: the server's response is not valid HTTP/1.1"),
        ),
        _ => CopyFailure::transient(
            Exit::Unreachable,
            format!("cannot {action}: the connection was lost"),
        ),
    }
}

/// The error of TLS behind one of the HTTP client.
fn tls_error(error: &Error) -> Option<&TlsError> {
    match error {
        Error::Other(inner) => inner.downcast_ref(),
        // While a body is read, errors arrive wrapped in io::Error.
        Error::Io(inner) => tls_error(inner.get_ref()?.downcast_ref()?),
        _ => None,
    }
}

fn tls_failure(action: &str, error: &TlsError) -> CopyFailure {
    let hint = match error {
        TlsError::Peer(reason) if is_unknown_authority(reason) => {
            "; if you trust its authority, name the file of its certificate with --ca"
        }
        TlsError::Protocol(_) => "; check the port, or use http:",
        _ => "",
    };
    let reason = match error {
        TlsError::Peer(reason) => format!("the server's certificate is not valid: {reason}"),
        other => format!("no secure connection: {other}"),
    };
    let message = format!("cannot {action}: {reason}{hint}");
    // The names in a certificate may have line ends; a message is one line.
    CopyFailure::new(Exit::Unreachable, message.replace(['\r', '\n'], " "))
}

fn data_failure(action: &str, error: &DataError) -> CopyFailure {
    match error {
        DataError::Aborted => CopyFailure::new(Exit::Interrupted, "interrupted"),
        DataError::Stalled { seconds } => CopyFailure::transient(
            Exit::Unreachable,
            format!(
                "cannot {action}: received nothing from the server for {seconds} s; try again, with a longer --timeout if it is slow"
            ),
        ),
        DataError::Connect { to, source } => CopyFailure {
            away: true,
            ..CopyFailure::unreachable(format!(
                "cannot {action}: cannot connect to {to}: {source}; check host and port, and that the server runs"
            ))
        },
        DataError::Tunnel { source, .. } => {
            let (exit, transient, advice) = proxy_advice(source);
            CopyFailure {
                transient,
                ..CopyFailure::new(exit, format!("cannot {action}: {error}; {advice}"))
            }
        }
        DataError::Setup { .. } => {
            CopyFailure::new(Exit::Local, format!("cannot {action}: {error}"))
        }
        DataError::Wire { source, .. } => CopyFailure::transient(
            Exit::Unreachable,
            format!("cannot {action}: the connection was lost: {source}"),
        ),
        other => CopyFailure::transient(Exit::Unreachable, format!("cannot {action}: {other}")),
    }
}

#[cfg(test)]
mod tests {
    use security::x509::{DistinguishedName, TrustError};

    use super::*;

    #[test]
    fn an_unknown_authority_is_answered_with_the_flag_for_authorities() {
        let unknown = TlsError::Peer(TrustError::Chain {
            subject: DistinguishedName::from_text("/CN=h"),
            problem: "its issuer /CN=a is not among the trusted authorities".to_owned(),
        });
        let failure = tls_failure("read h", &unknown);
        assert!(failure.message.ends_with("with --ca"), "{failure}");
        let other = tls_failure("read h", &TlsError::Protocol("wrong version".to_owned()));
        assert!(!other.message.contains("--ca"), "{other}");
    }
}
