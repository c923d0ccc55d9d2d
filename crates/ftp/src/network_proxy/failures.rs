//! Failures of proxies: what they mean, and what to do.

use data::tunnel::TunnelFailure;
use proto::tunnel::TunnelError;

use crate::{Failure, FailureKind};

/// The failure of a control connection to `server` through the proxy with this name.
pub(crate) fn proxy_failure(server: &str, proxy: &str, failure: &TunnelFailure) -> Failure {
    let (kind, may_retry, advice) = proxy_advice(failure);
    let reason = format!("cannot connect to {server} through the proxy {proxy}: {failure}");
    Failure::new(kind, reason).retried(may_retry).advise(advice)
}

/// The kind of the failure, whether another attempt may succeed, and what to do.
pub fn proxy_advice(failure: &TunnelFailure) -> (FailureKind, bool, &'static str) {
    let check_proxy = "check the proxy's host and port, or use --proxy none if the server can be reached \
                       without it";
    match failure {
        TunnelFailure::NoProxy(error) => {
            // As with servers, nothing listens there.
            let is_final = error.kind() == std::io::ErrorKind::ConnectionRefused;
            (FailureKind::Unreachable, !is_final, check_proxy)
        }
        TunnelFailure::Lost(_) => (
            FailureKind::Unreachable,
            true,
            "check that it is a proxy of this kind (http, socks5), or try again",
        ),
        TunnelFailure::TimedOut => (
            FailureKind::Unreachable,
            true,
            "check that the server runs and the proxy is of this kind (http, socks5), or try again with a longer --timeout",
        ),
        TunnelFailure::Refused(refusal) => match refusal {
            TunnelError::NotHttp | TunnelError::NotSocks5 { .. } | TunnelError::Invalid(_) => (
                FailureKind::Protocol,
                false,
                "write http:// for a proxy with CONNECT, socks5:// for SOCKS version 5, and its own port",
            ),
            TunnelError::LoginRequired => (
                FailureKind::Refused,
                false,
                "write it into the proxy's URL: USER:PASSWORD@ before the host",
            ),
            TunnelError::LoginRefused => (
                FailureKind::Refused,
                false,
                "check user and password in the proxy's URL",
            ),
            TunnelError::Forbidden(_) => (
                FailureKind::Refused,
                false,
                "its administrator must allow the server's control port and its data ports",
            ),
            TunnelError::ServerRefused => (
                FailureKind::Unreachable,
                false,
                "check host and port, and that the server runs",
            ),
            TunnelError::Unreachable(_) => (
                FailureKind::Unreachable,
                true,
                "check host and port, and that the server runs",
            ),
            TunnelError::Unsupported(_) => (
                FailureKind::Unreachable,
                false,
                "use another proxy, or ask its administrator",
            ),
        },
    }
}
