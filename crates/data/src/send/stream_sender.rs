//! One stream's way from the store to the socket, by the chosen method.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use proto::eblock::BlockHeader;
use proto::ranges::ByteRange;
use rustix::pipe::SpliceFlags;

use super::SendTask;
use super::zerocopy::ZerocopyRing;
use crate::buffer::{PageBuffer, SplicePipe};
use crate::error::DataError;
use crate::options::IoMethod;
use crate::send_cursor::SendCursor;
use crate::store::Source;
use crate::stream_io::StreamIo;
use crate::transfer::MAX_STEP;
use crate::transfer_checksum::StreamChecksum;

/// How this stream moves bytes.
enum SendMethod {
    /// Read into memory, write to the socket.
    Copy(PageBuffer),
    /// The kernel reads the file's pages.
    Sendfile,
    /// File to pipe to socket.
    Splice(SplicePipe),
    /// Read into memory, which the kernel then borrows.
    Zerocopy(ZerocopyRing),
}

/// A stream that sends parts of a task.
pub(super) struct StreamSender<'t> {
    wire: StreamIo<'t>,
    task: &'t SendTask<'t>,
    method: SendMethod,
    tap: StreamChecksum<'t>,
    /// The blocks have become smaller: what is left is little.
    at_last: bool,
}

impl<'t> StreamSender<'t> {
    /// In the thread that serves the connection, whose handshake comes first.
    pub(super) fn new(mut wire: StreamIo<'t>, task: &'t SendTask<'t>) -> Result<Self, DataError> {
        wire.handshake()?;
        let method = choose_send_method(task, &wire);
        Ok(Self {
            wire,
            task,
            method,
            tap: task.sum.stream_checksum(),
            at_last: false,
        })
    }

    pub(super) fn wire(&mut self) -> &mut StreamIo<'t> {
        &mut self.wire
    }

    /// Sends what the task's supply has for this stream, until all was handed out (true) or `leave`
    /// is set (false); with `framed`, as MODE E blocks.
    pub(super) fn send_supply(
        &mut self,
        framed: bool,
        leave: &AtomicBool,
    ) -> Result<bool, DataError> {
        let mut all = false;
        while !all && !leave.load(Ordering::Relaxed) {
            all = !self.send_block(framed)?;
        }
        self.finish()?;
        Ok(all)
    }

    /// Sends the next block; false when all was handed out.
    fn send_block(&mut self, framed: bool) -> Result<bool, DataError> {
        let SendCursor::Ranges { left, .. } = &self.task.supply else {
            return self.send_next(framed);
        };
        let block = self.task.settings.options.block as u64;
        let lanes = self.task.transfer.stream_set().wanted();
        let Some(part) = SendCursor::next(left, block, lanes) else {
            return Ok(false);
        };
        if part.is_near_end && !self.at_last {
            self.at_last = true;
            self.wire.stream().limit_unsent_near_end();
        }
        self.send_part(part.range, framed)?;
        Ok(true)
    }

    /// Waits until no memory of this stream is in use by the kernel.
    fn finish(&mut self) -> Result<(), DataError> {
        match &mut self.method {
            SendMethod::Zerocopy(ring) => ring.drain(&mut self.wire),
            _ => Ok(()),
        }
    }

    /// Sends one part of a source that can be read anywhere.
    fn send_part(&mut self, part: ByteRange, framed: bool) -> Result<(), DataError> {
        let wire_offset = part.start - self.task.origin;
        let header = BlockHeader::data(wire_offset, part.len()).encode();
        let mut header: &[u8] = if framed { &header } else { &[] };
        let mut at = part.start;
        while at < part.end {
            let step = self.wire.transfer().step();
            let len = usize::try_from(part.end - at).unwrap_or(step).min(step);
            self.wire.transfer().throttle(len)?;
            let sent = self.send_step(header, at, len)?;
            if sent == 0 {
                return Err(self.shrunk(at));
            }
            header = &[];
            self.wire.transfer().add_moved(sent as u64);
            at += sent as u64;
        }
        self.tap.stored(wire_offset, part.end - self.task.origin);
        Ok(())
    }

    /// Moves up to `len` bytes at `at`; 0 when the source has ended there.
    fn send_step(&mut self, header: &[u8], at: u64, len: usize) -> Result<usize, DataError> {
        let source = &*self.task.source;
        let wire_offset = at - self.task.origin;
        match &mut self.method {
            SendMethod::Copy(buffer) => {
                let buf = &mut buffer.as_mut()[..len];
                let n = fill(&mut self.wire, source, at, buf)?;
                self.tap.add(wire_offset, &buf[..n]);
                // Nothing goes out for a source that has ended, not even the header.
                if n > 0 {
                    self.wire.send_all(header, &buf[..n], false)?;
                }
                Ok(n)
            }
            SendMethod::Zerocopy(ring) => {
                let n = ring.send(&mut self.wire, header, len, |wire, buf| {
                    let n = fill(wire, source, at, buf)?;
                    self.tap.add(wire_offset, &buf[..n]);
                    Ok(n)
                })?;
                Ok(n)
            }
            SendMethod::Sendfile | SendMethod::Splice(_) => {
                self.wire.send_all(header, &[], true)?;
                match self.send_from_file(at, len) {
                    Err(DataError::Wire { source, .. }) if is_file_error(&source) => {
                        // Copying either works where the file system cannot do it, or tells the
                        // file's error.
                        tracing::debug!(error = %source, "falling back to copying");
                        self.method = SendMethod::Copy(PageBuffer::new(MAX_STEP));
                        self.send_step(&[], at, len)
                    }
                    done => done,
                }
            }
        }
    }

    fn send_from_file(&mut self, at: u64, len: usize) -> Result<usize, DataError> {
        let Some(file) = self.task.source.fd() else {
            return Err(self.wire.wire_error(io::ErrorKind::Unsupported.into()));
        };
        match &mut self.method {
            SendMethod::Splice(pipe) => splice(&mut self.wire, file, pipe, at, len),
            _ => self.wire.send_file(file, at, len),
        }
    }

    /// Reads and sends the next block of an in-order source; false at its end.
    fn send_next(&mut self, framed: bool) -> Result<bool, DataError> {
        let SendCursor::Sequential(order) = &self.task.supply else {
            return Ok(false);
        };
        let SendMethod::Copy(buffer) = &mut self.method else {
            return Ok(false);
        };
        let len = self
            .wire
            .transfer()
            .step()
            .min(self.task.settings.options.block.max(1));
        let buf = &mut buffer.as_mut()[..len];
        let mut turn = SendCursor::lock_sequential(order);
        if turn.ended {
            return Ok(false);
        }
        let offset = turn.offset;
        let source = &*self.task.source;
        let n = self
            .wire
            .store(|| source.read_at(offset, buf))
            .map_err(|e| DataError::read(source, e))?;
        turn.ended = n == 0;
        turn.offset += n as u64;
        self.tap.add(offset, &buf[..n]);
        drop(turn);
        if n == 0 {
            return Ok(false);
        }
        self.wire.transfer().throttle(n)?;
        let header = BlockHeader::data(offset, n as u64).encode();
        let header: &[u8] = if framed { &header } else { &[] };
        self.wire.send_all(header, &buf[..n], false)?;
        self.wire.transfer().add_moved(n as u64);
        Ok(true)
    }

    /// The source gave nothing at `at`; another stream may have met its end further on.
    fn shrunk(&self, at: u64) -> DataError {
        let at = match self.task.source.len() {
            Ok(Some(len)) => at.min(len),
            _ => at,
        };
        let expected = match &self.task.supply {
            SendCursor::Ranges { end, .. } => *end,
            SendCursor::Sequential(_) => at,
        };
        DataError::Shrunk {
            what: self.task.source.name(),
            at,
            expected,
        }
    }
}

/// The method for this task. sendfile spares the sender's processor the copy. Between two ends on
/// one machine it is the receiver that pays for it: it has to copy out of pages that no cache
/// holds any more, and storing them takes longer than both copies took before (figures in
/// docs/benchmarks.md). MSG_ZEROCOPY loses on loopback, where the kernel copies after all.
fn choose_send_method(task: &SendTask<'_>, wire: &StreamIo<'_>) -> SendMethod {
    let copy = || SendMethod::Copy(PageBuffer::new(MAX_STEP));
    if matches!(task.supply, SendCursor::Sequential(_)) {
        return copy();
    }
    let kernel = wire.stream().transport().kernel_socket().is_ok();
    let from_file = kernel && task.source.fd().is_some() && !task.sum.needs_bytes();
    match task.settings.options.io {
        IoMethod::Auto if from_file && !wire.stream().is_local() => SendMethod::Sendfile,
        IoMethod::Sendfile if from_file => SendMethod::Sendfile,
        IoMethod::Splice if from_file => SplicePipe::new().map_or_else(
            |error| {
                tracing::debug!(%error, "no large pipe, copying");
                copy()
            },
            SendMethod::Splice,
        ),
        IoMethod::Zerocopy => ZerocopyRing::new(wire).map_or_else(
            |error| {
                tracing::debug!(%error, "no MSG_ZEROCOPY, copying");
                copy()
            },
            SendMethod::Zerocopy,
        ),
        _ => copy(),
    }
}

/// Reads until `buf` is full or the source ends.
fn fill(
    wire: &mut StreamIo<'_>,
    source: &dyn Source,
    at: u64,
    buf: &mut [u8],
) -> Result<usize, DataError> {
    wire.store(|| {
        let mut have = 0;
        while have < buf.len() {
            match source.read_at(at + have as u64, &mut buf[have..])? {
                0 => break,
                n => have += n,
            }
        }
        Ok(have)
    })
    .map_err(|e: io::Error| DataError::read(source, e))
}

/// File to pipe to socket, until the pipe is empty again. An error in the first half has moved
/// nothing, so that the caller may try another way; one in the second half never tells to.
fn splice(
    wire: &mut StreamIo<'_>,
    file: BorrowedFd<'_>,
    pipe: &SplicePipe,
    at: u64,
    len: usize,
) -> Result<usize, DataError> {
    let mut offset = at;
    let len = len.min(SplicePipe::capacity());
    let piped = wire.store(|| {
        rustix::io::retry_on_intr(|| {
            let offset = Some(&mut offset);
            rustix::pipe::splice(file, offset, pipe.input(), None, len, SpliceFlags::MOVE)
        })
    });
    let piped = piped.map_err(|e| wire.wire_error(e.into()))?;
    let mut left = piped;
    while left > 0 {
        left -= match wire.splice_out(pipe.output(), left, false) {
            Err(DataError::Wire { source, .. }) if is_file_error(&source) => {
                // The socket takes no pages; what is in the pipe is to be sent all the same.
                return send_rest(wire, pipe, left).map(|()| piped);
            }
            sent => sent?,
        };
    }
    Ok(piped)
}

/// Sends what a pipe holds by copying it.
fn send_rest(wire: &mut StreamIo<'_>, pipe: &SplicePipe, mut left: usize) -> Result<(), DataError> {
    let mut buffer = vec![0; left.min(64 << 10)];
    while left > 0 {
        let want = left.min(buffer.len());
        let read =
            rustix::io::retry_on_intr(|| rustix::io::read(pipe.output(), &mut buffer[..want]));
        let n = read.map_err(|e| DataError::setup("a pipe", e))?;
        if n == 0 {
            return Err(DataError::setup("a pipe", io::ErrorKind::UnexpectedEof));
        }
        wire.send_all(&[], &buffer[..n], false)?;
        left -= n;
    }
    Ok(())
}

/// Errors of sendfile and splice that come from the file, not from the connection.
fn is_file_error(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP | libc::EIO | libc::EOVERFLOW)
    )
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::Arc;

    use tune::limiter::Role;

    use super::*;
    use crate::control::TransferControl;
    use crate::settings::TransferSettings;
    use crate::stream::DataStream;
    use crate::transfer::ActiveTransfer;

    #[test]
    fn what_is_left_in_the_pipe_is_sent_once_when_the_socket_takes_no_pages() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let settings = TransferSettings::default();
        let socket = std::net::TcpStream::connect(to).unwrap().into();
        let stream = Arc::new(DataStream::new(socket, to, &settings).unwrap());
        let (mut peer, _) = listener.accept().unwrap();
        let transfer =
            ActiveTransfer::new(Role::Sender, &settings, &Arc::new(TransferControl::new()))
                .unwrap();
        let pipe = SplicePipe::new().unwrap();
        let bytes: Vec<u8> = (0..150_000u32).map(|n| (n % 251) as u8).collect();
        rustix::io::write(pipe.input(), &bytes).unwrap();
        let mut wire = StreamIo::new(&transfer, stream);
        // As after a splice that moved some and then failed.
        let moved = wire.splice_out(pipe.output(), 1000, false).unwrap();
        send_rest(&mut wire, &pipe, bytes.len() - moved).unwrap();
        drop(wire);
        let mut came = vec![0; bytes.len()];
        peer.read_exact(&mut came).unwrap();
        assert!(came == bytes);
    }
}
