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
    limit: AtomicUsize,
    used: AtomicUsize,
    /// A permit of a share is one of the whole too.
    whole: Option<Arc<Shared>>,
}

impl StreamBudget {
    /// At most `limit` streams at work.
    pub fn new(limit: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                limit: AtomicUsize::new(limit),
                used: AtomicUsize::new(0),
                whole: None,
            }),
        }
    }

    /// A share of this budget: at most `limit` of its streams, counted in both.
    #[must_use]
    pub fn share(&self, limit: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                limit: AtomicUsize::new(limit),
                used: AtomicUsize::new(0),
                whole: Some(Arc::clone(&self.shared)),
            }),
        }
    }

    /// Changes the bound; streams at work above a smaller one go on.
    pub fn set_limit(&self, limit: usize) {
        self.shared.limit.store(limit, Ordering::Relaxed);
    }

    /// Streams at work now.
    pub fn used(&self) -> usize {
        self.shared.used.load(Ordering::Relaxed)
    }

    /// One permit, or [`DataError::TooManyStreams`].
    pub(crate) fn take(&self) -> Result<Permit, DataError> {
        let mut permit = Permit::unlimited();
        let mut next = Some(&self.shared);
        while let Some(shared) = next {
            let limit = shared.limit.load(Ordering::Relaxed);
            let counted = |used| (used < limit).then_some(used + 1);
            shared
                .used
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted)
                // What was counted before is given back by the drop of `permit`.
                .map_err(|_| DataError::TooManyStreams { limit })?;
            permit = Permit {
                _counted: Some(Counted {
                    shared: Arc::clone(shared),
                    _before: Box::new(permit),
                }),
            };
            next = shared.whole.as_ref();
        }
        Ok(permit)
    }
}

/// The right of one stream to be at work; given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    _counted: Option<Counted>,
}

/// One stream counted, and where it was counted before that.
#[derive(Debug)]
struct Counted {
    shared: Arc<Shared>,
    _before: Box<Permit>,
}

impl Permit {
    /// For channels without a budget.
    pub(crate) fn unlimited() -> Self {
        Self { _counted: None }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.shared.used.fetch_sub(1, Ordering::Relaxed);
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

    #[test]
    fn a_share_is_bounded_by_itself_and_by_the_whole() {
        let whole = StreamBudget::new(3);
        let (first, second) = (whole.share(2), whole.share(2));
        let held = [first.take().unwrap(), first.take().unwrap()];
        assert!(matches!(
            first.take(),
            Err(DataError::TooManyStreams { limit: 2 })
        ));
        let other = second.take().unwrap();
        assert!(matches!(
            second.take(),
            Err(DataError::TooManyStreams { limit: 3 })
        ));
        assert_eq!((first.used(), second.used(), whole.used()), (2, 1, 3));
        drop((held, other));
        assert_eq!((first.used(), second.used(), whole.used()), (0, 0, 0));
        whole.set_limit(1);
        let _last = second.take().unwrap();
        assert!(first.take().is_err());
        assert_eq!(first.used(), 0, "what the share counted is given back");
    }
}
