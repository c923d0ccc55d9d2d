//! Where a source or destination is: a local path, standard input/output, or a URL.

use std::path::PathBuf;

use crate::Failure;

/// A GridFTP or FTP server as a URL names it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Server {
    /// `ftp`, `gsiftp`, `ftps` (security comes with its own issue: `ftps` and `gsiftp` logins that
    /// need it are refused with a clear line; `gsiftp` against a server with clear logins works).
    pub scheme: Scheme,
    /// Name or address, without brackets.
    pub host: String,
    /// Control port (default 21 for ftp, 2811 for gsiftp).
    pub port: u16,
    /// From the URL, else `anonymous`.
    pub user: String,
    /// From the URL, the environment variable `LONGHAUL_PASSWORD`, or ~/.netrc; else `longhaul@`
    /// for anonymous.
    pub password: String,
}

/// URL scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `ftp:`
    Ftp,
    /// `gsiftp:`
    Gsiftp,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server({}@{}:{})", self.user, self.host, self.port)
    }
}

/// One end of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A local path (also `file:` URLs).
    Local(PathBuf),
    /// `-`
    Pipe,
    /// A path on a server, percent-decoded bytes. `ftp://h/a` is `/a` (as globus-url-copy and
    /// real use have it); a trailing `/` is kept: it says "directory".
    Remote {
        /// The server.
        server: Server,
        /// Absolute path.
        path: Vec<u8>,
    },
}

impl Location {
    /// Reads a command-line argument.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let _ = text;
        todo!()
    }

    /// For people; never shows a password.
    pub fn display(&self) -> String {
        todo!()
    }
}
