//! moto, a server in Python with the whole protocol of S3 in memory. It does not compare signatures.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};

use super::curl::Curl;
use super::{PeerServer, peers_folder, python};
use crate::matrix::TestStore;
use crate::net;

/// Path of a Python interpreter that can run it.
pub fn find() -> Result<PathBuf, String> {
    let packages = packages()?;
    if !packages.join("moto").is_dir() {
        return Err(format!(
            "{} has no moto; run tests/install-peers",
            packages.display()
        ));
    }
    Curl::find()?;
    python::with_module("json")
}

/// Where `tests/install-peers` puts it and what it needs.
fn packages() -> Result<PathBuf, String> {
    Ok(peers_folder()?.join("moto"))
}

/// A server on 127.0.0.1 with these buckets.
pub fn start(store: &TestStore, buckets: &[&str]) -> Result<PeerServer> {
    let port = net::free_port()?;
    let mut command = Command::new(find().map_err(anyhow::Error::msg)?);
    command
        .env("PYTHONPATH", packages().map_err(anyhow::Error::msg)?)
        .args(["-W", "ignore", "-m", "moto.server", "-H", net::HOST])
        .args(["-p", &port.to_string()]);
    let server = PeerServer::start(&mut command, store, "moto", port)?.scheme("http");
    let curl = Curl::find().map_err(anyhow::Error::msg)?;
    for bucket in buckets {
        let url = server.url(bucket);
        let made = curl.run(&["-f", "-X", "PUT", &url])?.expect_success()?;
        ensure!(made.code == Some(0), "no bucket {bucket}");
    }
    Ok(server)
}
