//! A server with certificates, and the certificates of its clients.

use std::fs;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use security::test_pki::{
    TestAuthority, write_authority, write_certificates, write_grid_directory, write_key,
};
use security::tls::{ExpectedPeer, TlsConfig, TlsOptions, TlsRole};
use security::x509::{CertifiedKey, TrustStore};
use server::config::ServerConfig;
use tempfile::TempDir;

use super::super::in_process_server::{InProcessServer, USER};

/// The account that the gridmap maps to the user's certificate, besides [`USER`].
pub(crate) const SECOND_ACCOUNT: &str = "second";

/// An authority, the server's certificate and a user's, as files of a folder.
pub(crate) struct TestPki {
    pub(crate) dir: TempDir,
    pub(crate) authority: TestAuthority,
    pub(crate) user: CertifiedKey,
}

impl TestPki {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = TestAuthority::new("/O=Grid/CN=Test CA");
        let pki = Self {
            user: authority.user("Ann"),
            dir,
            authority,
        };
        pki.write_host(&pki.authority.host(&["localhost", "127.0.0.1"]));
        write_grid_directory(&pki.path("certificates"), &[&pki.authority]);
        write_authority(&pki.path("ca"), &pki.authority, None, None);
        let subject = pki.user.subject();
        pki.write_gridmap(&format!("\"{subject}\" {USER},{SECOND_ACCOUNT}\n"));
        pki
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write_host(&self, host: &CertifiedKey) {
        write_certificates(&self.path("host.pem"), host);
        write_key(&self.path("host.key"), host);
    }

    pub(crate) fn write_gridmap(&self, text: &str) {
        fs::write(self.path("gridmap"), text).unwrap();
    }

    /// A client of FTPS.
    pub(crate) fn web_client(&self, credential: Option<&CertifiedKey>) -> TlsConfig {
        let trust = TrustStore::from_path(&self.path("ca")).unwrap();
        let options = TlsOptions {
            credential: credential.cloned(),
            ..TlsOptions::client()
        };
        TlsConfig::new(options.with_trust(Arc::new(trust)).for_host("localhost")).unwrap()
    }

    /// One end of a GSI connection.
    pub(crate) fn grid(
        &self,
        role: TlsRole,
        credential: &CertifiedKey,
        expected: ExpectedPeer,
    ) -> TlsConfig {
        let trust = TrustStore::from_path(&self.path("certificates")).unwrap();
        grid_config(role, credential, trust, expected)
    }
}

/// One end of a GSI connection with other trust.
pub(crate) fn grid_config(
    role: TlsRole,
    credential: &CertifiedKey,
    trust: TrustStore,
    expected: ExpectedPeer,
) -> TlsConfig {
    let options = TlsOptions::grid(role)
        .with_credential(credential.clone())
        .with_trust(Arc::new(trust))
        .expecting(expected);
    TlsConfig::new(options).unwrap()
}

/// A server in this process with a certificate. Anonymous sessions may write; [`USER`] has a password.
pub(crate) struct SecureServer(InProcessServer);

impl Deref for SecureServer {
    type Target = InProcessServer;

    fn deref(&self) -> &InProcessServer {
        &self.0
    }
}

impl SecureServer {
    /// A server with the certificate of `pki` and with optional TLS.
    pub(crate) fn start(pki: &TestPki) -> Self {
        Self::with_config(pki, |_| {})
    }

    /// A server with GSI, too.
    pub(crate) fn with_grid(pki: &TestPki) -> Self {
        Self::with_config(pki, |config| configure_grid(pki, config))
    }

    /// A server with GSI that waits for a usable data connection for two seconds only.
    pub(crate) fn impatient(pki: &TestPki) -> Self {
        Self::with_config(pki, |config| {
            configure_grid(pki, config);
            config.transfer.stall = Duration::from_secs(2);
        })
    }

    pub(crate) fn with_config(pki: &TestPki, change: impl FnOnce(&mut ServerConfig)) -> Self {
        Self(InProcessServer::with_config(|config| {
            config.users = Some(PathBuf::from("to be made"));
            config.security.certificate = Some(pki.path("host.pem"));
            config.security.key = Some(pki.path("host.key"));
            change(config);
        }))
    }

    /// The errors of failed transfers, by the records of the transfer log so far.
    pub(crate) fn failed_checks(&self) -> Vec<String> {
        let log = self.log();
        let check = |line: &str| Some(line.split_once("\"error\":\"")?.1.to_owned());
        log.lines().filter_map(check).collect()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address
    }
}

/// Switches GSI on.
pub(crate) fn configure_grid(pki: &TestPki, config: &mut ServerConfig) {
    config.security.gridmap = Some(pki.path("gridmap"));
    config.security.grid_authorities = Some(pki.path("certificates"));
}
