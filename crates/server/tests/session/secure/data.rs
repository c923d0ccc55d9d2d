//! Protected data connections of a test client.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use security::gsi::{DataHandshake, DataHandshakeMode};
use security::tls::{Handshake, TlsConfig, TlsSession};

use super::tls_stream::{HandshakeError, TlsStream};

/// Makes the handshake and reads to the end of the data.
pub(crate) fn read_all(
    stream: TcpStream,
    config: &TlsConfig,
    resume: Option<&TlsSession>,
) -> Result<Vec<u8>, HandshakeError> {
    let mut tls = TlsStream::handshake(stream, config, resume)?;
    let mut bytes = Vec::new();
    tls.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Makes the handshake and reads what comes, to the end or to an error; nothing if there is no handshake.
pub(crate) fn read_some(
    stream: TcpStream,
    config: &TlsConfig,
    resume: Option<&TlsSession>,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(mut tls) = TlsStream::handshake(stream, config, resume) {
        let _ = tls.read_to_end(&mut bytes);
    }
    bytes
}

/// Makes the handshake, sends the bytes and ends with close_notify.
pub(crate) fn send_all(
    stream: TcpStream,
    config: &TlsConfig,
    resume: Option<&TlsSession>,
    bytes: &[u8],
) -> Result<(), HandshakeError> {
    let mut tls = TlsStream::handshake(stream, config, resume)?;
    tls.write_all(bytes)?;
    tls.close();
    // Closing a socket with unread tickets would send a reset, which destroys what is on its way.
    let _ = tls.read_to_end(&mut Vec::new());
    Ok(())
}

/// A data connection of a session with GSI, after its handshake.
pub(crate) enum GridData {
    /// PROT C: raw bytes, of which some came with the handshake.
    Raw(TcpStream, Vec<u8>),
    Tls(Box<TlsStream>),
}

impl GridData {
    pub(crate) fn handshake(
        mut stream: TcpStream,
        config: &TlsConfig,
        mode: DataHandshakeMode,
    ) -> Result<Self, HandshakeError> {
        let mut handshake = DataHandshake::new(config, mode, None)?;
        loop {
            let progress = handshake.advance();
            let engine = handshake.engine();
            let count = engine.outgoing().len();
            stream.write_all(engine.outgoing())?;
            engine.mark_sent(count);
            if progress? == Handshake::Complete {
                break;
            }
            let mut buffer = [0; 1 << 14];
            match stream.read(&mut buffer)? {
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                count => handshake.engine().receive(&buffer[..count]),
            }
        }
        Ok(match mode {
            DataHandshakeMode::AuthenticateOnly => {
                let early = handshake.take_raw_input();
                Self::Raw(stream, early)
            }
            DataHandshakeMode::Protected => {
                Self::Tls(Box::new(TlsStream::of(stream, handshake.into_engine())))
            }
        })
    }

    /// Reads what comes, to the end or to an error.
    pub(crate) fn read_some(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let _ = match self {
            Self::Raw(mut stream, early) => {
                bytes = early;
                stream.read_to_end(&mut bytes)
            }
            Self::Tls(mut tls) => tls.read_to_end(&mut bytes),
        };
        bytes
    }

    /// Reads to the end.
    pub(crate) fn read_all(self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match self {
            Self::Raw(mut stream, early) => {
                bytes = early;
                stream.read_to_end(&mut bytes)?;
            }
            Self::Tls(mut tls) => {
                // Like the peers, whose streams end without close_notify.
                match tls.read_to_end(&mut bytes) {
                    Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                        return Err(error);
                    }
                    _ => {}
                }
            }
        }
        Ok(bytes)
    }

    /// Sends the bytes and closes the connection without close_notify.
    pub(crate) fn send_all(self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Raw(mut stream, _) => stream.write_all(bytes),
            Self::Tls(mut tls) => tls.write_all(bytes),
        }
    }
}
