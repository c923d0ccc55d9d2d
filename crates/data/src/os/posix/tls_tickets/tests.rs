use security::test_pki::TestAuthority;
use security::tls::{Handshake, TicketSecret, TlsConfig, TlsEngine, TlsOptions, TlsSession};

use super::*;
use crate::os::tls_session::permit_resumption;

fn pass(from: &mut TlsEngine, to: &mut TlsEngine) -> usize {
    let count = from.outgoing().len();
    to.receive(from.outgoing());
    from.mark_sent(count);
    count
}

fn connect(client: &TlsConfig, server: &TlsConfig, resume: Option<&TlsSession>) -> TlsEngine {
    let mut client = TlsEngine::new(client, resume).unwrap();
    let mut server = TlsEngine::new(server, None).unwrap();
    loop {
        let states = (client.handshake().unwrap(), server.handshake().unwrap());
        let moved = pass(&mut client, &mut server) + pass(&mut server, &mut client);
        if states == (Handshake::Complete, Handshake::Complete) && moved == 0 {
            break;
        }
    }
    // The tickets of TLS 1.3 follow the handshake.
    client.read(&mut [0; 10]).unwrap();
    client
}

#[test]
fn a_session_resumes_at_every_server_that_has_the_secret_of_its_tickets() {
    permit_resumption();
    permit_sharing();
    let secret = TicketSecret::random().unwrap();
    let server = |secret: TicketSecret| {
        // Each with a certificate of its own: a resumed session shows none.
        let own = TestAuthority::new("/O=Grid/CN=Authority").user("Host");
        TlsConfig::new(TlsOptions {
            ticket_secret: Some(secret),
            ..TlsOptions::server().with_credential(own).with_tickets()
        })
        .unwrap()
    };
    let client = TlsConfig::new(TlsOptions::client().unverified()).unwrap();
    let first = connect(&client, &server(secret.clone()), None);
    let session = first.session();
    let sent = TicketSecret::from_bytes(&secret.to_bytes()).unwrap();
    assert!(connect(&client, &server(sent), session.as_ref()).is_resumed());
    let stranger = TicketSecret::random().unwrap();
    assert!(!connect(&client, &server(stranger), session.as_ref()).is_resumed());
}
