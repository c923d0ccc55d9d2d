//! OpenSSH's server, for one user's key.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{PeerServer, find_installed, is_root};
use crate::longhaul::binary;
use crate::matrix::TestStore;
use crate::net;

/// Settings of a server without SFTP.
pub const NO_SFTP: &str = "Subsystem other /bin/false";

/// A running server, and the way of its only user to it.
#[derive(Debug)]
pub struct Sshd {
    /// URLs of the served store.
    pub server: PeerServer,
    /// ssh with the user's configuration, for `--ssh`.
    pub ssh: String,
    /// The keys of hosts that the user knows.
    known_hosts: PathBuf,
    /// The user's public key.
    user: String,
}

impl Sshd {
    /// Logins so far.
    #[must_use]
    pub fn logins(&self) -> usize {
        self.server.messages().matches("Accepted publickey").count()
    }

    /// The same server, for `sftp:` URLs.
    #[must_use]
    pub fn by_sftp(self) -> Self {
        Self {
            server: self.server.scheme("sftp"),
            ..self
        }
    }

    /// The user's public key.
    #[must_use]
    pub fn user_key(&self) -> &str {
        &self.user
    }

    /// Lets the user know a host, by a line of ssh's file.
    pub fn add_known_host(&self, line: &str) -> Result<()> {
        let mut known = std::fs::read_to_string(&self.known_hosts)?;
        known.push_str(line);
        Ok(std::fs::write(&self.known_hosts, known)?)
    }

    /// The processes of its logins.
    #[must_use]
    pub fn sessions(&self) -> Vec<i32> {
        descendants(self.server.pid().as_raw_nonzero().get())
    }

    /// The processes of longhaul that its logins run.
    #[must_use]
    pub fn far_ends(&self) -> Vec<i32> {
        self.programs(b"serve\0--stdio\0")
    }

    /// The nodes of copies that its logins run.
    #[must_use]
    pub fn nodes(&self) -> Vec<i32> {
        self.programs(b"longhaul\0node\0")
    }

    /// ssh that reaches this server by whatever name of a host.
    #[must_use]
    pub fn ssh_by_any_name(&self) -> String {
        let address = self.server.address();
        let (host, port) = (address.ip(), address.port());
        format!("{} -oHostName={host} -oPort={port}", self.ssh)
    }

    /// The processes of logins whose words end so.
    fn programs(&self, end: &[u8]) -> Vec<i32> {
        let children = descendants(self.server.pid().as_raw_nonzero().get());
        let is_far_end = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.ends_with(end)
        };
        children.into_iter().filter(is_far_end).collect()
    }
}

/// All processes below one.
fn descendants(of: i32) -> Vec<i32> {
    let mut found = vec![of];
    let mut next = 0;
    while let Some(parent) = found.get(next) {
        let tasks = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
        let children = tasks.unwrap_or_default();
        found.extend(
            children
                .split_whitespace()
                .filter_map(|pid| pid.parse::<i32>().ok()),
        );
        next += 1;
    }
    found.remove(0);
    found
}

/// Path of the program.
pub fn find() -> Result<PathBuf, String> {
    find_installed("ssh-keygen")?;
    find_installed("ssh")?;
    find_installed("sshd")
}

/// Starts a server on 127.0.0.1, whose logins find this build of longhaul, with further lines of its settings.
pub fn start(store: &TestStore, further: &str) -> Result<Sshd> {
    start_for(
        store,
        further,
        binary::path()?.parent().context("no folder")?,
    )
}

/// Another server, which the user of the first knows, and who may log in.
pub fn start_beside(first: &Sshd, store: &TestStore) -> Result<Sshd> {
    let second = start(store, "")?;
    let mut known = std::fs::read_to_string(&first.known_hosts)?;
    known.push_str(&std::fs::read_to_string(&second.known_hosts)?);
    std::fs::write(&first.known_hosts, known)?;
    std::fs::write(store.path("sshd.d/authorized"), &first.user)?;
    Ok(Sshd {
        ssh: first.ssh.clone(),
        ..second
    })
}

/// The same, for logins that have `programs` on their path before the system's.
pub fn start_for(store: &TestStore, further: &str, programs: &Path) -> Result<Sshd> {
    let path = format!("PATH={}:/usr/bin:/bin", programs.display());
    start_in(store, further, &path)
}

/// The same, for logins with these variables.
pub fn start_in(store: &TestStore, further: &str, environment: &str) -> Result<Sshd> {
    let port = net::free_port()?;
    let own = store.path("sshd.d");
    std::fs::create_dir_all(&own)?;
    let key = |name: &str| -> Result<String> {
        let file = own.join(name);
        let mut keygen = Command::new("ssh-keygen");
        keygen
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(&file);
        ensure!(keygen.status()?.success(), "no key {name}");
        Ok(std::fs::read_to_string(file.with_extension("pub"))?)
    };
    let (host, user) = (key("host")?, key("user")?);
    let own = own.display();
    let sftp = match further.contains(NO_SFTP) {
        true => "",
        false => "Subsystem sftp internal-sftp\n",
    };
    let settings = format!(
        "Port {port}\nListenAddress {address}\nHostKey {own}/host\nAuthorizedKeysFile {own}/authorized\nPidFile none\n\
         StrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n\
         {sftp}SetEnv {environment} LONGHAUL_HISTORY=off\n{further}\n",
        address = net::HOST,
    );
    let scratch = store.scratch();
    let file = scratch.file("sshd.conf", settings.as_bytes())?;
    std::fs::write(store.path("sshd.d/authorized"), &user)?;
    let known_hosts = store.path("sshd.d/known");
    std::fs::write(&known_hosts, format!("[{}]:{port} {host}", net::HOST))?;
    let client = format!(
        "IdentityFile {own}/user\nIdentitiesOnly yes\nUserKnownHostsFile {own}/known\nGlobalKnownHostsFile none\n\
         StrictHostKeyChecking yes\n"
    );
    let client = scratch.file("ssh.conf", client.as_bytes())?;
    if is_root() {
        // Where a server that root starts confines the part before the login.
        std::fs::create_dir_all("/run/sshd")?;
    }
    let mut command = Command::new(find().map_err(anyhow::Error::msg)?);
    command.args(["-D", "-e", "-f"]).arg(file);
    let server = PeerServer::start(&mut command, store, "sshd", port)?
        .scheme("ssh")
        .prefix(store.root());
    Ok(Sshd {
        server,
        ssh: format!("ssh -F {}", client.display()),
        known_hosts,
        user,
    })
}
