//! ProFTPD: anonymous sessions may read and write the store.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::tls::PeerTls;
use super::{ACCOUNT, PeerServer, find_unpacked};
use crate::matrix::TestStore;
use crate::net;

/// Path of the program.
pub fn find() -> Result<PathBuf, String> {
    find_unpacked("proftpd-core", "usr/sbin/proftpd")
}

/// Path of the folder with the module for TLS.
pub fn find_tls() -> Result<PathBuf, String> {
    let module = find_unpacked("proftpd-mod-crypto", "usr/lib/proftpd/mod_tls.so")?;
    Ok(module.with_file_name(""))
}

/// Serves the store on 127.0.0.1.
pub fn start(store: &TestStore) -> Result<PeerServer> {
    spawn(store, "")
}

/// Serves the store on 127.0.0.1, with checksums (XCRC, XMD5, ...).
pub fn start_with_checksums(store: &TestStore) -> Result<PeerServer> {
    let program = find().map_err(anyhow::Error::msg)?;
    let modules = program.with_file_name("../lib/proftpd");
    let settings = format!(
        "ModulePath {}\nLoadModule mod_digest.c\nDigestEngine on\n",
        modules.display()
    );
    spawn(store, &settings)
}

/// Serves the store over TLS on 127.0.0.1.
pub fn start_with_tls(store: &TestStore, tls: &PeerTls) -> Result<PeerServer> {
    let mut options = Vec::new();
    if !tls.session_reuse {
        options.push("NoSessionReuseRequired");
    }
    if tls.implicit {
        options.push("UseImplicitSSL");
    }
    let mut settings = format!(
        "ModulePath {modules}\nLoadModule mod_tls.c\nTLSEngine on\nTLSRequired on\nTLSLog {root}/proftpd.tls.log\n\
         TLSRSACertificateFile {certificate}\nTLSRSACertificateKeyFile {key}\nTLSProtocol {versions}\n",
        modules = find_tls().map_err(anyhow::Error::msg)?.display(),
        root = store.root().display(),
        certificate = tls.identity.certificate.display(),
        key = tls.identity.key.display(),
        versions = if tls.tls_1_2 {
            "TLSv1.2"
        } else {
            "TLSv1.2 TLSv1.3"
        },
    );
    if !options.is_empty() {
        settings += &format!("TLSOptions {}\n", options.join(" "));
    }
    if let Some(authority) = &tls.client_ca {
        settings += &format!(
            "TLSVerifyClient on\nTLSCACertificateFile {}\n",
            authority.display()
        );
    }
    Ok(spawn(store, &settings)?.scheme("ftps"))
}

fn spawn(store: &TestStore, more: &str) -> Result<PeerServer> {
    let port = net::free_port()?;
    // Reverse DNS and mod_delay would add seconds to each login. Resumed uploads (REST, STOR) need
    // AllowStoreRestart and AllowOverwrite, which are off by default.
    let settings = format!(
        "{more}ServerName test\nServerType standalone\nPort {port}\nDefaultAddress {host}\n\
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
