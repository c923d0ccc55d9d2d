//! Ranges of a transfer that are handed in while it runs: several senders of one file divide it as they go, so that a slow
//! one delays nobody.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use proto::ranges::RangeSet;

use crate::cursor::RemainingRanges;
use crate::store::Source;

/// How often a stream that waits for ranges looks whether it must stop.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The ranges that a sender gets after those of its plan. Whoever hands them in is told when they run low.
pub struct RangeSupply {
    state: Mutex<SuppliedRanges>,
    /// The ranges that the sender has not begun to send.
    left: OnceLock<Arc<Mutex<RemainingRanges>>>,
    /// The source of all of them.
    source: OnceLock<Arc<dyn Source>>,
    changed: Condvar,
    /// Something was handed in that no stream has taken over yet.
    has_news: AtomicBool,
    /// With fewer bytes left, more are asked for.
    low: AtomicU64,
    ask: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Default)]
struct SuppliedRanges {
    handed_in: RemainingRanges,
    has_ended: bool,
    has_asked: bool,
}

impl std::fmt::Debug for RangeSupply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RangeSupply")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl RangeSupply {
    /// A supply that calls `ask` when it runs low, at most once until more is handed in. `ask` must not wait.
    pub fn new(ask: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            state: Mutex::default(),
            left: OnceLock::new(),
            source: OnceLock::new(),
            changed: Condvar::new(),
            has_news: AtomicBool::new(false),
            low: AtomicU64::new(u64::MAX),
            ask: Box::new(ask),
        }
    }

    /// Hands in ranges, in file offsets, that nobody else sends.
    pub fn hand_in(&self, ranges: &RangeSet) {
        if let Some(source) = self.source.get() {
            source.will_read(ranges);
        }
        let mut state = self.state.lock();
        state.handed_in.append(ranges);
        state.has_asked = false;
        // The next ones are asked for while half of these is still to be sent.
        let low = state.handed_in.byte_count() / 2;
        self.low.store(low, Ordering::Relaxed);
        self.has_news.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Takes back at most `bytes` that the sender has not begun to send, those that it would send last. It asks for more when nothing is
    /// left.
    pub fn take_back(&self, bytes: u64) -> RangeSet {
        let mut state = self.state.lock();
        let mut taken = state.handed_in.take_last(bytes);
        if let Some(left) = self.left.get() {
            let room = bytes - taken.byte_count();
            taken.extend(&left.lock().take_last(room));
        }
        self.low.store(0, Ordering::Relaxed);
        drop(state);
        if let Some(source) = self.source.get() {
            source.will_not_read(&taken);
        }
        taken
    }

    /// The sender hands out `left`, and then what is handed in, all of `source`.
    pub(super) fn attach(&self, left: &Arc<Mutex<RemainingRanges>>, source: &Arc<dyn Source>) {
        let _ = self.left.set(Arc::clone(left));
        let _ = self.source.set(Arc::clone(source));
        source.will_read(&self.state.lock().handed_in.to_set());
    }

    /// No more ranges will be handed in.
    pub fn end(&self) {
        self.state.lock().has_ended = true;
        self.has_news.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Whether no more ranges will come.
    pub(crate) fn has_ended(&self) -> bool {
        self.state.lock().has_ended
    }

    /// Moves handed-in ranges to those that are left to send, and asks for more if these are few.
    pub(crate) fn refill(&self, left: &Mutex<RemainingRanges>) {
        if self.has_news.swap(false, Ordering::Acquire) {
            let new = std::mem::take(&mut self.state.lock().handed_in);
            left.lock().append_rest(new);
        }
        if left.lock().byte_count() <= self.low.load(Ordering::Relaxed) {
            let mut state = self.state.lock();
            let must_ask = !state.has_ended && !state.has_asked && state.handed_in.is_empty();
            state.has_asked |= must_ask;
            drop(state);
            if must_ask {
                (self.ask)();
            }
        }
    }

    /// Waits for further ranges while `go_on` holds; `false`: there will be none.
    pub(crate) fn wait(&self, go_on: impl Fn() -> bool) -> bool {
        let mut state = self.state.lock();
        while state.handed_in.is_empty() && !state.has_ended && go_on() {
            // Another stream may have taken over what was handed in.
            if self
                .changed
                .wait_for(&mut state, CHECK_INTERVAL)
                .timed_out()
            {
                return true;
            }
        }
        !(state.handed_in.is_empty() && state.has_ended)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::store::memory::MemorySource;

    fn ranges(start: u64, end: u64) -> RangeSet {
        let mut set = RangeSet::new();
        set.insert(start, end);
        set
    }

    #[test]
    fn more_is_asked_for_once_when_half_is_left() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let supply = RangeSupply::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let left = Mutex::new(RemainingRanges::default());
        let times = || asked.load(Ordering::Relaxed);
        supply.refill(&left);
        supply.refill(&left);
        assert_eq!(times(), 1);
        supply.hand_in(&ranges(0, 100));
        supply.refill(&left);
        assert_eq!((left.lock().byte_count(), times()), (100, 1));
        *left.lock() = RemainingRanges::default();
        left.lock().append(&ranges(50, 100));
        supply.refill(&left);
        assert_eq!(times(), 2);
        supply.end();
        supply.refill(&left);
        assert_eq!(times(), 2);
        assert!(!supply.wait(|| true));
    }

    #[test]
    fn ranges_that_were_not_begun_are_taken_back() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let supply = RangeSupply::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let left = Arc::new(Mutex::new(RemainingRanges::default()));
        let source: Arc<dyn Source> = Arc::new(MemorySource::new(Vec::new(), "nothing"));
        supply.attach(&left, &source);
        supply.hand_in(&ranges(0, 1 << 20));
        supply.refill(&left);
        supply.hand_in(&ranges(2 << 20, 3 << 20));
        let mut taken = ranges(512 << 10, 1 << 20);
        taken.extend(&ranges(2 << 20, 3 << 20));
        assert_eq!(supply.take_back(3 << 19), taken);
        // Half is left, of which there is more than the supply waits for now.
        supply.refill(&left);
        assert_eq!(
            (left.lock().byte_count(), asked.load(Ordering::Relaxed)),
            (512 << 10, 0)
        );
        assert_eq!(supply.take_back(u64::MAX), ranges(0, 512 << 10));
        supply.refill(&left);
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_stream_waits_for_ranges_until_it_must_stop() {
        let supply = Arc::new(RangeSupply::new(|| {}));
        let stopped = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                while supply.wait(|| !stopped.load(Ordering::Relaxed)) {
                    if supply.has_news.load(Ordering::Relaxed) || stopped.load(Ordering::Relaxed) {
                        return true;
                    }
                }
                false
            });
            supply.hand_in(&ranges(0, 1));
            assert!(waiting.join().unwrap());
        });
    }
}
