//! A client of a secured control connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use proto::security::SecurityToken;
use security::gsi::{Delegation, GsiContext, GsiInitiator, GsiStep};
use security::tls::{TlsConfig, TlsSession};

use super::super::client::{ReceivedReply, port_address};
use super::super::data_port;
use super::super::in_process_server::{PASSWORD, USER};
use super::data;
use super::tls_stream::{HandshakeError, TlsStream};

const TIMEOUT: Duration = Duration::from_secs(60);

/// The layer of the control connection's bytes.
enum Layer {
    Clear(TcpStream),
    Tls(Box<TlsStream>),
    Grid(TcpStream, Box<GsiContext>),
}

pub(crate) struct SecureClient {
    layer: Option<Layer>,
    received: Vec<u8>,
}

impl SecureClient {
    /// Connects and reads the greeting in the clear.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let mut client = Self::over(Layer::Clear(open(address)));
        client.expect_code(220);
        client
    }

    /// Connects to a port with implicit TLS and reads the greeting.
    pub(crate) fn connect_implicit(
        address: SocketAddr,
        config: &TlsConfig,
    ) -> Result<Self, HandshakeError> {
        let tls = TlsStream::handshake(open(address), config, None)?;
        let mut client = Self::over(Layer::Tls(Box::new(tls)));
        client.expect_code(220);
        Ok(client)
    }

    /// Connects and agrees on TLS.
    pub(crate) fn with_tls(address: SocketAddr, config: &TlsConfig) -> Self {
        let mut client = Self::connect(address);
        client.expect("AUTH TLS", 234);
        client.start_tls(config).unwrap();
        client
    }

    /// Connects, agrees on TLS, logs in with a password and sets TYPE I and PROT P.
    pub(crate) fn private_user(address: SocketAddr, config: &TlsConfig) -> Self {
        let mut client = Self::with_tls(address, config);
        client.log_in();
        client.protect();
        client
    }

    /// Connects and agrees on GSI.
    pub(crate) fn with_grid(
        address: SocketAddr,
        config: &TlsConfig,
        delegation: Delegation,
    ) -> Self {
        let mut client = Self::connect(address);
        client.expect("AUTH GSSAPI", 334);
        let refusal = client.authenticate(config, delegation);
        assert_eq!(refusal, None);
        client
    }

    /// Connects, agrees on GSI and logs in to the default account.
    pub(crate) fn grid_user(
        address: SocketAddr,
        config: &TlsConfig,
        delegation: Delegation,
    ) -> Self {
        let mut client = Self::with_grid(address, config, delegation);
        client.expect("USER :globus-mapping:", 331);
        client.expect("PASS dummy", 230);
        client.expect("TYPE I", 200);
        client
    }

    fn over(layer: Layer) -> Self {
        Self {
            layer: Some(layer),
            received: Vec::new(),
        }
    }

    /// Makes the TLS handshake after AUTH TLS.
    pub(crate) fn start_tls(&mut self, config: &TlsConfig) -> Result<(), HandshakeError> {
        let Some(Layer::Clear(stream)) = self.layer.take() else {
            panic!("not in the clear");
        };
        let tls = TlsStream::handshake(stream, config, None)?;
        self.layer = Some(Layer::Tls(Box::new(tls)));
        Ok(())
    }

    /// Makes the exchange after AUTH GSSAPI; returns the reply that refuses it.
    pub(crate) fn authenticate(
        &mut self,
        config: &TlsConfig,
        delegation: Delegation,
    ) -> Option<ReceivedReply> {
        let mut initiator = GsiInitiator::new(config, delegation).unwrap();
        let mut token: Option<Vec<u8>> = None;
        loop {
            let (output, context) = match initiator.step(token.as_deref()).unwrap() {
                GsiStep::Continue(output) => (Some(output), None),
                GsiStep::Complete(output, context) => (output, Some(context)),
            };
            let reply = match output {
                Some(output) => {
                    let output = SecurityToken::new(output).unwrap();
                    self.command(&format!("ADAT {}", output.encode()))
                }
                None => self.read_reply(),
            };
            match (reply.code, context) {
                (235, Some(context)) => {
                    let Some(Layer::Clear(stream)) = self.layer.take() else {
                        panic!("not in the clear");
                    };
                    self.layer = Some(Layer::Grid(stream, context));
                    return None;
                }
                (335, None) => {
                    let text = reply.text.split("ADAT=").nth(1).unwrap();
                    let next = SecurityToken::decode(text.as_bytes()).unwrap();
                    token = Some(next.as_bytes().to_vec());
                }
                _ => return Some(reply),
            }
        }
    }

    /// Logs in as the user with the password, and sets TYPE I.
    pub(crate) fn log_in(&mut self) {
        self.expect(&format!("USER {USER}"), 331);
        self.expect(&format!("PASS {PASSWORD}"), 230);
        self.expect("TYPE I", 200);
    }

    /// Sends PBSZ and PROT P.
    pub(crate) fn protect(&mut self) {
        self.expect("PBSZ 0", 200);
        self.expect("PROT P", 200);
    }

    /// The session of TLS on this connection, for data connections.
    pub(crate) fn session(&self) -> TlsSession {
        match &self.layer {
            Some(Layer::Tls(tls)) => tls.session(),
            _ => panic!("no TLS"),
        }
    }

    /// SHA-256 of the server's certificate in TLS.
    pub(crate) fn peer_fingerprint(&self) -> String {
        let Some(Layer::Tls(tls)) = &self.layer else {
            panic!("no TLS");
        };
        let leaf = tls.engine.peer_certificates().remove(0);
        let digest = leaf.digest(openssl::hash::MessageDigest::sha256()).unwrap();
        let hex: Vec<String> = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        hex.join(":")
    }

    /// Returns to the clear after CCC.
    pub(crate) fn end_tls(&mut self) {
        let Some(Layer::Tls(mut tls)) = self.layer.take() else {
            panic!("no TLS");
        };
        tls.close();
        let mut rest = Vec::new();
        tls.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"");
        self.layer = Some(Layer::Clear(tls.stream));
    }

    pub(crate) fn send(&mut self, line: &str) {
        self.send_bytes(format!("{line}\r\n").as_bytes());
    }

    /// Sends bytes inside the protection of the connection.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        match self.layer.as_mut().unwrap() {
            Layer::Clear(stream) => stream.write_all(bytes).unwrap(),
            Layer::Tls(tls) => tls.write_all(bytes).unwrap(),
            Layer::Grid(stream, context) => {
                let token = SecurityToken::new(context.wrap(bytes).unwrap()).unwrap();
                let line = format!("ENC {}\r\n", token.encode());
                stream.write_all(line.as_bytes()).unwrap();
            }
        }
    }

    /// Sends a line to a server that may have closed the connection.
    pub(crate) fn try_send(&mut self, line: &str) {
        if let Some(Layer::Tls(tls)) = &mut self.layer {
            let _ = tls.write_all(format!("{line}\r\n").as_bytes());
        }
    }

    /// The protected form of a command in a session with GSI.
    pub(crate) fn wrapped(&mut self, line: &str) -> Vec<u8> {
        let Some(Layer::Grid(_, context)) = &mut self.layer else {
            panic!("no GSI");
        };
        context.wrap(format!("{line}\r\n").as_bytes()).unwrap()
    }

    /// Sends bytes below the protection.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        let stream = match self.layer.as_mut().unwrap() {
            Layer::Clear(stream) | Layer::Grid(stream, _) => stream,
            Layer::Tls(tls) => &mut tls.stream,
        };
        stream.write_all(bytes).unwrap();
    }

    pub(crate) fn command(&mut self, line: &str) -> ReceivedReply {
        self.send(line);
        self.read_reply()
    }

    pub(crate) fn expect(&mut self, line: &str, code: u16) -> ReceivedReply {
        let reply = self.command(line);
        assert_eq!(reply.code, code, "{line}: {reply:?}");
        reply
    }

    pub(crate) fn expect_code(&mut self, code: u16) -> ReceivedReply {
        let reply = self.read_reply();
        assert_eq!(reply.code, code, "{reply:?}");
        reply
    }

    /// Reads the next reply that is not a marker (111, 112) and asserts its code.
    pub(crate) fn expect_code_after_markers(&mut self, code: u16) -> ReceivedReply {
        loop {
            let reply = self.read_reply();
            if !matches!(reply.code, 111..=113) {
                assert_eq!(reply.code, code, "{reply:?}");
                return reply;
            }
        }
    }

    /// Reads the replies to a transfer that succeeds.
    pub(crate) fn expect_transferred(&mut self) {
        self.expect_code(150);
        self.expect_code_after_markers(226);
    }

    /// Reads the replies to a transfer whose data connection is refused, with or without a 150 first; returns
    /// the last one.
    pub(crate) fn expect_data_refused(&mut self) -> ReceivedReply {
        let mut reply = self.read_reply();
        if reply.code == 150 {
            reply = self.read_reply();
        }
        assert!(matches!(reply.code, 425 | 426), "{reply:?}");
        reply
    }

    /// Sends PASV and `command`, and reads what comes over a data connection inside TLS.
    pub(crate) fn receive(
        &mut self,
        command: &str,
        config: &TlsConfig,
        resume: Option<&TlsSession>,
    ) -> Result<Vec<u8>, HandshakeError> {
        let address = self.pasv();
        self.send(command);
        data::read_all(data_port::connect(address), config, resume)
    }

    /// Sends PASV and RETR; a thief takes the data connection, who makes a handshake with this
    /// configuration. Asserts that the thief gets no byte and the client a refusal.
    pub(crate) fn expect_theft_refused(
        &mut self,
        name: &str,
        thief: &TlsConfig,
        resume: Option<&TlsSession>,
    ) {
        let address = self.pasv();
        self.send(&format!("RETR {name}"));
        let stolen = data::read_some(data_port::connect(address), thief, resume);
        assert_eq!(stolen.len(), 0, "bytes of the file are stolen");
        self.expect_data_refused();
    }

    pub(crate) fn pasv(&mut self) -> SocketAddr {
        port_address(&self.expect("PASV", 227).text)
    }

    pub(crate) fn read_reply(&mut self) -> ReceivedReply {
        ReceivedReply::read(|| self.read_line()).expect("a reply")
    }

    /// Asserts that the server closes the connection, and says nothing more.
    pub(crate) fn expect_close(&mut self) {
        assert_eq!(self.read_line(), None);
    }

    /// Reads a line; `None` at the end of the connection. In a session with GSI the protection is removed.
    pub(crate) fn read_line(&mut self) -> Option<String> {
        let line = self.read_wire_line()?;
        let Some(Layer::Grid(_, context)) = &mut self.layer else {
            return Some(line);
        };
        let token = line.strip_prefix("632 ").or(line.strip_prefix("632-"));
        let token = token.unwrap_or_else(|| panic!("in the clear: {line}"));
        let token = SecurityToken::decode(token.as_bytes()).unwrap();
        let plain = context.unwrap(token.as_bytes()).unwrap();
        let plain = String::from_utf8(plain).unwrap();
        Some(plain.strip_suffix("\r\n").unwrap().to_owned())
    }

    fn read_wire_line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.received.windows(2).position(|w| w == b"\r\n") {
                let line: Vec<u8> = self.received.drain(..end + 2).collect();
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            let mut buffer = [0; 4096];
            let read = match self.layer.as_mut().unwrap() {
                Layer::Clear(stream) | Layer::Grid(stream, _) => stream.read(&mut buffer),
                Layer::Tls(tls) => tls.read(&mut buffer),
            };
            match read {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
            }
        }
    }
}

fn open(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}
