//! A destination that a storage stores by name: under a partial name until it is complete.

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
use crate::partial::{lock_remote_destination, partial_path, upload_journal};
use crate::storage::capabilities::AvailableChecksums;
use crate::storage::contract::Storage;
use crate::transfer::TransferConfirmation;
use crate::{CopyFailure, FailureKind};
use naming::RefusedName;

mod naming;
mod rename;
mod stored_bytes;

/// Below this size, bytes left by a lost attempt are not examined.
const MIN_RESUMABLE: u64 = 1 << 20;

/// The destination at a storage, over all attempts.
pub(super) struct StorageDestination<'a> {
    pub(super) id: StorageId,
    /// Final path.
    path: &'a [u8],
    /// Path until the file is complete. `None`: the final path from the start.
    partial_path: Option<Vec<u8>>,
    /// The partial path was not accepted, and it is not known yet whether the final one is.
    refused_name: Option<RefusedName>,
    /// Path of a complete and verified file that the server would not rename. It is removed only
    /// after the file is verified under its final name.
    verified_partial: Option<Vec<u8>>,
    /// Path of the previous file with the final name, after it was moved out of the way.
    moved_aside: Option<Vec<u8>>,
    /// Name for messages.
    pub(super) display_name: String,
    /// Safe ranges here are those that the storage reported.
    pub(super) state: DestinationState,
    /// Ranges that the server reported as stored in the running attempt.
    pub(super) stored_ranges: Arc<Mutex<RangeSet>>,
    /// Bytes are stored strictly in order, so the remote size shows which bytes are there.
    in_order: bool,
    /// The next attempt can continue after the bytes of the last one.
    can_resume: bool,
    /// Control block of the last attempt, if its bytes passed through this machine.
    control: Option<Arc<TransferControl>>,
    /// The last attempt lost its connection, so the server may hold more than it reported.
    connection_lost: bool,
    /// The server refused to store bytes, in this run or before. Its checksums cover its page
    /// cache, which may show what its disk does not hold.
    server_refused: bool,
    /// Lock on this machine's records of the destination.
    lock_file: Option<LockFile>,
    /// Leftovers of an earlier run have been examined.
    prepared: bool,
    /// An attempt has stored the file.
    has_stored: bool,
    /// A checksum of the whole file will be compared at the end.
    has_checksum: bool,
}

/// Result of giving a file its final name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UploadFinish {
    /// The file has its final name.
    InPlace,
    /// The file was not renamed. It must be stored again under its final name.
    StoreDirectly,
}

impl<'a> StorageDestination<'a> {
    /// A destination that is not examined yet.
    pub(super) fn new(
        ctx: &BatchContext,
        id: StorageId,
        path: &'a [u8],
        display_name: String,
    ) -> Self {
        // A query goes with every request: a signed URL is valid for one name only.
        let is_named = ctx.options.in_place || id.has_query();
        Self {
            partial_path: (!is_named).then(|| partial_path(path)),
            refused_name: None,
            id,
            path,
            verified_partial: None,
            moved_aside: None,
            display_name,
            state: DestinationState::default(),
            stored_ranges: Arc::default(),
            in_order: false,
            can_resume: true,
            control: None,
            connection_lost: false,
            server_refused: false,
            lock_file: None,
            prepared: false,
            has_stored: false,
            has_checksum: false,
        }
    }

    /// Takes the lock for the destination, over all attempts: one copy per account and machine. The
    /// journal belongs to the holder, and a server that would mix two uploads of one file receives
    /// only one.
    pub(super) fn lock(&mut self, item: &PlannedFile) -> Result<(), CopyFailure> {
        if self.lock_file.is_none() {
            let destination = &item.destination;
            self.lock_file =
                lock_remote_destination(&destination.identity_key(), &self.display_name)?;
        }
        Ok(())
    }

    /// Path under which the bytes are stored.
    pub(super) fn store_path(&self) -> Vec<u8> {
        self.partial_path
            .clone()
            .unwrap_or_else(|| self.path.to_vec())
    }

    /// A function that returns the ranges that are safe now.
    pub(super) fn safe_ranges(&self) -> impl Fn() -> RangeSet + Clone + Send + Sync + use<> {
        let (completed, reported) = (self.state.safe.clone(), Arc::clone(&self.stored_ranges));
        move || {
            let mut safe = completed.clone();
            safe.extend(&reported.lock().unwrap_or_else(PoisonError::into_inner));
            safe
        }
    }

    /// Sets whether the next attempt can continue after the bytes of the last one, from any byte.
    pub(super) fn set_can_resume(&mut self, can_resume: bool) {
        self.can_resume = can_resume;
    }

    /// Begins an attempt. `local`: its bytes pass through this machine.
    pub(super) fn begin_attempt(&mut self, control: &Arc<TransferControl>, local: bool) {
        self.control = local.then(|| Arc::clone(control));
    }

    /// The checksums that the storage can provide of the stored file.
    pub(super) async fn available_checksums(
        &self,
        session: &mut dyn Storage,
    ) -> Result<AvailableChecksums, CopyFailure> {
        // A file that is there before the first store is replaced.
        if !self.has_stored && !session.capabilities().resumes_uploads {
            return Ok(AvailableChecksums::default());
        }
        match session.available_checksums(&self.store_path()).await {
            // The file does not exist yet.
            Err(missing) if missing.is_missing() => Ok(AvailableChecksums::default()),
            checksums => checksums,
        }
    }

    /// Whether an interrupted attempt leaves a file whose size shows which bytes are there.
    pub(super) fn length_shows_progress(&self) -> bool {
        self.in_order && self.control.is_some()
    }

    /// Records a successful attempt: all of `size` bytes are stored, and the servers confirmed
    /// them.
    pub(super) fn attempt_succeeded(&mut self, size: Option<u64>) {
        self.state.attempt_wasted = false;
        self.has_stored = true;
        self.connection_lost = false;
        self.control = None;
        self.stored_ranges = Arc::default();
        if let Some(size) = size {
            self.state.safe.insert(0, size);
        }
    }

    /// Records a failed attempt and decides which of its bytes count.
    pub(super) fn attempt_failed(
        &mut self,
        failure: &CopyFailure,
        confirmation: &TransferConfirmation,
        size: Option<u64>,
    ) {
        if failure.may_retry()
            && let Some(journal) = &mut self.state.journal
        {
            // The server may have crashed, so its unconfirmed bytes need proof in a later run.
            journal.mark_server_lost();
        }
        self.connection_lost = failure.may_retry();
        if confirmation.was_refused() {
            self.server_refused = true;
            if let Some(journal) = &mut self.state.journal {
                journal.mark_server_refused();
            }
        }
        let reported = std::mem::take(&mut self.stored_ranges);
        let reported = reported
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let moved = self.control.as_ref().map_or(0, |control| control.bytes());
        let all_sent = size.is_some_and(|size| self.state.safe.byte_count() + moved >= size);
        // Either the server's file may be complete and only the 226 is missing, or the next attempt
        // starts at byte 0.
        self.state.attempt_wasted = (all_sent && !self.has_checksum) || !self.can_resume;
        self.record_failed_attempt(&reported, confirmation, size);
    }

    fn record_failed_attempt(
        &mut self,
        stored: &RangeSet,
        confirmation: &TransferConfirmation,
        size: Option<u64>,
    ) {
        let has_checksum = self.has_checksum;
        if let Some(safe) =
            self.state
                .record_failed_attempt(stored, confirmation, size, has_checksum)
        {
            self.retract_to(safe);
        }
    }

    /// Keeps only the ranges `safe`, whatever the length of the file at the server.
    fn retract_to(&mut self, safe: RangeSet) {
        // The length of the server's file includes bytes that no longer count.
        self.in_order = false;
        self.state.retract_to(safe);
    }

    /// Takes ranges that differ from the source out of the safe ones.
    pub(super) fn remove_wrong(&mut self, wrong: &RangeSet) {
        // The length of the server's file includes them.
        self.in_order = false;
        self.state.remove_wrong(wrong, &RangeSet::new());
    }

    /// Whether an attempt can begin after any bytes of the stored file.
    pub(super) fn can_resume(&self) -> bool {
        self.can_resume
    }

    /// With `--resume`: facts of the file with the final name, if it has the right size and no
    /// partial file is beside it.
    pub(super) async fn file_in_place(
        &self,
        ctx: &BatchContext,
        size: Option<u64>,
        session: &mut dyn Storage,
    ) -> Result<Option<SourceFacts>, CopyFailure> {
        if !ctx.options.resume || self.prepared || self.state.ignore_leftovers || size.is_none() {
            return Ok(None);
        }
        let existing = remote_file_facts(session, self.path).await?;
        let Some(existing) = existing.filter(|existing| existing.size == size) else {
            return Ok(None);
        };
        // A partial file beside it means that a later copy of the same name did not finish.
        match &self.partial_path {
            Some(aside) => match session.stat(aside).await {
                Err(failure) if failure.may_retry() => Err(failure),
                Err(failure) if failure.is_missing() => Ok(Some(existing)),
                // There is one, or there may be.
                _ => Ok(None),
            },
            None => Ok(Some(existing)),
        }
    }

    /// The final path.
    pub(super) fn path(&self) -> &'a [u8] {
        self.path
    }

    /// The file with the final name is the wanted copy. Removes its journal.
    pub(super) fn confirm_in_place(
        &self,
        ctx: &BatchContext,
        item: &PlannedFile,
        source: &str,
        size: Option<u64>,
    ) {
        if let Some(journal) = upload_journal(source, &item.destination.identity_key()) {
            journal::remove_file_and_temporary(&journal);
        }
        ctx.report_started(item, size, size.unwrap_or(0));
    }

    /// See [`DestinationState::start_over`].
    pub(super) fn start_over(&mut self, differs: bool) -> bool {
        let forgotten = self.state.start_over(differs);
        if forgotten {
            self.prepared = false;
            self.stored_ranges = Arc::default();
        }
        forgotten
    }

    /// Compares the size at the server with `expected`. Returns `false` if the server does not
    /// report a size.
    pub(super) async fn check_size(
        &self,
        session: &mut dyn Storage,
        expected: u64,
    ) -> Result<bool, CopyFailure> {
        let entry = match session.stat(&self.store_path()).await {
            Err(failure) if failure.may_retry() || failure.is_missing() => {
                return Err(failure);
            }
            // A drop box shows nothing of what it has stored.
            Err(_) => return Ok(false),
            Ok(entry) => entry,
        };
        match entry.size {
            Some(size) if size != expected => Err(CopyFailure::about(
                FailureKind::Integrity,
                &self.display_name,
                format_args!("{size} of {expected} bytes arrived; the copy keeps its partial name"),
            )),
            size => Ok(size.is_some()),
        }
    }

    /// Passes on the result of a verification. After a mismatch, or when nothing proves the bytes
    /// that a server refused, nothing is left to resume.
    pub(super) fn after_verification<T>(
        &mut self,
        verified: Result<T, CopyFailure>,
    ) -> Result<T, CopyFailure> {
        match &verified {
            Err(failure) if failure.kind() == FailureKind::Integrity => self.state.remove_journal(),
            Err(failure) if self.state.unconfirmed && failure.kind() == FailureKind::Protocol => {
                self.retract_to(RangeSet::new());
            }
            _ => {}
        }
        verified
    }
}

/// Facts of a remote file. `None` if it does not exist or is not visible.
async fn remote_file_facts(
    session: &mut dyn Storage,
    path: &[u8],
) -> Result<Option<SourceFacts>, CopyFailure> {
    match session.stat(path).await {
        Ok(entry) if entry.kind == EntryKind::File => Ok(Some(SourceFacts::from_entry(&entry))),
        Err(failure) if failure.may_retry() => Err(failure),
        Ok(_) | Err(_) => Ok(None),
    }
}
