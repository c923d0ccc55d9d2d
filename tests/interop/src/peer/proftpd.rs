//! ProFTPD: anonymous sessions may read and write the store.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::{ACCOUNT, PeerServer, find_unpacked};
use crate::matrix::TestStore;
use crate::net;

/// Path of the program.
pub fn find() -> Result<PathBuf, String> {
    find_unpacked("proftpd-core", "usr/sbin/proftpd")
}

/// Serves the store on 127.0.0.1.
pub fn start(store: &TestStore) -> Result<PeerServer> {
    let port = net::free_port()?;
    // Reverse DNS and mod_delay would add seconds to each login. Resumed uploads (REST, STOR) need
    // AllowStoreRestart and AllowOverwrite, which are off by default.
    let settings = format!(
        "ServerName test\nServerType standalone\nPort {port}\nDefaultAddress {host}\n\
         SocketBindTight on\nUseIPv6 off\nUser {ACCOUNT}\nGroup nogroup\n\
         PidFile {root}/proftpd.pid\nScoreboardFile {root}/proftpd.score\n\
         UseReverseDNS off\nDelayEngine off\nRequireValidShell off\nWtmpLog off\nSystemLog {root}/proftpd.log\n\
         AllowOverwrite on\nAllowStoreRestart on\nAllowRetrieveRestart on\n\
         <Anonymous {root}>\n User {ACCOUNT}\n Group nogroup\n UserAlias anonymous {ACCOUNT}\n \
         AllowOverwrite on\n AllowStoreRestart on\n \
         <Limit ALL>\n AllowAll\n </Limit>\n</Anonymous>\n",
        host = net::HOST,
        root = store.root().display(),
    );
    let file = store.scratch().file("proftpd.conf", settings.as_bytes())?;
    let mut command = Command::new(find().map_err(anyhow::Error::msg)?);
    // -n: in the foreground, so that the process can be killed.
    command.args(["-n", "-c"]).arg(file);
    PeerServer::start(&mut command, store, "proftpd", port)
}
