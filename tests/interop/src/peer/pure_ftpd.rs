//! Pure-FTPd with one virtual user, which needs no system account.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Error, Result};

use super::tls::PeerTls;
use super::{NOBODY, PASSWORD_HASH, PeerServer, find_unpacked};
use crate::matrix::TestStore;
use crate::net;
use crate::run;

/// Path of the program.
pub fn find() -> Result<PathBuf, String> {
    find_unpacked("pure-ftpd", "usr/sbin/pure-ftpd")
}

/// Serves the store on 127.0.0.1 to the user `alice` with the password `secret`.
pub fn start(store: &TestStore) -> Result<PeerServer> {
    spawn(store, &[])
}

/// Like [`start`]; a listing shows at most this many entries.
pub fn start_with_short_listings(store: &TestStore, entries: u32) -> Result<PeerServer> {
    // The number after the colon is that of levels.
    spawn(store, &["-L", &format!("{entries}:5")])
}

/// Like [`start`], with TLS for commands and data. Of [`PeerTls`] only the certificate has an effect.
pub fn start_with_tls(store: &TestStore, tls: &PeerTls) -> Result<PeerServer> {
    let certificate = tls.identity.joined()?.display().to_string();
    // 3: sessions without TLS, and data connections without protection, are refused.
    let server = spawn(store, &["--tls=3", "--certfile", &certificate])?;
    Ok(server.scheme("ftps"))
}

fn spawn(store: &TestStore, options: &[&str]) -> Result<PeerServer> {
    let port = net::free_port()?;
    let (users, database) = (store.path("pure.passwd"), store.path("pure.pdb"));
    let record = format!(
        "alice:{PASSWORD_HASH}:{NOBODY}:{NOBODY}::{}/./::::::::::::\n",
        store.root().display()
    );
    std::fs::write(&users, record)?;
    let mut build =
        Command::new(find_unpacked("pure-ftpd", "usr/bin/pure-pw").map_err(Error::msg)?);
    build.arg("mkdb").arg(&database).arg("-f").arg(&users);
    run::run(&mut build)?.expect_success()?;
    let mut command = Command::new(find().map_err(Error::msg)?);
    // IPv4 only (-4), no DNS look-ups (-H), no anonymous sessions (-E), user IDs from 1 (-u 1).
    command.args([
        "-S",
        &format!("{},{port}", net::HOST),
        "-4",
        "-H",
        "-E",
        "-u",
        "1",
    ]);
    // By default Pure-FTPd may use any port, including one that another test checks.
    let (low, high) = (net::PASSIVE_PORTS.start(), net::PASSIVE_PORTS.end());
    command.args(["-p", &format!("{low}:{high}")]);
    command.args(["-l", &format!("puredb:{}", database.display())]);
    command.args(options);
    command.args(["-g", &store.path("pure.pid").display().to_string()]);
    Ok(PeerServer::start(&mut command, store, "pure-ftpd", port)?.login("alice"))
}
