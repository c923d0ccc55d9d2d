//! The process-wide bound on stream threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::DataError;

/// Counts the streams that may be at work at once over all channels that share it.
///
/// At the bound: a transfer that gets no permit at all fails with
/// [`DataError::TooManyStreams`]; one that gets fewer than it wants sends over fewer streams; a
/// receiver leaves further connections in the listener's backlog until one of its streams ends.
#[derive(Debug, Clone)]
pub struct StreamBudget {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limit: usize,
    used: AtomicUsize,
}

impl StreamBudget {
    /// At most `limit` streams at work.
    pub fn new(limit: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                limit,
                used: AtomicUsize::new(0),
            }),
        }
    }

    /// Streams at work now.
    pub fn used(&self) -> usize {
        self.shared.used.load(Ordering::Relaxed)
    }

    /// One permit, or [`DataError::TooManyStreams`].
    pub(crate) fn take(&self) -> Result<Permit, DataError> {
        let limit = self.shared.limit;
        self.shared
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                (used < limit).then_some(used + 1)
            })
            .map(|_| Permit(Some(Arc::clone(&self.shared))))
            .map_err(|_| DataError::TooManyStreams { limit })
    }
}

/// The right of one stream to be at work; given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit(Option<Arc<Shared>>);

impl Permit {
    /// For channels without a budget.
    pub(crate) fn unlimited() -> Self {
        Self(None)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.used.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_counted_and_given_back() {
        let budget = StreamBudget::new(2);
        let first = budget.take().unwrap();
        let _second = budget.clone().take().unwrap();
        assert!(matches!(
            budget.take(),
            Err(DataError::TooManyStreams { limit: 2 })
        ));
        drop(first);
        assert_eq!(budget.used(), 1);
        assert!(budget.take().is_ok());
    }
}
