//! One stream in use by a transfer: every wait on its socket can be cancelled, and detects a stall.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use tune::Evidence;
use tune::limiter::Role;
use tune::sample::TcpSample;

use crate::error::DataError;
use crate::os::wake::{self, WakeEvent};
use crate::os::{sending, splice, tcp_info};
use crate::security::ProtectionError;
use crate::stream::DataStream;
use crate::tls_handshake::complete_handshake;
use crate::transfer::ActiveTransfer;

/// How often a waiting stream checks for progress that no call returned.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Time for a TLS peer behind a proxy to end its side after it was told the end. One that reads
/// slowly may take longer, and then only the proxy decides whether it gets everything.
const TUNNELLED_END_WAIT: Duration = Duration::from_secs(10);

/// First and longest interval between checks whether the peer has acknowledged everything.
const ACK_POLL: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// A stream in use. Dropping it adds its statistics to the transfer.
#[derive(Debug)]
pub(crate) struct StreamIo<'t> {
    transfer: &'t ActiveTransfer,
    stream: Arc<DataStream>,
    initial: TcpSample,
    joined: Instant,
    /// Bytes that the peer had acknowledged at the last check.
    acknowledged: u64,
    wire_time: Duration,
    store_time: Duration,
}

/// The result of a wait for input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputResult {
    /// This many bytes arrived; 0 is the peer's FIN.
    Bytes(usize),
    /// The other event came first.
    Interrupted,
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SocketWait {
    Ready,
    /// One of the other events came, and the socket is not ready.
    Other,
    /// Neither: the caller checks whether to go on.
    Time,
}

impl<'t> StreamIo<'t> {
    pub(crate) fn new(transfer: &'t ActiveTransfer, stream: Arc<DataStream>) -> Self {
        // A kept connection has counters from earlier transfers; only differences count.
        let initial = tcp_info::tcp_info(stream.as_fd()).unwrap_or_default();
        stream.note_acknowledged_before(initial.bytes_acked);
        transfer.control().attach(&stream);
        transfer.on_stream_start();
        Self {
            initial,
            joined: Instant::now(),
            transfer,
            stream,
            acknowledged: initial.bytes_acked,
            wire_time: Duration::ZERO,
            store_time: Duration::ZERO,
        }
    }

    pub(crate) fn transfer(&self) -> &'t ActiveTransfer {
        self.transfer
    }

    pub(crate) fn stream(&self) -> &Arc<DataStream> {
        &self.stream
    }

    /// Waits until the connection's handshake is complete, before the first byte. Returns at once
    /// if there is none, or if an earlier transfer completed it. Call it in the thread that serves
    /// the connection.
    pub(crate) fn handshake(&self) -> Result<(), DataError> {
        complete_handshake(self.transfer, &self.stream, None).map(drop)
    }

    /// Sends all of `header` and `bytes`. With `more`, the kernel may wait for the bytes that
    /// follow (MSG_MORE).
    pub(crate) fn send_all(
        &mut self,
        header: &[u8],
        bytes: &[u8],
        more: bool,
    ) -> Result<(), DataError> {
        let total = header.len() + bytes.len();
        let mut sent = 0;
        while sent < total {
            let parts = [
                // `get`: the header may be sent already.
                IoSlice::new(header.get(sent..).unwrap_or_default()),
                IoSlice::new(&bytes[sent.saturating_sub(header.len())..]),
            ];
            sent += self.run_when_ready(PollFlags::OUT, |s| s.transport().send(&parts, more))?;
        }
        // Bytes count as sent once the kernel has them: an end mark must not stay behind.
        if self.stream.transport().has_backlog() {
            self.run_when_ready(PollFlags::OUT, |s| s.transport().flush())?;
        }
        Ok(())
    }

    /// Sends from a file. Returns 0 when the file ends at `offset`.
    pub(crate) fn send_file(
        &mut self,
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> Result<usize, DataError> {
        let watch = self.transfer.control().store_watch();
        self.run_when_ready(PollFlags::OUT, |s| {
            let socket = s.transport().kernel_socket()?;
            // The socket never blocks.
            let _pending = watch.begin();
            sending::send_file(socket.as_fd(), file, offset, len)
        })
    }

    /// Moves up to `len` bytes from a pipe that holds them to the socket.
    pub(crate) fn splice_out(
        &mut self,
        pipe: BorrowedFd<'_>,
        len: usize,
        more: bool,
    ) -> Result<usize, DataError> {
        self.run_when_ready(PollFlags::OUT, |s| {
            let socket = s.transport().kernel_socket()?;
            splice::pipe_to_socket(pipe, socket.as_fd(), len, more)
        })
    }

    /// Receives the available bytes, and waits for the first one. 0 is the peer's FIN.
    pub(crate) fn recv(&mut self, buf: &mut [u8]) -> Result<usize, DataError> {
        self.run_when_ready(PollFlags::IN, |s| recv(s, buf))
    }

    /// As [`StreamIo::recv`], for bytes that are no progress by themselves: headers and discarded
    /// bytes. The caller checks the clock ([`StreamIo::check_clock`]) if no progress follows.
    pub(crate) fn recv_no_progress(&mut self, buf: &mut [u8]) -> Result<usize, DataError> {
        self.run_until_done(PollFlags::IN, |s| recv(s, buf))
    }

    /// As [`StreamIo::recv_no_progress`], where the end is due: nothing can be cut off, so that it needs no close_notify.
    pub(crate) fn recv_due_end(&mut self, buf: &mut [u8]) -> Result<usize, DataError> {
        self.run_until_done(PollFlags::IN, |s| match recv(s, buf) {
            Err(error) if ProtectionError::is_missing_close(&error) => Ok(0),
            received => received,
        })
    }

    /// As [`StreamIo::recv_no_progress`], but either of `others` ends the wait, too, while nothing has come.
    pub(crate) fn recv_or_wake(
        &mut self,
        buf: &mut [u8],
        others: [&WakeEvent; 2],
    ) -> Result<InputResult, DataError> {
        let begin = Instant::now();
        let input = loop {
            self.transfer.check()?;
            match recv(&self.stream, buf) {
                // Read first: bytes that have arrived need no wait.
                Ok(n) => break InputResult::Bytes(n),
                Err(e) => self.ignore_would_block(e)?,
            }
            if self.wait(PollFlags::IN, others)? == SocketWait::Other {
                break InputResult::Interrupted;
            }
        };
        self.wire_time += begin.elapsed();
        Ok(input)
    }

    /// Waits until the socket has input, the peer's FIN, or an error; false if `other` came before. Only for a connection
    /// without a layer that may hold bytes.
    pub(crate) fn wait_for_input(&mut self, other: &WakeEvent) -> Result<bool, DataError> {
        let begin = Instant::now();
        let end = loop {
            match self.wait(PollFlags::IN, [other; 2])? {
                SocketWait::Time => {}
                end => break end,
            }
        };
        self.wire_time += begin.elapsed();
        Ok(end == SocketWait::Ready)
    }

    /// Moves up to `len` bytes from the socket into an empty pipe. Returns 0 at the peer's FIN.
    pub(crate) fn splice_in(
        &mut self,
        pipe: BorrowedFd<'_>,
        len: usize,
    ) -> Result<usize, DataError> {
        self.run_when_ready(PollFlags::IN, |s| {
            let socket = s.transport().kernel_socket()?;
            splice::socket_to_pipe(socket.as_fd(), pipe, len)
        })
    }

    /// Runs work at this end that may take long and is not caused by the wire (a disk, a checksum).
    pub(crate) fn run_local<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let pause_guard = self.transfer.clock().pause();
        let pending = self.transfer.control().store_watch().begin();
        let done = work();
        drop(pending);
        drop(pause_guard);
        self.store_time += begin.elapsed();
        done
    }

    /// Sends FIN and waits until the peer's kernel has acknowledged every byte, so that success
    /// means arrival.
    pub(crate) fn finish_sending(&mut self) -> Result<(), DataError> {
        if self.stream.is_tunnelled() {
            self.await_peer_end()?;
        }
        self.run_until_done(PollFlags::OUT, |s| match s.transport().end_sending() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(e),
            // Another error shows again when the acknowledgements are checked.
            _ => Ok(()),
        })?;
        let mut pause = ACK_POLL.0;
        let mut events = PollFlags::IN;
        let mut rest = [0; 4096];
        loop {
            match recv(&self.stream, &mut rest) {
                // The peer may close its side long before it has read everything; polling for input
                // would then return at once.
                Ok(0) => events = PollFlags::empty(),
                // Nothing of the file was to come from there.
                Err(e) if ProtectionError::is_missing_close(&e) => events = PollFlags::empty(),
                // Bytes of the peer are unexpected in this direction and discarded.
                Ok(_) => {}
                Err(e) => self.ignore_would_block(e)?,
            }
            if self.is_fin_acknowledged()? {
                return Ok(());
            }
            self.transfer.check()?;
            self.check_stall()?;
            let fds = [
                (self.stream.as_fd(), events),
                (self.transfer.stop_wake().as_fd(), PollFlags::IN),
            ];
            wake::wait(fds, pause).map_err(|e| self.wire_error(e))?;
            // Short waits first for near peers, then longer ones for distant peers.
            pause = (pause * 2).min(ACK_POLL.1);
        }
    }

    /// Ends the sending by close_notify, and waits a limited time for the peer's end. Many proxies
    /// close both directions at the first FIN: a TLS server that then still sends its session tickets
    /// (RFC 8446 §4.6.1) is reset, and with it what it has not read.
    fn await_peer_end(&mut self) -> Result<(), DataError> {
        let is_answered =
            self.run_until_done(PollFlags::OUT, |s| match s.transport().announce_end() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(e),
                // Another error shows again when the acknowledgements are checked.
                announced => Ok(announced.unwrap_or(false)),
            })?;
        if !is_answered {
            return Ok(());
        }
        // At most a part of the stall time: what is acknowledged later must still count as progress.
        let patience = TUNNELLED_END_WAIT.min(self.transfer.clock().time_left() / 2);
        let until = Instant::now() + patience;
        let mut rest = [0; 4096];
        loop {
            match recv(&self.stream, &mut rest) {
                Ok(0) => return Ok(()),
                Err(e) if ProtectionError::is_missing_close(&e) => return Ok(()),
                // Bytes of the peer are unexpected in this direction and discarded.
                Ok(_) => {}
                Err(e) => self.ignore_would_block(e)?,
            }
            self.transfer.check()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let fds = [
                (self.stream.as_fd(), PollFlags::IN),
                (self.transfer.stop_wake().as_fd(), PollFlags::IN),
            ];
            wake::wait(fds, left.min(MAX_WAIT)).map_err(|e| self.wire_error(e))?;
        }
    }

    /// Runs `op` on the socket, and waits for `ready` whenever it would block. Its completion is
    /// progress of the transfer.
    pub(crate) fn run_when_ready<T>(
        &mut self,
        ready: PollFlags,
        op: impl FnMut(&DataStream) -> io::Result<T>,
    ) -> Result<T, DataError> {
        let done = self.run_until_done(ready, op)?;
        self.transfer.clock().note_progress();
        Ok(done)
    }

    fn run_until_done<T>(
        &mut self,
        ready: PollFlags,
        mut op: impl FnMut(&DataStream) -> io::Result<T>,
    ) -> Result<T, DataError> {
        let begin = Instant::now();
        let done = loop {
            self.transfer.check()?;
            match op(&self.stream) {
                Ok(done) => break done,
                Err(e) => self.ignore_would_block(e)?,
            }
            let stop = self.transfer.stop_wake();
            self.wait(ready, [stop; 2])?;
        };
        self.wire_time += begin.elapsed();
        Ok(done)
    }

    /// Waits for the socket, for a stop, or for one of `others`.
    fn wait(&mut self, ready: PollFlags, others: [&WakeEvent; 2]) -> Result<SocketWait, DataError> {
        self.check_stall()?;
        let [first, second] = others;
        let fds = [
            (self.stream.as_fd(), ready),
            (self.transfer.stop_wake().as_fd(), PollFlags::IN),
            (first.as_fd(), PollFlags::IN),
            (second.as_fd(), PollFlags::IN),
        ];
        // At least once a second, because acknowledgements wake no thread.
        let timeout = self.transfer.clock().time_left().min(MAX_WAIT);
        let [is_ready, _, first, second] =
            wake::wait(fds, timeout).map_err(|e| self.wire_error(e))?;
        self.transfer.check()?;
        Ok(match (is_ready, first || second) {
            (true, _) => SocketWait::Ready,
            (false, true) => SocketWait::Other,
            (false, false) => SocketWait::Time,
        })
    }

    /// Fails with [`DataError::Stalled`] if nothing moved for the stall time. A call that fills a
    /// large buffer over a slow path may take long; bytes that the peer acknowledged meanwhile
    /// count as progress. Bytes from the peer do not: payload counts when it is read, and nothing
    /// else is progress.
    fn check_stall(&mut self) -> Result<(), DataError> {
        if let Ok(info) = tcp_info::tcp_info(self.stream.as_fd())
            && info.bytes_acked != self.acknowledged
        {
            self.acknowledged = info.bytes_acked;
            self.transfer.clock().note_progress();
        }
        self.check_clock()
    }

    /// Fails with [`DataError::Stalled`] if nothing moved for the stall time.
    pub(crate) fn check_clock(&self) -> Result<(), DataError> {
        let clock = self.transfer.clock();
        if clock.time_left().is_zero() {
            let seconds = clock.limit_seconds();
            return Err(DataError::Stalled { seconds });
        }
        Ok(())
    }

    /// Whether our FIN, and so every byte before it, is acknowledged.
    fn is_fin_acknowledged(&self) -> Result<bool, DataError> {
        let state = tcp_info::tcp_state(self.stream.as_fd()).map_err(|e| self.wire_error(e))?;
        // A reset closes the connection, too, and leaves an error.
        if let Ok(Some(error)) = self.stream.transport().socket().take_error() {
            return Err(self.wire_error(error));
        }
        // Any later state means that our FIN was acknowledged (RFC 9293 §3.3.2).
        Ok(!matches!(
            state,
            tcp_info::ESTABLISHED
                | tcp_info::FIN_WAIT1
                | tcp_info::CLOSE_WAIT
                | tcp_info::CLOSING
                | tcp_info::LAST_ACK
        ))
    }

    fn ignore_would_block(&self, error: io::Error) -> Result<(), DataError> {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(()),
            _ => Err(self.wire_error(error)),
        }
    }

    /// The error of a broken connection.
    pub(crate) fn wire_error(&self, source: io::Error) -> DataError {
        DataError::wire(self.stream.peer(), source)
    }

    /// This stream's part of the evidence.
    fn evidence(&self) -> Evidence {
        Evidence {
            store_time: self.store_time,
            wire_time: self.wire_time,
            ..stream_evidence(&self.stream, &self.initial, self.joined)
        }
    }
}

/// The evidence of a stream since `joined`, when its counters were `initial`.
pub(crate) fn stream_evidence(
    stream: &DataStream,
    initial: &TcpSample,
    joined: Instant,
) -> Evidence {
    let mut now = tcp_info::tcp_info(stream.as_fd()).unwrap_or_default();
    // A broken socket reports no memory: its buffers stay zero.
    let _ = tcp_info::add_socket_memory(stream.as_fd(), &mut now);
    let role = now.role().unwrap_or(Role::Receiver);
    let stats = now.since(initial, role);
    Evidence {
        retransmits: now.retransmits.saturating_sub(initial.retransmits),
        min_rtt: now.min_rtt,
        smoothed_rtt: now.smoothed_rtt,
        // The other direction carries only acknowledgements, so its buffer is irrelevant.
        buffer_bytes: match role {
            Role::Sender => now.send_buffer,
            Role::Receiver => now.receive_buffer,
        },
        busy_time: stats.busy_time,
        rwnd_limited: stats.rwnd_limited,
        sndbuf_limited: stats.sndbuf_limited,
        stream_time: joined.elapsed(),
        ..Evidence::default()
    }
}

impl Drop for StreamIo<'_> {
    fn drop(&mut self) {
        // Read before the stream leaves the transfer, while the counters are its own.
        let now = tcp_info::tcp_info(self.stream.as_fd()).unwrap_or_default();
        self.transfer.add_stream(&self.evidence());
        self.transfer.control().detach(&self.stream);
        let acknowledged = now.bytes_acked.saturating_sub(self.initial.bytes_acked);
        self.transfer.on_stream_end(acknowledged);
        self.transfer.note_congestion(self.stream.congestion());
    }
}

fn recv(stream: &DataStream, buf: &mut [u8]) -> io::Result<usize> {
    stream.transport().recv(buf)
}
