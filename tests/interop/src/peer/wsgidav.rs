//! WsgiDAV, which answers HEAD of a collection as that of a file.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::{PeerServer, peers_folder, python};
use crate::matrix::TestStore;
use crate::net;

/// Path of a Python interpreter that can run it.
pub fn find() -> Result<PathBuf, String> {
    let packages = packages()?;
    if !packages.join("wsgidav").is_dir() {
        return Err(format!(
            "{} has no wsgidav; run tests/install-peers",
            packages.display()
        ));
    }
    python::with_module("json")
}

/// Where `tests/install-peers` puts it and what it needs.
fn packages() -> Result<PathBuf, String> {
    Ok(peers_folder()?.join("wsgidav"))
}

/// Serves the store on 127.0.0.1.
pub fn start(store: &TestStore) -> Result<PeerServer> {
    let port = net::free_port()?;
    let mut command = Command::new(find().map_err(anyhow::Error::msg)?);
    command
        .env("PYTHONPATH", packages().map_err(anyhow::Error::msg)?)
        .args(["-W", "ignore", "-m", "wsgidav.server.server_cli"])
        .args(["--no-config", "--auth", "anonymous", "--host", net::HOST])
        .args(["--port", &port.to_string(), "--root"])
        .arg(store.root());
    Ok(PeerServer::start(&mut command, store, "wsgidav", port)?.scheme("http"))
}
