//! Apache with WebDAV and MD5 checksums (`ContentDigest`).

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::{PeerServer, find_unpacked};
use crate::matrix::TestStore;
use crate::net;

/// Path of the program.
pub fn find() -> Result<PathBuf, String> {
    find_unpacked("apache2-bin", "usr/sbin/apache2")
}

/// Serves the store on 127.0.0.1.
pub fn start(store: &TestStore) -> Result<PeerServer> {
    start_with(store, &[], "")
}

/// Serves the store with additional modules (`headers`) and settings for its directory.
pub fn start_with(store: &TestStore, modules: &[&str], further: &str) -> Result<PeerServer> {
    let port = net::free_port()?;
    let own = store.path("apache.d");
    std::fs::create_dir_all(&own)?;
    let program = find().map_err(anyhow::Error::msg)?;
    let mut settings = format!(
        "ServerRoot {own}\nPidFile {own}/pid\nErrorLog {own}/log\nServerName localhost\n\
         Listen {host}:{port}\nDavLockDB {own}/locks\nDocumentRoot {root}\nContentDigest On\n",
        own = own.display(),
        host = net::HOST,
        root = store.root().display(),
    );
    let always = ["mpm_event", "authz_core", "dav", "dav_fs", "dir"];
    for module in always.iter().chain(modules) {
        let file = format!("usr/lib/apache2/modules/mod_{module}.so");
        let file = find_unpacked("apache2-bin", &file).map_err(anyhow::Error::msg)?;
        settings.push_str(&format!("LoadModule {module}_module {}\n", file.display()));
    }
    settings.push_str(&format!(
        "User www-data\nGroup www-data\n<Directory {}>\nDav On\nRequire all granted\n{further}</Directory>\n",
        store.root().display()
    ));
    // Apache serves as the account www-data, which must be able to write here.
    for folder in [store.root(), own.as_path(), store.path("up").as_path()] {
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(folder, all)?;
    }
    let file = store.scratch().file("apache.conf", settings.as_bytes())?;
    let mut command = Command::new(program);
    command.arg("-X").arg("-f").arg(file);
    PeerServer::start(&mut command, store, "apache", port)
}
