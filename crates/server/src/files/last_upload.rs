//! The file that a session has stored last, and whether it is still as that upload left it.
//!
//! A client that stores under an unfinished name and then renames takes the file for what it sent. If
//! another session stored to the name in between, the file is another one's.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use data::store::root::Identity;

/// Shared by all clones of one session's files.
#[derive(Debug, Clone, Default)]
pub(super) struct LastUpload(Arc<Mutex<Option<Identity>>>);

impl LastUpload {
    /// A store that had the file to itself ended and left it in this state.
    pub(super) fn note(&self, state: Identity) {
        *self.state() = Some(state);
    }

    /// This session is about to change the content of a file.
    pub(super) fn forget(&self, inode: (u64, u64)) {
        let mut state = self.state();
        if state.is_some_and(|state| state.inode == inode) {
            *state = None;
        }
    }

    /// This session changed the name, times or rights of a file.
    pub(super) fn carry(&self, before: &Identity, after: Identity) {
        let mut state = self.state();
        if *state == Some(*before) {
            *state = Some(after);
        }
    }

    /// Whether `now` is of the file that was stored, and somebody else has changed it since.
    pub(super) fn is_overtaken(&self, now: &Identity) -> bool {
        self.state()
            .is_some_and(|state| state.inode == now.inode && state != *now)
    }

    fn state(&self) -> MutexGuard<'_, Option<Identity>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
