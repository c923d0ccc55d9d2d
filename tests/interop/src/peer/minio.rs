//! MinIO, an object store in a folder. tests/install-peers does not build it, which takes a quarter of an hour; docs/interop.md
//! has the command.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::{PeerServer, peers_folder};
use crate::matrix::TestStore;
use crate::net;

/// The two halves of its key.
pub const KEY: (&str, &str) = ("AKIDINTEROP", "a secret of many letters");

/// Path of the program.
pub fn find() -> Result<PathBuf, String> {
    let program = peers_folder()?.join("minio/bin/minio");
    match program.is_file() {
        true => Ok(program),
        false => Err(format!("there is no {}", program.display())),
    }
}

/// A server on 127.0.0.1 with these buckets.
pub fn start(store: &TestStore, buckets: &[&str]) -> Result<PeerServer> {
    let port = net::free_port()?;
    let folder = store.scratch().folder("minio")?;
    for bucket in buckets {
        std::fs::create_dir(folder.join(bucket))?;
    }
    let mut command = Command::new(find().map_err(anyhow::Error::msg)?);
    command
        .env("MINIO_ROOT_USER", KEY.0)
        .env("MINIO_ROOT_PASSWORD", KEY.1)
        .args(["server", "--quiet", "--address"])
        .arg(format!("{}:{port}", net::HOST))
        .arg(folder);
    Ok(PeerServer::start(&mut command, store, "minio", port)?.scheme("http"))
}
