//! Compares the source with the destination, entry by entry.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::index::{DestinationIndex, EntryThere};
use crate::answers::SourceFacts;
use crate::batch::plan::{
    CopyPlan, HardLinkNames, NewEntry, PlanFiller, PlanTop, PlannedFile, SelectedEntries,
    join_location,
};
use crate::batch::{BatchContext, preserve};
use crate::partial::is_unfinished;
use crate::session::display_path;
use crate::tree::{TreeEntry, TreeVisitor, join_path};
use crate::{CopyFailure, Exit};

/// Adds the entries of the source that the destination lacks, or has otherwise, to a plan.
pub(super) struct Comparison {
    filler: Arc<PlanFiller>,
    there: Arc<DestinationIndex>,
    top: PlanTop,
    selected: Mutex<SelectedEntries>,
    names: HardLinkNames,
    /// Existing directories are in the plan, too: their times and permissions are set last.
    keeps_directories: bool,
    /// Files that are the same at both ends, if they are asked for.
    unchanged: Option<(CopyPlan, PlanTop)>,
    /// How files of equal size are compared.
    content: ContentComparison,
    has_files: AtomicBool,
    is_whole: AtomicBool,
}

/// How files of one size are compared.
enum ContentComparison {
    /// By time. `keeps_times`: the destination has the time of the source, not that of the copy.
    Time { keeps_times: bool },
    /// By checksum, later: here are the files.
    Checksum(Box<(CopyPlan, PlanTop)>),
}

impl Comparison {
    /// Compares with the index `there`, and adds to the plan of `filler` below `top`.
    pub(super) fn new(
        ctx: &Arc<BatchContext>,
        filler: &Arc<PlanFiller>,
        there: &Arc<DestinationIndex>,
        top: PlanTop,
    ) -> Self {
        Self {
            filler: Arc::clone(filler),
            there: Arc::clone(there),
            names: HardLinkNames::of(ctx, (&top.source, &top.destination)),
            top,
            selected: Mutex::new(SelectedEntries::of(&ctx.options)),
            keeps_directories: preserve::is_for_directories(&ctx.options),
            unchanged: None,
            content: ContentComparison::Time { keeps_times: true },
            has_files: AtomicBool::new(false),
            is_whole: AtomicBool::new(true),
        }
    }

    /// Files of equal size are compared by time.
    pub(super) fn by_time(mut self, keeps_times: bool) -> Self {
        self.content = ContentComparison::Time { keeps_times };
        self
    }

    /// Files of equal size are added to `undecided`.
    pub(super) fn by_checksum(mut self, undecided: CopyPlan) -> Self {
        let top = undecided.add_top(&self.top.source, &self.top.destination);
        self.content = ContentComparison::Checksum(Box::new((undecided, top)));
        self
    }

    /// Files that are the same are added to `unchanged`.
    pub(super) fn noting_unchanged(mut self, unchanged: CopyPlan) -> Self {
        let top = unchanged.add_top(&self.top.source, &self.top.destination);
        self.unchanged = Some((unchanged, top));
        self
    }

    /// Adds the top of the tree. `exists`: the destination has it.
    pub(super) fn add_top(&self, facts: SourceFacts, exists: bool) -> Result<(), CopyFailure> {
        self.add_directory(b"", facts, exists)
    }

    fn add_directory(
        &self,
        path: &[u8],
        facts: SourceFacts,
        exists: bool,
    ) -> Result<(), CopyFailure> {
        let entry = match exists {
            true if self.keeps_directories => NewEntry::ExistingDirectory(facts),
            true => return Ok(()),
            false => NewEntry::Directory(facts),
        };
        self.filler.add(&self.top, (path, b""), entry)
    }

    /// Files that are the same at both ends.
    pub(super) fn unchanged(&self) -> Option<&CopyPlan> {
        self.unchanged.as_ref().map(|(unchanged, _)| unchanged)
    }

    /// Adds a file that was compared later, and is the same.
    pub(super) fn keep(&self, item: &PlannedFile) -> Result<(), CopyFailure> {
        if let Some((unchanged, _)) = &self.unchanged {
            let top = unchanged.add_top(&item.source, &item.destination);
            unchanged.add(&top, (b"", b""), NewEntry::File(item.facts))?;
        }
        Ok(())
    }

    /// Files whose content is still to be compared.
    pub(super) fn undecided(&self) -> Option<&CopyPlan> {
        match &self.content {
            ContentComparison::Time { .. } => None,
            ContentComparison::Checksum(undecided) => Some(&undecided.0),
        }
    }

    /// Adds a file that was compared later.
    pub(super) fn copy(&self, item: &PlannedFile) {
        let top = self.filler.add_top(&item.source, &item.destination);
        let added = self
            .filler
            .add(&top, (b"", b""), NewEntry::File(item.facts));
        if let Err(failure) = added {
            self.fail(b"", b"", failure);
        }
    }

    /// Reports the paths of `--files-from` that the source does not have.
    pub(super) fn report_missing(&self) {
        let selected = self.selected.lock();
        for path in selected.unwrap_or_else(PoisonError::into_inner).missing() {
            let message = format!("{}: no such file in the source", display_path(&path));
            self.fail(b"", &path, CopyFailure::new(Exit::NotFound, message));
        }
    }

    /// Whether every part of the source was listed.
    pub(super) fn source_is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Relaxed)
    }

    /// Whether the source has a file or a link that is selected.
    pub(super) fn has_files(&self) -> bool {
        self.has_files.load(Ordering::Relaxed)
    }

    fn fail(&self, directory: &[u8], name: &[u8], failure: CopyFailure) {
        self.is_whole.store(false, Ordering::Relaxed);
        self.filler.fail(&self.top, (directory, name), failure);
    }

    /// Whether the destination lacks a file, or has another one.
    fn differs(
        &self,
        (directory, name): (&[u8], &[u8]),
        facts: SourceFacts,
        there: Option<EntryThere>,
    ) -> Result<bool, CopyFailure> {
        let there = match there {
            Some(EntryThere::File(there)) if facts.size.is_none() || facts.size == there.size => {
                there
            }
            _ => return Ok(true),
        };
        match &self.content {
            ContentComparison::Time { keeps_times } => {
                let differs = !is_same_by_time(facts, there, *keeps_times);
                if let (false, Some((unchanged, top))) = (differs, &self.unchanged) {
                    unchanged.add(top, (directory, name), NewEntry::File(facts))?;
                }
                Ok(differs)
            }
            ContentComparison::Checksum(undecided) => {
                let (undecided, top) = &**undecided;
                undecided.add(top, (directory, name), NewEntry::File(facts))?;
                Ok(false)
            }
        }
    }

    fn add_entry(
        &self,
        (directory, name): (&[u8], &[u8]),
        entry: TreeEntry,
        there: Option<EntryThere>,
    ) -> Result<(), CopyFailure> {
        let path = join_path(directory, name);
        let source = || join_location(&self.top.source, &path);
        match entry {
            TreeEntry::Directory(facts) => {
                self.add_directory(&path, facts, there == Some(EntryThere::Directory))
            }
            TreeEntry::File(_) | TreeEntry::LinkedFile(..) if is_unfinished(name) => {
                self.filler.skip(
                    &source(),
                    "unfinished file of an earlier copy, or its journal",
                );
                Ok(())
            }
            TreeEntry::File(facts) => {
                self.has_files.store(true, Ordering::Relaxed);
                match self.differs((directory, name), facts, there)? {
                    true => self
                        .filler
                        .add(&self.top, (directory, name), NewEntry::File(facts)),
                    false => Ok(()),
                }
            }
            TreeEntry::LinkedFile(facts, identity) => {
                match self.names.entry(path, facts, identity) {
                    NewEntry::File(facts) => {
                        self.add_entry((directory, name), TreeEntry::File(facts), there)
                    }
                    // One that is in place is left alone.
                    further => self.filler.add(&self.top, (directory, name), further),
                }
            }
            TreeEntry::Link(target) => {
                self.has_files.store(true, Ordering::Relaxed);
                let same = EntryThere::Link(self.there.hash_of_link(&target));
                match there == Some(same) {
                    true => Ok(()),
                    false => self
                        .filler
                        .add(&self.top, (directory, name), NewEntry::Link(target)),
                }
            }
            TreeEntry::Skipped(reason) => {
                self.filler.skip(&source(), &reason);
                Ok(())
            }
            TreeEntry::Failed(failure) => {
                self.is_whole.store(false, Ordering::Relaxed);
                Err(failure)
            }
            TreeEntry::Unlisted(failure) => {
                self.is_whole.store(false, Ordering::Relaxed);
                let place = (directory, name);
                self.filler.fail_directory(&self.top, place, failure);
                Ok(())
            }
        }
    }
}

impl TreeVisitor for Comparison {
    fn visit(&self, directory: &[u8], name: &[u8], entry: TreeEntry) -> Result<(), CopyFailure> {
        // Also of entries that are left out of the copy: the source has them.
        let path = join_path(directory, name);
        let there = self.there.find_and_keep(&path);
        if let TreeEntry::Skipped(_) | TreeEntry::Failed(_) | TreeEntry::Unlisted(_) = entry {
            self.there.keep_tree(&path);
        }
        let mut selected = self.selected.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(directories) = selected.admit(directory, name, &entry) else {
            return Ok(());
        };
        // Under the lock: another lister may not add files to a directory before it is added.
        for (needed, facts) in directories {
            self.add_directory(&needed, facts, self.there.has_directory(&needed))?;
        }
        drop(selected);
        if let Err(failure) = self.add_entry((directory, name), entry, there) {
            self.filler.fail(&self.top, (directory, name), failure);
        }
        Ok(())
    }
}

/// Whether two files of one size are taken for the same. A destination that does not keep times (`keeps_times`) has the
/// time of the copy, which is later.
pub(in crate::batch) fn is_same_by_time(
    source: SourceFacts,
    there: SourceFacts,
    keeps_times: bool,
) -> bool {
    match (source.modified, there.modified) {
        (Some(source), Some(there)) if keeps_times => source.0 == there.0,
        (Some(source), Some(there)) => source.0 <= there.0,
        // Only the sizes can be compared.
        _ => source.size.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use proto::timestamp::Timestamp;

    use super::*;

    fn facts(size: u64, time: i64) -> SourceFacts {
        SourceFacts {
            size: Some(size),
            modified: Some(Timestamp(time)),
            ..SourceFacts::default()
        }
    }

    #[test]
    fn files_of_one_size_are_compared_by_time() {
        for (source, there, keeps_times, same) in [
            (100, 100, true, true),
            (100, 101, true, false),
            (100, 99, true, false),
            (100, 500, false, true),
            (100, 99, false, false),
        ] {
            let (source, there) = (facts(1, source), facts(1, there));
            assert_eq!(is_same_by_time(source, there, keeps_times), same);
        }
        let unknown = SourceFacts {
            size: Some(1),
            ..SourceFacts::default()
        };
        assert!(is_same_by_time(unknown, facts(1, 5), true));
        assert!(!is_same_by_time(SourceFacts::default(), facts(1, 5), true));
    }
}
