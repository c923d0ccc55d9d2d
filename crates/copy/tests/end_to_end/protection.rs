//! Copies over TLS and GSI: every session and every data connection has the protection of the first.

use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use copy::{
    ConnectionSecurity, CopyOptions, CopySummary, DataProtectionChoice, DelegationChoice, Exit,
    Parallelism, SecurityOptions, VerifyMode,
};
use data::options::TransferOptions;
use proto::checksum::ChecksumAlgorithm;
use proto::sizing::{BufferSizing, SocketBuffers};
use security::test_pki::{
    TestAuthority, write_certificates, write_credential, write_grid_directory, write_key,
};
use server::config::{RequiredProtection, ServerConfig, TlsPolicy};
use tune::streams::chunked::ChunkTuningMode;

use crate::support::{EndToEndServer, copy, options};

/// Certificates of a server and a user.
pub(crate) struct TestGrid {
    folder: tempfile::TempDir,
}

impl TestGrid {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let authority = TestAuthority::new("/O=Grid/CN=CA");
        std::fs::create_dir(path("certificates")).unwrap();
        write_grid_directory(&path("certificates"), &[&authority]);
        let host = authority.host(&["127.0.0.1", "127.0.0.2"]);
        write_certificates(&path("host.pem"), &host);
        write_key(&path("host.key"), &host);
        let user = authority.user("Alice");
        write_credential(&path("user.pem"), &user);
        let subject = user.subject().to_string().replace('\\', "\\\\");
        std::fs::write(path("gridmap"), format!("\"{subject}\" alice\n")).unwrap();
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(path("gridmap"), private).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A server that refuses clear commands and clear data connections, so that no session of a copy and no
    /// connection of a session is in clear.
    async fn server(&self) -> EndToEndServer {
        self.server_with(|_| ()).await
    }

    pub(crate) async fn server_with(
        &self,
        change: impl FnOnce(&mut ServerConfig),
    ) -> EndToEndServer {
        EndToEndServer::with(|config| {
            config.security.certificate = Some(self.path("host.pem"));
            config.security.key = Some(self.path("host.key"));
            config.security.gridmap = Some(self.path("gridmap"));
            config.security.grid_authorities = Some(self.path("certificates"));
            config.security.tls = Some(TlsPolicy::Required);
            config.security.require_protection = RequiredProtection::Data;
            change(config);
        })
        .await
    }

    /// Options of a user with a certificate.
    pub(crate) fn options(&self, change: impl FnOnce(&mut SecurityOptions)) -> CopyOptions {
        let mut security = SecurityOptions {
            ca: Some(self.path("certificates")),
            certificate: Some(self.path("user.pem")),
            data_protection: DataProtectionChoice::Private,
            ..SecurityOptions::default()
        };
        change(&mut security);
        let security = ConnectionSecurity::new(security, Arc::new(|_: &str| ())).unwrap();
        options().with(|o| o.security = security)
    }
}

fn url(server: &EndToEndServer, scheme: &str, path: &str) -> String {
    match scheme {
        "ftps" => format!("ftps://alice:secret@{}/{path}", server.address()),
        _ => format!("{scheme}://{}/{path}", server.address()),
    }
}

fn assert_protected(summary: &CopySummary, scheme: &str) {
    assert_eq!(
        summary.exit,
        Exit::Done,
        "{scheme}: {:?}",
        summary.first_failure
    );
    let security = &summary.security;
    assert!(
        security.contains("TLSv1.") && security.contains("data private"),
        "{security}"
    );
    assert!(summary.why.contains(security), "{}", summary.why);
}

fn content() -> Vec<u8> {
    (0..3_000_000u32).map(|n| (n % 251) as u8).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_got_and_put_inside_tls_and_gsi_with_one_stream_and_with_several() {
    let grid = TestGrid::new();
    let server = grid.server().await;
    let bytes = content();
    server.store("f", &bytes);
    let here = tempfile::tempdir().unwrap();
    for scheme in ["ftps", "gsiftp"] {
        for parallelism in [
            Parallelism::Fixed(1),
            Parallelism::Fixed(4),
            // In chunks, over two sessions.
            Parallelism::Chunked(ChunkTuningMode::Mi),
        ] {
            let with = || {
                grid.options(|_| ())
                    .with(|o| o.streams.parallelism = parallelism)
            };
            let local = here.path().join("g");
            let local = local.to_str().unwrap();
            let (got, _) = copy(&[&url(&server, scheme, "f")], local, &with()).await;
            assert_protected(&got, scheme);
            assert!(std::fs::read(local).unwrap() == bytes);
            let (put, _) = copy(&[local], &url(&server, scheme, "up"), &with()).await;
            assert_protected(&put, scheme);
            assert!(server.read("up") == bytes);
        }
    }
}

/// The server takes no clear command, so each session that a copy opens beside its first one is protected, or
/// the copy fails.
#[tokio::test(flavor = "multi_thread")]
async fn chunks_checksums_and_the_drs_channel_have_the_protection_of_the_first_session() {
    let grid = TestGrid::new();
    let server = grid.server().await;
    let bytes = content();
    server.store("f", &bytes);
    let here = tempfile::tempdir().unwrap();
    let local = here.path().join("g");
    let local = local.to_str().unwrap();
    let drs = TransferOptions {
        buffers: SocketBuffers::sized_by(BufferSizing::Drs),
        ..options().streams.transfer
    };
    for scheme in ["ftps", "gsiftp"] {
        for (parallelism, transfer) in [
            (
                Parallelism::Chunked(ChunkTuningMode::Mi),
                options().streams.transfer,
            ),
            (Parallelism::Fixed(2), drs.clone()),
        ] {
            let with = || {
                grid.options(|_| ()).with(|o| {
                    o.streams.parallelism = parallelism;
                    o.streams.transfer = transfer.clone();
                    o.file.verify = VerifyMode::With(ChecksumAlgorithm::Sha256);
                })
            };
            let (got, _) = copy(&[&url(&server, scheme, "f")], local, &with()).await;
            assert_protected(&got, scheme);
            assert!(std::fs::read(local).unwrap() == bytes);
            let (put, _) = copy(&[local], &url(&server, scheme, "up"), &with()).await;
            assert_protected(&put, scheme);
            assert!(server.read("up") == bytes);
            std::fs::remove_file(local).unwrap();
        }
    }
}

/// An address of this host that is not on the loopback interface; `None`: there is none.
fn network_address() -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_in_clear_is_warned_about_once_however_many_sessions_send_it() {
    let Some(ip) = network_address() else {
        eprintln!("SKIPPED: this host has no address outside of the loopback interface");
        return;
    };
    let server = EndToEndServer::with(|config| {
        config.listen = (ip, 0).into();
        config.security.clear_passwords = true;
    })
    .await;
    server.store("f", &content());
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&warnings);
    let warn = move |text: &str| sink.lock().unwrap().push(text.to_owned());
    let security = ConnectionSecurity::new(SecurityOptions::default(), Arc::new(warn)).unwrap();
    let with = options().with(|o| {
        o.security = security;
        // Over two sessions.
        o.streams.parallelism = Parallelism::Chunked(ChunkTuningMode::Mi);
    });
    let here = tempfile::tempdir().unwrap();
    let local = here.path().join("g");
    for _ in 0..2 {
        let (summary, _) = copy(&[&server.user_url("f")], local.to_str().unwrap(), &with).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        std::fs::remove_file(&local).unwrap();
    }
    let warnings = warnings.lock().unwrap();
    let about_passwords = warnings
        .iter()
        .filter(|text| text.contains("the password of alice"));
    assert_eq!(about_passwords.count(), 1, "{warnings:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clear_session_is_refused_where_the_server_wants_tls() {
    let grid = TestGrid::new();
    let server = grid.server().await;
    server.store("f", b"x");
    let here = tempfile::tempdir().unwrap();
    let local = here.path().join("g");
    let clear = grid.options(|security| {
        security.certificate = None;
        security.ca = None;
        security.data_protection = DataProtectionChoice::Auto;
    });
    let (summary, _) = copy(&[&server.user_url("f")], local.to_str().unwrap(), &clear).await;
    assert_eq!(summary.exit, Exit::Refused, "{:?}", summary.first_failure);
    assert!(!local.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn clear_data_is_refused_where_the_server_wants_protection() {
    let grid = TestGrid::new();
    let server = grid.server().await;
    server.store("f", b"x");
    let here = tempfile::tempdir().unwrap();
    let local = here.path().join("g");
    for scheme in ["ftps", "gsiftp"] {
        let clear = grid.options(|security| security.data_protection = DataProtectionChoice::Clear);
        let (summary, _) = copy(
            &[&url(&server, scheme, "f")],
            local.to_str().unwrap(),
            &clear,
        )
        .await;
        assert_eq!(summary.exit, Exit::Refused, "{:?}", summary.first_failure);
        assert!(!local.exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gsi_servers_protect_the_connection_between_them() {
    let grid = TestGrid::new();
    let (from, to) = (grid.server().await, grid.server().await);
    let bytes = content();
    from.store("f", &bytes);
    for delegation in [DelegationChoice::None, DelegationChoice::Limited] {
        for streams in [1, 3] {
            let with = grid
                .options(|security| security.delegation = delegation)
                .with(|o| o.streams.parallelism = Parallelism::Fixed(streams));
            let source = url(&from, "gsiftp", "f");
            let name = format!("{delegation:?}{streams}");
            let (summary, _) = copy(&[&source], &url(&to, "gsiftp", &name), &with).await;
            assert_protected(&summary, "gsiftp");
            assert!(
                summary.why.contains("between the servers"),
                "{}",
                summary.why
            );
            assert!(to.read(&name) == bytes);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ftps_servers_are_relayed_because_they_cannot_protect_a_connection_between_them() {
    let grid = TestGrid::new();
    let (from, to) = (grid.server().await, grid.server().await);
    let bytes = content();
    from.store("f", &bytes);
    let (source, destination) = (url(&from, "ftps", "f"), url(&to, "ftps", "g"));
    let (summary, observer) = copy(&[&source], &destination, &grid.options(|_| ())).await;
    assert_protected(&summary, "ftps");
    assert!(to.read("g") == bytes);
    let warnings = observer.warnings().join("|");
    assert!(warnings.contains("through this machine"), "{warnings}");
}
