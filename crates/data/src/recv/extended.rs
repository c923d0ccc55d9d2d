//! MODE E: blocks from any number of connections until EOF and every EOD are in (GFD.20 §3.4).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};

use proto::eblock::{BlockError, Completion};
use proto::ranges::RangeSet;

use super::Job;
use super::accept::Intake;
use super::inlet::MAX_PIECES;
use super::reader::{End, Reader};
use crate::budget::Permit;
use crate::channel::Channel;
use crate::error::DataError;
use crate::lock::locked;
use crate::os::wake::Wake;
use crate::stream::Stream;
use crate::sum::Sum;
use crate::wire::Wire;

/// What the connections of one transfer tell each other.
#[derive(Debug)]
pub(super) struct Gathering {
    pub(super) sum: Sum,
    /// Rung when the transfer is complete: connections that wait for a header stop waiting.
    pub(super) over: Wake,
    /// Rung when the intake has something to look at.
    pub(super) nudge: Wake,
    completion: Mutex<Completion>,
    /// A connection carried a valid header.
    productive: AtomicBool,
    /// Readers at work.
    active: AtomicUsize,
    /// Connections whose part is over and that may be used again.
    parked: Mutex<Vec<Arc<Stream>>>,
    /// Why the first connection that began with nonsense was dropped.
    bad: Mutex<Option<DataError>>,
    /// The ranges that connections have announced.
    announced: Mutex<RangeSet>,
}

impl Gathering {
    fn new(sum: Sum) -> Result<Self, DataError> {
        let wake = || Wake::new().map_err(|e| DataError::setup("an event descriptor", e));
        Ok(Self {
            sum,
            over: wake()?,
            nudge: wake()?,
            completion: Mutex::default(),
            productive: AtomicBool::new(false),
            active: AtomicUsize::new(0),
            parked: Mutex::default(),
            bad: Mutex::default(),
            announced: Mutex::default(),
        })
    }

    pub(super) fn complete(&self) -> bool {
        locked(&self.completion).complete()
    }

    pub(super) fn productive(&self) -> bool {
        self.productive.load(Ordering::Relaxed)
    }

    pub(super) fn note_productive(&self) {
        self.productive.store(true, Ordering::Relaxed);
    }

    pub(super) fn active(&self) -> usize {
        self.active.load(Ordering::SeqCst)
    }

    /// Whether a connection is left on which an end mark might still come.
    pub(super) fn may_hear_more(&self) -> bool {
        locked(&self.parked).iter().any(|s| s.alive())
    }

    pub(super) fn on_eod(&self) -> Result<(), BlockError> {
        let mut completion = locked(&self.completion);
        completion.on_eod()?;
        self.announce(&completion);
        Ok(())
    }

    /// Returns whether it is the first one.
    pub(super) fn on_eof(&self, streams: u64) -> Result<bool, BlockError> {
        let mut completion = locked(&self.completion);
        let first = completion.on_eof(streams)?;
        self.announce(&completion);
        Ok(first)
    }

    /// A connection began with nonsense; the first one's is remembered.
    pub(super) fn note_bad(&self, error: DataError) {
        locked(&self.bad).get_or_insert(error);
    }

    pub(super) fn take_bad(&self) -> Option<DataError> {
        locked(&self.bad).take()
    }

    /// A block at `start..end` is about to come. Returns those parts of it that were announced
    /// before.
    pub(super) fn announce_block(&self, start: u64, end: u64) -> Result<RangeSet, DataError> {
        let mut announced = locked(&self.announced);
        let fresh = announced.gaps(start, end);
        let new = announced.insert(start, end);
        if announced.count() > MAX_PIECES {
            let limit = MAX_PIECES;
            return Err(DataError::Scattered { limit });
        }
        if new == end - start {
            return Ok(RangeSet::new());
        }
        let mut again = RangeSet::new();
        again.insert(start, end);
        for gap in fresh.iter() {
            again.remove(gap.start, gap.end);
        }
        Ok(again)
    }

    fn announce(&self, completion: &Completion) {
        if completion.complete() {
            self.over.ring();
            self.nudge.ring();
        }
    }

    /// The permit of a connection whose part is over: others go before what is only kept.
    pub(super) fn spare_permit(&self) -> Option<Permit> {
        locked(&self.parked).iter().find_map(|s| s.yield_permit())
    }

    fn park(&self, stream: Arc<Stream>) {
        locked(&self.parked).push(stream);
    }
}

/// Receives over the cached connections and all that arrive; keeps those that may be used again.
pub(super) fn receive(channel: &mut Channel, job: &Job<'_>) -> Result<Option<String>, DataError> {
    let gathering = Gathering::new(job.sum(true))?;
    // Kept connections have theirs.
    let reused = channel.has_cached(false);
    let permit = if reused {
        None
    } else {
        Some(channel.permit()?)
    };
    let present = channel
        .open_extended(job.transfer, job.settings, false, 1)?
        .open;
    let go_on = || job.transfer.check().is_ok();
    gathering
        .sum
        .beside(go_on, || gather(channel, job, &gathering, present, permit));
    job.transfer.check()?;
    let Gathering { sum, parked, .. } = gathering;
    channel.keep(
        false,
        parked.into_inner().unwrap_or_else(PoisonError::into_inner),
    );
    Ok(sum.digest())
}

/// Runs the readers, and in the caller's thread the intake of further connections, until all
/// have ended. A failure is noted in the transfer.
fn gather(
    channel: &Channel,
    job: &Job<'_>,
    gathering: &Gathering,
    present: Vec<Arc<Stream>>,
    permit: Option<Permit>,
) {
    let transfer = job.transfer;
    std::thread::scope(|scope| {
        let crew = Crew {
            scope,
            job,
            gathering,
            readers: Vec::new(),
            started: 0,
        };
        let mut intake = Intake::new(channel, crew, permit);
        let taken = intake.adopt(present).and_then(|()| intake.run());
        if let Err(error) = taken {
            transfer.fail(error);
        }
        intake.join();
    });
}

/// The reader threads of one transfer.
pub(super) struct Crew<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    pub(super) job: &'env Job<'env>,
    pub(super) gathering: &'env Gathering,
    readers: Vec<ScopedJoinHandle<'scope, ()>>,
    started: usize,
}

impl Crew<'_, '_> {
    /// Starts reading a connection.
    pub(super) fn start(&mut self, stream: Arc<Stream>, cached: bool) -> Result<(), DataError> {
        self.reap();
        let (job, gathering) = (self.job, self.gathering);
        let at_work = AtWork::new(gathering);
        let wire = Wire::new(job.transfer, stream);
        let reader = std::thread::Builder::new()
            .name(format!("recv-{}", self.started))
            .spawn_scoped(self.scope, move || {
                let _at_work = at_work;
                read_one(wire, job, gathering, cached);
            })
            .map_err(|e| DataError::setup("a stream thread", e))?;
        self.started += 1;
        self.readers.push(reader);
        Ok(())
    }

    /// Lets go of readers that have ended; their stacks would stay otherwise, and connections may come
    /// and go for as long as the transfer lasts.
    fn reap(&mut self) {
        let readers = std::mem::take(&mut self.readers);
        let (ended, running) = readers.into_iter().partition(ScopedJoinHandle::is_finished);
        self.readers = running;
        self.await_all(ended);
    }

    pub(super) fn join(mut self) {
        let readers = std::mem::take(&mut self.readers);
        self.await_all(readers);
    }

    fn await_all(&self, readers: Vec<ScopedJoinHandle<'_, ()>>) {
        for reader in readers {
            // A reader that panicked has sent its message; its transfer is not whole.
            if reader.join().is_err() {
                self.job.transfer.fail(DataError::Aborted);
            }
        }
    }
}

/// Counts a reader from before its thread starts until it ends, however it ends.
struct AtWork<'g>(&'g Gathering);

impl<'g> AtWork<'g> {
    fn new(gathering: &'g Gathering) -> Self {
        gathering.active.fetch_add(1, Ordering::SeqCst);
        Self(gathering)
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::SeqCst);
        self.0.nudge.ring();
    }
}

fn read_one(wire: Wire<'_>, job: &Job<'_>, gathering: &Gathering, cached: bool) {
    let stream = Arc::clone(wire.stream());
    match Reader::new(wire, job, gathering).run() {
        Ok(End::Eod { close: false }) => gathering.park(stream),
        Ok(End::Idle { carried }) if carried || cached => gathering.park(stream),
        Ok(_) => {}
        Err(error) => job.transfer.fail(error),
    }
}
