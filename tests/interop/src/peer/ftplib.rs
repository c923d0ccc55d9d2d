//! Python's ftplib.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::python;
use crate::run::{self, FinishedProgram};

/// Connects and logs in `f` anonymously, and prints the control connection on standard output.
const PROLOGUE: &str = "
import ftplib, io, sys
f = ftplib.FTP(timeout=20, encoding='utf-8')
f.set_debuglevel(1)
f.connect(sys.argv[1], int(sys.argv[2]))
f.login()
args = sys.argv[3:]
";

/// Connects `f` with TLS and logs in. The arguments are the authority's certificate, and `implicit`,
/// `reuse`, or nothing; `reuse` resumes the session on data connections, which ftplib never does itself.
const TLS_PROLOGUE: &str = "
import ftplib, io, ssl, sys
host, port, ca, kind, user, password = sys.argv[1:7]
context = ssl.create_default_context(cafile=ca)
class Session(ftplib.FTP_TLS):
    def ntransfercmd(self, cmd, rest=None):
        if kind != 'reuse' or not self._prot_p:
            return super().ntransfercmd(cmd, rest)
        conn, size = ftplib.FTP.ntransfercmd(self, cmd, rest)
        conn = self.context.wrap_socket(conn, server_hostname=self.host, session=self.sock.session)
        assert conn.session_reused, 'the server did not resume the session'
        return conn, size
    def connect(self, *args):
        if kind != 'implicit':
            return super().connect(*args)
        import socket
        self.sock = self.context.wrap_socket(socket.create_connection((host, int(port)), 20), server_hostname=host)
        self.host, self.af = host, self.sock.family
        self.file = self.sock.makefile('r', encoding=self.encoding)
        return self.getresp()
f = Session(context=context, timeout=20, encoding='utf-8')
f.set_debuglevel(1)
f.connect(host, int(port))
f.login(user, password)
args = sys.argv[7:]
";

/// The session of a TLS script.
#[derive(Debug, Clone, Copy)]
pub struct TlsScript<'a> {
    /// Certificate of the authority that the client trusts.
    pub authority: &'a Path,
    /// `implicit`, `reuse` (resumes the session on data connections), or `plain`.
    pub kind: &'a str,
    /// User and password.
    pub login: (&'a str, &'a str),
}

impl<'a> TlsScript<'a> {
    /// An anonymous session of this kind.
    #[must_use]
    pub fn anonymous(authority: &'a Path, kind: &'a str) -> Self {
        Self {
            authority,
            kind,
            login: ("anonymous", "x"),
        }
    }
}

/// ftplib as a client.
#[derive(Debug, Clone)]
pub struct Ftplib(PathBuf);

impl Ftplib {
    /// Finds Debian's Python.
    pub fn find() -> Result<Self, String> {
        python::with_module("ftplib").map(Self)
    }

    /// Runs a script with the anonymous session `f` and `args`. Failed assertions are errors.
    pub fn script(&self, at: SocketAddr, script: &str, args: &[&str]) -> Result<FinishedProgram> {
        let script = format!("{PROLOGUE}{script}\nf.quit()\n");
        self.run(at, &script, args)
    }

    /// Runs a script with the session `f` over TLS and `args`. Failed assertions are errors.
    pub fn tls_script(
        &self,
        at: SocketAddr,
        session: &TlsScript<'_>,
        script: &str,
        args: &[&str],
    ) -> Result<FinishedProgram> {
        let script = format!("{TLS_PROLOGUE}{script}\nf.quit()\n");
        let authority = session.authority.display().to_string();
        let (user, password) = session.login;
        let first = [&authority, session.kind, user, password];
        self.run(at, &script, &[&first[..], args].concat())
    }

    fn run(&self, at: SocketAddr, script: &str, args: &[&str]) -> Result<FinishedProgram> {
        let mut command = Command::new(&self.0);
        command
            .args(["-c", script, &at.ip().to_string(), &at.port().to_string()])
            .args(args);
        run::run(&mut command)?.expect_success()
    }
}
