//! `longhaul cp` with a server that strips, forges or cuts what protects the client. A copy is protected, or
//! fails; it never goes on with less.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::copy;
use interop::longhaul::rows::path_argument;
use interop::pki::environment::GridEnvironment;
use interop::run::FinishedProgram;
use interop::scratch::ScratchFolder;
use openssl::ssl::SslVersion;
use security::test_pki::{
    ProxyForm, ProxyPolicy, TestAuthority, TestCertificate, TestProxy, TestUsage, write_credential,
    write_revocation_list,
};
use security::tls::{TlsConfig, TlsOptions, TlsRole};
use security::x509::{CertifiedKey, TrustStore};

use super::hostile_ftp_server::{DataEnd, FILE_LENGTH, HostileFtpServer, Mischief, server_tls};
use super::target::{AttackTarget, IntruderPki, client, host};

/// A site: its certificates, its host's certificate, and the client's folder.
struct ForgedSite {
    pki: IntruderPki,
    host: CertifiedKey,
    revoked: CertifiedKey,
    local: ScratchFolder,
}

impl ForgedSite {
    fn new() -> Result<Self> {
        let pki = IntruderPki::new()?;
        let revoked = pki.authority.issue(&host(&["127.0.0.1"]));
        let list = pki.authority.revocation_list(&[revoked.leaf()]);
        write_revocation_list(&pki.path("certificates"), &pki.authority, &list);
        Ok(Self {
            host: pki.authority.issue(&host(&["127.0.0.1", "localhost"])),
            revoked,
            pki,
            local: ScratchFolder::new()?,
        })
    }

    fn honest(&self) -> Result<Mischief> {
        Ok(Mischief::none(server_tls(&self.host, None)?))
    }

    /// Downloads with `longhaul cp`; the file is `local/got`.
    fn cp(
        &self,
        scheme: &str,
        server: &HostileFtpServer,
        options: &[&str],
    ) -> Result<FinishedProgram> {
        let _ = std::fs::remove_file(self.local.join("got"));
        let url = format!("{scheme}://{}/f", server.address);
        let authorities = self.pki.text_path("certificates");
        let to = path_argument(&self.local.join("got"));
        let environment = GridEnvironment::default()
            .with("X509_CERT_DIR", self.pki.path("certificates"))
            .with("X509_USER_PROXY", self.pki.path("user.pem"));
        let fixed = ["--retries", "0", "--ca", &authorities];
        let arguments = [&fixed[..], options, &[&url, &to]].concat();
        copy::run_in(&environment, &arguments)
    }

    /// Fails unless the copy fails with one of these words, and leaves no file.
    fn refuses(
        &self,
        scheme: &str,
        server: &HostileFtpServer,
        options: &[&str],
        word: &str,
    ) -> Result<()> {
        let refused = self.cp(scheme, server, options)?.expect_failure()?;
        let why = copy::failure_message(&refused).unwrap_or_default();
        ensure!(why.contains(word), "no {word:?} in {why:?}");
        ensure!(!self.local.join("got").exists(), "there is a file");
        Ok(())
    }
}

fn ensure_no_login(server: &HostileFtpServer) -> Result<()> {
    let commands = server.commands();
    let told = |line: &String| line.starts_with("USER") || line.starts_with("PASS");
    ensure!(!commands.iter().any(told), "{commands:?}");
    Ok(())
}

#[test]
fn cp_never_logs_in_when_auth_is_stripped() {
    let site = ForgedSite::new().unwrap();
    let mut cells = MatrixRow::new("cp, stripped AUTH");
    for (auth, word) in [
        (Some("500 what?"), "has no"),
        (Some("504 no such mechanism"), "has no"),
        (Some("534 not allowed"), "has no"),
        (
            Some("230 you are logged in already"),
            "broke the security exchange",
        ),
        (None, "lost the control connection"),
    ] {
        for (scheme, options) in [
            ("ftps", &[][..]),
            ("ftp", &["--tls", "require"]),
            ("gsiftp", &[]),
        ] {
            cells.check(format!("{scheme} {auth:?}"), || {
                let mischief = Mischief {
                    auth,
                    ..site.honest()?
                };
                let server = HostileFtpServer::start(mischief)?;
                site.refuses(scheme, &server, options, word)?;
                ensure_no_login(&server)
            });
        }
    }
    cells.check("a server that does nothing wrong", || {
        let server = HostileFtpServer::start(site.honest()?)?;
        site.cp("ftps", &server, &[])?.expect_success()?;
        let length = std::fs::metadata(site.local.join("got"))?.len();
        ensure!(length == FILE_LENGTH as u64, "{length} bytes");
        Ok(())
    });
    cells.finish();
}

/// Each row: name, certificate, and the word of the client's message.
fn bad_hosts(site: &ForgedSite) -> Vec<(&'static str, CertifiedKey, &'static str)> {
    let authority = &site.pki.authority;
    let issue = |change: fn(&mut TestCertificate)| {
        let mut template = host(&["127.0.0.1"]);
        change(&mut template);
        authority.issue(&template)
    };
    let alone = TestAuthority::self_signed(&host(&["127.0.0.1"]));
    let alone = CertifiedKey::from_parts(alone.certificate().clone(), alone.key().clone(), vec![]);
    let other = TestAuthority::new("/O=Elsewhere/CN=Other CA").issue(&host(&["127.0.0.1"]));
    let end_entity = authority.subordinate_with(&TestCertificate {
        digital_signature: None,
        ..client("Signer")
    });
    vec![
        (
            "expired",
            issue(|host| host.not_after = -3600),
            "expired on",
        ),
        (
            "not yet valid",
            issue(|host| host.not_before = 3600),
            "not valid before",
        ),
        (
            "of another host",
            issue(|host| host.alternative_names = vec!["other.example".to_owned()]),
            "other.example",
        ),
        ("of an unknown authority", other, "Other CA"),
        ("self-signed", alone.unwrap(), "self-signed"),
        ("revoked", site.revoked.clone(), "revoked on"),
        (
            "for clients",
            issue(|host| host.usages = vec![TestUsage::Client]),
            "serverAuth",
        ),
        (
            "signed by an end entity",
            end_entity.issue(&host(&["127.0.0.1"])),
            "is no authority",
        ),
    ]
}

#[test]
fn cp_never_logs_in_at_servers_with_bad_certificates() {
    let site = ForgedSite::new().unwrap();
    let mut cells = MatrixRow::new("cp, certificates of servers");
    for (name, credential, word) in bad_hosts(&site) {
        for (scheme, options) in [("ftps", &[][..]), ("ftp", &["--tls", "try"])] {
            cells.check(format!("{scheme}, {name}"), || {
                let tls = server_tls(&credential, None)?;
                let server = HostileFtpServer::start(Mischief::none(tls))?;
                site.refuses(scheme, &server, options, word)?;
                ensure_no_login(&server)
            });
        }
        // The grid's rules do not know usages.
        if name == "for clients" {
            continue;
        }
        cells.check(format!("gsiftp, {name}"), || {
            let mischief = grid_mischief(&site, &credential)?;
            let server = HostileFtpServer::start(mischief)?;
            site.refuses("gsiftp", &server, &[], word)?;
            ensure_no_login(&server)
        });
    }
    cells.finish();
}

/// GSI of a server with this credential.
fn grid_mischief(site: &ForgedSite, credential: &CertifiedKey) -> Result<Mischief> {
    let trust = TrustStore::from_path(&site.pki.path("certificates"))?;
    let options = TlsOptions::grid(TlsRole::Server)
        .with_credential(credential.clone())
        .with_trust(Arc::new(trust));
    let config = TlsConfig::new(options)?;
    Ok(Mischief {
        auth: Some("334 go on"),
        grid: Some(config),
        ..site.honest()?
    })
}

#[test]
fn cp_believes_no_reply_outside_of_the_protection() {
    let site = ForgedSite::new().unwrap();
    let mischief = Mischief {
        clear_replies: true,
        ..grid_mischief(&site, &site.host).unwrap()
    };
    let server = HostileFtpServer::start(mischief).unwrap();
    site.refuses("gsiftp", &server, &[], "protect").unwrap();
    let commands = server.commands();
    assert!(
        !commands.iter().any(|line| line.starts_with("PASS")),
        "{commands:?}"
    );
}

#[test]
fn cp_never_takes_data_with_less_protection() {
    let site = ForgedSite::new().unwrap();
    let mut cells = MatrixRow::new("cp, protection of data");
    for prot in ["536 no", "534 not allowed", "504 no", "500 what?"] {
        cells.check(format!("PROT P: {prot}"), || {
            let mischief = Mischief {
                prot,
                ..site.honest()?
            };
            let server = HostileFtpServer::start(mischief)?;
            site.refuses("ftps", &server, &[], "--data-protection clear")?;
            let commands = server.commands();
            ensure!(
                !commands.iter().any(|line| line.starts_with("RETR")),
                "{commands:?}"
            );
            Ok(())
        });
    }
    for (name, data_end, size, word) in [
        (
            "data in the clear",
            DataEnd::Clear,
            FILE_LENGTH,
            "does not speak TLS",
        ),
        (
            "cut in the middle",
            DataEnd::CutInTheMiddle,
            FILE_LENGTH,
            "close_notify",
        ),
    ] {
        cells.check(name, || {
            let mischief = Mischief {
                data_end,
                size,
                ..site.honest()?
            };
            let server = HostileFtpServer::start(mischief)?;
            site.refuses("ftps", &server, &[], word)
        });
    }
    cells.check("the server without mischief", || {
        let server = HostileFtpServer::start(site.honest()?)?;
        site.cp("ftps", &server, &[])?.expect_success().map(drop)
    });
    cells.check("TLS 1.1", || {
        let tls = server_tls(&site.host, Some(SslVersion::TLS1_1))?;
        let server = HostileFtpServer::start(Mischief::none(tls))?;
        site.refuses("ftps", &server, &[], "TLS 1.2")?;
        ensure_no_login(&server)
    });
    cells.finish();
}

/// A hostile server points the client at another host's port.
#[test]
fn cp_connects_to_no_other_host_inside_tls() {
    let site = ForgedSite::new().unwrap();
    let victim = TcpListener::bind("127.0.0.8:0").unwrap();
    victim.set_nonblocking(true).unwrap();
    let address: SocketAddr = victim.local_addr().unwrap();
    let mischief = Mischief {
        passive_address: Some(address),
        ..site.honest().unwrap()
    };
    let server = HostileFtpServer::start(mischief).unwrap();
    // The port of the victim is not open on the server's host, to which the client may connect.
    let closed = format!("127.0.0.1:{}", address.port());
    site.refuses("ftps", &server, &[], &closed).unwrap();
    assert!(victim.accept().is_err(), "the victim has a connection");
}

/// The server accepts no delegation: an exchange in which one is offered fails before the login.
#[test]
fn cp_delegates_nothing_unless_it_is_told_to() {
    let site = ForgedSite::new().unwrap();
    let server = || HostileFtpServer::start(grid_mischief(&site, &site.host)?);
    let logged_in = |server: &HostileFtpServer| {
        let commands = server.commands();
        commands.iter().any(|line| line.starts_with("PASS"))
    };
    let plain = server().unwrap();
    site.cp("gsiftp", &plain, &[]).unwrap();
    assert!(logged_in(&plain), "{:?}", plain.commands());
    let offered = server().unwrap();
    let options = ["--delegate", "limited"];
    site.cp("gsiftp", &offered, &options).unwrap();
    assert!(!logged_in(&offered), "{:?}", offered.commands());
}

/// A limited proxy cannot delegate all rights.
#[test]
fn cp_delegates_no_more_than_a_limited_proxy_has() {
    let target = AttackTarget::start(&[]).unwrap();
    let limited = TestProxy::new(ProxyForm::Rfc, ProxyPolicy::Limited).of(&target.pki.user);
    let file = target.pki.path("limited.pem");
    write_credential(&file, &limited);
    let environment = GridEnvironment::default()
        .with("X509_CERT_DIR", target.pki.path("certificates"))
        .with("X509_USER_PROXY", &file);
    let get = |delegate: &str| {
        let to = path_argument(&target.store.local());
        let url = target.server.gsi_url("src/f1");
        let arguments = ["--retries", "0", "--delegate", delegate, &url, &to];
        copy::run_in(&environment, &arguments)
    };
    let refused = get("full").unwrap().expect_code(3).unwrap();
    let why = copy::failure_message(&refused).unwrap_or_default();
    assert!(why.contains("limited proxy"), "{why}");
    get("limited").unwrap().expect_success().unwrap();
}
