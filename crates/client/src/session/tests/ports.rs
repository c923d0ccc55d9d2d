//! Connections to the ports of FTP over TLS.

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
    assert_eq!(failure.exit, Exit::Unreachable);
    failure.message
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
