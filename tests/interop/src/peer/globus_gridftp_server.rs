//! globus-gridftp-server (Grid Community Toolkit): anonymous or with a password file.
//!
//! Version 13.24 drops every byte above 127 from the paths of its commands (a file stored as `gü`
//! is `g`), so that names in its rows are ASCII.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::{ACCOUNT, NOBODY, PASSWORD_HASH, PeerServer, find_installed, is_root};
use crate::matrix::TestStore;
use crate::net;

/// Path of the program.
pub fn find() -> Result<PathBuf, String> {
    find_installed("globus-gridftp-server")
}

/// Serves the store to anonymous sessions on 127.0.0.1. The server does not confine sessions, so served
/// paths are absolute paths of this machine.
pub fn start(store: &TestStore) -> Result<PeerServer> {
    // -aa: allow anonymous logins.
    let mut options = vec!["-aa".to_owned()];
    if is_root() {
        options.extend(["-anonymous-user".to_owned(), ACCOUNT.to_owned()]);
    }
    spawn(store, &options)
}

/// Serves the store to the user `alice` with the password `secret`.
pub fn start_with_password(store: &TestStore) -> Result<PeerServer> {
    let (user, group) = if is_root() {
        (NOBODY, NOBODY)
    } else {
        (
            rustix::process::getuid().as_raw(),
            rustix::process::getgid().as_raw(),
        )
    };
    let root = store.root().display();
    let record = format!("alice:{PASSWORD_HASH}:{user}:{group}:,,,:{root}:/bin/sh\n");
    let file = store.scratch().file("globus.passwd", record.as_bytes())?;
    let options = ["-password-file".to_owned(), file.display().to_string()];
    Ok(spawn(store, &options)?.login("alice"))
}

fn spawn(store: &TestStore, options: &[String]) -> Result<PeerServer> {
    let port = net::free_port()?;
    let mut command = Command::new(find().map_err(anyhow::Error::msg)?);
    command.args([
        "-control-interface",
        net::HOST,
        "-data-interface",
        net::HOST,
    ]);
    command.args(["-p", &port.to_string()]).args(options);
    command.args(["-d", "ALL", "-log-module", "stdio:buffer=0", "-l"]);
    command.arg(store.path(&format!("globus.{port}.log")));
    // Credentials of the user who runs the tests must not change the security of the sessions.
    for variable in ["X509_USER_PROXY", "X509_USER_CERT", "X509_USER_KEY"] {
        command.env_remove(variable);
    }
    Ok(
        PeerServer::start(&mut command, store, &format!("globus.{port}"), port)?
            .prefix(store.root()),
    )
}
