//! Notices between the sizing thread of a transfer and its [`TransferControl`](crate::job::Control).

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use tune::limiter::Limiter;
use tune::sizing::BufferDecision;
use tune::sizing::auto::HostBound;
use tune::streams::auto;

use crate::locks::lock;
use crate::os::wake::WakeEvent;

/// Decisions that wait to be read; older ones are dropped.
const MOST_DECISIONS: usize = 4096;

/// Part of [`TransferControl`](crate::job::Control).
#[derive(Debug, Default)]
pub(crate) struct TuningNotices {
    decisions: Mutex<VecDeque<BufferDecision>>,
    /// About streams, congestion control and pace.
    stream_decisions: Mutex<VecDeque<auto::TransferDecision>>,
    /// Limiter of the sending now.
    limiter: Mutex<Option<Limiter>>,
    listener: Mutex<ResizeListener>,
    /// The size that the other end told, bytes; 0: none yet.
    followed: AtomicU64,
    /// The limit of this host that holds a stream back.
    bound: Mutex<Option<HostBound>>,
    bell: Mutex<Weak<WakeEvent>>,
}

/// Who is told of this end's sizes.
#[derive(Default)]
struct ResizeListener(Option<Arc<dyn Fn(u64) + Send + Sync>>);

impl fmt::Debug for ResizeListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.0.is_some() { "Some" } else { "None" };
        f.debug_tuple(name).finish()
    }
}

impl TuningNotices {
    /// A transfer begins, whose sizing thread is woken by `bell`.
    pub(crate) fn on_transfer_start(&self, bell: &Arc<WakeEvent>) {
        *lock(&self.bound) = None;
        *lock(&self.limiter) = None;
        *lock(&self.bell) = Arc::downgrade(bell);
    }

    /// The transfer has ended, and what the other end told for it is over. (What it tells of the
    /// next one may come before that begins here.)
    pub(crate) fn on_transfer_end(&self) {
        self.followed.store(0, Ordering::SeqCst);
    }

    /// Wakes the sizing thread: a stream joined, or there is something to follow.
    pub(crate) fn wake(&self) {
        if let Some(bell) = lock(&self.bell).upgrade() {
            bell.wake();
        }
    }

    /// See [`TransferControl::on_resize`](crate::job::Control::on_resize).
    pub(crate) fn on_resize(&self, tell: impl Fn(u64) + Send + Sync + 'static) {
        lock(&self.listener).0 = Some(Arc::new(tell));
    }

    /// This end's buffers have this size now, bytes.
    pub(crate) fn report_resize(&self, bytes: u64) {
        // The listener may take its time; nobody has to wait for it.
        let listener = lock(&self.listener).0.clone();
        if let Some(tell) = listener {
            tell(bytes);
        }
    }

    /// See [`TransferControl::follow_peer_size`](crate::job::Control::follow).
    pub(crate) fn follow_peer_size(&self, bytes: u64) {
        self.followed.store(bytes, Ordering::SeqCst);
        self.wake();
    }

    /// The other end's size, bytes.
    pub(crate) fn peer_size(&self) -> Option<u64> {
        Some(self.followed.load(Ordering::SeqCst)).filter(|bytes| *bytes > 0)
    }

    /// Notes the limit that holds a stream back now; of several streams, that of the one whose path gives most.
    pub(crate) fn set_host_limit(&self, bound: Option<HostBound>) {
        *lock(&self.bound) = bound;
    }

    /// See [`TransferControl::host_limit`](crate::job::Control::bound).
    pub(crate) fn host_limit(&self) -> Option<HostBound> {
        *lock(&self.bound)
    }

    /// Notes a decision.
    pub(crate) fn push_decision(&self, decision: BufferDecision) {
        push(&mut lock(&self.decisions), decision);
    }

    /// Notes a decision about streams.
    pub(crate) fn push_stream_decision(&self, decision: auto::TransferDecision) {
        push(&mut lock(&self.stream_decisions), decision);
    }

    /// See [`TransferControl::stream_decisions`](crate::job::Control::stream_decisions).
    pub(crate) fn take_stream_decisions(&self) -> Vec<auto::TransferDecision> {
        std::mem::take(&mut *lock(&self.stream_decisions)).into()
    }

    /// Notes the limiter of the sending now.
    pub(crate) fn set_limiter(&self, limiter: Limiter) {
        *lock(&self.limiter) = Some(limiter);
    }

    /// See [`TransferControl::limiter`](crate::job::Control::limiter).
    pub(crate) fn limiter(&self) -> Option<Limiter> {
        *lock(&self.limiter)
    }

    /// See [`TransferControl::decisions`](crate::job::Control::decisions).
    pub(crate) fn take_decisions(&self) -> Vec<BufferDecision> {
        std::mem::take(&mut *lock(&self.decisions)).into()
    }
}

/// The latest stay.
fn push<T>(decisions: &mut VecDeque<T>, decision: T) {
    if decisions.len() == MOST_DECISIONS {
        decisions.pop_front();
    }
    decisions.push_back(decision);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn decisions_are_bounded_and_the_latest_stay() {
        let board = TuningNotices::default();
        for stream in 0..10_000 {
            board.push_decision(BufferDecision {
                stream,
                at: Duration::ZERO,
                setting: None,
                limiter: Limiter::Unknown,
                reason: String::new(),
            });
        }
        let kept = board.take_decisions();
        assert_eq!(kept.len(), MOST_DECISIONS);
        assert_eq!(kept.last().unwrap().stream, 9_999);
        assert!(board.take_decisions().is_empty());
    }

    #[test]
    fn what_was_told_in_an_earlier_transfer_is_not_followed() {
        let board = TuningNotices::default();
        let bell = Arc::new(WakeEvent::new().unwrap());
        board.on_transfer_start(&bell);
        board.follow_peer_size(1 << 20);
        board.on_transfer_end();
        assert_eq!(board.peer_size(), None);
    }

    #[test]
    fn what_was_told_before_this_end_begins_is_followed() {
        let board = TuningNotices::default();
        board.follow_peer_size(2 << 20);
        board.on_transfer_start(&Arc::new(WakeEvent::new().unwrap()));
        assert_eq!(board.peer_size(), Some(2 << 20));
    }

    #[test]
    fn a_limit_of_an_earlier_transfer_holds_no_longer() {
        let board = TuningNotices::default();
        let bound = HostBound {
            limiter: Limiter::ReceiveWindow,
            max_in_flight: 1 << 20,
            stream_bps: 1_000_000,
        };
        board.set_host_limit(Some(bound));
        assert_eq!(board.host_limit(), Some(bound));
        board.on_transfer_start(&Arc::new(WakeEvent::new().unwrap()));
        assert_eq!(board.host_limit(), None);
    }

    #[test]
    fn without_a_listener_nobody_is_told() {
        let board = TuningNotices::default();
        board.report_resize(7);
        let heard = Arc::new(AtomicU64::new(0));
        let ear = Arc::clone(&heard);
        board.on_resize(move |bytes| ear.store(bytes, Ordering::SeqCst));
        board.report_resize(8);
        assert_eq!(heard.load(Ordering::SeqCst), 8);
    }
}
