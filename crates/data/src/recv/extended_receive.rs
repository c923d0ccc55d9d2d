//! The state that all connections of one MODE E transfer share: its end marks (GFD.20 §3.4), the ranges
//! that they announced, and the connections that are kept.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use proto::eblock::{BlockError, EodCounter};
use proto::ranges::RangeSet;

use super::stream_receiver::MAX_PIECES;
use crate::budget::StreamPermit;
use crate::error::DataError;
use crate::locks::{into_unlocked, lock};
use crate::os::wake::WakeEvent;
use crate::stream::DataStream;
use crate::transfer_checksum::TransferChecksum;

/// State that the connections of one transfer share.
#[derive(Debug)]
pub(super) struct ExtendedReceive {
    pub(super) checksum: TransferChecksum,
    /// Rung when the transfer is complete: connections that wait for a header stop waiting.
    pub(super) completed: WakeEvent,
    /// Rung when the intake has something to look at.
    pub(super) nudge: WakeEvent,
    completion: Mutex<EodCounter>,
    /// A connection carried a valid header.
    productive: AtomicBool,
    /// Readers at work.
    active: AtomicUsize,
    /// Connections whose part is over and that may be used again.
    parked: Mutex<Vec<Arc<DataStream>>>,
    /// Why the first connection that began with nonsense was dropped.
    bad: Mutex<Option<DataError>>,
    /// The ranges that connections have announced.
    announced: Mutex<RangeSet>,
}

impl ExtendedReceive {
    pub(super) fn new(sum: TransferChecksum) -> Result<Self, DataError> {
        let wake = || WakeEvent::new().map_err(|e| DataError::setup("an event descriptor", e));
        Ok(Self {
            checksum: sum,
            completed: wake()?,
            nudge: wake()?,
            completion: Mutex::default(),
            productive: AtomicBool::new(false),
            active: AtomicUsize::new(0),
            parked: Mutex::default(),
            bad: Mutex::default(),
            announced: Mutex::default(),
        })
    }

    pub(super) fn is_complete(&self) -> bool {
        lock(&self.completion).is_complete()
    }

    pub(super) fn has_valid_header(&self) -> bool {
        self.productive.load(Ordering::Relaxed)
    }

    pub(super) fn note_valid_header(&self) {
        self.productive.store(true, Ordering::Relaxed);
    }

    pub(super) fn active(&self) -> usize {
        self.active.load(Ordering::SeqCst)
    }

    /// Whether a connection is left on which an end mark might still come.
    pub(super) fn has_live_parked(&self) -> bool {
        lock(&self.parked).iter().any(|s| s.is_alive())
    }

    pub(super) fn on_eod(&self) -> Result<(), BlockError> {
        let mut completion = lock(&self.completion);
        completion.on_eod()?;
        self.notify_if_complete(&completion);
        Ok(())
    }

    /// Returns whether it is the first one.
    pub(super) fn on_eof(&self, streams: u64) -> Result<bool, BlockError> {
        let mut completion = lock(&self.completion);
        let first = completion.on_eof(streams)?;
        self.notify_if_complete(&completion);
        Ok(first)
    }

    /// A connection began with nonsense; the first one's is remembered.
    pub(super) fn note_bad_start(&self, error: DataError) {
        lock(&self.bad).get_or_insert(error);
    }

    pub(super) fn take_bad_start(&self) -> Option<DataError> {
        lock(&self.bad).take()
    }

    /// A block at `start..end` is about to come. Returns those parts of it that were announced
    /// before.
    pub(super) fn announce_block(&self, start: u64, end: u64) -> Result<RangeSet, DataError> {
        let mut announced = lock(&self.announced);
        let fresh = announced.gaps(start, end);
        let new = announced.insert(start, end);
        if announced.range_count() > MAX_PIECES {
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

    fn notify_if_complete(&self, completion: &EodCounter) {
        if completion.is_complete() {
            self.completed.wake();
            self.nudge.wake();
        }
    }

    /// The permit of a connection whose part is over: others go before what is only kept.
    pub(super) fn take_parked_permit(&self) -> Option<StreamPermit> {
        lock(&self.parked).iter().find_map(|s| s.take_permit())
    }

    pub(super) fn park(&self, stream: Arc<DataStream>) {
        lock(&self.parked).push(stream);
    }

    /// A reader starts; it counts as active until the guard is dropped.
    pub(super) fn start_reader(&self) -> ActiveReaderGuard<'_> {
        self.active.fetch_add(1, Ordering::SeqCst);
        ActiveReaderGuard(self)
    }

    /// The checksum of all bytes and the connections that may be used again.
    pub(super) fn into_parts(self) -> (TransferChecksum, Vec<Arc<DataStream>>) {
        (self.checksum, into_unlocked(self.parked))
    }
}

/// Counts a reader from before its thread starts until it ends, however it ends.
pub(super) struct ActiveReaderGuard<'g>(&'g ExtendedReceive);

impl Drop for ActiveReaderGuard<'_> {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::SeqCst);
        self.0.nudge.wake();
    }
}
