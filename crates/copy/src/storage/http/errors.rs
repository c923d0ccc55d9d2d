//! Converts HTTP statuses and connection errors to failures.

use data::error::DataError;
use proto::http::url::HttpUrl;
use security::tls::TlsError;
use security::x509::TrustError;
use ureq::Error;

use super::agent::UnknownHost;
use super::response::HttpResponse;
use ftp::failure::{Operation, Sentence};
use ftp::network_proxy::proxy_advice;
use ftp::{Failure, FailureKind};

/// A request that did not succeed.
#[derive(Debug)]
pub(super) struct RefusedRequest {
    /// Status of the response, if there was one.
    pub(super) status: Option<u16>,
    pub(super) failure: Failure,
}

impl From<Failure> for RefusedRequest {
    fn from(failure: Failure) -> Self {
        Self {
            status: None,
            failure,
        }
    }
}

/// The failure of a request that a server redirects to `target`, which it must not follow: what is there is unknown.
pub(super) fn redirected(action: &Operation, target: &HttpUrl) -> Failure {
    let reason = Sentence::cannot(action)
        .words(": the server redirects the request to ")
        .name(target);
    Failure::protocol(reason).advise("if that is meant, name it instead")
}

/// The failure of a request about a path of which the server does not say what it is.
pub(super) fn unknown_kind(action: &Operation) -> Failure {
    action.failed(
        FailureKind::Protocol,
        "the server does not say whether that is a file or a directory",
    )
}

/// The failure of a transfer of a file that has another version now.
pub(in crate::storage) fn changed(action: &Operation) -> Failure {
    action.failed(
        FailureKind::Integrity,
        "the file changed while it was copied; start over",
    )
}

/// The failure for a status.
pub(in crate::storage) fn status_failure(action: &Operation, response: &HttpResponse) -> Failure {
    let status = response.status();
    let (kind, reason) = match status {
        404 | 410 => (
            FailureKind::NotFound,
            "the server has no such file or directory; check the path",
        ),
        // PUT and MKCOL below a missing collection (RFC 4918 sections 9.3.1 and 9.7.1).
        409 => (
            FailureKind::NotFound,
            "the directory above it does not exist; make it first",
        ),
        401 => (
            FailureKind::Refused,
            "the server requires a user and a password; put them into ~/.netrc or the URL",
        ),
        403 => (
            FailureKind::Refused,
            "the server refuses it; a signed URL may have expired",
        ),
        407 => (
            FailureKind::Refused,
            "the proxy requires a login; write it into the proxy's URL",
        ),
        405 | 501 => (
            FailureKind::Protocol,
            "the server does not support this request; it may not be a WebDAV server",
        ),
        411 => (
            FailureKind::Protocol,
            "the server requires the length in advance; copy a file, not a pipe",
        ),
        412 => (
            FailureKind::Integrity,
            "it has changed, or another program has made it; try again",
        ),
        413 => (
            FailureKind::Local,
            "the server does not accept files of this size",
        ),
        416 => (
            FailureKind::Integrity,
            "the file became shorter; start over",
        ),
        423 => (FailureKind::Refused, "it is locked; try again later"),
        // Insufficient Storage (RFC 4918 section 11.5).
        507 => (
            FailureKind::ServerDiskFull,
            "the server's disk or quota is full; make room there",
        ),
        408 | 425 | 429 => (FailureKind::Unreachable, "the server asks to retry later"),
        500..=599 => (FailureKind::Unreachable, "the server failed"),
        300..=399 => (
            FailureKind::Protocol,
            "the server redirects in a way that cannot be followed",
        ),
        _ => (FailureKind::Protocol, "the server refuses it"),
    };
    let may_retry = kind == FailureKind::Unreachable;
    let after = response
        .header("retry-after")
        .filter(|after| may_retry && is_printable(after));
    let after = after.map_or_else(String::new, |after| {
        format!(", which says Retry-After: {after}")
    });
    let reason = format_args!("{reason} (HTTP {status}{after})");
    action.failed(kind, reason).retried(may_retry)
}

/// Whether text from a peer is fit to be shown.
fn is_printable(text: &str) -> bool {
    text.len() <= 64 && text.bytes().all(|b| b == b' ' || b.is_ascii_graphic())
}

/// The failure of a request without a response, or with an incomplete one.
pub(in crate::storage) fn request_failure(
    action: &Operation,
    error: &Error,
    dialer_error: Option<&DataError>,
) -> Failure {
    if let Some(dialer_error) = dialer_error {
        return data_failure(action, dialer_error);
    }
    if let Some(tls_error) = tls_error(error) {
        return tls_failure(action, tls_error);
    }
    match error {
        // As one that does not answer: nobody waits for a host that was never reached, and its name may be wrong.
        Error::Other(inner) if inner.is::<UnknownHost>() => action
            .failed(FailureKind::Away, inner)
            .retried(true)
            .advise("check the host name"),
        Error::Io(inner) => action
            .failed(
                FailureKind::Unreachable,
                format_args!("the connection was lost: {inner}"),
            )
            .retried(true),
        Error::HostNotFound => action
            .failed(FailureKind::Unreachable, "the server has no address")
            .advise("check the host name"),
        Error::ConnectProxyFailed(_) => action.failed(
            FailureKind::Unreachable,
            "the proxy refuses the connection; check --proxy, https_proxy and no_proxy",
        ),
        Error::Protocol(_) | Error::LargeResponseHeader(..) | Error::Http(_) => action.failed(
            FailureKind::Protocol,
            "the server's response is not valid HTTP/1.1",
        ),
        _ => action
            .failed(FailureKind::Unreachable, "the connection was lost")
            .retried(true),
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

fn tls_failure(action: &Operation, error: &TlsError) -> Failure {
    let hint = match error {
        TlsError::Peer(TrustError::UnknownAuthority { .. }) => {
            "; if you trust its authority, name the file of its certificate with --ca"
        }
        TlsError::Protocol(_) => "; check the port, or use http:",
        _ => "",
    };
    let reason = match error {
        TlsError::Peer(reason) => format!("the server's certificate is not valid: {reason}"),
        other => format!("no secure connection: {other}"),
    };
    // The names in a certificate may have line ends; a message is one line.
    let reason = reason.replace(['\r', '\n'], " ");
    action.failed(FailureKind::Unreachable, reason + hint)
}

fn data_failure(action: &Operation, error: &DataError) -> Failure {
    match error {
        DataError::Aborted => Failure::new(FailureKind::Interrupted, "interrupted"),
        DataError::Stalled { seconds } => action.failed(FailureKind::Unreachable, format_args!("received nothing from the server for {seconds} s; try again, with a longer --timeout if it is slow")).retried(true),
        DataError::Connect { to, source } => {
            let reason = format_args!("cannot connect to {to}: {source}");
            action.failed(FailureKind::Away, reason)
                .retried(true)
                .advise("check host and port, and that the server runs")
        }
        DataError::Tunnel { source, .. } => {
            let (kind, may_retry, advice) = proxy_advice(source);
            action.failed(kind, error)
                .retried(may_retry)
                .advise(advice)
        }
        DataError::Setup { .. } => {
            action.failed(FailureKind::Local, error)
        }
        DataError::Wire { source, .. } => action.failed(FailureKind::Unreachable, format_args!("the connection was lost: {source}")).retried(true),
        other => action.failed(FailureKind::Unreachable, other).retried(true),
    }
}

#[cfg(test)]
mod tests {
    use security::x509::DistinguishedName;

    use super::*;

    #[test]
    fn an_unknown_authority_is_answered_with_the_flag_for_authorities() {
        let unknown = TlsError::Peer(TrustError::UnknownAuthority {
            subject: DistinguishedName::from_text("/CN=h"),
            problem: "its issuer /CN=a is unknown".to_owned(),
        });
        let failure = tls_failure(&Operation::from("read h"), &unknown);
        assert!(failure.to_string().ends_with("with --ca"), "{failure}");
        let other = tls_failure(
            &Operation::from("read h"),
            &TlsError::Protocol("wrong version".to_owned()),
        );
        assert!(!other.to_string().contains("--ca"), "{other}");
    }
}
