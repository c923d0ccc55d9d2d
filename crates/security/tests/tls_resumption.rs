//! Sessions of one connection resume in another, and the peer is checked again.

#![expect(clippy::unwrap_used, reason = "a test reports by panicking")]

use std::sync::Arc;
use std::time::Duration;

use security::tls::{
    ClientCertificates, ExpectedPeer, Handshake, ReadResult, TlsConfig, TlsEngine, TlsError,
    TlsOptions, TlsProfile, TlsRole, TlsSession, TlsVersion, install_session_setter,
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
        Some(Arc::new(TrustStore::exactly(certificates)))
    };
    let client = TlsOptions {
        role: TlsRole::Client,
        profile: TlsProfile::Web,
        credential: Some(user.clone()),
        trust: trust(&host),
        client_certificates: ClientCertificates::None,
        expected: ExpectedPeer::Host(HOST.to_owned()),
        server_name: Some(HOST.to_owned()),
        oldest: TlsVersion::V1_2,
        tickets: false,
    };
    let server = TlsOptions {
        role: TlsRole::Server,
        credential: Some(host),
        trust: trust(&user),
        client_certificates: ClientCertificates::Required,
        expected: ExpectedPeer::Trusted,
        server_name: None,
        tickets: true,
        ..client.clone()
    };
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
