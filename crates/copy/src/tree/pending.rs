//! The directories of a tree that are still to be listed, shared by those who list them.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use proto::listing::ListedEntry;
use tokio::sync::Notify;

use super::links::DirectoryChain;
use ftp::Failure;

/// A directory that is still to be listed, completely or from where a listing broke off.
#[derive(Debug, Clone, Default)]
pub(super) struct PendingDirectory {
    /// Path relative to the top.
    pub(super) path: Vec<u8>,
    pub(super) depth: usize,
    pub(super) ancestors: Arc<DirectoryChain>,
    /// Hashes of the names that were listed. Some servers list a name twice; it must not be copied twice.
    pub(super) seen: HashSet<u64>,
    /// Links that will be followed after the listing.
    pub(super) links: Vec<ListedEntry>,
    /// Attempts that were refused, although the session was not lost.
    pub(super) refusals: u32,
    /// Files whose times will be asked for after the listing.
    pub(super) timeless: Vec<ListedEntry>,
}

impl PendingDirectory {
    /// The top of a tree. `id` identifies it, if known.
    pub(super) fn root(id: Option<String>) -> Self {
        Self {
            ancestors: DirectoryChain::root(id),
            ..Self::default()
        }
    }
}

/// The directories of a walk. The one found last is listed first, so that few wait.
#[derive(Debug, Default)]
pub(super) struct PendingDirectories {
    state: Mutex<PendingState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct PendingState {
    waiting: Vec<PendingDirectory>,
    /// Directories that are being listed.
    active: usize,
    failed: Option<Failure>,
}

impl PendingDirectories {
    /// Adds directories that were found.
    pub(super) fn add(&self, found: Vec<PendingDirectory>) {
        if !found.is_empty() {
            self.state.lock().waiting.extend(found);
            self.changed.notify_waiters();
        }
    }

    /// The next directory, as soon as there is one. [`PendingDirectories::listed`] or
    /// [`PendingDirectories::put_back`] follows. `Ok(None)`: all are listed.
    ///
    /// # Errors
    /// Why the walk ended ([`PendingDirectories::fail`]).
    pub(super) async fn next(&self) -> Result<Option<PendingDirectory>, Failure> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the look, so that no change is missed.
            changed.as_mut().enable();
            {
                let mut state = self.state.lock();
                if let Some(failure) = &state.failed {
                    return Err(failure.clone());
                }
                if let Some(directory) = state.waiting.pop() {
                    state.active += 1;
                    return Ok(Some(directory));
                }
                if state.active == 0 {
                    return Ok(None);
                }
            }
            changed.await;
        }
    }

    /// A directory that [`PendingDirectories::next`] returned is listed.
    pub(super) fn listed(&self) {
        let mut state = self.state.lock();
        state.active = state.active.saturating_sub(1);
        drop(state);
        self.changed.notify_waiters();
    }

    /// The listing of a directory broke off: somebody else goes on with it.
    pub(super) fn put_back(&self, directory: PendingDirectory) {
        let mut state = self.state.lock();
        state.waiting.push(directory);
        state.active = state.active.saturating_sub(1);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Ends the walk.
    pub(super) fn fail(&self, failure: Failure) {
        self.state.lock().failed.get_or_insert(failure);
        self.changed.notify_waiters();
    }

    /// Waits until a directory waits that nobody lists, or the walk is over.
    pub(super) async fn crowded(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if !self.state.lock().waiting.is_empty() {
                return;
            }
            changed.await;
        }
    }
}
