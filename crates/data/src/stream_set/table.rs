//! The list of a transfer's lanes, and what it takes to have another number of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proto::eblock::MAX_STREAMS;
use tune::sample::StreamId;

use crate::stream::DataStream;

#[derive(Debug, Default)]
pub(super) struct StreamTable {
    pub(super) targets: Vec<TargetStreams>,
    /// As they joined.
    pub(super) streams: Vec<SendStream>,
    /// Everything to send was handed out: none joins any more but those being opened.
    pub(super) no_more_opening: bool,
    /// One could not be opened.
    pub(super) open_failed: bool,
}

#[derive(Debug)]
pub(super) struct TargetStreams {
    pub(super) address: SocketAddr,
    /// Connections that are being opened.
    pub(super) opening: usize,
    /// EODs sent, or about to be.
    pub(super) ended: u64,
}

#[derive(Debug)]
pub(super) struct SendStream {
    pub(super) id: StreamId,
    /// Until it has retired.
    pub(super) stream: Option<Arc<DataStream>>,
    /// Index of its target.
    pub(super) target: usize,
    pub(super) state: SendStreamState,
    /// It is to leave after the block under way.
    pub(super) leave_flag: Arc<AtomicBool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendStreamState {
    Active,
    /// Ended with all the others: its connection may be used again.
    Ended,
    /// Left while others went on: its connection is closed.
    Retired,
    /// Its thread gave up.
    Failed,
}

impl SendStream {
    pub(super) fn is_staying(&self) -> bool {
        self.state == SendStreamState::Active && !self.is_leaving()
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.leave_flag.load(Ordering::Relaxed)
    }
}

impl StreamTable {
    pub(super) fn active(&self) -> impl Iterator<Item = &SendStream> {
        self.streams
            .iter()
            .filter(|l| l.state == SendStreamState::Active)
    }

    pub(super) fn staying(&self) -> impl Iterator<Item = &SendStream> {
        self.streams.iter().filter(|l| l.is_staying())
    }

    fn staying_at(&self, target: usize) -> usize {
        self.staying().filter(|l| l.target == target).count()
    }

    pub(super) fn opening(&self) -> usize {
        self.targets.iter().map(|t| t.opening).sum()
    }

    /// Brings the number of lanes to `aim`: tells surplus ones to leave, or others to stay after all,
    /// and returns the targets that are to get one more each.
    pub(super) fn adjust_count(&mut self, aim: usize) -> Vec<usize> {
        if self.no_more_opening {
            return Vec::new();
        }
        let aim = aim.max(self.targets.len());
        let mut there = self.staying().count() + self.opening();
        while there > aim && self.retire_newest() {
            there -= 1;
        }
        while there < aim && self.keep_oldest() {
            there += 1;
        }
        self.least_used_targets(aim.saturating_sub(there))
    }

    /// Tells the newest lane that its target can do without to leave.
    fn retire_newest(&self) -> bool {
        let mut newest_first = self.streams.iter().rev();
        let lane = newest_first.find(|l| l.is_staying() && self.staying_at(l.target) > 1);
        lane.is_some_and(|l| !l.leave_flag.swap(true, Ordering::Relaxed))
    }

    /// Tells the oldest lane that was to leave, and has not yet, to stay.
    fn keep_oldest(&self) -> bool {
        let leaving = self.active().find(|l| !l.is_staying());
        leaving.is_some_and(|l| l.leave_flag.swap(false, Ordering::Relaxed))
    }

    /// Where `more` lanes are to be opened so that targets have the same number, as far as their
    /// EODs can be counted.
    fn least_used_targets(&self, more: usize) -> Vec<usize> {
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
    pub(super) fn is_last_at_target(&self, lane: usize) -> bool {
        let target = self.streams[lane].target;
        self.active().filter(|l| l.target == target).count() <= 1
    }

    /// Notes a lane's EOD; returns how many its target has had.
    pub(super) fn mark_ended(&mut self, lane: usize, stage: SendStreamState) -> u64 {
        let lane = &mut self.streams[lane];
        lane.state = stage;
        let target = &mut self.targets[lane.target];
        target.ended += 1;
        target.ended
    }
}
