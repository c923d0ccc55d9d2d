//! Files and directories that the destination has and the source does not.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use super::index::{DestinationIndex, unreadable};
use crate::local::partial::is_unfinished;
use crate::options::TreeOptions;
use crate::options::selection::SelectionVerdict;
use crate::plan::{CopyPlan, NextEntry, PlanReader, PlannedEntry};
use crate::storage::entry_names::parents;
use ftp::Failure;
use ftp::answers::SourceFacts;
use ftp::location::Location;

/// A path to delete.
#[derive(Debug)]
pub(crate) struct Extra {
    pub(crate) at: Location,
    /// As the listing showed it. Anything else is not deleted with what is in it.
    pub(crate) is_directory: bool,
}

/// Goes through what is to be deleted. A directory stands for everything below it.
pub(crate) struct Extras<'a> {
    options: &'a TreeOptions,
    there: &'a DestinationIndex,
    reader: PlanReader,
    /// Bytes of a path before its part that is relative to the top.
    prefix: usize,
    /// Hashes of the directories that are deleted.
    removed: HashSet<u64>,
    hasher: RandomState,
}

impl<'a> Extras<'a> {
    /// The extra paths of an index.
    pub(crate) fn of(options: &'a TreeOptions, there: &'a DestinationIndex) -> Self {
        let paths: &CopyPlan = there.paths();
        paths.end(true);
        Self {
            options,
            there,
            reader: PlanReader::of(paths),
            prefix: there.prefix(),
            removed: HashSet::new(),
            hasher: RandomState::new(),
        }
    }

    /// The next path to delete.
    ///
    /// # Errors
    /// `Local`: the list cannot be read.
    pub(crate) fn next(&mut self) -> Result<Option<Extra>, Failure> {
        loop {
            let next = self.reader.next(self.there.paths());
            let next = next.map_err(|error| unreadable(&error))?;
            let (at, is_directory, is_extra) = match next {
                NextEntry::Entry(PlannedEntry::Directory { at, .. }) => {
                    let is_extra = self.is_extra_directory(self.relative(&at));
                    if is_extra {
                        let hash = self.hasher.hash_one(self.relative(&at));
                        self.removed.insert(hash);
                    }
                    (at, true, is_extra)
                }
                NextEntry::Entry(PlannedEntry::File(item)) => {
                    let is_extra = self.is_extra_file(self.relative(&item.destination), item.facts);
                    (item.destination, false, is_extra)
                }
                NextEntry::Entry(PlannedEntry::Link(link)) => {
                    let facts = SourceFacts::default();
                    let is_extra = self.is_extra_file(self.relative(&link.path), facts);
                    (link.path, false, is_extra)
                }
                // The index has neither.
                NextEntry::Entry(PlannedEntry::HardLink(_) | PlannedEntry::Unlisted { .. }) => {
                    continue;
                }
                NextEntry::Pending | NextEntry::End => return Ok(None),
            };
            if is_extra {
                return Ok(Some(Extra { at, is_directory }));
            }
        }
    }

    fn relative<'p>(&self, at: &'p Location) -> &'p [u8] {
        at.path().get(self.prefix..).unwrap_or_default()
    }

    fn is_extra_directory(&self, path: &[u8]) -> bool {
        // With a selection, a directory may hold what is not selected.
        let whole_directories =
            self.options.selection.selects_all() && self.options.files_from.is_none();
        // The rest of one with an unfinished file is deleted path by path.
        let is_kept = self.there.is_kept(path) || self.there.holds_unfinished(path);
        whole_directories && !self.is_gone(path) && !is_kept
    }

    fn is_extra_file(&self, path: &[u8], facts: SourceFacts) -> bool {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        // Another copy may be writing it.
        let is_kept = self.there.is_kept(path) || is_unfinished(name);
        // A file that may be selected or not stays.
        let verdict = self.options.selection.judge(path, facts);
        let is_selected = verdict == SelectionVerdict::Selected && self.is_listed(path);
        !is_kept && !self.is_gone(path) && is_selected
    }

    /// Whether a directory above is deleted.
    fn is_gone(&self, path: &[u8]) -> bool {
        parents(path).any(|parent| self.removed.contains(&self.hasher.hash_one(parent)))
    }

    /// Whether `--files-from` permits to touch a path.
    fn is_listed(&self, path: &[u8]) -> bool {
        let listed = self.options.files_from.as_ref();
        listed.is_none_or(|listed| listed.iter().any(|wanted| wanted == path))
    }
}
