//! The table of a transfer's streams, and the changes needed for another number of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proto::eblock::MAX_STREAMS;
use tune::sample::StreamId;

use crate::stream::DataStream;

#[derive(Debug, Default)]
pub(super) struct StreamTable {
    pub(super) targets: Vec<TargetStreams>,
    /// In the order in which they joined.
    pub(super) streams: Vec<SendStream>,
    /// Everything to send was handed out: only connections that are already being opened still
    /// join.
    pub(super) no_more_opening: bool,
    /// A connection could not be opened.
    pub(super) open_failed: bool,
}

#[derive(Debug)]
pub(super) struct TargetStreams {
    pub(super) address: SocketAddr,
    /// Number of connections that are being opened.
    pub(super) opening: usize,
    /// EODs sent, or about to be sent.
    pub(super) ended: u64,
}

#[derive(Debug)]
pub(super) struct SendStream {
    pub(super) id: StreamId,
    /// `None` once it has left.
    pub(super) stream: Option<Arc<DataStream>>,
    /// Index of its target.
    pub(super) target: usize,
    pub(super) state: SendStreamState,
    /// It must leave after its current block.
    pub(super) leave_flag: Arc<AtomicBool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendStreamState {
    Active,
    /// Ended together with the others: its connection may be reused.
    Ended,
    /// Left while others continued: its connection is closed.
    Retired,
    /// Its thread failed.
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
            .filter(|s| s.state == SendStreamState::Active)
    }

    pub(super) fn staying(&self) -> impl Iterator<Item = &SendStream> {
        self.streams.iter().filter(|s| s.is_staying())
    }

    fn staying_at(&self, target: usize) -> usize {
        self.staying().filter(|s| s.target == target).count()
    }

    pub(super) fn opening(&self) -> usize {
        self.targets.iter().map(|t| t.opening).sum()
    }

    /// Brings the number of streams to `wanted`: tells surplus streams to leave, or leaving ones to
    /// stay. Returns the targets that must get one more stream each.
    pub(super) fn adjust_count(&mut self, wanted: usize) -> Vec<usize> {
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
    pub(super) fn is_last_at_target(&self, index: usize) -> bool {
        let target = self.streams[index].target;
        self.active().filter(|s| s.target == target).count() <= 1
    }

    /// Records a stream's EOD. Returns the number of EODs at its target.
    pub(super) fn mark_ended(&mut self, index: usize, stage: SendStreamState) -> u64 {
        let stream = &mut self.streams[index];
        stream.state = stage;
        let target = &mut self.targets[stream.target];
        // Ended streams count, too: the EOF announces all EODs of the target.
        target.ended += 1;
        target.ended
    }
}
