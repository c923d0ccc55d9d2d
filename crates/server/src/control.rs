//! The control connection: bytes in to lines, replies out, both bounded.
//!
//! A client may send commands ahead (globus-url-copy pipelines the STORs of a whole tree). Lines
//! wait here, in order, up to [`HELD_LINES`] lines or [`HELD_BYTES`] bytes (less before the login); beyond that the socket
//! is not read and TCP holds the client back. An urgent line (ABOR, STAT) is found anywhere among
//! the waiting lines. One that a client sends behind more than that many commands is seen
//! as soon as enough of those before it are done; it is never dropped.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use data::transport::ControlTransport;
use proto::line::{LineEvent, LineReader};
use proto::reply::Reply;
use tokio::time::timeout;

use crate::files::ControlSocket;

/// Bound on lines that wait here before the login: a stranger's session must cost little.
const STRANGER: InputLimits = InputLimits {
    line: 16 * 1024,
    lines: 64,
    bytes: 16 * 1024,
};

/// And after it.
const USER: InputLimits = InputLimits {
    line: MAX_LINE,
    lines: HELD_LINES,
    bytes: HELD_BYTES,
};

/// Bounds on what a client sends ahead.
#[derive(Debug, Clone, Copy)]
struct InputLimits {
    /// Longest line, bytes.
    line: usize,
    /// Lines that wait before the socket is no longer read.
    lines: usize,
    /// Bytes of them, likewise.
    bytes: usize,
}

/// Longest command line, bytes: room for paths of 4 096 bytes and for REST with some thousand
/// ranges.
const MAX_LINE: usize = 64 * 1024;
/// Most lines that wait before the socket is no longer read.
const HELD_LINES: usize = 1024;
/// Most bytes of lines that wait, likewise.
const HELD_BYTES: usize = 64 * 1024;
/// Bytes read at a time. The buffer lives on the stack for the duration of one read: an idle
/// session owns none.
const READ: usize = 4096;
/// Capacity that an idle session may keep for waiting lines and for replies.
const KEPT_CAPACITY: usize = 512;
/// How long a closing connection waits for the client to close first, so that unread input does
/// not turn the last reply into a reset.
const LINGER: Duration = Duration::from_secs(1);

/// One client's control connection.
#[derive(Debug)]
pub(crate) struct ControlConnection {
    transport: ControlTransport,
    input: InputLimits,
    reader: LineReader,
    held: VecDeque<LineEvent>,
    held_bytes: usize,
    /// Lines in front that were looked at since the last one was taken in order: none is urgent.
    searched: usize,
    replies: Vec<u8>,
    stall: Duration,
    ended: bool,
}

impl ControlConnection {
    /// `stall`: how long a reply may wait for a client that does not read.
    pub(crate) fn new(transport: ControlTransport, stall: Duration) -> Self {
        Self {
            transport,
            input: STRANGER,
            reader: LineReader::new(STRANGER.line),
            held: VecDeque::new(),
            held_bytes: 0,
            searched: 0,
            replies: Vec::new(),
            stall,
            ended: false,
        }
    }

    /// Whether [`ControlConnection::read`] is to be called: the client may say more, and there is room.
    pub(crate) fn has_input_room(&self) -> bool {
        !self.ended && self.held.len() < self.input.lines && self.held_bytes < self.input.bytes
    }

    /// The client has logged in: it may send more ahead.
    pub(crate) fn raise_input_limits(&mut self) {
        self.input = USER;
        self.reader.set_limit(USER.line);
    }

    /// The client closed its side.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether more was read than the lines that were taken: before a security exchange, anybody on the
    /// way may have sent it.
    pub(crate) fn has_buffered_input(&self) -> bool {
        !self.held.is_empty() || self.reader.has_partial_line()
    }

    /// To see from elsewhere whether the client is still there.
    ///
    /// # Errors
    /// No more descriptors.
    pub(crate) fn control_socket(&self) -> io::Result<ControlSocket> {
        ControlSocket::of(self.transport.as_fd())
    }

    /// Waits for input and takes what is there. Cancel-safe.
    ///
    /// # Errors
    /// The connection broke.
    pub(crate) async fn read(&mut self) -> io::Result<()> {
        loop {
            self.transport.readable().await?;
            if self.take_input()? {
                return Ok(());
            }
        }
    }

    /// One read; `false` when nothing was there after all.
    fn take_input(&mut self) -> io::Result<bool> {
        let mut buffer = [0; READ];
        match self.transport.try_read(&mut buffer) {
            Ok(0) => self.ended = true,
            Ok(n) => {
                let mut lines = Vec::new();
                self.reader.feed(&buffer[..n], &mut lines);
                self.held_bytes += lines.iter().map(weight).sum::<usize>();
                self.held.extend(lines);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// The next line in order.
    pub(crate) fn next_line(&mut self) -> Option<LineEvent> {
        self.searched = 0;
        self.take(0)
    }

    /// The first waiting line that is `urgent`: taken even during a transfer. Each line is asked about
    /// once, until the next one is taken in order; what is urgent must not change before.
    pub(crate) fn next_urgent(&mut self, urgent: impl Fn(&LineEvent) -> bool) -> Option<LineEvent> {
        let found = self.held.iter().skip(self.searched).position(urgent);
        self.searched = found.map_or(self.held.len(), |at| self.searched + at);
        self.take(self.searched)
    }

    fn take(&mut self, at: usize) -> Option<LineEvent> {
        let line = self.held.remove(at)?;
        self.held_bytes -= weight(&line);
        if self.held.is_empty() && self.held.capacity() > KEPT_CAPACITY / size_of::<LineEvent>() {
            self.held = VecDeque::new();
        }
        Some(line)
    }

    /// Adds a reply to what [`ControlConnection::flush`] sends.
    pub(crate) fn queue(&mut self, reply: &Reply) {
        tracing::trace!(code = reply.code, text = %reply.for_log(), "reply");
        reply.encode(&mut self.replies);
    }

    /// Bytes of replies not yet sent.
    pub(crate) fn queued(&self) -> usize {
        self.replies.len()
    }

    /// Sends queued replies.
    ///
    /// # Errors
    /// The connection broke, or the client read nothing for the stall time.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
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
        self.replies.clear();
        self.replies.shrink_to(KEPT_CAPACITY);
        Ok(())
    }

    /// Sends what is queued and closes.
    pub(crate) async fn close(&mut self) {
        if self.flush().await.is_err() || self.transport.shutdown().await.is_err() {
            return;
        }
        // Whatever still comes is read and dropped, for a moment.
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

/// Weight of a line against [`HELD_BYTES`].
fn weight(line: &LineEvent) -> usize {
    match line {
        LineEvent::Line(bytes) => bytes.len(),
        LineEvent::TooLong => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// A client, and the server's end of its control connection.
    async fn connected() -> (TcpStream, ControlConnection) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let transport = ControlTransport::accepted(stream);
        (client, ControlConnection::new(transport, LINGER))
    }

    #[tokio::test]
    async fn each_waiting_line_is_asked_about_once() {
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
        // In order, and from the first again.
        for expected in [&b"NOOP"[..]; 100].into_iter().chain([&b"QUIT"[..]; 50]) {
            assert_eq!(control.next_line(), Some(LineEvent::Line(expected.into())));
        }
        client.write_all(b"ABOR\r\n").await.unwrap();
        control.read().await.unwrap();
        assert!(control.next_urgent(urgent).is_some());
        assert_eq!(control.next_line(), None);
    }

    #[tokio::test]
    async fn what_was_read_behind_a_line_is_noticed() {
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
    async fn little_of_a_stranger_waits_here() {
        let (mut client, mut control) = connected().await;
        client.write_all(&b"NOOP\r\n".repeat(5000)).await.unwrap();
        while control.has_input_room() {
            control.read().await.unwrap();
        }
        assert!(control.held.len() <= STRANGER.lines + READ / 6);
        control.raise_input_limits();
        assert!(control.has_input_room());
    }
}
