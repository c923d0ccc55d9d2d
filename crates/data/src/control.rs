//! The handle between a running transfer and whoever watches or stops it.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use proto::ranges::RangeSet;

use crate::locks::lock;
use crate::os::wake::WakeEvent;
use crate::stream::DataStream;
pub use crate::stream::StreamSample;
use crate::tuning_notices::TuningNotices;
use tune::Evidence;
use tune::limiter::Limiter;
use tune::sizing::BufferDecision;
use tune::sizing::auto::HostBound;
use tune::streams::auto::TransferDecision as StreamDecision;

/// Shared between a running transfer and whoever watches or stops it. One may serve several
/// attempts in turn: bytes and stored ranges then add up. Once cancelled it stays so.
///
/// A transfer that moves a part of a larger one has a handle of its own, [`TransferControl::part_of`] the
/// larger one's.
#[derive(Debug, Default)]
pub struct TransferControl {
    whole: Option<ParentTransfer>,
    cancelled: AtomicBool,
    bytes: AtomicU64,
    stored: Mutex<RangeSet>,
    synced: Mutex<CheckpointState>,
    live: Mutex<Vec<Weak<DataStream>>>,
    wakes: Mutex<Vec<Weak<WakeEvent>>>,
    peers: Mutex<Vec<IpAddr>>,
    evidence: Mutex<Evidence>,
    begun: Mutex<Option<Instant>>,
    board: TuningNotices,
}

/// Checkpoints of a transfer whose store forces bytes to disk; those of a part are its whole's.
#[derive(Debug, Default)]
struct CheckpointState {
    /// `ranges` are safe, not all that was stored.
    promised: bool,
    ranges: RangeSet,
    /// When the next checkpoint is due.
    due: Option<Instant>,
}

/// The transfer that a part belongs to.
#[derive(Debug)]
struct ParentTransfer {
    control: Arc<TransferControl>,
    /// Where the part's first byte is in it.
    start: u64,
}

/// Most hosts that [`TransferControl::peers`] names.
const MOST_PEERS: usize = 64;

impl TransferControl {
    /// Nothing moved yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The handle of a transfer that moves the part of `whole` that begins at its byte `start`. What
    /// is counted, stored and open here is so there, too; cancelling the whole cancels its parts.
    pub fn part_of(whole: &Arc<Self>, start: u64) -> Self {
        Self {
            whole: Some(ParentTransfer {
                control: Arc::clone(whole),
                start,
            }),
            ..Self::default()
        }
    }

    /// Payload bytes moved over the wire so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Ranges safely handed to the store so far (receiving), wire offsets.
    pub fn stored(&self) -> RangeSet {
        lock(&self.stored).clone()
    }

    /// Of the stored ranges those that a power cut cannot take back, as of the last checkpoint; the
    /// whole transfer's, for a part, too. Empty where the store forces nothing to disk
    /// ([`crate::store::Sink::is_durable`]).
    pub fn synced(&self) -> RangeSet {
        lock(&self.root().synced).ranges.clone()
    }

    /// Ranges that may be told to a peer as safe: [`TransferControl::synced`] where the store forces bytes to disk,
    /// else [`TransferControl::stored`]. Of the whole transfer, for a part, too.
    pub fn safe(&self) -> RangeSet {
        let root = self.root();
        let synced = lock(&root.synced);
        match synced.promised {
            true => synced.ranges.clone(),
            false => root.stored(),
        }
    }

    /// Runs `sync`, which forces to disk all that is stored when it is called; what was stored before
    /// is [`TransferControl::synced`] when it succeeds.
    ///
    /// # Errors
    /// Those of `sync`.
    pub fn checkpoint<T, E>(&self, sync: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let root = self.root();
        let stored = root.stored();
        let done = sync()?;
        lock(&root.synced).ranges.extend(&stored);
        Ok(done)
    }

    /// Whether all of `start..end` was handed to the store.
    pub(crate) fn has_stored(&self, start: u64, end: u64) -> bool {
        lock(&self.stored).contains(start, end)
    }

    /// Data connections open now.
    pub fn streams(&self) -> u64 {
        lock(&self.live).len() as u64
    }

    /// Hosts at the other ends of the data connections so far, as they came; IPv4-mapped
    /// addresses as IPv4.
    pub fn peers(&self) -> Vec<IpAddr> {
        lock(&self.peers).clone()
    }

    /// When the last attempt began to look for connections: the moment that
    /// [`Decision::at`] counts from.
    pub fn started_at(&self) -> Option<Instant> {
        *lock(&self.begun)
    }

    /// Evidence of its path from the last attempt that ended, failed or not.
    pub fn evidence(&self) -> Evidence {
        lock(&self.evidence).clone()
    }

    /// Calls `tell` with the new size, bytes, whenever this end, receiving with
    /// [`proto::sizing::BufferSizing::Drs1ReceiverTuner`], has given its buffers one: the sender must be told.
    pub fn on_resize(&self, tell: impl Fn(u64) + Send + Sync + 'static) {
        self.board.on_resize(tell);
    }

    /// The peer's receiver has buffers of this size now (SBUF, 126): this end, sending, follows.
    pub fn follow_peer_size(&self, bytes: u64) {
        self.board.follow_peer_size(bytes);
    }

    /// Decisions about buffers since the last call, oldest first; bounded.
    pub fn take_decisions(&self) -> Vec<BufferDecision> {
        self.board.take_decisions()
    }

    /// A limit of this host that held a stream back when it was last looked at, and that no buffer
    /// gets around but more streams may; of several streams, the fastest one's. Only known with
    /// [`proto::sizing::BufferSizing::Auto`], and until the next attempt begins.
    pub fn host_limit(&self) -> Option<HostBound> {
        self.board.host_limit()
    }

    /// Decisions about the streams that this end sends over since the last call, oldest
    /// first; bounded.
    pub fn take_stream_decisions(&self) -> Vec<StreamDecision> {
        self.board.take_stream_decisions()
    }

    /// Notes a decision about the streams that was made elsewhere: by whoever cuts the transfer into
    /// chunks.
    pub fn note_stream_decision(&self, decision: StreamDecision) {
        self.board.push_stream_decision(decision);
    }

    /// Limiter of the sending now; `None` when nobody looks
    /// ([`TransferSettings::adapt`](crate::job::Settings::adapt),
    /// [`Congestion::Auto`](crate::options::Congestion::Auto)), or nothing was seen yet.
    pub fn limiter(&self) -> Option<Limiter> {
        self.board.limiter()
    }

    /// Stops the transfer: wakes every blocked stream; the transfer returns
    /// [`crate::error::DataError::Aborted`]. A read of a pipe that has no data is not woken.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        for wake in lock(&self.wakes).iter().filter_map(Weak::upgrade) {
            wake.wake();
        }
    }

    /// Whether [`TransferControl::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
            || self
                .whole
                .as_ref()
                .is_some_and(|w| w.control.is_cancelled())
    }

    /// Sample of all live streams now as the kernel shows them, for progress displays and `--trace`.
    pub fn sample_streams(&self) -> Vec<StreamSample> {
        let live = self.live_streams();
        live.iter().filter_map(|s| s.sample().ok()).collect()
    }

    fn root(&self) -> &Self {
        self.whole.as_ref().map_or(self, |w| w.control.root())
    }

    /// From now on only what a checkpoint has forced to disk is [`TransferControl::safe`].
    pub(crate) fn promise_synced(&self) {
        lock(&self.root().synced).promised = true;
    }

    /// How long to wait for the next checkpoint; the first is due `every` after the first call.
    pub(crate) fn time_until_checkpoint(&self, now: Instant, every: Duration) -> Duration {
        let mut synced = lock(&self.root().synced);
        let due = *synced.due.get_or_insert(now + every);
        due.saturating_duration_since(now)
    }

    /// No checkpoint before this moment.
    pub(crate) fn defer_checkpoint(&self, moment: Instant) {
        lock(&self.root().synced).due = Some(moment);
    }

    /// The streams at work now.
    pub(crate) fn live_streams(&self) -> Vec<Arc<DataStream>> {
        let live = lock(&self.live);
        live.iter().filter_map(Weak::upgrade).collect()
    }

    /// The board between this handle and the sizing thread.
    pub(crate) fn notices(&self) -> &TuningNotices {
        &self.board
    }

    /// From now on [`TransferControl::cancel`] rings this, at once if it was called before.
    pub(crate) fn wake_on_cancel(&self, wake: &Arc<WakeEvent>) {
        if let Some(whole) = &self.whole {
            whole.control.wake_on_cancel(wake);
        }
        let mut wakes = lock(&self.wakes);
        wakes.retain(|w| w.strong_count() > 0);
        wakes.push(Arc::downgrade(wake));
        if self.is_cancelled() {
            wake.wake();
        }
    }

    pub(crate) fn add_bytes(&self, n: u64) {
        self.bytes.fetch_add(n, Ordering::Relaxed);
        if let Some(whole) = &self.whole {
            whole.control.add_bytes(n);
        }
    }

    /// Notes stored bytes; returns how many separate pieces there are now.
    pub(crate) fn add_stored(&self, start: u64, end: u64) -> usize {
        if let Some(whole) = &self.whole {
            let at = |offset: u64| offset.saturating_add(whole.start);
            whole.control.add_stored(at(start), at(end));
        }
        let mut stored = lock(&self.stored);
        stored.insert(start, end);
        stored.range_count()
    }

    /// Shows a stream in [`TransferControl::sample_streams`].
    pub(crate) fn attach(&self, stream: &Arc<DataStream>) {
        if let Some(whole) = &self.whole {
            whole.control.attach(stream);
        }
        let mut peers = lock(&self.peers);
        let host = stream.peer().ip().to_canonical();
        if peers.len() < MOST_PEERS && !peers.contains(&host) {
            peers.push(host);
        }
        drop(peers);
        lock(&self.live).push(Arc::downgrade(stream));
        self.board.wake();
    }

    pub(crate) fn note_begin(&self, at: Instant) {
        *lock(&self.begun) = Some(at);
        if let Some(whole) = &self.whole {
            lock(&whole.control.begun).get_or_insert(at);
        }
    }

    /// The attempt has ended, and has learned so much.
    pub(crate) fn note_evidence(&self, evidence: &Evidence) {
        lock(&self.evidence).clone_from(evidence);
        if let Some(whole) = &self.whole {
            whole.control.note_evidence(evidence);
            self.forward_decisions(&whole.control);
        }
    }

    /// Has the whole tell the decisions about this part.
    fn forward_decisions(&self, whole: &Self) {
        let (own, from) = (self.started_at(), whole.started_at());
        let later = own
            .zip(from)
            .map_or(Duration::ZERO, |(own, from)| own.duration_since(from));
        for decision in self.take_decisions() {
            whole.board.push_decision(BufferDecision {
                at: decision.at + later,
                ..decision
            });
        }
        for decision in self.take_stream_decisions() {
            whole.board.push_stream_decision(StreamDecision {
                at: decision.at + later,
                ..decision
            });
        }
    }

    pub(crate) fn detach(&self, stream: &Arc<DataStream>) {
        if let Some(whole) = &self.whole {
            whole.control.detach(stream);
        }
        lock(&self.live).retain(|s| !std::ptr::eq(s.as_ptr(), Arc::as_ptr(stream)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_counts_in_its_whole_at_its_place() {
        let whole = Arc::new(TransferControl::new());
        let part = TransferControl::part_of(&whole, 1_000);
        let other = TransferControl::part_of(&whole, 2_000);
        part.add_bytes(5);
        other.add_bytes(7);
        part.add_stored(0, 5);
        other.add_stored(10, 17);
        assert_eq!((part.bytes(), other.bytes(), whole.bytes()), (5, 7, 12));
        assert_eq!(part.stored().to_string(), "0-5");
        assert_eq!(whole.stored().to_string(), "1000-1005,2010-2017");
    }

    #[test]
    fn only_what_a_checkpoint_forced_to_disk_is_safe_once_that_was_promised() {
        let control = TransferControl::new();
        control.add_stored(0, 5);
        assert_eq!(control.safe().to_string(), "0-5");
        control.promise_synced();
        assert!(control.safe().is_empty());
        let failed = control.checkpoint(|| Err::<(), _>("full"));
        assert_eq!((failed, control.synced().is_empty()), (Err("full"), true));
        let during = || {
            control.add_stored(5, 9);
            Ok::<_, ()>(())
        };
        control.checkpoint(during).unwrap();
        // What came while the disk was busy counts at the next one.
        assert_eq!(control.safe().to_string(), "0-5");
        assert_eq!(control.stored().to_string(), "0-9");
    }

    #[test]
    fn a_checkpoint_of_a_part_is_one_of_its_whole() {
        let whole = Arc::new(TransferControl::new());
        TransferControl::part_of(&whole, 0).add_stored(0, 5);
        let part = TransferControl::part_of(&whole, 1_000);
        part.add_stored(0, 5);
        part.checkpoint(|| Ok::<_, ()>(())).unwrap();
        assert_eq!(whole.synced().to_string(), "0-5,1000-1005");
        assert_eq!(part.synced(), whole.synced());
    }

    #[test]
    fn cancelling_the_whole_wakes_its_parts_and_not_the_other_way_round() {
        let whole = Arc::new(TransferControl::new());
        let part = TransferControl::part_of(&whole, 0);
        let other = TransferControl::part_of(&whole, 0);
        let wake = Arc::new(WakeEvent::new().unwrap());
        other.wake_on_cancel(&wake);
        part.cancel();
        assert!(part.is_cancelled() && !other.is_cancelled() && !whole.is_cancelled());
        whole.cancel();
        assert!(other.is_cancelled());
        let rung = crate::os::wake::wait(
            [(
                std::os::fd::AsFd::as_fd(&*wake),
                rustix::event::PollFlags::IN,
            )],
            Duration::ZERO,
        );
        assert_eq!(rung.unwrap(), [true]);
    }
}
