//! URLs of locations: parsed, encoded, and shown without their secrets.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::Ipv6Addr;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use crate::location::{FindCredential, Location, Scheme, Server};
use crate::{ConnectionSecurity, Credential, Failure};

/// Splits `scheme:rest` if the text before the first colon is a scheme (RFC 3986 §3.1).
pub(crate) fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let mut letters = scheme.bytes();
    let valid = letters.next().is_some_and(|b| b.is_ascii_alphabetic())
        && letters.all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    valid.then_some((scheme, rest))
}

pub(crate) fn local_location(bytes: Vec<u8>, text: &str) -> Result<Location, Failure> {
    if bytes.contains(&0) {
        return Err(Failure::usage(format!(
            "path contains a NUL byte ({text:?})"
        )));
    }
    Ok(Location::Local(PathBuf::from(OsString::from_vec(bytes))))
}

/// `file:/p`, `file:///p`, `file://localhost/p` (RFC 8089 §2).
pub(crate) fn parse_file(rest: &str, text: &str) -> Result<Location, Failure> {
    let path = match rest.strip_prefix("//") {
        None => rest,
        Some(after) => match after.find('/') {
            // RFC 8089 §2: an empty host and `localhost` both mean this machine.
            Some(0) => after,
            Some(end) if after[..end].eq_ignore_ascii_case("localhost") => &after[end..],
            _ => {
                return Err(Failure::usage(format!(
                    "a file: URL names this machine only: write file:///path ({text})"
                )));
            }
        },
    };
    if !path.starts_with('/') {
        return Err(Failure::usage(format!(
            "a file: URL needs an absolute path: write file:///path ({text})"
        )));
    }
    local_location(percent_decode_str(path).collect(), text)
}

pub(crate) fn parse_server(
    scheme: Scheme,
    rest: &str,
    text: &str,
    find: &FindCredential<'_>,
    security: &Arc<ConnectionSecurity>,
) -> Result<Location, Failure> {
    // Parsed before the login is known, so the password has to be removed from messages.
    let display_text = redact(text);
    let Some(rest) = rest.strip_prefix("//") else {
        let name = scheme.name();
        return Err(Failure::usage(format!(
            "write {name}://host/path ({display_text})"
        )));
    };
    // `?` and `#` are legal in FTP file names, so only HTTP URLs are split there.
    let is_http = matches!(scheme, Scheme::Http | Scheme::Https);
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) if is_http => (rest, query.split('#').next()),
        _ => (rest, None),
    };
    let rest = match rest.split_once('#') {
        Some((rest, _)) if is_http => rest,
        _ => rest,
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    // A password may contain `@`; a host name may not.
    let (login, address) = match authority.rsplit_once('@') {
        Some((login, address)) => (Some(login), address),
        None => (None, authority),
    };
    security.check_scheme(scheme, &display_text)?;
    let (host, port) = parse_address(address, scheme, &display_text)?;
    let path = remote_path(path, scheme, &display_text)?;
    let credential = match (scheme, login, security.token_for(scheme)) {
        // The login of an `http:` request travels in clear, so only one that the user typed is
        // sent.
        (Scheme::Http, None, _) => Credential::Anonymous,
        // The certificate is the login, so no password is looked for.
        (Scheme::Gsiftp, None, _) => Credential::GridMapping,
        // ssh finds its own, and asks for it.
        (Scheme::Ssh | Scheme::Sshftp | Scheme::Sftp, None, _) => Credential::Anonymous,
        // The profiles of AWS have the keys.
        (Scheme::S3, None, _) => Credential::Anonymous,
        (Scheme::S3, Some(login), _) if login.contains(':') => {
            return Err(Failure::usage(format!(
                "keys of a bucket come from the environment or a profile (s3://PROFILE@bucket/): leave them out of the URL \
                 ({display_text})"
            )));
        }
        (Scheme::S3, Some(_), _) => {
            let profile = |_: &str, user: Option<&str>| {
                Ok(user.map_or(Credential::Anonymous, |name| Credential::password(name, "")))
            };
            parse_login(login, &host, &display_text, &profile)?
        }
        (Scheme::Ssh | Scheme::Sshftp | Scheme::Sftp, Some(login), _) if login.contains(':') => {
            return Err(Failure::usage(format!(
                "ssh asks for passwords itself: leave it out of the URL ({display_text})"
            )));
        }
        (Scheme::Ssh | Scheme::Sshftp | Scheme::Sftp, Some(login), _) if !is_ssh_user(login) => {
            return Err(Failure::usage(format!(
                "this is no user for ssh ({display_text})"
            )));
        }
        (Scheme::Gsiftp | Scheme::Ssh | Scheme::Sshftp | Scheme::Sftp, Some(_), _) => {
            let no_password = |_: &str, user: Option<&str>| {
                Ok(match user {
                    Some(user) => Credential::password(user, ""),
                    None if scheme.is_ssh() => Credential::Anonymous,
                    None => Credential::GridMapping,
                })
            };
            parse_login(login, &host, &display_text, &no_password)?
        }
        (_, None, Some(token)) => token,
        _ => parse_login(login, &host, &display_text, find)?,
    };
    Ok(Location::Remote {
        server: Server {
            scheme,
            host,
            port,
            credential,
            query: query.map(str::to_owned),
            security: Arc::clone(security),
        },
        path,
    })
}

/// Whether ssh takes a user's name: one with characters of shells could become a command in its configuration's `%r`.
fn is_ssh_user(login: &str) -> bool {
    let decoded: Vec<u8> = percent_decode_str(login).collect();
    let is_forbidden = |byte: &u8| b"'`\"$;&<>|(){}\\\r\n\0 ".contains(byte);
    !decoded.starts_with(b"-") && !decoded.iter().any(is_forbidden)
}

/// `host`, `host:port`, `[v6]`, `[v6]:port`.
fn parse_address(text: &str, scheme: Scheme, display_text: &str) -> Result<(String, u16), Failure> {
    if scheme == Scheme::S3 && text.is_empty() {
        return Err(Failure::usage(format!(
            "write s3://bucket/key: the URL names no bucket ({display_text})"
        )));
    }
    if scheme == Scheme::S3 && text.contains(':') {
        return Err(Failure::usage(format!(
            "write s3://bucket/key: the server is named by AWS_ENDPOINT_URL or a profile ({display_text})"
        )));
    }
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or_else(|| {
            Failure::usage(format!(
                "the IPv6 address has no closing ] ({display_text})"
            ))
        })?;
        if host.parse::<Ipv6Addr>().is_err() {
            return Err(Failure::usage(format!(
                "[{host}] is not an IPv6 address ({display_text})"
            )));
        }
        match after.strip_prefix(':') {
            Some(port) => (host, port),
            None if after.is_empty() => (host, ""),
            None => {
                return Err(Failure::usage(format!(
                    "only :port may follow ] ({display_text})"
                )));
            }
        }
    } else {
        text.split_once(':').unwrap_or((text, ""))
    };
    // Options of ssh, and words of the shells that its configuration may start.
    let is_forbidden_first = |c: char| scheme.is_ssh() && c == '-';
    let is_forbidden_of_ssh =
        |c: char| scheme.is_ssh() && !(c.is_alphanumeric() || "._-:".contains(c));
    // These would break the command line, or show a typing error in the authority.
    let is_forbidden = |c: char| c.is_whitespace() || c.is_control() || "[]@\\%?#".contains(c);
    if host.is_empty()
        || host.contains(is_forbidden)
        || host.starts_with(is_forbidden_first)
        || host.contains(is_forbidden_of_ssh)
    {
        return Err(Failure::usage(format!(
            "the URL names no valid host ({display_text})"
        )));
    }
    let port = if port.is_empty() {
        scheme.default_port()
    } else {
        port.parse().ok().filter(|p| *p != 0).ok_or_else(|| {
            Failure::usage(format!("the port must be 1 to 65535 ({display_text})"))
        })?
    };
    Ok((host.to_owned(), port))
}

/// Decodes a URL path into absolute path bytes with exactly one leading `/`. A home directory of `sshftp:` has none:
/// globus-gridftp-server knows `~/` only.
fn remote_path(text: &str, scheme: Scheme, display_text: &str) -> Result<Vec<u8>, Failure> {
    let decoded: Vec<u8> = percent_decode_str(text).collect();
    // RFC 959 §5.3.1 ends a command line with CR LF, so no path can contain either; NUL ends C
    // strings.
    if decoded.iter().any(|b| matches!(b, 0 | b'\r' | b'\n')) {
        return Err(Failure::usage(format!(
            "a path with NUL, CR or LF cannot be sent over an FTP control connection ({display_text})"
        )));
    }
    let start = decoded
        .iter()
        .position(|b| *b != b'/')
        .unwrap_or(decoded.len());
    let below = &decoded[start..];
    if scheme == Scheme::Sshftp && below.starts_with(b"~") {
        return Ok(below.to_vec());
    }
    Ok([b"/", below].concat())
}

fn parse_login(
    login: Option<&str>,
    host: &str,
    display_text: &str,
    find: &FindCredential<'_>,
) -> Result<Credential, Failure> {
    let decode = |text: &str| {
        let text = percent_decode_str(text).decode_utf8().map_err(|_| {
            Failure::usage(format!("user and password must be UTF-8 ({display_text})"))
        })?;
        // The login travels in USER and PASS lines.
        if text.contains(['\0', '\r', '\n']) {
            let line = format!("user and password must not contain NUL, CR or LF ({display_text})");
            return Err(Failure::usage(line));
        }
        Ok(text.into_owned())
    };
    let (user, password) = match login.map(|l| l.split_once(':').unwrap_or((l, ""))) {
        None => (String::new(), None),
        Some((user, password)) => {
            // `user:@host` gives an empty password, `user@host` none.
            let has_password = login.is_some_and(|l| l.contains(':'));
            (
                decode(user)?,
                has_password.then(|| decode(password)).transpose()?,
            )
        }
    };
    let user_name = (!user.is_empty()).then_some(user.as_str());
    match (user_name, password) {
        (Some(_), Some(password)) => Ok(Credential::password(user, password)),
        (user_name, _) => find(host, user_name),
    }
}

/// Appends percent-encoded bytes that decode to the same bytes; with `path`, a `/` stays as it is.
pub(crate) fn percent_encode(bytes: &[u8], path: bool, out: &mut String) {
    for &b in bytes {
        if b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&b) || (path && b == b'/') {
            out.push(char::from(b));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{b:02X}");
        }
    }
}

/// The argument without its password and query, for error messages about it.
pub(crate) fn redact(text: &str) -> String {
    let is_http = ["http://", "https://"].iter().any(|scheme| {
        text.get(..scheme.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(scheme))
    });
    // The query is removed even if the URL cannot be parsed.
    if is_http && let Some((text, _)) = text.split_once('?') {
        return format!("{}?...", redact(text));
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return match text.rsplit_once('@') {
            Some((_, after)) => format!("...@{after}"),
            None => text.to_owned(),
        };
    };
    match rest.rsplit_once('@') {
        Some((login, after)) if login.contains(':') => {
            let user = login.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}:...@{after}")
        }
        _ => text.to_owned(),
    }
}
