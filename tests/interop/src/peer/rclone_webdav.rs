//! `rclone serve webdav`, which refuses HEAD of a collection.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::{PeerServer, find_installed};
use crate::matrix::TestStore;
use crate::net;

/// Path of the program.
pub fn find() -> Result<PathBuf, String> {
    find_installed("rclone")
}

/// Serves the store on 127.0.0.1.
pub fn start(store: &TestStore) -> Result<PeerServer> {
    let port = net::free_port()?;
    let mut command = Command::new(find().map_err(anyhow::Error::msg)?);
    command
        .args(["--config", "", "serve", "webdav"])
        .arg(store.root())
        .args(["--addr", &format!("{}:{port}", net::HOST)])
        // Files that the tests write themselves are seen at once.
        .args(["--dir-cache-time", "0s"]);
    Ok(PeerServer::start(&mut command, store, "rclone-webdav", port)?.scheme("http"))
}
