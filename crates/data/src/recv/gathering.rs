//! The state that all connections of one MODE E transfer share: its end marks (GFD.20 §3.4), the ranges
//! that they announced, and the connections that are kept.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use proto::eblock::{BlockError, Completion};
use proto::ranges::RangeSet;

use super::inlet::MAX_PIECES;
use crate::budget::Permit;
use crate::error::DataError;
use crate::lock::{locked, unlocked};
use crate::os::wake::Wake;
use crate::stream::Stream;
use crate::sum::Sum;

/// State that the connections of one transfer share.
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
    pub(super) fn new(sum: Sum) -> Result<Self, DataError> {
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

    pub(super) fn park(&self, stream: Arc<Stream>) {
        locked(&self.parked).push(stream);
    }

    /// A reader starts; it counts as active until the guard is dropped.
    pub(super) fn at_work(&self) -> AtWork<'_> {
        self.active.fetch_add(1, Ordering::SeqCst);
        AtWork(self)
    }

    /// The checksum of all bytes and the connections that may be used again.
    pub(super) fn into_parts(self) -> (Sum, Vec<Arc<Stream>>) {
        (self.sum, unlocked(self.parked))
    }
}

/// Counts a reader from before its thread starts until it ends, however it ends.
pub(super) struct AtWork<'g>(&'g Gathering);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::SeqCst);
        self.0.nudge.ring();
    }
}
