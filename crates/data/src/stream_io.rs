//! One stream at work in a transfer: every wait on the socket can be stopped and notices a stall.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::pipe::SpliceFlags;
use tune::Evidence;

use crate::error::DataError;
use crate::os::tcp_info::{self, TcpInfo};
use crate::os::wake::{self, WakeEvent};
use crate::stream::DataStream;
use crate::transfer::ActiveTransfer;

/// How often a waiting stream looks whether the kernel made progress that no call showed.
const LOOK: Duration = Duration::from_secs(1);

/// First and longest wait between looks at whether the peer has acknowledged everything.
const DRAIN_POLL: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// A stream at work. Dropping it adds its statistics to the transfer.
#[derive(Debug)]
pub(crate) struct StreamIo<'t> {
    transfer: &'t ActiveTransfer,
    stream: Arc<DataStream>,
    before: TcpInfo,
    joined: Instant,
    /// Bytes that the peer had acknowledged when somebody last looked.
    acknowledged: u64,
    wire_time: Duration,
    store_time: Duration,
}

/// End of a wait for input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputResult {
    /// This many bytes came; 0 is the peer's FIN.
    Bytes(usize),
    /// The other event came first.
    Interrupted,
}

impl<'t> StreamIo<'t> {
    pub(crate) fn new(transfer: &'t ActiveTransfer, stream: Arc<DataStream>) -> Self {
        let before = tcp_info::tcp_info(stream.as_fd()).unwrap_or_default();
        stream.note_acknowledged_before(before.bytes_acked);
        transfer.control().attach(&stream);
        transfer.on_stream_start();
        Self {
            before,
            joined: Instant::now(),
            transfer,
            stream,
            acknowledged: before.bytes_acked,
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

    /// Waits until the connection's handshake is over, before any byte of it. At once where there is
    /// none, or was one in a transfer before. To be called in the thread that serves the connection.
    pub(crate) fn handshake(&mut self) -> Result<(), DataError> {
        loop {
            self.transfer.check()?;
            match self.stream.transport().handshake() {
                Ok(None) => return Ok(()),
                Ok(Some(ready)) => {
                    self.wait(ready, None)?;
                }
                Err(e) => return Err(self.wire_error(e)),
            }
        }
    }

    /// Sends all of `header` and `bytes`; with `more`, the kernel may wait for what follows.
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
                IoSlice::new(header.get(sent..).unwrap_or_default()),
                IoSlice::new(&bytes[sent.saturating_sub(header.len())..]),
            ];
            sent += self.run_when_ready(PollFlags::OUT, |s| s.transport().send(&parts, more))?;
        }
        Ok(())
    }

    /// Sends from a file; 0 means that the file has ended at `offset`.
    pub(crate) fn send_file(
        &mut self,
        file: BorrowedFd<'_>,
        mut offset: u64,
        len: usize,
    ) -> Result<usize, DataError> {
        self.run_when_ready(PollFlags::OUT, |s| {
            let socket = s.transport().kernel_socket()?;
            Ok(rustix::fs::sendfile(socket, file, Some(&mut offset), len)?)
        })
    }

    /// Moves up to `len` bytes from a pipe that holds them to the socket.
    pub(crate) fn splice_out(
        &mut self,
        pipe: BorrowedFd<'_>,
        len: usize,
        more: bool,
    ) -> Result<usize, DataError> {
        let more = if more {
            SpliceFlags::MORE
        } else {
            SpliceFlags::empty()
        };
        self.run_when_ready(PollFlags::OUT, |s| {
            let flags = SpliceFlags::MOVE | more;
            let socket = s.transport().kernel_socket()?;
            Ok(rustix::pipe::splice(pipe, None, socket, None, len, flags)?)
        })
    }

    /// Receives what is there, waiting for the first byte; 0 is the peer's FIN.
    pub(crate) fn recv(&mut self, buf: &mut [u8]) -> Result<usize, DataError> {
        self.run_when_ready(PollFlags::IN, |s| recv(s, buf))
    }

    /// As [`StreamIo::recv`], for bytes that are no progress by themselves: headers, and what is
    /// skipped. Whoever takes them looks at the clock ([`StreamIo::check_clock`]) if nothing better
    /// follows.
    pub(crate) fn recv_no_progress(&mut self, buf: &mut [u8]) -> Result<usize, DataError> {
        self.until_done(PollFlags::IN, |s| recv(s, buf))
    }

    /// As [`StreamIo::recv_no_progress`], but `other` ends the wait too while nothing has come.
    pub(crate) fn recv_or_wake(
        &mut self,
        buf: &mut [u8],
        other: &WakeEvent,
    ) -> Result<InputResult, DataError> {
        let begin = Instant::now();
        let input = loop {
            self.transfer.check()?;
            match recv(&self.stream, buf) {
                Ok(n) => break InputResult::Bytes(n),
                Err(e) => self.ignore_would_block(e)?,
            }
            if self.wait(PollFlags::IN, Some(other))? {
                break InputResult::Interrupted;
            }
        };
        self.wire_time += begin.elapsed();
        Ok(input)
    }

    /// Moves up to `len` bytes from the socket into an empty pipe; 0 is the peer's FIN.
    pub(crate) fn splice_in(
        &mut self,
        pipe: BorrowedFd<'_>,
        len: usize,
    ) -> Result<usize, DataError> {
        self.run_when_ready(PollFlags::IN, |s| {
            let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
            let socket = s.transport().kernel_socket()?;
            Ok(rustix::pipe::splice(socket, None, pipe, None, len, flags)?)
        })
    }

    /// Work at this end that may take long and is not the wire's fault (a disk, a hash).
    pub(crate) fn store<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let hold = self.transfer.clock().pause();
        let done = work();
        drop(hold);
        self.store_time += begin.elapsed();
        done
    }

    /// Sends FIN and waits until the peer's kernel has acknowledged every byte or the peer closed
    /// its side, so that success means arrival.
    pub(crate) fn finish_sending(&mut self) -> Result<(), DataError> {
        let _ = self.stream.transport().end_sending();
        let mut pause = DRAIN_POLL.0;
        let mut events = PollFlags::IN;
        let mut rest = [0; 4096];
        loop {
            match recv(&self.stream, &mut rest) {
                // The peer may close its side long before it has read everything.
                Ok(0) => events = PollFlags::empty(),
                Ok(_) => {}
                Err(e) => self.ignore_would_block(e)?,
            }
            if self.acknowledged()? {
                return Ok(());
            }
            self.transfer.check()?;
            self.check_stall()?;
            let fds = [
                (self.stream.as_fd(), events),
                (self.transfer.stop_wake().as_fd(), PollFlags::IN),
            ];
            wake::wait(fds, pause).map_err(|e| self.wire_error(e))?;
            pause = (pause * 2).min(DRAIN_POLL.1);
        }
    }

    /// Runs `op` on the socket, waiting for `ready` whenever it would block. That it is done is
    /// progress of the transfer.
    pub(crate) fn run_when_ready<T>(
        &mut self,
        ready: PollFlags,
        op: impl FnMut(&DataStream) -> io::Result<T>,
    ) -> Result<T, DataError> {
        let done = self.until_done(ready, op)?;
        self.transfer.clock().note_progress();
        Ok(done)
    }

    fn until_done<T>(
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
            self.wait(ready, None)?;
        };
        self.wire_time += begin.elapsed();
        Ok(done)
    }

    /// Waits for the socket, for a stop, or for `other`; true if `other` came.
    fn wait(&mut self, ready: PollFlags, other: Option<&WakeEvent>) -> Result<bool, DataError> {
        self.check_stall()?;
        let stop = self.transfer.stop_wake();
        let fds = [
            (self.stream.as_fd(), ready),
            (stop.as_fd(), PollFlags::IN),
            (other.unwrap_or(stop).as_fd(), PollFlags::IN),
        ];
        let timeout = self.transfer.clock().time_left().min(LOOK);
        let [_, _, interrupted] = wake::wait(fds, timeout).map_err(|e| self.wire_error(e))?;
        self.transfer.check()?;
        Ok(interrupted && other.is_some())
    }

    /// [`DataError::Stalled`] if nothing moved for the limit. A call that fills a large buffer
    /// over a slow path may take long; bytes the peer acknowledged meanwhile count as moved. What it
    /// sent does not: payload is counted when it is read, and all else is no progress.
    fn check_stall(&mut self) -> Result<(), DataError> {
        if let Ok(info) = tcp_info::tcp_info(self.stream.as_fd())
            && info.bytes_acked != self.acknowledged
        {
            self.acknowledged = info.bytes_acked;
            self.transfer.clock().note_progress();
        }
        self.check_clock()
    }

    /// [`DataError::Stalled`] if nothing moved for the limit.
    pub(crate) fn check_clock(&self) -> Result<(), DataError> {
        let clock = self.transfer.clock();
        if clock.time_left().is_zero() {
            let seconds = clock.limit_seconds();
            return Err(DataError::Stalled { seconds });
        }
        Ok(())
    }

    /// Whether our FIN, and so every byte before it, is acknowledged.
    fn acknowledged(&self) -> Result<bool, DataError> {
        let info = tcp_info::tcp_info(self.stream.as_fd()).map_err(|e| self.wire_error(e))?;
        // A reset closes the connection too, and leaves its error.
        if let Ok(Some(error)) = self.stream.transport().socket().take_error() {
            return Err(self.wire_error(error));
        }
        Ok(!matches!(
            info.state,
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

    /// The error of a connection that broke.
    pub(crate) fn wire_error(&self, source: io::Error) -> DataError {
        DataError::Wire {
            peer: self.stream.peer().to_string(),
            source,
        }
    }

    /// This stream's part of the evidence.
    fn accounts(&self) -> Evidence {
        Evidence {
            store_time: self.store_time,
            wire_time: self.wire_time,
            ..stream_evidence(&self.stream, &self.before, self.joined)
        }
    }
}

/// The kernel's accounts of a stream that has been at work since `joined`, when it showed `before`.
pub(crate) fn stream_evidence(stream: &DataStream, before: &TcpInfo, joined: Instant) -> Evidence {
    let now = tcp_info::tcp_info(stream.as_fd()).unwrap_or_default();
    let memory = tcp_info::socket_memory(stream.as_fd()).unwrap_or_default();
    let us = Duration::from_micros;
    Evidence {
        retransmits: now
            .total_retrans
            .saturating_sub(before.total_retrans)
            .into(),
        // The kernel shows "unknown" as all ones.
        min_rtt: if now.min_rtt_us == u32::MAX {
            Duration::ZERO
        } else {
            us(now.min_rtt_us.into())
        },
        smoothed_rtt: us(now.rtt_us.into()),
        // The other direction carries acknowledgements; its buffer says nothing.
        buffer_bytes: if sends(&now) {
            memory.sndbuf.into()
        } else {
            memory.rcvbuf.into()
        },
        busy_time: us(now.busy_us.saturating_sub(before.busy_us)),
        rwnd_limited: us(now.rwnd_limited_us.saturating_sub(before.rwnd_limited_us)),
        sndbuf_limited: us(now
            .sndbuf_limited_us
            .saturating_sub(before.sndbuf_limited_us)),
        stream_time: joined.elapsed(),
        ..Evidence::default()
    }
}

impl Drop for StreamIo<'_> {
    fn drop(&mut self) {
        let now = tcp_info::tcp_info(self.stream.as_fd()).unwrap_or_default();
        self.transfer.add_stream(&self.accounts());
        self.transfer.control().detach(&self.stream);
        let acknowledged = now.bytes_acked.saturating_sub(self.before.bytes_acked);
        self.transfer.on_stream_end(acknowledged);
        self.transfer.note_congestion(self.stream.congestion());
    }
}

/// Whether a connection has carried more away from this end than to it.
fn sends(info: &TcpInfo) -> bool {
    // Linux before 4.19 does not count what was sent. What was acknowledged has the SYN in it.
    let sent = info.bytes_sent.max(info.bytes_acked.saturating_sub(1));
    sent > info.bytes_received
}

fn recv(stream: &DataStream, buf: &mut [u8]) -> io::Result<usize> {
    stream.transport().recv(buf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sends_shows_on_old_kernels_too() {
        let counts = |bytes_sent, bytes_acked, bytes_received| TcpInfo {
            bytes_sent,
            bytes_acked,
            bytes_received,
            ..TcpInfo::default()
        };
        assert!(sends(&counts(500, 1, 0)));
        assert!(sends(&counts(0, 501, 20)));
        assert!(!sends(&counts(0, 1, 0)));
        assert!(!sends(&counts(0, 1, 500)));
        assert!(!sends(&counts(20, 21, 500)));
    }
}
