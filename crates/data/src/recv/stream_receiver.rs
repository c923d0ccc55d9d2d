//! One stream's way from the socket to the store, by the chosen method.

use std::io;
use std::os::fd::AsFd;

use proto::eblock::BlockError;
use proto::ranges::MAX_RANGES;
use proto::sizing::BufferSizing;
use rustix::pipe::SpliceFlags;

use super::ReceiveTask;
use crate::buffer::{PageBuffer, SplicePipe};
use crate::error::DataError;
use crate::options::IoMethod;
use crate::os::sockopt::{self, SocketBuffer};
use crate::store::{Sink, Source};
use crate::stream_io::StreamIo;
use crate::transfer::{ActiveTransfer, MAX_STEP};
use crate::transfer_checksum::{StreamChecksum, TransferChecksum};

/// Separate pieces of a file that are remembered at most: a peer that sends tiny blocks with gaps
/// between them must not fill the memory, and no restart marker could tell of more.
pub(super) const MAX_PIECES: usize = MAX_RANGES;

/// Stored bytes after which they are reported, at the latest.
const REPORT: u64 = 1 << 20;

/// Largest kernel buffer, as reported, that a buffer here is made twice as large as.
const MOST_KERNEL: u64 = 32 << 20;

/// How this stream moves bytes.
enum ReceiveMethod {
    /// Receive into memory, write to the store.
    Copy,
    /// Socket to pipe to file.
    Splice(SplicePipe),
}

/// A stream that stores what it receives.
pub(super) struct StreamReceiver<'t> {
    pub(super) wire: StreamIo<'t>,
    task: &'t ReceiveTask<'t>,
    method: ReceiveMethod,
    buffer: PageBuffer,
    /// The buffer is at least twice the kernel's and read as a whole (2003 paper, §4.1).
    whole_buffers: bool,
    tap: StreamChecksum<'t>,
    stored: StoredRunReporter<'t>,
}

impl<'t> StreamReceiver<'t> {
    pub(super) fn new(
        wire: StreamIo<'t>,
        task: &'t ReceiveTask<'t>,
        sum: &'t TransferChecksum,
    ) -> Self {
        let whole_buffers = task.settings.options.buffers.sizing == BufferSizing::Drs1;
        if whole_buffers
            && let Ok(size) = sockopt::buffer_size(wire.stream().as_fd(), SocketBuffer::Receive)
        {
            wire.stream().note_receive_buffer(size);
        }
        Self {
            stored: StoredRunReporter {
                transfer: wire.transfer(),
                start: 0,
                end: 0,
            },
            method: choose_receive_method(task, &wire, sum),
            wire,
            task,
            buffer: PageBuffer::new(MAX_STEP),
            whole_buffers,
            tap: sum.stream_checksum(),
        }
    }

    /// Receives up to `most` bytes that belong at wire offset `offset` and stores them; returns
    /// how many, 0 at the peer's FIN.
    pub(super) fn receive_step(&mut self, offset: u64, most: u64) -> Result<u64, DataError> {
        let step = self.max_read();
        let len = usize::try_from(most).unwrap_or(step).min(step);
        let at = self.at(offset)?;
        let n = match &self.method {
            ReceiveMethod::Copy => self.copy(offset, at, len)?,
            ReceiveMethod::Splice(_) => self.splice(at, len)?,
        } as u64;
        if n > 0 {
            self.wire.transfer().add_moved(n);
            if let Some((start, end)) = self.stored.add(offset, n) {
                self.tap.stored(start, end);
            }
        }
        Ok(n)
    }

    /// Receives and forgets up to `most` bytes.
    pub(super) fn skip(&mut self, most: u64) -> Result<u64, DataError> {
        let len = usize::try_from(most).unwrap_or(MAX_STEP).min(MAX_STEP);
        let n = self
            .wire
            .recv_no_progress(&mut self.buffer.as_mut()[..len])?;
        Ok(n as u64)
    }

    /// Receives up to `most` bytes that have come before, and compares them with what was stored at
    /// wire offset `offset`; returns how many, 0 at the peer's FIN. Nothing is stored.
    pub(super) fn compare(
        &mut self,
        offset: u64,
        most: u64,
    ) -> Result<Result<u64, BlockError>, DataError> {
        let len = usize::try_from(most).unwrap_or(MAX_STEP).min(MAX_STEP);
        let at = self.at(offset)?;
        let n = self.wire.recv(&mut self.buffer.as_mut()[..len])?;
        let end = offset.saturating_add(n as u64);
        // What another connection has not stored yet cannot be compared either.
        let stored = self.wire.transfer().control().has_stored(offset, end);
        let Some(view) = self.task.sink.open_for_comparison().filter(|_| stored) else {
            return Ok(Err(BlockError::UnverifiableDuplicate(offset)));
        };
        let mut before = vec![0; n];
        let came = &self.buffer.as_ref()[..n];
        let same = self
            .wire
            .store(|| read_exactly(&*view, at, &mut before).map(|()| before == came))
            .map_err(|e| DataError::read(&*view, e));
        if !same? {
            return Ok(Err(BlockError::ConflictingDuplicate(offset)));
        }
        self.wire.transfer().add_moved(n as u64);
        self.wire.transfer().throttle(n)?;
        Ok(Ok(n as u64))
    }

    /// Where in the sink a wire offset is.
    fn at(&self, offset: u64) -> Result<u64, DataError> {
        offset.checked_add(self.task.plan.origin).ok_or_else(|| {
            let too_large = io::ErrorKind::FileTooLarge;
            DataError::write(&**self.task.sink, too_large.into())
        })
    }

    /// Reports what was stored; done by dropping, too.
    pub(super) fn report(&mut self) {
        if let Some((start, end)) = self.stored.flush() {
            self.tap.stored(start, end);
        }
    }

    /// Most bytes to receive in one step.
    fn max_read(&mut self) -> usize {
        let step = self.wire.transfer().step();
        if !self.whole_buffers || step < MAX_STEP {
            return step;
        }
        let kernel = self.wire.stream().receive_buffer().min(MOST_KERNEL);
        let twice = usize::try_from(2 * kernel)
            .unwrap_or(MAX_STEP)
            .max(MAX_STEP);
        if self.buffer.as_ref().len() < twice {
            self.buffer = PageBuffer::new(twice);
        }
        twice
    }

    fn copy(&mut self, offset: u64, at: u64, len: usize) -> Result<usize, DataError> {
        let n = self.wire.recv(&mut self.buffer.as_mut()[..len])?;
        if n > 0 {
            let bytes = &self.buffer.as_ref()[..n];
            let (sink, tap) = (&**self.task.sink, &mut self.tap);
            self.wire
                .store(|| {
                    tap.add(offset, bytes);
                    sink.write_at(at, bytes)
                })
                .map_err(|e| DataError::write(sink, e))?;
            self.wire.transfer().throttle(n)?;
        }
        Ok(n)
    }

    fn splice(&mut self, at: u64, len: usize) -> Result<usize, DataError> {
        let ReceiveMethod::Splice(pipe) = &self.method else {
            return Ok(0);
        };
        let n = self
            .wire
            .splice_in(pipe.input(), len.min(SplicePipe::capacity()))?;
        if n == 0 {
            return Ok(0);
        }
        let sink = &**self.task.sink;
        let buffer = &mut self.buffer;
        let emptied = self.wire.store(|| {
            sink.begin()?;
            empty(pipe, sink, at, n, buffer)
        });
        let went_by_pages = emptied.map_err(|e| DataError::write(sink, e))?;
        if !went_by_pages {
            self.method = ReceiveMethod::Copy;
        }
        self.wire.transfer().throttle(n)?;
        Ok(n)
    }
}

impl Drop for StreamReceiver<'_> {
    fn drop(&mut self) {
        self.report();
    }
}

/// The method for this task. Splicing costs less processor time than copying into every kind of
/// target (`examples/pump.rs` measures it); to `/dev/null` it is twice as fast.
fn choose_receive_method(
    task: &ReceiveTask<'_>,
    wire: &StreamIo<'_>,
    sum: &TransferChecksum,
) -> ReceiveMethod {
    let wanted = matches!(task.settings.options.io, IoMethod::Auto | IoMethod::Splice)
        && task.settings.options.buffers.sizing != BufferSizing::Drs1;
    let kernel = wire.stream().transport().kernel_socket().is_ok();
    if !wanted
        || !kernel
        || sum.needs_bytes()
        || !task.sink.is_seekable()
        || task.sink.fd().is_none()
    {
        return ReceiveMethod::Copy;
    }
    SplicePipe::new().map_or_else(
        |error| {
            tracing::debug!(%error, "no large pipe, copying");
            ReceiveMethod::Copy
        },
        ReceiveMethod::Splice,
    )
}

/// Moves all `n` bytes of the pipe to the sink at `at`; false if they had to be copied because
/// the file does not take spliced pages.
fn empty(
    pipe: &SplicePipe,
    sink: &dyn Sink,
    at: u64,
    n: usize,
    buffer: &mut PageBuffer,
) -> io::Result<bool> {
    let mut done = 0;
    while done < n {
        let file = sink.fd().ok_or(io::ErrorKind::Unsupported)?;
        let mut offset = at + done as u64;
        let spliced = rustix::pipe::splice(
            pipe.output(),
            None,
            file,
            Some(&mut offset),
            n - done,
            SpliceFlags::MOVE,
        );
        match spliced {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(moved) => done += moved,
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::SPIPE) => {
                sink.spliced(at, done as u64)?;
                copy_rest(pipe, sink, at + done as u64, n - done, buffer)?;
                return Ok(false);
            }
            Err(error) => {
                // Told all the same: what got there may have to be taken out again.
                let _ = sink.spliced(at, done as u64);
                return Err(error.into());
            }
        }
    }
    sink.spliced(at, n as u64)?;
    Ok(true)
}

fn copy_rest(
    pipe: &SplicePipe,
    sink: &dyn Sink,
    mut at: u64,
    mut left: usize,
    buffer: &mut PageBuffer,
) -> io::Result<()> {
    while left > 0 {
        let want = left.min(MAX_STEP);
        let buf = &mut buffer.as_mut()[..want];
        let n = rustix::io::retry_on_intr(|| rustix::io::read(pipe.output(), &mut *buf))?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        sink.write_at(at, &buf[..n])?;
        at += n as u64;
        left -= n;
    }
    Ok(())
}

fn read_exactly(source: &dyn Source, at: u64, buf: &mut [u8]) -> io::Result<()> {
    let mut have = 0;
    while have < buf.len() {
        match source.read_at(at + have as u64, &mut buf[have..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => have += n,
        }
    }
    Ok(())
}

/// Stored bytes in one run, reported in large pieces to keep the shared range set quiet.
struct StoredRunReporter<'t> {
    transfer: &'t ActiveTransfer,
    start: u64,
    end: u64,
}

impl StoredRunReporter<'_> {
    /// `n` bytes at `offset` are stored. Returns what was reported now.
    fn add(&mut self, offset: u64, n: u64) -> Option<(u64, u64)> {
        let reported = if offset == self.end {
            None
        } else {
            self.flush()
        };
        if self.start == self.end {
            self.start = offset;
        }
        self.end = offset + n;
        // At most one of the two happens: after a flush the run is one step long.
        reported.or_else(|| (self.end - self.start >= REPORT).then(|| self.flush())?)
    }

    fn flush(&mut self) -> Option<(u64, u64)> {
        let run = (self.start, self.end);
        self.start = self.end;
        if run.0 == run.1 {
            return None;
        }
        if self.transfer.control().add_stored(run.0, run.1) > MAX_PIECES {
            self.transfer
                .fail(DataError::Scattered { limit: MAX_PIECES });
        }
        Some(run)
    }
}
