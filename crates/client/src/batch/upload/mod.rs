//! A destination that a storage stores by its name: under a partial name until it is whole.

use std::sync::{Arc, Mutex, PoisonError};

use data::job::TransferControl;
use proto::listing::EntryKind;
use proto::ranges::RangeSet;

use super::destination_state::DestinationState;
use super::{BatchContext, PlannedFile};
use crate::answers::SourceFacts;
use crate::journal;
use crate::location::StorageId;
use crate::lock_file::LockFile;
use crate::partial::{lock_remote_destination, partial_path, upload_journal_path};
use crate::storage::contract::{AvailableChecksums, Storage};
use crate::transfer::TransferConfirmation;
use crate::{CopyFailure, Exit};

mod rename;
mod stored_bytes;

/// Smaller files are not worth looking at what a lost attempt has stored.
const RESUMABLE: u64 = 1 << 20;

/// The destination on a server, over all attempts.
pub(super) struct StorageDestination<'a> {
    pub(super) id: StorageId,
    /// The name that it will have.
    path: &'a [u8],
    /// The name that it has until then; `None` where the server does not rename.
    aside: Option<Vec<u8>>,
    /// A whole and verified file under its partial name, which the server would not rename: it goes only
    /// when the file stands verified under its own name.
    kept: Option<Vec<u8>>,
    /// The file that had the final name before; it was moved out of the way.
    replaced: Option<Vec<u8>>,
    /// For messages.
    pub(super) shown: String,
    /// The storage's word says which bytes are safe there.
    pub(super) standing: DestinationState,
    /// Reported by the server as stored in the running attempt.
    pub(super) marked: Arc<Mutex<RangeSet>>,
    /// Bytes are stored strictly in order: the remote size tells what is there.
    in_order: bool,
    /// The next attempt can go on from the bytes that the last one left.
    goes_on: bool,
    /// The last attempt, if its bytes came from here.
    control: Option<Arc<TransferControl>>,
    /// The last attempt broke off, which leaves more at the server than it told.
    cut: bool,
    /// The server refused what it had stored, in this run or before: its sums are of what its memory
    /// shows, which its disk may not hold.
    refused: bool,
    /// The lock on what this machine knows of the destination.
    owned: Option<LockFile>,
    /// What an earlier run left has been looked at.
    prepared: bool,
    /// A checksum of the whole will be compared at the end.
    has_sum: bool,
}

/// How putting a file in place ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UploadFinish {
    /// It has its name.
    InPlace,
    /// The server does not rename: the file must be stored anew under its own name.
    StoreDirectly,
}

impl<'a> StorageDestination<'a> {
    /// Nothing done yet.
    pub(super) fn new(ctx: &BatchContext, id: StorageId, path: &'a [u8], shown: String) -> Self {
        Self {
            aside: ctx.pool.renames(&id).then(|| partial_path(path)),
            id,
            path,
            kept: None,
            replaced: None,
            shown,
            standing: DestinationState::default(),
            marked: Arc::default(),
            in_order: false,
            goes_on: true,
            control: None,
            cut: false,
            refused: false,
            owned: None,
            prepared: false,
            has_sum: false,
        }
    }

    /// Makes this the only copy of this account on this machine to the destination, over all attempts:
    /// journals are its own, and servers that let two uploads of a file mix get one at a time.
    pub(super) fn own(&mut self, item: &PlannedFile) -> Result<(), CopyFailure> {
        if self.owned.is_none() {
            let destination = &item.destination;
            self.owned = lock_remote_destination(&destination.identity_key(), &self.shown)?;
        }
        Ok(())
    }

    /// Where the bytes are stored.
    pub(super) fn store_path(&self) -> Vec<u8> {
        self.aside.clone().unwrap_or_else(|| self.path.to_vec())
    }

    /// What is safe now.
    pub(super) fn safe(&self) -> impl Fn() -> RangeSet + Clone + Send + Sync + use<> {
        let (have, marked) = (self.standing.have.clone(), Arc::clone(&self.marked));
        move || {
            let mut safe = have.clone();
            safe.extend(&marked.lock().unwrap_or_else(PoisonError::into_inner));
            safe
        }
    }

    /// Whether what an attempt left can be gone on with, from any byte.
    pub(super) fn goes_on(&mut self, goes_on: bool) {
        self.goes_on = goes_on;
    }

    /// An attempt begins; `passing`: its bytes pass this machine.
    pub(super) fn begin(&mut self, control: &Arc<TransferControl>, passing: bool) {
        self.control = passing.then(|| Arc::clone(control));
    }

    /// The checksums that the storage will have of the stored file.
    pub(super) async fn sums(
        &self,
        session: &mut dyn Storage,
    ) -> Result<AvailableChecksums, CopyFailure> {
        match session.available_checksums(&self.store_path()).await {
            // It is not there yet.
            Err(missing) if missing.exit == Exit::NotFound => Ok(AvailableChecksums::default()),
            sums => sums,
        }
    }

    /// Whether an interrupted attempt leaves a file whose size tells what is there.
    pub(super) fn size_tells(&self) -> bool {
        self.in_order && self.control.is_some()
    }

    /// An attempt ended well: all of `size` bytes are there, and the servers said so.
    pub(super) fn confirmed(&mut self, size: Option<u64>) {
        self.standing.in_vain = false;
        self.cut = false;
        self.control = None;
        self.marked = Arc::default();
        if let Some(size) = size {
            self.standing.have.insert(0, size);
        }
    }

    /// An attempt failed: decides what of it counts.
    pub(super) fn settle(
        &mut self,
        failure: &CopyFailure,
        said: &TransferConfirmation,
        size: Option<u64>,
    ) {
        if failure.transient
            && let Some(journal) = &mut self.standing.journal
        {
            journal.mark_server_lost();
        }
        self.cut = failure.transient;
        if said.was_refused() {
            self.refused = true;
            if let Some(journal) = &mut self.standing.journal {
                journal.mark_server_refused();
            }
        }
        let marked = std::mem::take(&mut self.marked);
        let marked = marked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let moved = self.control.as_ref().map_or(0, |control| control.bytes());
        let all_sent = size.is_some_and(|size| self.standing.have.byte_count() + moved >= size);
        // The server's file may be whole, but a 226 is missing; or the next attempt begins at byte 0.
        self.standing.in_vain = (all_sent && !self.has_sum) || !self.goes_on;
        self.weigh(&marked, said, size);
    }

    fn weigh(&mut self, arrived: &RangeSet, said: &TransferConfirmation, size: Option<u64>) {
        let judged = self.has_sum;
        if let Some(safe) = self.standing.weigh(arrived, said, size, judged) {
            self.take_back(safe);
        }
    }

    /// Nothing but `safe` counts any more, whatever the length of the file at the server.
    fn take_back(&mut self, safe: RangeSet) {
        self.in_order = false;
        self.standing.take_back(safe);
    }

    /// What has the final name, if `--resume` asks for it to be looked at: it has this size, and
    /// nothing unfinished is beside it.
    pub(super) async fn in_place(
        &self,
        ctx: &BatchContext,
        size: Option<u64>,
        session: &mut dyn Storage,
    ) -> Result<Option<SourceFacts>, CopyFailure> {
        if !ctx.options.resume || self.prepared || self.standing.distrust || size.is_none() {
            return Ok(None);
        }
        let there = facts(session, self.path).await?;
        let Some(there) = there.filter(|there| there.size == size) else {
            return Ok(None);
        };
        if let Some(aside) = &self.aside
            && facts(session, aside).await?.is_some()
        {
            return Ok(None);
        }
        Ok(Some(there))
    }

    /// The path that the file has when it is whole.
    pub(super) fn path(&self) -> &'a [u8] {
        self.path
    }

    /// What is in place is what was to be copied: a journal of it is of no use.
    pub(super) fn found_in_place(
        &self,
        ctx: &BatchContext,
        item: &PlannedFile,
        source: &str,
        size: Option<u64>,
    ) {
        if let Some(path) = upload_journal_path(source, &item.destination.identity_key()) {
            journal::remove_file_and_temporary(&path);
        }
        ctx.started(item, size, size.unwrap_or(0));
    }

    /// Gives up what was resumed; `false` when nothing was.
    pub(super) fn forget_resumed(&mut self) -> bool {
        let forgotten = self.standing.forget_resumed();
        if forgotten {
            self.prepared = false;
            self.marked = Arc::default();
        }
        forgotten
    }

    /// Compares the size at the server with `expected`; `false` when the server does not tell it.
    pub(super) async fn check_size(
        &self,
        session: &mut dyn Storage,
        expected: u64,
    ) -> Result<bool, CopyFailure> {
        let entry = session.stat(&self.store_path()).await?;
        match entry.size {
            Some(size) if size != expected => Err(CopyFailure::new(
                Exit::Integrity,
                format!(
                    "{}: {size} bytes arrived of {expected}; the copy keeps its partial name",
                    self.shown
                ),
            )),
            told => Ok(told.is_some()),
        }
    }

    /// Passes the result of a verification on; after a mismatch, or where nothing proves what a server
    /// refused, nothing is left to resume.
    pub(super) fn judged<T>(&mut self, verified: Result<T, CopyFailure>) -> Result<T, CopyFailure> {
        match &verified {
            Err(failure) if failure.exit == Exit::Integrity => self.standing.forget_journal(),
            Err(failure) if self.standing.disputed && failure.exit == Exit::Protocol => {
                self.take_back(RangeSet::new());
            }
            _ => {}
        }
        verified
    }
}

/// Facts of a remote file; `None` when there is none or it cannot be seen.
async fn facts(session: &mut dyn Storage, path: &[u8]) -> Result<Option<SourceFacts>, CopyFailure> {
    match session.stat(path).await {
        Ok(entry) if entry.kind == EntryKind::File => Ok(Some(SourceFacts::from_entry(&entry))),
        Err(failure) if failure.transient => Err(failure),
        Ok(_) | Err(_) => Ok(None),
    }
}
