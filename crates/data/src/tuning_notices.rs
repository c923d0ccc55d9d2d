//! Notices between the tuning thread of a transfer and its
//! [`TransferControl`](crate::job::TransferControl).

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::os::wake::WakeEvent;
use parking_lot::Mutex;
use tune::limiter::Limiter;
use tune::sizing::BufferDecision;
use tune::sizing::auto::HostBound;
use tune::streams::auto;

/// Most decisions kept until somebody reads them. The oldest are dropped first.
const MAX_DECISIONS: usize = 4096;

/// The part of [`TransferControl`](crate::job::TransferControl) that the tuning thread writes.
#[derive(Debug, Default)]
pub(crate) struct TuningNotices {
    decisions: Mutex<VecDeque<BufferDecision>>,
    /// Decisions about streams, congestion control and pacing.
    stream_decisions: Mutex<VecDeque<auto::TransferDecision>>,
    /// Present limiter of the sender.
    limiter: Mutex<Option<Limiter>>,
    listener: Mutex<ResizeListener>,
    /// Buffer size announced by the peer, bytes; 0: none yet.
    peer_size: AtomicU64,
    /// The host limit that restricts a stream, if there is one.
    host_limit: Mutex<Option<HostBound>>,
    wake_event: Mutex<Weak<WakeEvent>>,
}

/// Callback that receives this end's new buffer sizes.
#[derive(Default)]
struct ResizeListener(Option<Arc<dyn Fn(u64) + Send + Sync>>);

impl fmt::Debug for ResizeListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.0.is_some() { "Some" } else { "None" };
        f.debug_tuple(name).finish()
    }
}

impl TuningNotices {
    /// Starts a transfer. `wake_event` wakes its tuning thread.
    pub(crate) fn on_transfer_start(&self, wake_event: &Arc<WakeEvent>) {
        // Limits of an earlier transfer over the same handle no longer apply.
        *self.host_limit.lock() = None;
        *self.limiter.lock() = None;
        *self.wake_event.lock() = Arc::downgrade(wake_event);
    }

    /// Ends a transfer and forgets the size that the peer announced for it. (A size for the next
    /// transfer may arrive before that transfer starts here, so it is not cleared at the start.)
    pub(crate) fn on_transfer_end(&self) {
        self.peer_size.store(0, Ordering::SeqCst);
    }

    /// Wakes the tuning thread: a stream was added, or the peer announced a size.
    pub(crate) fn wake(&self) {
        // The tuning thread may have ended already: the notices outlive it.
        if let Some(wake_event) = self.wake_event.lock().upgrade() {
            wake_event.wake();
        }
    }

    /// See [`TransferControl::on_resize`](crate::job::TransferControl::on_resize).
    pub(crate) fn on_resize(&self, report: impl Fn(u64) + Send + Sync + 'static) {
        self.listener.lock().0 = Some(Arc::new(report));
    }

    /// Reports the new size of this end's buffers, bytes.
    pub(crate) fn report_resize(&self, bytes: u64) {
        // The callback may block, so it runs without the lock.
        let listener = self.listener.lock().0.clone();
        if let Some(report) = listener {
            report(bytes);
        }
    }

    /// See [`TransferControl::follow_peer_size`](crate::job::TransferControl::follow_peer_size).
    pub(crate) fn follow_peer_size(&self, bytes: u64) {
        self.peer_size.store(bytes, Ordering::SeqCst);
        self.wake();
    }

    /// The size announced by the peer, bytes.
    pub(crate) fn peer_size(&self) -> Option<u64> {
        Some(self.peer_size.load(Ordering::SeqCst)).filter(|bytes| *bytes > 0)
    }

    /// Sets the host limit that restricts a stream now. With several streams it is the one of the
    /// fastest stream.
    pub(crate) fn set_host_limit(&self, host_limit: Option<HostBound>) {
        *self.host_limit.lock() = host_limit;
    }

    /// See [`TransferControl::host_limit`](crate::job::TransferControl::host_limit).
    pub(crate) fn host_limit(&self) -> Option<HostBound> {
        *self.host_limit.lock()
    }

    /// Adds a decision about buffers.
    pub(crate) fn push_decision(&self, decision: BufferDecision) {
        push(&mut self.decisions.lock(), decision);
    }

    /// Adds a decision about streams.
    pub(crate) fn push_stream_decision(&self, decision: auto::TransferDecision) {
        push(&mut self.stream_decisions.lock(), decision);
    }

    /// See
    /// [`TransferControl::take_stream_decisions`](crate::job::TransferControl::take_stream_decisions).
    pub(crate) fn take_stream_decisions(&self) -> Vec<auto::TransferDecision> {
        std::mem::take(&mut *self.stream_decisions.lock()).into()
    }

    /// Sets what limits the sender now.
    pub(crate) fn set_limiter(&self, limiter: Limiter) {
        *self.limiter.lock() = Some(limiter);
    }

    /// See [`TransferControl::limiter`](crate::job::TransferControl::limiter).
    pub(crate) fn limiter(&self) -> Option<Limiter> {
        *self.limiter.lock()
    }

    /// See [`TransferControl::take_decisions`](crate::job::TransferControl::take_decisions).
    pub(crate) fn take_decisions(&self) -> Vec<BufferDecision> {
        std::mem::take(&mut *self.decisions.lock()).into()
    }
}

/// Appends a decision. Drops the oldest at the bound, because readers want the present state.
fn push<T>(decisions: &mut VecDeque<T>, decision: T) {
    if decisions.len() == MAX_DECISIONS {
        decisions.pop_front();
    }
    decisions.push_back(decision);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn decisions_are_bounded_and_the_oldest_are_dropped() {
        let notices = TuningNotices::default();
        for stream in 0..10_000 {
            notices.push_decision(BufferDecision {
                stream,
                at: Duration::ZERO,
                setting: None,
                limiter: Limiter::Unknown,
                reason: String::new(),
                measured: None,
            });
        }
        let kept = notices.take_decisions();
        assert_eq!(kept.len(), MAX_DECISIONS);
        assert_eq!(kept.last().unwrap().stream, 9_999);
        assert!(notices.take_decisions().is_empty());
    }

    #[test]
    fn a_size_announced_in_an_earlier_transfer_is_forgotten() {
        let notices = TuningNotices::default();
        let wake_event = Arc::new(WakeEvent::new().unwrap());
        notices.on_transfer_start(&wake_event);
        notices.follow_peer_size(1 << 20);
        notices.on_transfer_end();
        assert_eq!(notices.peer_size(), None);
    }

    #[test]
    fn a_size_announced_before_the_transfer_starts_here_is_kept() {
        let notices = TuningNotices::default();
        notices.follow_peer_size(2 << 20);
        notices.on_transfer_start(&Arc::new(WakeEvent::new().unwrap()));
        assert_eq!(notices.peer_size(), Some(2 << 20));
    }

    #[test]
    fn the_host_limit_of_an_earlier_transfer_is_cleared() {
        let notices = TuningNotices::default();
        let host_limit = HostBound {
            limiter: Limiter::ReceiveWindow,
            max_in_flight: 1 << 20,
            stream_bps: 1_000_000,
        };
        notices.set_host_limit(Some(host_limit));
        assert_eq!(notices.host_limit(), Some(host_limit));
        notices.on_transfer_start(&Arc::new(WakeEvent::new().unwrap()));
        assert_eq!(notices.host_limit(), None);
    }

    #[test]
    fn a_size_is_reported_only_to_a_registered_callback() {
        let notices = TuningNotices::default();
        notices.report_resize(7);
        let reported = Arc::new(AtomicU64::new(0));
        let reported_size = Arc::clone(&reported);
        notices.on_resize(move |bytes| reported_size.store(bytes, Ordering::SeqCst));
        notices.report_resize(8);
        assert_eq!(reported.load(Ordering::SeqCst), 8);
    }
}
