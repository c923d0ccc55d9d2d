use std::net::SocketAddr;

use clap::Parser;
use data::transport::ControlTransport;
use security::test_pki::{TestAuthority, TestCertificate, TestKey, write_grid_directory};
use security::tls::{TlsConfig, TlsEngine, TlsOptions, TlsProfile, TlsRole};
use security::x509::CertifiedKey;
use tokio::net::TcpListener;

use super::*;
use crate::args::{Cli, Verb};
use crate::doctor::report::{FindingLevel, worst};
use proto::reply::Reply;
use proto::security::SecurityToken;

/// A server that knows AUTH TLS, AUTH GSSAPI, FEAT, USER and QUIT, as far as it is set to.
#[derive(Clone)]
struct DoctorsServer {
    credential: Option<CertifiedKey>,
    gsi: bool,
}

impl DoctorsServer {
    /// Serves in the background; returns its address.
    async fn start(self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = self.clone();
                tokio::spawn(async move { server.serve(stream).await });
            }
        });
        address
    }

    async fn serve(&self, stream: tokio::net::TcpStream) -> Option<()> {
        let mut transport = ControlTransport::accepted(stream);
        send(&mut transport, "220 ready\r\n").await?;
        let mut gsi = None;
        loop {
            let line = read_line(&mut transport).await?;
            let (verb, argument) = line.split_once(' ').unwrap_or((&line, ""));
            let answer = match (verb, argument) {
                ("FEAT", _) if transport.tls().is_some() => {
                    "211-Features\r\n PBSZ\r\n PROT\r\n PARALLEL\r\n211 End\r\n".to_owned()
                }
                ("FEAT", _) => "211-Features\r\n AUTH TLS\r\n211 End\r\n".to_owned(),
                ("AUTH", "TLS") if self.credential.is_some() && !self.gsi => {
                    send(&mut transport, "234 go on\r\n").await?;
                    let config = self.config(TlsProfile::Web);
                    transport.start_tls(&config, None).ok()?;
                    transport.complete_handshake().await.ok()?;
                    continue;
                }
                ("AUTH", "GSSAPI") if self.gsi => {
                    gsi = TlsEngine::new(&self.config(TlsProfile::Grid), None).ok();
                    "334 go on\r\n".to_owned()
                }
                ("ADAT", token) => {
                    let engine = gsi.as_mut()?;
                    let token = SecurityToken::decode(token.as_bytes()).ok()?;
                    engine.receive(token.as_bytes());
                    engine.handshake().ok()?;
                    let answer = SecurityToken::new(engine.outgoing().to_vec()).ok()?;
                    let mut reply = Vec::new();
                    Reply::with_token(335, &answer).encode(&mut reply);
                    String::from_utf8(reply).ok()?
                }
                ("QUIT", _) => "221 bye\r\n".to_owned(),
                // A doctor who logs in without being asked is found out here.
                _ => "500 unknown\r\n".to_owned(),
            };
            send(&mut transport, &answer).await?;
        }
    }

    fn config(&self, profile: TlsProfile) -> TlsConfig {
        let options = match profile {
            TlsProfile::Web => TlsOptions::server(),
            TlsProfile::Grid => TlsOptions::grid(TlsRole::Server),
        };
        let own = self.credential.clone().unwrap();
        TlsConfig::new(options.with_credential(own).unverified()).unwrap()
    }
}

async fn send(transport: &mut ControlTransport, text: &str) -> Option<()> {
    transport.write_all(text.as_bytes()).await.ok()?;
    transport.flush().await.ok()
}

async fn read_line(transport: &mut ControlTransport) -> Option<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\r\n") {
        if transport.read(&mut byte).await.ok()? == 0 {
            return None;
        }
        line.push(byte[0]);
    }
    String::from_utf8(line)
        .ok()
        .map(|line| line.trim_end().to_owned())
}

fn doctor_args(words: &[&str]) -> DoctorArgs {
    let words = ["longhaul", "doctor"].iter().chain(words);
    match Cli::try_parse_from(words).unwrap().verb {
        Verb::Doctor(args) => *args,
        other => panic!("{other:?}"),
    }
}

/// An authority whose directory is in a folder, and a certificate for the loopback address.
fn loopback_host() -> (tempfile::TempDir, CertifiedKey) {
    let folder = tempfile::tempdir().unwrap();
    let authority = TestAuthority::new("/O=Grid/CN=Test root");
    write_grid_directory(folder.path(), &[&authority]);
    let mut template = TestCertificate::new("/O=Grid/CN=loopback");
    template.alternative_names = vec!["127.0.0.1".to_owned()];
    template.key = TestKey::P256;
    (folder, authority.issue(&template))
}

async fn examined(url: &str, more: &[&str]) -> ExaminedServer {
    let args = doctor_args(&[&[url], more].concat());
    RemoteTarget::parse(url, &args).unwrap().examine().await
}

fn has(findings: &[Finding], level: FindingLevel, text: &str) -> bool {
    let is_it = |finding: &Finding| finding.level == level && finding.line().contains(text);
    findings.iter().any(is_it)
}

#[tokio::test]
async fn a_tls_server_is_examined_and_nobody_logs_in() {
    let (folder, host) = loopback_host();
    let server = DoctorsServer {
        credential: Some(host),
        gsi: false,
    };
    let address = server.start().await;
    let ca = folder.path().to_str().unwrap();
    let examined = examined(&format!("ftps://{address}/"), &["--ca", ca]).await;
    let findings = &examined.findings;
    assert!(worst(findings) < FindingLevel::Problem, "{findings:?}");
    for text in [
        "TLSv1.3",
        "accepted for 127.0.0.1",
        "protection of data: encryption",
        "parallel streams",
    ] {
        assert!(
            has(findings, FindingLevel::Good, text),
            "{text}: {findings:?}"
        );
    }
    assert!(!findings.iter().any(|finding| finding.name == "login"));
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_a_problem() {
    let (_folder, host) = loopback_host();
    let stranger = tempfile::tempdir().unwrap();
    write_grid_directory(stranger.path(), &[&TestAuthority::new("/CN=Stranger")]);
    let server = DoctorsServer {
        credential: Some(host),
        gsi: false,
    };
    let address = server.start().await;
    let ca = stranger.path().to_str().unwrap();
    let examined = examined(&format!("ftps://{address}/"), &["--ca", ca]).await;
    let findings = &examined.findings;
    assert!(
        has(findings, FindingLevel::Problem, "not accepted"),
        "{findings:?}"
    );
    assert!(!examined.unreachable);
}

#[tokio::test]
async fn a_gsi_server_shows_its_certificate() {
    let (folder, host) = loopback_host();
    let server = DoctorsServer {
        credential: Some(host),
        gsi: true,
    };
    let address = server.start().await;
    let ca = folder.path().to_str().unwrap();
    let examined = examined(&format!("gsiftp://{address}/"), &["--ca", ca]).await;
    let findings = &examined.findings;
    assert!(
        has(findings, FindingLevel::Good, "GSI certificate: accepted"),
        "{findings:?}"
    );
    assert!(worst(findings) < FindingLevel::Problem, "{findings:?}");
}

#[tokio::test]
async fn a_server_in_the_clear_is_a_warning_and_with_a_password_a_problem() {
    let server = DoctorsServer {
        credential: None,
        gsi: false,
    };
    let address = server.start().await;
    let anonymous = examined(&format!("ftp://{address}/"), &[]).await.findings;
    assert_eq!(worst(&anonymous), FindingLevel::Warning, "{anonymous:?}");
    assert!(has(
        &anonymous,
        FindingLevel::Warning,
        "TLS: not offered (500 unknown)"
    ));
    let named = examined(&format!("ftp://ada:secret@{address}/"), &[])
        .await
        .findings;
    assert!(
        has(&named, FindingLevel::Problem, "passwords: travel"),
        "{named:?}"
    );
    assert!(has(&named, FindingLevel::Problem, "login: "), "{named:?}");
    let text: String = named.iter().map(Finding::line).collect();
    assert!(!text.contains("secret"));
}

#[tokio::test]
async fn nobody_at_the_port_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    for scheme in ["ftp", "https"] {
        let examined = examined(&format!("{scheme}://{address}/"), &[]).await;
        assert!(examined.unreachable, "{scheme}");
        assert!(examined.findings[0].value.contains("cannot connect"));
    }
    // The host is shown as in a URL, so that it can be told from the port.
    let examined = examined("ftp://[::1]:1/", &[]).await;
    let shown = &examined.findings[0].value;
    assert!(shown.contains("cannot connect to [::1]:1: "), "{shown}");
}

#[test]
fn a_user_in_the_url_asks_for_a_login() {
    assert!(names_user("ftp://ada@h/") && names_user("ftp://a:b@h"));
    assert!(!names_user("ftp://h/a@b") && !names_user("ftp://h"));
}

#[test]
fn a_password_is_not_sent_in_the_clear_over_a_network() {
    let exposes = |url: &str| {
        let target = RemoteTarget::parse(url, &doctor_args(&[url])).unwrap();
        target.exposes_password()
    };
    assert!(exposes("ftp://ada:secret@data.example/"));
    assert!(!exposes("ftp://ada:secret@127.0.0.1/") && !exposes("ftps://ada:secret@data.example/"));
}

#[test]
fn a_file_is_no_server() {
    let args = doctor_args(&["/tmp/x"]);
    let failure = RemoteTarget::parse("/tmp/x", &args).err().unwrap();
    assert_eq!(failure.exit(), Exit::Usage);
}
