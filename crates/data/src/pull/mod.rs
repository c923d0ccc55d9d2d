//! Pulling ranges into a store from a local file, an HTTP server, or any origin that returns
//! requested ranges.
//!
//! Several readers share the missing ranges. Each requests its next piece when it has stored the
//! last one, so that a slow reader does not delay the others.

mod file_origin;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proto::ranges::{ByteRange, RangeSet};
use tune::Evidence;
use tune::limiter::Role;

use crate::buffer::PageBuffer;
use crate::checkpoint;
use crate::cursor::{self, RemainingRanges, TransferCursor};
use crate::error::DataError;
use crate::job::{TransferControl, TransferReport, TransferSettings};
use crate::store::{Sink, Source};
use crate::transfer::{ActiveTransfer, MAX_STEP};
use crate::transfer_checksum::{StreamChecksum, TransferChecksum};
use crate::tuning;

pub use crate::job::ReaderContext;
pub use file_origin::{FileOrigin, clone_file};

/// Something that returns requested ranges of bytes.
pub trait RangeOrigin: Send + Sync {
    /// The path or URL, for messages.
    fn name(&self) -> String;

    /// Opens a reader for one thread.
    ///
    /// # Errors
    /// The origin cannot be opened.
    fn reader(&self) -> io::Result<Box<dyn RangeReader + '_>>;

    /// Whether the bytes come over connections. Those are sized and sampled, and may be refused.
    fn is_networked(&self) -> bool {
        false
    }

    /// Smallest piece worth a request near the end, bytes.
    fn min_piece(&self) -> u64 {
        cursor::MIN_PART
    }
}

/// Reads from a [`RangeOrigin`] in one thread.
pub trait RangeReader: Send {
    /// Works for this transfer from now on.
    fn join_transfer(&mut self, _context: ReaderContext<'_>) {}

    /// Ends the work for the transfer. Returns the evidence of its connections.
    fn leave_transfer(&mut self) -> Evidence {
        Evidence::default()
    }

    /// Requests the bytes from `start` to `end`, or without an end all that follow.
    ///
    /// # Errors
    /// A refusal; [`io::ErrorKind::WouldBlock`] or [`io::ErrorKind::TimedOut`] when nothing has
    /// come for a while: the call is repeated until the transfer counts as stalled.
    fn request(&mut self, start: u64, end: Option<u64>) -> io::Result<()>;

    /// Reads the next requested bytes; 0 at their end.
    ///
    /// # Errors
    /// As [`RangeReader::request`].
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize>;

    /// How many of the next requested bytes, at most `most`, are those of a hole. 0: unknown, or none.
    fn hole(&self, _most: u64) -> u64 {
        0
    }

    /// Passes over the next `len` bytes, which [`RangeReader::hole`] has told.
    fn pass_hole(&mut self, _len: u64) {}

    /// Makes the kernel copy the next bytes, at most `len`, to `offset` of the file `to`; `None` if
    /// that is not supported: the bytes are then read.
    fn copy_to_file(
        &mut self,
        _to: BorrowedFd<'_>,
        _offset: u64,
        _len: usize,
    ) -> Option<io::Result<usize>> {
        None
    }
}

/// The ranges to pull, and the size of the pieces.
#[derive(Debug, Clone)]
pub struct PullPlan {
    /// Offset in the origin of the byte that belongs at 0 in the store.
    pub origin: u64,
    /// Missing ranges, as offsets in the store; `None`: everything up to an unknown end, by one
    /// reader.
    pub missing: Option<RangeSet>,
    /// Most bytes of one request.
    pub piece: u64,
    /// A source in which the stored bytes can be read again, and its offset of byte 0 of the store,
    /// for checksums that need the bytes in order.
    pub view: Option<(Arc<dyn Source>, u64)>,
}

/// Pulls the missing ranges over `settings.streams` readers. The report's checksum covers the bytes
/// that were read.
///
/// # Errors
/// Those of the origin ([`DataError::Read`] with the reader's own error) and of the sink,
/// [`DataError::Shrunk`] when a range ends early, and those of stopping.
pub fn run(
    from: &dyn RangeOrigin,
    sink: &Arc<dyn Sink>,
    plan: &PullPlan,
    settings: &TransferSettings,
    control: &Arc<TransferControl>,
) -> Result<TransferReport, DataError> {
    let transfer = ActiveTransfer::new(Role::Receiver, settings, control)?;
    let max_bytes = plan.missing.as_ref().map(RangeSet::byte_count);
    let pull = || {
        let readers = match &plan.missing {
            // A sequential sink or an unknown length allows only one reader.
            Some(missing) if sink.is_seekable() => settings.streams.min(piece_count(missing, plan)),
            _ => 1,
        };
        // Only checksums that cannot be combined need the bytes in order, and only several readers
        // break the order.
        let ordered = settings.checksum.is_some_and(|a| !a.is_combinable());
        let view = plan.view.clone().filter(|_| ordered && readers > 1);
        let (view, origin) = view.map_or((None, 0), |(view, origin)| (Some(view), origin));
        let checksum = TransferChecksum::read_back(settings.checksum, view, origin);
        let go_on = || transfer.check().is_ok();
        let task = PullTask {
            from,
            sink,
            plan,
            settings,
            control,
            transfer: &transfer,
            checksum: &checksum,
        };
        checksum.run_with_follower(go_on, || task.read_missing(readers))?;
        Ok(checksum.finish())
    };
    let receive = || match max_bytes.is_some_and(|bytes| bytes <= MAX_STEP as u64) {
        // A checkpoint thread would take longer than such a small file. Its bytes are safe only
        // after the caller has synced the whole.
        true => {
            // Without this, the ranges would count as safe as soon as they are stored.
            if sink.is_durable() {
                transfer.control().promise_synced();
            }
            pull()
        }
        false => checkpoint::run_with_checkpoints(&transfer, sink, pull),
    };
    // Local files have no sockets to size.
    let result = transfer.check().and_then(|()| match from.is_networked() {
        true => tuning::run_with_tuning(&transfer, settings, Role::Receiver, max_bytes, receive),
        false => receive(),
    });
    transfer.finish(result)
}

fn piece_count(missing: &RangeSet, plan: &PullPlan) -> usize {
    let pieces = missing.byte_count().div_ceil(plan.piece.max(1)).max(1);
    usize::try_from(pieces).unwrap_or(usize::MAX)
}

/// State that the readers of one transfer share.
struct PullTask<'w> {
    from: &'w dyn RangeOrigin,
    sink: &'w Arc<dyn Sink>,
    plan: &'w PullPlan,
    settings: &'w TransferSettings,
    control: &'w Arc<TransferControl>,
    transfer: &'w ActiveTransfer,
    checksum: &'w TransferChecksum,
}

impl PullTask<'_> {
    /// Pulls everything that is missing.
    fn read_missing(&self, readers: usize) -> Result<(), DataError> {
        let min_piece = self.from.min_piece();
        let cursor = self.plan.missing.as_ref().map(TransferCursor::ranges);
        let Some(TransferCursor::Ranges { left, .. }) = &cursor else {
            #[expect(
                clippy::redundant_closure_for_method_calls,
                reason = "a method reference would fix one lifetime"
            )]
            return self.run_worker(|worker| worker.read_to_end());
        };
        if readers > 1 {
            self.run_parallel(left, readers)?;
        }
        // A single reader, or the pieces left by readers that could not start.
        // `false`: the last reader must report its error instead of leaving.
        while !left.lock().is_empty() {
            self.run_worker(|worker| worker.read_pieces(left, 1, min_piece, &mut |_| false))?;
        }
        Ok(())
    }

    fn run_parallel(&self, left: &Mutex<RemainingRanges>, readers: usize) -> Result<(), DataError> {
        let min_piece = self.from.min_piece();
        std::thread::scope(|scope| {
            for n in 0..readers {
                let spawned = std::thread::Builder::new()
                    .name(format!("pull-{n}"))
                    .spawn_scoped(scope, move || {
                        // The server probably accepts no further connections from here. With any
                        // other cause, the last reader meets the same error and reports it.
                        let mut may_leave = |error: &DataError| {
                            tracing::debug!(%error, "one reader fewer");
                            self.from.is_networked()
                        };
                        let done = self.run_worker(|worker| {
                            worker.read_pieces(left, readers, min_piece, &mut may_leave)
                        });
                        if let Err(error) = done {
                            self.transfer.fail(error);
                        }
                    });
                if let Err(error) = spawned {
                    // The others take over its part. If the first thread fails, there are no others.
                    if n == 0 {
                        let error = DataError::setup("a reader thread", error);
                        self.transfer.fail(error);
                    }
                    break;
                }
            }
        });
        self.transfer.check()
    }

    /// Runs `part` with one reader in this thread.
    fn run_worker(
        &self,
        part: impl FnOnce(&mut PullWorker<'_>) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let mut worker = PullWorker::new(self)?;
        worker.reader.join_transfer(ReaderContext {
            settings: self.settings,
            control: self.control,
            stop: self.transfer.stop_wake(),
        });
        self.transfer.on_stream_start();
        let done = part(&mut worker);
        let mut evidence = worker.reader.leave_transfer();
        // The diagnosis of the limiter needs both times.
        evidence.store_time += worker.store_time;
        evidence.wire_time += worker.wire_time;
        self.transfer.add_stream(&evidence);
        self.transfer.on_stream_end(0);
        done
    }
}

/// One reader with its buffer and counters.
struct PullWorker<'t> {
    from: &'t dyn RangeOrigin,
    reader: Box<dyn RangeReader + 't>,
    sink: &'t Arc<dyn Sink>,
    plan: &'t PullPlan,
    transfer: &'t ActiveTransfer,
    checksum_part: StreamChecksum<'t>,
    buffer: PageBuffer,
    /// The kernel may copy the bytes, because no checksum needs to see them.
    may_bypass_memory: bool,
    /// Holes may stay holes.
    may_pass_holes: bool,
    /// Time that this thread spent in the store, and time that it waited for the network.
    store_time: Duration,
    wire_time: Duration,
}

impl<'t> PullWorker<'t> {
    fn new(task: &'t PullTask<'t>) -> Result<Self, DataError> {
        let PullTask { from, sink, .. } = *task;
        let reader = from.reader().map_err(|e| failed(from, e))?;
        let checksum_part = task.checksum.stream_checksum();
        // A whole step for each of many small files would be memory to clear, where the allocator has used it before.
        let most = task.plan.missing.as_ref().map(RangeSet::byte_count);
        let most = most.map_or(usize::MAX, |most| {
            usize::try_from(most).unwrap_or(usize::MAX)
        });
        Ok(Self {
            from,
            reader,
            sink,
            plan: task.plan,
            transfer: task.transfer,
            may_pass_holes: checksum_part.knows_zeros(),
            checksum_part,
            buffer: PageBuffer::new(task.transfer.step().min(most)),
            may_bypass_memory: !task.checksum.needs_bytes() && sink.is_seekable(),
            store_time: Duration::ZERO,
            wire_time: Duration::ZERO,
        })
    }

    /// Reads piece after piece until none is left. The pieces are cut for `readers` readers, and
    /// are not smaller than `min_piece` bytes. If `may_leave` accepts the error, a reader that
    /// cannot start returns its piece to the others and ends.
    fn read_pieces(
        &mut self,
        left: &Mutex<RemainingRanges>,
        readers: usize,
        min_piece: u64,
        may_leave: &mut dyn FnMut(&DataError) -> bool,
    ) -> Result<(), DataError> {
        let mut started = false;
        while let Some(part) =
            TransferCursor::next_at_least(left, self.plan.piece, readers, min_piece, None)
        {
            let ByteRange { start, end } = part.range;
            let origin = self.plan.origin;
            let requested = self.request(
                origin.saturating_add(start),
                Some(origin.saturating_add(end)),
            );
            match requested {
                // A refusal of the first request only: later errors are errors of the transfer.
                Err(error) if !started && self.transfer.check().is_ok() && may_leave(&error) => {
                    left.lock().return_range(part.range);
                    return Ok(());
                }
                requested => requested?,
            }
            started = true;
            let mut offset = start;
            while offset < end {
                let n = self.step(offset, end - offset)?;
                // The origin ended before the announced length.
                if n == 0 {
                    return Err(DataError::Shrunk {
                        what: self.from.name(),
                        at: origin.saturating_add(offset),
                        expected: origin.saturating_add(end),
                    });
                }
                offset += n;
            }
        }
        Ok(())
    }

    fn read_to_end(&mut self) -> Result<(), DataError> {
        self.request(self.plan.origin, None)?;
        let mut offset = 0;
        loop {
            match self.step(offset, u64::MAX)? {
                0 => return Ok(()),
                n => offset += n,
            }
        }
    }

    fn request(&mut self, start: u64, end: Option<u64>) -> Result<(), DataError> {
        let Self {
            reader, transfer, ..
        } = self;
        let started = Instant::now();
        let requested = retry_until_stalled(self.from, transfer, || reader.request(start, end));
        self.account_wait(started);
        requested
    }

    /// Adds the time since `started` to the account of the origin: network or store.
    fn account_wait(&mut self, started: Instant) {
        match self.from.is_networked() {
            true => self.wire_time += started.elapsed(),
            false => self.store_time += started.elapsed(),
        }
    }

    /// Moves up to `max_bytes` bytes at `offset` of the store. Returns their number, 0 at the end.
    fn step(&mut self, offset: u64, max_bytes: u64) -> Result<u64, DataError> {
        self.transfer.check()?;
        let len = usize::try_from(max_bytes)
            .unwrap_or(usize::MAX)
            .min(self.transfer.step());
        let hole = self.pass_hole(offset, max_bytes)?;
        if hole > 0 {
            self.account(offset, hole);
            return Ok(hole);
        }
        let n = match self.copy_by_kernel(offset, len)? {
            Some(n) => n,
            None => self.copy_through_memory(offset, len)?,
        };
        if n > 0 {
            self.account(offset, n as u64);
            self.transfer.throttle(n)?;
        }
        Ok(n as u64)
    }

    fn account(&mut self, offset: u64, n: u64) {
        let end = offset + n;
        self.transfer.clock().note_progress();
        self.transfer.control().add_stored(offset, end);
        self.checksum_part.stored(offset, end);
        self.transfer.add_moved(n);
    }

    /// Leaves a hole where the origin has one. Returns its length, 0 if there is none, or the sink takes none.
    fn pass_hole(&mut self, offset: u64, most: u64) -> Result<u64, DataError> {
        if !self.may_pass_holes {
            return Ok(0);
        }
        let hole = self.reader.hole(most);
        if hole == 0 {
            return Ok(0);
        }
        let started = Instant::now();
        let left = self.sink.leave_hole(offset, hole);
        self.store_time += started.elapsed();
        self.may_pass_holes = left.map_err(|e| DataError::write(&**self.sink, e))?;
        if !self.may_pass_holes {
            return Ok(0);
        }
        self.reader.pass_hole(hole);
        self.checksum_part.add_zeros(offset, hole);
        Ok(hole)
    }

    fn copy_by_kernel(&mut self, offset: u64, len: usize) -> Result<Option<usize>, DataError> {
        let Some(to) = self.sink.fd().filter(|_| self.may_bypass_memory) else {
            return Ok(None);
        };
        let written = |e| DataError::write(&**self.sink, e);
        let end = offset.saturating_add(len as u64);
        self.sink.begin(end).map_err(written)?;
        let _hold = self.transfer.clock().pause();
        let started = Instant::now();
        let moved = self.reader.copy_to_file(to, offset, len);
        self.store_time += started.elapsed();
        match moved {
            // The file system does not support it for these files, so the next step reads instead.
            None => {
                self.may_bypass_memory = false;
                Ok(None)
            }
            Some(moved) => {
                let n = moved.map_err(written)?;
                self.sink.spliced(offset, n as u64).map_err(written)?;
                Ok(Some(n))
            }
        }
    }

    fn copy_through_memory(&mut self, offset: u64, len: usize) -> Result<usize, DataError> {
        let Self {
            reader,
            buffer,
            transfer,
            ..
        } = self;
        let buf = &mut buffer.as_mut()[..len];
        let started = Instant::now();
        let read = retry_until_stalled(self.from, transfer, || reader.read(buf));
        self.account_wait(started);
        let n = read?;
        let bytes = &self.buffer.as_ref()[..n];
        self.checksum_part.add(offset, bytes);
        let _hold = self.transfer.clock().pause();
        let started = Instant::now();
        let written = self.sink.write_at(offset, bytes);
        self.store_time += started.elapsed();
        written.map_err(|e| DataError::write(&**self.sink, e))?;
        Ok(n)
    }
}

/// Repeats `attempt` until it succeeds, the transfer must stop, or nothing has moved for the stall
/// time.
fn retry_until_stalled<T>(
    from: &dyn RangeOrigin,
    transfer: &ActiveTransfer,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> Result<T, DataError> {
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(e) if is_retryable(&e) => {}
            Err(e) => return Err(failed(from, e)),
        }
        transfer.check()?;
        // Progress of any reader resets the clock, so one slow reader does not fail the transfer.
        if transfer.clock().time_left().is_zero() {
            return Err(DataError::Stalled {
                seconds: transfer.clock().limit_seconds(),
            });
        }
    }
}

fn is_retryable(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

fn failed(from: &dyn RangeOrigin, error: io::Error) -> DataError {
    DataError::Read {
        what: from.name(),
        source: error,
    }
}

#[cfg(test)]
mod tests;
