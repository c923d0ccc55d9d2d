//! Runs `longhaul serve`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::binary::longhaul;
use crate::pki::PeerPki;
use crate::pki::authority::PeerCertificate;
use crate::pki::environment::GridEnvironment;
use crate::process::{ProcessGuard, ServerProcess};
use crate::run;
use crate::scratch::ScratchFolder;

/// User name of tests that log in.
pub const USER: &str = "alice";

/// Password of [`USER`].
pub const PASSWORD: &str = "correct-horse-battery";

const START_LIMIT: Duration = Duration::from_secs(60);

/// Longest wait for a line of the log.
const MESSAGE_LIMIT: Duration = Duration::from_secs(120);

/// A `longhaul serve` command to be started.
#[derive(Debug, Clone)]
pub struct ServeCommand {
    root: PathBuf,
    listen: String,
    arguments: Vec<String>,
    wrapper: Option<Vec<String>>,
    environment: GridEnvironment,
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
            environment: GridEnvironment::default(),
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

    /// Sets variables of the server's environment.
    #[must_use]
    pub fn environment(mut self, environment: &GridEnvironment) -> Self {
        self.environment = environment.clone();
        self
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
        self.environment.apply(&mut command);
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

    /// The whole log so far, without shortening.
    #[must_use]
    pub fn messages(&self) -> String {
        self.daemon.messages()
    }

    /// Waits for a line of the log with all of these words behind its first `start` bytes, and returns it.
    pub fn wait_for_message(&self, start: usize, words: &[&str]) -> Result<String> {
        let deadline = Instant::now() + MESSAGE_LIMIT;
        loop {
            let messages = self.messages();
            let new = messages.get(start..).unwrap_or_default();
            let has_all = |line: &&str| words.iter().all(|word| line.contains(word));
            if let Some(line) = new.lines().find(has_all) {
                return Ok(line.to_owned());
            }
            ensure!(
                Instant::now() < deadline,
                "no line with {words:?} in the server's log:\n{}",
                run::excerpt(new.as_bytes())
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Memory of the server's process that is in RAM, bytes (VmRSS of proc_pid_status(5)).
    pub fn resident_memory(&mut self) -> Result<u64> {
        let pid = self.daemon.guard().pid().as_raw_nonzero();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let words = line.context("the process has no memory")?;
        let kilobytes = words.split_whitespace().next().unwrap_or_default();
        Ok(kilobytes.parse::<u64>()? * 1024)
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

/// Adds the user [`USER`] with this root to a password file (`longhaul user add`), unless an earlier server of the root has one.
pub fn add_user(users: &Path, root: &Path) -> Result<()> {
    if users.exists() {
        return Ok(());
    }
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
