//! Notices between the sizing thread of a transfer and its [`Control`](crate::job::Control).

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use tune::limiter::Limiter;
use tune::sizing::Decision;
use tune::sizing::auto::Bound;
use tune::streams::auto;

use crate::lock::locked;
use crate::os::wake::Wake;

/// Decisions that wait to be read; older ones are dropped.
const MOST_DECISIONS: usize = 4096;

/// Part of [`Control`](crate::job::Control).
#[derive(Debug, Default)]
pub(crate) struct Board {
    decisions: Mutex<VecDeque<Decision>>,
    /// About streams, congestion control and pace.
    stream_decisions: Mutex<VecDeque<auto::Decision>>,
    /// Limiter of the sending now.
    limiter: Mutex<Option<Limiter>>,
    listener: Mutex<Listener>,
    /// The size that the other end told, bytes; 0: none yet.
    followed: AtomicU64,
    /// The limit of this host that holds a stream back.
    bound: Mutex<Option<Bound>>,
    bell: Mutex<Weak<Wake>>,
}

/// Who is told of this end's sizes.
#[derive(Default)]
struct Listener(Option<Arc<dyn Fn(u64) + Send + Sync>>);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.0.is_some() { "Some" } else { "None" };
        f.debug_tuple(name).finish()
    }
}

impl Board {
    /// A transfer begins, whose sizing thread is woken by `bell`.
    pub(crate) fn begin(&self, bell: &Arc<Wake>) {
        *locked(&self.bound) = None;
        *locked(&self.limiter) = None;
        *locked(&self.bell) = Arc::downgrade(bell);
    }

    /// The transfer has ended, and what the other end told for it is over. (What it tells of the
    /// next one may come before that begins here.)
    pub(crate) fn end(&self) {
        self.followed.store(0, Ordering::SeqCst);
    }

    /// Wakes the sizing thread: a stream joined, or there is something to follow.
    pub(crate) fn ring(&self) {
        if let Some(bell) = locked(&self.bell).upgrade() {
            bell.ring();
        }
    }

    /// See [`Control::on_resize`](crate::job::Control::on_resize).
    pub(crate) fn listen(&self, tell: impl Fn(u64) + Send + Sync + 'static) {
        locked(&self.listener).0 = Some(Arc::new(tell));
    }

    /// This end's buffers have this size now, bytes.
    pub(crate) fn tell(&self, bytes: u64) {
        // The listener may take its time; nobody has to wait for it.
        let listener = locked(&self.listener).0.clone();
        if let Some(tell) = listener {
            tell(bytes);
        }
    }

    /// See [`Control::follow`](crate::job::Control::follow).
    pub(crate) fn follow(&self, bytes: u64) {
        self.followed.store(bytes, Ordering::SeqCst);
        self.ring();
    }

    /// The other end's size, bytes.
    pub(crate) fn followed(&self) -> Option<u64> {
        Some(self.followed.load(Ordering::SeqCst)).filter(|bytes| *bytes > 0)
    }

    /// Notes the limit that holds a stream back now; of several streams, that of the one whose path gives most.
    pub(crate) fn note_bound(&self, bound: Option<Bound>) {
        *locked(&self.bound) = bound;
    }

    /// See [`Control::bound`](crate::job::Control::bound).
    pub(crate) fn bound(&self) -> Option<Bound> {
        *locked(&self.bound)
    }

    /// Notes a decision.
    pub(crate) fn note(&self, decision: Decision) {
        push(&mut locked(&self.decisions), decision);
    }

    /// Notes a decision about streams.
    pub(crate) fn note_streams(&self, decision: auto::Decision) {
        push(&mut locked(&self.stream_decisions), decision);
    }

    /// See [`Control::stream_decisions`](crate::job::Control::stream_decisions).
    pub(crate) fn take_stream_decisions(&self) -> Vec<auto::Decision> {
        std::mem::take(&mut *locked(&self.stream_decisions)).into()
    }

    /// Notes the limiter of the sending now.
    pub(crate) fn note_limiter(&self, limiter: Limiter) {
        *locked(&self.limiter) = Some(limiter);
    }

    /// See [`Control::limiter`](crate::job::Control::limiter).
    pub(crate) fn limiter(&self) -> Option<Limiter> {
        *locked(&self.limiter)
    }

    /// See [`Control::decisions`](crate::job::Control::decisions).
    pub(crate) fn take_decisions(&self) -> Vec<Decision> {
        std::mem::take(&mut *locked(&self.decisions)).into()
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
        let board = Board::default();
        for stream in 0..10_000 {
            board.note(Decision {
                stream,
                at: Duration::ZERO,
                change: None,
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
        let board = Board::default();
        let bell = Arc::new(Wake::new().unwrap());
        board.begin(&bell);
        board.follow(1 << 20);
        board.end();
        assert_eq!(board.followed(), None);
    }

    #[test]
    fn what_was_told_before_this_end_begins_is_followed() {
        let board = Board::default();
        board.follow(2 << 20);
        board.begin(&Arc::new(Wake::new().unwrap()));
        assert_eq!(board.followed(), Some(2 << 20));
    }

    #[test]
    fn a_limit_of_an_earlier_transfer_holds_no_longer() {
        let board = Board::default();
        let bound = Bound {
            limiter: Limiter::ReceiveWindow,
            in_flight: 1 << 20,
            stream_bps: 1_000_000,
        };
        board.note_bound(Some(bound));
        assert_eq!(board.bound(), Some(bound));
        board.begin(&Arc::new(Wake::new().unwrap()));
        assert_eq!(board.bound(), None);
    }

    #[test]
    fn without_a_listener_nobody_is_told() {
        let board = Board::default();
        board.tell(7);
        let heard = Arc::new(AtomicU64::new(0));
        let ear = Arc::clone(&heard);
        board.listen(move |bytes| ear.store(bytes, Ordering::SeqCst));
        board.tell(8);
        assert_eq!(heard.load(Ordering::SeqCst), 8);
    }
}
