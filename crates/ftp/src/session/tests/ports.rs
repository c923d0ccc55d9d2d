//! The ports of control connections with TLS, and of data connections.

use super::*;

/// The message for a port of this machine on which nothing listens.
async fn connection_failure(host: &str, scheme: Scheme, port: u16) -> String {
    let server = Server {
        scheme,
        host: host.to_owned(),
        port,
        credential: Credential::Anonymous,
        query: None,
        security: Arc::default(),
    };
    let failure = ClientSession::open(&server, TIMEOUT).await.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Unreachable);
    failure.to_string()
}

#[tokio::test]
async fn a_port_that_refuses_ftps_advises_the_other_one() {
    // An address of this machine on which nothing listens.
    let explicit = connection_failure("127.9.8.7", Scheme::Ftps, 21).await;
    assert!(explicit.contains("use ftps://127.9.8.7:990"), "{explicit}");
    let implicit = connection_failure("127.9.8.7", Scheme::Ftps, 990).await;
    assert!(implicit.ends_with("use ftps://127.9.8.7"), "{implicit}");
    let clear = connection_failure("127.9.8.7", Scheme::Ftp, 21).await;
    assert!(!clear.contains("TLS"), "{clear}");
}

#[tokio::test]
async fn the_data_address_is_found_in_any_line_of_the_reply() {
    let (session, _peer) = open_session(login_script()).await;
    for text in [
        "227-Looking for a port (1 of 2)\n227 Entering Passive Mode (127,0,0,1,7,208)",
        "227-127,0,0,1,7,208\n227 Done",
        "227 Entering Passive Mode (127,0,0,1,7,208)",
    ] {
        let mut replies = Vec::new();
        let wire = [text, "\n"].concat();
        let read = proto::reply::ReplyReader::new().feed(wire.as_bytes(), &mut replies);
        read.unwrap();
        let address = session.parse_passive_reply(&replies[0]).unwrap();
        assert_eq!(address.first().port(), 2000, "{text}");
    }
}
