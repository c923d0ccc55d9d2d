//! The path of one stream's bytes from the store to the socket, by the selected method.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use proto::eblock::BlockHeader;
use proto::ranges::ByteRange;

use super::SendTask;
use super::zerocopy::ZerocopyRing;
use crate::buffer::{PageBuffer, SplicePipe};
use crate::cursor::{MIN_PART, SentSoFar, TransferCursor};
use crate::error::DataError;
use crate::options::IoMethod;
use crate::os::splice;
use crate::store::Source;
use crate::stream::UNSENT_LIMIT;
use crate::stream_io::StreamIo;
use crate::transfer::MAX_STEP;
use crate::transfer_checksum::StreamChecksum;

/// Longest time that a stream which shares a file with other senders should need for what the kernel holds unsent: they wait for it at the end.
const SHARED_QUEUE: Duration = Duration::from_millis(100);
/// A stream's rate is known after this time.
const RATE_KNOWN: Duration = Duration::from_millis(250);

/// How this stream moves bytes.
enum SendMethod {
    /// Read into memory, write to the socket.
    Copy(PageBuffer),
    /// The kernel sends the pages of the file (sendfile(2)).
    Sendfile,
    /// File to pipe to socket (splice(2)).
    Splice(SplicePipe),
    /// Read into memory that the kernel then sends without a copy (MSG_ZEROCOPY).
    Zerocopy(ZerocopyRing),
}

/// A stream that sends parts of a task.
pub(super) struct StreamSender<'t> {
    io: StreamIo<'t>,
    task: &'t SendTask<'t>,
    method: SendMethod,
    checksum_part: StreamChecksum<'t>,
    /// Streams of other machines have parts of the same file, and wait for this one at its end.
    is_shared: bool,
    /// Little may be unsent in the kernel: the parts have become smaller than a block, or this stream is slow and others wait for it.
    has_short_queue: bool,
    joined: Instant,
    /// The target's number in the set of streams.
    target: usize,
    /// Bytes of finished parts, and those of the whole transfer when this stream joined.
    sent: u64,
    moved_before: u64,
}

impl<'t> StreamSender<'t> {
    /// The connection's handshake is complete. Call it in the thread that serves the connection.
    pub(super) fn new(io: StreamIo<'t>, task: &'t SendTask<'t>) -> Self {
        let method = choose_send_method(task, &io);
        let set = task.transfer.stream_set();
        let target = set.target_index(io.stream().peer());
        Self {
            io,
            task,
            method,
            checksum_part: task.checksum.stream_checksum(),
            is_shared: task.supply.is_some() || set.target_count() > 1,
            has_short_queue: false,
            joined: Instant::now(),
            target,
            sent: 0,
            moved_before: task.transfer.moved(),
        }
    }

    pub(super) fn io(&mut self) -> &mut StreamIo<'t> {
        &mut self.io
    }

    /// Sends what the task's cursor hands out, until everything was handed out (returns true) or
    /// `leave` is set (returns false). `framed` sends MODE E blocks.
    pub(super) fn send_from_cursor(
        &mut self,
        framed: bool,
        leave: &AtomicBool,
    ) -> Result<bool, DataError> {
        let mut all = false;
        while !all && !leave.load(Ordering::Relaxed) {
            // Relaxed: one more block after the flag was set does no harm.
            all = !self.send_block(framed)? && !self.wait_for_supply(leave)?;
        }
        self.finish()?;
        Ok(all)
    }

    /// Waits until more may be there to send; `false`: nothing more will come.
    fn wait_for_supply(&self, leave: &AtomicBool) -> Result<bool, DataError> {
        let Some(supply) = &self.task.supply else {
            return Ok(false);
        };
        let transfer = self.task.transfer;
        let more = supply.wait(|| !leave.load(Ordering::Relaxed) && transfer.check().is_ok());
        transfer.check()?;
        Ok(more)
    }

    /// Sends the next block. Returns false when everything was handed out.
    fn send_block(&mut self, framed: bool) -> Result<bool, DataError> {
        let TransferCursor::Ranges { left, .. } = &self.task.cursor else {
            return self.send_next(framed);
        };
        if let Some(supply) = &self.task.supply {
            supply.refill(left);
        }
        let slow = self
            .is_shared
            .then(|| sent_soon(self.sent, self.joined.elapsed()))
            .flatten();
        // The rest of a part that is begun cannot be sent by another stream.
        let block = (self.task.settings.options.block as u64).min(slow.map_or(u64::MAX, part_of));
        let set = self.task.transfer.stream_set();
        let streams = set.wanted();
        let sent = SentSoFar {
            own: self.sent,
            all: self.task.transfer.moved().saturating_sub(self.moved_before),
        };
        let next = match &self.task.units {
            Some(units) => {
                let streams = streams.div_ceil(set.target_count().max(1));
                units.next(self.target, left, block, streams)
            }
            None => TransferCursor::next(left, block, streams, sent),
        };
        let Some(part) = next else {
            return Ok(false);
        };
        let is_last = self.task.supply.as_ref().is_none_or(|s| s.has_ended());
        let wants_short_queue = slow.is_some() || (part.is_near_end && is_last);
        if wants_short_queue && !self.has_short_queue {
            // The other streams, or the other senders of the file, finish sooner if this one has little queued in the kernel.
            self.has_short_queue = true;
            self.io.stream().shorten_queue(slow.unwrap_or(u64::MAX));
        }
        self.send_part(part.range, framed)?;
        self.sent += part.range.len();
        Ok(true)
    }

    /// Waits until the kernel no longer uses memory of this stream.
    fn finish(&mut self) -> Result<(), DataError> {
        match &mut self.method {
            SendMethod::Zerocopy(ring) => ring.wait_released(&mut self.io),
            _ => Ok(()),
        }
    }

    /// Sends one part of a source that can be read at any offset.
    fn send_part(&mut self, part: ByteRange, framed: bool) -> Result<(), DataError> {
        let wire_offset = part.start - self.task.origin;
        let header = BlockHeader::data(wire_offset, part.len()).encode();
        let mut header: &[u8] = if framed { &header } else { &[] };
        let mut at = part.start;
        while at < part.end {
            let step = self.io.transfer().step();
            let len = usize::try_from(part.end - at).unwrap_or(step).min(step);
            self.io.transfer().throttle(len)?;
            let sent = self.send_step(header, at, len)?;
            if sent == 0 {
                // Nothing was sent for this part, so the receiver cannot take it for data.
                return Err(self.shrunk(at));
            }
            // The header goes out once, with the first bytes.
            header = &[];
            self.io.transfer().add_moved(sent as u64);
            at += sent as u64;
        }
        self.checksum_part
            .stored(wire_offset, part.end - self.task.origin);
        Ok(())
    }

    /// Moves up to `len` bytes at `at`. Returns 0 when the source ends there.
    fn send_step(&mut self, header: &[u8], at: u64, len: usize) -> Result<usize, DataError> {
        let source = &*self.task.source;
        // Wire offsets count from the start of the requested part (ERET P).
        let wire_offset = at - self.task.origin;
        match &mut self.method {
            SendMethod::Copy(buffer) => {
                let buf = &mut buffer.as_mut()[..len];
                let n = read_full(&mut self.io, source, at, buf)?;
                self.checksum_part.add(wire_offset, &buf[..n]);
                // A source that has ended sends nothing, not even the header.
                if n > 0 {
                    self.io.send_all(header, &buf[..n], false)?;
                }
                Ok(n)
            }
            SendMethod::Zerocopy(ring) => {
                let n = ring.send(&mut self.io, header, len, |io, buf| {
                    let n = read_full(io, source, at, buf)?;
                    self.checksum_part.add(wire_offset, &buf[..n]);
                    Ok(n)
                })?;
                Ok(n)
            }
            SendMethod::Sendfile | SendMethod::Splice(_) => {
                // MSG_MORE joins the header with the first bytes of the file in one segment
                // (tcp(7), TCP_CORK).
                self.io.send_all(header, &[], true)?;
                match self.send_from_file(at, len) {
                    Err(DataError::Wire { source, .. }) if is_file_error(&source) => {
                        // Copying either works where the file system lacks the call, or reports the
                        // file's own error.
                        tracing::debug!(error = %source, "sendfile or splice failed, copying instead");
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
            return Err(self.io.wire_error(io::ErrorKind::Unsupported.into()));
        };
        match &mut self.method {
            SendMethod::Splice(pipe) => splice(&mut self.io, file, pipe, at, len),
            _ => self.io.send_file(file, at, len),
        }
    }

    /// Reads and sends the next block of an in-order source. Returns false at its end.
    fn send_next(&mut self, framed: bool) -> Result<bool, DataError> {
        let TransferCursor::Sequential(sequential) = &self.task.cursor else {
            return Ok(false);
        };
        let SendMethod::Copy(buffer) = &mut self.method else {
            // An in-order source is always copied: its blocks have no file offsets for sendfile.
            return Ok(false);
        };
        let len = self
            .io
            .transfer()
            .step()
            .min(self.task.settings.options.block.max(1));
        let buf = &mut buffer.as_mut()[..len];
        let mut position = TransferCursor::lock_sequential(sequential);
        if position.ended {
            return Ok(false);
        }
        let offset = position.offset;
        let source = &*self.task.source;
        let n = self
            .io
            .run_local(|| source.read_at(offset, buf))
            .map_err(|e| DataError::read(source, e))?;
        position.ended = n == 0;
        position.offset += n as u64;
        self.checksum_part.add(offset, &buf[..n]);
        // The next thread may read while this one sends.
        drop(position);
        if n == 0 {
            return Ok(false);
        }
        self.io.transfer().throttle(n)?;
        let header = BlockHeader::data(offset, n as u64).encode();
        let header: &[u8] = if framed { &header } else { &[] };
        self.io.send_all(header, &buf[..n], false)?;
        self.io.transfer().add_moved(n as u64);
        Ok(true)
    }

    /// The error of a source that returned nothing at `at`. The true end may be before `at`,
    /// because streams read ahead of each other.
    fn shrunk(&self, at: u64) -> DataError {
        let at = match self.task.source.len() {
            Ok(Some(len)) => at.min(len),
            _ => at,
        };
        // Without ranges the expected end is unknown.
        let expected = match &self.task.cursor {
            TransferCursor::Ranges { end, .. } => *end,
            TransferCursor::Sequential(_) => at,
        };
        DataError::Shrunk {
            what: self.task.source.name(),
            at,
            expected,
        }
    }
}

/// The method for this task. sendfile(2) saves the sender's copy. Between two ends on one machine
/// the receiver pays for it: it must copy from pages that are no longer in a processor cache, and
/// storing them takes longer than both copies did before (figures in docs/benchmarks.md).
/// MSG_ZEROCOPY is slower on loopback, where the kernel copies after all.
fn choose_send_method(task: &SendTask<'_>, io: &StreamIo<'_>) -> SendMethod {
    let copy = || SendMethod::Copy(PageBuffer::new(MAX_STEP));
    // An in-order source may be a pipe, a terminal or translated text.
    if matches!(task.cursor, TransferCursor::Sequential(_)) {
        return copy();
    }
    let kernel = io.stream().transport().kernel_socket().is_ok();
    let from_file = kernel && task.source.fd().is_some() && !task.checksum.needs_bytes();
    match task.settings.options.io {
        IoMethod::Auto if from_file && !io.stream().is_local() => SendMethod::Sendfile,
        IoMethod::Sendfile if from_file => SendMethod::Sendfile,
        IoMethod::Splice if from_file => SplicePipe::new().map_or_else(
            |error| {
                tracing::debug!(%error, "cannot create a large pipe, copying instead");
                copy()
            },
            SendMethod::Splice,
        ),
        IoMethod::Zerocopy => ZerocopyRing::new(io).map_or_else(
            |error| {
                tracing::debug!(%error, "MSG_ZEROCOPY is unavailable, copying instead");
                copy()
            },
            SendMethod::Zerocopy,
        ),
        _ => copy(),
    }
}

/// The bytes that a stream which has sent so many in this time sends within [`SHARED_QUEUE`], if that is less than a full queue of the kernel.
fn sent_soon(sent: u64, elapsed: Duration) -> Option<u64> {
    if elapsed < RATE_KNOWN {
        return None;
    }
    let soon = u128::from(sent) * SHARED_QUEUE.as_micros() / elapsed.as_micros();
    u64::try_from(soon)
        .ok()
        .filter(|soon| *soon < UNSENT_LIMIT.into())
}

/// The largest part of so many bytes that keeps reads aligned to pages.
fn part_of(bytes: u64) -> u64 {
    (bytes - bytes % MIN_PART).max(MIN_PART)
}

/// Reads until `buf` is full or the source ends.
fn read_full(
    io: &mut StreamIo<'_>,
    source: &dyn Source,
    at: u64,
    buf: &mut [u8],
) -> Result<usize, DataError> {
    io.run_local(|| {
        let mut filled = 0;
        while filled < buf.len() {
            match source.read_at(at + filled as u64, &mut buf[filled..])? {
                0 => break,
                n => filled += n,
            }
        }
        Ok(filled)
    })
    .map_err(|e: io::Error| DataError::read(source, e))
}

/// Moves bytes from the file to a pipe to the socket, until the pipe is empty again. An error in
/// the first half has moved nothing, so that the caller may try another method. The second half
/// returns no error that suggests that.
fn splice(
    io: &mut StreamIo<'_>,
    file: BorrowedFd<'_>,
    pipe: &SplicePipe,
    at: u64,
    len: usize,
) -> Result<usize, DataError> {
    let len = len.min(SplicePipe::capacity());
    let piped = io.run_local(|| splice::file_to_pipe(file, at, pipe.input(), len));
    let piped = piped.map_err(|e| io.wire_error(e.into()))?;
    let mut left = piped;
    while left > 0 {
        left -= match io.splice_out(pipe.output(), left, false) {
            Err(DataError::Wire { source, .. }) if is_file_error(&source) => {
                // The socket accepts no pages; the bytes in the pipe must still be sent.
                return send_rest(io, pipe, left).map(|()| piped);
            }
            sent => sent?,
        };
    }
    Ok(piped)
}

/// Sends the bytes of a pipe by copying them.
fn send_rest(io: &mut StreamIo<'_>, pipe: &SplicePipe, mut left: usize) -> Result<(), DataError> {
    let mut buffer = vec![0; left.min(64 << 10)];
    while left > 0 {
        let want = left.min(buffer.len());
        let read =
            rustix::io::retry_on_intr(|| rustix::io::read(pipe.output(), &mut buffer[..want]));
        let n = read.map_err(|e| DataError::setup("a pipe", e))?;
        if n == 0 {
            return Err(DataError::setup("a pipe", io::ErrorKind::UnexpectedEof));
        }
        io.send_all(&[], &buffer[..n], false)?;
        left -= n;
    }
    Ok(())
}

/// Whether an error of sendfile or splice comes from the file and not from the connection.
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
    use crate::security::ConnectionOpener;
    use crate::settings::TransferSettings;
    use crate::stream::DataStream;
    use crate::transfer::ActiveTransfer;

    #[test]
    fn a_stream_is_slow_if_it_needs_long_for_what_the_kernel_holds() {
        let seconds = Duration::from_secs;
        // 100 ms for 1 MiB are 10 MiB/s.
        assert_eq!(sent_soon(5 << 20, seconds(1)), Some(512 << 10));
        assert_eq!(sent_soon(50 << 20, seconds(10)), Some(512 << 10));
        assert_eq!(sent_soon(10 << 20, seconds(1)), None);
        assert_eq!(sent_soon(101 << 20, seconds(10)), None);
        assert_eq!(sent_soon(0, RATE_KNOWN / 2), None, "nothing is known yet");
        assert_eq!(
            [100, 200 << 10, 512 << 10].map(part_of),
            [MIN_PART, 192 << 10, 512 << 10]
        );
    }

    #[test]
    fn the_rest_of_the_pipe_is_sent_once_after_a_failed_splice() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let settings = TransferSettings::default();
        let socket = std::net::TcpStream::connect(to).unwrap().into();
        let stream =
            Arc::new(DataStream::new(socket, to, ConnectionOpener::ThisEnd, &settings).unwrap());
        let (mut peer, _) = listener.accept().unwrap();
        let transfer =
            ActiveTransfer::new(Role::Sender, &settings, &Arc::new(TransferControl::new()))
                .unwrap();
        let pipe = SplicePipe::new().unwrap();
        let bytes: Vec<u8> = (0..150_000u32).map(|n| (n % 251) as u8).collect();
        rustix::io::write(pipe.input(), &bytes).unwrap();
        let mut io = StreamIo::new(&transfer, stream);
        // The state after a splice that moved some bytes and then failed.
        let moved = io.splice_out(pipe.output(), 1000, false).unwrap();
        send_rest(&mut io, &pipe, bytes.len() - moved).unwrap();
        drop(io);
        let mut received = vec![0; bytes.len()];
        peer.read_exact(&mut received).unwrap();
        assert!(received == bytes);
    }
}
