//! Two ends of a connection in memory.

mod handshakes;
mod hostile;
mod memory;
mod verification;

use std::sync::Arc;

use super::*;
use crate::test_pki::{TestAuthority, write_grid_directory};
use crate::x509::{CertifiedKey, TrustStore};

/// An authority, what it issued, and who trusts it.
pub(crate) struct Pki {
    pub(crate) authority: TestAuthority,
    pub(crate) host: CertifiedKey,
    pub(crate) user: CertifiedKey,
    folder: tempfile::TempDir,
}

impl Pki {
    pub(crate) fn new() -> Self {
        let authority = TestAuthority::new("/O=Grid/CN=Authority");
        let folder = tempfile::tempdir().unwrap();
        let pem = authority.certificate().to_pem().unwrap();
        std::fs::write(folder.path().join("ca.pem"), pem).unwrap();
        write_grid_directory(&folder.path().join("grid"), &[&authority]);
        Self {
            host: authority.host(&["host.example"]),
            user: authority.user("User"),
            authority,
            folder,
        }
    }

    /// The authority as the profile knows it: a PEM file, or a grid directory.
    pub(crate) fn trust(&self, profile: TlsProfile) -> Arc<TrustStore> {
        let name = match profile {
            TlsProfile::Web => "ca.pem",
            TlsProfile::Grid => "grid",
        };
        let store = TrustStore::from_path(&self.folder.path().join(name));
        Arc::new(store.unwrap())
    }

    /// A server that asks for no certificate.
    pub(crate) fn server(&self) -> TlsOptions {
        TlsOptions::server().with_credential(self.host.clone())
    }

    /// A client that verifies the server's name.
    pub(crate) fn client(&self) -> TlsOptions {
        TlsOptions::client()
            .with_trust(self.trust(TlsProfile::Web))
            .for_host("host.example")
    }

    /// A client that shows the user's certificate.
    pub(crate) fn user(&self, profile: TlsProfile) -> TlsOptions {
        let options = match profile {
            TlsProfile::Web => TlsOptions::client(),
            TlsProfile::Grid => TlsOptions::grid(TlsRole::Client),
        };
        options
            .with_credential(self.user.clone())
            .with_trust(self.trust(profile))
            .for_host("host.example")
    }

    /// A server that requires a certificate.
    pub(crate) fn asking(&self, profile: TlsProfile) -> TlsOptions {
        let options = match profile {
            TlsProfile::Web => TlsOptions::server(),
            TlsProfile::Grid => TlsOptions::grid(TlsRole::Server),
        };
        options
            .with_credential(self.host.clone())
            .asking(ClientCertificates::Required, self.trust(profile))
    }
}

pub(crate) fn engine(options: TlsOptions) -> TlsEngine {
    TlsEngine::new(&TlsConfig::new(options).unwrap(), None).unwrap()
}

/// Moves all bytes from one end to the other; the number of them.
pub(crate) fn pass(from: &mut TlsEngine, to: &mut TlsEngine) -> usize {
    let count = from.outgoing().len();
    to.receive(from.outgoing());
    from.mark_sent(count);
    count
}

/// Results of the handshake at the client and the server.
pub(crate) type Results = (Result<(), TlsError>, Result<(), TlsError>);

/// Runs handshakes until no end has more to say.
pub(crate) fn shake(client: &mut TlsEngine, server: &mut TlsEngine) -> Results {
    loop {
        let first = client.handshake();
        let sent = pass(client, server);
        let second = server.handshake();
        if sent + pass(server, client) == 0 {
            // A client hears of the refusal of its certificate after its handshake.
            let first = first.and_then(|_| client.read(&mut [0; 1]).map(|_| ()));
            let second = second.map(|state| assert_eq!(state, Handshake::Complete));
            return (first, second);
        }
    }
}

/// Runs handshakes until one end fails.
pub(crate) fn shake_until_error(client: &mut TlsEngine, server: &mut TlsEngine) -> Results {
    for _ in 0..10 {
        let results = (client.handshake(), server.handshake());
        if results.0.is_err() || results.1.is_err() {
            return (results.0.map(|_| ()), results.1.map(|_| ()));
        }
        pass(client, server);
        pass(server, client);
    }
    panic!("no end fails");
}

/// A connected pair.
pub(crate) fn connected(client: TlsOptions, server: TlsOptions) -> (TlsEngine, TlsEngine) {
    let (mut client, mut server) = (engine(client), engine(server));
    let results = shake(&mut client, &mut server);
    assert_eq!(results, (Ok(()), Ok(())));
    (client, server)
}

/// The results of a pair that may not connect.
pub(crate) fn attempted(client: TlsOptions, server: TlsOptions) -> Results {
    shake(&mut engine(client), &mut engine(server))
}

/// All plain bytes that an end has received.
pub(crate) fn read_all(engine: &mut TlsEngine) -> Vec<u8> {
    let mut all = Vec::new();
    let mut space = vec![0; 50_000];
    while let ReadResult::Bytes(count) = engine.read(&mut space).unwrap() {
        all.extend_from_slice(&space[..count]);
    }
    all
}

/// Sends bytes from one end to the other and compares them.
pub(crate) fn assert_carries(from: &mut TlsEngine, to: &mut TlsEngine, bytes: &[u8]) {
    from.write(bytes).unwrap();
    pass(from, to);
    assert!(read_all(to) == bytes, "the bytes arrive as they were sent");
}

/// A configuration that speaks TLS 1.2 alone, or any version.
pub(crate) fn config(options: TlsOptions, version: TlsVersion) -> TlsConfig {
    let newest = match version {
        TlsVersion::V1_2 => Some(openssl::ssl::SslVersion::TLS1_2),
        TlsVersion::V1_3 => None,
    };
    TlsConfig::with_newest(options, newest).unwrap()
}
