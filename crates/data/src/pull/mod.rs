//! Ranges that are asked for, into a store: from a file of this machine, from an HTTP server, from
//! anything that gives bytes to whoever asks for a range of them.
//!
//! Several readers share what is missing: each asks for the next piece when it has stored the last
//! one, so that a slow reader never holds the others back.

mod local;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use proto::ranges::{ByteRange, RangeSet};
use tune::limiter::Role;

use crate::buffer::PageBuffer;
use crate::checkpoint;
use crate::cursor::{Left, Supply};
use crate::error::DataError;
use crate::job::{Control, Report, Settings};
use crate::store::{Sink, Source};
use crate::sum::{Sum, Tap};
use crate::transfer::{STEP, Transfer};

pub use local::{Files, share};

/// Something that bytes are asked of.
pub trait Origin: Send + Sync {
    /// For messages: the path, the URL.
    fn name(&self) -> String;

    /// A way to it, for one thread at a time.
    ///
    /// # Errors
    /// What keeps it from being opened.
    fn reader(&self) -> io::Result<Box<dyn Reader + '_>>;
}

/// One thread's way to an [`Origin`].
pub trait Reader: Send {
    /// Asks for the bytes from `start` to `end`, or without an end for all that follow.
    ///
    /// # Errors
    /// A refusal; [`io::ErrorKind::WouldBlock`] or [`io::ErrorKind::TimedOut`] when nothing has come for a
    /// while: it is asked again, until the transfer counts as stalled.
    fn ask(&mut self, start: u64, end: Option<u64>) -> io::Result<()>;

    /// The next of the bytes that were asked for; 0 at their end.
    ///
    /// # Errors
    /// As [`Reader::ask`].
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize>;

    /// Has the kernel put the next bytes, at most `len`, at `offset` of the file `to`; `None` where that
    /// cannot be: then they are read.
    fn hand_over(
        &mut self,
        _to: BorrowedFd<'_>,
        _offset: u64,
        _len: usize,
    ) -> Option<io::Result<usize>> {
        None
    }
}

/// What is to be read, and how it is cut.
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
    from: &dyn Origin,
    sink: &Arc<dyn Sink>,
    plan: &PullPlan,
    settings: &Settings,
    control: &Arc<Control>,
) -> Result<Report, DataError> {
    let transfer = Transfer::new(Role::Receiver, settings, control)?;
    let moving = || {
        let readers = match &plan.missing {
            Some(missing) if sink.seekable() => settings.streams.min(pieces(missing, plan)),
            _ => 1,
        };
        let ordered = settings.sum.is_some_and(|a| !a.combines());
        let view = plan.view.clone().filter(|_| ordered && readers > 1);
        let (view, origin) = view.map_or((None, 0), |(view, origin)| (Some(view), origin));
        let sum = Sum::read_back(settings.sum, view, origin);
        let go_on = || transfer.check().is_ok();
        sum.beside(go_on, || all(from, (sink, plan), readers, &transfer, &sum))?;
        Ok(sum.digest())
    };
    let one_step = plan
        .missing
        .as_ref()
        .is_some_and(|m| m.bytes() <= STEP as u64);
    let result = transfer.check().and_then(|()| match one_step {
        // A thread for its checkpoints would take longer than such a file: nothing of it is safe before
        // whoever calls it stored has synced it.
        true => {
            if sink.durable() {
                transfer.control().promise_synced();
            }
            moving()
        }
        false => checkpoint::beside(&transfer, sink, moving),
    });
    transfer.finish(result)
}

fn pieces(missing: &RangeSet, plan: &PullPlan) -> usize {
    let pieces = missing.bytes().div_ceil(plan.piece.max(1)).max(1);
    usize::try_from(pieces).unwrap_or(usize::MAX)
}

fn all(
    from: &dyn Origin,
    (sink, plan): (&Arc<dyn Sink>, &PullPlan),
    readers: usize,
    transfer: &Transfer,
    sum: &Sum,
) -> Result<(), DataError> {
    let supply = plan.missing.as_ref().map(Supply::ranges);
    let lane = |supply: Option<&Mutex<Left>>| {
        let mut lane = Lane::new(from, (sink, plan), transfer, sum)?;
        transfer.on_join();
        let done = match supply {
            Some(left) => lane.pieces(left, readers),
            None => lane.until_the_end(),
        };
        transfer.on_leave(0);
        done
    };
    let Some(Supply::Ranges { left, .. }) = &supply else {
        return lane(None);
    };
    if readers <= 1 {
        return lane(Some(left));
    }
    std::thread::scope(|scope| {
        for n in 0..readers {
            let spawned = std::thread::Builder::new()
                .name(format!("pull-{n}"))
                .spawn_scoped(scope, || {
                    if let Err(error) = lane(Some(left)) {
                        transfer.fail(error);
                    }
                });
            if let Err(error) = spawned {
                // The others do its part; without any there is nobody.
                if n == 0 {
                    transfer.fail(DataError::setup("a reader thread", error));
                }
                break;
            }
        }
    });
    transfer.check()
}

/// One reader at work.
struct Lane<'t> {
    from: &'t dyn Origin,
    reader: Box<dyn Reader + 't>,
    sink: &'t Arc<dyn Sink>,
    plan: &'t PullPlan,
    transfer: &'t Transfer,
    tap: Tap<'t>,
    buffer: PageBuffer,
    /// The kernel may put the bytes in place: nobody needs to see them.
    unseen: bool,
}

impl<'t> Lane<'t> {
    fn new(
        from: &'t dyn Origin,
        (sink, plan): (&'t Arc<dyn Sink>, &'t PullPlan),
        transfer: &'t Transfer,
        sum: &'t Sum,
    ) -> Result<Self, DataError> {
        let reader = from.reader().map_err(|e| failed(from, e))?;
        Ok(Self {
            from,
            reader,
            sink,
            plan,
            transfer,
            tap: sum.tap(),
            buffer: PageBuffer::new(transfer.step()),
            unseen: !sum.needs_bytes() && sink.seekable(),
        })
    }

    /// Piece after piece, until none is left.
    fn pieces(&mut self, left: &Mutex<Left>, readers: usize) -> Result<(), DataError> {
        while let Some(part) = Supply::next(left, self.plan.piece, readers) {
            let ByteRange { start, end } = part.range;
            let origin = self.plan.origin;
            self.ask(
                origin.saturating_add(start),
                Some(origin.saturating_add(end)),
            )?;
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
        patiently(self.from, transfer, || reader.ask(start, end))
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
            self.transfer.clock().touch();
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
        let _hold = self.transfer.clock().hold();
        match self.reader.hand_over(to, at, len) {
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
        let n = patiently(self.from, transfer, || reader.read(buf))?;
        let bytes = &self.buffer.as_ref()[..n];
        self.tap.pass(at, bytes);
        let _hold = self.transfer.clock().hold();
        self.sink
            .write_at(at, bytes)
            .map_err(|e| DataError::write(&**self.sink, e))?;
        Ok(n)
    }
}

/// Tries until it works, the transfer is to stop, or nothing has moved for too long.
fn patiently<T>(
    from: &dyn Origin,
    transfer: &Transfer,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> Result<T, DataError> {
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(e) if is_pause(&e) => {}
            Err(e) => return Err(failed(from, e)),
        }
        transfer.check()?;
        if transfer.clock().left().is_zero() {
            return Err(DataError::Stalled {
                seconds: transfer.clock().limit_seconds(),
            });
        }
    }
}

fn is_pause(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

fn failed(from: &dyn Origin, error: io::Error) -> DataError {
    DataError::Read {
        what: from.name(),
        source: error,
    }
}

#[cfg(test)]
mod tests;
