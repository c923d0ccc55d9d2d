//! The rules: one table, the first row that applies acts.
//!
//! Rows are tried from top to bottom at the end of each interval (two round trips, at least 50 ms) while no experiment runs. A
//! row applies if the state, the bottleneck, the losses and the queue are among its own, its cooldown is over, and its guard
//! holds. If its action finds nothing to change, the next row is tried.

use std::time::Duration;

use super::AutoTuner;
use super::estimate::{EstimatedLoss, PathEstimate};
use super::state::StateKind::{self, Paced, Shared, Steady};
use super::thresholds::{LIMITS, RoundTrips};
use super::transfer_meter::TransferInterval;
use super::transfer_sample::TransferSample;
use crate::observation::Bottleneck::{
    self, Cwnd, Link, Loss, ReceiveWindow, ReceiverApp, SendBuffer, SenderApp, SlowStart, Unknown,
};

/// Everything that a rule looks at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now<'a> {
    pub(super) sample: &'a TransferSample<'a>,
    pub(super) interval: &'a TransferInterval,
    pub(super) path: PathEstimate,
}

impl Now<'_> {
    /// Whether so much time has passed since then.
    pub(super) fn has_passed(&self, time: RoundTrips, since: Duration) -> bool {
        self.interval.at.saturating_sub(since) >= time.at(self.interval.rtt.smoothed)
    }
}

/// Queue that a rule asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueIs {
    Any,
    /// At most [`harmless_queue`](super::Thresholds::harmless_queue), or not visible.
    Harmless,
    /// Longer.
    Harmful,
}

/// Losses that a rule asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LossIs {
    Any,
    Random,
}

/// Reaction to the estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Half as many streams: the path is so crowded that a large part of all segments is lost.
    LeaveCrowd,
    /// As many streams as the windows or buffers call for.
    StreamsForWindows,
    /// Sends below the path's rate for a moment: whose queue is it?
    ProbeQueue,
    /// Takes a fair share: as few streams as permitted, and the system's congestion control.
    TakeFairShare,
    /// A loss-tolerant congestion control, on one stream beside the others.
    TolerantControl,
    /// As many streams as the losses call for.
    StreamsForLoss,
    /// More streams, whose slow starts gain rate faster than the congestion windows grow.
    StreamsForSlowGrowth,
    /// More streams, if what limits at an end limits each of them.
    StreamsForProgram,
    /// Fewer streams, if the rate stays.
    FewerStreams,
}

/// One row.
#[derive(Debug)]
pub(super) struct Rule {
    states: &'static [StateKind],
    bottlenecks: &'static [Bottleneck],
    loss: LossIs,
    queue: QueueIs,
    pub(super) action: Action,
    guard: fn(&AutoTuner, &Now<'_>) -> bool,
    /// Time without this row after it has failed; doubled with each failure, at most this number of times.
    pub(super) cooldown: Duration,
    pub(super) doublings: u32,
}

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// The table.
pub(super) const RULES: [Rule; 9] = [
    Rule {
        states: &[Steady, Shared, Paced],
        bottlenecks: &[Link, Cwnd, Loss, SlowStart, ReceiveWindow, Unknown],
        loss: LossIs::Any,
        queue: QueueIs::Any,
        action: Action::LeaveCrowd,
        guard: AutoTuner::is_crowded,
        cooldown: seconds(0),
        doublings: 0,
    },
    Rule {
        states: &[Steady, Shared],
        bottlenecks: &[ReceiveWindow, SendBuffer, Link],
        loss: LossIs::Any,
        queue: QueueIs::Any,
        action: Action::StreamsForWindows,
        guard: AutoTuner::have_windows_stopped_growing,
        cooldown: seconds(10),
        doublings: 5,
    },
    Rule {
        states: &[Steady, Shared],
        bottlenecks: &[Link, Cwnd, Loss],
        loss: LossIs::Any,
        queue: QueueIs::Harmful,
        action: Action::ProbeQueue,
        guard: AutoTuner::may_probe_queue,
        cooldown: seconds(4),
        doublings: 2,
    },
    Rule {
        states: &[Shared],
        bottlenecks: &[Link, Cwnd, Loss],
        loss: LossIs::Any,
        queue: QueueIs::Harmful,
        action: Action::TakeFairShare,
        guard: AutoTuner::may_take_fair_share,
        cooldown: seconds(0),
        doublings: 0,
    },
    Rule {
        states: &[Steady],
        bottlenecks: &[Cwnd, Loss],
        loss: LossIs::Random,
        queue: QueueIs::Any,
        action: Action::TolerantControl,
        guard: |_, _| true,
        cooldown: seconds(30),
        doublings: 5,
    },
    Rule {
        states: &[Steady],
        bottlenecks: &[Cwnd, Loss, SlowStart, Unknown],
        loss: LossIs::Random,
        queue: QueueIs::Any,
        action: Action::StreamsForLoss,
        guard: AutoTuner::are_losses_each_streams_own,
        cooldown: seconds(10),
        doublings: 5,
    },
    Rule {
        states: &[Steady],
        bottlenecks: &[Cwnd],
        loss: LossIs::Any,
        queue: QueueIs::Harmless,
        action: Action::StreamsForSlowGrowth,
        guard: AutoTuner::do_windows_grow_slowly,
        cooldown: seconds(10),
        doublings: 5,
    },
    Rule {
        states: &[Steady],
        bottlenecks: &[SenderApp],
        loss: LossIs::Any,
        queue: QueueIs::Harmless,
        action: Action::StreamsForProgram,
        guard: AutoTuner::has_rate_settled,
        cooldown: seconds(60),
        doublings: 5,
    },
    Rule {
        states: &[Steady, Paced],
        bottlenecks: &[Link, SenderApp, ReceiverApp, Cwnd, Loss],
        loss: LossIs::Any,
        queue: QueueIs::Any,
        action: Action::FewerStreams,
        guard: AutoTuner::may_streams_be_too_many,
        cooldown: seconds(20),
        doublings: 5,
    },
];

impl Rule {
    /// Whether the row applies, apart from its cooldown.
    pub(super) fn applies(&self, tuner: &AutoTuner, state: StateKind, now: &Now<'_>) -> bool {
        let is_harmful =
            now.interval.rtt.has_queue() && now.path.queue_delay > LIMITS.harmless_queue;
        let is_random = matches!(now.path.loss, EstimatedLoss::Random { .. });
        self.states.contains(&state)
            // Pacing hides the queue that shows a full path.
            && (state == Paced || self.bottlenecks.contains(&now.path.bottleneck))
            && (self.loss == LossIs::Any || is_random)
            && match self.queue {
                QueueIs::Any => true,
                QueueIs::Harmless => !is_harmful,
                QueueIs::Harmful => is_harmful,
            }
            && (self.guard)(tuner, now)
    }
}
