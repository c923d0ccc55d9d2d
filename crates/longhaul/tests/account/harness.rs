//! A server of the account `nobody`, and a session with it.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

/// Limit for every wait.
const PATIENCE: Duration = Duration::from_secs(60);
/// The account `nobody` as Debian and Fedora number it.
pub(crate) const NOBODY: u32 = 65534;

/// A root that the account may enter; `None`, with a message, where only root may do what the test needs.
pub(crate) fn root_for_nobody() -> Option<(TempDir, PathBuf)> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root may serve as another account");
        return None;
    }
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    let root = place.path().join("root");
    fs::create_dir(&root).unwrap();
    Some((place, root))
}

/// A server, killed on drop.
pub(crate) struct NobodysServer {
    process: Child,
    address: String,
}

impl NobodysServer {
    /// Serves `root` to anonymous sessions.
    pub(crate) fn start(root: &Path, more: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_longhaul"))
            .args(["serve", "--listen", "127.0.0.1:0", "--anonymous", "rw"])
            .args(["--run-as", "nobody", "--history", "off"])
            .args(more)
            .arg("--root")
            .arg(root)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        output.read_line(&mut ready).unwrap();
        let address = ready.trim().strip_prefix("listening on ").unwrap();
        Self {
            process,
            address: address.to_owned(),
        }
    }

    /// A session that is logged in.
    pub(crate) fn session(&self) -> AnonymousSession {
        let control = TcpStream::connect(&self.address).unwrap();
        control.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut session = AnonymousSession(BufReader::new(control));
        session.reply();
        session.ask("USER anonymous");
        assert!(session.ask("PASS x").starts_with("230"));
        session
    }
}

impl Drop for NobodysServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) struct AnonymousSession(BufReader<TcpStream>);

impl AnonymousSession {
    /// Sends a line, and returns the last line of the reply.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.0.get_mut().write_all(line.as_bytes()).unwrap();
        self.0.get_mut().write_all(b"\r\n").unwrap();
        self.reply()
    }

    /// Reads a reply, and returns its last line.
    fn reply(&mut self) -> String {
        loop {
            let mut reply = String::new();
            assert!(self.0.read_line(&mut reply).unwrap() > 0, "no reply");
            if reply.as_bytes().get(3) == Some(&b' ') {
                return reply;
            }
        }
    }

    /// The lines of a listing, and the last line of its final reply.
    pub(crate) fn list(&mut self, command: &str) -> (Vec<String>, String) {
        let reply = self.ask("EPSV");
        let port = reply.split('|').nth(3).unwrap().parse().unwrap();
        let address = (self.0.get_ref().peer_addr().unwrap().ip(), port);
        let mut data = TcpStream::connect(address).unwrap();
        let first = self.ask(command);
        if !first.starts_with("150") {
            return (Vec::new(), first);
        }
        let mut text = Vec::new();
        // The connection of a listing that fails is reset.
        let _ = data.read_to_end(&mut text);
        let text = String::from_utf8(text).unwrap();
        (text.lines().map(str::to_owned).collect(), self.reply())
    }
}
