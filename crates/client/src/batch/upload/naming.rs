//! The name under which a file is stored. It is a partial one until the file is complete, unless the storage gives no
//! file its name later.

use std::sync::Arc;

use proto::listing::EntryKind;
use proto::ranges::RangeSet;

use super::super::BatchContext;
use super::StorageDestination;
use crate::failure::Sentence;
use crate::storage::contract::Storage;
use crate::{CopyFailure, FailureKind};

/// A file with the final name, as far as the storage shows it.
pub(super) enum OldFile {
    /// There is none.
    Missing,
    /// There is something of that name.
    Exists(EntryKind),
    /// The storage does not tell.
    Unknown,
}

/// A partial name that was refused, or that could not be changed. The final name is tried instead.
#[derive(Debug)]
pub(super) struct RefusedName {
    pub(super) refusal: CopyFailure,
    /// The refusal is about one file. It says nothing about others in the directory.
    pub(super) is_of_file: bool,
    /// The storage does not tell whether there is an old file.
    pub(super) is_unseen: bool,
}

impl StorageDestination<'_> {
    /// Before the first attempt: takes the final name at once where a partial one could not be changed to it.
    ///
    /// # Errors
    /// The final name is taken by a file that would be lost; a lost session.
    pub(super) async fn choose_name(
        &mut self,
        ctx: &BatchContext,
        session: &mut dyn Storage,
    ) -> Result<(), CopyFailure> {
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
    pub(in super::super) async fn may_use_final_name(
        &mut self,
        session: &mut dyn Storage,
        refusal: CopyFailure,
    ) -> Result<bool, CopyFailure> {
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
    pub(in super::super) fn accept_final_name(&mut self, ctx: &BatchContext) {
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
    pub(super) async fn old_file(&self, session: &mut dyn Storage) -> Result<OldFile, CopyFailure> {
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
    fn old_file_failure(&self, refusal: &CopyFailure) -> CopyFailure {
        let reason = Sentence::about(&self.display_name)
            .words(" exists and would be lost if the copy were interrupted, because ")
            .sentence(&refusal.whole());
        CopyFailure::refused(reason).advise("--in-place replaces it all the same")
    }
}

/// The failure of a copy whose partial name is refused while there is an old file. Whether the name is the reason is unknown.
fn taken_name_failure(refusal: CopyFailure) -> CopyFailure {
    refusal.remark("if only the partial name is refused, --in-place replaces the file that exists")
}
