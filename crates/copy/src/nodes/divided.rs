//! A large file whose parts are moved by several nodes.

use std::sync::Arc;

use data::job::TransferControl;
use parking_lot::Mutex;
use proto::ranges::RangeSet;
use tokio::sync::Notify;

use crate::plan::PartInPlace;
use ftp::Failure;

/// A file that several nodes move.
pub(super) struct DividedFile {
    control: Arc<TransferControl>,
    stored: Arc<Mutex<RangeSet>>,
    state: Mutex<DividedState>,
    changed: Notify,
}

struct DividedState {
    /// Parts that have not ended.
    left: usize,
    failure: Option<Failure>,
}

impl DividedFile {
    /// A file of so many parts. Those that are stored are counted, and added to `stored`.
    pub(super) fn new(
        control: Arc<TransferControl>,
        stored: Arc<Mutex<RangeSet>>,
        parts: usize,
    ) -> Self {
        Self {
            control,
            stored,
            state: Mutex::new(DividedState {
                left: parts,
                failure: None,
            }),
            changed: Notify::new(),
        }
    }

    /// A part is stored, verified and on disk.
    pub(super) fn part_done(&self, part: PartInPlace) {
        let mut stored = RangeSet::new();
        stored.insert(part.offset, part.offset.saturating_add(part.length));
        self.control.note_elsewhere(part.length, &stored);
        self.stored.lock().extend(&stored);
        self.parts_ended(1);
    }

    /// A part cannot be moved.
    pub(super) fn part_failed(&self, failure: Failure) {
        self.state.lock().failure.get_or_insert(failure);
        self.parts_ended(1);
    }

    fn parts_ended(&self, count: usize) {
        self.state.lock().left -= count;
        self.changed.notify_waiters();
    }

    /// Returns when all parts have ended. After a failure, `take_back` takes those out that no node has begun, and returns their
    /// number: nobody writes to the file any more when those that were begun have ended, too.
    ///
    /// # Errors
    /// That of the first part that failed.
    pub(super) async fn ended(&self, take_back: impl Fn() -> usize) -> Result<(), Failure> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the look, so that no change is missed.
            changed.as_mut().enable();
            if self.state.lock().failure.is_some() {
                self.parts_ended(take_back());
            }
            let (left, failure) = {
                let state = self.state.lock();
                (state.left, state.failure.clone())
            };
            if left == 0 {
                return failure.map_or(Ok(()), Err);
            }
            changed.await;
        }
    }
}
