//! The control connection: received bytes become command lines, replies are sent; both are bounded.
//!
//! A client may pipeline commands (globus-url-copy sends the STORs of a whole tree at once). Lines
//! wait here, in order, up to [`HELD_LINES`] lines or [`HELD_BYTES`] bytes (less before the login). Beyond
//! that the socket is not read, and TCP flow control stops the client. An urgent line (ABOR, STAT) is
//! found anywhere among the waiting lines. An urgent line behind more commands than that is read as soon
//! as enough of the commands before it are done; it is never dropped.
//!
//! TLS is below this: the transport begins and ends it. The protection of GSI (RFC 2228 §3) is here: commands
//! inside ENC are decrypted when they are read, since their tokens must be taken in order, and replies are
//! encrypted when they are queued.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use data::transport::ControlTransport;
use proto::command::unwrap_line;
use proto::line::{LineEvent, LineReader};
use proto::reply::Reply;
use proto::security::MAX_TOKEN_LINE;
use security::gsi::{GsiContext, GsiError};
use security::tls::{TlsConfig, TlsEngine};
use tokio::time::timeout;

use crate::files::{ControlSocket, ListingMemoryShare};

/// Limits before the login: a session without a login must cost little.
const BEFORE_LOGIN: InputLimits = InputLimits {
    line: 16 * 1024,
    lines: 64,
    bytes: 16 * 1024,
};

/// Limits after the login.
const AFTER_LOGIN: InputLimits = InputLimits {
    line: MAX_LINE,
    lines: HELD_LINES,
    bytes: HELD_BYTES,
};

/// Limits of the input that a client may send ahead.
#[derive(Debug, Clone, Copy)]
struct InputLimits {
    /// Longest line, bytes.
    line: usize,
    /// Number of waiting lines at which the socket is no longer read.
    lines: usize,
    /// Bytes of waiting lines at which the socket is no longer read.
    bytes: usize,
}

/// Longest command line, bytes: enough for paths of 4 096 bytes (`PATH_MAX`) and for a REST with some
/// thousand ranges.
const MAX_LINE: usize = 64 * 1024;
/// Number of waiting lines at which the socket is no longer read.
const HELD_LINES: usize = 1024;
/// Bytes of waiting lines at which the socket is no longer read.
const HELD_BYTES: usize = 64 * 1024;
/// Bytes per read. The buffer is on the stack during one read, so an idle session owns none.
const READ: usize = 4096;
/// Longest command line inside ENC after the login, bytes: DCSC has a PEM text in base64.
const MAX_PROTECTED_LINE: usize = 96 * 1024;
/// Longest line before the login of a client that has agreed on TLS or GSI, bytes: bearer tokens have up to
/// 16 KiB.
const MAX_SECURED_LINE: usize = 24 * 1024;
/// Largest capacity, bytes, that an idle session keeps for waiting lines and for replies.
const KEPT_CAPACITY: usize = 512;
/// Longest wait of a closing connection for the client to close first. Closing a socket with unread
/// input sends a reset (RFC 2525 section 2.17), which can destroy the last reply on its way.
const LINGER: Duration = Duration::from_secs(1);

/// One client's control connection.
#[derive(Debug)]
pub(crate) struct ServerControlConnection {
    transport: ControlTransport,
    input: InputLimits,
    reader: LineReader,
    held: VecDeque<LineEvent>,
    held_bytes: usize,
    /// The first so many waiting lines were examined and are not urgent.
    examined: usize,
    replies: Vec<u8>,
    /// Memory reserved for listings among the queued replies.
    listing_memory: Vec<ListingMemoryShare>,
    stall: Duration,
    ended: bool,
    /// GSI: protects commands and replies.
    protection: Option<Box<GsiContext>>,
    /// A reply could not be protected: nothing may be sent any more.
    unprotectable: Option<GsiError>,
}

impl ServerControlConnection {
    /// A new connection. `stall`: longest wait of a reply for a client that does not read.
    pub(crate) fn new(transport: ControlTransport, stall: Duration) -> Self {
        Self {
            transport,
            input: BEFORE_LOGIN,
            reader: LineReader::new(BEFORE_LOGIN.line),
            held: VecDeque::new(),
            held_bytes: 0,
            examined: 0,
            replies: Vec::new(),
            listing_memory: Vec::new(),
            stall,
            ended: false,
            protection: None,
            unprotectable: None,
        }
    }

    /// Waits until the client has sent something. Cancel-safe.
    ///
    /// # Errors
    /// The connection failed.
    pub(crate) async fn wait_for_input(&self) -> io::Result<()> {
        self.transport.peer_has_begun().await
    }

    /// Performs the server's side of a TLS handshake. Nothing may be waiting here that was received in the
    /// clear. The caller sets a time limit.
    ///
    /// # Errors
    /// The connection broke, or the client's handshake or certificate is refused
    /// ([`data::transport::tls_error`]).
    pub(crate) async fn start_tls(&mut self, config: &TlsConfig) -> io::Result<()> {
        let begun = self.transport.start_tls(config, None);
        begun.map_err(io::Error::other)?;
        self.transport.complete_handshake().await?;
        self.set_line_limit(MAX_SECURED_LINE);
        Ok(())
    }

    /// The TLS connection, if there is one.
    pub(crate) fn tls(&self) -> Option<&TlsEngine> {
        self.transport.tls()
    }

    /// Protects all later commands and replies with GSI. The replies that are queued already stay in the
    /// clear.
    pub(crate) fn protect(&mut self, context: GsiContext) {
        self.protection = Some(Box::new(context));
        self.set_line_limit(MAX_SECURED_LINE);
    }

    /// Ends TLS or the protection of GSI (CCC): later commands and replies are in the clear. The queued
    /// replies must have been sent.
    ///
    /// # Errors
    /// The connection broke, or the client does not end TLS in time.
    pub(crate) async fn end_protection(&mut self) -> io::Result<()> {
        self.protection = None;
        self.set_line_limit(self.input.line);
        timeout(self.stall, self.transport.end_tls()).await?
    }

    /// Sets the longest command line. Inside ENC it is longer in base64.
    fn set_line_limit(&mut self, bytes: usize) {
        self.input.line = bytes;
        self.reader.set_limit(match self.protection {
            None => bytes,
            Some(_) => (2 * bytes).min(MAX_TOKEN_LINE),
        });
    }

    /// Whether to call [`ServerControlConnection::read`]: the client may send more, and the limits allow
    /// it.
    pub(crate) fn has_input_room(&self) -> bool {
        !self.ended && self.held.len() < self.input.lines && self.held_bytes < self.input.bytes
    }

    /// Allows the client to send more ahead, because it has logged in.
    pub(crate) fn raise_input_limits(&mut self) {
        self.input = AFTER_LOGIN;
        self.set_line_limit(match self.protection {
            None => AFTER_LOGIN.line,
            Some(_) => MAX_PROTECTED_LINE,
        });
    }

    /// Whether the client has closed its side.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether input was read beyond the line that was taken last. Before a security exchange such
    /// input may come from an attacker on the path (command injection, CVE-2011-0411).
    pub(crate) fn has_buffered_input(&self) -> bool {
        !self.held.is_empty() || self.reader.has_partial_line()
    }

    /// A second handle on the socket, with which a transfer's thread checks whether the client is still
    /// connected.
    ///
    /// # Errors
    /// No file descriptor is free.
    pub(crate) fn control_socket(&self) -> io::Result<ControlSocket> {
        ControlSocket::of(self.transport.as_fd())
    }

    /// Waits for input and reads what is there. Cancel-safe.
    ///
    /// # Errors
    /// The connection failed.
    pub(crate) async fn read(&mut self) -> io::Result<()> {
        loop {
            self.transport.readable().await?;
            if self.take_input()? {
                return Ok(());
            }
        }
    }

    /// Reads once; `false` if there was nothing to read after all.
    fn take_input(&mut self) -> io::Result<bool> {
        // See `READ`: a buffer per session would multiply by all idle sessions.
        let mut buffer = [0; READ];
        match self.transport.try_read(&mut buffer) {
            Ok(0) => self.ended = true,
            Ok(n) => {
                let mut lines = Vec::new();
                self.reader.feed(&buffer[..n], &mut lines);
                let lines = self.without_protection(lines);
                self.held_bytes += lines.iter().map(held_size).sum::<usize>();
                self.held.extend(lines);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Removes the protection of GSI from received lines.
    fn without_protection(&mut self, lines: Vec<LineEvent>) -> Vec<LineEvent> {
        let Some(context) = &mut self.protection else {
            return lines;
        };
        let mut plain = Vec::with_capacity(lines.len());
        for line in lines {
            let unwrap = |_, token: &[u8]| {
                context.unwrap(token).inspect_err(|error| {
                    tracing::warn!(%error, "a protected command is forged or damaged");
                })
            };
            unwrap_line(line, self.input.line, unwrap, &mut plain);
        }
        plain
    }

    /// Takes the next line in order.
    pub(crate) fn next_line(&mut self) -> Option<LineEvent> {
        self.examined = 0;
        self.take(0)
    }

    /// Takes the first waiting line that is `urgent`, even during a transfer. Each line is examined once
    /// until the next line is taken in order, so `urgent` must not change its answers before that.
    pub(crate) fn next_urgent(&mut self, urgent: impl Fn(&LineEvent) -> bool) -> Option<LineEvent> {
        // Without `examined` a client that pipelines a thousand lines would make each urgent check
        // scan all of them.
        let found = self.held.iter().skip(self.examined).position(urgent);
        self.examined = found.map_or(self.held.len(), |at| self.examined + at);
        self.take(self.examined)
    }

    fn take(&mut self, at: usize) -> Option<LineEvent> {
        let line = self.held.remove(at)?;
        self.held_bytes -= held_size(&line);
        if self.held.is_empty() && self.held.capacity() > KEPT_CAPACITY / size_of::<LineEvent>() {
            self.held = VecDeque::new();
        }
        Some(line)
    }

    /// Queues a reply for [`ServerControlConnection::flush`].
    pub(crate) fn queue(&mut self, reply: &Reply) {
        tracing::trace!(code = reply.code, text = %reply.for_log(), "reply");
        let Some(context) = &mut self.protection else {
            return reply.encode(&mut self.replies);
        };
        match reply.encode_protected(|line| context.wrap(line)) {
            Ok(bytes) => self.replies.extend_from_slice(&bytes),
            Err(error) => self.unprotectable = Some(error),
        }
    }

    /// Holds the memory of a listing until the reply that is queued next has been sent.
    pub(crate) fn hold_until_sent(&mut self, share: ListingMemoryShare) {
        self.listing_memory.push(share);
    }

    /// Bytes of queued replies.
    pub(crate) fn queued(&self) -> usize {
        self.replies.len()
    }

    /// Sends the queued replies.
    ///
    /// # Errors
    /// The connection failed, or the client read nothing for the stall time, or a reply could not be
    /// protected.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        if let Some(error) = self.unprotectable.take() {
            self.replies.clear();
            return Err(io::Error::other(error));
        }
        if self.replies.is_empty() {
            self.listing_memory = Vec::new();
            return Ok(());
        }
        let mut sent = 0;
        while sent < self.replies.len() {
            match self.transport.try_write(&self.replies[sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => sent += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    timeout(self.stall, self.transport.writable()).await??;
                }
                Err(error) => return Err(error),
            }
        }
        timeout(self.stall, self.transport.flush()).await??;
        self.replies.clear();
        // A large reply must not leave its buffer with an idle session.
        self.replies.shrink_to(KEPT_CAPACITY);
        self.listing_memory = Vec::new();
        Ok(())
    }

    /// Sends the queued replies and closes.
    pub(crate) async fn close(&mut self) {
        if self.flush().await.is_err() || self.transport.shutdown().await.is_err() {
            return;
        }
        // Reading until the client closes avoids the reset; see `LINGER`.
        let _ = timeout(LINGER, async {
            while self.transport.readable().await.is_ok() {
                match self.transport.try_read(&mut [0; READ]) {
                    Ok(0) => return,
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
                    _ => {}
                }
            }
        })
        .await;
    }
}

/// Bytes of a line that count against [`HELD_BYTES`].
fn held_size(line: &LineEvent) -> usize {
    match line {
        LineEvent::Line(bytes) | LineEvent::Protected(bytes) => bytes.len(),
        LineEvent::TooLong | LineEvent::Forged => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// A client and the server's end of its control connection.
    async fn connected() -> (TcpStream, ServerControlConnection) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let transport = ControlTransport::accepted(stream);
        (client, ServerControlConnection::new(transport, LINGER))
    }

    #[tokio::test]
    async fn each_waiting_line_is_examined_once() {
        let (mut client, mut control) = connected().await;
        control.raise_input_limits();
        let asked = Cell::new(0);
        let urgent = |line: &LineEvent| {
            asked.set(asked.get() + 1);
            matches!(line, LineEvent::Line(bytes) if bytes == b"ABOR")
        };
        let lines = "NOOP\r\n".repeat(100) + &"ABOR\r\nQUIT\r\n".repeat(50);
        client.write_all(lines.as_bytes()).await.unwrap();
        let mut taken = 0;
        while taken < 50 {
            control.read().await.unwrap();
            while control.next_urgent(urgent).is_some() {
                taken += 1;
            }
        }
        assert!(asked.get() <= 200, "{}", asked.get());
        // The rest comes in order, from the first line on.
        for expected in [&b"NOOP"[..]; 100].into_iter().chain([&b"QUIT"[..]; 50]) {
            assert_eq!(control.next_line(), Some(LineEvent::Line(expected.into())));
        }
        client.write_all(b"ABOR\r\n").await.unwrap();
        control.read().await.unwrap();
        assert!(control.next_urgent(urgent).is_some());
        assert_eq!(control.next_line(), None);
    }

    #[tokio::test]
    async fn input_behind_a_line_is_noticed() {
        for (bytes, ahead) in [
            (&b"AUTH TLS\r\n"[..], false),
            (b"AUTH TLS\r\nUSER mallory\r\n", true),
            (b"AUTH TLS\r\nUS", true),
        ] {
            let (mut client, mut control) = connected().await;
            client.write_all(bytes).await.unwrap();
            control.read().await.unwrap();
            assert_eq!(
                control.next_line(),
                Some(LineEvent::Line(b"AUTH TLS".into()))
            );
            assert_eq!(control.has_buffered_input(), ahead, "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn little_input_is_held_before_the_login() {
        let (mut client, mut control) = connected().await;
        client.write_all(&b"NOOP\r\n".repeat(5000)).await.unwrap();
        while control.has_input_room() {
            control.read().await.unwrap();
        }
        assert!(control.held.len() <= BEFORE_LOGIN.lines + READ / 6);
        control.raise_input_limits();
        assert!(control.has_input_room());
    }
}
