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
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use tune::sample::StreamId;

use crate::locks::{lock, wait_notified};
use crate::stream::DataStream;
use table::{SendStream, SendStreamState, StreamTable, TargetStreams};

/// The streams of one sending transfer. Shared by their threads and by the tuner that decides their
/// number.
#[derive(Debug, Default)]
pub(crate) struct StreamSet {
    /// Wanted number over all targets; changed only with the table locked.
    aim: AtomicUsize,
    roll: Mutex<StreamTable>,
    changed: Condvar,
}

impl StreamSet {
    /// Sets the wanted number of streams over all targets. Each target keeps at least one. Surplus
    /// streams are told at once to leave.
    pub(crate) fn set_wanted(&self, lanes: usize) {
        let mut roll = self.lock();
        self.aim.store(lanes, Ordering::Relaxed);
        roll.adjust_count(lanes);
        self.changed.notify_all();
    }

    /// The wanted number of streams.
    pub(crate) fn wanted(&self) -> usize {
        self.aim.load(Ordering::Relaxed)
    }

    /// Number of connections that are being opened.
    pub(crate) fn opening_count(&self) -> usize {
        self.lock().targets.iter().map(|t| t.opening).sum()
    }

    /// Number of active streams that are not told to leave.
    pub(crate) fn active_count(&self) -> usize {
        self.lock().staying().count()
    }

    /// Streams that are leaving, or have left, while others continue.
    pub(crate) fn leaving_ids(&self) -> Vec<StreamId> {
        let roll = self.lock();
        let leave = |l: &&SendStream| l.state == SendStreamState::Retired || l.is_leaving();
        roll.streams.iter().filter(leave).map(|l| l.id).collect()
    }

    /// Whether a stream could not be opened since the last call.
    pub(crate) fn take_open_failure(&self) -> bool {
        std::mem::take(&mut self.lock().open_failed)
    }

    /// The index of the target with this address. Connections to one address belong to one target.
    pub(crate) fn target_index(&self, address: SocketAddr) -> usize {
        let targets = &mut self.lock().targets;
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
        self.lock().targets.len()
    }

    /// The address of a target.
    pub(crate) fn target_address(&self, target: usize) -> Option<SocketAddr> {
        self.lock().targets.get(target).map(|t| t.address)
    }

    /// Adds a stream for an established connection.
    pub(crate) fn add(&self, target: usize, stream: &Arc<DataStream>) -> ActiveStream<'_> {
        self.seat(&mut self.lock(), target, stream)
    }

    /// Adds a stream for a connection attempt that has already started.
    pub(crate) fn add_pending(&self, target: usize) -> PendingStream<'_> {
        self.ticket(&mut self.lock(), target)
    }

    /// Reduces the wanted number to the streams that exist: fewer connections were made than
    /// requested, and no more will come.
    pub(crate) fn accept_current_count(&self) {
        let mut roll = self.lock();
        self.refuse(&mut roll);
    }

    /// Stops the addition of streams: everything was handed out, or the transfer must stop. The
    /// first call returns the number of active streams.
    pub(crate) fn stop_opening(&self) -> Option<usize> {
        let mut roll = self.lock();
        let first = !std::mem::replace(&mut roll.no_more_opening, true);
        self.changed.notify_all();
        first.then(|| roll.active().count())
    }

    /// Waits until streams must be opened, and returns them; `None` when no stream is active or
    /// being opened. Surplus streams are told to leave meanwhile.
    pub(crate) fn wait_for_openings(&self) -> Option<Vec<PendingStream<'_>>> {
        let mut roll = self.lock();
        loop {
            let tickets: Vec<_> = roll
                .adjust_count(self.wanted())
                .into_iter()
                .map(|target| self.ticket(&mut roll, target))
                .collect();
            if !tickets.is_empty() {
                return Some(tickets);
            }
            if roll.active().next().is_none() && roll.opening() == 0 {
                return None;
            }
            roll = self.wait(roll);
        }
    }

    /// The connections that are not closed.
    pub(crate) fn streams(&self) -> Vec<Arc<DataStream>> {
        let roll = self.lock();
        roll.streams
            .iter()
            .filter_map(|l| l.stream.clone())
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, StreamTable> {
        lock(&self.roll)
    }

    fn wait<'r>(&self, roll: MutexGuard<'r, StreamTable>) -> MutexGuard<'r, StreamTable> {
        wait_notified(&self.changed, roll)
    }

    fn ticket(&self, roll: &mut StreamTable, target: usize) -> PendingStream<'_> {
        if let Some(target) = roll.targets.get_mut(target) {
            target.opening += 1;
        }
        PendingStream {
            lanes: self,
            target,
            used: false,
        }
    }

    fn seat(
        &self,
        roll: &mut StreamTable,
        target: usize,
        stream: &Arc<DataStream>,
    ) -> ActiveStream<'_> {
        let surplus = Arc::new(AtomicBool::new(false));
        roll.streams.push(SendStream {
            id: stream.id(),
            stream: Some(Arc::clone(stream)),
            target,
            state: SendStreamState::Active,
            leave_flag: Arc::clone(&surplus),
        });
        ActiveStream {
            lanes: self,
            lane: roll.streams.len() - 1,
            surplus,
            ended: false,
        }
    }

    /// Reduces the wanted number to the existing streams.
    fn refuse(&self, roll: &mut StreamTable) {
        roll.open_failed = true;
        let there = roll.staying().count() + roll.opening();
        self.aim.fetch_min(there.max(1), Ordering::Relaxed);
    }
}

/// The right to open a connection. If it is dropped, the connection was not needed.
#[derive(Debug)]
pub(crate) struct PendingStream<'l> {
    lanes: &'l StreamSet,
    target: usize,
    used: bool,
}

impl<'l> PendingStream<'l> {
    pub(crate) fn target(&self) -> usize {
        self.target
    }

    /// The connection is established.
    pub(crate) fn connected(mut self, stream: &Arc<DataStream>) -> ActiveStream<'l> {
        let lanes = self.lanes;
        let mut roll = lanes.lock();
        self.resolve(&mut roll);
        lanes.seat(&mut roll, self.target, stream)
    }

    /// The connection failed: the wanted number is reduced to the existing streams.
    pub(crate) fn fail(mut self) {
        let mut roll = self.lanes.lock();
        self.resolve(&mut roll);
        self.lanes.refuse(&mut roll);
    }

    fn resolve(&mut self, roll: &mut StreamTable) {
        self.used = true;
        roll.targets[self.target].opening -= 1;
        self.lanes.changed.notify_all();
    }
}

impl Drop for PendingStream<'_> {
    fn drop(&mut self) {
        if !self.used {
            let lanes = self.lanes;
            self.resolve(&mut lanes.lock());
        }
    }
}

/// A stream's membership in the set. If it is dropped before the stream has ended, the stream has
/// failed.
#[derive(Debug)]
pub(crate) struct ActiveStream<'l> {
    lanes: &'l StreamSet,
    lane: usize,
    surplus: Arc<AtomicBool>,
    ended: bool,
}

impl ActiveStream<'_> {
    /// Set when the stream must leave after its current block.
    pub(crate) fn leave_flag(&self) -> &AtomicBool {
        &self.surplus
    }

    /// Leaves while other streams continue; the stream must then send EOD. Returns false if the
    /// stream has become necessary and must continue.
    pub(crate) fn try_retire(&mut self) -> bool {
        let mut roll = self.lanes.lock();
        let needed = !self.surplus.load(Ordering::Relaxed) || roll.is_last_at_target(self.lane);
        if needed {
            self.surplus.store(false, Ordering::Relaxed);
            return false;
        }
        self.ended = true;
        roll.mark_ended(self.lane, SendStreamState::Retired);
        roll.streams[self.lane].stream = None;
        self.lanes.changed.notify_all();
        true
    }

    /// Ends the stream because nothing is left to send. The stream must then send EOD, or EOF with
    /// the returned count. The last stream at a target waits here until every connection attempt
    /// there has succeeded or failed.
    pub(crate) fn finish(&mut self) -> Option<u64> {
        let mut roll = self.lanes.lock();
        let target = roll.streams[self.lane].target;
        while roll.is_last_at_target(self.lane) && roll.targets[target].opening > 0 {
            roll = self.lanes.wait(roll);
        }
        let last = roll.is_last_at_target(self.lane);
        self.ended = true;
        let ended = roll.mark_ended(self.lane, SendStreamState::Ended);
        self.lanes.changed.notify_all();
        last.then_some(ended)
    }
}

impl Drop for ActiveStream<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // Its EOD is missing at the receiver, which therefore cannot take the file for
            // complete.
            self.lanes
                .lock()
                .mark_ended(self.lane, SendStreamState::Failed);
            self.lanes.changed.notify_all();
            // A later retry is the tuner's decision, which learns of the failure by
            // `take_open_failure`.
        }
    }
}

#[cfg(test)]
mod tests;
