//! Notices a store that does not answer: a file system whose server is away holds a thread for as long as it likes.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The operations on the store that a transfer's streams have begun and not ended.
#[derive(Debug, Default)]
pub(crate) struct StoreWatch(Mutex<PendingOperations>);

#[derive(Debug, Default)]
struct PendingOperations {
    count: usize,
    /// When the first of them began, or one ended after that.
    since: Option<Instant>,
}

impl StoreWatch {
    /// Notes an operation until the guard is dropped.
    pub(crate) fn begin(&self) -> PendingOperation<'_> {
        let mut pending = self.0.lock();
        if pending.count == 0 {
            pending.since = Some(Instant::now());
        }
        pending.count += 1;
        PendingOperation(self)
    }

    /// For how long operations have been pending without the end of any.
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        let pending = self.0.lock();
        let since = pending.since.filter(|_| pending.count > 0);
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

/// See [`StoreWatch::begin`].
pub(crate) struct PendingOperation<'w>(&'w StoreWatch);

impl Drop for PendingOperation<'_> {
    fn drop(&mut self) {
        let mut pending = self.0.0.lock();
        pending.count -= 1;
        pending.since = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_counts_from_the_last_end_while_operations_are_pending() {
        let watch = StoreWatch::default();
        let later = || Instant::now() + Duration::from_secs(60);
        assert_eq!(watch.wait(later()), Duration::ZERO);
        let one = watch.begin();
        let begun = later();
        assert!(watch.wait(begun) >= Duration::from_secs(59));
        let other = watch.begin();
        drop(one);
        assert!(watch.wait(begun) < Duration::from_secs(60));
        assert!(watch.wait(later()) >= Duration::from_secs(59));
        drop(other);
        assert_eq!(watch.wait(later()), Duration::ZERO);
    }
}
