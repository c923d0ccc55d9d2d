//! The plan of a copy: written by the listing, read in order by those who copy, marked as done by them. It stands in a
//! [`BatchJournal`], not in memory.

use std::io;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::earlier_run::EarlierRun;
use super::entries::{NewEntry, PlanTop};
use super::paths::entry_path;
use super::places::{PlanRoots, RecordedPlace};
use crate::plan::batch_journal::{BatchJournal, GroupPosition, MAX_TEXT, PlaceInRoot, PlanRecord};
use ftp::Failure;
use ftp::location::Location;

/// How often the journal is forced to disk.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// Readers look again after so many entries.
const ENTRIES_PER_NOTICE: u32 = 1024;

/// Everything that a copy will do.
#[derive(Debug)]
pub(crate) struct CopyPlan {
    state: Mutex<PlanState>,
    grown: Notify,
}

/// Records, and the position after them.
pub(crate) type PlanGroup = (Vec<PlanRecord>, GroupPosition);

#[derive(Debug, Default)]
pub(crate) struct PlanState {
    pub(crate) journal: BatchJournal,
    pub(crate) roots: PlanRoots,
    tops: usize,
    /// Number of the top, and the directory, of the last entry.
    context: Option<(usize, Vec<u8>)>,
    files: u64,
    bytes: u64,
    links: u64,
    /// Nothing follows.
    ended: bool,
    /// The part of an earlier run that counts.
    earlier: EarlierRun,
    earlier_files: u64,
}

impl CopyPlan {
    /// An empty plan in `journal`, whose locations begin as `known` ones do. What the journal holds of an earlier run counts
    /// after [`CopyPlan::take_over`].
    pub(crate) fn in_journal(journal: BatchJournal, known: &[Location]) -> Self {
        let state = PlanState {
            journal,
            roots: PlanRoots::of(known),
            ..PlanState::default()
        };
        Self {
            state: Mutex::new(state),
            grown: Notify::new(),
        }
    }

    /// Whether the journal holds something of an earlier run.
    pub(crate) fn has_earlier_run(&self) -> bool {
        let state = self.state.lock();
        state.journal.entry_count() > 0 || state.journal.is_listed()
    }

    /// Takes over what an earlier run has left. If its listing is complete, and is not to be repeated (`relist`), the plan is
    /// that one; otherwise entries that the earlier run has done are done when they are added again. `files`: number of files
    /// that it has put in place. Returns how many of these are copied again, because their source told no time.
    ///
    /// # Errors
    /// `Local`: the journal cannot be read.
    pub(crate) fn take_over(&self, relist: bool, files: u64) -> Result<u64, Failure> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let taken = EarlierRun::take_over(&mut state.journal, &mut state.roots, relist);
        state.earlier = taken.map_err(|error| read_failure(&error))?;
        let undated = state.earlier.undated_files().min(files);
        state.earlier_files = files - undated;
        if let Some(left) = state.earlier.left() {
            (state.files, state.bytes, state.links) = (left.files, left.bytes, left.links);
            state.ended = true;
        }
        Ok(undated)
    }

    /// Whether the listing of an earlier run is complete, so that nothing is listed again.
    pub(crate) fn has_complete_listing(&self) -> bool {
        self.state.lock().earlier.left().is_some()
    }

    /// Whether the plan goes on with one of an earlier run.
    pub(crate) fn continues(&self) -> bool {
        self.state.lock().earlier.exists()
    }

    /// Files that an earlier run has put in place.
    pub(crate) fn earlier_files(&self) -> u64 {
        self.state.lock().earlier_files
    }

    /// Whether an earlier run has copied files, which this one does not copy.
    pub(crate) fn has_done_files(&self) -> bool {
        self.state.lock().earlier.has_done_files()
    }

    /// Where the entries begin that an earlier run may have done.
    pub(crate) fn marks(&self, relist: bool) -> GroupPosition {
        EarlierRun::marks(&self.state.lock().journal, relist)
    }

    /// Marks all entries as not done.
    pub(crate) fn forget_all_done(&self) {
        self.state.lock().journal.forget_all_done();
    }

    /// Marks entries as not done: what an earlier run has put in place is not there any more.
    pub(crate) fn forget_done(&self, entries: &[u32]) {
        self.state.lock().journal.forget_done(entries);
    }

    /// The trees, and what becomes their copies, of the listing of an earlier run, if that is complete.
    pub(crate) fn earlier_trees(&self) -> Vec<(Location, Location)> {
        self.state.lock().earlier.trees().to_vec()
    }

    /// Begins a source and its destination.
    pub(crate) fn add_top(&self, source: &Location, destination: &Location) -> PlanTop {
        let mut state = self.state.lock();
        state.tops += 1;
        PlanTop {
            number: state.tops,
            source: source.clone(),
            destination: destination.clone(),
        }
    }

    /// Whether an earlier run has done an entry that is about to be added.
    pub(crate) fn has_done(
        &self,
        top: &PlanTop,
        directory: &[u8],
        name: &[u8],
        entry: &NewEntry,
    ) -> bool {
        let state = self.state.lock();
        state.earlier.has_done(top, directory, name, entry)
    }

    /// Adds an entry `name` of the directory `directory` below a top. Both are empty for the top itself. Returns now and then
    /// that progress is worth a report.
    ///
    /// # Errors
    /// `Usage`: a path is longer than any file system permits; there are four thousand million entries.
    pub(crate) fn add(
        &self,
        top: &PlanTop,
        directory: &[u8],
        name: &[u8],
        entry: NewEntry,
    ) -> Result<bool, Failure> {
        let longest = top.source.path().len().max(top.destination.path().len());
        let further = match &entry {
            NewEntry::HardLink { first: text, .. } | NewEntry::Link(text) => text.len(),
            NewEntry::Directory(_)
            | NewEntry::ExistingDirectory(_)
            | NewEntry::File(_)
            | NewEntry::Unlisted { .. } => 0,
        };
        if further.max(longest + directory.len() + name.len()) > MAX_TEXT {
            let message = format!("a path below {} is too long", top.source.display());
            return Err(Failure::usage(message));
        }
        let mut state = self.state.lock();
        if state.journal.entry_count() == u32::MAX {
            return Err(Failure::usage("the copy has too many entries: split it"));
        }
        let noticed = state.add(top, directory, name, entry);
        drop(state);
        if noticed {
            self.grown.notify_waiters();
        }
        Ok(noticed)
    }

    /// Notes a kind of destination for later runs.
    pub(crate) fn note_destination(&self, kind: u8) {
        self.state
            .lock()
            .journal
            .append(&PlanRecord::Destination(kind));
    }

    /// The kind that an earlier run noted.
    pub(crate) fn noted_destination(&self) -> Option<u8> {
        self.state.lock().earlier.destination()
    }

    /// Nothing follows. `complete`: see [`CopyPlan::note_complete`].
    pub(crate) fn end(&self, complete: bool) {
        if complete {
            self.note_complete();
        }
        let mut state = self.state.lock();
        state.journal.flush();
        state.ended = true;
        drop(state);
        self.grown.notify_waiters();
    }

    /// The listing is complete and may be carried out: no later run repeats it, or checks it again.
    pub(crate) fn note_complete(&self) {
        let mut state = self.state.lock();
        if !state.journal.is_listed() {
            state.journal.append(&PlanRecord::Listed);
            state.journal.flush();
        }
    }

    /// Waits until the plan may have grown or ended since this future was enabled.
    pub(crate) fn grown(&self) -> tokio::sync::futures::Notified<'_> {
        self.grown.notified()
    }

    /// Files that are still to be copied, and their bytes as far as known.
    pub(crate) fn size(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.files, state.bytes)
    }

    /// Whether nothing will be added.
    pub(crate) fn is_final(&self) -> bool {
        let state = self.state.lock();
        state.ended
    }

    /// Number of symbolic and hard links.
    pub(crate) fn link_count(&self) -> u64 {
        self.state.lock().links
    }

    /// Whether an earlier listing or this one is complete.
    pub(crate) fn is_listed(&self) -> bool {
        self.state.lock().journal.is_listed()
    }

    /// Whether the plan outlives a run that does not finish it.
    pub(crate) fn is_kept(&self) -> bool {
        self.state.lock().journal.is_named()
    }

    /// Whether an entry is done.
    pub(crate) fn is_done(&self, entry: u32) -> bool {
        self.state.lock().journal.is_done(entry)
    }

    /// Marks entries as done, in ascending order.
    pub(crate) fn mark_done(&self, entries: &[u32]) {
        self.state.lock().journal.mark_done(entries);
    }

    /// Where the entries of the plan begin.
    pub(crate) fn listing(&self) -> GroupPosition {
        self.state.lock().journal.listing()
    }

    /// The records at a position, and whether nothing will follow if there are none.
    pub(crate) fn read_group(&self, at: GroupPosition) -> io::Result<(Option<PlanGroup>, bool)> {
        let mut state = self.state.lock();
        let mut group = state.journal.read_group(at)?;
        if group.is_none() {
            state.journal.flush();
            group = state.journal.read_group(at)?;
        }
        Ok((group, state.ended))
    }

    /// The source and the destination of a top.
    pub(crate) fn locate(&self, here: &RecordedPlace<'_>) -> Option<(Location, Location)> {
        here.locate(&self.state.lock().roots)
    }

    /// The first error of the journal since the last call.
    pub(crate) fn take_failure(&self) -> Option<io::Error> {
        self.state.lock().journal.take_failure()
    }

    /// Forces the journal to disk now.
    pub(crate) fn sync(&self) {
        let unsynced = self.state.lock().journal.take_unsynced();
        if let Some(journal) = unsynced {
            journal.sync();
        }
    }

    /// Forces the journal to disk at intervals. It never returns.
    pub(crate) async fn keep_synced(&self) {
        loop {
            tokio::time::sleep(SYNC_INTERVAL).await;
            let unsynced = self.state.lock().journal.take_unsynced();
            if let Some(journal) = unsynced {
                let _ = tokio::task::spawn_blocking(|| journal.sync()).await;
            }
        }
    }

    /// Removes the journal: everything is done.
    pub(crate) fn remove_journal(&self) {
        self.state.lock().journal.remove();
    }
}

impl PlanState {
    /// Adds an entry; returns whether readers should look.
    fn add(&mut self, top: &PlanTop, directory: &[u8], name: &[u8], entry: NewEntry) -> bool {
        // It is noted all the same: others may be in conflict with it, and what a directory keeps of its source is set last.
        let is_done = match &entry {
            NewEntry::ExistingDirectory(_) => true,
            _ => self.earlier.has_done(top, directory, name, &entry),
        };
        if !is_done {
            self.count(&entry);
        }
        let path = || entry_path(directory, name);
        // A new directory names itself.
        let within = match entry {
            NewEntry::Directory(_) | NewEntry::ExistingDirectory(_) => self.directory_of(top),
            _ => directory.to_vec(),
        };
        let is_in_context = matches!(&self.context, Some((number, directory))
            if *number == top.number && *directory == within);
        if !is_in_context {
            self.enter(top, &within);
        }
        let record = match entry {
            NewEntry::Directory(facts) | NewEntry::ExistingDirectory(facts) => {
                let path = path();
                self.context = Some((top.number, path.clone()));
                PlanRecord::NewDirectory { path, facts }
            }
            NewEntry::File(facts) => {
                let name = name.to_vec();
                PlanRecord::File { name, facts }
            }
            NewEntry::HardLink { facts, first } => {
                let name = name.to_vec();
                PlanRecord::HardLink { name, facts, first }
            }
            NewEntry::Link(target) => {
                let name = name.to_vec();
                PlanRecord::Link { name, target }
            }
            NewEntry::Unlisted { is_directory } => PlanRecord::Unlisted {
                name: name.to_vec(),
                is_directory,
            },
        };
        let number = self.journal.append(&record);
        if is_done {
            self.journal.note_done(&[number]);
        }
        number % ENTRIES_PER_NOTICE == ENTRIES_PER_NOTICE - 1
    }

    /// Counts an entry that is still to be copied.
    fn count(&mut self, entry: &NewEntry) {
        match entry {
            NewEntry::File(facts) => {
                self.files += 1;
                self.bytes += facts.size.unwrap_or(0);
            }
            NewEntry::HardLink { .. } | NewEntry::Link(_) => self.links += 1,
            NewEntry::Directory(_) | NewEntry::ExistingDirectory(_) | NewEntry::Unlisted { .. } => {
            }
        }
    }

    /// The directory of the last entry, if that was below the same top.
    fn directory_of(&self, top: &PlanTop) -> Vec<u8> {
        match &self.context {
            Some((number, directory)) if *number == top.number => directory.clone(),
            _ => Vec::new(),
        }
    }

    /// Makes the next entries those of a directory below a top.
    fn enter(&mut self, top: &PlanTop, directory: &[u8]) {
        let same_top = matches!(&self.context, Some((number, _)) if *number == top.number);
        if !same_top {
            let source = self.place(&top.source);
            let destination = self.place(&top.destination);
            self.journal.append(&PlanRecord::Top {
                source,
                destination,
            });
        }
        if same_top || !directory.is_empty() {
            self.journal
                .append(&PlanRecord::Directory(directory.to_vec()));
        }
        self.context = Some((top.number, directory.to_vec()));
    }

    fn place(&mut self, at: &Location) -> PlaceInRoot {
        let (root, added) = self.roots.number_of(at);
        if let Some(text) = added {
            self.journal.append(&PlanRecord::Root(text));
        }
        PlaceInRoot {
            root,
            path: at.path().to_vec(),
        }
    }
}

fn read_failure(error: &io::Error) -> Failure {
    Failure::local(format!("the batch journal: {error}"))
}
