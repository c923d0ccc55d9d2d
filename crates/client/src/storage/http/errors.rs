//! Failures of requests: of a status, of a connection that could not be made or broke.

use data::error::DataError;
use ureq::Error;

use super::client::HttpResponse;
use crate::{CopyFailure, Exit};

/// The failure that a status stands for; `doing`: `read http://host/f`.
pub(super) fn of_status(doing: &str, reply: &HttpResponse) -> CopyFailure {
    let status = reply.status();
    let failed = |exit, why: &str| {
        let message = format!("cannot {doing}: {why} (HTTP {status})");
        CopyFailure::new(exit, message)
    };
    let later = |why: &str| {
        let after = reply.field("retry-after").filter(|after| is_plain(after));
        let after = after.map_or_else(String::new, |after| {
            format!(", which says Retry-After: {after}")
        });
        let message = format!("cannot {doing}: {why} (HTTP {status}{after})");
        CopyFailure::transient(Exit::Unreachable, message)
    };
    match status {
        404 | 410 => failed(Exit::NotFound, "the server has no such file or directory"),
        409 => failed(
            Exit::NotFound,
            "the directory above it does not exist; make it first",
        ),
        401 => failed(
            Exit::Refused,
            "the server wants a user and a password; put them into ~/.netrc or the URL",
        ),
        403 => failed(
            Exit::Refused,
            "the server refuses it; a signed URL may have expired",
        ),
        407 => failed(
            Exit::Refused,
            "the proxy wants a login; put it into https_proxy",
        ),
        405 | 501 => failed(
            Exit::Protocol,
            "the server does not take such requests; it may be no WebDAV server",
        ),
        411 => failed(
            Exit::Protocol,
            "the server must know the length first; copy a file, not a pipe",
        ),
        412 => failed(
            Exit::Integrity,
            "the file changed while it was copied; start over",
        ),
        413 => failed(Exit::Local, "the server takes no files of this size"),
        416 => failed(Exit::Integrity, "the file became shorter; start over"),
        423 => failed(Exit::Refused, "somebody holds a lock on it"),
        507 => failed(Exit::Local, "the server's disk or quota is full"),
        408 | 425 | 429 => later("the server asks to come back later"),
        500..=599 => later("the server failed"),
        300..=399 => failed(
            Exit::Protocol,
            "the server leads elsewhere in a way that cannot be followed",
        ),
        _ => failed(Exit::Protocol, "the server refuses it"),
    }
}

/// Words of a peer that are fit to be shown.
fn is_plain(text: &str) -> bool {
    text.len() <= 64 && text.bytes().all(|b| b == b' ' || b.is_ascii_graphic())
}

/// The failure of a request that got no answer, or whose answer broke off.
pub(super) fn of_error(doing: &str, error: &Error, own: Option<&DataError>) -> CopyFailure {
    if let Some(own) = own {
        return of_data(doing, own);
    }
    match error {
        Error::Io(inner) => match inner
            .get_ref()
            .and_then(|e| e.downcast_ref::<rustls::Error>())
        {
            Some(tls) => of_tls(doing, tls),
            None => CopyFailure::transient(
                Exit::Unreachable,
                format!("cannot {doing}: the connection was lost: {inner}"),
            ),
        },
        Error::Rustls(tls) => of_tls(doing, tls),
        Error::HostNotFound => CopyFailure::new(
            Exit::Unreachable,
            format!("cannot {doing}: the server's name is unknown; is it spelled right?"),
        ),
        Error::ConnectProxyFailed(_) => CopyFailure::new(
            Exit::Unreachable,
            format!(
                "cannot {doing}: the proxy does not let it through; see https_proxy and no_proxy"
            ),
        ),
        Error::Protocol(_) | Error::LargeResponseHeader(..) | Error::Http(_) => CopyFailure::new(
            Exit::Protocol,
            format!("cannot {doing}: the server's answer is no HTTP/1.1 that can be read"),
        ),
        _ => CopyFailure::transient(
            Exit::Unreachable,
            format!("cannot {doing}: the connection was lost"),
        ),
    }
}

fn of_tls(doing: &str, error: &rustls::Error) -> CopyFailure {
    use rustls::CertificateError as Certificate;
    let hint = match error {
        rustls::Error::InvalidCertificate(Certificate::UnknownIssuer) => {
            "; if its authority is your own, name it in SSL_CERT_FILE"
        }
        _ => "",
    };
    let why = match error {
        rustls::Error::InvalidCertificate(Certificate::Other(why)) => {
            format!("the server's certificate is not valid: {}", why.0)
        }
        rustls::Error::InvalidCertificate(why) => {
            format!("the server's certificate is not valid: {why}")
        }
        other => format!("no secure connection: {other}"),
    };
    let message = format!("cannot {doing}: {why}{hint}");
    CopyFailure::new(Exit::Unreachable, message.replace(['\r', '\n'], " "))
}

fn of_data(doing: &str, error: &DataError) -> CopyFailure {
    match error {
        DataError::Aborted => CopyFailure::new(Exit::Interrupted, "interrupted"),
        DataError::Stalled { seconds } => CopyFailure::transient(
            Exit::Unreachable,
            format!("cannot {doing}: nothing came from the server for {seconds} s"),
        ),
        DataError::Connect { to, source } => CopyFailure::transient(
            Exit::Unreachable,
            format!("cannot {doing}: cannot connect to {to}: {source}"),
        ),
        DataError::Setup { .. } => {
            CopyFailure::new(Exit::Local, format!("cannot {doing}: {error}"))
        }
        DataError::Wire { source, .. } => CopyFailure::transient(
            Exit::Unreachable,
            format!("cannot {doing}: the connection was lost: {source}"),
        ),
        other => CopyFailure::transient(Exit::Unreachable, format!("cannot {doing}: {other}")),
    }
}
