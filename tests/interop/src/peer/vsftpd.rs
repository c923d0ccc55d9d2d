//! vsftpd: anonymous sessions may read and write the store.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::{PeerServer, find_unpacked};
use crate::matrix::TestStore;
use crate::net;

/// vsftpd changes to the account's home directory before it confines the session, and `nobody` has none.
const ACCOUNT: &str = "daemon";

/// Path of the program.
pub fn find() -> Result<PathBuf, String> {
    find_unpacked("vsftpd", "usr/sbin/vsftpd")
}

/// Serves the store on 127.0.0.1.
pub fn start(store: &TestStore) -> Result<PeerServer> {
    let port = net::free_port()?;
    let empty = store.path("vsftpd.empty");
    std::fs::create_dir_all(&empty)?;
    // vsftpd's seccomp filter kills the session on kernels newer than the filter.
    let settings = format!(
        "listen=YES\nlisten_address={host}\nlisten_port={port}\nbackground=NO\n\
         anonymous_enable=YES\nanon_root={root}\nftp_username={ACCOUNT}\n\
         anon_upload_enable=YES\nanon_mkdir_write_enable=YES\nanon_other_write_enable=YES\n\
         anon_umask=022\nwrite_enable=YES\nno_anon_password=YES\nsecure_chroot_dir={empty}\n\
         seccomp_sandbox=NO\npasv_address={host}\npasv_min_port={low}\npasv_max_port={high}\n\
         xferlog_enable=NO\n",
        host = net::HOST,
        low = net::PASSIVE_PORTS.start(),
        high = net::PASSIVE_PORTS.end(),
        root = store.root().display(),
        empty = empty.display(),
    );
    let file = store.scratch().file("vsftpd.conf", settings.as_bytes())?;
    let mut command = Command::new(find().map_err(anyhow::Error::msg)?);
    command.arg(file);
    PeerServer::start(&mut command, store, "vsftpd", port)
}
