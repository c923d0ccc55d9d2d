//! The streams of a MODE E sender: how many are wanted, which exist, and how each ends.
//!
//! A stream of the set is a connection with the thread that sends over it. Streams join and leave
//! while data moves. Each ends with EOD. The last one at each target (each address that the
//! receiver listens on) also sends EOF with the number of all EODs there, which is known only then
//! (GFD.20 §3.4.2).
//!
//! The tuner sets the [wanted number](StreamSet::set_wanted); the threads in `send` open the
//! connections and run the streams.

mod table;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::stream::DataStream;
use parking_lot::{Condvar, Mutex};
use table::{SendStream, SendStreamState, StreamTable, TargetStreams};
use tune::sample::StreamId;

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

#[cfg(test)]
mod tests;
