//! Location of a source or destination: a local path, standard input or output, or a URL.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::net::IpAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

use crate::credentials::{Credential, MissingPassword};
use crate::{ConnectionSecurity, Failure};

use crate::server::any_bytes;
use crate::server::url::percent_encode;
use crate::server::url::{local_location, parse_file, parse_server, redact, split_scheme};

/// A GridFTP, FTP, HTTP or SFTP server, or a bucket, as a URL names it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Server {
    /// Protocol, and the security of its control connection.
    pub scheme: Scheme,
    /// Host name or address, without brackets; with `s3:` the name of the bucket.
    pub host: String,
    /// Port (none of these with `s3:`; default 21 for ftp and ftps, 2811 for gsiftp, 22 for ssh, sshftp and sftp, 80 for http, 443 for https).
    pub port: u16,
    /// Credential from the URL, `--token`, the environment variable `LONGHAUL_PASSWORD` (the first server of a run that
    /// needs it), or ~/.netrc; otherwise anonymous, and with gsiftp the account of the certificate.
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
    /// `ssh:`: FTP through ssh(1), which starts longhaul at the far end; SFTP where there is none.
    Ssh,
    /// `sshftp:`: FTP through ssh(1), which starts the far end's own server. Data connections are clear.
    Sshftp,
    /// `sftp:`: SFTP through ssh(1).
    Sftp,
    /// `http:`
    Http,
    /// `https:`
    Https,
    /// `s3:`: a bucket, whose name is in the place of the host. Its server is that of the environment.
    S3,
}

impl Scheme {
    /// Whether this is an FTP scheme. Two such servers can transfer files between them without
    /// passing the bytes through this machine.
    pub const fn is_ftp(self) -> bool {
        matches!(
            self,
            Self::Ftp | Self::Ftps | Self::Gsiftp | Self::Ssh | Self::Sshftp
        )
    }

    /// Whether ssh(1) leads to the server.
    pub const fn is_ssh(self) -> bool {
        matches!(self, Self::Ssh | Self::Sshftp | Self::Sftp)
    }

    /// Whether names may have line breaks.
    pub const fn takes_any_name(self) -> bool {
        matches!(self, Self::Sftp)
    }

    /// The scheme's name, without the colon.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ftp => "ftp",
            Self::Ftps => "ftps",
            Self::Gsiftp => "gsiftp",
            Self::Ssh => "ssh",
            Self::Sshftp => "sshftp",
            Self::Sftp => "sftp",
            Self::Http => "http",
            Self::Https => "https",
            Self::S3 => "s3",
        }
    }

    /// The port when the URL names none (IANA: ftp, gsiftp, http, https). FTP over TLS begins on the
    /// port of FTP (RFC 4217 §4).
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Ftp | Self::Ftps => 21,
            Self::Gsiftp => 2811,
            Self::Ssh | Self::Sshftp | Self::Sftp => 22,
            Self::Http => 80,
            Self::Https | Self::S3 => 443,
        }
    }
}

impl Server {
    /// The host as it stands in a URL: an IPv6 address is in brackets (RFC 3986 section 3.2.2).
    pub(crate) fn bracketed_host(&self) -> Cow<'_, str> {
        match self.host.contains(':') {
            true => Cow::Owned(format!("[{}]", self.host)),
            false => Cow::Borrowed(&self.host),
        }
    }

    /// `host:port`, for messages.
    pub fn host_and_port(&self) -> String {
        format!("{}:{}", self.bracketed_host(), self.port)
    }

    /// Whether the host is named as this machine: `localhost`, or a loopback address.
    pub fn is_loopback(&self) -> bool {
        let ip: Option<IpAddr> = self.host.parse().ok();
        ip.is_some_and(|ip| ip.to_canonical().is_loopback())
            || self.host.eq_ignore_ascii_case("localhost")
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
        f.write_str(&self.bracketed_host())?;
        // The default port stays out, so that displayed URLs are short and parse back.
        if self.port != self.scheme.default_port() {
            write!(f, ":{}", self.port)?;
        }
        Ok(())
    }
}

/// Finds the credential for a host and a user.
pub type FindCredential<'a> = dyn Fn(&str, Option<&str>) -> Result<Credential, Failure> + 'a;

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
        /// Absolute path; with `sshftp:` perhaps `~/...` or `~user/...`, as its servers want it.
        path: Vec<u8>,
    },
}

/// Identifies the storage of a location: the key under which sessions are opened and reused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum StorageId {
    /// Local files.
    LocalFiles,
    /// Standard input and output.
    StandardStreams,
    /// A server, with the user's credential.
    Server(Server),
}

impl StorageId {
    /// Whether the URL has a query, which is sent with every request.
    pub fn has_query(&self) -> bool {
        matches!(self, Self::Server(server) if server.query.is_some())
    }

    /// Whether a remote server keeps the files, so that it is reached over the network.
    pub fn is_server(&self) -> bool {
        matches!(self, Self::Server(_))
    }
}

impl Location {
    /// The storage that holds the location.
    pub fn storage_id(&self) -> StorageId {
        match self {
            Self::Local(_) => StorageId::LocalFiles,
            Self::StandardStreams => StorageId::StandardStreams,
            Self::Remote { server, .. } => StorageId::Server(server.clone()),
        }
    }

    /// The server of a remote location.
    pub fn server(&self) -> Option<&Server> {
        match self {
            Self::Local(_) | Self::StandardStreams => None,
            Self::Remote { server, .. } => Some(server),
        }
    }

    /// The path within the storage.
    pub fn path(&self) -> &[u8] {
        match self {
            Self::Local(path) => path.as_os_str().as_bytes(),
            Self::StandardStreams => b"",
            Self::Remote { path, .. } => path,
        }
    }

    /// A location on the same storage with another path.
    pub fn with_path(&self, path: Vec<u8>) -> Self {
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
    /// environment or ~/.netrc. No remote has a name.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        Self::parse_secured(text, &Arc::default())
    }

    /// Like [`Location::parse`]; sessions with the location's server have this protection, and `NAME:path` is
    /// a path on a remote that the protection knows.
    ///
    /// # Errors
    /// `Usage`: the URL is invalid, or its scheme cannot have the protection. `Refused`: the password of a
    /// remote cannot be read.
    pub fn parse_secured(text: &str, security: &Arc<ConnectionSecurity>) -> Result<Self, Failure> {
        Self::parse_noting(text, security, &|_| ())
    }

    /// The login of an argument whose password no source has. A server may accept the user without one.
    ///
    /// # Errors
    /// As [`Location::parse_secured`].
    pub fn missing_password(
        text: &str,
        security: &Arc<ConnectionSecurity>,
    ) -> Result<Option<MissingPassword>, Failure> {
        let missing = std::cell::RefCell::new(None);
        Self::parse_noting(text, security, &|login| {
            *missing.borrow_mut() = Some(login);
        })?;
        Ok(missing.into_inner())
    }

    /// [`Location::parse_secured`]; `note` gets a login without a password.
    fn parse_noting(
        text: &str,
        security: &Arc<ConnectionSecurity>,
        note: &dyn Fn(MissingPassword),
    ) -> Result<Self, Failure> {
        let remotes = security.remotes();
        let expanded = remotes.expand(text);
        let remote = expanded.as_ref().map(|(remote, _)| *remote);
        let url = expanded.as_ref().map_or(text, |(_, url)| url.as_str());
        let find = |host: &str, user: Option<&str>| {
            let (credential, is_missing) = remotes.credential(remote, host, user)?;
            if let Some(user) = credential.user().filter(|_| is_missing) {
                if let Some(holder) = remotes.variable_holder() {
                    security.warn_once(&format!(
                        "LONGHAUL_PASSWORD is for {holder}, the first server that needs one, and not for {user}@{host}: \
                         put that password into ~/.netrc, or name the server in the configuration"
                    ));
                }
                note(MissingPassword {
                    user: user.to_owned(),
                    host: host.to_owned(),
                });
            }
            Ok(credential)
        };
        Self::parse_with(url, &find, security)
    }

    /// The server of a URL, without a search for its credential.
    ///
    /// # Errors
    /// `Usage`: the URL is invalid.
    pub fn server_of(text: &str) -> Result<Option<Server>, Failure> {
        let location = Self::parse_without_login(text)?;
        Ok(location.server().cloned())
    }

    /// [`Location::parse`] without a look for the login of a server.
    pub fn parse_without_login(text: &str) -> Result<Self, Failure> {
        let nobody = |_: &str, _: Option<&str>| Ok(Credential::Anonymous);
        Self::parse_with(text, &nobody, &Arc::default())
    }

    /// [`Location::parse_secured`] with `find` in place of the environment and ~/.netrc: it gets
    /// host and user and returns the credential.
    pub fn parse_with(
        text: &str,
        find: &FindCredential<'_>,
        security: &Arc<ConnectionSecurity>,
    ) -> Result<Self, Failure> {
        if text == "-" {
            return Ok(Self::StandardStreams);
        }
        if text.is_empty() {
            return Err(Failure::usage(
                "an empty argument is neither a path nor a URL",
            ));
        }
        let Some((scheme, rest)) = split_scheme(text) else {
            return local_location(any_bytes::local_bytes(text).into_owned(), text);
        };
        let server = |scheme| parse_server(scheme, rest, text, find, security);
        match scheme.to_ascii_lowercase().as_str() {
            "file" => parse_file(rest, text),
            "ftp" => server(Scheme::Ftp),
            "ftps" => server(Scheme::Ftps),
            "gsiftp" => server(Scheme::Gsiftp),
            "ssh" => server(Scheme::Ssh),
            "sshftp" => server(Scheme::Sshftp),
            "sftp" => server(Scheme::Sftp),
            "http" | "dav" => server(Scheme::Http),
            "https" | "davs" => server(Scheme::Https),
            "s3" => server(Scheme::S3),
            // `host:path` is a local file name, as in cp(1): only `scheme://` marks a URL.
            _ if !rest.starts_with("//") => {
                local_location(any_bytes::local_bytes(text).into_owned(), text)
            }
            other => Err(Failure::usage(format!(
                "{other}: is not supported by this version, which supports ftp:, ftps:, gsiftp:, \
                 ssh:, sshftp:, sftp:, http:, https:, dav:, davs:, s3:, file: and local paths ({})",
                redact(text)
            ))),
        }
    }

    /// Text for people, without the password and the query.
    pub fn display(&self) -> String {
        match self {
            Self::Local(path) => any_bytes::shown(path.as_os_str().as_bytes()),
            Self::StandardStreams => "-".to_owned(),
            Self::Remote { server, path } => {
                let mut text = server.to_string();
                if !path.starts_with(b"/") {
                    text.push('/');
                }
                percent_encode(path, true, &mut text);
                if server.query.is_some() {
                    // The query may be a signature that grants access.
                    text.push_str("?...");
                }
                text
            }
        }
    }

    /// An argument as a text that [`Location::parse`] reads, whatever its bytes: an argument that is not UTF-8 becomes a URL
    /// with percent-encoded bytes, a local path a `file:` URL.
    ///
    /// # Errors
    /// The path is relative, and the working directory is unknown.
    pub fn argument(argument: &OsStr) -> std::io::Result<String> {
        any_bytes::text_of_bytes(argument.as_bytes())
    }

    /// A name or relative path as it is written in a URL: any bytes, with percent-encoding.
    pub fn url_name(name: &[u8]) -> String {
        let mut text = String::new();
        percent_encode(name, true, &mut text);
        text
    }

    /// A key that two locations share only if they are the same path of the same account. It holds
    /// any bytes a path may have, and no password.
    pub fn identity_key(&self) -> String {
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

    /// Like [`Location::identity_key`], whatever the current directory is: a relative path would be a key of another
    /// directory's file.
    pub fn resolved_key(&self) -> String {
        match self {
            Self::Local(path) => {
                let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
                Self::Local(path).identity_key()
            }
            other => other.identity_key(),
        }
    }
}

#[cfg(test)]
mod tests;
