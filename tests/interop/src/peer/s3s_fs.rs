//! s3s-fs, an object store in a folder, each of whose directories is a bucket. It compares signatures.
//! Names of buckets have three letters or more, so that the store as a whole is one.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::{PeerServer, peers_folder};
use crate::matrix::TestStore;
use crate::net;

/// The two halves of its key.
pub const KEY: (&str, &str) = ("AKIDINTEROP", "a secret with +/= in it");

/// Path of the program.
pub fn find() -> Result<PathBuf, String> {
    let program = peers_folder()?.join("s3s-fs/bin/s3s-fs");
    match program.is_file() {
        true => Ok(program),
        false => Err(format!(
            "{} is missing; run tests/install-peers",
            program.display()
        )),
    }
}

/// Name of its bucket.
pub const BUCKET: &str = "store";

/// Serves the store on 127.0.0.1, as a bucket.
pub fn start(store: &TestStore) -> Result<PeerServer> {
    let port = net::free_port()?;
    let buckets = store.scratch().folder("buckets")?;
    std::os::unix::fs::symlink(store.root(), buckets.join(BUCKET))?;
    let mut command = Command::new(find().map_err(anyhow::Error::msg)?);
    command
        .args(["--host", net::HOST, "--port", &port.to_string()])
        .args(["--access-key", KEY.0, "--secret-key", KEY.1])
        .arg(buckets);
    Ok(PeerServer::start(&mut command, store, "s3s-fs", port)?.scheme("http"))
}
