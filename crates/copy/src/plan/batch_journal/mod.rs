//! The batch journal: the plan of a copy as an append-only file. It holds what the listing found, and which entries are
//! done. [`crate::local::journal`] is another one: that of the bytes of one file.
//!
//! Records are appended in groups ([`store`]). A group that is not whole ends the journal, so one that was cut, by a kill or
//! by a power cut, is a valid earlier state. A done mark is appended only after its file has its name, and is on disk as the
//! synchronization policy asks; losing one only repeats work.

use std::fs::File;
use std::io;
use std::path::Path;

use data::os::machine::boot_id;
use data::store::durability::SyncPolicy;

use crate::local::local_name::LocalName;
use crate::local::lock_file::{LockedOpen, open_locked, remove_if_same};
use ftp::Failure;

mod done;
mod records;
mod store;

use done::DoneEntries;
pub(crate) use records::{MAX_TEXT, PlaceInRoot, PlanRecord};
use store::{Appended, GroupStore, MAX_GROUP};

/// Records are written when they are so many bytes, or when somebody waits for them.
const GROUP_BYTES: usize = 64 << 10;

/// A position between two groups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct GroupPosition {
    offset: u64,
    /// Number of the first entry after the position.
    pub(crate) entry: u32,
}

/// The plan of a copy, and how far it is carried out.
#[derive(Debug, Default)]
pub(crate) struct BatchJournal {
    store: GroupStore,
    /// `None`: nobody finds it again after this run.
    name: Option<LocalName>,
    /// Records that are not in the store yet.
    pending: Vec<u8>,
    entries: u32,
    done: DoneEntries,
    listed: bool,
    /// Start of the newest listing.
    listing: GroupPosition,
    /// Start of the newest listing that is complete, or of the first one.
    complete_listing: GroupPosition,
    /// Number of listings.
    listings: u32,
    /// The command, and the run that writes now.
    beginning: Vec<PlanRecord>,
    /// Something was written since the last sync.
    unsynced: bool,
    failure: Option<io::Error>,
    /// Records are missing at the end of the store.
    lost_records: bool,
}

impl BatchJournal {
    /// A journal that ends with this run.
    pub(crate) fn unnamed() -> Self {
        Self::default()
    }

    /// Opens the journal of `command` at `path` and takes its lock. With `resume` it goes on where an earlier run ended; otherwise
    /// it begins anew. `durable`: what the run reports as done is on disk. Such a run believes only marks of runs that were so, too.
    ///
    /// # Errors
    /// `DestinationBusy`: the same copy runs already. `Usage`: the file is no journal of this copy.
    /// `Local`: it cannot be read or written.
    pub(crate) fn open(
        path: &Path,
        command: &[u8],
        resume: bool,
        durable: bool,
    ) -> Result<Self, Failure> {
        let failed = |error: &io::Error| Failure::local(format!("{}: {error}", path.display()));
        let name = LocalName::at(path).map_err(|error| failed(&error))?;
        let file = match open_locked(&name).map_err(|error| failed(&error))? {
            LockedOpen::Locked(file) | LockedOpen::Unlocked(file) => file,
            LockedOpen::Busy => return Err(busy_failure(path)),
        };
        let length = file.metadata().map_err(|error| failed(&error))?.len();
        let boot = boot_id().unwrap_or_default().into_bytes();
        let mut journal = Self {
            store: GroupStore::in_file(file, length),
            name: Some(name),
            ..Self::default()
        };
        let known = match length {
            0 => false,
            _ => journal.is_of(command, path)?,
        };
        let kept = match known && resume {
            true => journal
                .load(&boot, durable)
                .map_err(|error| failed(&error))?,
            false => 0,
        };
        journal
            .store
            .truncate(kept)
            .map_err(|error| failed(&error))?;
        let [command, run] = [
            PlanRecord::Command(command.to_vec()),
            PlanRecord::Run { boot, durable },
        ];
        if kept == 0 {
            journal.append(&command);
        }
        journal.append(&run);
        journal.flush();
        journal.beginning = vec![command, run];
        match journal.take_failure() {
            Some(error) => Err(failed(&error)),
            None => Ok(journal),
        }
    }

    /// Whether the file is a journal of `command`.
    fn is_of(&self, command: &[u8], path: &Path) -> Result<bool, Failure> {
        let first = self.store.read(0).ok().flatten();
        let record = first.and_then(|(records, _)| PlanRecord::decode(&mut records.as_slice()));
        match record {
            Some(PlanRecord::Command(found)) if found == command => Ok(true),
            Some(PlanRecord::Command(_)) => Err(Failure::usage(format!(
                "{} is the journal of another copy: name another file",
                path.display()
            ))),
            // A power cut can take back the first bytes of a journal; nothing else is overwritten.
            _ if self.store.is_zero() => Ok(false),
            _ => Err(Failure::usage(format!(
                "{} is not a batch journal: name another file",
                path.display()
            ))),
        }
    }

    /// Reads what is intact. Returns its length.
    fn load(&mut self, boot: &[u8], durable: bool) -> io::Result<u64> {
        let mut offset = 0;
        let mut believed = true;
        while let Some((bytes, next)) = self.store.read(offset)? {
            // Nothing of a group counts that is cut off.
            let Some(records) = decode_group(&bytes) else {
                break;
            };
            for record in records {
                match record {
                    PlanRecord::Run {
                        boot: then,
                        durable: on_disk,
                    } => believed = on_disk || (then == boot && !durable),
                    PlanRecord::Relist => self.begin_listing(offset),
                    PlanRecord::Listed => self.end_listing(),
                    PlanRecord::Done { first, count } if believed => {
                        let end = first.saturating_add(count).min(self.entries);
                        (first..end).for_each(|entry| self.done.insert(entry));
                    }
                    record => self.entries += u32::from(record.is_entry()),
                }
            }
            offset = next;
        }
        Ok(offset)
    }

    fn begin_listing(&mut self, offset: u64) {
        (self.listing, self.listed) = (self.position_at(offset), false);
        self.listings += 1;
    }

    fn end_listing(&mut self) {
        (self.complete_listing, self.listed) = (self.listing, true);
    }

    fn position_at(&self, offset: u64) -> GroupPosition {
        GroupPosition {
            offset,
            entry: self.entries,
        }
    }

    /// Whether the listing is complete.
    pub(crate) fn is_listed(&self) -> bool {
        self.listed
    }

    /// Number of entries, also of earlier listings.
    pub(crate) fn entry_count(&self) -> u32 {
        self.entries
    }

    /// Whether an entry is done.
    pub(crate) fn is_done(&self, entry: u32) -> bool {
        self.done.contains(entry)
    }

    /// Whether the journal is kept after a run that did not finish.
    pub(crate) fn is_named(&self) -> bool {
        self.name.is_some()
    }

    /// Start of the newest listing.
    pub(crate) fn listing(&self) -> GroupPosition {
        self.listing
    }

    /// Start of the newest listing that is complete, or of the first one.
    pub(crate) fn complete_listing(&self) -> GroupPosition {
        self.complete_listing
    }

    /// Number of listings.
    pub(crate) fn listings(&self) -> u32 {
        self.listings
    }

    /// Replaces all records by those of `kept`, whose entries are all done. A run that is killed meanwhile leaves some of
    /// them, which only repeats work.
    ///
    /// # Errors
    /// A file cannot be read, or not be cut.
    pub(crate) fn replace_with(&mut self, mut kept: Self) -> io::Result<()> {
        kept.flush();
        self.store.truncate(0)?;
        for record in &self.beginning {
            record.encode(&mut self.pending);
        }
        self.flush();
        let mut offset = 0;
        while let Some((records, next)) = kept.store.read(offset)? {
            self.pending = records;
            self.flush();
            offset = next;
        }
        (self.entries, self.done) = (kept.entries, DoneEntries::default());
        (self.listings, self.listed) = (0, false);
        (self.listing, self.complete_listing) = Default::default();
        let all: Vec<u32> = (0..kept.entries).collect();
        self.mark_done(&all);
        Ok(())
    }

    /// Appends a record. An entry gets the next number.
    pub(crate) fn append(&mut self, record: &PlanRecord) -> u32 {
        if *record == PlanRecord::Relist {
            // At the beginning of its group: the position of the listing is between groups.
            self.flush();
            self.begin_listing(self.store.length());
        }
        if *record == PlanRecord::Listed {
            self.end_listing();
        }
        record.encode(&mut self.pending);
        let entry = self.entries;
        self.entries += u32::from(record.is_entry());
        if self.pending.len() >= GROUP_BYTES {
            self.flush();
        }
        entry
    }

    /// Marks entries as done, at once: these records survive a kill.
    pub(crate) fn mark_done(&mut self, entries: &[u32]) {
        self.note_done(entries);
        self.flush();
    }

    /// Marks entries as done, with the next records.
    pub(crate) fn note_done(&mut self, entries: &[u32]) {
        for run in entries.chunk_by(|a, b| a.checked_add(1) == Some(*b)) {
            if let [first, ..] = run {
                let count = u32::try_from(run.len()).unwrap_or(u32::MAX);
                let first = *first;
                self.append(&PlanRecord::Done { first, count });
            }
            run.iter().for_each(|entry| self.done.insert(*entry));
        }
    }

    /// Takes all marks back, for this run.
    pub(crate) fn forget_all_done(&mut self) {
        self.done = DoneEntries::default();
    }

    /// Takes the marks of entries back, for this run.
    pub(crate) fn forget_done(&mut self, entries: &[u32]) {
        entries.iter().for_each(|entry| self.done.remove(*entry));
    }

    /// Puts all records in the store, where they can be read and survive a kill.
    pub(crate) fn flush(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        match self.store.append(&self.pending) {
            Appended::Kept => self.unsynced = self.name.is_some(),
            Appended::FileFailed(error) => self.failure = Some(error),
            Appended::TooLarge => {
                self.lost_records = true;
                self.failure = Some(too_large());
            }
        }
        self.pending.clear();
    }

    /// The first error of the file since the last call. The plan goes on in memory; the file keeps an earlier state.
    pub(crate) fn take_failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    /// The records of the group at a position, and the next position. `None`: there is none yet.
    ///
    /// # Errors
    /// The file cannot be read; a group in it is damaged, or could not be kept. Nothing that was listed is passed over.
    pub(crate) fn read_group(
        &self,
        at: GroupPosition,
    ) -> io::Result<Option<(Vec<PlanRecord>, GroupPosition)>> {
        let Some((bytes, offset)) = self.store.read(at.offset)? else {
            return match at.offset < self.store.length() {
                true => Err(damaged()),
                false if self.lost_records => Err(too_large()),
                false => Ok(None),
            };
        };
        let records = decode_group(&bytes).ok_or_else(damaged)?;
        let entries = records.iter().filter(|record| record.is_entry()).count();
        let entry = at.entry + u32::try_from(entries).unwrap_or(u32::MAX);
        Ok(Some((records, GroupPosition { offset, entry })))
    }

    /// The journal as it is, to be synced by another thread. `None`: nothing new, or nothing to keep.
    pub(crate) fn take_unsynced(&mut self) -> Option<UnsyncedBatchJournal> {
        self.flush();
        let name = self.name.as_ref().filter(|_| self.unsynced)?.clone();
        let file = self.store.file()?.try_clone().ok()?;
        self.unsynced = false;
        Some(UnsyncedBatchJournal { file, name })
    }

    /// Removes the journal: every entry is done.
    pub(crate) fn remove(&mut self) {
        if let (Some(name), Some(file)) = (self.name.take(), self.store.file()) {
            remove_if_same(&name, file);
        }
    }
}

/// A journal that is not on disk yet.
#[derive(Debug)]
pub(crate) struct UnsyncedBatchJournal {
    file: File,
    name: LocalName,
}

impl UnsyncedBatchJournal {
    /// Syncs the file and its name; blocks. After an error an older state is on disk, which is still true.
    pub(crate) fn sync(self) {
        let synced = self.file.sync_data();
        let synced = synced.and_then(|()| self.name.sync_directory(SyncPolicy::File));
        if let Err(error) = synced {
            tracing::debug!(%error, "batch journal not synced");
        }
    }
}

/// All records of a group. `None`: some bytes are not those of a record.
fn decode_group(mut bytes: &[u8]) -> Option<Vec<PlanRecord>> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        records.push(PlanRecord::decode(&mut bytes)?);
    }
    Some(records)
}

fn damaged() -> io::Error {
    io::Error::other("the batch journal is damaged")
}

fn too_large() -> io::Error {
    let message = format!("a record is longer than {MAX_GROUP} bytes");
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

fn busy_failure(path: &Path) -> Failure {
    Failure::destination_busy(format!(
        "the same copy runs already (its journal is {})",
        path.display()
    ))
}

#[cfg(test)]
mod tests;
