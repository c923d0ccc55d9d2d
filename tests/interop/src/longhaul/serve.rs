//! Runs `longhaul serve`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::binary::longhaul;
use crate::pki::PeerPki;
use crate::pki::authority::PeerCertificate;
use crate::process::{ProcessGuard, ServerProcess};
use crate::run;
use crate::scratch::ScratchFolder;

/// User name of tests that log in.
pub const USER: &str = "alice";

/// Password of [`USER`].
pub const PASSWORD: &str = "correct-horse-battery";

const START_LIMIT: Duration = Duration::from_secs(60);

/// A `longhaul serve` command to be started.
#[derive(Debug)]
pub struct ServeCommand {
    root: PathBuf,
    listen: String,
    arguments: Vec<String>,
    wrapper: Option<Vec<String>>,
}

impl ServeCommand {
    /// A server of `root` on a free port of 127.0.0.1, which nobody may use yet.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            listen: "127.0.0.1:0".to_owned(),
            arguments: Vec::new(),
            wrapper: None,
        }
    }

    /// A server that allows anonymous sessions to read and write `root`.
    #[must_use]
    pub fn anonymous(root: &Path) -> Self {
        Self::new(root).option("--anonymous", "rw")
    }

    /// Sets the address to listen on.
    #[must_use]
    pub fn listen(mut self, address: &str) -> Self {
        address.clone_into(&mut self.listen);
        self
    }

    /// Adds an option with its value.
    #[must_use]
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.arguments.extend([name.to_owned(), value.to_owned()]);
        self
    }

    /// Adds a flag.
    #[must_use]
    pub fn flag(mut self, name: &str) -> Self {
        self.arguments.push(name.to_owned());
        self
    }

    /// Offers TLS with this certificate.
    #[must_use]
    pub fn certificate(self, identity: &PeerCertificate) -> Self {
        self.option("--cert", &identity.certificate.to_string_lossy())
            .option("--key", &identity.key.to_string_lossy())
    }

    /// Offers GSI and TLS as the host `localhost`; the users of [`PeerPki::write_gridmap`] have the account
    /// [`USER`]. The gridmap is written to the root's folder.
    pub fn gsi(self, pki: &PeerPki) -> Result<Self> {
        let gridmap = self.root.join("gridmap");
        pki.write_gridmap(&gridmap, USER)?;
        Ok(self
            .certificate(&pki.host)
            .option("--gridmap", &gridmap.to_string_lossy())
            .option("--ca-dir", &pki.ca_directory().to_string_lossy()))
    }

    /// Runs the server through another program, which gets the server's command line as arguments.
    #[must_use]
    pub fn wrapped_in(mut self, wrapper: &[&str]) -> Self {
        self.wrapper = Some(wrapper.iter().map(|&word| word.to_owned()).collect());
        self
    }

    /// Starts the server and waits for its ready line.
    pub fn start(self) -> Result<LonghaulServer> {
        let scratch = ScratchFolder::new()?;
        let mut command = self.command()?;
        let mut daemon = ServerProcess::spawn(&mut command, scratch.path(), "serve")?;
        let address = daemon.wait_until("ready line", START_LIMIT, ready_line)?;
        Ok(LonghaulServer {
            daemon,
            address,
            _scratch: scratch,
        })
    }

    fn command(&self) -> Result<Command> {
        let longhaul = longhaul()?;
        let mut command = match &self.wrapper {
            None => longhaul,
            Some(words) => {
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]).arg(longhaul.get_program());
                command
            }
        };
        command
            .args(["serve", "--listen", &self.listen, "--root"])
            .arg(&self.root);
        command.args(&self.arguments);
        Ok(command)
    }
}

/// A running server, killed on drop.
#[derive(Debug)]
pub struct LonghaulServer {
    daemon: ServerProcess,
    address: SocketAddr,
    _scratch: ScratchFolder,
}

impl LonghaulServer {
    /// Address of the control port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Anonymous URL of a served path.
    #[must_use]
    pub fn url(&self, served: &str) -> String {
        format!("ftp://{}/{served}", self.address)
    }

    /// URL of a served path with the login of the user that [`add_user`] adds.
    #[must_use]
    pub fn user_url(&self, served: &str) -> String {
        format!("ftp://{USER}:{PASSWORD}@{}/{served}", self.address)
    }

    /// `gsiftp:` URL of a served path.
    #[must_use]
    pub fn gsi_url(&self, served: &str) -> String {
        format!("gsiftp://localhost:{}/{served}", self.address.port())
    }

    /// The server's output so far, for error messages.
    #[must_use]
    pub fn log(&self) -> String {
        self.daemon.log()
    }

    /// The server's process.
    pub fn guard(&mut self) -> &mut ProcessGuard {
        self.daemon.guard()
    }

    /// Adds the server's output to an error.
    pub fn explain<T>(&self, result: Result<T>) -> Result<T> {
        result.with_context(|| format!("server log:\n{}\nclient", self.log()))
    }
}

fn ready_line(output: &str) -> Option<SocketAddr> {
    let line = output
        .lines()
        .find_map(|line| line.strip_prefix("listening on "))?;
    line.trim().parse().ok()
}

/// Adds the user [`USER`] with this root to a password file (`longhaul user add`).
pub fn add_user(users: &Path, root: &Path) -> Result<()> {
    let mut command = longhaul()?;
    command
        .args(["user", "add", "--users"])
        .arg(users)
        .args([USER, "--root"])
        .arg(root)
        // Tests have no terminal to type a password.
        .arg("--password-stdin");
    run::run_with_input(&mut command, format!("{PASSWORD}\n").as_bytes(), run::LIMIT)?
        .expect_success()?;
    Ok(())
}
