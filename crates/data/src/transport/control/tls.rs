//! TLS on a control connection. Nothing here owns a socket: every call gets the connection's.

use std::io;
use std::sync::LazyLock;
use std::thread::available_parallelism;

use security::tls::{Handshake, ReadResult, TlsEngine, TlsError};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

use super::socket::TransportSocket;

/// Most plain bytes that one call encrypts: one record (RFC 8446 §5.1). It bounds what waits for room
/// in the socket.
const MAX_PART: usize = 16 << 10;

/// Content types of TLS records (RFC 8446 §5.1). No command or reply begins with such a byte.
const CONTENT_TYPES: std::ops::RangeInclusive<u8> = 20..=23;

/// Length of a record's header, bytes.
const RECORD_HEADER: usize = 5;

/// Handshake steps that may compute at once, one per processor: more would take the threads that other
/// work waits for, and none of them would be faster.
static HANDSHAKE_STEPS: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(available_parallelism().map_or(1, usize::from)));

/// The TLS of one control connection.
#[derive(Debug)]
pub(super) struct ControlTls {
    engine: TlsEngine,
    is_complete: bool,
    /// The engine may return bytes although the socket has none.
    may_have_input: bool,
    /// The peer has ended its direction.
    has_ended: bool,
    /// Why the own direction is closed. What waits for room then waits in vain, while the socket counts as writable.
    write_error: Option<io::ErrorKind>,
}

impl ControlTls {
    /// Before the handshake.
    pub(super) fn new(engine: TlsEngine) -> Self {
        Self {
            engine,
            is_complete: false,
            may_have_input: false,
            has_ended: false,
            write_error: None,
        }
    }

    pub(super) fn engine(&self) -> &TlsEngine {
        &self.engine
    }

    /// Whether a read returns at once, whatever the socket has.
    pub(super) fn has_input(&self) -> bool {
        self.may_have_input || self.has_ended
    }

    /// Whether bytes wait for room in the socket.
    pub(super) fn has_backlog(&self) -> bool {
        self.write_error.is_none() && !self.engine.outgoing().is_empty()
    }

    /// See [`super::ControlTransport::complete_handshake`].
    pub(super) async fn complete_handshake(&mut self, stream: &TransportSocket) -> io::Result<()> {
        while !self.is_complete {
            let progress = match self.handshake_step().await {
                Ok(progress) => progress,
                Err(error) => return Err(self.fail(stream, error)),
            };
            self.flush(stream).await?;
            if progress == Handshake::Complete {
                self.is_complete = true;
                // Bytes may have come together with the end of the handshake.
                self.may_have_input = true;
                return Ok(());
            }
            stream.readable().await?;
            match self.receive(stream) {
                Ok(0) => {
                    let reason = "the peer closed the connection during the TLS handshake";
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason));
                }
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Continues the handshake as far as the received bytes allow. A private operation takes milliseconds,
    /// or waits for the process that holds the key, so other tasks move to other threads meanwhile.
    async fn handshake_step(&mut self) -> Result<Handshake, TlsError> {
        // Closed never: without a permit the step would only be less bounded.
        let _permit = HANDSHAKE_STEPS.acquire().await;
        match Handle::current().runtime_flavor() {
            RuntimeFlavor::MultiThread => tokio::task::block_in_place(|| self.engine.handshake()),
            // A runtime with one thread has no other.
            _ => self.engine.handshake(),
        }
    }

    /// See [`super::ControlTransport::try_read`].
    pub(super) fn try_read(
        &mut self,
        stream: &TransportSocket,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        // An error of the other direction shows again when something is written.
        let _ = self.send_backlog(stream);
        while !self.has_ended {
            let read = self.engine.read(buffer);
            self.may_have_input = matches!(read, Ok(ReadResult::Bytes(_)));
            match read {
                Ok(ReadResult::Bytes(count)) => return Ok(count),
                Ok(ReadResult::NeedsInput) => self.has_ended = self.receive(stream)? == 0,
                Ok(ReadResult::Closed) => self.has_ended = true,
                Err(error) => return Err(self.fail(stream, error)),
            }
        }
        Ok(0)
    }

    /// See [`super::ControlTransport::try_write`].
    pub(super) fn try_write(
        &mut self,
        stream: &TransportSocket,
        bytes: &[u8],
    ) -> io::Result<usize> {
        // Nothing is taken before the last record has left, so at most one waits.
        self.send_backlog(stream)?;
        let part = &bytes[..bytes.len().min(MAX_PART)];
        if part.is_empty() {
            return Ok(0);
        }
        self.engine.write(part).map_err(error_of_tls)?;
        match self.send_backlog(stream) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(part.len()),
        }
    }

    /// Hands the encrypted bytes to the socket.
    ///
    /// # Errors
    /// `WouldBlock`: some do not fit now. Others are final, and a later call returns them again.
    pub(super) fn send_backlog(&mut self, stream: &TransportSocket) -> io::Result<()> {
        while self.has_backlog() {
            match stream.try_write(self.engine.outgoing()) {
                Ok(0) => self.write_error = Some(io::ErrorKind::WriteZero),
                Ok(sent) => self.engine.mark_sent(sent),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                Err(error) => {
                    self.write_error = Some(error.kind());
                    return Err(error);
                }
            }
        }
        match self.write_error {
            Some(kind) => Err(kind.into()),
            None => Ok(()),
        }
    }

    /// Encrypts without sending.
    #[cfg(test)]
    pub(super) fn encrypt(&mut self, bytes: &[u8]) {
        self.engine.write(bytes).unwrap();
    }

    /// Queues close_notify.
    pub(super) fn queue_close(&mut self) {
        if self.is_complete {
            // A connection that has failed has nothing more to say.
            let _ = self.engine.close();
        }
    }

    /// See [`super::ControlTransport::end_tls`].
    pub(super) async fn end(&mut self, stream: &TransportSocket) -> io::Result<()> {
        self.queue_close();
        self.flush(stream).await?;
        while !self.has_ended && !self.read_close()? {
            // Record by record: bytes behind the last one are in the clear.
            let mut first = [0];
            if stream.peek(&mut first).await? == 0 || !CONTENT_TYPES.contains(&first[0]) {
                return Ok(());
            }
            let mut header = [0; RECORD_HEADER];
            read_exactly(stream, &mut header).await?;
            let mut body = vec![0; usize::from(u16::from_be_bytes([header[3], header[4]]))];
            read_exactly(stream, &mut body).await?;
            self.engine.receive(&header);
            self.engine.receive(&body);
        }
        match self.engine.unprocessed() {
            0 => Ok(()),
            _ => Err(unexpected_input()),
        }
    }

    /// Whether the peer's close_notify has come.
    fn read_close(&mut self) -> io::Result<bool> {
        match self.engine.read(&mut [0; 1]).map_err(error_of_tls)? {
            ReadResult::Closed => Ok(true),
            ReadResult::NeedsInput => Ok(false),
            ReadResult::Bytes(_) => Err(unexpected_input()),
        }
    }

    /// Receives once; 0 is the peer's FIN.
    fn receive(&mut self, stream: &TransportSocket) -> io::Result<usize> {
        self.engine.receive_with(|space| stream.try_read(space))
    }

    async fn flush(&mut self, stream: &TransportSocket) -> io::Result<()> {
        loop {
            match self.send_backlog(stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    stream.writable().await?;
                }
                done => return done,
            }
        }
    }

    /// Sends the alert that explains the failure, as far as it fits.
    fn fail(&mut self, stream: &TransportSocket, error: TlsError) -> io::Error {
        let _ = self.send_backlog(stream);
        error_of_tls(error)
    }
}

/// The error of TLS as an error of the connection; see [`super::tls_error`].
fn error_of_tls(error: TlsError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn unexpected_input() -> io::Error {
    let reason = "protected bytes came after the command that ends the protection";
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

async fn read_exactly(stream: &TransportSocket, mut rest: &mut [u8]) -> io::Result<()> {
    while !rest.is_empty() {
        stream.readable().await?;
        match stream.try_read(rest) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => rest = &mut rest[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
