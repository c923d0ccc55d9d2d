//! Location of a source or destination: a local path, standard input or output, or a URL.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::Ipv6Addr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use crate::credentials::{self, Credential};
use crate::{ConnectionSecurity, CopyFailure, Exit};

/// A GridFTP, FTP or HTTP server as a URL names it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Server {
    /// Protocol, and the security of its control connection.
    pub scheme: Scheme,
    /// Host name or address, without brackets.
    pub host: String,
    /// Port (default 21 for ftp and ftps, 2811 for gsiftp, 80 for http, 443 for https).
    pub port: u16,
    /// Credential from the URL, `--token`, the environment variable `LONGHAUL_PASSWORD`, or
    /// ~/.netrc; otherwise anonymous, and with gsiftp the account of the certificate.
    pub credential: Credential,
    /// HTTP: the part after the `?` of the URL. It is sent with every request. It may be a secret
    /// (signed URLs), so it is never shown.
    pub query: Option<String>,
    /// Protection of all sessions with the server.
    pub security: Arc<ConnectionSecurity>,
}

/// URL scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `ftp:`
    Ftp,
    /// `ftps:`: FTP over TLS (RFC 4217). TLS comes before the first byte on port 990, and after AUTH
    /// TLS on every other port.
    Ftps,
    /// `gsiftp:`: FTP over GSI, never in clear.
    Gsiftp,
    /// `http:`
    Http,
    /// `https:`
    Https,
    /// `memory:`
    #[cfg(test)]
    Memory,
}

impl Scheme {
    /// Whether this is an FTP scheme. Two such servers can transfer files between them without
    /// passing the bytes through this machine.
    pub(crate) const fn is_ftp(self) -> bool {
        matches!(self, Self::Ftp | Self::Ftps | Self::Gsiftp)
    }

    /// The scheme's name, without the colon.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ftp => "ftp",
            Self::Ftps => "ftps",
            Self::Gsiftp => "gsiftp",
            Self::Http => "http",
            Self::Https => "https",
            #[cfg(test)]
            Self::Memory => "memory",
        }
    }

    /// The port when the URL names none (IANA: ftp, gsiftp, http, https). FTP over TLS begins on the
    /// port of FTP (RFC 4217 §4).
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Ftp | Self::Ftps => 21,
            Self::Gsiftp => 2811,
            Self::Http => 80,
            Self::Https => 443,
            #[cfg(test)]
            Self::Memory => 1,
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let account = self.credential.account_key();
        let account = account.escape_debug();
        write!(f, "Server({account}@{}:{})", self.host, self.port)
    }
}

/// For messages.
impl std::fmt::Display for StorageId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::LocalFiles | Self::StandardStreams => f.write_str("this machine"),
            Self::Server(server) => server.fmt(f),
        }
    }
}

/// `scheme://[user@]host[:port]`, never with a password.
impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://", self.scheme.name())?;
        if let Some(name) = self.credential.user() {
            let mut user = String::new();
            percent_encode(name.as_bytes(), false, &mut user);
            write!(f, "{user}@")?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?;
        } else {
            f.write_str(&self.host)?;
        }
        // The default port stays out, so that displayed URLs are short and parse back.
        if self.port != self.scheme.default_port() {
            write!(f, ":{}", self.port)?;
        }
        Ok(())
    }
}

/// One end of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A local path (also `file:` URLs).
    Local(PathBuf),
    /// `-`: standard input or output.
    StandardStreams,
    /// A path on a server, in percent-decoded bytes. `ftp://h/a` is `/a`, as in globus-url-copy,
    /// and not relative to the login directory as RFC 1738 has it. A trailing `/` is kept: it marks
    /// a directory.
    Remote {
        /// The server.
        server: Server,
        /// Absolute path.
        path: Vec<u8>,
    },
}

/// Identifies the storage of a location: the key under which sessions are opened and reused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum StorageId {
    /// Local files.
    LocalFiles,
    /// Standard input and output.
    StandardStreams,
    /// A server, with the user's credential.
    Server(Server),
}

impl StorageId {
    /// Whether the URL has a query, which is sent with every request.
    pub(crate) fn has_query(&self) -> bool {
        matches!(self, Self::Server(server) if server.query.is_some())
    }

    /// Whether a remote server keeps the files, so that it is reached over the network.
    pub(crate) fn is_server(&self) -> bool {
        matches!(self, Self::Server(_))
    }
}

impl Location {
    /// The storage that holds the location.
    pub(crate) fn storage_id(&self) -> StorageId {
        match self {
            Self::Local(_) => StorageId::LocalFiles,
            Self::StandardStreams => StorageId::StandardStreams,
            Self::Remote { server, .. } => StorageId::Server(server.clone()),
        }
    }

    /// The server of a remote location.
    pub(crate) fn server(&self) -> Option<&Server> {
        match self {
            Self::Local(_) | Self::StandardStreams => None,
            Self::Remote { server, .. } => Some(server),
        }
    }

    /// The path within the storage.
    pub(crate) fn path(&self) -> &[u8] {
        match self {
            Self::Local(path) => path.as_os_str().as_bytes(),
            Self::StandardStreams => b"",
            Self::Remote { path, .. } => path,
        }
    }

    /// A location on the same storage with another path.
    pub(crate) fn with_path(&self, path: Vec<u8>) -> Self {
        match self {
            Self::Local(_) => Self::Local(PathBuf::from(OsString::from_vec(path))),
            Self::StandardStreams => Self::StandardStreams,
            Self::Remote { server, .. } => Self::Remote {
                server: server.clone(),
                path,
            },
        }
    }

    /// Parses a command-line argument. A credential that the URL does not name comes from the
    /// environment or ~/.netrc.
    pub fn parse(text: &str) -> Result<Self, CopyFailure> {
        Self::parse_secured(text, &Arc::default())
    }

    /// Like [`Location::parse`]; sessions with the location's server have this protection.
    ///
    /// # Errors
    /// `Usage`: the URL is invalid, or its scheme cannot have the protection.
    pub fn parse_secured(
        text: &str,
        security: &Arc<ConnectionSecurity>,
    ) -> Result<Self, CopyFailure> {
        Self::parse_with(text, &credentials::find_credential, security)
    }

    /// [`Location::parse_secured`] with `find` in place of the environment and ~/.netrc: it gets
    /// host and user and returns the credential.
    pub(crate) fn parse_with(
        text: &str,
        find: &dyn Fn(&str, Option<&str>) -> Credential,
        security: &Arc<ConnectionSecurity>,
    ) -> Result<Self, CopyFailure> {
        if text == "-" {
            return Ok(Self::StandardStreams);
        }
        if text.is_empty() {
            return Err(usage_error("an empty argument is neither a path nor a URL"));
        }
        let Some((scheme, rest)) = split_scheme(text) else {
            return local_location(text.as_bytes().to_vec(), text);
        };
        let server = |scheme| parse_server(scheme, rest, text, find, security);
        match scheme.to_ascii_lowercase().as_str() {
            "file" => parse_file(rest, text),
            #[cfg(test)]
            "memory" => server(Scheme::Memory),
            "ftp" => server(Scheme::Ftp),
            "ftps" => server(Scheme::Ftps),
            "gsiftp" => server(Scheme::Gsiftp),
            "http" => server(Scheme::Http),
            "https" => server(Scheme::Https),
            // `host:path` is a local file name, as in cp(1): only `scheme://` marks a URL.
            _ if !rest.starts_with("//") => local_location(text.as_bytes().to_vec(), text),
            other => Err(usage_error(format!(
                "{other}: is not supported by this version, which supports ftp:, ftps:, gsiftp:, \
                 http:, https:, file: and local paths ({})",
                redact(text)
            ))),
        }
    }

    /// Text for people, without the password and the query.
    pub fn display(&self) -> String {
        match self {
            Self::Local(path) => path.to_string_lossy().into_owned(),
            Self::StandardStreams => "-".to_owned(),
            Self::Remote { server, path } => {
                let mut text = server.to_string();
                percent_encode(path, true, &mut text);
                if server.query.is_some() {
                    // The query may be a signature that grants access.
                    text.push_str("?...");
                }
                text
            }
        }
    }

    /// A key that two locations share only if they are the same path of the same account. It holds
    /// any bytes a path may have, and no password.
    pub(crate) fn identity_key(&self) -> String {
        match self {
            Self::Local(path) => {
                let mut text = "file://".to_owned();
                percent_encode(path.as_os_str().as_bytes(), true, &mut text);
                text
            }
            // A server's URL is percent-encoded and thus exact; "-" is unique.
            Self::StandardStreams | Self::Remote { .. } => self.display(),
        }
    }
}

/// Splits `scheme:rest` if the text before the first colon is a scheme (RFC 3986 §3.1).
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let mut letters = scheme.bytes();
    let valid = letters.next().is_some_and(|b| b.is_ascii_alphabetic())
        && letters.all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    valid.then_some((scheme, rest))
}

fn local_location(bytes: Vec<u8>, text: &str) -> Result<Location, CopyFailure> {
    if bytes.contains(&0) {
        return Err(usage_error(format!("path contains a NUL byte ({text:?})")));
    }
    Ok(Location::Local(PathBuf::from(OsString::from_vec(bytes))))
}

/// `file:/p`, `file:///p`, `file://localhost/p` (RFC 8089 §2).
fn parse_file(rest: &str, text: &str) -> Result<Location, CopyFailure> {
    let path = match rest.strip_prefix("//") {
        None => rest,
        Some(after) => match after.find('/') {
            // RFC 8089 §2: an empty host and `localhost` both mean this machine.
            Some(0) => after,
            Some(end) if after[..end].eq_ignore_ascii_case("localhost") => &after[end..],
            _ => {
                return Err(usage_error(format!(
                    "a file: URL names this machine only: write file:///path ({text})"
                )));
            }
        },
    };
    if !path.starts_with('/') {
        return Err(usage_error(format!(
            "a file: URL needs an absolute path: write file:///path ({text})"
        )));
    }
    local_location(percent_decode_str(path).collect(), text)
}

fn parse_server(
    scheme: Scheme,
    rest: &str,
    text: &str,
    find: &dyn Fn(&str, Option<&str>) -> Credential,
    security: &Arc<ConnectionSecurity>,
) -> Result<Location, CopyFailure> {
    // Parsed before the login is known, so the password has to be removed from messages.
    let display_text = redact(text);
    let Some(rest) = rest.strip_prefix("//") else {
        let name = scheme.name();
        return Err(usage_error(format!(
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
    let path = remote_path(path, &display_text)?;
    let credential = match (scheme, login, security.token_for(scheme)) {
        // The login of an `http:` request travels in clear, so only one that the user typed is
        // sent.
        (Scheme::Http, None, _) => Credential::Anonymous,
        // The certificate is the login, so no password is looked for.
        (Scheme::Gsiftp, None, _) => Credential::GridMapping,
        (Scheme::Gsiftp, Some(_), _) => {
            let no_password = |_: &str, user: Option<&str>| match user {
                Some(user) => Credential::password(user, ""),
                None => Credential::GridMapping,
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

/// `host`, `host:port`, `[v6]`, `[v6]:port`.
fn parse_address(
    text: &str,
    scheme: Scheme,
    display_text: &str,
) -> Result<(String, u16), CopyFailure> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or_else(|| {
            usage_error(format!(
                "the IPv6 address has no closing ] ({display_text})"
            ))
        })?;
        if host.parse::<Ipv6Addr>().is_err() {
            return Err(usage_error(format!(
                "[{host}] is not an IPv6 address ({display_text})"
            )));
        }
        match after.strip_prefix(':') {
            Some(port) => (host, port),
            None if after.is_empty() => (host, ""),
            None => {
                return Err(usage_error(format!(
                    "only :port may follow ] ({display_text})"
                )));
            }
        }
    } else {
        text.split_once(':').unwrap_or((text, ""))
    };
    // These would break the command line, or show a typing error in the authority.
    let is_forbidden = |c: char| c.is_whitespace() || c.is_control() || "[]@\\%?#".contains(c);
    if host.is_empty() || host.contains(is_forbidden) {
        return Err(usage_error(format!(
            "the URL names no valid host ({display_text})"
        )));
    }
    let port = if port.is_empty() {
        scheme.default_port()
    } else {
        port.parse()
            .ok()
            .filter(|p| *p != 0)
            .ok_or_else(|| usage_error(format!("the port must be 1 to 65535 ({display_text})")))?
    };
    Ok((host.to_owned(), port))
}

/// Decodes a URL path into absolute path bytes with exactly one leading `/`.
fn remote_path(text: &str, display_text: &str) -> Result<Vec<u8>, CopyFailure> {
    let decoded: Vec<u8> = percent_decode_str(text).collect();
    // RFC 959 §5.3.1 ends a command line with CR LF, so no path can contain either; NUL ends C
    // strings.
    if decoded.iter().any(|b| matches!(b, 0 | b'\r' | b'\n')) {
        return Err(usage_error(format!(
            "a path with NUL, CR or LF cannot be sent over an FTP control connection ({display_text})"
        )));
    }
    let start = decoded
        .iter()
        .position(|b| *b != b'/')
        .unwrap_or(decoded.len());
    let mut path = vec![b'/'];
    path.extend_from_slice(&decoded[start..]);
    Ok(path)
}

fn parse_login(
    login: Option<&str>,
    host: &str,
    display_text: &str,
    find: &dyn Fn(&str, Option<&str>) -> Credential,
) -> Result<Credential, CopyFailure> {
    let decode = |text: &str| {
        let text = percent_decode_str(text).decode_utf8().map_err(|_| {
            usage_error(format!("user and password must be UTF-8 ({display_text})"))
        })?;
        // The login travels in USER and PASS lines.
        if text.contains(['\0', '\r', '\n']) {
            let line = format!("user and password must not contain NUL, CR or LF ({display_text})");
            return Err(usage_error(line));
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
        (user_name, _) => Ok(find(host, user_name)),
    }
}

/// Appends percent-encoded bytes that decode to the same bytes; with `path`, a `/` stays as it is.
fn percent_encode(bytes: &[u8], path: bool, out: &mut String) {
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
fn redact(text: &str) -> String {
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

fn usage_error(message: impl Into<String>) -> CopyFailure {
    CopyFailure::new(Exit::Usage, message)
}

#[cfg(test)]
mod tests;
