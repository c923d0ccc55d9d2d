//! The name under which a file is stored. It is a partial one until the file is complete, unless the storage gives no
//! file its name later.

use std::sync::Arc;

use proto::ranges::RangeSet;

use super::super::BatchContext;
use super::StorageDestination;
use crate::storage::contract::Storage;
use crate::{CopyFailure, Exit};

/// A file with the final name, as far as the storage shows it.
pub(super) enum OldFile {
    /// There is none.
    Missing,
    /// There is something of that name.
    Exists,
    /// The storage does not tell.
    Unknown,
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
        match refusal.await? {
            Some(refusal) => self.use_final_name(ctx, session, &refusal).await,
            None => Ok(()),
        }
    }

    /// After a store that was refused before any byte was accepted: whether the next one should try the final name.
    ///
    /// # Errors
    /// As [`StorageDestination::choose_name`].
    pub(in super::super) async fn may_use_final_name(
        &mut self,
        ctx: &BatchContext,
        session: &mut dyn Storage,
        refusal: &CopyFailure,
    ) -> Result<bool, CopyFailure> {
        // Another reason, such as a full disk, is none against the name.
        let may_be_name = refusal.exit == Exit::Refused
            && self.partial_path.is_some()
            && !session.capabilities().takes_any_name;
        if may_be_name {
            self.use_final_name(ctx, session, refusal).await?;
            self.refused_name = Some(refusal.clone());
        }
        Ok(may_be_name)
    }

    /// From now on, stores the bytes under the final name.
    async fn use_final_name(
        &mut self,
        ctx: &BatchContext,
        session: &mut dyn Storage,
        refusal: &CopyFailure,
    ) -> Result<(), CopyFailure> {
        match self.old_file(session).await? {
            OldFile::Missing => {}
            OldFile::Unknown => ctx.warn(format!(
                "{} does not show what it stores: a file of the same name is replaced unseen",
                self.id
            )),
            OldFile::Exists => return Err(self.old_file_failure(refusal)),
        }
        self.warn_of_final_names(ctx, refusal);
        self.partial_path = None;
        self.state.safe = RangeSet::new();
        self.state.unconfirmed = false;
        self.state.resumed = false;
        self.stored_ranges = Arc::default();
        self.server_refused = false;
        Ok(())
    }

    /// The file that would be lost. Where one is replaced only when the new one is whole, there is none.
    pub(super) async fn old_file(&self, session: &mut dyn Storage) -> Result<OldFile, CopyFailure> {
        if session.capabilities().replaces_whole {
            return Ok(OldFile::Missing);
        }
        match session.stat(self.path).await {
            Ok(_) => Ok(OldFile::Exists),
            Err(failure) if failure.transient => Err(failure),
            Err(failure) if failure.exit == Exit::NotFound => Ok(OldFile::Missing),
            Err(_) => Ok(OldFile::Unknown),
        }
    }

    pub(super) fn warn_of_final_names(&self, ctx: &BatchContext, refusal: &CopyFailure) {
        ctx.warn(format!(
            "files at {} are stored under their final names, even while they are unfinished: {}",
            self.id, refusal.message
        ));
    }

    /// The failure of a copy that would destroy the old file before the new one is complete.
    fn old_file_failure(&self, refusal: &CopyFailure) -> CopyFailure {
        CopyFailure::new(
            Exit::Refused,
            format!(
                "{} exists and would be lost if the copy were interrupted, because {}; --in-place replaces it all \
                 the same",
                self.display_name, refusal.message
            ),
        )
    }
}
