//! State shared by all connections of one MODE E transfer: the end-of-data marks (GFD.20 §3.4), the
//! announced ranges, and the connections kept for reuse.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use proto::eblock::{BlockDecoder, BlockError, EodCounter};
use proto::ranges::RangeSet;

use super::stream_receiver::MAX_RANGES_STORED;
use crate::budget::StreamPermit;
use crate::error::DataError;
use crate::os::wake::{self, WakeEvent};
use crate::stream::DataStream;
use crate::transfer_checksum::TransferChecksum;

/// State shared by the connections of one transfer.
#[derive(Debug)]
pub(super) struct ExtendedReceive {
    pub(super) checksum: TransferChecksum,
    /// Set when the transfer is complete: connections that wait for a header stop waiting.
    pub(super) completed: WakeEvent,
    /// Set when a turn is wanted: connections that wait for anything stop waiting.
    pub(super) turn_wake: WakeEvent,
    /// Set when the acceptor must check its state.
    pub(super) acceptor_wake: WakeEvent,
    completion: Mutex<EodCounter>,
    /// A connection has carried a valid header.
    has_header: AtomicBool,
    /// Number of active readers.
    active_readers: AtomicUsize,
    /// Number of connections that have bytes, and no reader because of a limit.
    turns_wanted: AtomicUsize,
    /// Connections whose readers gave up their turn, in that order.
    waiting: Mutex<VecDeque<WaitingStream>>,
    /// Connections that have finished their part and may be reused.
    parked: Mutex<Vec<Arc<DataStream>>>,
    /// The error of the first connection that began with an invalid header.
    bad_start: Mutex<Option<DataError>>,
    /// The ranges that block headers have announced.
    announced: Mutex<RangeSet>,
}

/// A connection between two of its readers.
#[derive(Debug)]
pub(super) struct WaitingStream {
    pub(super) stream: Arc<DataStream>,
    pub(super) past: StreamPast,
}

/// How far a connection was read.
#[derive(Debug, Default)]
pub(super) struct StreamPast {
    /// It carried an earlier transfer.
    pub(super) is_cached: bool,
    /// It carried a valid header of this transfer.
    pub(super) has_carried: bool,
    pub(super) decoder: BlockDecoder,
    /// Ranges of the current block that were announced before.
    pub(super) repeated: RangeSet,
}

impl ExtendedReceive {
    /// `senders`: how many senders end their part by an EOF.
    pub(super) fn new(checksum: TransferChecksum, senders: u32) -> Result<Self, DataError> {
        let wake = || WakeEvent::new().map_err(|e| DataError::setup("an event descriptor", e));
        Ok(Self {
            checksum,
            completed: wake()?,
            turn_wake: wake()?,
            acceptor_wake: wake()?,
            completion: Mutex::new(EodCounter::of_senders(senders)),
            has_header: AtomicBool::new(false),
            active_readers: AtomicUsize::new(0),
            turns_wanted: AtomicUsize::new(0),
            waiting: Mutex::default(),
            parked: Mutex::default(),
            bad_start: Mutex::default(),
            announced: Mutex::default(),
        })
    }

    pub(super) fn is_complete(&self) -> bool {
        self.completion.lock().is_complete()
    }

    pub(super) fn has_valid_header(&self) -> bool {
        self.has_header.load(Ordering::Relaxed)
    }

    pub(super) fn note_valid_header(&self) {
        self.has_header.store(true, Ordering::Relaxed);
    }

    pub(super) fn active_readers(&self) -> usize {
        self.active_readers.load(Ordering::SeqCst)
    }

    /// Whether a connection remains on which an end mark might still come.
    pub(super) fn has_live_parked(&self) -> bool {
        self.parked.lock().iter().any(|s| s.is_alive()) || !self.waiting.lock().is_empty()
    }

    pub(super) fn on_eod(&self) -> Result<(), BlockError> {
        let mut completion = self.completion.lock();
        // The count is checked: more EODs than announced are an error.
        completion.on_eod()?;
        self.notify_if_complete(&completion);
        Ok(())
    }

    /// Returns whether it is the first EOF.
    pub(super) fn on_eof(&self, streams: u64) -> Result<bool, BlockError> {
        let mut completion = self.completion.lock();
        let first = completion.on_eof(streams)?;
        self.notify_if_complete(&completion);
        Ok(first)
    }

    /// Records that a connection began with an invalid header. The first error is kept.
    pub(super) fn note_bad_start(&self, error: DataError) {
        self.bad_start.lock().get_or_insert(error);
    }

    pub(super) fn take_bad_start(&self) -> Option<DataError> {
        self.bad_start.lock().take()
    }

    /// Records that a block at `start..end` is about to arrive. Returns the parts of it that were
    /// announced before.
    pub(super) fn announce_block(&self, start: u64, end: u64) -> Result<RangeSet, DataError> {
        let mut announced = self.announced.lock();
        let gaps = announced.gaps(start, end);
        let new = announced.insert(start, end);
        // The bound counts ranges, because each costs memory.
        if announced.range_count() > MAX_RANGES_STORED {
            let limit = MAX_RANGES_STORED;
            return Err(DataError::Scattered { limit });
        }
        // The usual case: nothing of the block was announced before.
        if new == end - start {
            return Ok(RangeSet::new());
        }
        let mut repeated = RangeSet::new();
        repeated.insert(start, end);
        for gap in gaps.iter() {
            repeated.remove(gap.start, gap.end);
        }
        Ok(repeated)
    }

    fn notify_if_complete(&self, completion: &EodCounter) {
        if completion.is_complete() {
            self.completed.wake();
            self.acceptor_wake.wake();
        }
    }

    /// Takes the permit of a connection without a reader: those that send take precedence over those that are only kept
    /// or wait for their next turn.
    pub(super) fn take_unused_permit(&self) -> Option<StreamPermit> {
        let parked = self.parked.lock().iter().find_map(|s| s.take_permit());
        parked.or_else(|| {
            self.waiting
                .lock()
                .iter()
                .find_map(|w| w.stream.take_permit())
        })
    }

    /// Asks that many readers for their turns. A limit of streams must not leave one unread for long: its sender's
    /// retransmissions to a full buffer come ever later.
    pub(super) fn ask_for_turns(&self, wanted: usize) {
        self.turns_wanted.store(wanted, Ordering::SeqCst);
        match wanted {
            0 => self.end_turn_wake(),
            _ => self.turn_wake.wake(),
        }
    }

    /// Whether the calling reader must give up its turn.
    pub(super) fn takes_turn(&self) -> bool {
        let taken = self
            .turns_wanted
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        if taken == Ok(1) {
            self.end_turn_wake();
        }
        taken.is_ok()
    }

    fn end_turn_wake(&self) {
        self.turn_wake.clear();
        // Turns may have been wanted before the event was cleared.
        if self.turns_wanted.load(Ordering::SeqCst) > 0 {
            self.turn_wake.wake();
        }
    }

    /// Keeps a connection until its next turn.
    pub(super) fn wait_for_turn(&self, stream: Arc<DataStream>, past: StreamPast) {
        self.waiting
            .lock()
            .push_back(WaitingStream { stream, past });
    }

    /// Takes the connection out that waits for longest of those with bytes.
    pub(super) fn take_waiting(&self) -> Option<WaitingStream> {
        let mut waiting = self.waiting.lock();
        let at = waiting.iter().position(WaitingStream::has_bytes)?;
        waiting.remove(at)
    }

    /// Number of waiting connections with bytes.
    pub(super) fn waiting_with_bytes(&self) -> usize {
        self.waiting.lock().iter().filter(|w| w.has_bytes()).count()
    }

    /// The connections that wait for a turn.
    pub(super) fn waiting_streams(&self) -> Vec<Arc<DataStream>> {
        let waiting = self.waiting.lock();
        waiting.iter().map(|w| Arc::clone(&w.stream)).collect()
    }

    pub(super) fn park(&self, stream: Arc<DataStream>) {
        self.parked.lock().push(stream);
    }

    /// Counts a reader as active until the guard is dropped.
    pub(super) fn start_reader(&self) -> ActiveReaderGuard<'_> {
        self.active_readers.fetch_add(1, Ordering::SeqCst);
        ActiveReaderGuard(self)
    }

    /// The checksum of all bytes, and the connections that may be reused.
    pub(super) fn into_parts(self) -> (TransferChecksum, Vec<Arc<DataStream>>) {
        let waiting = self.waiting.into_inner().into_iter().map(|w| w.stream);
        let kept = self.parked.into_inner().into_iter().chain(waiting);
        (self.checksum, kept.collect())
    }
}

impl WaitingStream {
    /// Whether it has something to read, the peer's FIN and errors included.
    fn has_bytes(&self) -> bool {
        wake::is_readable(&*self.stream)
    }
}

/// Counts a reader from before its thread starts until it ends, also after a panic.
pub(super) struct ActiveReaderGuard<'g>(&'g ExtendedReceive);

impl Drop for ActiveReaderGuard<'_> {
    fn drop(&mut self) {
        self.0.active_readers.fetch_sub(1, Ordering::SeqCst);
        self.0.acceptor_wake.wake();
    }
}
