//! The engine with the command `openssl` as its peer, in both roles.

#![expect(clippy::unwrap_used, reason = "a test reports by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use security::tls::{
    ExpectedPeer, Handshake, ReadResult, TlsConfig, TlsEngine, TlsError, TlsOptions, TlsRole,
    TlsSession, install_session_setter,
};
use security::x509::{CertifiedKey, TrustStore};

/// A program that ends with the test.
struct OpensslProgram(Child);

impl Drop for OpensslProgram {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Identity {
    folder: tempfile::TempDir,
    credential: CertifiedKey,
}

impl Identity {
    fn new() -> Self {
        let names = ["localhost".to_owned()];
        let credential = CertifiedKey::self_signed(&names, Duration::from_secs(3600)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let pem = credential.to_pem().unwrap();
        std::fs::write(folder.path().join("credential.pem"), &pem[..]).unwrap();
        Self { folder, credential }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("credential.pem")
    }

    fn options(&self, role: TlsRole) -> TlsOptions {
        let own = vec![self.credential.leaf().clone()];
        match role {
            TlsRole::Client => TlsOptions::client()
                .with_trust(Arc::new(TrustStore::exactly(own)))
                .expecting(ExpectedPeer::Host("localhost".to_owned())),
            TlsRole::Server => TlsOptions::server()
                .with_credential(self.credential.clone())
                .with_tickets(),
        }
    }
}

/// An engine on a socket, as a program would use it.
struct Connection {
    engine: TlsEngine,
    socket: TcpStream,
}

impl Connection {
    fn new(options: TlsOptions, socket: TcpStream) -> Self {
        Self::of(&TlsConfig::new(options).unwrap(), None, socket)
    }

    fn of(config: &TlsConfig, resume: Option<&TlsSession>, socket: TcpStream) -> Self {
        let engine = TlsEngine::new(config, resume).unwrap();
        Self { engine, socket }
    }

    fn send(&mut self) {
        self.socket.write_all(self.engine.outgoing()).unwrap();
        self.engine.mark_sent(self.engine.outgoing().len());
    }

    /// Number of received bytes; 0 at the end.
    fn receive(&mut self) -> usize {
        let socket = &mut self.socket;
        self.engine
            .receive_with(|space| socket.read(space))
            .unwrap_or(0)
    }

    fn shake(&mut self) -> Result<(), TlsError> {
        loop {
            let result = self.engine.handshake();
            self.send();
            match result? {
                Handshake::Complete => return Ok(()),
                Handshake::NeedsInput => assert!(self.receive() > 0, "the peer has closed"),
            }
        }
    }

    fn read_line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\n") {
            match self.engine.read(&mut byte).unwrap() {
                ReadResult::Bytes(_) => line.extend_from_slice(&byte),
                ReadResult::NeedsInput => assert!(self.receive() > 0, "the peer has closed"),
                ReadResult::Closed => break,
            }
        }
        String::from_utf8(line).unwrap()
    }
}

/// `openssl s_server` and its port. It sends each line back with its letters reversed.
fn server(file: &Path, arguments: &[&str]) -> (OpensslProgram, u16) {
    let mut child = Command::new("openssl")
        .args(["s_server", "-accept", "127.0.0.1:0", "-rev", "-cert"])
        .arg(file)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let program = OpensslProgram(child);
    let mut lines = output.lines();
    let port = loop {
        let line = lines.next().unwrap().unwrap();
        if let Some(address) = line.strip_prefix("ACCEPT ") {
            break address.rsplit_once(':').unwrap().1.parse().unwrap();
        }
    };
    // The program stops when nobody reads what it says.
    std::thread::spawn(move || lines.for_each(drop));
    (program, port)
}

/// `openssl s_client` and its connection.
fn client(file: &Path, arguments: &[&str]) -> (OpensslProgram, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let child = Command::new("openssl")
        .args([
            "s_client",
            "-verify_return_error",
            "-verify_hostname",
            "localhost",
        ])
        .args([
            "-connect",
            &listener.local_addr().unwrap().to_string(),
            "-CAfile",
        ])
        .arg(file)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    (OpensslProgram(child), listener.accept().unwrap().0)
}

#[test]
fn the_engine_is_a_client_of_openssl() {
    let identity = Identity::new();
    for (version, expected) in [("-tls1_2", "TLSv1.2 "), ("-tls1_3", "TLSv1.3 ")] {
        let (_program, port) = server(&identity.file(), &[version]);
        let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut connection = Connection::new(identity.options(TlsRole::Client), socket);
        connection.shake().unwrap();
        connection.engine.write(b"longhaul\n").unwrap();
        connection.send();
        assert_eq!(connection.read_line(), "luahgnol\n");
        let description = connection.engine.description();
        assert!(description.starts_with(expected), "{description}");
        assert!(connection.engine.session().is_some());
    }
}

#[test]
fn sessions_of_an_openssl_server_resume() {
    install_session_setter(|ssl, session| {
        // SAFETY: the session comes from a connection of the same SSL_CTX.
        unsafe { ssl.set_session(session) }
    });
    let identity = Identity::new();
    let config = TlsConfig::new(identity.options(TlsRole::Client)).unwrap();
    for arguments in [&["-tls1_2"][..], &["-tls1_2", "-no_ticket"], &["-tls1_3"]] {
        let (_program, port) = server(&identity.file(), arguments);
        let mut session = None;
        for is_resumed in [false, true, true] {
            let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let mut connection = Connection::of(&config, session.as_ref(), socket);
            connection.shake().unwrap();
            connection.engine.write(b"longhaul\n").unwrap();
            connection.send();
            assert_eq!(connection.read_line(), "luahgnol\n");
            assert_eq!(connection.engine.is_resumed(), is_resumed, "{arguments:?}");
            assert!(connection.engine.peer().is_some());
            session = connection.engine.session();
            connection.engine.close().unwrap();
            connection.send();
        }
    }
}

#[test]
fn sessions_of_the_engine_resume_at_openssl() {
    let identity = Identity::new();
    let config = TlsConfig::new(identity.options(TlsRole::Server)).unwrap();
    let session = identity.folder.path().join("session.pem");
    let session = session.to_str().unwrap();
    for version in ["-tls1_2", "-tls1_3"] {
        for (option, is_resumed) in [("-sess_out", false), ("-sess_in", true)] {
            let arguments = ["-quiet", version, option, session];
            let (mut program, socket) = client(&identity.file(), &arguments);
            let mut connection = Connection::of(&config, None, socket);
            connection.shake().unwrap();
            assert_eq!(connection.engine.is_resumed(), is_resumed, "{version}");
            connection.engine.write(b"220 ready\r\n").unwrap();
            connection.engine.close().unwrap();
            connection.send();
            // The program writes its file when the connection ends.
            drop(connection);
            program.0.wait().unwrap();
        }
    }
}

#[test]
fn the_engine_refuses_an_openssl_server_of_another_name() {
    let identity = Identity::new();
    let (_program, port) = server(&identity.file(), &["-tls1_3"]);
    let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let options = TlsOptions {
        expected: ExpectedPeer::Host("other.example".to_owned()),
        ..identity.options(TlsRole::Client)
    };
    let refused = Connection::new(options, socket).shake().unwrap_err();
    assert!(matches!(refused, TlsError::Peer(_)), "{refused:?}");
}

#[test]
fn the_engine_is_a_server_of_openssl() {
    let identity = Identity::new();
    for version in ["-tls1_2", "-tls1_3"] {
        let (mut program, socket) = client(&identity.file(), &["-quiet", version]);
        let mut connection = Connection::new(identity.options(TlsRole::Server), socket);
        connection.shake().unwrap();
        connection.engine.write(b"220 ready\r\n").unwrap();
        connection.send();
        let mut output = BufReader::new(program.0.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "220 ready\r\n");
        let mut input = program.0.stdin.take().unwrap();
        input.write_all(b"QUIT\n").unwrap();
        assert_eq!(connection.read_line(), "QUIT\n");
    }
}

#[test]
fn a_renegotiation_is_refused() {
    let identity = Identity::new();
    let (mut program, socket) = client(&identity.file(), &["-tls1_2"]);
    let mut connection = Connection::new(identity.options(TlsRole::Server), socket);
    connection.shake().unwrap();
    let mut input = program.0.stdin.take().unwrap();
    // A line with this letter alone asks openssl for a renegotiation.
    input.write_all(b"R\n").unwrap();
    let mut result = Ok(ReadResult::NeedsInput);
    while result == Ok(ReadResult::NeedsInput) && connection.receive() > 0 {
        result = connection.engine.read(&mut [0; 100]);
        connection.send();
    }
    assert!(!matches!(result, Ok(ReadResult::Bytes(_))), "{result:?}");
    let mut errors = String::new();
    let mut stderr = program.0.stderr.take().unwrap();
    stderr.read_to_string(&mut errors).unwrap();
    assert!(errors.contains("no renegotiation"), "{errors}");
}
