//! globus-gridftp-server (Grid Community Toolkit): anonymous, with a password file, or with GSI.
//!
//! Version 13.24 drops every byte above 127 from the paths of its commands (a file stored as `gü`
//! is `g`), so that names in its rows are ASCII.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::{ACCOUNT, NOBODY, PASSWORD_HASH, PeerServer, find_installed, is_root};
use crate::matrix::TestStore;
use crate::net;
use crate::pki::PeerPki;
use crate::pki::authority::PeerCertificate;
use crate::pki::environment::GridEnvironment;

/// Path of the program.
pub fn find() -> Result<PathBuf, String> {
    find_installed("globus-gridftp-server")
}

/// Serves the store to anonymous sessions on 127.0.0.1. The server does not confine sessions, so served
/// paths are absolute paths of this machine.
pub fn start(store: &TestStore) -> Result<PeerServer> {
    start_anonymous(store, &[])
}

/// The same with a server that refuses these commands, separated by commas, though it announces them.
pub fn start_without(store: &TestStore, commands: &str) -> Result<PeerServer> {
    start_anonymous(store, &["-disable-command-list", commands])
}

fn start_anonymous(store: &TestStore, options: &[&str]) -> Result<PeerServer> {
    // -aa: allow anonymous logins.
    let mut options: Vec<String> = [&["-aa"], options]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect();
    if is_root() {
        options.extend(["-anonymous-user".to_owned(), ACCOUNT.to_owned()]);
    }
    spawn(store, &options, &GridEnvironment::default())
}

/// A front end, and its data nodes, which end with it.
#[derive(Debug)]
pub struct StripedGlobusServer {
    /// Clients connect to it.
    pub front: PeerServer,
    _nodes: Vec<PeerServer>,
}

/// Serves the store to anonymous sessions by a front end with this number of data nodes.
pub fn start_striped(store: &TestStore, nodes: u16) -> Result<StripedGlobusServer> {
    let mut all = Vec::new();
    let mut addresses = Vec::new();
    let none = GridEnvironment::default();
    for _ in 0..nodes {
        let mut options = vec!["-dn", "-auth-level", "0", "-no-secure-ipc"];
        if is_root() {
            options.extend(["-process-user", ACCOUNT]);
        }
        let options: Vec<String> = options.into_iter().map(str::to_owned).collect();
        let node = spawn(store, &options, &none)?;
        addresses.push(node.address().to_string());
        all.push(node);
    }
    let mut options = vec!["-aa".to_owned(), "-no-secure-ipc".to_owned()];
    options.extend(["-r".to_owned(), addresses.join(",")]);
    if is_root() {
        options.extend(["-anonymous-user".to_owned(), ACCOUNT.to_owned()]);
    }
    Ok(StripedGlobusServer {
        front: spawn(store, &options, &none)?,
        _nodes: all,
    })
}

/// Serves the store to the users of [`PeerPki::write_gridmap`] with GSI, with this certificate of the host.
pub fn start_gsi_as(
    store: &TestStore,
    pki: &PeerPki,
    host: &PeerCertificate,
    options: &[&str],
) -> Result<PeerServer> {
    let gridmap = store.path("globus.gridmap");
    pki.write_gridmap(&gridmap, &session_account()?)?;
    let environment = GridEnvironment::certificate(pki, host).with("GRIDMAP", gridmap);
    start_gsi_in(store, &environment, options)
}

/// Serves the store with GSI in an environment that names the host's certificate and the gridmap.
pub fn start_gsi_in(
    store: &TestStore,
    environment: &GridEnvironment,
    options: &[&str],
) -> Result<PeerServer> {
    let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
    let server = spawn(store, &options, environment)?;
    Ok(server.scheme("gsiftp").host("localhost"))
}

/// Serves the store with GSI as the host `localhost`.
pub fn start_gsi(store: &TestStore, pki: &PeerPki) -> Result<PeerServer> {
    start_gsi_as(store, pki, &pki.host, &[])
}

/// The account of GSI sessions: started by another account than root, the server can only serve as itself.
fn session_account() -> Result<String> {
    if is_root() {
        return Ok(ACCOUNT.to_owned());
    }
    let own = nix::unistd::User::from_uid(nix::unistd::getuid())?;
    Ok(own.context("this account has no name")?.name)
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
    Ok(spawn(store, &options, &GridEnvironment::default())?.login("alice"))
}

fn spawn(
    store: &TestStore,
    options: &[String],
    environment: &GridEnvironment,
) -> Result<PeerServer> {
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
    environment.apply(&mut command);
    Ok(
        PeerServer::start(&mut command, store, &format!("globus.{port}"), port)?
            .prefix(store.root()),
    )
}
