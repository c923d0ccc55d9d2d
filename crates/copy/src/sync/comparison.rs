//! Compares the source with the destination, entry by entry.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use proto::timestamp::Timestamp;

use super::index::{DestinationIndex, EntryThere, TimeThere};
use super::same_tree::SameTreeWatch;
use super::times::{TimeComparison, compare_times};
use crate::batch::BatchContext;
use crate::file::preserve;
use crate::local::partial::is_unfinished;
use crate::options::PreservedTimes;
use crate::plan::{
    CopyPlan, HardLinkNames, NewEntry, PlanFiller, PlanTop, PlannedFile, SelectedEntries,
    join_location,
};
use crate::storage::entry_names::join_path;
use crate::tree::{TreeEntry, TreeVisitor};
use ftp::Failure;
use ftp::answers::SourceFacts;

/// Adds the entries of the source that the destination lacks, or has otherwise, to a plan.
pub(crate) struct Comparison {
    /// Sees the entries.
    watch: Arc<SameTreeWatch>,
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
    /// Files of equal size about which the listings do not decide.
    undecided: (CopyPlan, PlanTop),
    /// A file is copied because too little is known of its time.
    has_unknown_times: AtomicBool,
    has_files: AtomicBool,
    is_whole: AtomicBool,
    /// Times are compared, or kept.
    needs_times: bool,
}

/// How files of one size are compared.
enum ContentComparison {
    /// By time. `keeps_times`: the destination has the time of the source, not that of the copy.
    Time { keeps_times: bool },
    /// By checksum, later.
    Checksum,
}

impl Comparison {
    /// Compares with the index `there`, and adds to the plan of `filler` below `top`. Files of equal size about which the
    /// listings do not decide are added to `undecided`.
    pub(crate) fn new(
        ctx: &Arc<BatchContext>,
        filler: &Arc<PlanFiller>,
        there: &Arc<DestinationIndex>,
        watch: &Arc<SameTreeWatch>,
        top: PlanTop,
        undecided: CopyPlan,
    ) -> Self {
        let undecided_top = undecided.add_top(&top.source, &top.destination);
        Self {
            watch: Arc::clone(watch),
            filler: Arc::clone(filler),
            there: Arc::clone(there),
            names: HardLinkNames::of(ctx, &top.source, &top.destination),
            top,
            selected: Mutex::new(SelectedEntries::of(&ctx.options.tree)),
            keeps_directories: preserve::is_for_directories(ctx.options.file.preserve),
            unchanged: None,
            content: ContentComparison::Checksum,
            undecided: (undecided, undecided_top),
            has_unknown_times: AtomicBool::new(false),
            needs_times: ctx.options.file.preserve.times != PreservedTimes::None,
            has_files: AtomicBool::new(false),
            is_whole: AtomicBool::new(true),
        }
    }

    /// Files of equal size are compared by time instead of content. `keeps_times`: the destination is said to keep times.
    pub(crate) fn by_time(mut self, keeps_times: bool) -> Self {
        self.content = ContentComparison::Time { keeps_times };
        self.needs_times = true;
        self
    }

    /// Files that are the same are added to `unchanged`.
    pub(crate) fn noting_unchanged(mut self, unchanged: CopyPlan) -> Self {
        let top = unchanged.add_top(&self.top.source, &self.top.destination);
        self.unchanged = Some((unchanged, top));
        self
    }

    /// Adds the top of the tree. `exists`: the destination has it.
    pub(crate) fn add_top(&self, facts: SourceFacts, exists: bool) -> Result<(), Failure> {
        self.add_directory(b"", facts, exists)
    }

    fn add_directory(&self, path: &[u8], facts: SourceFacts, exists: bool) -> Result<(), Failure> {
        let entry = match exists {
            true if self.keeps_directories => NewEntry::ExistingDirectory(facts),
            true => return Ok(()),
            false => NewEntry::Directory(facts),
        };
        self.filler.add(&self.top, path, b"", entry)
    }

    /// Files that are the same at both ends.
    pub(crate) fn unchanged(&self) -> Option<&CopyPlan> {
        self.unchanged.as_ref().map(|(unchanged, _)| unchanged)
    }

    /// Adds a file that was compared later, and is the same.
    pub(crate) fn keep(&self, item: &PlannedFile) -> Result<(), Failure> {
        if let Some((unchanged, _)) = &self.unchanged {
            let top = unchanged.add_top(&item.source, &item.destination);
            unchanged.add(&top, b"", b"", NewEntry::File(item.facts))?;
        }
        Ok(())
    }

    /// Files that are still to be compared, otherwise than by what listings show.
    pub(crate) fn undecided(&self) -> &CopyPlan {
        &self.undecided.0
    }

    /// The time of the destination's file for one of [`Comparison::undecided`], if it is known exactly.
    pub(crate) fn time_there(&self, item: &PlannedFile) -> Option<Timestamp> {
        let path = item.destination.path().get(self.there.prefix()..)?;
        match self.there.file(path)?.time {
            TimeThere::Exact(time) => Some(time),
            TimeThere::NotBefore(_) | TimeThere::Unknown => None,
        }
    }

    /// Whether files are copied because too little is known of their times.
    pub(crate) fn has_unknown_times(&self) -> bool {
        self.has_unknown_times.load(Ordering::Relaxed)
    }

    /// Adds a file that was compared later.
    pub(crate) fn copy(&self, item: &PlannedFile) {
        let top = self.filler.add_top(&item.source, &item.destination);
        let added = self.filler.add(&top, b"", b"", NewEntry::File(item.facts));
        if let Err(failure) = added {
            self.fail(b"", b"", failure);
        }
    }

    /// Reports the paths of `--files-from` that the source does not have, and files that may be selected or not.
    pub(crate) fn report_missing(&self) {
        let selected = self.selected.lock();
        for (path, failure) in selected.missing().into_iter().chain(selected.undecided()) {
            self.fail(b"", &path, failure);
        }
    }

    /// Whether every part of the source was listed.
    pub(crate) fn source_is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Relaxed)
    }

    /// Whether the source has a file or a link that is selected.
    pub(crate) fn has_files(&self) -> bool {
        self.has_files.load(Ordering::Relaxed)
    }

    fn fail(&self, directory: &[u8], name: &[u8], failure: Failure) {
        self.is_whole.store(false, Ordering::Relaxed);
        self.filler.fail(&self.top, (directory, name), failure);
    }

    /// Whether the destination lacks a file, or has another one, as far as the listings show it.
    fn differs(
        &self,
        directory: &[u8],
        name: &[u8],
        facts: SourceFacts,
        there: Option<EntryThere>,
    ) -> Result<bool, Failure> {
        let Some(EntryThere::File(there)) = there else {
            return Ok(true);
        };
        // An unknown size is no equal one, but contents can be compared.
        let may_be_same = match self.content {
            ContentComparison::Time { .. } => facts.size.is_some() && facts.size == there.size,
            ContentComparison::Checksum => facts.size.is_none() || facts.size == there.size,
        };
        if !may_be_same {
            return Ok(true);
        }
        let add_to = |(plan, top): &(CopyPlan, PlanTop)| {
            plan.add(top, directory, name, NewEntry::File(facts))
        };
        let compared = match self.content {
            ContentComparison::Time { keeps_times } => compare_times(facts, there, keeps_times),
            ContentComparison::Checksum => TimeComparison::SameIfRounded,
        };
        match compared {
            TimeComparison::Same => {
                self.unchanged.as_ref().map_or(Ok(false), add_to)?;
            }
            TimeComparison::SameIfRounded => {
                add_to(&self.undecided)?;
            }
            TimeComparison::Different => {
                let is_known =
                    facts.modified.is_some() && matches!(there.time, TimeThere::Exact(_));
                self.has_unknown_times
                    .fetch_or(!is_known, Ordering::Relaxed);
            }
        }
        Ok(compared == TimeComparison::Different)
    }

    fn add_entry(
        &self,
        directory: &[u8],
        name: &[u8],
        entry: TreeEntry,
        there: Option<EntryThere>,
    ) -> Result<(), Failure> {
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
                match self.differs(directory, name, facts, there)? {
                    true => self
                        .filler
                        .add(&self.top, directory, name, NewEntry::File(facts)),
                    false => Ok(()),
                }
            }
            TreeEntry::LinkedFile(facts, identity) => {
                match self.names.entry(path, facts, identity) {
                    NewEntry::File(facts) => {
                        self.add_entry(directory, name, TreeEntry::File(facts), there)
                    }
                    // One that is in place is left alone.
                    further => self.filler.add(&self.top, directory, name, further),
                }
            }
            TreeEntry::Link(target) => {
                self.has_files.store(true, Ordering::Relaxed);
                let same = EntryThere::Link(self.there.hash_of_link(&target));
                match there == Some(same) {
                    true => Ok(()),
                    false => self
                        .filler
                        .add(&self.top, directory, name, NewEntry::Link(target)),
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
    fn needs_time(&self, directory: &[u8], name: &[u8], facts: SourceFacts) -> bool {
        let selected = self.selected.lock();
        selected.needs_time(&join_path(directory, name), facts, self.needs_times)
    }

    fn visit(&self, directory: &[u8], name: &[u8], entry: TreeEntry) -> Result<(), Failure> {
        self.watch.see_source(directory, name, &entry);
        // Also of entries that are left out of the copy: the source has them.
        let path = join_path(directory, name);
        let there = self.there.find_and_keep(&path);
        if let TreeEntry::Skipped(_) | TreeEntry::Failed(_) | TreeEntry::Unlisted(_) = entry {
            self.there.keep_tree(&path);
        }
        let mut selected = self.selected.lock();
        let Some(directories) = selected.admit(directory, name, &entry) else {
            return Ok(());
        };
        // Under the lock: another lister may not add files to a directory before it is added.
        for (needed, facts) in directories {
            self.add_directory(&needed, facts, self.there.has_directory(&needed))?;
        }
        drop(selected);
        if let Err(failure) = self.add_entry(directory, name, entry, there) {
            self.filler.fail(&self.top, (directory, name), failure);
        }
        Ok(())
    }
}
