//! Watches a running attempt: writes the journal, and cancels the transfer when dropped.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::job::TransferControl;
use tokio::task::JoinHandle;

use crate::batch::periodic_timer;
use crate::local::journal::{Journal, StoredRanges};

/// Interval at which the safe ranges are read. The journal itself limits how often it is written.
const TICK: Duration = Duration::from_millis(50);

/// A running attempt. Dropping it before its end (the user interrupted, another part failed)
/// cancels the transfer and leaves the journal with the last safe ranges.
pub(crate) struct AttemptWatch<'a, S: Fn() -> StoredRanges> {
    control: Arc<TransferControl>,
    journal: Option<&'a mut Journal>,
    state: S,
    /// The task that syncs the journal to disk.
    syncing: Option<JoinHandle<()>>,
    /// Write the journal even without safe ranges once bytes move, because the size of the partial
    /// file shows the rest.
    keep_empty: bool,
    /// The attempt succeeded.
    succeeded: bool,
}

impl<'a, S: Fn() -> StoredRanges> AttemptWatch<'a, S> {
    /// `state` returns all ranges that are safe at the destination.
    pub(crate) fn new(
        control: Arc<TransferControl>,
        journal: Option<&'a mut Journal>,
        keep_empty: bool,
        state: S,
    ) -> Self {
        Self {
            control,
            journal,
            state,
            syncing: None,
            keep_empty,
            succeeded: false,
        }
    }

    /// Runs the attempt to its end.
    pub(crate) async fn run<T, E>(
        mut self,
        attempt: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let mut timer = periodic_timer(TICK);
        tokio::pin!(attempt);
        loop {
            tokio::select! {
                biased;
                output = &mut attempt => {
                    self.succeeded = output.is_ok();
                    return output;
                }
                _ = timer.tick() => self.update_journal(),
            }
        }
    }

    fn update_journal(&mut self) {
        let Some(journal) = &mut self.journal else {
            return;
        };
        let state = (self.state)();
        if (!state.safe.is_empty() || self.keep_empty && self.control.bytes() > 0)
            && let Err(e) = journal.write_if_due(&state, Instant::now())
        {
            tracing::debug!("journal: {e}");
        }
        let is_syncing = self
            .syncing
            .as_ref()
            .is_some_and(|task| !task.is_finished());
        // One sync at a time: a slow disk must not queue them up.
        if !is_syncing && let Some(unsynced) = journal.take_unsynced() {
            self.syncing = Some(tokio::task::spawn_blocking(|| unsynced.sync()));
        }
    }
}

impl<S: Fn() -> StoredRanges> Drop for AttemptWatch<'_, S> {
    fn drop(&mut self) {
        // When dropped early, the data threads must not write after the lock is released.
        self.control.cancel();
        let Some(journal) = &mut self.journal else {
            return;
        };
        // A file that was complete before the journal was first written needs none during its
        // verification.
        if self.succeeded && !journal.has_written() {
            return;
        }
        let state = (self.state)();
        if (!state.safe.is_empty() || self.keep_empty && self.control.bytes() > 0)
            && let Err(e) = journal.write(&state)
        {
            tracing::debug!("journal: {e}");
        }
    }
}
