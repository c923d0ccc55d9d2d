//! The protection of both ends, and a peer of the wire that breaks its rules.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use data::job::TransferSettings;
use data::security::DataSecurity;
use proto::command::TransferMode;
use security::gsi::DataHandshakeMode;
use security::test_pki::TestAuthority;
use security::tls::{Handshake, ReadResult, TlsConfig, TlsEngine, TlsOptions, TlsSession};

use crate::transfer_ends::{PATIENCE, settings};

/// Both ends of an FTPS session.
pub(super) struct FtpsEnds {
    pub(super) client: DataSecurity,
    pub(super) server: DataSecurity,
}

impl FtpsEnds {
    /// Resumption is possible and not required.
    pub(super) fn new() -> Self {
        let authority = TestAuthority::new("/O=Grid/CN=Authority");
        let server = TlsOptions::server()
            .with_credential(authority.host(&["localhost"]))
            .with_tickets();
        let server = TlsConfig::new(server).unwrap();
        let client = TlsConfig::new(TlsOptions::client().unverified()).unwrap();
        let session = control_session(&client, &server);
        Self {
            client: DataSecurity::ftps_client(client).resuming(Some(session)),
            server: DataSecurity::ftps_server(server),
        }
    }

    /// Settings of the two ends; the client's are first.
    pub(super) fn settings(&self, mode: TransferMode) -> [TransferSettings; 2] {
        [&self.client, &self.server].map(|security| protected(mode, security))
    }

    /// Settings of the sender and the receiver.
    pub(super) fn sender_and_receiver(
        &self,
        mode: TransferMode,
        client_sends: bool,
    ) -> [TransferSettings; 2] {
        let mut ends = self.settings(mode);
        if !client_sends {
            ends.reverse();
        }
        ends
    }
}

/// GSI: both ends have the same, and the end that opens a connection is the TLS client.
pub(super) fn grid(mode: DataHandshakeMode) -> DataSecurity {
    let user = TestAuthority::new("/O=Grid/CN=Authority").user("User");
    let options = |role| {
        TlsOptions::grid(role)
            .with_credential(user.clone())
            .unverified()
    };
    DataSecurity::grid(mode, options).unwrap()
}

pub(super) fn protected(mode: TransferMode, security: &DataSecurity) -> TransferSettings {
    TransferSettings {
        security: Some(Arc::new(security.clone())),
        ..settings(mode)
    }
}

/// The session of a control connection between the two.
fn control_session(client: &TlsConfig, server: &TlsConfig) -> TlsSession {
    // Sessions are offered only after the first protected connection has been made ready.
    let mut near = TlsEngine::new(client, None).unwrap();
    let mut far = TlsEngine::new(server, None).unwrap();
    let mut done = false;
    while !done {
        let near_done = near.handshake().unwrap() == Handshake::Complete;
        pass(&mut near, &mut far);
        let far_done = far.handshake().unwrap() == Handshake::Complete;
        pass(&mut far, &mut near);
        done = near_done && far_done;
    }
    far.write(b"220 ready\r\n").unwrap();
    pass(&mut far, &mut near);
    near.read(&mut [0; 100]).unwrap();
    near.session().unwrap()
}

fn pass(from: &mut TlsEngine, to: &mut TlsEngine) {
    to.receive(from.outgoing());
    let count = from.outgoing().len();
    from.mark_sent(count);
}

/// One blocking connection that does what a test asks.
pub(super) struct WirePeer {
    pub(super) stream: TcpStream,
    pub(super) engine: TlsEngine,
}

impl WirePeer {
    /// Connects and completes the handshake.
    pub(super) fn connect(to: SocketAddr, config: &TlsConfig, resume: Option<&TlsSession>) -> Self {
        Self::on(TcpStream::connect(to).unwrap(), config, resume)
    }

    /// Completes the handshake on a connection.
    pub(super) fn on(stream: TcpStream, config: &TlsConfig, resume: Option<&TlsSession>) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let engine = TlsEngine::new(config, resume).unwrap();
        let mut peer = Self { stream, engine };
        while peer.engine.handshake().unwrap() == Handshake::NeedsInput {
            peer.flush();
            peer.receive();
        }
        peer.flush();
        peer
    }

    /// Sends the outgoing bytes. A closed connection is no error: the test sees it elsewhere.
    pub(super) fn flush(&mut self) {
        let count = self.engine.outgoing().len();
        let _ = self.stream.write_all(self.engine.outgoing());
        self.engine.mark_sent(count);
    }

    /// Encrypts and sends.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.engine.write(bytes).unwrap();
        self.flush();
    }

    fn receive(&mut self) -> usize {
        let stream = &mut self.stream;
        self.engine
            .receive_with(|space| stream.read(space))
            .unwrap_or(0)
    }

    /// Everything up to the end; the flag tells whether close_notify came.
    pub(super) fn read_to_end(&mut self) -> (Vec<u8>, bool) {
        let (mut all, mut buffer) = (Vec::new(), [0; 10_000]);
        loop {
            match self.engine.read(&mut buffer) {
                Ok(ReadResult::Bytes(count)) => all.extend_from_slice(&buffer[..count]),
                Ok(ReadResult::Closed) => return (all, true),
                Ok(ReadResult::NeedsInput) if self.receive() > 0 => {}
                _ => return (all, false),
            }
        }
    }
}
