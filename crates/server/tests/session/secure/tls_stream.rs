//! TLS over a blocking socket.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use security::tls::{Handshake, ReadResult, TlsConfig, TlsEngine, TlsError, TlsSession};

/// A connection inside TLS.
pub(crate) struct TlsStream {
    pub(crate) stream: TcpStream,
    pub(crate) engine: TlsEngine,
}

/// The failure of a handshake: TLS's, or the connection's end.
#[derive(Debug)]
#[allow(dead_code, reason = "shown when a test fails")]
pub(crate) enum HandshakeError {
    Tls(TlsError),
    Connection(io::Error),
}

impl From<TlsError> for HandshakeError {
    fn from(error: TlsError) -> Self {
        Self::Tls(error)
    }
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        Self::Connection(error)
    }
}

impl TlsStream {
    /// Performs the handshake.
    pub(crate) fn handshake(
        mut stream: TcpStream,
        config: &TlsConfig,
        resume: Option<&TlsSession>,
    ) -> Result<Self, HandshakeError> {
        let mut engine = TlsEngine::new(config, resume)?;
        loop {
            let progress = engine.handshake();
            send(&mut engine, &mut stream)?;
            if progress? == Handshake::Complete {
                return Ok(Self { stream, engine });
            }
            receive(&mut engine, &mut stream)?;
        }
    }

    /// A connection whose handshake is complete.
    pub(crate) fn of(stream: TcpStream, engine: TlsEngine) -> Self {
        Self { stream, engine }
    }

    /// Sends close_notify.
    pub(crate) fn close(&mut self) {
        self.engine.close().unwrap();
        send(&mut self.engine, &mut self.stream).unwrap();
    }

    /// Waits for the tickets of TLS 1.3, which come with the first bytes of the server.
    pub(crate) fn session(&self) -> TlsSession {
        self.engine.session().expect("a session")
    }
}

fn send(engine: &mut TlsEngine, stream: &mut TcpStream) -> io::Result<()> {
    let count = engine.outgoing().len();
    stream.write_all(engine.outgoing())?;
    engine.mark_sent(count);
    Ok(())
}

fn receive(engine: &mut TlsEngine, stream: &mut TcpStream) -> io::Result<()> {
    let mut buffer = [0; 1 << 14];
    match stream.read(&mut buffer)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        count => {
            engine.receive(&buffer[..count]);
            Ok(())
        }
    }
}

impl Read for TlsStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.engine.read(buffer).map_err(io::Error::other)? {
                ReadResult::Bytes(count) => return Ok(count),
                ReadResult::Closed => return Ok(0),
                ReadResult::NeedsInput => receive(&mut self.engine, &mut self.stream)?,
            }
        }
    }
}

impl Write for TlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.engine.write(bytes).map_err(io::Error::other)?;
        send(&mut self.engine, &mut self.stream)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
