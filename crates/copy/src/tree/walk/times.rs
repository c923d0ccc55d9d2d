//! Times of files that a listing does not show exactly.

use std::sync::atomic::Ordering;

use proto::listing::{EntryKind, ListedEntry};

use super::TreeWalk;
use crate::storage::contract::Storage;
use crate::storage::entry_names::join_path;
use crate::tree::pending::PendingDirectory;
use ftp::Failure;
use ftp::answers::SourceFacts;

/// Most files whose times are asked for before they are visited.
const MAX_QUESTIONS: usize = 1000;

impl TreeWalk {
    /// Whether the time of an entry is to be asked for.
    pub(super) fn lacks_time(&self, directory: &[u8], entry: &ListedEntry) -> bool {
        let is_timeless_file =
            entry.kind == EntryKind::File && !entry.is_symlink() && entry.modified.is_none();
        let facts = SourceFacts::from_entry(entry);
        is_timeless_file && self.visitor.needs_time(directory, &entry.name, facts)
    }

    /// Asks for the times of the files of a directory that was listed, and visits them.
    pub(super) async fn ask_times(
        &self,
        storage: &mut dyn Storage,
        directory: &mut PendingDirectory,
    ) -> Result<(), Failure> {
        while !directory.timeless.is_empty() {
            // In the order of the listing.
            let count = directory.timeless.len().min(MAX_QUESTIONS);
            let asked = &directory.timeless[..count];
            let top = join_path(&self.top, &directory.path);
            let paths: Vec<_> = asked.iter().map(|e| join_path(&top, &e.name)).collect();
            let answered = storage
                .modification_times(&paths, self.may_go_ahead())
                .await;
            if answered.is_err() {
                // Perhaps a server that discards commands ahead: it gets none from now on.
                self.may_go_ahead.store(false, Ordering::Relaxed);
            }
            let times = answered?;
            let mut found = Vec::new();
            let asked: Vec<ListedEntry> = directory.timeless.drain(..count).collect();
            for (mut entry, time) in asked.into_iter().zip(times) {
                entry.modified = time;
                self.visit_entry(directory, &entry, &mut found)?;
            }
        }
        Ok(())
    }
}
