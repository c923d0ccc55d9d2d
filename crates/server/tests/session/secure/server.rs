//! A server with certificates, and the certificates of its clients.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use proto::path::VPath;
use proto::server::AccountRights;
use security::test_pki::{
    TestAuthority, write_authority, write_certificates, write_grid_directory, write_key,
};
use security::tls::{
    ClientCertificates, ExpectedPeer, TlsConfig, TlsOptions, TlsProfile, TlsRole, TlsVersion,
};
use security::x509::{CertifiedKey, TrustStore};
use server::config::{Anonymous, ServerConfig};
use server::users::{self, UserAccount};
use server::{ReloadRequests, ServeError, ServerAnnouncement, Shutdown, ShutdownHandle};
use tempfile::TempDir;

use super::super::in_process_server::{PASSWORD, USER, test_bytes};

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
        TlsConfig::new(TlsOptions {
            role: TlsRole::Client,
            profile: TlsProfile::Web,
            credential: credential.cloned(),
            trust: Some(Arc::new(TrustStore::from_path(&self.path("ca")).unwrap())),
            client_certificates: ClientCertificates::None,
            expected: ExpectedPeer::Host("localhost".to_owned()),
            server_name: Some("localhost".to_owned()),
            oldest: TlsVersion::V1_2,
            tickets: true,
        })
        .unwrap()
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
    TlsConfig::new(TlsOptions {
        role,
        profile: TlsProfile::Grid,
        credential: Some(credential.clone()),
        trust: Some(Arc::new(trust)),
        client_certificates: ClientCertificates::Required,
        expected,
        server_name: None,
        oldest: TlsVersion::V1_2,
        tickets: false,
    })
    .unwrap()
}

/// A server in this process. Anonymous sessions may write; [`USER`] has a password.
pub(crate) struct SecureServer {
    pub(crate) announcement: ServerAnnouncement,
    pub(crate) config: ServerConfig,
    pub(crate) scratch: TempDir,
    pub(crate) reloads: tokio::sync::mpsc::Sender<ServerConfig>,
    shutdown: ShutdownHandle,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
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
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().join("root");
        fs::create_dir(&root).unwrap();
        let users = scratch.path().join("users");
        add_user(&users);
        let mut config = ServerConfig {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            root,
            users: Some(users),
            anonymous: Some(Anonymous::Rw),
            transfer_log: Some(scratch.path().join("transfers.jsonl")),
            ..ServerConfig::default()
        };
        config.transfer.stall = Duration::from_secs(60);
        config.security.certificate = Some(pki.path("host.pem"));
        config.security.key = Some(pki.path("host.key"));
        change(&mut config);
        let (shutdown, requests) = Shutdown::manual();
        let (reloads, reload_requests) = ReloadRequests::manual();
        let (ready, announced) = mpsc::channel();
        let settings = config.clone();
        let thread = std::thread::spawn(move || {
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap()
                .block_on(server::serve_with_reloads(
                    settings,
                    move |announcement| ready.send(announcement.clone()).unwrap(),
                    requests,
                    reload_requests,
                ))
        });
        Self {
            announcement: announced.recv().expect("the server starts"),
            config,
            scratch,
            reloads,
            shutdown,
            thread: Some(thread),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.announcement.address
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join("root").join(name)
    }

    /// Creates a file of `size` bytes in the root; returns its content.
    pub(crate) fn create_file(&self, name: &str, size: usize) -> Vec<u8> {
        let bytes = test_bytes(size);
        fs::write(self.path(name), &bytes).unwrap();
        bytes
    }

    pub(crate) fn read_file(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// The records of the transfer log so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.scratch.path().join("transfers.jsonl")).unwrap()
    }
}

/// Switches GSI on.
pub(crate) fn configure_grid(pki: &TestPki, config: &mut ServerConfig) {
    config.security.gridmap = Some(pki.path("gridmap"));
    config.security.grid_authorities = Some(pki.path("certificates"));
}

impl Drop for SecureServer {
    fn drop(&mut self) {
        self.shutdown.request();
        self.shutdown.request();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}

fn add_user(file: &std::path::Path) {
    let account = UserAccount {
        name: USER.to_owned(),
        root: None,
        rights: AccountRights {
            write: true,
            third_party: true,
        },
        home: VPath::root(),
    };
    users::add(file, &account, PASSWORD.as_bytes()).unwrap();
}
