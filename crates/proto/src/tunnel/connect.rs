//! CONNECT of HTTP/1.1: the request, and the header of the response.

use super::{ProxyLogin, TunnelError, TunnelTarget};
use crate::printable::printable;
use crate::security::base64::encode_base64;

/// Longest header, bytes. Pages about errors follow it and are not read.
const MAX_HEADER: usize = 16 << 10;
/// Longest reason that is shown, bytes.
const MAX_REASON: usize = 80;
/// Each response begins with it.
const BEGIN: &[u8] = b"HTTP/1.";

/// The request.
pub(super) fn request(target: &TunnelTarget, login: Option<&ProxyLogin>) -> Vec<u8> {
    let mut text = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n").into_bytes();
    text.extend_from_slice(b"User-Agent: longhaul\r\n");
    if let Some(login) = login {
        let pair = super::Secret([&login.user.0[..], b":", &login.password.0].concat());
        text.extend_from_slice(b"Proxy-Authorization: Basic ");
        text.extend_from_slice(encode_base64(&pair.0).as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"\r\n");
    text
}

/// The header of the response, as far as it is received.
#[derive(Debug, Default)]
pub(super) struct ConnectResponse {
    header: Vec<u8>,
    /// Bytes of interim responses (1xx) before this one.
    earlier: usize,
}

impl ConnectResponse {
    /// The bytes that are missing at least. A header ends with an empty line; its lines may end with a bare LF (RFC 9112
    /// §2.2).
    pub(super) fn wanted(&self) -> usize {
        match self.header.as_slice() {
            // The status line is at least as long as this.
            short if short.len() < BEGIN.len() => BEGIN.len() - short.len(),
            [.., b'\n'] | [.., b'\n', b'\r'] => 1,
            _ => 2,
        }
    }

    /// Takes bytes of the header. Returns whether the tunnel is open.
    pub(super) fn receive(&mut self, bytes: &[u8], has_login: bool) -> Result<bool, TunnelError> {
        self.header.extend_from_slice(bytes);
        let begin = &self.header[..self.header.len().min(BEGIN.len())];
        if !BEGIN.starts_with(begin) {
            return Err(TunnelError::NotHttp);
        }
        if self.earlier + self.header.len() > MAX_HEADER {
            return Err(TunnelError::Invalid("its header has more than 16 KiB"));
        }
        if !self.header.ends_with(b"\n\n") && !self.header.ends_with(b"\n\r\n") {
            return Ok(false);
        }
        let header = std::mem::take(&mut self.header);
        self.earlier += header.len();
        let (status, reason) =
            status_line(&header).ok_or(TunnelError::Invalid("it has no status"))?;
        match status {
            // 101 changes the protocol, which was not asked for.
            100 | 102..=199 => Ok(false),
            200..=299 => Ok(true),
            // tinyproxy refuses a wrong login with the status for servers.
            401 | 407 if has_login => Err(TunnelError::LoginRefused),
            401 | 407 => Err(TunnelError::LoginRequired),
            403 | 405 => Err(TunnelError::Forbidden(format!("{status} {reason}"))),
            500..=599 if status != 501 => {
                Err(TunnelError::Unreachable(format!("{status} {reason}")))
            }
            _ => Err(TunnelError::Unsupported(format!("{status} {reason}"))),
        }
    }
}

/// Status and reason of `HTTP/1.1 200 Connection established`.
fn status_line(header: &[u8]) -> Option<(u16, String)> {
    let line = header.split(|byte| *byte == b'\n').next()?;
    let rest = line.strip_prefix(BEGIN)?;
    let (minor, rest) = rest.split_first_chunk::<2>()?;
    if !matches!(minor, [b'0'..=b'9', b' ']) {
        return None;
    }
    let (status, rest) = rest.trim_ascii_start().split_at_checked(3)?;
    if !status.iter().all(u8::is_ascii_digit) || rest.first().is_some_and(u8::is_ascii_digit) {
        return None;
    }
    let status = std::str::from_utf8(status).ok()?.parse().ok()?;
    let reason = rest.trim_ascii();
    let reason = reason.get(..MAX_REASON).unwrap_or(reason);
    let reason = match reason {
        b"" => "no reason given".to_owned(),
        reason => printable(reason).to_string(),
    };
    Some((status, reason))
}
