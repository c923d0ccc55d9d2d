//! vsftpd: anonymous sessions may read and write the store.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::tls::PeerTls;
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
    spawn(
        store,
        SocketAddr::new(net::HOST.parse()?, net::free_port()?),
        "",
    )
}

/// Like [`start`], for this many sessions from one address.
pub fn start_with_max_sessions(store: &TestStore, sessions: usize) -> Result<PeerServer> {
    let address = SocketAddr::new(net::HOST.parse()?, net::free_port()?);
    spawn(store, address, &format!("max_per_ip={sessions}\n"))
}

/// Like [`start`]; files can be stored and read, but not renamed, removed or replaced.
pub fn start_as_drop_box(store: &TestStore) -> Result<PeerServer> {
    let address = SocketAddr::new(net::HOST.parse()?, net::free_port()?);
    spawn(store, address, "anon_other_write_enable=NO\n")
}

/// Serves the store over TLS on 127.0.0.1.
pub fn start_with_tls(store: &TestStore, tls: &PeerTls) -> Result<PeerServer> {
    start_with_tls_at(
        store,
        tls,
        SocketAddr::new(net::HOST.parse()?, net::free_port()?),
    )
}

/// Serves the store over TLS on an address. [`PeerTls::tls_1_2`] has no effect: this version has no
/// setting for it.
pub fn start_with_tls_at(
    store: &TestStore,
    tls: &PeerTls,
    address: SocketAddr,
) -> Result<PeerServer> {
    let yes_or_no = |on: bool| if on { "YES" } else { "NO" };
    // strict_ssl_read_eof: an upload that ends without close_notify is refused, as one that somebody cut.
    let mut settings = format!(
        "ssl_enable=YES\nallow_anon_ssl=YES\nforce_anon_logins_ssl=YES\nforce_anon_data_ssl=YES\n\
         rsa_cert_file={}\nrsa_private_key_file={}\nssl_ciphers=HIGH\nstrict_ssl_read_eof=YES\n\
         require_ssl_reuse={}\nimplicit_ssl={}\n",
        tls.identity.certificate.display(),
        tls.identity.key.display(),
        yes_or_no(tls.session_reuse),
        yes_or_no(tls.implicit),
    );
    if let Some(authority) = &tls.client_ca {
        settings += &format!(
            "require_cert=YES\nvalidate_cert=YES\nssl_request_cert=YES\nca_certs_file={}\n",
            authority.display()
        );
    }
    Ok(spawn(store, address, &settings)?.scheme("ftps"))
}

fn spawn(store: &TestStore, address: SocketAddr, more: &str) -> Result<PeerServer> {
    let port = address.port();
    let empty = store.path("vsftpd.empty");
    std::fs::create_dir_all(&empty)?;
    // vsftpd's seccomp filter kills the session on kernels newer than the filter.
    let settings = format!(
        "listen=YES\nlisten_address={host}\nlisten_port={port}\nbackground=NO\n\
         anonymous_enable=YES\nanon_root={root}\nftp_username={ACCOUNT}\n\
         anon_upload_enable=YES\nanon_mkdir_write_enable=YES\nanon_other_write_enable=YES\n\
         anon_umask=022\nwrite_enable=YES\nno_anon_password=YES\nsecure_chroot_dir={empty}\n\
         seccomp_sandbox=NO\npasv_address={host}\npasv_min_port={low}\npasv_max_port={high}\n\
         xferlog_enable=NO\n{more}",
        host = address.ip(),
        low = net::PASSIVE_PORTS.start(),
        high = net::PASSIVE_PORTS.end(),
        root = store.root().display(),
        empty = empty.display(),
    );
    let file = store.scratch().file("vsftpd.conf", settings.as_bytes())?;
    let mut command = Command::new(find().map_err(anyhow::Error::msg)?);
    command.arg(file);
    PeerServer::start_at(&mut command, store, "vsftpd", address)
}
