//! The part of a journal that an earlier run of the same command has left.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io;

use super::entries::{NewEntry, PlanTop};
use super::paths::entry_path;
use super::places::{self, EntryContent, PlanRoots, RecordedPlaces};
use crate::plan::batch_journal::{BatchJournal, GroupPosition, PlaceInRoot, PlanRecord};
use ftp::answers::SourceFacts;
use ftp::location::Location;

/// Listings in a journal from which on it is written anew, with what is done alone.
const MAX_LISTINGS: u32 = 4;

/// The part of an earlier run that counts for this one.
#[derive(Debug, Default)]
pub(crate) struct EarlierRun {
    exists: bool,
    /// Work that its complete listing leaves. `None`: everything is listed again.
    left: Option<WorkLeft>,
    /// Directories of that listing with their destinations.
    trees: Vec<(Location, Location)>,
    /// Files are done.
    has_done_files: bool,
    /// Files that are done, and are copied again because their source told no time.
    undated_files: u64,
    /// Hashes of what is done, if everything is listed again.
    done: HashSet<u64>,
    hasher: RandomState,
    /// The kind of destination that it noted.
    destination: Option<u8>,
}

/// Work of a complete listing.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WorkLeft {
    pub(crate) files: u64,
    /// Bytes of files of known size.
    pub(crate) bytes: u64,
    pub(crate) links: u64,
}

impl EarlierRun {
    /// Where the marks of a journal begin. A complete listing has noted all that was done before it.
    pub(crate) fn marks(journal: &BatchJournal, relist: bool) -> GroupPosition {
        match journal.is_listed() && !relist {
            true => journal.listing(),
            false => journal.complete_listing(),
        }
    }

    /// Reads a journal, and prepares it for this run.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn take_over(
        journal: &mut BatchJournal,
        roots: &mut PlanRoots,
        relist: bool,
    ) -> io::Result<Self> {
        let mut earlier = Self::default();
        if journal.entry_count() == 0 && !journal.is_listed() {
            return Ok(earlier);
        }
        earlier.exists = true;
        let mut at = Self::marks(journal, relist);
        let mut recorded = RecordedPlaces::default();
        let (mut left, mut all_known) = (WorkLeft::default(), true);
        let mut trees = Vec::new();
        let mut kept = (journal.listings() >= MAX_LISTINGS).then(DoneJournal::default);
        while let Some((records, next)) = journal.read_group(at)? {
            let mut number = at.entry;
            for record in records {
                if let PlanRecord::Root(text) = &record {
                    all_known &= roots.location(text).is_some();
                }
                if let PlanRecord::Destination(kind) = record {
                    earlier.destination = Some(kind);
                }
                recorded.follow(&record);
                // The top of a tree comes before what is in it.
                if matches!(&record, PlanRecord::NewDirectory { path, .. } if path.is_empty()) {
                    trees.extend(recorded.here().and_then(|here| here.locate(roots)));
                }
                let is_done = record.is_entry() && journal.is_done(number);
                number += u32::from(record.is_entry());
                let is_new = match is_done {
                    true => earlier.note_done(&recorded, &record),
                    false => left.add(&record),
                };
                if let Some(kept) = &mut kept {
                    kept.add(record, is_done && is_new);
                }
            }
            at = next;
        }
        if journal.is_listed() && all_known && !relist {
            // Nothing is compared with the sources.
            earlier.undated_files = 0;
            earlier.left = Some(left);
            earlier.trees = trees;
            earlier.done = HashSet::new();
            return Ok(earlier);
        }
        if let Some(kept) = kept {
            journal.replace_with(kept.journal)?;
        }
        journal.append(&PlanRecord::Relist);
        Ok(earlier)
    }

    /// Notes an entry that is done. Returns whether no earlier one was the same.
    fn note_done(&mut self, recorded: &RecordedPlaces, record: &PlanRecord) -> bool {
        self.has_done_files |= matches!(
            record,
            PlanRecord::File { .. } | PlanRecord::HardLink { .. }
        );
        let is_undated = |facts: &SourceFacts| facts.modified.is_none();
        if matches!(record, PlanRecord::File { facts, .. } if is_undated(facts)) {
            self.undated_files += 1;
        }
        let identity = recorded.identity(record);
        identity.is_some_and(|identity| self.done.insert(self.hasher.hash_one(identity)))
    }

    /// Whether there was a run.
    pub(crate) fn exists(&self) -> bool {
        self.exists
    }

    /// Work that its complete listing leaves.
    pub(crate) fn left(&self) -> Option<WorkLeft> {
        self.left
    }

    /// The trees, and what becomes their copies, of its complete listing.
    pub(crate) fn trees(&self) -> &[(Location, Location)] {
        &self.trees
    }

    /// Whether it has copied files.
    pub(crate) fn has_done_files(&self) -> bool {
        self.has_done_files
    }

    /// Files that it has done, and that are copied again because their source told no time.
    pub(crate) fn undated_files(&self) -> u64 {
        self.undated_files
    }

    /// The kind of destination that it noted.
    pub(crate) fn destination(&self) -> Option<u8> {
        self.destination
    }

    /// Whether it has done an entry that is listed again.
    pub(crate) fn has_done(
        &self,
        top: &PlanTop,
        directory: &[u8],
        name: &[u8],
        entry: &NewEntry,
    ) -> bool {
        if self.done.is_empty() {
            return false;
        }
        let content = match entry {
            NewEntry::File(facts) => EntryContent::File(*facts),
            NewEntry::Link(target) => EntryContent::Link(target),
            NewEntry::Directory(_) | NewEntry::ExistingDirectory(_) => EntryContent::Directory,
            // The file of its first name may be another one now.
            NewEntry::HardLink { .. } | NewEntry::Unlisted { .. } => return false,
        };
        let relative = entry_path(directory, name);
        let identity = places::entry_identity(
            (&places::root_text(&top.source), top.source.path()),
            (&places::root_text(&top.destination), top.destination.path()),
            &relative,
            content,
        );
        identity.is_some_and(|identity| self.done.contains(&self.hasher.hash_one(identity)))
    }
}

impl WorkLeft {
    /// Adds an entry that is not done; returns `false`.
    fn add(&mut self, record: &PlanRecord) -> bool {
        match record {
            PlanRecord::File { facts, .. } => {
                self.files += 1;
                self.bytes += facts.size.unwrap_or(0);
            }
            PlanRecord::Link { .. } | PlanRecord::HardLink { .. } => self.links += 1,
            _ => {}
        }
        false
    }
}

/// A journal with what is done alone, as one listing.
#[derive(Debug, Default)]
struct DoneJournal {
    journal: BatchJournal,
    /// The roots that it has, by their numbers.
    roots: Vec<Vec<u8>>,
    /// Their numbers, by those of the listing that is read.
    numbers: Vec<u32>,
    /// The top and the directory of the next entries, if they are not in the journal.
    top: Option<PlanRecord>,
    directory: Option<PlanRecord>,
}

impl DoneJournal {
    /// Adds a record of a listing. `is_kept`: it is an entry that is done.
    fn add(&mut self, record: PlanRecord, is_kept: bool) {
        match record {
            PlanRecord::Relist => self.numbers.clear(),
            PlanRecord::Root(text) => self.add_root(text),
            PlanRecord::Top {
                source,
                destination,
            } => {
                let place = |place: PlaceInRoot| PlaceInRoot {
                    root: self
                        .numbers
                        .get(place.root as usize)
                        .copied()
                        .unwrap_or(u32::MAX),
                    ..place
                };
                self.top = Some(PlanRecord::Top {
                    source: place(source),
                    destination: place(destination),
                });
                self.directory = None;
            }
            // It is no entry any more, but the directory of those that follow.
            PlanRecord::NewDirectory { path, .. } if !is_kept => {
                self.directory = Some(PlanRecord::Directory(path));
            }
            PlanRecord::Directory(_) => self.directory = Some(record),
            PlanRecord::Destination(_) => {
                self.journal.append(&record);
            }
            record if is_kept => {
                let places = [self.top.take(), self.directory.take()];
                for place in places.iter().flatten() {
                    self.journal.append(place);
                }
                self.journal.append(&record);
            }
            _ => {}
        }
    }

    fn add_root(&mut self, text: Vec<u8>) {
        let known = self.roots.iter().position(|root| *root == text);
        let number = known.unwrap_or(self.roots.len());
        self.numbers.push(u32::try_from(number).unwrap_or(u32::MAX));
        if known.is_none() {
            self.journal.append(&PlanRecord::Root(text.clone()));
            self.roots.push(text);
        }
    }
}
