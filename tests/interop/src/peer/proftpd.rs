//! ProFTPD: anonymous sessions may read and write the store.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};

use super::sshd::Sshd;
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

/// Serves the store by SFTP on 127.0.0.1, for the key of the user of `sshd` and the account `joe`.
pub fn start_with_sftp(store: &TestStore, sshd: &Sshd) -> Result<PeerServer> {
    let own = store.path("sshd.d");
    let keygen = |arguments: &[&str]| -> Result<String> {
        let mut keygen = Command::new("ssh-keygen");
        let output = keygen.args(arguments).current_dir(&own).output()?;
        ensure!(output.status.success(), "ssh-keygen {arguments:?}");
        Ok(String::from_utf8(output.stdout)?)
    };
    keygen(&["-q", "-t", "rsa", "-m", "PEM", "-N", "", "-f", "proftpd"])?;
    // The form of RFC 4716.
    std::fs::write(
        own.join("proftpd.authorized"),
        keygen(&["-e", "-f", "user.pub"])?,
    )?;
    let ids = (
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    let account = format!("joe:*:{}:{}::/:/bin/sh\n", ids.0, ids.1);
    let secret = |name: &str, text: &str| -> Result<()> {
        std::fs::write(own.join(name), text)?;
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        Ok(std::fs::set_permissions(own.join(name), private)?)
    };
    secret("proftpd.accounts", &account)?;
    let settings = format!(
        "ModulePath {modules}\nLoadModule mod_sftp.c\nRootLogin on\nAuthOrder mod_auth_file.c\n\
         AuthUserFile {own}/proftpd.accounts\nSFTPEngine on\nSFTPHostKey {own}/proftpd\nSFTPAuthMethods publickey\n\
         SFTPAuthorizedUserKeys file:{own}/proftpd.authorized\n",
        modules = find_tls().map_err(anyhow::Error::msg)?.display(),
        own = own.display(),
    );
    let server = spawn(store, &settings)?;
    let key = std::fs::read_to_string(own.join("proftpd.pub"))?;
    sshd.add_known_host(&format!(
        "[{}]:{} {key}",
        net::HOST,
        server.address().port()
    ))?;
    Ok(server
        .scheme("sftp")
        .host("joe@127.0.0.1")
        .prefix(store.root()))
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
