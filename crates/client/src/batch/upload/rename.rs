//! Gives an uploaded file its final name.

use std::sync::Arc;

use proto::listing::EntryKind;
use proto::printable::printable;
use proto::ranges::RangeSet;
use proto::timestamp::Timestamp;

use super::super::BatchContext;
use super::naming::{OldFile, RefusedName};
use super::{StorageDestination, UploadFinish};
use crate::answers::{RefusedRenameStep, RenameFailure};
use crate::failure::Sentence;
use crate::storage::contract::Storage;
use crate::{CopyFailure, FailureKind};

impl StorageDestination<'_> {
    /// Gives the complete and verified file its time, if the server supports that, and its final
    /// name. `can_resend`: the source can be read again, so the file can be stored a second time if the
    /// server does not rename.
    pub(in super::super) async fn finish(
        &mut self,
        ctx: &BatchContext,
        session: &mut dyn Storage,
        modified: Option<Timestamp>,
        can_resend: bool,
    ) -> Result<UploadFinish, CopyFailure> {
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
    pub(in super::super) fn explain_failure(&self, mut failure: CopyFailure) -> CopyFailure {
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
    ) -> Result<(), CopyFailure> {
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

    /// From now on, stores the bytes under the final name. The complete file under the partial name
    /// stays until the new one is complete.
    fn store_directly(&mut self, stored: Vec<u8>, refusal: CopyFailure, is_of_file: bool) {
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
