//! The path of one stream's bytes from the socket to the store, by the selected method.

use std::io;
use std::os::fd::AsFd;

use proto::eblock::BlockError;
use proto::ranges::MAX_RANGES;

use super::ReceiveTask;
use crate::buffer::{PageBuffer, SplicePipe};
use crate::error::DataError;
use crate::options::IoMethod;
use crate::os::sockopt::{self, SocketBuffer};
use crate::os::splice;
use crate::store::{Sink, Source};
use crate::stream_io::StreamIo;
use crate::transfer::{ActiveTransfer, MAX_STEP};
use crate::transfer_checksum::{StreamChecksum, TransferChecksum};

/// Most separate ranges of a file that are recorded: a peer that sends tiny blocks with gaps must
/// not fill the memory. No restart marker could list more.
pub(super) const MAX_RANGES_STORED: usize = MAX_RANGES;

/// Stored bytes after which they are reported at the latest.
const REPORT_INTERVAL: u64 = 1 << 20;

/// Largest kernel buffer, as reported, for which the buffer here is made twice as large.
const MAX_KERNEL_BUFFER: u64 = 32 << 20;

/// How this stream moves bytes.
enum ReceiveMethod {
    /// Receive into memory, write to the store.
    Copy,
    /// Socket to pipe to file.
    Splice(SplicePipe),
}

/// A stream that stores the bytes it receives.
pub(super) struct StreamReceiver<'t> {
    pub(super) io: StreamIo<'t>,
    task: &'t ReceiveTask<'t>,
    method: ReceiveMethod,
    buffer: PageBuffer,
    /// The buffer is at least twice the kernel's and is read in one call (2003 paper, §4.1).
    whole_buffers: bool,
    checksum_part: StreamChecksum<'t>,
    stored: StoredRunReporter<'t>,
}

impl<'t> StreamReceiver<'t> {
    pub(super) fn new(
        io: StreamIo<'t>,
        task: &'t ReceiveTask<'t>,
        checksum: &'t TransferChecksum,
    ) -> Self {
        let whole_buffers = task.settings.options.reads_whole_buffers();
        if whole_buffers
            && let Ok(size) = sockopt::buffer_size(io.stream().as_fd(), SocketBuffer::Receive)
        {
            io.stream().note_receive_buffer(size);
        }
        Self {
            stored: StoredRunReporter {
                transfer: io.transfer(),
                start: 0,
                end: 0,
            },
            method: choose_receive_method(task, &io, checksum),
            io,
            task,
            buffer: PageBuffer::new(MAX_STEP),
            whole_buffers,
            checksum_part: checksum.stream_checksum(),
        }
    }

    /// Receives up to `max` bytes of wire offset `offset` and stores them. Returns their number, 0
    /// at the peer's FIN.
    pub(super) fn receive_step(&mut self, offset: u64, max: u64) -> Result<u64, DataError> {
        let step = self.max_read();
        let len = usize::try_from(max).unwrap_or(step).min(step);
        let store_offset = self.store_offset(offset)?;
        let n = match &self.method {
            ReceiveMethod::Copy => self.copy(offset, store_offset, len)?,
            ReceiveMethod::Splice(_) => self.splice(store_offset, len)?,
        } as u64;
        if n > 0 {
            self.io.transfer().add_moved(n);
            // Small reads must not lock the shared range set each time.
            if let Some((start, end)) = self.stored.add(offset, n) {
                self.checksum_part.stored(start, end);
            }
        }
        Ok(n)
    }

    /// Receives and discards up to `max` bytes.
    pub(super) fn skip(&mut self, max: u64) -> Result<u64, DataError> {
        let len = usize::try_from(max).unwrap_or(MAX_STEP).min(MAX_STEP);
        let n = self.io.recv_no_progress(&mut self.buffer.as_mut()[..len])?;
        Ok(n as u64)
    }

    /// Receives the end of the connection, which is due; returns the number of bytes that came instead.
    pub(super) fn take_end(&mut self) -> Result<u64, DataError> {
        let n = self.io.recv_due_end(&mut self.buffer.as_mut()[..1])?;
        Ok(n as u64)
    }

    /// Receives up to `max` bytes that have arrived before, and compares them with the bytes
    /// stored at wire offset `offset`. Returns their number, 0 at the peer's FIN. Stores nothing.
    pub(super) fn compare(
        &mut self,
        offset: u64,
        max: u64,
    ) -> Result<Result<u64, BlockError>, DataError> {
        let len = usize::try_from(max).unwrap_or(MAX_STEP).min(MAX_STEP);
        let store_offset = self.store_offset(offset)?;
        let n = self.io.recv(&mut self.buffer.as_mut()[..len])?;
        let end = offset.saturating_add(n as u64);
        // Bytes that another connection has not stored yet cannot be compared either.
        let stored = self.io.transfer().control().has_stored(offset, end);
        // /dev/null and pipes cannot be read back.
        let Some(stored_bytes) = self.task.sink.open_for_comparison().filter(|_| stored) else {
            return Ok(Err(BlockError::UnverifiableDuplicate(offset)));
        };
        let mut expected = vec![0; n];
        let received = &self.buffer.as_ref()[..n];
        let same = self
            .io
            .run_local(|| {
                read_exactly(&*stored_bytes, store_offset, &mut expected)
                    .map(|()| expected == received)
            })
            .map_err(|e| DataError::read(&*stored_bytes, e));
        if !same? {
            return Ok(Err(BlockError::ConflictingDuplicate(offset)));
        }
        // Repeated bytes are progress, too: a retransmitting sender is not stalled.
        self.io.transfer().add_moved(n as u64);
        self.io.transfer().throttle(n)?;
        Ok(Ok(n as u64))
    }

    /// The sink offset of a wire offset.
    fn store_offset(&self, offset: u64) -> Result<u64, DataError> {
        offset.checked_add(self.task.plan.origin).ok_or_else(|| {
            let too_large = io::ErrorKind::FileTooLarge;
            DataError::write(&**self.task.sink, too_large.into())
        })
    }

    /// Reports the stored bytes. Dropping does this, too.
    pub(super) fn report(&mut self) {
        if let Some((start, end)) = self.stored.flush() {
            self.checksum_part.stored(start, end);
        }
    }

    /// Most bytes to receive in one step.
    fn max_read(&mut self) -> usize {
        let step = self.io.transfer().step();
        // The rate limit needs small steps.
        if !self.whole_buffers || step < MAX_STEP {
            return step;
        }
        let kernel = self.io.stream().receive_buffer().min(MAX_KERNEL_BUFFER);
        let twice = usize::try_from(2 * kernel)
            .unwrap_or(MAX_STEP)
            .max(MAX_STEP);
        if self.buffer.as_ref().len() < twice {
            self.buffer = PageBuffer::new(twice);
        }
        twice
    }

    fn copy(&mut self, offset: u64, store_offset: u64, len: usize) -> Result<usize, DataError> {
        let n = self.io.recv(&mut self.buffer.as_mut()[..len])?;
        if self.whole_buffers {
            self.io.stream().note_read(n as u64);
        }
        if n > 0 {
            let bytes = &self.buffer.as_ref()[..n];
            let (sink, checksum_part) = (&**self.task.sink, &mut self.checksum_part);
            self.io
                .run_local(|| {
                    checksum_part.add(offset, bytes);
                    sink.write_at(store_offset, bytes)
                })
                .map_err(|e| DataError::write(sink, e))?;
            self.io.transfer().throttle(n)?;
        }
        Ok(n)
    }

    fn splice(&mut self, store_offset: u64, len: usize) -> Result<usize, DataError> {
        let ReceiveMethod::Splice(pipe) = &self.method else {
            return Ok(0);
        };
        let n = self
            .io
            .splice_in(pipe.input(), len.min(SplicePipe::capacity()))?;
        if n == 0 {
            return Ok(0);
        }
        let sink = &**self.task.sink;
        let buffer = &mut self.buffer;
        let result = self.io.run_local(|| {
            sink.begin(store_offset.saturating_add(n as u64))?;
            empty_pipe(pipe, sink, store_offset, n, buffer)
        });
        let all_spliced = result.map_err(|e| DataError::write(sink, e))?;
        // The file refuses spliced pages permanently, so later steps copy.
        if !all_spliced {
            self.method = ReceiveMethod::Copy;
        }
        self.io.transfer().throttle(n)?;
        Ok(n)
    }
}

impl Drop for StreamReceiver<'_> {
    fn drop(&mut self) {
        self.report();
    }
}

/// The method for this task. splice(2) takes less processor time than copying into every kind of
/// target (`examples/pump.rs` measures it); to `/dev/null` it is twice as fast.
fn choose_receive_method(
    task: &ReceiveTask<'_>,
    io: &StreamIo<'_>,
    checksum: &TransferChecksum,
) -> ReceiveMethod {
    let wanted = matches!(task.settings.options.io, IoMethod::Auto | IoMethod::Splice)
        && !task.settings.options.reads_whole_buffers();
    // A splice needs the socket without a layer, no reader of the bytes, and a file with offsets.
    let kernel = io.stream().transport().kernel_socket().is_ok();
    if !wanted
        || !kernel
        || checksum.needs_bytes()
        || !task.sink.is_seekable()
        || task.sink.fd().is_none()
    {
        return ReceiveMethod::Copy;
    }
    SplicePipe::new().map_or_else(
        |error| {
            tracing::debug!(%error, "cannot create a large pipe, copying instead");
            ReceiveMethod::Copy
        },
        ReceiveMethod::Splice,
    )
}

/// Moves all `n` bytes of the pipe to the sink at `store_offset`. Returns false if they were copied
/// because the file does not accept spliced pages.
fn empty_pipe(
    pipe: &SplicePipe,
    sink: &dyn Sink,
    store_offset: u64,
    n: usize,
    buffer: &mut PageBuffer,
) -> io::Result<bool> {
    let mut done = 0;
    while done < n {
        let file = sink.fd().ok_or(io::ErrorKind::Unsupported)?;
        let offset = store_offset + done as u64;
        match splice::pipe_to_file(pipe.output(), file, offset, n - done) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(moved) => done += moved,
            Err(rustix::io::Errno::INTR) => {}
            // EINVAL or ESPIPE: the target file system does not support splice(2).
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::SPIPE) => {
                sink.spliced(store_offset, done as u64)?;
                copy_rest(pipe, sink, store_offset + done as u64, n - done, buffer)?;
                return Ok(false);
            }
            Err(error) => {
                // Report the partial write in spite of the error: these bytes may have to be
                // removed again.
                let _ = sink.spliced(store_offset, done as u64);
                return Err(error.into());
            }
        }
    }
    sink.spliced(store_offset, n as u64)?;
    Ok(true)
}

fn copy_rest(
    pipe: &SplicePipe,
    sink: &dyn Sink,
    mut store_offset: u64,
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
        sink.write_at(store_offset, &buf[..n])?;
        store_offset += n as u64;
        left -= n;
    }
    Ok(())
}

fn read_exactly(source: &dyn Source, store_offset: u64, buf: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < buf.len() {
        match source.read_at(store_offset + filled as u64, &mut buf[filled..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => filled += n,
        }
    }
    Ok(())
}

/// Reports stored bytes in large ranges, which keeps contention for the shared range set low.
struct StoredRunReporter<'t> {
    transfer: &'t ActiveTransfer,
    start: u64,
    end: u64,
}

impl StoredRunReporter<'_> {
    /// Adds `n` stored bytes at `offset`. Returns the range that was reported now.
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
        // At most one of the two reports happens: after a flush the run is one step long.
        reported.or_else(|| (self.end - self.start >= REPORT_INTERVAL).then(|| self.flush())?)
    }

    fn flush(&mut self) -> Option<(u64, u64)> {
        let run = (self.start, self.end);
        self.start = self.end;
        if run.0 == run.1 {
            return None;
        }
        if self.transfer.control().add_stored(run.0, run.1) > MAX_RANGES_STORED {
            self.transfer.fail(DataError::Scattered {
                limit: MAX_RANGES_STORED,
            });
        }
        Some(run)
    }
}
