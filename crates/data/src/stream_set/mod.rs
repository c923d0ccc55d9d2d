//! The lanes of a sender in MODE E: how many there shall be, which there are, and how each ends.
//!
//! A lane is a connection with the thread that sends over it. Lanes join and leave while data moves.
//! Every one ends with EOD, and the last at each target (each address that the receiver listens on)
//! with EOF and the count of all EODs there, which only then is known (GFD.20 §3.4.2).
//!
//! Whoever decides [aims](Lanes::aim); the crew in `send` opens connections and runs the threads.

mod table;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use tune::sample::StreamId;

use crate::locks::{lock, wait_notified};
use crate::stream::DataStream;
use table::{SendStream, SendStreamState, StreamTable, TargetStreams};

/// Shared by the lanes of one transfer, the crew that runs them, and whoever decides how many there
/// shall be.
#[derive(Debug, Default)]
pub(crate) struct StreamSet {
    /// How many there shall be, over all targets; changed with the roll locked.
    aim: AtomicUsize,
    roll: Mutex<StreamTable>,
    changed: Condvar,
}

impl StreamSet {
    /// Asks for so many lanes, over all targets; each target keeps at least one. Lanes that are too
    /// many are told to leave at once.
    pub(crate) fn set_wanted(&self, lanes: usize) {
        let mut roll = self.lock();
        self.aim.store(lanes, Ordering::Relaxed);
        roll.adjust_count(lanes);
        self.changed.notify_all();
    }

    /// How many there shall be.
    pub(crate) fn wanted(&self) -> usize {
        self.aim.load(Ordering::Relaxed)
    }

    /// Connections that are being opened.
    pub(crate) fn opening_count(&self) -> usize {
        self.lock().targets.iter().map(|t| t.opening).sum()
    }

    /// Lanes that are at work and are to stay.
    pub(crate) fn active_count(&self) -> usize {
        self.lock().staying().count()
    }

    /// Lanes that leave, or have left, while others go on.
    pub(crate) fn leaving_ids(&self) -> Vec<StreamId> {
        let roll = self.lock();
        let leave = |l: &&SendStream| l.state == SendStreamState::Retired || l.is_leaving();
        roll.streams.iter().filter(leave).map(|l| l.id).collect()
    }

    /// Whether one could not be opened since the last call.
    pub(crate) fn take_open_failure(&self) -> bool {
        std::mem::take(&mut self.lock().open_failed)
    }

    /// Connections at one address belong together.
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

    /// How many targets there are.
    pub(crate) fn target_count(&self) -> usize {
        self.lock().targets.len()
    }

    /// The address of a target.
    pub(crate) fn target_address(&self, target: usize) -> Option<SocketAddr> {
        self.lock().targets.get(target).map(|t| t.address)
    }

    /// A lane of a connection that is there.
    pub(crate) fn add(&self, target: usize, stream: &Arc<DataStream>) -> ActiveStream<'_> {
        self.seat(&mut self.lock(), target, stream)
    }

    /// A lane of a connection that is being opened already.
    pub(crate) fn add_pending(&self, target: usize) -> PendingStream<'_> {
        self.ticket(&mut self.lock(), target)
    }

    /// Fewer connections came than were asked for, and no more will come.
    pub(crate) fn accept_current_count(&self) {
        let mut roll = self.lock();
        self.refuse(&mut roll);
    }

    /// Everything was handed out, or the transfer is to stop: no lane is added any more. Returns how
    /// many were at work, the first time.
    pub(crate) fn stop_opening(&self) -> Option<usize> {
        let mut roll = self.lock();
        let first = !std::mem::replace(&mut roll.no_more_opening, true);
        self.changed.notify_all();
        first.then(|| roll.active().count())
    }

    /// Waits until lanes are to be opened, and returns them; `None` when no lane is left, nor being
    /// opened. Meanwhile tells lanes that are too many to leave.
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

    /// The connections that have not been closed.
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

    /// Makes do with the lanes that are there.
    fn refuse(&self, roll: &mut StreamTable) {
        roll.open_failed = true;
        let there = roll.staying().count() + roll.opening();
        self.aim.fetch_min(there.max(1), Ordering::Relaxed);
    }
}

/// The right to open a connection. Dropped unused, it counts as a connection that was not needed.
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

    /// The connection is there.
    pub(crate) fn connected(mut self, stream: &Arc<DataStream>) -> ActiveStream<'l> {
        let lanes = self.lanes;
        let mut roll = lanes.lock();
        self.resolve(&mut roll);
        lanes.seat(&mut roll, self.target, stream)
    }

    /// The connection cannot be had: no more lanes than there are.
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

/// A lane's place. Dropped before the lane has ended, the lane has failed.
#[derive(Debug)]
pub(crate) struct ActiveStream<'l> {
    lanes: &'l StreamSet,
    lane: usize,
    surplus: Arc<AtomicBool>,
    ended: bool,
}

impl ActiveStream<'_> {
    /// Set when the lane is to leave after the block under way.
    pub(crate) fn leave_flag(&self) -> &AtomicBool {
        &self.surplus
    }

    /// Leaves while others go on, unless this lane has become needed: then false. The lane has to
    /// send EOD then.
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

    /// Ends because nothing is left to send. The lane has to send EOD then, and if this is `Some`,
    /// EOF with that count. The last lane at a target waits here until every connection that was
    /// being opened there is a lane or is not.
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
            // Its EOD is missing at the receiver, which so cannot take the file for whole.
            self.lanes
                .lock()
                .mark_ended(self.lane, SendStreamState::Failed);
            self.lanes.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests;
