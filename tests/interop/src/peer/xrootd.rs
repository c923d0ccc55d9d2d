//! XRootD with its plug-ins for HTTP, third-party copies and macaroons.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::{ACCOUNT, PeerServer, find_installed, is_root};
use crate::matrix::TestStore;
use crate::net;
use crate::pki::PeerPki;

/// Path of the program, with its plug-ins.
pub fn find() -> Result<PathBuf, String> {
    if !is_root() {
        return Err("xrootd can only be started by root".to_owned());
    }
    find_installed("xrootd")
}

/// How a server over TLS knows its clients.
#[derive(Debug, Clone, Copy)]
pub struct Macaroons<'a> {
    /// The key of all macaroons, shared by servers that accept those of each other.
    pub key: &'a Path,
    /// Clients without a macaroon may do everything; else nothing.
    pub is_open: bool,
}

/// Serves the store on 127.0.0.1, for clear connections, too: the server loads its plug-ins only if it has a certificate.
pub fn start(store: &TestStore, pki: &PeerPki) -> Result<PeerServer> {
    launch(store, pki, "")
}

/// Serves the store on 127.0.0.1 over TLS.
pub fn start_tls(store: &TestStore, pki: &PeerPki, macaroons: Macaroons<'_>) -> Result<PeerServer> {
    let secret = give(store, macaroons.key, "xrootd.macaroons")?;
    let rights = match macaroons.is_open {
        true => "u * / a\n",
        false => "u nobody / r\n",
    };
    let rights = store.scratch().file("xrootd.rights", rights.as_bytes())?;
    let settings = format!(
        "http.exthandler xrdmacaroons libXrdMacaroons.so\n\
         http.header2cgi Authorization authz\nmacaroons.secretkey {}\nmacaroons.trace all\nall.sitename test\nofs.authorize 1\n\
         ofs.authlib libXrdMacaroons.so\nacc.authdb {}\n",
        secret.display(),
        rights.display(),
    );
    Ok(launch(store, pki, &settings)?.scheme("davs"))
}

fn launch(store: &TestStore, pki: &PeerPki, further: &str) -> Result<PeerServer> {
    let port = net::free_port()?;
    // Another one may serve the same store.
    let own = store.path(&format!("xrootd.{port}"));
    std::fs::create_dir_all(&own)?;
    for folder in [store.root(), own.as_path(), store.path("up").as_path()] {
        std::fs::set_permissions(folder, PermissionsExt::from_mode(0o777))?;
    }
    let certificate = give(store, &pki.host.certificate, "xrootd.cert")?;
    let key = give(store, &pki.host.key, "xrootd.key")?;
    let authority = give(store, &pki.ca_file(), "xrootd.ca")?;
    let settings = format!(
        "xrd.port {port}\nxrd.protocol XrdHttp:{port} libXrdHttp.so\nall.export /\noss.localroot {root}\n\
         all.adminpath {own}\nall.pidpath {own}\nxrootd.chksum max 4 adler32\n\
         http.exthandler xrdtpc libXrdHttpTPC.so\nxrd.tls {certificate} {key}\nxrd.tlsca certfile {authority}\n{further}",
        certificate = certificate.display(),
        key = key.display(),
        authority = authority.display(),
        root = store.root().display(),
        own = own.display(),
    );
    let file = store.scratch().file("xrootd.conf", settings.as_bytes())?;
    let mut command = Command::new(find().map_err(anyhow::Error::msg)?);
    command.args(["-R", ACCOUNT, "-n", "test", "-c"]).arg(file);
    Ok(PeerServer::start(&mut command, store, "xrootd", port)?.scheme("dav"))
}

/// Copies a file for the account that serves, which reads nothing of root's.
fn give(store: &TestStore, file: &Path, name: &str) -> Result<PathBuf> {
    let to = store.path(name);
    std::fs::copy(file, &to)?;
    std::os::unix::fs::chown(&to, Some(super::NOBODY), Some(super::NOBODY))?;
    std::fs::set_permissions(&to, PermissionsExt::from_mode(0o400))?;
    Ok(to)
}
