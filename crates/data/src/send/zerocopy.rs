//! Sending with MSG_ZEROCOPY: a ring of buffers, each left alone until the kernel has let go of it.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use crate::buffer::PageBuffer;
use crate::error::DataError;
use crate::os::zerocopy;
use crate::stream::DataStream;
use crate::stream_io::StreamIo;
use crate::transfer::MAX_STEP;

/// Buffers that may be under way at once.
const DEPTH: usize = 4;

/// How long the kernel may take to let go of buffers after the connection was broken off. It does so
/// at once but for what a network card is just reading.
const LETTING_GO: Duration = Duration::from_millis(100);

/// How often to look. A connection that was broken off is always ready, and cannot be waited for.
const PAUSE: Duration = Duration::from_millis(1);

/// One buffer, and how many sends must have completed before it is free.
struct ZerocopyBuffer {
    buffer: PageBuffer,
    free_at: u64,
}

/// The buffers of one stream. Dropped while the kernel still uses some of them, it breaks the
/// connection off: memory that is used for something else must not be sent.
pub(super) struct ZerocopyRing {
    stream: Arc<DataStream>,
    slots: Vec<ZerocopyBuffer>,
    turn: usize,
    progress: ZerocopyCounts,
}

/// Counts of zero-copy sends of this transfer; a transfer ends with none under way.
struct ZerocopyCounts {
    /// Sends made.
    started: u64,
    /// Sends whose memory is free again.
    completed: u64,
}

impl ZerocopyRing {
    pub(super) fn new(wire: &StreamIo<'_>) -> io::Result<Self> {
        zerocopy::enable(wire.stream().transport().kernel_socket()?.as_fd())?;
        let slot = |_| ZerocopyBuffer {
            buffer: PageBuffer::new(MAX_STEP),
            free_at: 0,
        };
        Ok(Self {
            stream: Arc::clone(wire.stream()),
            slots: (0..DEPTH).map(slot).collect(),
            turn: 0,
            progress: ZerocopyCounts {
                started: 0,
                completed: 0,
            },
        })
    }

    /// Fills the next free buffer by `read` with up to `len` bytes and sends it; returns what
    /// `read` returned. Nothing is sent, not even `header`, when that is 0.
    pub(super) fn send<'t>(
        &mut self,
        wire: &mut StreamIo<'t>,
        header: &[u8],
        len: usize,
        read: impl FnOnce(&mut StreamIo<'t>, &mut [u8]) -> Result<usize, DataError>,
    ) -> Result<usize, DataError> {
        let slot = &mut self.slots[self.turn % DEPTH];
        self.progress.await_count(wire, slot.free_at)?;
        let n = read(wire, &mut slot.buffer.as_mut()[..len])?;
        if n == 0 {
            return Ok(0);
        }
        wire.send_all(header, &[], true)?;
        let mut sent = 0;
        while sent < n {
            sent += self.progress.send(wire, &slot.buffer.as_ref()[sent..n])?;
        }
        slot.free_at = self.progress.started;
        self.turn += 1;
        Ok(n)
    }

    /// Waits until the kernel has let go of every buffer.
    pub(super) fn drain(&mut self, wire: &mut StreamIo<'_>) -> Result<(), DataError> {
        self.progress.await_count(wire, self.progress.started)
    }
}

impl Drop for ZerocopyRing {
    fn drop(&mut self) {
        if self.progress.settle(&self.stream, Duration::ZERO) {
            return;
        }
        self.stream.reset();
        if !self.progress.settle(&self.stream, LETTING_GO) {
            tracing::warn!("the kernel still uses zero-copy buffers; their memory is given up");
            std::mem::forget(std::mem::take(&mut self.slots));
        }
    }
}

impl ZerocopyCounts {
    /// Waits for all completions, at most so long; whether all are there.
    fn settle(&mut self, stream: &DataStream, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        loop {
            // What else the error queue tells does not matter any more.
            let _ = self.collect(stream);
            if self.completed >= self.started {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            std::thread::sleep(left.min(PAUSE));
        }
    }

    fn send(&mut self, wire: &mut StreamIo<'_>, bytes: &[u8]) -> Result<usize, DataError> {
        let sent = wire.run_when_ready(PollFlags::OUT, |stream| {
            // Unread completions would keep the socket ready and make waiting spin.
            self.collect(stream)?;
            let socket = stream.transport().kernel_socket()?;
            match socket.send_with_flags(bytes, zerocopy::FLAG | libc::MSG_NOSIGNAL) {
                // Too many completions outstanding (net.core.optmem_max): copy this one.
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => socket
                    .send_with_flags(bytes, libc::MSG_NOSIGNAL)
                    .map(|n| (n, false)),
                done => done.map(|n| (n, true)),
            }
        })?;
        let (n, borrowed) = sent;
        self.started += u64::from(borrowed);
        Ok(n)
    }

    /// Waits until `count` sends of this transfer have completed.
    fn await_count(&mut self, wire: &mut StreamIo<'_>, count: u64) -> Result<(), DataError> {
        // A completion is announced as an error condition, which needs no event flag.
        wire.run_when_ready(PollFlags::empty(), |stream| {
            self.collect(stream)?;
            if self.completed < count {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(())
        })
    }

    fn collect(&mut self, stream: &DataStream) -> io::Result<()> {
        while let Some((first, last)) = zerocopy::read_completion(stream.as_fd())? {
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
    use crate::settings::TransferSettings;
    use crate::transfer::ActiveTransfer;

    #[test]
    fn buffers_that_the_kernel_still_sends_are_not_freed_before_the_connection_is_broken_off() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let mut settings = TransferSettings::default();
        settings.options.stall = Duration::from_millis(100);
        let socket = std::net::TcpStream::connect(to).unwrap().into();
        let stream = Arc::new(DataStream::new(socket, to, &settings).unwrap());
        let (mut peer, _) = listener.accept().unwrap();
        let transfer =
            ActiveTransfer::new(Role::Sender, &settings, &Arc::new(TransferControl::new()))
                .unwrap();
        let mut wire = StreamIo::new(&transfer, Arc::clone(&stream));
        let mut ring = ZerocopyRing::new(&wire).unwrap();
        // The peer reads nothing, so that something stays under way.
        let stalled = std::iter::repeat_with(|| {
            ring.send(&mut wire, b"", MAX_STEP, |_, buf| {
                buf.fill(7);
                Ok(buf.len())
            })
        })
        .find_map(Result::err);
        assert!(matches!(stalled, Some(DataError::Stalled { .. })));
        assert!(!ring.progress.settle(&stream, Duration::ZERO));
        drop(ring);
        let mut came = Vec::new();
        let end = peer.read_to_end(&mut came).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::ConnectionReset);
        assert!(came.iter().all(|byte| *byte == 7));
    }
}
