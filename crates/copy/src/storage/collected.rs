//! The entries of a directory in memory.

use std::ops::ControlFlow;

use proto::listing::ListedEntry;

use super::contract::Storage;
use crate::storage::entry_names::check_name;
use ftp::Failure;
use ftp::answers::{SymlinkCheckScope, SymlinkCheckedEntry};
use ftp::session::display_path;

/// Most entries of a directory that is kept in memory.
const MAX_ENTRIES: usize = 2_000_000;

/// The entries that a listing showed.
#[derive(Debug)]
pub(crate) struct CollectedEntries {
    /// In the order of the listing. No name appears twice.
    pub(crate) entries: Vec<SymlinkCheckedEntry>,
    /// Why there may be more entries.
    pub(crate) incomplete: Option<Failure>,
}

impl CollectedEntries {
    /// Lists a directory.
    ///
    /// # Errors
    /// As [`Storage::list`], if the session is lost or nothing was listed. `Protocol` for more than two million entries.
    pub(crate) async fn of(
        storage: &mut dyn Storage,
        path: &[u8],
        scope: SymlinkCheckScope,
    ) -> Result<Self, Failure> {
        let mut entries = Vec::new();
        let mut collect = |entry| {
            entries.push(entry);
            // One more than the limit, so that exceeding it is noticed.
            match entries.len() > MAX_ENTRIES {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let listed = storage.list(path, scope, &mut collect).await;
        if entries.len() > MAX_ENTRIES {
            let path = display_path(path);
            let message = format!("{path} has more than {MAX_ENTRIES} entries");
            return Err(Failure::protocol(message));
        }
        match listed {
            Err(failure) if failure.may_retry() || entries.is_empty() => Err(failure),
            listed => Ok(Self {
                entries,
                incomplete: listed.err(),
            }),
        }
    }

    /// The entries.
    ///
    /// # Errors
    /// There may be more.
    pub(crate) fn complete(self) -> Result<Vec<SymlinkCheckedEntry>, Failure> {
        match self.incomplete {
            Some(failure) => Err(failure),
            None => Ok(self.entries),
        }
    }

    /// The entries whose names can be used in paths, and why there may be more. Names in a listing are untrusted.
    pub(crate) fn into_usable_parts(self) -> (Vec<ListedEntry>, Option<Failure>) {
        let mut incomplete = self.incomplete;
        let mut entries: Vec<_> = self.entries.into_iter().map(|c| c.entry).collect();
        entries.retain(|entry| match check_name(&entry.name) {
            Ok(()) => true,
            Err(refused) => {
                incomplete.get_or_insert(refused);
                false
            }
        });
        (entries, incomplete)
    }
}
