//! Sending with MSG_ZEROCOPY: a ring of buffers, each unused until the kernel has released it.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use crate::buffer::PageBuffer;
use crate::error::DataError;
use crate::os::sockopt::NO_SIGNAL;
use crate::os::zerocopy;
use crate::stream::DataStream;
use crate::stream_io::StreamIo;
use crate::transfer::MAX_STEP;

/// Buffers that may be in flight at once.
const BUFFER_COUNT: usize = 4;

/// Time for the kernel to release buffers after the connection was reset. It releases them at once,
/// except what a network card is reading.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(100);

/// Polling interval. A reset connection is always ready, so poll(2) cannot wait for it.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// One buffer, and the number of sends that must complete before it is free.
struct ZerocopyBuffer {
    memory: PageBuffer,
    free_after: u64,
}

/// The buffers of one stream. If the ring is dropped while the kernel still uses some of them, it
/// resets the connection: memory with new content must not be sent.
pub(super) struct ZerocopyRing {
    stream: Arc<DataStream>,
    buffers: Vec<ZerocopyBuffer>,
    next: usize,
    progress: ZerocopyCounts,
}

/// Counts of the zero-copy sends of this transfer. A transfer ends with none in flight.
struct ZerocopyCounts {
    /// Sends that were made.
    started: u64,
    /// Sends whose memory is free again.
    completed: u64,
}

impl ZerocopyRing {
    pub(super) fn new(io: &StreamIo<'_>) -> io::Result<Self> {
        // A transport with a layer has no kernel socket.
        zerocopy::enable(io.stream().transport().kernel_socket()?.as_fd())?;
        let buffer = |_| ZerocopyBuffer {
            memory: PageBuffer::new(MAX_STEP),
            free_after: 0,
        };
        Ok(Self {
            stream: Arc::clone(io.stream()),
            buffers: (0..BUFFER_COUNT).map(buffer).collect(),
            next: 0,
            progress: ZerocopyCounts {
                started: 0,
                completed: 0,
            },
        })
    }

    /// Fills the next free buffer by `read` with up to `len` bytes and sends it. Returns what
    /// `read` returned. Sends nothing, not even `header`, if that is 0.
    pub(super) fn send<'t>(
        &mut self,
        io: &mut StreamIo<'t>,
        header: &[u8],
        len: usize,
        read: impl FnOnce(&mut StreamIo<'t>, &mut [u8]) -> Result<usize, DataError>,
    ) -> Result<usize, DataError> {
        let buffer = &mut self.buffers[self.next % BUFFER_COUNT];
        // The kernel may still read this buffer for an earlier send.
        self.progress.wait_for(io, buffer.free_after)?;
        let n = read(io, &mut buffer.memory.as_mut()[..len])?;
        if n == 0 {
            return Ok(0);
        }
        io.send_all(header, &[], true)?;
        let mut sent = 0;
        while sent < n {
            sent += self.progress.send(io, &buffer.memory.as_ref()[sent..n])?;
        }
        // Completions arrive in order of sends, so a count identifies them.
        buffer.free_after = self.progress.started;
        self.next += 1;
        Ok(n)
    }

    /// Waits until the kernel has released every buffer.
    pub(super) fn wait_released(&mut self, io: &mut StreamIo<'_>) -> Result<(), DataError> {
        self.progress.wait_for(io, self.progress.started)
    }
}

impl Drop for ZerocopyRing {
    fn drop(&mut self) {
        // The usual case: everything is released.
        if self.progress.wait_all(&self.stream, Duration::ZERO) {
            return;
        }
        self.stream.reset();
        if !self.progress.wait_all(&self.stream, RELEASE_TIMEOUT) {
            tracing::warn!("the kernel still uses zero-copy buffers; leaking their memory");
            // Freed memory could be reused and then sent; a leak is harmless in comparison.
            std::mem::forget(std::mem::take(&mut self.buffers));
        }
    }
}

impl ZerocopyCounts {
    /// Waits for all completions, at most `timeout`. Returns whether all have come.
    fn wait_all(&mut self, stream: &DataStream, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        loop {
            // Other errors of the queue no longer matter.
            let _ = self.read_completions(stream);
            if self.completed >= self.started {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            std::thread::sleep(left.min(POLL_INTERVAL));
        }
    }

    fn send(&mut self, io: &mut StreamIo<'_>, bytes: &[u8]) -> Result<usize, DataError> {
        let sent = io.run_when_ready(PollFlags::OUT, |stream| {
            // Unread completions keep the socket ready, and poll(2) would return at once.
            self.read_completions(stream)?;
            let socket = stream.transport().kernel_socket()?;
            match socket.send_with_flags(bytes, zerocopy::FLAG | NO_SIGNAL) {
                // Too many completions are outstanding (net.core.optmem_max): copy this send.
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => {
                    socket.send_with_flags(bytes, NO_SIGNAL).map(|n| (n, false))
                }
                done => done.map(|n| (n, true)),
            }
        })?;
        // A copied send produces no completion.
        let (n, is_zerocopy) = sent;
        self.started += u64::from(is_zerocopy);
        Ok(n)
    }

    /// Waits until `count` sends of this transfer have completed.
    fn wait_for(&mut self, io: &mut StreamIo<'_>, count: u64) -> Result<(), DataError> {
        // A completion is an error condition (POLLERR), which needs no event flag.
        io.run_when_ready(PollFlags::empty(), |stream| {
            self.read_completions(stream)?;
            if self.completed < count {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(())
        })
    }

    fn read_completions(&mut self, stream: &DataStream) -> io::Result<()> {
        while let Some((first, last)) = zerocopy::read_completion(stream.as_fd())? {
            // The kernel merges consecutive completions into a range, which may wrap around.
            self.completed += u64::from(last.wrapping_sub(first)) + 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use tune::limiter::Role;

    use super::*;
    use crate::control::TransferControl;
    use crate::security::ConnectionOpener;
    use crate::settings::TransferSettings;
    use crate::transfer::ActiveTransfer;

    #[test]
    fn buffers_in_flight_are_freed_only_after_the_connection_was_reset() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let mut settings = TransferSettings::default();
        settings.options.stall = Duration::from_millis(100);
        let socket = std::net::TcpStream::connect(to).unwrap().into();
        let stream =
            Arc::new(DataStream::new(socket, to, ConnectionOpener::ThisEnd, &settings).unwrap());
        let (mut peer, _) = listener.accept().unwrap();
        let transfer =
            ActiveTransfer::new(Role::Sender, &settings, &Arc::new(TransferControl::new()))
                .unwrap();
        let mut io = StreamIo::new(&transfer, Arc::clone(&stream));
        let mut ring = ZerocopyRing::new(&io).unwrap();
        // The peer reads nothing, so some sends stay in flight.
        let stalled = std::iter::repeat_with(|| {
            ring.send(&mut io, b"", MAX_STEP, |_, buf| {
                buf.fill(7);
                Ok(buf.len())
            })
        })
        .find_map(Result::err);
        assert!(matches!(stalled, Some(DataError::Stalled { .. })));
        assert!(!ring.progress.wait_all(&stream, Duration::ZERO));
        drop(ring);
        let mut received = Vec::new();
        let end = peer.read_to_end(&mut received).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::ConnectionReset);
        assert!(received.iter().all(|byte| *byte == 7));
    }
}
