//! Ranges that are asked for, into a store: from a file of this machine, from an HTTP server, from
//! anything that gives bytes to whoever asks for a range of them.
//!
//! Several readers share what is missing: each asks for the next piece when it has stored the last
//! one, so that a slow reader never holds the others back.

mod file_origin;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use proto::ranges::{ByteRange, RangeSet};
use tune::Evidence;
use tune::limiter::Role;

use crate::buffer::PageBuffer;
use crate::checkpoint;
use crate::error::DataError;
use crate::job::{TransferControl, TransferReport, TransferSettings};
use crate::locks::lock;
use crate::os::wake::WakeEvent;
use crate::send_cursor::{self, RemainingRanges, SendCursor};
use crate::sizing;
use crate::store::{Sink, Source};
use crate::transfer::{ActiveTransfer, MAX_STEP};
use crate::transfer_checksum::{StreamChecksum, TransferChecksum};

pub use file_origin::{FileOrigin, clone_file};

/// Something that bytes are asked of.
pub trait RangeOrigin: Send + Sync {
    /// For messages: the path, the URL.
    fn name(&self) -> String;

    /// A way to it, for one thread at a time.
    ///
    /// # Errors
    /// The reason why it cannot be opened.
    fn reader(&self) -> io::Result<Box<dyn RangeReader + '_>>;

    /// Whether the bytes come over connections, that are sized and shown, and that may be refused.
    fn is_networked(&self) -> bool {
        false
    }

    /// Smallest piece that is worth asking for towards the end, bytes.
    fn min_piece(&self) -> u64 {
        send_cursor::MIN_PART
    }
}

/// The transfer that a reader works for.
#[derive(Debug, Clone, Copy)]
pub struct ReaderContext<'d> {
    /// Of its connections.
    pub settings: &'d TransferSettings,
    /// Shows its connections.
    pub control: &'d Arc<TransferControl>,
    /// Ready to read when its waits are to end.
    pub stop: &'d Arc<WakeEvent>,
}

/// One thread's way to an [`RangeOrigin`].
pub trait RangeReader: Send {
    /// Works for this transfer from now on.
    fn join_transfer(&mut self, _duty: ReaderContext<'_>) {}

    /// Has no more part in the transfer; what the kernel saw of its connections.
    fn leave_transfer(&mut self) -> Evidence {
        Evidence::default()
    }

    /// Asks for the bytes from `start` to `end`, or without an end for all that follow.
    ///
    /// # Errors
    /// A refusal; [`io::ErrorKind::WouldBlock`] or [`io::ErrorKind::TimedOut`] when nothing has come for a
    /// while: it is asked again, until the transfer counts as stalled.
    fn request(&mut self, start: u64, end: Option<u64>) -> io::Result<()>;

    /// The next of the bytes that were asked for; 0 at their end.
    ///
    /// # Errors
    /// As [`RangeReader::request`].
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize>;

    /// Has the kernel put the next bytes, at most `len`, at `offset` of the file `to`; `None` where that
    /// cannot be: then they are read.
    fn copy_to_file(
        &mut self,
        _to: BorrowedFd<'_>,
        _offset: u64,
        _len: usize,
    ) -> Option<io::Result<usize>> {
        None
    }
}

/// Ranges to be read, and how they are cut.
#[derive(Debug, Clone)]
pub struct PullPlan {
    /// Offset at the origin of the byte that belongs at 0 in the store.
    pub origin: u64,
    /// Offsets in the store of what is missing there; `None`: everything, to an end that nobody knows,
    /// by one reader.
    pub missing: Option<RangeSet>,
    /// Most bytes that a reader asks for at a time.
    pub piece: u64,
    /// Where the bytes that passed can be read once more, and where byte 0 of the store is there, for
    /// checksums that need them in order.
    pub view: Option<(Arc<dyn Source>, u64)>,
}

/// Reads what is missing over `settings.streams` readers. The report's digest is of what was read.
///
/// # Errors
/// Those of the origin ([`DataError::Read`], whose reason is the reader's own error), of the sink,
/// [`DataError::Shrunk`] when a range ends early, and those of stopping.
pub fn run(
    from: &dyn RangeOrigin,
    sink: &Arc<dyn Sink>,
    plan: &PullPlan,
    settings: &TransferSettings,
    control: &Arc<TransferControl>,
) -> Result<TransferReport, DataError> {
    let transfer = ActiveTransfer::new(Role::Receiver, settings, control)?;
    let most = plan.missing.as_ref().map(RangeSet::byte_count);
    let moving = || {
        let readers = match &plan.missing {
            Some(missing) if sink.is_seekable() => settings.streams.min(pieces(missing, plan)),
            _ => 1,
        };
        let ordered = settings.checksum.is_some_and(|a| !a.is_combinable());
        let view = plan.view.clone().filter(|_| ordered && readers > 1);
        let (view, origin) = view.map_or((None, 0), |(view, origin)| (Some(view), origin));
        let sum = TransferChecksum::read_back(settings.checksum, view, origin);
        let go_on = || transfer.check().is_ok();
        let work = PullTask {
            from,
            sink,
            plan,
            settings,
            control,
            transfer: &transfer,
            sum: &sum,
        };
        sum.run_with_follower(go_on, || work.read_missing(readers))?;
        Ok(sum.finish())
    };
    let receive = || match most.is_some_and(|bytes| bytes <= MAX_STEP as u64) {
        // A thread for its checkpoints would take longer than such a file: nothing of it is safe before
        // whoever calls it stored has synced it.
        true => {
            if sink.is_durable() {
                transfer.control().promise_synced();
            }
            moving()
        }
        false => checkpoint::run_with_checkpoints(&transfer, sink, moving),
    };
    let result = transfer.check().and_then(|()| match from.is_networked() {
        true => sizing::run_with_sizing(&transfer, settings, Role::Receiver, most, receive),
        false => receive(),
    });
    transfer.finish(result)
}

fn pieces(missing: &RangeSet, plan: &PullPlan) -> usize {
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
    sum: &'w TransferChecksum,
}

impl PullTask<'_> {
    /// Reads all that is missing.
    fn read_missing(&self, readers: usize) -> Result<(), DataError> {
        let least = self.from.min_piece();
        let supply = self.plan.missing.as_ref().map(SendCursor::ranges);
        let Some(SendCursor::Ranges { left, .. }) = &supply else {
            #[expect(
                clippy::redundant_closure_for_method_calls,
                reason = "the method would be that of one lifetime"
            )]
            return self.run_worker(|lane| lane.until_the_end());
        };
        if readers > 1 {
            self.run_parallel(left, readers)?;
        }
        // Alone, or what readers left that could not begin.
        while !lock(left).is_empty() {
            self.run_worker(|lane| lane.pieces(left, (1, least), &mut |_| false))?;
        }
        Ok(())
    }

    fn run_parallel(&self, left: &Mutex<RemainingRanges>, readers: usize) -> Result<(), DataError> {
        let cut = (readers, self.from.min_piece());
        std::thread::scope(|scope| {
            for n in 0..readers {
                let spawned = std::thread::Builder::new()
                    .name(format!("pull-{n}"))
                    .spawn_scoped(scope, move || {
                        // Most likely the server takes no further connections from here. If it is
                        // anything else, who is alone at the end will meet it again.
                        let mut gives_way = |error: &DataError| {
                            tracing::debug!(%error, "one reader fewer");
                            self.from.is_networked()
                        };
                        let done = self.run_worker(|lane| lane.pieces(left, cut, &mut gives_way));
                        if let Err(error) = done {
                            self.transfer.fail(error);
                        }
                    });
                if let Err(error) = spawned {
                    // The others do its part; without any there is nobody.
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

    /// Has one reader do `part`, in this thread.
    fn run_worker(
        &self,
        part: impl FnOnce(&mut PullWorker<'_>) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let mut lane = PullWorker::new(self)?;
        lane.reader.join_transfer(ReaderContext {
            settings: self.settings,
            control: self.control,
            stop: self.transfer.stop_wake(),
        });
        self.transfer.on_stream_start();
        let done = part(&mut lane);
        let mut accounts = lane.reader.leave_transfer();
        accounts.store_time += lane.in_store;
        accounts.wire_time += lane.on_wire;
        self.transfer.add_stream(&accounts);
        self.transfer.on_stream_end(0);
        done
    }
}

/// One reader at work.
struct PullWorker<'t> {
    from: &'t dyn RangeOrigin,
    reader: Box<dyn RangeReader + 't>,
    sink: &'t Arc<dyn Sink>,
    plan: &'t PullPlan,
    transfer: &'t ActiveTransfer,
    tap: StreamChecksum<'t>,
    buffer: PageBuffer,
    /// The kernel may put the bytes in place: nobody needs to see them.
    unseen: bool,
    /// How long this thread was in a store, and how long it waited for a network.
    in_store: Duration,
    on_wire: Duration,
}

impl<'t> PullWorker<'t> {
    fn new(work: &'t PullTask<'t>) -> Result<Self, DataError> {
        let PullTask { from, sink, .. } = *work;
        let reader = from.reader().map_err(|e| failed(from, e))?;
        Ok(Self {
            from,
            reader,
            sink,
            plan: work.plan,
            transfer: work.transfer,
            tap: work.sum.stream_checksum(),
            buffer: PageBuffer::new(work.transfer.step()),
            unseen: !work.sum.needs_bytes() && sink.is_seekable(),
            in_store: Duration::ZERO,
            on_wire: Duration::ZERO,
        })
    }

    /// Piece after piece, until none is left, cut for so many readers and not smaller than so many
    /// bytes. A reader that cannot even begin ends, and its piece is for others, if `gives_way` says so.
    fn pieces(
        &mut self,
        left: &Mutex<RemainingRanges>,
        (readers, least): (usize, u64),
        gives_way: &mut dyn FnMut(&DataError) -> bool,
    ) -> Result<(), DataError> {
        let mut begun = false;
        while let Some(part) = SendCursor::next_at_least(left, self.plan.piece, readers, least) {
            let ByteRange { start, end } = part.range;
            let origin = self.plan.origin;
            let asked = self.ask(
                origin.saturating_add(start),
                Some(origin.saturating_add(end)),
            );
            match asked {
                Err(error) if !begun && self.transfer.check().is_ok() && gives_way(&error) => {
                    lock(left).return_range(part.range);
                    return Ok(());
                }
                asked => asked?,
            }
            begun = true;
            let mut at = start;
            while at < end {
                let n = self.step(at, end - at)?;
                if n == 0 {
                    return Err(DataError::Shrunk {
                        what: self.from.name(),
                        at: origin.saturating_add(at),
                        expected: origin.saturating_add(end),
                    });
                }
                at += n;
            }
        }
        Ok(())
    }

    fn until_the_end(&mut self) -> Result<(), DataError> {
        self.ask(self.plan.origin, None)?;
        let mut at = 0;
        loop {
            match self.step(at, u64::MAX)? {
                0 => return Ok(()),
                n => at += n,
            }
        }
    }

    fn ask(&mut self, start: u64, end: Option<u64>) -> Result<(), DataError> {
        let Self {
            reader, transfer, ..
        } = self;
        let begun = Instant::now();
        let asked = retry_until_stalled(self.from, transfer, || reader.request(start, end));
        self.waited(begun);
        asked
    }

    /// The origin kept this thread since `begun`.
    fn waited(&mut self, begun: Instant) {
        match self.from.is_networked() {
            true => self.on_wire += begun.elapsed(),
            false => self.in_store += begun.elapsed(),
        }
    }

    /// Moves up to `most` bytes to `at` of the store; returns how many, 0 at the end.
    fn step(&mut self, at: u64, most: u64) -> Result<u64, DataError> {
        self.transfer.check()?;
        let len = usize::try_from(most)
            .unwrap_or(usize::MAX)
            .min(self.transfer.step());
        let n = match self.hand_over(at, len)? {
            Some(n) => n,
            None => self.copy(at, len)?,
        };
        let end = at + n as u64;
        if n > 0 {
            self.transfer.clock().note_progress();
            self.transfer.control().add_stored(at, end);
            self.tap.stored(at, end);
            self.transfer.add_moved(n as u64);
            self.transfer.throttle(n)?;
        }
        Ok(n as u64)
    }

    fn hand_over(&mut self, at: u64, len: usize) -> Result<Option<usize>, DataError> {
        let Some(to) = self.sink.fd().filter(|_| self.unseen) else {
            return Ok(None);
        };
        let written = |e| DataError::write(&**self.sink, e);
        self.sink.begin().map_err(written)?;
        let _hold = self.transfer.clock().pause();
        let begun = Instant::now();
        let moved = self.reader.copy_to_file(to, at, len);
        self.in_store += begun.elapsed();
        match moved {
            None => {
                self.unseen = false;
                Ok(None)
            }
            Some(moved) => {
                let n = moved.map_err(written)?;
                self.sink.spliced(at, n as u64).map_err(written)?;
                Ok(Some(n))
            }
        }
    }

    fn copy(&mut self, at: u64, len: usize) -> Result<usize, DataError> {
        let Self {
            reader,
            buffer,
            transfer,
            ..
        } = self;
        let buf = &mut buffer.as_mut()[..len];
        let begun = Instant::now();
        let read = retry_until_stalled(self.from, transfer, || reader.read(buf));
        self.waited(begun);
        let n = read?;
        let bytes = &self.buffer.as_ref()[..n];
        self.tap.add(at, bytes);
        let _hold = self.transfer.clock().pause();
        let begun = Instant::now();
        let written = self.sink.write_at(at, bytes);
        self.in_store += begun.elapsed();
        written.map_err(|e| DataError::write(&**self.sink, e))?;
        Ok(n)
    }
}

/// Tries until it works, the transfer is to stop, or nothing has moved for too long.
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
