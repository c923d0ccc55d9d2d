//! The streams of a MODE E sender: how many are wanted, which exist, and how each ends.
//!
//! A stream of the set is a connection with the thread that sends over it. Streams join and leave
//! while data moves. Each ends with EOD. The last one at each target (each address that the
//! receiver listens on) also sends EOF with the number of all EODs there, which is known only then
//! (GFD.20 §3.4.2).
//!
//! The tuner sets the [wanted number](StreamSet::set_wanted); the threads in `send` open the
//! connections and run the streams.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};
use proto::eblock::MAX_STREAMS;
use tune::sample::StreamId;

use crate::stream::DataStream;

/// The streams of one sending transfer. Shared by their threads and by the tuner that decides their
/// number.
#[derive(Debug, Default)]
pub(crate) struct StreamSet {
    /// Wanted number over all targets; changed only with the table locked.
    wanted_count: AtomicUsize,
    table: Mutex<StreamTable>,
    changed: Condvar,
}

impl StreamSet {
    /// Sets the wanted number of streams over all targets. Each target keeps at least one. Surplus
    /// streams are told at once to leave.
    pub(crate) fn set_wanted(&self, count: usize) {
        let mut table = self.table.lock();
        // The number changes with the table locked: a leaving thread compares both.
        self.wanted_count.store(count, Ordering::Relaxed);
        table.adjust_count(count);
        self.changed.notify_all();
    }

    /// The wanted number of streams.
    pub(crate) fn wanted(&self) -> usize {
        self.wanted_count.load(Ordering::Relaxed)
    }

    /// Number of connections that are being opened.
    pub(crate) fn opening_count(&self) -> usize {
        self.table.lock().targets.iter().map(|t| t.opening).sum()
    }

    /// Number of active streams that are not told to leave.
    pub(crate) fn active_count(&self) -> usize {
        self.table.lock().staying().count()
    }

    /// Streams that are leaving, or have left, while others continue.
    pub(crate) fn leaving_ids(&self) -> Vec<StreamId> {
        let table = self.table.lock();
        let leave = |s: &&SendStream| s.state == SendStreamState::Retired || s.is_leaving();
        table.streams.iter().filter(leave).map(|s| s.id).collect()
    }

    /// Whether a stream could not be opened since the last call.
    pub(crate) fn take_open_failure(&self) -> bool {
        // The tuner asks once per sample, so that the flag is cleared by reading.
        std::mem::take(&mut self.table.lock().open_failed)
    }

    /// The index of the target with this address. Connections to one address belong to one target.
    pub(crate) fn target_index(&self, address: SocketAddr) -> usize {
        let targets = &mut self.table.lock().targets;
        if let Some(known) = targets.iter().position(|t| t.address == address) {
            return known;
        }
        targets.push(TargetStreams {
            address,
            opening: 0,
            ended: 0,
        });
        targets.len() - 1
    }

    /// Number of targets.
    pub(crate) fn target_count(&self) -> usize {
        self.table.lock().targets.len()
    }

    /// The address of a target.
    pub(crate) fn target_address(&self, target: usize) -> Option<SocketAddr> {
        self.table.lock().targets.get(target).map(|t| t.address)
    }

    /// Adds a stream for an established connection.
    pub(crate) fn add(&self, target: usize, stream: &Arc<DataStream>) -> ActiveStream<'_> {
        self.insert_active(&mut self.table.lock(), target, stream)
    }

    /// Adds a stream for a connection attempt that has already started.
    pub(crate) fn add_pending(&self, target: usize) -> PendingStream<'_> {
        self.insert_pending(&mut self.table.lock(), target)
    }

    /// Reduces the wanted number to the streams that exist: fewer connections were made than
    /// requested, and no more will come.
    pub(crate) fn accept_current_count(&self) {
        let mut table = self.table.lock();
        self.limit_to_current(&mut table);
    }

    /// Stops the addition of streams: everything was handed out, or the transfer must stop. The
    /// first call returns the number of active streams.
    pub(crate) fn stop_opening(&self) -> Option<usize> {
        let mut table = self.table.lock();
        let first = !std::mem::replace(&mut table.no_more_opening, true);
        // Streams that wait for a connection, and the caller that waits for openings, must check
        // again.
        self.changed.notify_all();
        first.then(|| table.active().count())
    }

    /// Waits until streams must be opened, and returns them; `None` when no stream is active or
    /// being opened. Surplus streams are told to leave meanwhile.
    pub(crate) fn wait_for_openings(&self) -> Option<Vec<PendingStream<'_>>> {
        let mut table = self.table.lock();
        loop {
            let pending: Vec<_> = table
                .adjust_count(self.wanted())
                .into_iter()
                .map(|target| self.insert_pending(&mut table, target))
                .collect();
            if !pending.is_empty() {
                return Some(pending);
            }
            if table.active().next().is_none() && table.opening() == 0 {
                return None;
            }
            self.changed.wait(&mut table);
        }
    }

    /// The connections that are not closed.
    pub(crate) fn streams(&self) -> Vec<Arc<DataStream>> {
        let table = self.table.lock();
        table
            .streams
            .iter()
            .filter_map(|s| s.stream.clone())
            .collect()
    }

    fn insert_pending(&self, table: &mut StreamTable, target: usize) -> PendingStream<'_> {
        if let Some(target) = table.targets.get_mut(target) {
            target.opening += 1;
        }
        PendingStream {
            set: self,
            target,
            is_resolved: false,
        }
    }

    fn insert_active(
        &self,
        table: &mut StreamTable,
        target: usize,
        stream: &Arc<DataStream>,
    ) -> ActiveStream<'_> {
        let leave_flag = Arc::new(AtomicBool::new(false));
        table.streams.push(SendStream {
            id: stream.id(),
            stream: Some(Arc::clone(stream)),
            target,
            state: SendStreamState::Active,
            leave_flag: Arc::clone(&leave_flag),
        });
        ActiveStream {
            set: self,
            index: table.streams.len() - 1,
            leave_flag,
            ended: false,
        }
    }

    /// Reduces the wanted number to the existing streams.
    fn limit_to_current(&self, table: &mut StreamTable) {
        // Retrying at once would meet the same refusal; the tuner may ask for more later.
        table.open_failed = true;
        let current = table.staying().count() + table.opening();
        self.wanted_count
            .fetch_min(current.max(1), Ordering::Relaxed);
    }
}

/// The right to open a connection. If it is dropped, the connection was not needed.
#[derive(Debug)]
pub(crate) struct PendingStream<'s> {
    set: &'s StreamSet,
    target: usize,
    is_resolved: bool,
}

impl<'s> PendingStream<'s> {
    pub(crate) fn target(&self) -> usize {
        self.target
    }

    /// The connection is established.
    pub(crate) fn connected(mut self, stream: &Arc<DataStream>) -> ActiveStream<'s> {
        let set = self.set;
        let mut table = set.table.lock();
        self.resolve(&mut table);
        set.insert_active(&mut table, self.target, stream)
    }

    /// The connection failed: the wanted number is reduced to the existing streams.
    pub(crate) fn fail(mut self) {
        let mut table = self.set.table.lock();
        self.resolve(&mut table);
        self.set.limit_to_current(&mut table);
    }

    fn resolve(&mut self, table: &mut StreamTable) {
        self.is_resolved = true;
        table.targets[self.target].opening -= 1;
        // The last stream at this target may wait for this attempt.
        self.set.changed.notify_all();
    }
}

impl Drop for PendingStream<'_> {
    fn drop(&mut self) {
        if !self.is_resolved {
            let set = self.set;
            self.resolve(&mut set.table.lock());
        }
    }
}

/// A stream's membership in the set. If it is dropped before the stream has ended, the stream has
/// failed.
#[derive(Debug)]
pub(crate) struct ActiveStream<'s> {
    set: &'s StreamSet,
    index: usize,
    leave_flag: Arc<AtomicBool>,
    ended: bool,
}

impl ActiveStream<'_> {
    /// Set when the stream must leave after its current block.
    pub(crate) fn leave_flag(&self) -> &AtomicBool {
        &self.leave_flag
    }

    /// Leaves while other streams continue; the stream must then send EOD. Returns false if the
    /// stream has become necessary and must continue.
    pub(crate) fn try_retire(&mut self) -> bool {
        // Decided with the table locked: of two surplus streams one must stay if no other is
        // active.
        let mut table = self.set.table.lock();
        let needed =
            !self.leave_flag.load(Ordering::Relaxed) || table.is_last_at_target(self.index);
        if needed {
            self.leave_flag.store(false, Ordering::Relaxed);
            return false;
        }
        self.ended = true;
        table.mark_ended(self.index, SendStreamState::Retired);
        table.streams[self.index].stream = None;
        self.set.changed.notify_all();
        true
    }

    /// Ends the stream because nothing is left to send. The stream must then send EOD, or EOF with
    /// the returned count. The last stream at a target waits here until every connection attempt
    /// there has succeeded or failed.
    pub(crate) fn finish(&mut self) -> Option<u64> {
        let mut table = self.set.table.lock();
        let target = table.streams[self.index].target;
        // A pending connection may still join with data of its own, and would raise the count.
        while table.is_last_at_target(self.index) && table.targets[target].opening > 0 {
            self.set.changed.wait(&mut table);
        }
        let last = table.is_last_at_target(self.index);
        self.ended = true;
        let ended = table.mark_ended(self.index, SendStreamState::Ended);
        self.set.changed.notify_all();
        last.then_some(ended)
    }
}

impl Drop for ActiveStream<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // Its EOD is missing at the receiver, which therefore cannot take the file for
            // complete.
            self.set
                .table
                .lock()
                .mark_ended(self.index, SendStreamState::Failed);
            self.set.changed.notify_all();
        }
    }
}

/// The table of a transfer's streams, and the changes needed for another number of them.
#[derive(Debug, Default)]
struct StreamTable {
    targets: Vec<TargetStreams>,
    /// In the order in which they joined.
    streams: Vec<SendStream>,
    /// Everything to send was handed out: only connections that are already being opened still
    /// join.
    no_more_opening: bool,
    /// A connection could not be opened.
    open_failed: bool,
}

#[derive(Debug)]
struct TargetStreams {
    address: SocketAddr,
    /// Number of connections that are being opened.
    opening: usize,
    /// EODs sent, or about to be sent.
    ended: u64,
}

#[derive(Debug)]
struct SendStream {
    id: StreamId,
    /// `None` once it has left.
    stream: Option<Arc<DataStream>>,
    /// Index of its target.
    target: usize,
    state: SendStreamState,
    /// It must leave after its current block.
    leave_flag: Arc<AtomicBool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendStreamState {
    Active,
    /// Ended together with the others: its connection may be reused.
    Ended,
    /// Left while others continued: its connection is closed.
    Retired,
    /// Its thread failed.
    Failed,
}

impl SendStream {
    fn is_staying(&self) -> bool {
        self.state == SendStreamState::Active && !self.is_leaving()
    }

    fn is_leaving(&self) -> bool {
        self.leave_flag.load(Ordering::Relaxed)
    }
}

impl StreamTable {
    fn active(&self) -> impl Iterator<Item = &SendStream> {
        self.streams
            .iter()
            .filter(|s| s.state == SendStreamState::Active)
    }

    fn staying(&self) -> impl Iterator<Item = &SendStream> {
        self.streams.iter().filter(|s| s.is_staying())
    }

    fn staying_at(&self, target: usize) -> usize {
        self.staying().filter(|s| s.target == target).count()
    }

    fn opening(&self) -> usize {
        self.targets.iter().map(|t| t.opening).sum()
    }

    /// Brings the number of streams to `wanted`: tells surplus streams to leave, or leaving ones to
    /// stay. Returns the targets that must get one more stream each.
    fn adjust_count(&mut self, wanted: usize) -> Vec<usize> {
        if self.no_more_opening {
            return Vec::new();
        }
        // Every target must send an EOF of its own, so each keeps a stream.
        let wanted = wanted.max(self.targets.len());
        let mut current = self.staying().count() + self.opening();
        while current > wanted && self.retire_newest() {
            current -= 1;
        }
        // A leaving stream that stays costs no handshake and keeps its congestion window.
        while current < wanted && self.keep_oldest() {
            current += 1;
        }
        self.least_used_targets(wanted.saturating_sub(current))
    }

    /// Tells the newest stream to leave whose target has others.
    fn retire_newest(&self) -> bool {
        // The newest has the smallest congestion window, so the least is lost.
        let mut newest_first = self.streams.iter().rev();
        let stream = newest_first.find(|s| s.is_staying() && self.staying_at(s.target) > 1);
        stream.is_some_and(|s| !s.leave_flag.swap(true, Ordering::Relaxed))
    }

    /// Lets the oldest leaving stream that is still active stay.
    fn keep_oldest(&self) -> bool {
        let leaving = self.active().find(|s| !s.is_staying());
        leaving.is_some_and(|s| s.leave_flag.swap(false, Ordering::Relaxed))
    }

    /// The targets of `more` new streams, so that all targets get the same number, as far as their
    /// EODs can be counted.
    fn least_used_targets(&self, more: usize) -> Vec<usize> {
        let has = |n: usize| self.staying_at(n) + self.targets[n].opening;
        let mut have: Vec<_> = (0..self.targets.len()).map(has).collect();
        let mut opened = Vec::new();
        for _ in 0..more {
            let Some(target) = (0..have.len()).min_by_key(|n| have[*n]) else {
                break;
            };
            // A receiver refuses an EOF that announces more EODs (GFD.20 §3.4.2 sets no limit,
            // `MAX_STREAMS` is ours).
            if have[target] as u64 + self.targets[target].ended >= MAX_STREAMS {
                break;
            }
            have[target] += 1;
            opened.push(target);
        }
        opened
    }

    /// Whether this is the only active stream at its target.
    fn is_last_at_target(&self, index: usize) -> bool {
        let target = self.streams[index].target;
        self.active().filter(|s| s.target == target).count() <= 1
    }

    /// Records a stream's EOD. Returns the number of EODs at its target.
    fn mark_ended(&mut self, index: usize, stage: SendStreamState) -> u64 {
        let stream = &mut self.streams[index];
        stream.state = stage;
        let target = &mut self.targets[stream.target];
        // Ended streams count, too: the EOF announces all EODs of the target.
        target.ended += 1;
        target.ended
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::security::ConnectionOpener;
    use crate::settings::TransferSettings;

    /// Connections to one host, and its listener.
    struct TestReceiver {
        listener: TcpListener,
        accepted: Vec<std::net::TcpStream>,
    }

    impl TestReceiver {
        fn new() -> Self {
            Self {
                listener: TcpListener::bind("127.0.0.1:0").unwrap(),
                accepted: Vec::new(),
            }
        }

        fn address(&self) -> SocketAddr {
            self.listener.local_addr().unwrap()
        }

        fn stream(&mut self) -> Arc<DataStream> {
            let near = std::net::TcpStream::connect(self.address()).unwrap();
            self.accepted.push(self.listener.accept().unwrap().0);
            let stream = DataStream::new(
                near.into(),
                self.address(),
                ConnectionOpener::ThisEnd,
                &TransferSettings::default(),
            );
            Arc::new(stream.unwrap())
        }
    }

    /// Adds `count` streams at one target.
    fn add_at_one_target<'l>(
        set: &'l StreamSet,
        host: &mut TestReceiver,
        count: usize,
    ) -> Vec<ActiveStream<'l>> {
        let target = set.target_index(host.address());
        let active = (0..count)
            .map(|_| set.add(target, &host.stream()))
            .collect();
        set.set_wanted(count);
        active
    }

    fn is_surplus(stream: &ActiveStream<'_>) -> bool {
        stream.leave_flag().load(Ordering::Relaxed)
    }

    /// The streams to open now. Does not wait.
    fn pending_openings(set: &StreamSet) -> Vec<PendingStream<'_>> {
        set.wait_for_openings().unwrap_or_default()
    }

    #[test]
    fn the_last_stream_counts_all_eods_at_its_target() {
        let set = StreamSet::default();
        let mut host = TestReceiver::new();
        let mut active = add_at_one_target(&set, &mut host, 3);
        assert_eq!(set.stop_opening(), Some(3));
        assert_eq!(set.stop_opening(), None);
        assert_eq!(active[1].finish(), None);
        assert_eq!(active[0].finish(), None);
        assert_eq!(active[2].finish(), Some(3));
        assert!(set.wait_for_openings().is_none());
        assert_eq!(set.streams().len(), 3);
    }

    #[test]
    fn the_newest_streams_leave_and_count_but_are_not_reused() {
        let set = StreamSet::default();
        let mut host = TestReceiver::new();
        let mut active = add_at_one_target(&set, &mut host, 4);
        set.set_wanted(2);
        let leaving: Vec<_> = active.iter().map(is_surplus).collect();
        assert_eq!(leaving, [false, false, true, true]);
        assert_eq!(set.leaving_ids().len(), 2);
        assert!(active[3].try_retire() && active[2].try_retire());
        assert_eq!((set.active_count(), set.streams().len()), (2, 2));
        set.stop_opening();
        assert_eq!((active[0].finish(), active[1].finish()), (None, Some(4)));
    }

    #[test]
    fn a_leaving_stream_stays_when_it_is_wanted_again() {
        let set = StreamSet::default();
        let mut host = TestReceiver::new();
        let mut active = add_at_one_target(&set, &mut host, 2);
        set.set_wanted(1);
        assert!(is_surplus(&active[1]));
        set.set_wanted(2);
        assert!(!is_surplus(&active[1]));
        assert!(!active[1].try_retire());
        assert_eq!(set.active_count(), 2);
    }

    #[test]
    fn a_leaving_stream_stays_if_it_has_become_the_last() {
        let set = StreamSet::default();
        let mut host = TestReceiver::new();
        let mut active = add_at_one_target(&set, &mut host, 2);
        set.set_wanted(1);
        set.stop_opening();
        assert_eq!(active[0].finish(), None);
        assert!(!active[1].try_retire() && !is_surplus(&active[1]));
        assert_eq!(active[1].finish(), Some(2));
    }

    #[test]
    fn streams_are_opened_at_the_target_with_the_fewest() {
        let set = StreamSet::default();
        let mut hosts = [TestReceiver::new(), TestReceiver::new()];
        let targets = hosts.each_ref().map(|h| set.target_index(h.address()));
        assert_eq!(
            (set.target_count(), set.target_index(hosts[1].address())),
            (2, targets[1])
        );
        let mut active = vec![
            set.add(targets[0], &hosts[0].stream()),
            set.add(targets[0], &hosts[0].stream()),
            set.add(targets[1], &hosts[1].stream()),
        ];
        set.set_wanted(6);
        let pending = pending_openings(&set);
        let mut targets_opened: Vec<_> = pending.iter().map(PendingStream::target).collect();
        targets_opened.sort_unstable();
        assert_eq!(targets_opened, [targets[0], targets[1], targets[1]]);
        assert_eq!(set.opening_count(), 3);
        for pending_stream in pending {
            let target = pending_stream.target();
            active.push(pending_stream.connected(&hosts[target].stream()));
        }
        assert_eq!((set.opening_count(), set.active_count()), (0, 6));
        set.set_wanted(0);
        let stay: Vec<_> = active.iter().map(|s| !is_surplus(s)).collect();
        assert_eq!(stay, [true, false, true, false, false, false]);
    }

    #[test]
    fn a_failed_open_reduces_the_wanted_number() {
        let set = StreamSet::default();
        let mut host = TestReceiver::new();
        let mut active = add_at_one_target(&set, &mut host, 1);
        set.set_wanted(4);
        let mut pending = pending_openings(&set);
        let joined = pending.remove(0).connected(&host.stream());
        pending.remove(0).fail();
        // One is still being opened.
        assert_eq!(set.wanted(), 3);
        assert!(set.take_open_failure() && !set.take_open_failure());
        pending.remove(0).fail();
        assert_eq!((set.wanted(), set.opening_count()), (2, 0));
        active.push(joined);
        set.stop_opening();
        assert_eq!((active[0].finish(), active[1].finish()), (None, Some(2)));
    }

    #[test]
    fn the_last_stream_waits_for_pending_connections() {
        let set = StreamSet::default();
        let mut host = TestReceiver::new();
        let mut active = add_at_one_target(&set, &mut host, 1);
        set.set_wanted(3);
        let mut pending = pending_openings(&set);
        let late = host.stream();
        set.stop_opening();
        std::thread::scope(|scope| {
            let (report, ended) = mpsc::channel();
            let mut first = active.remove(0);
            scope.spawn(move || report.send(first.finish()).unwrap());
            let soon = Duration::from_millis(30);
            assert!(ended.recv_timeout(soon).is_err());
            // One is no longer needed.
            drop(pending.remove(0));
            assert!(ended.recv_timeout(soon).is_err());
            let mut second = pending.remove(0).connected(&late);
            assert_eq!(ended.recv_timeout(Duration::from_secs(60)).unwrap(), None);
            assert_eq!(second.finish(), Some(2));
        });
        assert!(!set.take_open_failure());
    }

    #[test]
    fn no_stream_is_opened_after_everything_was_handed_out() {
        let set = StreamSet::default();
        let mut host = TestReceiver::new();
        let mut active = add_at_one_target(&set, &mut host, 1);
        set.stop_opening();
        set.set_wanted(9);
        assert_eq!(active[0].finish(), Some(1));
        assert!(set.wait_for_openings().is_none());
    }

    #[test]
    fn a_failed_stream_makes_the_announced_eod_count_unreachable() {
        let set = StreamSet::default();
        let mut host = TestReceiver::new();
        let mut active = add_at_one_target(&set, &mut host, 2);
        drop(active.remove(0));
        set.stop_opening();
        // One EOD will be sent, but two are announced.
        assert_eq!(active[0].finish(), Some(2));
    }

    #[test]
    fn no_more_streams_are_opened_than_a_receiver_can_count() {
        let set = StreamSet::default();
        let mut host = TestReceiver::new();
        let _seats = add_at_one_target(&set, &mut host, 1);
        set.table.lock().targets[0].ended = MAX_STREAMS - 3;
        set.set_wanted(10);
        assert_eq!(pending_openings(&set).len(), 2);
    }
}
