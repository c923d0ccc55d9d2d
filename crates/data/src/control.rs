//! Control of a running transfer from other threads: progress, decisions and cancelling.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::os::wake::WakeEvent;
use crate::store_watch::StoreWatch;
use crate::stream::DataStream;
use crate::tuning_notices::TuningNotices;
use parking_lot::Mutex;
use proto::ranges::RangeSet;
use tune::Evidence;
use tune::limiter::Limiter;
use tune::sample::TcpSample;
use tune::sizing::BufferDecision;
use tune::sizing::auto::HostBound;
use tune::streams::auto::TransferDecision as StreamDecision;

/// The handle with which other threads watch or stop a running transfer. One handle may serve
/// several attempts in turn: bytes and stored ranges then add up. It stays cancelled once
/// cancelled.
///
/// A transfer that moves a part of a larger one has its own handle, made from the larger one's with
/// [`TransferControl::part_of`].
#[derive(Debug, Default)]
pub struct TransferControl {
    parent: Option<ParentTransfer>,
    cancelled: AtomicBool,
    bytes: AtomicU64,
    /// Where the transfer ends although the sender has more: the wire offset plus one, 0 if nowhere.
    early_end: AtomicU64,
    stored: Mutex<RangeSet>,
    synced: Mutex<CheckpointState>,
    live: Mutex<Vec<Weak<DataStream>>>,
    wakes: Mutex<Vec<Weak<WakeEvent>>>,
    peers: Mutex<Vec<IpAddr>>,
    evidence: Mutex<Evidence>,
    started: Mutex<Option<Instant>>,
    store_watch: StoreWatch,
    notices: TuningNotices,
}

/// Checkpoints of a transfer whose store forces bytes to disk. Parts use those of their parent.
#[derive(Debug, Default)]
struct CheckpointState {
    /// Only `ranges` are safe, not everything that was stored.
    promised: bool,
    ranges: RangeSet,
    /// When the next checkpoint is due.
    due: Option<Instant>,
}

/// The transfer that a part belongs to.
#[derive(Debug)]
struct ParentTransfer {
    control: Arc<TransferControl>,
    /// Offset of the part's first byte in the parent.
    start: u64,
}

/// Maximum number of hosts that [`TransferControl::peers`] returns.
const MAX_PEERS: usize = 64;

impl TransferControl {
    /// A handle that has moved nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The handle of a part of `parent` that begins at byte `start`. Bytes, stored ranges and open
    /// streams count in the parent, too; cancelling the parent cancels its parts.
    pub fn part_of(parent: &Arc<Self>, start: u64) -> Self {
        Self {
            parent: Some(ParentTransfer {
                control: Arc::clone(parent),
                start,
            }),
            ..Self::default()
        }
    }

    /// Payload bytes moved over the wire so far.
    pub fn bytes(&self) -> u64 {
        // Relaxed: the counter is a progress figure and orders nothing.
        self.bytes.load(Ordering::Relaxed)
    }

    /// Ranges handed to the store so far (receiving), wire offsets.
    pub fn stored(&self) -> RangeSet {
        self.stored.lock().clone()
    }

    /// Stored ranges that survive a power failure, as of the last checkpoint. For a part these are
    /// the ranges of the parent. Empty if the store forces nothing to disk
    /// ([`crate::store::Sink::is_durable`]).
    pub fn synced(&self) -> RangeSet {
        self.root().synced.lock().ranges.clone()
    }

    /// Ranges that may be reported to a peer as safe: [`TransferControl::synced`] if the store
    /// forces bytes to disk, else [`TransferControl::stored`]. For a part these are the ranges of
    /// the parent.
    pub fn safe(&self) -> RangeSet {
        let root = self.root();
        let synced = root.synced.lock();
        match synced.promised {
            true => synced.ranges.clone(),
            false => root.stored(),
        }
    }

    /// Runs `sync`, which forces everything stored before the call to disk. When it succeeds, those
    /// ranges are [`TransferControl::synced`].
    ///
    /// # Errors
    /// Those of `sync`.
    pub fn checkpoint<T, E>(&self, sync: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let root = self.root();
        // Taken before the sync: bytes that arrive during it may not be on disk when it returns.
        let stored = root.stored();
        let done = sync()?;
        root.synced.lock().ranges.extend(&stored);
        Ok(done)
    }

    /// Whether all of `start..end` was handed to the store.
    pub(crate) fn has_stored(&self, start: u64, end: u64) -> bool {
        self.stored.lock().contains(start, end)
    }

    /// For how long the transfer's streams have waited for the store without any answer of it; zero while none waits.
    pub fn store_wait(&self) -> Duration {
        self.store_watch.wait(Instant::now())
    }

    /// Open data connections.
    pub fn streams(&self) -> u64 {
        self.live.lock().len() as u64
    }

    /// Hosts at the other ends of the data connections so far, in order of arrival; IPv4-mapped
    /// addresses as IPv4.
    pub fn peers(&self) -> Vec<IpAddr> {
        self.peers.lock().clone()
    }

    /// When the last attempt began to make or accept connections: the time that the decisions' `at`
    /// counts from.
    pub fn started_at(&self) -> Option<Instant> {
        *self.started.lock()
    }

    /// Evidence about the path from the last attempt that ended, whether it failed or not.
    pub fn evidence(&self) -> Evidence {
        self.evidence.lock().clone()
    }

    /// Calls `report` with the new size, bytes, whenever this end resizes its buffers while
    /// receiving with `drs1`: the sender must set the same size.
    pub fn on_resize(&self, report: impl Fn(u64) + Send + Sync + 'static) {
        self.notices.on_resize(report);
    }

    /// Sets the send buffers to the size of the peer's receive buffers (SBUF, reply 126).
    pub fn follow_peer_size(&self, bytes: u64) {
        self.notices.follow_peer_size(bytes);
    }

    /// Takes the decisions about buffers since the last call, oldest first. Their number is
    /// bounded.
    pub fn take_decisions(&self) -> Vec<BufferDecision> {
        self.notices.take_decisions()
    }

    /// The host limit that restricts a stream and that no buffer size avoids, though more streams
    /// may. With several streams it is the one of the fastest. Known only with automatic buffer
    /// sizing, and only until the next attempt begins.
    pub fn host_limit(&self) -> Option<HostBound> {
        self.notices.host_limit()
    }

    /// Takes the decisions about the sending streams since the last call, oldest first. Their
    /// number is bounded.
    pub fn take_stream_decisions(&self) -> Vec<StreamDecision> {
        self.notices.take_stream_decisions()
    }

    /// Adds a decision about the streams that was made elsewhere: by the caller that cuts the
    /// transfer into chunks.
    pub fn note_stream_decision(&self, decision: StreamDecision) {
        self.notices.push_stream_decision(decision);
    }

    /// Present limiter of the sender; `None` without adaptation
    /// ([`TransferSettings::adapt`](crate::job::TransferSettings::adapt),
    /// [`CongestionChoice::Auto`](crate::options::CongestionChoice::Auto)), or before the first
    /// sample.
    pub fn limiter(&self) -> Option<Limiter> {
        self.notices.limiter()
    }

    /// Ends a receiving transfer of TYPE I at this wire offset, whatever the sender still
    /// sends. When every byte before it is stored, the transfer closes its connections and reports
    /// success ([`TransferReport::ended_early`](crate::job::TransferReport::ended_early)). The end
    /// may move down while the transfer runs. Bytes beyond it that were received before the call
    /// stay stored.
    pub fn end_at(&self, offset: u64) {
        self.early_end
            .store(offset.saturating_add(1), Ordering::SeqCst);
    }

    /// As [`TransferControl::end_at`], unless an end is set.
    pub fn end_at_latest(&self, offset: u64) {
        let _ = self.early_end.compare_exchange(
            0,
            offset.saturating_add(1),
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
    }

    /// The end that [`TransferControl::end_at`] set.
    pub fn early_end(&self) -> Option<u64> {
        self.early_end.load(Ordering::SeqCst).checked_sub(1)
    }

    /// Stops the transfer: wakes every blocked stream. The transfer returns
    /// [`crate::error::DataError::Aborted`]. A blocking read of an empty pipe is not woken.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        // Streams wait in poll(2); the event descriptor is part of every such wait.
        for wake in self.wakes.lock().iter().filter_map(Weak::upgrade) {
            wake.wake();
        }
    }

    /// Whether [`TransferControl::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
            || self
                .parent
                .as_ref()
                .is_some_and(|w| w.control.is_cancelled())
    }

    /// Samples all live streams now, for progress displays and `--trace`.
    pub fn sample_streams(&self) -> Vec<TcpSample> {
        let live = self.live_streams();
        live.iter().filter_map(|s| s.sample().ok()).collect()
    }

    fn root(&self) -> &Self {
        self.parent.as_ref().map_or(self, |w| w.control.root())
    }

    /// From now on only ranges that a checkpoint forced to disk are [`TransferControl::safe`].
    pub(crate) fn promise_synced(&self) {
        self.root().synced.lock().promised = true;
    }

    /// Time until the next checkpoint. The first is due `every` after the first call.
    pub(crate) fn time_until_checkpoint(&self, now: Instant, every: Duration) -> Duration {
        let mut synced = self.root().synced.lock();
        let due = *synced.due.get_or_insert(now + every);
        due.saturating_duration_since(now)
    }

    /// Allows no checkpoint before this moment.
    pub(crate) fn defer_checkpoint(&self, moment: Instant) {
        self.root().synced.lock().due = Some(moment);
    }

    /// The streams in use now.
    pub(crate) fn live_streams(&self) -> Vec<Arc<DataStream>> {
        let live = self.live.lock();
        live.iter().filter_map(Weak::upgrade).collect()
    }

    /// Where streams note what they ask of the store.
    pub(crate) fn store_watch(&self) -> &StoreWatch {
        &self.store_watch
    }

    /// The notices between this handle and the tuning thread.
    pub(crate) fn notices(&self) -> &TuningNotices {
        &self.notices
    }

    /// Registers an event that [`TransferControl::cancel`] wakes, at once if it was called before.
    pub(crate) fn wake_on_cancel(&self, wake: &Arc<WakeEvent>) {
        if let Some(parent) = &self.parent {
            parent.control.wake_on_cancel(wake);
        }
        let mut wakes = self.wakes.lock();
        wakes.retain(|w| w.strong_count() > 0);
        wakes.push(Arc::downgrade(wake));
        // The cancel may have come before the registration.
        if self.is_cancelled() {
            wake.wake();
        }
    }

    /// Counts what others have moved for this transfer: `bytes` more, and ranges that are stored and safe.
    pub fn note_elsewhere(&self, bytes: u64, safe: &RangeSet) {
        self.add_bytes(bytes);
        self.stored.lock().extend(safe);
    }

    pub(crate) fn add_bytes(&self, n: u64) {
        self.bytes.fetch_add(n, Ordering::Relaxed);
        if let Some(parent) = &self.parent {
            parent.control.add_bytes(n);
        }
    }

    /// Records stored bytes. Returns the number of separate ranges now stored.
    pub(crate) fn add_stored(&self, start: u64, end: u64) -> usize {
        if let Some(parent) = &self.parent {
            let at = |offset: u64| offset.saturating_add(parent.start);
            parent.control.add_stored(at(start), at(end));
        }
        let mut stored = self.stored.lock();
        stored.insert(start, end);
        stored.range_count()
    }

    /// Adds a stream to [`TransferControl::sample_streams`].
    pub(crate) fn attach(&self, stream: &Arc<DataStream>) {
        if let Some(parent) = &self.parent {
            parent.control.attach(stream);
        }
        let mut peers = self.peers.lock();
        let host = stream.peer().ip().to_canonical();
        // A bound: a peer with many addresses must not fill the memory.
        if peers.len() < MAX_PEERS && !peers.contains(&host) {
            peers.push(host);
        }
        drop(peers);
        self.live.lock().push(Arc::downgrade(stream));
        self.notices.wake();
    }

    /// Records when an attempt begins ([`TransferControl::started_at`]). A transfer of this machine does so itself.
    pub fn note_begin(&self, at: Instant) {
        *self.started.lock() = Some(at);
        if let Some(parent) = &self.parent {
            // A parent may run several parts; its start is that of the first.
            parent.control.started.lock().get_or_insert(at);
        }
    }

    /// Records the evidence of an attempt that has ended.
    pub(crate) fn note_evidence(&self, evidence: &Evidence) {
        self.evidence.lock().clone_from(evidence);
        if let Some(parent) = &self.parent {
            parent.control.note_evidence(evidence);
            self.forward_decisions(&parent.control);
        }
    }

    /// Moves the decisions about this part to its parent, with times relative to the parent's
    /// start.
    fn forward_decisions(&self, parent: &Self) {
        let (own, from) = (self.started_at(), parent.started_at());
        // The parts of a transfer start at different times.
        let later = own
            .zip(from)
            .map_or(Duration::ZERO, |(own, from)| own.duration_since(from));
        for decision in self.take_decisions() {
            parent.notices.push_decision(BufferDecision {
                at: decision.at + later,
                ..decision
            });
        }
        for decision in self.take_stream_decisions() {
            parent.notices.push_stream_decision(StreamDecision {
                at: decision.at + later,
                ..decision
            });
        }
    }

    pub(crate) fn detach(&self, stream: &Arc<DataStream>) {
        if let Some(parent) = &self.parent {
            parent.control.detach(stream);
        }
        self.live
            .lock()
            .retain(|s| !std::ptr::eq(s.as_ptr(), Arc::as_ptr(stream)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_counts_in_its_parent_at_its_offset() {
        let parent = Arc::new(TransferControl::new());
        let part = TransferControl::part_of(&parent, 1_000);
        let other = TransferControl::part_of(&parent, 2_000);
        part.add_bytes(5);
        other.add_bytes(7);
        part.add_stored(0, 5);
        other.add_stored(10, 17);
        assert_eq!((part.bytes(), other.bytes(), parent.bytes()), (5, 7, 12));
        assert_eq!(part.stored().to_string(), "0-5");
        assert_eq!(parent.stored().to_string(), "1000-1005,2010-2017");
    }

    #[test]
    fn only_checkpointed_ranges_are_safe_on_a_durable_store() {
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
        // Bytes stored during the sync count at the next checkpoint.
        assert_eq!(control.safe().to_string(), "0-5");
        assert_eq!(control.stored().to_string(), "0-9");
    }

    #[test]
    fn a_checkpoint_of_a_part_covers_its_parent() {
        let parent = Arc::new(TransferControl::new());
        TransferControl::part_of(&parent, 0).add_stored(0, 5);
        let part = TransferControl::part_of(&parent, 1_000);
        part.add_stored(0, 5);
        part.checkpoint(|| Ok::<_, ()>(())).unwrap();
        assert_eq!(parent.synced().to_string(), "0-5,1000-1005");
        assert_eq!(part.synced(), parent.synced());
    }

    #[test]
    fn cancelling_the_parent_wakes_its_parts_but_not_the_reverse() {
        let parent = Arc::new(TransferControl::new());
        let part = TransferControl::part_of(&parent, 0);
        let other = TransferControl::part_of(&parent, 0);
        let wake = Arc::new(WakeEvent::new().unwrap());
        other.wake_on_cancel(&wake);
        part.cancel();
        assert!(part.is_cancelled() && !other.is_cancelled() && !parent.is_cancelled());
        parent.cancel();
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
