//! OpenSSH's server, for one user's key.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{PeerServer, find_installed, is_root};
use crate::longhaul::binary;
use crate::matrix::TestStore;
use crate::net;

/// A running server, and the way of its only user to it.
#[derive(Debug)]
pub struct Sshd {
    /// URLs of the served store.
    pub server: PeerServer,
    /// ssh with the user's configuration, for `--ssh`.
    pub ssh: String,
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

/// The same, for logins that have `programs` on their path before the system's.
pub fn start_for(store: &TestStore, further: &str, programs: &Path) -> Result<Sshd> {
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
    let settings = format!(
        "Port {port}\nListenAddress {address}\nHostKey {own}/host\nAuthorizedKeysFile {own}/authorized\nPidFile none\n\
         StrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n\
         Subsystem sftp internal-sftp\nSetEnv PATH={programs}:/usr/bin:/bin LONGHAUL_HISTORY=off\n{further}\n",
        address = net::HOST,
        programs = programs.display(),
    );
    let scratch = store.scratch();
    let file = scratch.file("sshd.conf", settings.as_bytes())?;
    scratch.file("sshd.d/authorized", user.as_bytes())?;
    let known = format!("[{}]:{port} {host}", net::HOST);
    scratch.file("sshd.d/known", known.as_bytes())?;
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
    })
}
