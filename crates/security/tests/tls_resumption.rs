//! Sessions of one connection resume in another, and the peer is checked again.

#![expect(clippy::unwrap_used, reason = "a test reports by panicking")]

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use openssl::ssl::{
    Ssl, SslContext, SslMethod, SslSession, SslSessionCacheMode, SslStream, SslVerifyMode,
    SslVersion,
};
use parking_lot::Mutex;
use security::tls::{
    ClientCertificates, ExpectedPeer, Handshake, ReadResult, TlsConfig, TlsEngine, TlsError,
    TlsOptions, TlsSession, install_session_setter,
};
use security::x509::{CertifiedKey, TrustStore};

const HOST: &str = "host.example";

struct Ends {
    client: TlsOptions,
    server: TlsOptions,
}

fn ends() -> Ends {
    install_session_setter(|ssl, session| {
        // SAFETY: the session comes from a connection of the same SSL_CTX.
        unsafe { ssl.set_session(session) }
    });
    let day = Duration::from_secs(86_400);
    let host = CertifiedKey::self_signed(&[HOST.to_owned()], day).unwrap();
    let user = CertifiedKey::self_signed(&["user.example".to_owned()], day).unwrap();
    let trust = |peer: &CertifiedKey| {
        let certificates = vec![peer.leaf().clone()];
        Arc::new(TrustStore::exactly(certificates))
    };
    let client = TlsOptions::client()
        .with_credential(user.clone())
        .with_trust(trust(&host))
        .for_host(HOST);
    let server = TlsOptions::server()
        .asking(ClientCertificates::Required, trust(&user))
        .with_credential(host)
        .with_tickets();
    Ends { client, server }
}

fn pass(from: &mut TlsEngine, to: &mut TlsEngine) -> usize {
    let count = from.outgoing().len();
    to.receive(from.outgoing());
    from.mark_sent(count);
    count
}

fn connect(
    client: &TlsConfig,
    server: &TlsConfig,
    resume: Option<&TlsSession>,
) -> Result<(TlsEngine, TlsEngine), TlsError> {
    let mut client = TlsEngine::new(client, resume)?;
    let mut server = TlsEngine::new(server, None)?;
    loop {
        let states = (client.handshake()?, server.handshake()?);
        let moved = pass(&mut client, &mut server) + pass(&mut server, &mut client);
        if states == (Handshake::Complete, Handshake::Complete) && moved == 0 {
            break;
        }
    }
    // The tickets of TLS 1.3 follow the handshake.
    assert_eq!(client.read(&mut [0; 10])?, ReadResult::NeedsInput);
    Ok((client, server))
}

fn new(options: &TlsOptions) -> TlsConfig {
    TlsConfig::new(options.clone()).unwrap()
}

/// So that a client may close its socket at once after an upload.
#[test]
fn a_connection_without_new_tickets_resumes_and_gives_none() {
    let Ends { client, server } = ends();
    let (client, server) = (new(&client), new(&server));
    let (first, _) = connect(&client, &server, None).unwrap();
    let session = first.session().unwrap();
    let server = server.without_new_tickets();
    let (second, _) = connect(&client, &server, None).unwrap();
    assert!(second.session().is_none());
    // More often than a session has tickets.
    for _ in 0..3 {
        let (_, resumed) = connect(&client, &server, Some(&session)).unwrap();
        assert!(resumed.is_resumed());
    }
}

#[test]
fn a_session_resumes_and_both_peers_are_still_known() {
    let ends = ends();
    let (client, server) = (new(&ends.client), new(&ends.server));
    let (first, _) = connect(&client, &server, None).unwrap();
    assert!(!first.is_resumed());
    let mut session = first.session().unwrap();
    for _ in 0..3 {
        let (mut client, mut server) = connect(&client, &server, Some(&session)).unwrap();
        assert!(client.is_resumed() && server.is_resumed());
        assert_eq!(client.peer(), first.peer());
        assert!(server.peer().is_some());
        assert!(!client.peer_certificates().is_empty());
        client.write(b"data").unwrap();
        pass(&mut client, &mut server);
        assert_eq!(server.read(&mut [0; 10]), Ok(ReadResult::Bytes(4)));
        session = client.session().unwrap();
    }
}

#[test]
fn a_server_configuration_refuses_the_sessions_of_another() {
    let ends = ends();
    let (client, server) = (new(&ends.client), new(&ends.server));
    let (first, _) = connect(&client, &server, None).unwrap();
    let another = new(&ends.server);
    let (second, _) = connect(&client, &another, first.session().as_ref()).unwrap();
    assert!(!second.is_resumed());
    let other_client = new(&ends.client);
    let (third, _) = connect(&other_client, &server, first.session().as_ref()).unwrap();
    assert!(!third.is_resumed());
}

#[test]
fn the_expected_peer_is_checked_in_resumed_sessions() {
    let ends = ends();
    let (client, server) = (new(&ends.client), new(&ends.server));
    let (first, _) = connect(&client, &server, None).unwrap();
    let session = first.session();
    let stranger = || ExpectedPeer::Host("other.example".to_owned());
    let strict = client.with_expected(stranger()).unwrap();
    let refused = connect(&strict, &server, session.as_ref()).err().unwrap();
    assert!(matches!(refused, TlsError::Peer(_)), "{refused:?}");
    // The server expects itself instead of the client.
    let identity = first.peer().unwrap().identity.clone();
    let strict = server
        .with_expected(ExpectedPeer::Identity(identity))
        .unwrap();
    let refused = connect(&client, &strict, session.as_ref()).err().unwrap();
    assert!(matches!(refused, TlsError::Peer(_)), "{refused:?}");
    let (again, _) = connect(&client, &server, session.as_ref()).unwrap();
    assert!(again.is_resumed());
}

/// Bytes of a bare client of OpenSSL: received ones, and those to send.
#[derive(Debug, Default)]
struct Wire {
    received: VecDeque<u8>,
    sent: Vec<u8>,
}

impl Read for Wire {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        match self.received.read(space) {
            Ok(0) => Err(io::ErrorKind::WouldBlock.into()),
            other => other,
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sent.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A client of TLS 1.3 that knows these groups and sends a key of the first.
struct BareClient {
    context: SslContext,
    /// DER: the session of a connection that ends without close_notify is spoilt.
    newest: Arc<Mutex<Vec<u8>>>,
}

/// A finished handshake of a [`BareClient`].
struct BareHandshake {
    /// Whether the server had decided for a full handshake whenever it had something to send.
    answers: Vec<bool>,
    is_retried: bool,
    is_resumed: bool,
}

impl BareClient {
    fn new(groups: &str, credential: &CertifiedKey) -> Self {
        let newest = Arc::new(Mutex::new(Vec::new()));
        let mut context = SslContext::builder(SslMethod::tls_client()).unwrap();
        context
            .set_min_proto_version(Some(SslVersion::TLS1_3))
            .unwrap();
        context.set_groups_list(groups).unwrap();
        context.set_verify(SslVerifyMode::NONE);
        context.set_certificate(credential.leaf()).unwrap();
        context.set_private_key(credential.key()).unwrap();
        context
            .set_session_cache_mode(SslSessionCacheMode::CLIENT | SslSessionCacheMode::NO_INTERNAL);
        let kept = Arc::clone(&newest);
        context.set_new_session_callback(move |_, session| {
            *kept.lock() = session.to_der().unwrap();
        });
        Self {
            context: context.build(),
            newest,
        }
    }

    fn connect(&self, server: &TlsConfig, resume: bool) -> BareHandshake {
        let mut ssl = Ssl::new(&self.context).unwrap();
        if resume {
            let session = SslSession::from_der(&self.newest.lock()).unwrap();
            // SAFETY: the session comes from a connection of the same SSL_CTX.
            unsafe { ssl.set_session(&session) }.unwrap();
        }
        let mut client = SslStream::new(ssl, Wire::default()).unwrap();
        let mut server = TlsEngine::new(server, None).unwrap();
        let (mut answers, mut first) = (Vec::new(), Vec::new());
        loop {
            let is_connected = client.connect().is_ok();
            server.receive(&std::mem::take(&mut client.get_mut().sent));
            let state = server.handshake().unwrap();
            let answer = server.outgoing().to_vec();
            server.mark_sent(answer.len());
            if !answer.is_empty() {
                answers.push(server.is_full_handshake());
            }
            if first.is_empty() {
                first.clone_from(&answer);
            }
            client.get_mut().received.extend(&answer);
            if is_connected && state == Handshake::Complete {
                break;
            }
        }
        // The tickets follow the handshake.
        client.ssl_read(&mut [0; 1]).unwrap_err();
        BareHandshake {
            answers,
            is_retried: first.windows(8).any(|part| part == HELLO_RETRY_REQUEST),
            is_resumed: server.is_resumed() && client.ssl().session_reused(),
        }
    }
}

/// Start of the random value that marks a HelloRetryRequest (RFC 8446 §4.1.3).
const HELLO_RETRY_REQUEST: [u8; 8] = [0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11];

/// Groups of the only server that a process of this test has: OpenSSL's settings.
const GROUPS_OF_THE_SERVER: &str = "openssl_conf = all\n[all]\nssl_conf = tls\n\
    [tls]\nsystem_default = default\n[default]\nGroups = P-256\n";

/// Tells the process of a test that it has these settings.
const HAS_SETTINGS: &str = "LONGHAUL_TEST_HAS_SETTINGS";

/// A server that demands resumption decides whenever it is about to answer.
fn assert_known_before_every_answer(groups: &str, is_retried: bool) {
    let ends = ends();
    let server = new(&ends.server);
    let client = BareClient::new(groups, ends.client.credential.as_ref().unwrap());
    let full = client.connect(&server, false);
    assert_eq!(full.is_retried, is_retried);
    assert!(!full.is_resumed);
    let decided = &full.answers[usize::from(is_retried)..];
    assert!(!decided.contains(&false), "{:?}", full.answers);
    for _ in 0..2 {
        let resumed = client.connect(&server, true);
        assert_eq!(resumed.is_retried, is_retried);
        assert!(resumed.is_resumed);
        assert!(!resumed.answers.contains(&true), "{:?}", resumed.answers);
    }
}

#[test]
fn resumption_is_known_before_every_answer() {
    assert_known_before_every_answer("X25519:P-256", false);
}

#[test]
fn resumption_is_known_before_a_hello_retry_request() {
    const NAME: &str = "resumption_is_known_before_a_hello_retry_request";
    if std::env::var_os(HAS_SETTINGS).is_some() {
        assert_known_before_every_answer("P-384:P-256", true);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("openssl.cnf");
    std::fs::write(&settings, GROUPS_OF_THE_SERVER).unwrap();
    let result = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME])
        .env(HAS_SETTINGS, "")
        .env("OPENSSL_CONF", &settings)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&result.stdout);
    assert!(result.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
}
