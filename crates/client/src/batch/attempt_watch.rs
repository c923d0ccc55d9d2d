//! Watches one attempt while it runs: the journal is kept, and dropping stops everything.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::job::TransferControl;
use tokio::task::JoinHandle;

use super::every;
use crate::journal::{Journal, StoredRanges};

/// How often the safe ranges are looked at; the journal itself decides when it writes.
const TICK: Duration = Duration::from_millis(50);

/// A running attempt. Dropped before its end (the user gave up, another part failed), it cancels
/// the transfer and leaves the journal in its last true state.
pub(super) struct AttemptWatch<'a, S: Fn() -> StoredRanges> {
    control: Arc<TransferControl>,
    journal: Option<&'a mut Journal>,
    state: S,
    /// The journal on its way to disk.
    syncing: Option<JoinHandle<()>>,
    /// An empty set is worth keeping once bytes move: the size of the partial file tells the rest.
    keep_empty: bool,
    /// The attempt ended well.
    whole: bool,
}

impl<'a, S: Fn() -> StoredRanges> AttemptWatch<'a, S> {
    /// `state` tells all that is safe at the destination.
    pub(super) fn new(
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
            whole: false,
        }
    }

    /// Runs the attempt to its end.
    pub(super) async fn run<T, E>(
        mut self,
        attempt: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let mut timer = every(TICK);
        tokio::pin!(attempt);
        loop {
            tokio::select! {
                biased;
                output = &mut attempt => {
                    self.whole = output.is_ok();
                    return output;
                }
                _ = timer.tick() => self.keep(),
            }
        }
    }

    fn keep(&mut self) {
        let Some(journal) = &mut self.journal else {
            return;
        };
        let state = (self.state)();
        if (!state.safe.is_empty() || self.keep_empty && self.control.bytes() > 0)
            && let Err(e) = journal.write_if_due(&state, Instant::now())
        {
            tracing::debug!("journal: {e}");
        }
        let busy = self
            .syncing
            .as_ref()
            .is_some_and(|task| !task.is_finished());
        if !busy && let Some(unsynced) = journal.take_unsynced() {
            self.syncing = Some(tokio::task::spawn_blocking(|| unsynced.sync()));
        }
    }
}

impl<S: Fn() -> StoredRanges> Drop for AttemptWatch<'_, S> {
    fn drop(&mut self) {
        self.control.cancel();
        let Some(journal) = &mut self.journal else {
            return;
        };
        // A file that was whole at once needs no journal while it is verified.
        if self.whole && !journal.has_written() {
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
