//! The programs of other projects, one file each: how to find, start and run them.

pub mod apache;
pub mod curl;
pub mod davix;
pub mod forward_proxy;
pub mod ftplib;
pub mod gfal;
pub mod globus_gridftp_server;
pub mod globus_url_copy;
pub mod lftp;
pub mod minio;
pub mod moto;
pub mod ncftp;
pub mod nginx;
pub mod proftpd;
pub mod pure_ftpd;
pub mod pyftpdlib;
pub mod python;
pub mod rclone;
pub mod rclone_webdav;
pub mod s3s_fs;
pub mod slurm;
pub mod sshd;
pub mod tls;
pub mod vsftpd;
pub mod wget;
pub mod wsgidav;
pub mod xrootd;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Pid;

use crate::longhaul::binary;
use crate::matrix::TestStore;
use crate::net;
use crate::process::{ProcessGuard, ServerProcess};

const START_LIMIT: Duration = Duration::from_secs(60);

/// The account that servers use if root starts them.
const ACCOUNT: &str = "nobody";

/// User and group ID of that account on Debian.
const NOBODY: u32 = 65_534;

/// The password of all test accounts of these servers.
pub const PASSWORD: &str = "secret";

/// `crypt(PASSWORD, "ab")`: traditional DES, the only hash that globus-gridftp-server supports, and one
/// that Pure-FTPd checks without delay.
const PASSWORD_HASH: &str = "abNANd1rDfiNc";

/// Whether the tests run as root.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Finds an installed program; the error says why it is missing.
pub fn find_installed(program: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        // Servers are in /usr/sbin, which is often not on the path of ordinary users.
        .chain(["/usr/sbin".into(), "/usr/bin".into()])
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
        .ok_or_else(|| format!("{program} is not installed; run tests/install-peers"))
}

/// Finds a program of a package that `tests/install-peers` unpacks without installing it.
pub fn find_unpacked(package: &str, program: &str) -> Result<PathBuf, String> {
    let path = find_unpacked_file(package, program)?;
    if !is_root() {
        return Err(format!("{package} can only be started by root"));
    }
    Ok(path)
}

/// Finds a file of a package that `tests/install-peers` unpacks.
pub fn find_unpacked_file(package: &str, file: &str) -> Result<PathBuf, String> {
    let path = peers_folder()?.join(package).join(file);
    match path.exists() {
        true => Ok(path),
        false => Err(format!(
            "{} is missing; run tests/install-peers",
            path.display()
        )),
    }
}

/// Where `tests/install-peers` puts what it does not install.
fn peers_folder() -> Result<PathBuf, String> {
    match std::env::var_os("LONGHAUL_PEERS") {
        Some(folder) => Ok(PathBuf::from(folder)),
        None => Ok(target_folder()?.join("interop-peers")),
    }
}

fn target_folder() -> Result<PathBuf, String> {
    binary::target_folder().map_err(|error| format!("{error:#}"))
}

/// A client command without the user's settings, certificates and proxies.
#[must_use]
pub fn client_command(program: &Path) -> Command {
    let mut command = Command::new(program);
    let personal = |name: &str| {
        let name = name.to_ascii_lowercase();
        name.ends_with("_proxy") || name.starts_with("x509_") || name.starts_with("globus_")
    };
    for (name, _) in std::env::vars_os() {
        if personal(&name.to_string_lossy()) {
            command.env_remove(name);
        }
    }
    // A fixed locale: messages are compared, and file names are UTF-8.
    command.env("HOME", "/nonexistent").env("LC_ALL", "C.UTF-8");
    command
}

/// A running server of another program, killed on drop.
#[derive(Debug)]
pub struct PeerServer {
    daemon: ServerProcess,
    scheme: &'static str,
    address: SocketAddr,
    /// Host in URLs.
    host: String,
    /// Login with `@` for URLs, or empty.
    login: String,
    /// Served path of the store's root; empty for servers that confine sessions to it.
    prefix: String,
}

impl PeerServer {
    /// Starts a server and waits until it listens on the given port of 127.0.0.1.
    fn start(command: &mut Command, store: &TestStore, name: &str, port: u16) -> Result<Self> {
        let address = SocketAddr::new(net::HOST.parse()?, port);
        Self::start_at(command, store, name, address)
    }

    /// Starts a server and waits until it listens.
    fn start_at(
        command: &mut Command,
        store: &TestStore,
        name: &str,
        address: SocketAddr,
    ) -> Result<Self> {
        let mut daemon = ServerProcess::spawn(command, store.root(), name)?;
        daemon
            .wait_until("listener", START_LIMIT, |_| {
                net::is_listening(address).then_some(())
            })
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Self {
            daemon,
            scheme: "ftp",
            address,
            host: address.ip().to_string(),
            login: String::new(),
            prefix: String::new(),
        })
    }

    fn login(mut self, user: &str) -> Self {
        self.login = format!("{user}:{PASSWORD}@");
        self
    }

    fn prefix(mut self, root: &Path) -> Self {
        self.prefix = root.to_string_lossy().into_owned();
        self
    }

    /// Sets the scheme of [`PeerServer::url`]; the default is `ftp`.
    #[must_use]
    pub fn scheme(mut self, scheme: &'static str) -> Self {
        self.scheme = scheme;
        self
    }

    /// Sets the host of [`PeerServer::url`]; the default is the address.
    #[must_use]
    pub fn host(mut self, host: &str) -> Self {
        host.clone_into(&mut self.host);
        self
    }

    /// URL of a served path, with the login if the server needs one.
    #[must_use]
    pub fn url(&self, served: &str) -> String {
        self.url_with(self.scheme, served)
    }

    /// URL of a served path with another scheme.
    #[must_use]
    pub fn url_with(&self, scheme: &str, served: &str) -> String {
        format!(
            "{scheme}://{}{}:{}{}/{served}",
            self.login,
            self.host,
            self.address.port(),
            self.prefix
        )
    }

    /// Address of the server.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server's output so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.daemon.log()
    }

    /// Everything that it has said on standard error.
    #[must_use]
    pub fn messages(&self) -> String {
        self.daemon.messages()
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.daemon.pid()
    }

    /// The server's process.
    pub fn guard(&mut self) -> &mut ProcessGuard {
        self.daemon.guard()
    }
}
