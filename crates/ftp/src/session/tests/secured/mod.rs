//! Sessions that are secured, and those that are not opened because they cannot be.

mod listings;
mod tokens;

use security::test_pki::{TestAuthority, TestCertificate, TestUsage, write_certificates};
use security::tls::{ClientCertificates, TlsConfig, TlsOptions};
use security::x509::TrustStore;

use super::*;
use crate::protection::{ConnectionSecurity, DataProtectionChoice, SecurityOptions, TlsUse};
use crate::session::SessionOpening;
use crate::session::control::ClientControlConnection;
use crate::session::scripted_server::LONGHAUL_GREETING;

/// A server's certificate and an authority file for the client.
struct TestIdentity {
    config: TlsConfig,
    folder: tempfile::TempDir,
}

impl TestIdentity {
    fn new(host: &str) -> Self {
        Self::asking(host, ClientCertificates::None)
    }

    fn asking(host: &str, client_certificates: ClientCertificates) -> Self {
        let authority = TestAuthority::new("/O=Test/CN=CA");
        let folder = tempfile::tempdir().unwrap();
        let root = security::x509::CertifiedKey::from_parts(
            authority.certificate().clone(),
            authority.key().clone(),
            Vec::new(),
        );
        write_certificates(&folder.path().join("ca.pem"), &root.unwrap());
        let template = TestCertificate {
            alternative_names: vec![host.to_owned()],
            usages: vec![TestUsage::Server],
            ..TestCertificate::new("/O=Test/CN=server")
        };
        let trust = TrustStore::exactly(vec![authority.certificate().clone()]);
        let options = TlsOptions::server()
            .with_credential(authority.issue(&template))
            .asking(client_certificates, Arc::new(trust))
            .unverified()
            .with_tickets();
        let config = TlsConfig::new(options);
        Self {
            config: config.unwrap(),
            folder,
        }
    }

    fn trusting(&self) -> SecurityOptions {
        SecurityOptions {
            ca: Some(self.folder.path().join("ca.pem")),
            ..SecurityOptions::default()
        }
    }
}

type Warnings = Arc<parking_lot::Mutex<Vec<String>>>;

/// Starts a server with this script; the client has these options and scheme.
async fn start(
    scheme: Scheme,
    options: SecurityOptions,
    script: Vec<ScriptedAction>,
) -> (ScriptedFtpServer, Warnings) {
    let mut fake = ScriptedFtpServer::start_session(script).await;
    let warnings = Warnings::default();
    let sink = Arc::clone(&warnings);
    let warn = move |text: &str| sink.lock().push(text.to_owned());
    fake.server.security = ConnectionSecurity::new(options, Arc::new(warn)).unwrap();
    fake.server.scheme = scheme;
    (fake, warnings)
}

fn greeting() -> Vec<ScriptedAction> {
    vec![SendLine("220 fake")]
}

/// Greeting, AUTH TLS and the handshake.
fn greeting_with_tls(identity: &TestIdentity) -> Vec<ScriptedAction> {
    let mut script = greeting();
    script.extend(command_and_reply("AUTH TLS", "234 go on"));
    script.push(ScriptedAction::StartTls(identity.config.clone()));
    script
}

/// The login, without the greeting.
fn login() -> Vec<ScriptedAction> {
    login_script().split_off(1)
}

/// The login inside TLS: the protection of data connections follows at once.
fn login_inside_tls(level: &'static str) -> Vec<ScriptedAction> {
    let mut script = login();
    script.extend(command_and_reply("PBSZ 0", "200 ok"));
    script.extend(command_and_reply(level, "200 ok"));
    script
}

/// A session in which AUTH TLS is refused and nothing follows.
fn stripped_session() -> Vec<ScriptedAction> {
    let mut script = greeting();
    script.extend(command_and_reply("AUTH TLS", "502 no"));
    script.push(ScriptedAction::ExpectEof);
    script
}

/// A server with two sessions for `--tls try`.
async fn start_to_try(
    sessions: [Vec<ScriptedAction>; 2],
    options: SecurityOptions,
) -> ScriptedFtpServer {
    let mut fake = ScriptedFtpServer::start_sessions(sessions.into()).await;
    let options = SecurityOptions {
        tls: TlsUse::Try,
        ..options
    };
    fake.server.security = ConnectionSecurity::new(options, Arc::new(|_: &str| ())).unwrap();
    fake
}

#[tokio::test]
async fn try_never_goes_on_in_clear_with_a_server_that_had_tls() {
    let identity = TestIdentity::new("127.0.0.1");
    let mut protected = greeting_with_tls(&identity);
    protected.extend(login_inside_tls("PROT P"));
    let fake = start_to_try([protected, stripped_session()], identity.trusting()).await;
    let first = ClientSession::open(&fake.server, TIMEOUT).await.unwrap();
    let failure = first.open_another().await.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Refused);
    assert!(!failure.may_retry());
    assert!(failure.to_string().contains("had TLS before"), "{failure}");
    fake.finish().await;
}

#[tokio::test]
async fn try_never_goes_on_in_clear_after_a_handshake_that_was_cut() {
    let mut cut = greeting();
    cut.extend(command_and_reply("AUTH TLS", "234 go on"));
    let fake = start_to_try([cut, stripped_session()], SecurityOptions::default()).await;
    let lost = ClientSession::open(&fake.server, TIMEOUT).await;
    assert!(lost.is_err());
    let again = ClientSession::open(&fake.server, TIMEOUT)
        .await
        .unwrap_err();
    assert_eq!(again.kind(), FailureKind::Refused, "{again}");
    fake.finish().await;
}

#[tokio::test]
async fn the_protection_of_data_comes_before_the_first_facts() {
    let identity = TestIdentity::new("127.0.0.1");
    // Pure-FTPd answers 521 to MLST and SIZE before PROT P.
    let mut script = greeting_with_tls(&identity);
    script.extend(login_inside_tls("PROT P"));
    script.extend(command_and_reply("CWD", "550 no directory"));
    script.extend(command_and_reply("SIZE", "213 5"));
    script.extend(command_and_reply("MDTM", "213 20200101000000"));
    let (fake, _) = start(Scheme::Ftps, identity.trusting(), script).await;
    let mut session = ClientSession::open(&fake.server, TIMEOUT).await.unwrap();
    assert_eq!(session.stat(b"/f").await.unwrap().size, Some(5));
    fake.finish().await;
}

#[tokio::test]
async fn the_protection_of_data_is_part_of_the_pipelined_login() {
    let identity = TestIdentity::new("127.0.0.1");
    let pipeline = [
        "USER joe",
        "PASS secret",
        "FEAT",
        "SITE CLIENTINFO",
        "TYPE I",
        "PBSZ 0",
        "PROT P",
        "MLST /f",
    ];
    let mut script = vec![SendLine(LONGHAUL_GREETING)];
    script.extend(command_and_reply("AUTH TLS", "234 go on"));
    script.push(ScriptedAction::StartTls(identity.config.clone()));
    script.extend(pipeline.map(ExpectLine));
    script.push(SendLine("331 pw\n230 in\n211-F\n MLST size*;\n211 End"));
    script.push(SendLine("250 ok\n200 ok\n200 ok\n200 ok"));
    script.push(SendLine("250-f\n type=file;size=5; /f\n250 End"));
    let (fake, _) = start(Scheme::Ftps, identity.trusting(), script).await;
    let opening = SessionOpening {
        first_path: Some(b"/f"),
        ..SessionOpening::default()
    };
    let mut session = ClientSession::open_with(&fake.server, TIMEOUT, opening)
        .await
        .unwrap();
    assert_eq!(session.stat(b"/f").await.unwrap().size, Some(5));
    fake.finish().await;
}

#[tokio::test]
async fn the_login_of_an_ftps_session_comes_after_the_handshake() {
    let identity = TestIdentity::new("127.0.0.1");
    let mut script = greeting_with_tls(&identity);
    script.extend(login_inside_tls("PROT P"));
    let (fake, warnings) = start(Scheme::Ftps, identity.trusting(), script).await;
    let session = ClientSession::open(&fake.server, TIMEOUT).await.unwrap();
    assert!(session.control.tls().is_some());
    assert_eq!(session.third_party_protocol(), None);
    fake.finish().await;
    assert!(warnings.lock().is_empty());
}

#[tokio::test]
async fn implicit_tls_precedes_the_greeting_on_any_port() {
    let identity = TestIdentity::new("127.0.0.1");
    for scheme in [Scheme::Ftps, Scheme::Ftp] {
        let mut script = vec![ScriptedAction::StartTls(identity.config.clone())];
        script.extend(greeting());
        script.extend(login_inside_tls("PROT P"));
        let options = SecurityOptions {
            tls: TlsUse::Implicit,
            ..identity.trusting()
        };
        let (fake, warnings) = start(scheme, options, script).await;
        let session = ClientSession::open(&fake.server, TIMEOUT).await.unwrap();
        assert!(session.control.tls().is_some());
        fake.finish().await;
        assert!(warnings.lock().is_empty());
    }
}

#[tokio::test]
async fn a_silent_server_of_ftps_may_expect_implicit_tls_and_the_user_is_told() {
    let script = vec![ScriptedAction::ExpectEof];
    let (fake, warnings) = start(Scheme::Ftps, SecurityOptions::default(), script).await;
    let short = Duration::from_millis(200);
    let failure = ClientSession::open(&fake.server, short).await.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Unreachable);
    assert!(failure.to_string().contains("--tls implicit"), "{failure}");
    fake.finish().await;
    let warned = warnings.lock().join("|");
    assert!(warned.contains("--tls implicit"), "{warned}");
    // A slow greeting is still taken.
    let identity = TestIdentity::new("127.0.0.1");
    let mut script = vec![Sleep(300)];
    script.extend(greeting_with_tls(&identity));
    script.extend(login_inside_tls("PROT P"));
    let (fake, _) = start(Scheme::Ftps, identity.trusting(), script).await;
    ClientSession::open(&fake.server, TIMEOUT).await.unwrap();
    fake.finish().await;
}

#[tokio::test]
async fn tls_that_is_required_and_refused_opens_no_session() {
    for (scheme, tls) in [(Scheme::Ftps, TlsUse::Off), (Scheme::Ftp, TlsUse::Require)] {
        let options = SecurityOptions {
            tls,
            ..SecurityOptions::default()
        };
        let (fake, _) = start(scheme, options, stripped_session()).await;
        let failure = ClientSession::open(&fake.server, TIMEOUT)
            .await
            .unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Refused);
        assert!(!failure.may_retry());
        assert!(failure.to_string().contains("in clear"), "{failure}");
        fake.finish().await;
    }
}

#[tokio::test]
async fn try_goes_on_in_clear_with_a_warning_only_if_the_server_has_no_tls() {
    let options = SecurityOptions {
        tls: TlsUse::Try,
        ..SecurityOptions::default()
    };
    let mut script = greeting();
    script.extend(command_and_reply("AUTH TLS", "530 log in first"));
    script.extend(login());
    let (fake, warnings) = start(Scheme::Ftp, options.clone(), script).await;
    ClientSession::open(&fake.server, TIMEOUT).await.unwrap();
    fake.finish().await;
    let warned = warnings.lock().join("|");
    assert!(
        warned.contains("in clear") && warned.contains("--tls require"),
        "{warned}"
    );

    // A server that has TLS, but not now, is not spoken to in clear.
    let mut script = greeting();
    script.extend(command_and_reply("AUTH TLS", "431 not now"));
    script.push(ScriptedAction::ExpectEof);
    let (fake, _) = start(Scheme::Ftp, options, script).await;
    let failure = ClientSession::open(&fake.server, TIMEOUT)
        .await
        .unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Unreachable);
    fake.finish().await;
}

#[tokio::test]
async fn a_failed_handshake_is_never_followed_by_a_login() {
    let identity = TestIdentity::new("127.0.0.1");
    let elsewhere = TestIdentity::new("other.example");
    for (tls, identity, options, word) in [
        // Nobody vouches for the certificate.
        (TlsUse::Try, &identity, SecurityOptions::default(), "--ca"),
        (
            TlsUse::Require,
            &identity,
            SecurityOptions::default(),
            "--ca",
        ),
        // It is another host's.
        (
            TlsUse::Try,
            &elsewhere,
            elsewhere.trusting(),
            "other.example",
        ),
    ] {
        let mut script = greeting();
        script.extend(command_and_reply("AUTH TLS", "234 go on"));
        script.push(ScriptedAction::FailTls(identity.config.clone()));
        script.push(ScriptedAction::ExpectEof);
        let options = SecurityOptions { tls, ..options };
        let (fake, _) = start(Scheme::Ftp, options, script).await;
        let failure = ClientSession::open(&fake.server, TIMEOUT)
            .await
            .unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Refused, "{failure}");
        assert!(!failure.may_retry());
        assert!(failure.to_string().contains(word), "{failure}");
        fake.finish().await;
    }
}

#[tokio::test]
async fn the_reason_for_a_refused_certificate_survives_the_reset_behind_it() {
    let identity = TestIdentity::asking("127.0.0.1", ClientCertificates::Required);
    let mut script = greeting();
    script.push(ScriptedAction::FailTls(identity.config.clone()));
    let (fake, _) = start(Scheme::Ftps, identity.trusting(), script).await;
    let server = fake.server.clone();
    let (mut control, _) = ClientControlConnection::connect(&server, TIMEOUT)
        .await
        .unwrap();
    control.final_reply().await.unwrap();
    let config = server.security.tls_config(&server).unwrap();
    control.start_tls(&config, true).await.unwrap();
    fake.finish().await;
    // The server is gone: its kernel answers the first command with a reset, and a later one fails.
    let failure = loop {
        if let Err(failure) = control.send_buffer_size(1).await {
            break failure;
        }
    };
    assert_eq!(failure.kind(), FailureKind::Refused, "{failure}");
    assert!(failure.to_string().contains("--cert"), "{failure}");
}

#[tokio::test]
async fn insecure_accepts_any_certificate() {
    let identity = TestIdentity::new("other.example");
    let mut script = greeting_with_tls(&identity);
    script.extend(login_inside_tls("PROT P"));
    let options = SecurityOptions {
        insecure: true,
        ..SecurityOptions::default()
    };
    let (fake, warnings) = start(Scheme::Ftps, options, script).await;
    ClientSession::open(&fake.server, TIMEOUT).await.unwrap();
    fake.finish().await;
    assert!(warnings.lock()[0].contains("not verified"));
}

#[tokio::test]
async fn replies_injected_before_the_handshake_end_the_session() {
    let identity = TestIdentity::new("127.0.0.1");
    for injected in ["234 go on\n230 logged in", "234 go on\n230-logged"] {
        let mut script = greeting();
        script.extend(command_and_reply("AUTH TLS", injected));
        let (fake, _) = start(Scheme::Ftps, identity.trusting(), script).await;
        let opened = ClientSession::open(&fake.server, TIMEOUT).await;
        // The connection may also end while the client waits for the rest of a reply.
        opened.unwrap_err();
        fake.finish().await;
    }
}

/// A server that lists a directory after `script`, for a user who wants clear data.
async fn start_with_clear_data(
    identity: &TestIdentity,
    mut script: Vec<ScriptedAction>,
) -> ScriptedFtpServer {
    script.extend(command_and_reply("CWD", "250 ok"));
    script.push(ExpectPassiveAndReply("PASV"));
    script.extend(command_and_reply("LIST", "150 ok"));
    script.push(SendData(
        b"drwxr-xr-x 2 u g 5 Jan 1 2020 .\r\n-rw-r--r-- 1 u g 5 Jan 1 2020 f\r\n".to_vec(),
    ));
    script.push(SendLine("226 done"));
    let options = SecurityOptions {
        data_protection: DataProtectionChoice::Clear,
        ..identity.trusting()
    };
    start(Scheme::Ftps, options, script).await.0
}

#[tokio::test]
async fn a_server_without_prot_has_clear_data_for_a_user_who_wants_it() {
    let identity = TestIdentity::new("127.0.0.1");
    let mut script = greeting_with_tls(&identity);
    script.extend(login());
    script.extend(command_and_reply("PBSZ 0", "500 what?"));
    script.extend(command_and_reply("PROT C", "500 what?"));
    let fake = start_with_clear_data(&identity, script).await;
    let mut session = ClientSession::open(&fake.server, TIMEOUT).await.unwrap();
    assert_eq!(session.list(b"/").await.unwrap().len(), 1);
    fake.finish().await;
}

#[tokio::test]
async fn refused_protection_of_data_fails_and_names_the_flag() {
    let identity = TestIdentity::new("127.0.0.1");
    let mut script = greeting_with_tls(&identity);
    script.extend(login());
    script.extend(command_and_reply("PBSZ 0", "200 ok"));
    script.extend(command_and_reply("PROT P", "536 no"));
    // No failure before data is asked for.
    script.extend(command_and_reply("CWD", "250 ok"));
    // Without protection nothing is asked for.
    script.extend(command_and_reply("PROT P", "536 no"));
    script.push(ScriptedAction::ExpectEof);
    let (fake, _) = start(Scheme::Ftps, identity.trusting(), script).await;
    let mut session = ClientSession::open(&fake.server, TIMEOUT).await.unwrap();
    let failure = session.list(b"/").await.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Refused);
    assert!(!failure.may_retry());
    assert!(
        failure.to_string().contains("--data-protection clear"),
        "{failure}"
    );
    drop(session);
    fake.finish().await;
}

#[tokio::test]
async fn clear_data_inside_tls_is_said_to_the_server() {
    let identity = TestIdentity::new("127.0.0.1");
    let mut script = greeting_with_tls(&identity);
    script.extend(login_inside_tls("PROT C"));
    let fake = start_with_clear_data(&identity, script).await;
    let mut session = ClientSession::open(&fake.server, TIMEOUT).await.unwrap();
    assert!(session.third_party_protocol().is_some());
    let entries = session.list(b"/").await.unwrap();
    assert_eq!(entries.len(), 1);
    let in_force = fake.server.security.in_force();
    assert!(
        in_force.starts_with("TLSv1.") && in_force.ends_with(", data clear"),
        "{in_force}"
    );
    drop(session);
    fake.finish().await;
}

#[tokio::test]
async fn a_gsi_url_never_goes_on_without_gsi() {
    let identity = TestIdentity::new("127.0.0.1");
    let folder = identity.folder.path();
    let user = TestAuthority::new("/O=Test/CN=CA").user("U");
    let proxy = folder.join("proxy.pem");
    security::test_pki::write_credential(&proxy, &user);
    let options = SecurityOptions {
        certificate: Some(proxy),
        ..identity.trusting()
    };
    let mut script = greeting();
    script.extend(command_and_reply("AUTH GSSAPI", "504 no"));
    script.push(ScriptedAction::ExpectEof);
    let (fake, _) = start(Scheme::Gsiftp, options, script).await;
    let failure = ClientSession::open(&fake.server, TIMEOUT)
        .await
        .unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Refused);
    assert!(!failure.may_retry());
    assert!(failure.to_string().contains("ftp:"), "{failure}");
    fake.finish().await;
}
