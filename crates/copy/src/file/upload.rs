//! A destination that a storage stores by name: under a partial name until it is complete.

use std::sync::Arc;

use data::job::TransferControl;
use ftp::answers::{RefusedRenameStep, RenameFailure, SourceFacts};
use ftp::failure::Sentence;
use ftp::location::StorageId;
use ftp::transfer::TransferConfirmation;
use ftp::{Failure, FailureKind};
use parking_lot::Mutex;
use proto::listing::EntryKind;
use proto::printable::printable;
use proto::ranges::RangeSet;
use proto::timestamp::Timestamp;

use crate::batch::BatchContext;
use crate::file::block_proof::{exclude_tail, prove_blocks};
use crate::file::checksums::{
    ChecksumEndpoint, ComparableSource, common_range_algorithm, range_ends_agree,
};
use crate::file::destination_state::DestinationState;
use crate::file::left_parts::proved_parts;
use crate::file::report_started;
use crate::file::resume::{PartialLeftover, discarded, is_whole_file, usable_ranges};
use crate::file::upload_names::{OldFile, RefusedName, UploadFinish};
use crate::file::verify::{PARTIAL_NAME, Verification};
use crate::local::journal::{CopyIdentity, StoredRanges};
use crate::local::local_name::{LocalName, own_user};
use crate::local::lock_file::LockFile;
use crate::local::partial::{lock_remote_destination, partial_path, upload_journal};
use crate::local::replacement::random_token;
use crate::local::{disk, journal};
use crate::plan::PlannedFile;
use crate::storage::capabilities::AvailableChecksums;
use crate::storage::contract::Storage;

/// Below this size, bytes left by a lost attempt are not examined.
const MIN_RESUMABLE: u64 = 1 << 20;

/// The destination at a storage, over all attempts.
pub(crate) struct StorageDestination<'a> {
    pub(crate) id: StorageId,
    /// Final path.
    path: &'a [u8],
    /// Path until the file is complete. `None`: the final path from the start.
    partial_path: Option<Vec<u8>>,
    /// The partial path was not accepted, and it is not known yet whether the final one is.
    refused_name: Option<RefusedName>,
    /// Path of a complete and verified file that the server would not rename. It is removed only
    /// after the file is verified under its final name.
    verified_partial: Option<Vec<u8>>,
    /// Partial paths that a copy which was given up may still write.
    left_partials: Vec<Vec<u8>>,
    /// Path of the previous file with the final name, after it was moved out of the way.
    moved_aside: Option<Vec<u8>>,
    /// Name for messages.
    pub(crate) display_name: String,
    /// Safe ranges here are those that the storage reported.
    pub(crate) state: DestinationState,
    /// Ranges that the server reported as stored in the running attempt.
    pub(crate) stored_ranges: Arc<Mutex<RangeSet>>,
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

impl<'a> StorageDestination<'a> {
    /// A destination that is not examined yet.
    pub(crate) fn new(
        ctx: &BatchContext,
        id: StorageId,
        path: &'a [u8],
        display_name: String,
    ) -> Self {
        // A query goes with every request: a signed URL is valid for one name only.
        let is_named = ctx.options.file.in_place || id.has_query();
        Self {
            partial_path: (!is_named).then(|| partial_path(path)),
            refused_name: None,
            id,
            path,
            verified_partial: None,
            left_partials: Vec::new(),
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
    pub(crate) fn lock(&mut self, ctx: &BatchContext, item: &PlannedFile) -> Result<(), Failure> {
        if self.lock_file.is_none() {
            let destination = ctx.place_key(&item.destination);
            self.lock_file = lock_remote_destination(&destination, &self.display_name)?;
        }
        Ok(())
    }

    /// Path under which the bytes are stored.
    pub(crate) fn store_path(&self) -> Vec<u8> {
        self.partial_path
            .clone()
            .unwrap_or_else(|| self.path.to_vec())
    }

    /// A function that returns the ranges that are safe now.
    pub(crate) fn safe_ranges(&self) -> impl Fn() -> RangeSet + Clone + Send + Sync + use<> {
        let (completed, reported) = (self.state.safe.clone(), Arc::clone(&self.stored_ranges));
        move || {
            let mut safe = completed.clone();
            safe.extend(&reported.lock());
            safe
        }
    }

    /// Sets whether the next attempt can continue after the bytes of the last one, from any byte.
    pub(crate) fn set_can_resume(&mut self, can_resume: bool) {
        self.can_resume = can_resume;
    }

    /// Begins an attempt. `local`: its bytes pass through this machine.
    pub(crate) fn begin_attempt(&mut self, control: &Arc<TransferControl>, local: bool) {
        self.control = local.then(|| Arc::clone(control));
    }

    /// The checksums that the storage can provide of the stored file.
    pub(crate) async fn available_checksums(
        &self,
        session: &mut dyn Storage,
    ) -> Result<AvailableChecksums, Failure> {
        // A file that is there before the first store is replaced.
        let capabilities = session.capabilities();
        // Until then an old one has the name, or none. Those that a server computes do not depend on it.
        let may_be_there = capabilities.resumes_uploads && !capabilities.stores_whole;
        if !self.has_stored && !may_be_there && !capabilities.checksums_while_storing {
            return Ok(AvailableChecksums::default());
        }
        match session.available_checksums(&self.store_path()).await {
            // The file does not exist yet.
            Err(missing) if missing.is_missing() => Ok(AvailableChecksums::default()),
            checksums => checksums,
        }
    }

    /// Whether an interrupted attempt leaves a file whose size shows which bytes are there.
    pub(crate) fn length_shows_progress(&self) -> bool {
        self.in_order && self.control.is_some()
    }

    /// Records a successful attempt: all of `size` bytes are stored, and the servers confirmed
    /// them.
    pub(crate) fn attempt_succeeded(&mut self, size: Option<u64>) {
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
    pub(crate) fn attempt_failed(
        &mut self,
        failure: &Failure,
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
        let reported = reported.lock().clone();
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
    pub(crate) fn remove_wrong(&mut self, wrong: &RangeSet) {
        // The length of the server's file includes them.
        self.in_order = false;
        self.state.remove_wrong(wrong, &RangeSet::new());
    }

    /// Whether an attempt can begin after any bytes of the stored file.
    pub(crate) fn can_resume(&self) -> bool {
        self.can_resume
    }

    /// With `--resume`: facts of the file with the final name, if it has the right size and no
    /// partial file is beside it.
    pub(crate) async fn file_in_place(
        &self,
        ctx: &BatchContext,
        size: Option<u64>,
        session: &mut dyn Storage,
    ) -> Result<Option<SourceFacts>, Failure> {
        if !ctx.options.file.resume
            || self.prepared
            || self.state.ignore_leftovers
            || size.is_none()
        {
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
    pub(crate) fn path(&self) -> &'a [u8] {
        self.path
    }

    /// The file with the final name is the wanted copy. Removes its journal.
    pub(crate) fn confirm_in_place(
        &self,
        ctx: &BatchContext,
        item: &PlannedFile,
        source: &str,
        size: Option<u64>,
    ) {
        if let Some(journal) = upload_journal(source, &ctx.place_key(&item.destination)) {
            journal::remove_file_and_temporary(&journal);
        }
        report_started(ctx, item, size, size.unwrap_or(0));
    }

    /// See [`DestinationState::start_over`].
    pub(crate) fn start_over(&mut self, differs: bool) -> bool {
        let forgotten = self.state.start_over(differs);
        if forgotten {
            self.prepared = false;
            self.stored_ranges = Arc::default();
        }
        forgotten
    }

    /// Compares the size at the server with `expected`. Returns `false` if the server does not
    /// report a size.
    pub(crate) async fn check_size(
        &self,
        session: &mut dyn Storage,
        expected: u64,
    ) -> Result<bool, Failure> {
        let entry = match session.stat(&self.store_path()).await {
            Err(failure) if failure.may_retry() || failure.is_missing() => {
                return Err(failure);
            }
            // A drop box shows nothing of what it has stored.
            Err(_) => return Ok(false),
            Ok(entry) => entry,
        };
        match entry.size {
            Some(size) if size != expected => Err(Failure::about(
                FailureKind::Integrity,
                &self.display_name,
                format_args!("{size} of {expected} bytes arrived"),
            )
            .advise(PARTIAL_NAME)),
            size => Ok(size.is_some()),
        }
    }

    /// Passes on the result of a verification. After a mismatch, or when nothing proves the bytes
    /// that a server refused, nothing is left to resume.
    pub(crate) fn after_verification<T>(
        &mut self,
        verified: Result<T, Failure>,
    ) -> Result<T, Failure> {
        match &verified {
            Err(failure) if failure.kind() == FailureKind::Integrity => self.state.remove_journal(),
            Err(failure) if self.state.unconfirmed && failure.kind() == FailureKind::Protocol => {
                self.retract_to(RangeSet::new());
            }
            _ => {}
        }
        verified.map_err(|failure| {
            let is_wrong = failure.kind() == FailureKind::Integrity;
            match is_wrong && self.partial_path.is_none() {
                true => failure.advise("the copy has its final name: remove it, or copy again"),
                false => failure,
            }
        })
    }
}

/// Facts of a remote file. `None` if it does not exist or is not visible.
async fn remote_file_facts(
    session: &mut dyn Storage,
    path: &[u8],
) -> Result<Option<SourceFacts>, Failure> {
    match session.stat(path).await {
        Ok(entry) if entry.kind == EntryKind::File => Ok(Some(SourceFacts::from_entry(&entry))),
        Err(failure) if failure.may_retry() => Err(failure),
        Ok(_) | Err(_) => Ok(None),
    }
}

impl StorageDestination<'_> {
    /// Before the first attempt: takes the final name at once where a partial one could not be changed to it.
    ///
    /// # Errors
    /// The final name is taken by a file that would be lost; a lost session.
    pub(crate) async fn choose_name(
        &mut self,
        ctx: &BatchContext,
        session: &mut dyn Storage,
    ) -> Result<(), Failure> {
        if session.capabilities().stores_whole {
            self.partial_path = None;
        }
        if self.partial_path.is_none() {
            return Ok(());
        }
        let refusal = ctx.renames.find_refusal(&self.id, session, self.path);
        let Some(refusal) = refusal.await? else {
            return Ok(());
        };
        let is_unseen = match self.old_file(session).await? {
            OldFile::Exists(_) => return Err(self.old_file_failure(&refusal)),
            found => matches!(found, OldFile::Unknown),
        };
        self.use_final_name();
        let refused = RefusedName {
            refusal,
            is_of_file: false,
            is_unseen,
        };
        self.warn_of_final_name(ctx, &refused);
        Ok(())
    }

    /// After a store that was refused before any byte was accepted: whether the next one should try the final name. The
    /// reason may be another than the name, which shows only when the final name is refused, too.
    ///
    /// # Errors
    /// The refusal of the partial name, if the final one is refused or taken by a file that would be lost; a lost session.
    pub(crate) async fn may_use_final_name(
        &mut self,
        session: &mut dyn Storage,
        refusal: Failure,
    ) -> Result<bool, Failure> {
        // Another reason, such as a full disk, is none against the name.
        let may_be_for_the_name = matches!(
            refusal.kind(),
            FailureKind::Refused | FailureKind::NameTooLong
        );
        if !may_be_for_the_name || session.capabilities().takes_any_name {
            return Ok(false);
        }
        if let Some(first) = self.refused_name.take() {
            return Err(first.refusal);
        }
        if self.partial_path.is_none() {
            return Ok(false);
        }
        let is_unseen = match self.old_file(session).await? {
            OldFile::Exists(_) => return Err(taken_name_failure(refusal)),
            found => matches!(found, OldFile::Unknown),
        };
        self.use_final_name();
        self.refused_name = Some(RefusedName {
            refusal,
            is_of_file: false,
            is_unseen,
        });
        Ok(true)
    }

    /// The storage has accepted bytes under the final name. If it has refused the partial one, that was for the name, and it
    /// refuses the partial names of others, too.
    pub(crate) fn accept_final_name(&mut self, ctx: &BatchContext) {
        if let Some(refused) = self.refused_name.take() {
            self.warn_of_final_name(ctx, &refused);
            if !refused.is_of_file {
                ctx.renames
                    .refused_beside(&self.id, self.path, &refused.refusal);
            }
        }
    }

    /// From now on, stores the bytes under the final name.
    fn use_final_name(&mut self) {
        self.partial_path = None;
        self.state.safe = RangeSet::new();
        self.state.unconfirmed = false;
        self.state.resumed = false;
        self.stored_ranges = Arc::default();
        self.server_refused = false;
    }

    /// The file that would be lost: its old content is gone when the first byte arrives. This costs a round trip, so it is
    /// asked only where the final name is about to be used.
    pub(crate) async fn old_file(&self, session: &mut dyn Storage) -> Result<OldFile, Failure> {
        match session.stat(self.path).await {
            Ok(entry) => Ok(OldFile::Exists(entry.kind)),
            Err(failure) if failure.may_retry() => Err(failure),
            Err(failure) if failure.is_missing() => Ok(OldFile::Missing),
            Err(_) => Ok(OldFile::Unknown),
        }
    }

    fn warn_of_final_name(&self, ctx: &BatchContext, refused: &RefusedName) {
        if refused.is_unseen {
            ctx.warn(format!(
                "{} does not show what it stores: a file of the same name is replaced unseen",
                self.id
            ));
        }
        let files = match refused.is_of_file {
            true => format!("{} is stored under its final name", self.display_name),
            false => format!("files at {} are stored under their final names", self.id),
        };
        ctx.warn(format!(
            "{files}, even while unfinished: {}",
            refused.refusal
        ));
    }

    /// The failure of a copy that would destroy the old file before the new one is complete.
    fn old_file_failure(&self, refusal: &Failure) -> Failure {
        let reason = Sentence::about(&self.display_name)
            .words(" exists and would be lost if the copy were interrupted, because ")
            .sentence(&refusal.whole());
        Failure::refused(reason).advise("--in-place replaces it all the same")
    }
}

/// The failure of a copy whose partial name is refused while there is an old file. Whether the name is the reason is unknown.
fn taken_name_failure(refusal: Failure) -> Failure {
    refusal.remark("if only the partial name is refused, --in-place replaces the file that exists")
}

impl StorageDestination<'_> {
    /// Gives the complete and verified file its time, if the server supports that, and its final
    /// name. `can_resend`: the source can be read again, so the file can be stored a second time if the
    /// server does not rename.
    pub(crate) async fn finish(
        &mut self,
        ctx: &BatchContext,
        session: &mut dyn Storage,
        modified: Option<Timestamp>,
        can_resend: bool,
    ) -> Result<UploadFinish, Failure> {
        let Some(stored) = self.partial_path.clone() else {
            self.set_modification_time(session, modified).await?;
            self.accept_final_name(ctx);
            let verified_partial = self.verified_partial.take();
            self.remove_leftover(session, verified_partial).await;
            self.state.remove_journal();
            return Ok(UploadFinish::InPlace);
        };
        let Err(refusal) = self.rename(session, &stored, modified).await else {
            ctx.renames.permitted(&self.id, self.path);
            let replaced = self.moved_aside.take();
            self.remove_leftover(session, replaced).await;
            for left in std::mem::take(&mut self.left_partials) {
                self.remove_leftover(session, Some(left)).await;
            }
            self.state.remove_journal();
            return Ok(UploadFinish::InPlace);
        };
        let RenameFailure {
            mut failure,
            refused_step,
        } = refusal;
        if failure.may_retry() {
            return Err(failure);
        }
        if can_resend
            && refused_step != RefusedRenameStep::RnfrRefused
            && failure.kind() == FailureKind::NameTooLong
        {
            // The file system cannot hold this name, so the copy can never succeed. The source
            // still has the data: it existed and was unchanged a moment ago.
            self.remove_leftover(session, Some(stored)).await;
            return Err(failure);
        }
        if refused_step == RefusedRenameStep::Unsupported {
            ctx.renames.unsupported(&self.id, &failure);
        }
        // Somebody else removed the partial file or holds the final name. Storing the file again
        // would not help.
        let partial_is_gone =
            refused_step == RefusedRenameStep::RnfrRefused && failure.is_missing();
        let may_be_taken = matches!(
            refused_step,
            RefusedRenameStep::NewNameMayExist | RefusedRenameStep::NewNameIsTaken
        );
        if can_resend && !partial_is_gone && !may_be_taken {
            match self.old_file(session).await? {
                OldFile::Missing => {
                    let is_of_file = refused_step != RefusedRenameStep::Unsupported;
                    self.store_directly(stored, failure, is_of_file);
                    return Ok(UploadFinish::StoreDirectly);
                }
                OldFile::Exists(EntryKind::File) => {
                    failure = failure.remark("--in-place replaces the file that exists");
                }
                OldFile::Exists(_) | OldFile::Unknown => {}
            }
        }
        self.verified_partial = Some(stored).filter(|_| !partial_is_gone);
        Err(failure)
    }

    /// Adds to a permanent failure the location of the complete and verified file that could not be
    /// renamed.
    pub(crate) fn explain_failure(&self, mut failure: Failure) -> Failure {
        if failure.may_retry() {
            return failure;
        }
        if let Some(verified_partial) = &self.verified_partial {
            let kept = "the file is complete and verified: it is kept on the server as ";
            let kept = Sentence::from(kept).name(printable(verified_partial));
            failure = failure.remark(kept.words(", rename it manually"));
        }
        if let Some(old_path) = &self.moved_aside {
            let kept = Sentence::from("the previous file is kept as ").name(printable(old_path));
            failure = failure.remark(kept);
        }
        failure
    }

    /// Deletes a file that this copy no longer needs. The copy itself is complete, so a failure to
    /// delete is ignored.
    async fn remove_leftover(&self, session: &mut dyn Storage, path: Option<Vec<u8>>) {
        if let Some(path) = path {
            let _ = session.remove(&path).await;
        }
    }

    /// Sets the modification time of a file that has its final name.
    async fn set_modification_time(
        &self,
        session: &mut dyn Storage,
        modified: Option<Timestamp>,
    ) -> Result<(), Failure> {
        let Some(time) = modified.filter(|_| session.capabilities().sets_time) else {
            return Ok(());
        };
        match session.set_modified(self.path, time).await {
            Err(failure) if failure.may_retry() => Err(failure),
            _ => Ok(()),
        }
    }

    /// Sets the time, then sends RNFR and RNTO. If RNTO does not replace an existing file, moves
    /// that file out of the way first, and moves it back if that did not help. Nothing is deleted
    /// before the new file has the final name.
    async fn rename(
        &mut self,
        session: &mut dyn Storage,
        stored: &[u8],
        modified: Option<Timestamp>,
    ) -> Result<(), RenameFailure> {
        let Err(refusal) = session.rename(stored, self.path, modified).await else {
            return Ok(());
        };
        let taken = refusal.refused_step == RefusedRenameStep::NewNameMayExist
            && !refusal.failure.may_retry();
        if !taken {
            return Err(refusal);
        }
        match session.stat(self.path).await {
            Ok(entry) if entry.kind == EntryKind::File => {}
            Err(failure) if failure.is_missing() => {
                // No existing file explains the refusal.
                return Err(RenameFailure {
                    refused_step: RefusedRenameStep::RntoRefused,
                    ..refusal
                });
            }
            // A directory stays where it is, and so does what is not shown.
            _ => return Err(refusal),
        }
        // Derived from the partial name, so it is as recognisable and short enough.
        let old_path = [stored, b".old"].concat();
        match session.stat(&old_path).await {
            Err(failure) if failure.is_missing() => {}
            Ok(_) => {
                // The file may be the only copy of its data.
                return Err(old_copy_in_the_way(refusal, &old_path));
            }
            Err(_) => return Err(refusal),
        }
        // RNTO failed on an existing name: the old file keeps its data under a new name.
        match session.rename(self.path, &old_path, None).await {
            Err(lost) if lost.failure.may_retry() => return Err(lost),
            Err(_) => return Err(refusal),
            Ok(()) => self.moved_aside = Some(old_path.clone()),
        }
        let Err(RenameFailure { failure, .. }) = session.rename(stored, self.path, None).await
        else {
            return Ok(());
        };
        if !failure.may_retry() && session.rename(&old_path, self.path, None).await.is_ok() {
            self.moved_aside = None;
        }
        Err(RenameFailure {
            failure,
            refused_step: RefusedRenameStep::NewNameMayExist,
        })
    }

    /// From now on, stores the bytes from the first one under another partial name: servers may still write what has this one.
    /// Returns whether there is another name.
    pub(crate) fn leave_partial(&mut self) -> bool {
        let Some(left) = self.partial_path.take() else {
            return false;
        };
        self.left_partials.push(left);
        let token = format!(".{:016x}", random_token());
        self.partial_path = Some(partial_path(&[self.path, token.as_bytes()].concat()));
        // It describes the file that has the usual name.
        self.state.remove_journal();
        self.retract_to(RangeSet::new());
        self.stored_ranges = Arc::default();
        true
    }

    /// From now on, stores the bytes under the final name. The complete file under the partial name
    /// stays until the new one is complete.
    fn store_directly(&mut self, stored: Vec<u8>, refusal: Failure, is_of_file: bool) {
        self.partial_path = None;
        self.refused_name = Some(RefusedName {
            refusal,
            is_of_file,
            is_unseen: false,
        });
        self.verified_partial = Some(stored);
        self.state.safe = RangeSet::new();
        self.stored_ranges = Arc::default();
        self.state.resumed = false;
    }
}

/// Adds to a refusal that `old_path`, left by an earlier copy, prevents moving the existing file out of
/// the way.
fn old_copy_in_the_way(refusal: RenameFailure, old_path: &[u8]) -> RenameFailure {
    let failure = refusal.failure.remark(Sentence::about(printable(old_path)).words(
        ", which an earlier copy moved out of the way, still exists: examine it, then remove or rename it",
    ));
    RenameFailure { failure, ..refusal }
}

impl StorageDestination<'_> {
    /// Before each attempt: finds the safe bytes. The first time these are the bytes of an earlier
    /// run, if there is a journal of it, or `--resume` asks for them; later those that this run has stored.
    pub(crate) async fn prepare(
        &mut self,
        ctx: &BatchContext,
        item: &PlannedFile,
        check: Verification,
        mut identity: CopyIdentity,
        source: ComparableSource<'_>,
        session: &mut dyn Storage,
    ) -> Result<(), Failure> {
        // Refused here, before bytes are moved, rather than at the rename.
        session.check_path(self.path)?;
        self.has_checksum = check.algorithm().is_some();
        if self.prepared {
            return self
                .find_stored_bytes(identity.copy_length(), source, session)
                .await;
        }
        self.choose_name(ctx, session).await?;
        if session.capabilities().stores_whole {
            return self
                .prepare_whole(ctx, item, &identity, source, session)
                .await;
        }
        let size = identity.copy_length();
        let name = upload_journal(&identity.source, &identity.destination);
        let mut partial_length = None;
        let journal = name.as_ref().map(|name| (name, own_user()));
        let earlier = journal.and_then(|(name, owner)| journal::load(name, owner));
        let may_resume =
            !self.state.ignore_leftovers && self.partial_path.is_some() && self.can_resume;
        let resumes = may_resume
            && !ctx.options.file.restart
            // Without a journal, the question for the file would cost each copy a round trip.
            && (ctx.options.file.resume || earlier.is_some());
        if may_resume
            && ctx.options.file.restart
            && let Some(stored) = earlier
                .as_ref()
                .map(|loaded| loaded.ranges.safe.byte_count())
            && stored > 0
        {
            ctx.warn(discarded(&self.display_name, stored));
        }
        self.server_refused |= resumes && earlier.is_some_and(|loaded| loaded.server_refused);
        if resumes {
            partial_length = self.partial_length(session).await?;
            self.state.safe = self
                .usable_leftover(ctx, &identity, partial_length, journal, source, session)
                .await?;
        }
        self.state.resumed = !self.state.safe.is_empty();
        self.server_refused &= self.state.resumed;
        identity.in_order &= !self.state.resumed || is_whole_file(&self.state.safe, partial_length);
        self.in_order = identity.in_order;
        let from = self
            .state
            .resumed
            .then(|| StoredRanges::safe_only(self.state.safe.clone()));
        // Without a directory for it, the copy runs without a journal.
        self.state.journal = match name.filter(|_| self.can_resume) {
            Some(name) => disk::upload_journal(name, identity, from).await?,
            None => None,
        };
        if let Some(journal) = self.state.journal.as_mut().filter(|_| self.server_refused) {
            journal.mark_server_refused();
        }
        if !self.state.resumed {
            self.remove_unused_leftover(session, size).await?;
        }
        self.prepared = true;
        // Reported after the leftovers are known, because the event names the resumed bytes.
        report_started(ctx, item, size, self.state.safe.byte_count());
        Ok(())
    }

    /// [`Self::prepare`] where an unfinished upload is kept by its parts: their checksums say which of them are the source's, so
    /// that no journal is needed.
    async fn prepare_whole(
        &mut self,
        ctx: &BatchContext,
        item: &PlannedFile,
        identity: &CopyIdentity,
        source: ComparableSource<'_>,
        session: &mut dyn Storage,
    ) -> Result<(), Failure> {
        let size = identity.copy_length();
        let may_resume =
            self.can_resume && !self.state.ignore_leftovers && !ctx.options.file.restart;
        if let Some(size) = size.filter(|_| may_resume) {
            self.state.safe = proved_parts(session, self.path, size, source).await?;
        }
        self.state.resumed = !self.state.safe.is_empty();
        self.prepared = true;
        report_started(ctx, item, size, self.state.safe.byte_count());
        Ok(())
    }

    /// Removes a leftover that is not used, if no checksum could later distinguish it from bytes
    /// that this run has stored.
    async fn remove_unused_leftover(
        &self,
        session: &mut dyn Storage,
        size: Option<u64>,
    ) -> Result<(), Failure> {
        let large = size.is_none_or(|size| size >= MIN_RESUMABLE);
        let Some(partial_path) = self
            .partial_path
            .as_ref()
            .filter(|_| large && self.in_order)
        else {
            return Ok(());
        };
        if !self.available_checksums(session).await?.ranges.is_empty() {
            return Ok(());
        }
        match session.remove(partial_path).await {
            Err(failure) if failure.may_retry() => Err(failure),
            // Usually there is no such file.
            _ => Ok(()),
        }
    }

    /// After a failed attempt of this run: the ranges that the server reported, or, with bytes in
    /// order, the length of the file. An attempt that moved nothing changes nothing.
    async fn find_stored_bytes(
        &mut self,
        size: Option<u64>,
        mut source: ComparableSource<'_>,
        session: &mut dyn Storage,
    ) -> Result<(), Failure> {
        self.state.safe = self.safe_ranges()();
        self.stored_ranges = Arc::default();
        if !self.can_resume {
            self.state.safe = RangeSet::new();
            return Ok(());
        }
        let moved = self.control.take().map_or(0, |control| control.bytes());
        if std::mem::take(&mut self.connection_lost) && !self.in_order {
            return self.prove_unmarked_bytes(size, source, session).await;
        }
        if !self.in_order || moved == 0 {
            return Ok(());
        }
        let safe_before = self.state.safe.prefix_len();
        let path = self.store_path();
        let length_now = match session.stat(&path).await {
            Ok(entry) => entry.size.unwrap_or(0),
            Err(failure) if failure.may_retry() => return Err(failure),
            Err(_) => 0,
        };
        // Nothing counts unless the checks below show that this run wrote the file.
        self.state.safe = RangeSet::new();
        // The file holds at most what was safe before plus what this run has sent. A shorter one than
        // `MIN_RESUMABLE` is not worth the checks.
        if length_now < MIN_RESUMABLE.max(safe_before)
            || length_now > safe_before.saturating_add(moved)
        {
            return Ok(());
        }
        let mut stored = RangeSet::new();
        stored.insert(0, length_now);
        let destination_checksums = self.available_checksums(session).await?;
        let mut destination = ChecksumEndpoint::Named {
            storage: session,
            path: &path,
            origin: 0,
        };
        let matches = match common_range_algorithm(&[source.checksums, &destination_checksums]) {
            Some(algorithm) => {
                let source = &mut source.endpoint;
                match range_ends_agree(source, &mut destination, algorithm, &stored).await {
                    Err(failure) if failure.may_retry() => return Err(failure),
                    // A checksum that cannot be had proves nothing.
                    agree => agree.unwrap_or(false),
                }
            }
            None => true,
        };
        if matches {
            self.state.safe.insert(0, safe_before);
            self.record_failed_attempt(&stored, &TransferConfirmation::default(), size);
        }
        Ok(())
    }

    /// With bytes out of order, the server has stored more than its markers named. Looks for the
    /// rest by checksums.
    async fn prove_unmarked_bytes(
        &mut self,
        size: Option<u64>,
        mut source: ComparableSource<'_>,
        session: &mut dyn Storage,
    ) -> Result<(), Failure> {
        if self.partial_path.is_none() || self.server_refused {
            return Ok(());
        }
        let destination_checksums = self.available_checksums(session).await?;
        let algorithm = common_range_algorithm(&[source.checksums, &destination_checksums]);
        let Some(algorithm) = algorithm else {
            return Ok(());
        };
        let partial_length = self.partial_length(session).await?.unwrap_or(0);
        // A longer file is not the one that this run wrote.
        if partial_length < MIN_RESUMABLE || size.is_none_or(|size| partial_length > size) {
            return Ok(());
        }
        let path = self.store_path();
        let mut destination = ChecksumEndpoint::Named {
            storage: session,
            path: &path,
            origin: 0,
        };
        let reported = self.state.safe.clone();
        let mut proved = prove_blocks(
            reported,
            partial_length,
            algorithm,
            &mut source.endpoint,
            &mut destination,
        )
        .await?;
        if proved != self.state.safe {
            exclude_tail(&mut proved, size);
            self.state.safe.extend(&proved);
        }
        Ok(())
    }

    async fn usable_leftover(
        &self,
        ctx: &BatchContext,
        identity: &CopyIdentity,
        partial_length: Option<u64>,
        journal: Option<(&LocalName, u32)>,
        mut source: ComparableSource<'_>,
        session: &mut dyn Storage,
    ) -> Result<RangeSet, Failure> {
        let Some(partial_length) = partial_length else {
            return Ok(RangeSet::new());
        };
        let path = self.store_path();
        let leftover = PartialLeftover {
            identity,
            length: partial_length,
            journal,
            display_name: &self.display_name,
            has_checksum: self.has_checksum,
        };
        let destination_checksums = self.available_checksums(session).await?;
        let mut destination = ChecksumEndpoint::Named {
            storage: session,
            path: &path,
            origin: 0,
        };
        let mut safe = usable_ranges(
            ctx,
            &leftover,
            &[source.checksums, &destination_checksums],
            &mut source.endpoint,
            &mut destination,
        )
        .await?;
        exclude_tail(&mut safe, identity.copy_length());
        Ok(safe)
    }

    /// Length of the partial file, if it exists and is not empty.
    async fn partial_length(&self, session: &mut dyn Storage) -> Result<Option<u64>, Failure> {
        let facts = remote_file_facts(session, &self.store_path()).await?;
        Ok(facts.and_then(|facts| facts.size).filter(|n| *n > 0))
    }
}
