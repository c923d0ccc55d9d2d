//! The list of a transfer's lanes, and what it takes to have another number of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proto::eblock::MAX_STREAMS;
use tune::look::StreamId;

use crate::stream::Stream;

#[derive(Debug, Default)]
pub(super) struct Roll {
    pub(super) targets: Vec<Target>,
    /// As they joined.
    pub(super) lanes: Vec<Lane>,
    /// Everything to send was handed out: none joins any more but those being opened.
    pub(super) over: bool,
    /// One could not be opened.
    pub(super) refused: bool,
}

#[derive(Debug)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    /// Connections that are being opened.
    pub(super) opening: usize,
    /// EODs sent, or about to be.
    pub(super) ended: u64,
}

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) id: StreamId,
    /// Until it has retired.
    pub(super) stream: Option<Arc<Stream>>,
    /// Index of its target.
    pub(super) target: usize,
    pub(super) stage: Stage,
    /// It is to leave after the block under way.
    pub(super) surplus: Arc<AtomicBool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    AtWork,
    /// Ended with all the others: its connection may be used again.
    Ended,
    /// Left while others went on: its connection is closed.
    Retired,
    /// Its thread gave up.
    Failed,
}

impl Lane {
    pub(super) fn stays(&self) -> bool {
        self.stage == Stage::AtWork && !self.is_surplus()
    }

    pub(super) fn is_surplus(&self) -> bool {
        self.surplus.load(Ordering::Relaxed)
    }
}

impl Roll {
    pub(super) fn at_work(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().filter(|l| l.stage == Stage::AtWork)
    }

    pub(super) fn staying(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().filter(|l| l.stays())
    }

    fn staying_at(&self, target: usize) -> usize {
        self.staying().filter(|l| l.target == target).count()
    }

    pub(super) fn opening(&self) -> usize {
        self.targets.iter().map(|t| t.opening).sum()
    }

    /// Brings the number of lanes to `aim`: tells surplus ones to leave, or others to stay after all,
    /// and returns the targets that are to get one more each.
    pub(super) fn adjust(&mut self, aim: usize) -> Vec<usize> {
        if self.over {
            return Vec::new();
        }
        let aim = aim.max(self.targets.len());
        let mut there = self.staying().count() + self.opening();
        while there > aim && self.dismiss_newest() {
            there -= 1;
        }
        while there < aim && self.keep_oldest() {
            there += 1;
        }
        self.fewest(aim.saturating_sub(there))
    }

    /// Tells the newest lane that its target can do without to leave.
    fn dismiss_newest(&self) -> bool {
        let mut newest_first = self.lanes.iter().rev();
        let lane = newest_first.find(|l| l.stays() && self.staying_at(l.target) > 1);
        lane.is_some_and(|l| !l.surplus.swap(true, Ordering::Relaxed))
    }

    /// Tells the oldest lane that was to leave, and has not yet, to stay.
    fn keep_oldest(&self) -> bool {
        let leaving = self.at_work().find(|l| !l.stays());
        leaving.is_some_and(|l| l.surplus.swap(false, Ordering::Relaxed))
    }

    /// Where `more` lanes are to be opened so that targets have the same number, as far as their
    /// EODs can be counted.
    fn fewest(&self, more: usize) -> Vec<usize> {
        let has = |n: usize| self.staying_at(n) + self.targets[n].opening;
        let mut have: Vec<_> = (0..self.targets.len()).map(has).collect();
        let mut opened = Vec::new();
        for _ in 0..more {
            let Some(target) = (0..have.len()).min_by_key(|n| have[*n]) else {
                break;
            };
            if have[target] as u64 + self.targets[target].ended >= MAX_STREAMS {
                break;
            }
            have[target] += 1;
            opened.push(target);
        }
        opened
    }

    /// Whether this lane alone is at work at its target.
    pub(super) fn alone(&self, lane: usize) -> bool {
        let target = self.lanes[lane].target;
        self.at_work().filter(|l| l.target == target).count() <= 1
    }

    /// Notes a lane's EOD; returns how many its target has had.
    pub(super) fn end(&mut self, lane: usize, stage: Stage) -> u64 {
        let lane = &mut self.lanes[lane];
        lane.stage = stage;
        let target = &mut self.targets[lane.target];
        target.ended += 1;
        target.ended
    }
}
