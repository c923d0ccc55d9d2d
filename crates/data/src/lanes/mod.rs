//! The lanes of a sender in MODE E: how many there shall be, which there are, and how each ends.
//!
//! A lane is a connection with the thread that sends over it. Lanes join and leave while data moves.
//! Every one ends with EOD, and the last at each target (each address that the receiver listens on)
//! with EOF and the count of all EODs there, which only then is known (GFD.20 §3.4.2).
//!
//! Whoever decides [aims](Lanes::aim); the crew in `send` opens connections and runs the threads.

mod roll;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use tune::look::StreamId;

use crate::lock::{locked, notified};
use crate::stream::Stream;
use roll::{Lane, Roll, Stage, Target};

/// Shared by the lanes of one transfer, the crew that runs them, and whoever decides how many there
/// shall be.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    /// How many there shall be, over all targets; changed with the roll locked.
    aim: AtomicUsize,
    roll: Mutex<Roll>,
    changed: Condvar,
}

impl Lanes {
    /// Asks for so many lanes, over all targets; each target keeps at least one. Lanes that are too
    /// many are told to leave at once.
    pub(crate) fn aim(&self, lanes: usize) {
        let mut roll = self.lock();
        self.aim.store(lanes, Ordering::Relaxed);
        roll.adjust(lanes);
        self.changed.notify_all();
    }

    /// How many there shall be.
    pub(crate) fn aimed(&self) -> usize {
        self.aim.load(Ordering::Relaxed)
    }

    /// Connections that are being opened.
    pub(crate) fn opening(&self) -> usize {
        self.lock().targets.iter().map(|t| t.opening).sum()
    }

    /// Lanes that are at work and are to stay.
    pub(crate) fn staying(&self) -> usize {
        self.lock().staying().count()
    }

    /// Lanes that leave, or have left, while others go on.
    pub(crate) fn leaving(&self) -> Vec<StreamId> {
        let roll = self.lock();
        let leave = |l: &&Lane| l.stage == Stage::Retired || l.is_surplus();
        roll.lanes.iter().filter(leave).map(|l| l.id).collect()
    }

    /// Whether one could not be opened since the last call.
    pub(crate) fn take_refused(&self) -> bool {
        std::mem::take(&mut self.lock().refused)
    }

    /// Connections at one address belong together.
    pub(crate) fn target(&self, address: SocketAddr) -> usize {
        let targets = &mut self.lock().targets;
        if let Some(known) = targets.iter().position(|t| t.address == address) {
            return known;
        }
        targets.push(Target {
            address,
            opening: 0,
            ended: 0,
        });
        targets.len() - 1
    }

    /// How many targets there are.
    pub(crate) fn targets(&self) -> usize {
        self.lock().targets.len()
    }

    /// The address of a target.
    pub(crate) fn address(&self, target: usize) -> Option<SocketAddr> {
        self.lock().targets.get(target).map(|t| t.address)
    }

    /// A lane of a connection that is there.
    pub(crate) fn join(&self, target: usize, stream: &Arc<Stream>) -> Seat<'_> {
        self.seat(&mut self.lock(), target, stream)
    }

    /// A lane of a connection that is being opened already.
    pub(crate) fn expect(&self, target: usize) -> Ticket<'_> {
        self.ticket(&mut self.lock(), target)
    }

    /// Fewer connections came than were asked for, and no more will come.
    pub(crate) fn make_do(&self) {
        let mut roll = self.lock();
        self.refuse(&mut roll);
    }

    /// Everything was handed out, or the transfer is to stop: no lane is added any more. Returns how
    /// many were at work, the first time.
    pub(crate) fn close(&self) -> Option<usize> {
        let mut roll = self.lock();
        let first = !std::mem::replace(&mut roll.over, true);
        self.changed.notify_all();
        first.then(|| roll.at_work().count())
    }

    /// Waits until lanes are to be opened, and returns them; `None` when no lane is left, nor being
    /// opened. Meanwhile tells lanes that are too many to leave.
    pub(crate) fn next_openings(&self) -> Option<Vec<Ticket<'_>>> {
        let mut roll = self.lock();
        loop {
            let tickets: Vec<_> = roll
                .adjust(self.aimed())
                .into_iter()
                .map(|target| self.ticket(&mut roll, target))
                .collect();
            if !tickets.is_empty() {
                return Some(tickets);
            }
            if roll.at_work().next().is_none() && roll.opening() == 0 {
                return None;
            }
            roll = self.wait(roll);
        }
    }

    /// The connections that have not been closed.
    pub(crate) fn streams(&self) -> Vec<Arc<Stream>> {
        let roll = self.lock();
        roll.lanes.iter().filter_map(|l| l.stream.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Roll> {
        locked(&self.roll)
    }

    fn wait<'r>(&self, roll: MutexGuard<'r, Roll>) -> MutexGuard<'r, Roll> {
        notified(&self.changed, roll)
    }

    fn ticket(&self, roll: &mut Roll, target: usize) -> Ticket<'_> {
        if let Some(target) = roll.targets.get_mut(target) {
            target.opening += 1;
        }
        Ticket {
            lanes: self,
            target,
            used: false,
        }
    }

    fn seat(&self, roll: &mut Roll, target: usize, stream: &Arc<Stream>) -> Seat<'_> {
        let surplus = Arc::new(AtomicBool::new(false));
        roll.lanes.push(Lane {
            id: stream.id(),
            stream: Some(Arc::clone(stream)),
            target,
            stage: Stage::AtWork,
            surplus: Arc::clone(&surplus),
        });
        Seat {
            lanes: self,
            lane: roll.lanes.len() - 1,
            surplus,
            ended: false,
        }
    }

    /// Makes do with the lanes that are there.
    fn refuse(&self, roll: &mut Roll) {
        roll.refused = true;
        let there = roll.staying().count() + roll.opening();
        self.aim.fetch_min(there.max(1), Ordering::Relaxed);
    }
}

/// The right to open a connection. Dropped unused, it counts as a connection that was not needed.
#[derive(Debug)]
pub(crate) struct Ticket<'l> {
    lanes: &'l Lanes,
    target: usize,
    used: bool,
}

impl<'l> Ticket<'l> {
    pub(crate) fn target(&self) -> usize {
        self.target
    }

    /// The connection is there.
    pub(crate) fn join(mut self, stream: &Arc<Stream>) -> Seat<'l> {
        let lanes = self.lanes;
        let mut roll = lanes.lock();
        self.settle(&mut roll);
        lanes.seat(&mut roll, self.target, stream)
    }

    /// The connection cannot be had: no more lanes than there are.
    pub(crate) fn refuse(mut self) {
        let mut roll = self.lanes.lock();
        self.settle(&mut roll);
        self.lanes.refuse(&mut roll);
    }

    fn settle(&mut self, roll: &mut Roll) {
        self.used = true;
        roll.targets[self.target].opening -= 1;
        self.lanes.changed.notify_all();
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if !self.used {
            let lanes = self.lanes;
            self.settle(&mut lanes.lock());
        }
    }
}

/// A lane's place. Dropped before the lane has ended, the lane has failed.
#[derive(Debug)]
pub(crate) struct Seat<'l> {
    lanes: &'l Lanes,
    lane: usize,
    surplus: Arc<AtomicBool>,
    ended: bool,
}

impl Seat<'_> {
    /// Set when the lane is to leave after the block under way.
    pub(crate) fn surplus(&self) -> &AtomicBool {
        &self.surplus
    }

    /// Leaves while others go on, unless this lane has become needed: then false. The lane has to
    /// send EOD then.
    pub(crate) fn retire(&mut self) -> bool {
        let mut roll = self.lanes.lock();
        let needed = !self.surplus.load(Ordering::Relaxed) || roll.alone(self.lane);
        if needed {
            self.surplus.store(false, Ordering::Relaxed);
            return false;
        }
        self.ended = true;
        roll.end(self.lane, Stage::Retired);
        roll.lanes[self.lane].stream = None;
        self.lanes.changed.notify_all();
        true
    }

    /// Ends because nothing is left to send. The lane has to send EOD then, and if this is `Some`,
    /// EOF with that count. The last lane at a target waits here until every connection that was
    /// being opened there is a lane or is not.
    pub(crate) fn end(&mut self) -> Option<u64> {
        let mut roll = self.lanes.lock();
        let target = roll.lanes[self.lane].target;
        while roll.alone(self.lane) && roll.targets[target].opening > 0 {
            roll = self.lanes.wait(roll);
        }
        let last = roll.alone(self.lane);
        self.ended = true;
        let ended = roll.end(self.lane, Stage::Ended);
        self.lanes.changed.notify_all();
        last.then_some(ended)
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // Its EOD is missing at the receiver, which so cannot take the file for whole.
            self.lanes.lock().end(self.lane, Stage::Failed);
            self.lanes.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests;
