//! How an uploaded file gets its name.

use std::sync::Arc;

use proto::printable::printable;
use proto::ranges::RangeSet;
use proto::timestamp::Timestamp;

use super::super::BatchContext;
use super::{StorageDestination, UploadFinish, facts};
use crate::answers::{RefusedRenameStep, RenameFailure};
use crate::storage::contract::Storage;
use crate::{CopyFailure, Exit};

impl StorageDestination<'_> {
    /// Gives the whole and verified file its time, if the server can, and its name. `again`: the source
    /// can be read again, so that the file may be stored anew where the server does not rename.
    pub(in super::super) async fn finish(
        &mut self,
        ctx: &BatchContext,
        session: &mut dyn Storage,
        modified: Option<Timestamp>,
        again: bool,
    ) -> Result<UploadFinish, CopyFailure> {
        let Some(stored) = self.aside.clone() else {
            self.date(session, modified).await?;
            let kept = self.kept.take();
            self.tidy(session, kept).await;
            self.standing.forget_journal();
            return Ok(UploadFinish::InPlace);
        };
        let Err(refusal) = self.rename(session, &stored, modified).await else {
            let replaced = self.replaced.take();
            self.tidy(session, replaced).await;
            self.standing.forget_journal();
            return Ok(UploadFinish::InPlace);
        };
        let RenameFailure {
            failure,
            refused_step: refused,
        } = refusal;
        if failure.transient {
            return Err(failure);
        }
        if again && refused != RefusedRenameStep::RnfrRefused && is_impossible(&failure) {
            // Under this name it can never be; the source was there and unchanged a moment ago.
            self.tidy(session, Some(stored)).await;
            return Err(failure);
        }
        // A partial file that is gone was somebody else's doing; so is a name that stays taken.
        let gone = refused == RefusedRenameStep::RnfrRefused && failure.exit == Exit::NotFound;
        if !again || gone || refused == RefusedRenameStep::NewNameMayExist {
            self.kept = Some(stored).filter(|_| !gone);
            return Err(failure);
        }
        self.store_directly(ctx, stored, &failure);
        Ok(UploadFinish::StoreDirectly)
    }

    /// Adds to a failure where the whole and verified file is, if it has not got its name.
    pub(in super::super) fn explained(&self, mut failure: CopyFailure) -> CopyFailure {
        if failure.transient {
            return failure;
        }
        if let Some(kept) = &self.kept {
            let kept = printable(kept);
            failure.message += &format!(
                "; everything arrived and was verified: it is kept there as {kept}, rename it by hand"
            );
        }
        if let Some(old) = &self.replaced {
            let old = printable(old);
            failure.message += &format!("; what had the name before is kept as {old}");
        }
        failure
    }

    /// Deletes a file of this copy that is of no use any more. The copy is whole and in place: that
    /// one stays is no failure of it.
    async fn tidy(&self, session: &mut dyn Storage, path: Option<Vec<u8>>) {
        if let Some(path) = path {
            let _ = session.remove(&path).await;
        }
    }

    /// The time of a file that has its name.
    async fn date(
        &self,
        session: &mut dyn Storage,
        modified: Option<Timestamp>,
    ) -> Result<(), CopyFailure> {
        let Some(time) = modified.filter(|_| session.capabilities().sets_time) else {
            return Ok(());
        };
        match session.set_modified(self.path, time).await {
            Err(failure) if failure.transient => Err(failure),
            _ => Ok(()),
        }
    }

    /// The time, RNFR and RNTO. Where RNTO does not replace, the old file is moved out of the way, and
    /// back if that did not help: nothing is deleted before the new file has the name.
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
            && !refusal.failure.transient;
        if !taken {
            return Err(refusal);
        }
        if facts(session, self.path).await?.is_none() {
            // Nothing is there that could be in the way.
            return Err(RenameFailure {
                refused_step: RefusedRenameStep::RntoRefused,
                ..refusal
            });
        }
        let old = [stored, b".old"].concat();
        if facts(session, &old).await?.is_some() {
            // It may be the only one of its kind.
            return Err(in_the_way(refusal, &old));
        }
        match session.rename(self.path, &old, None).await {
            Err(lost) if lost.failure.transient => return Err(lost),
            Err(_) => return Err(refusal),
            Ok(()) => self.replaced = Some(old.clone()),
        }
        let Err(RenameFailure { failure, .. }) = session.rename(stored, self.path, None).await
        else {
            return Ok(());
        };
        if !failure.transient && session.rename(&old, self.path, None).await.is_ok() {
            self.replaced = None;
        }
        Err(RenameFailure {
            failure,
            refused_step: RefusedRenameStep::NewNameMayExist,
        })
    }

    /// From here on the bytes are stored under the final name; what is whole under the partial name
    /// stays until they are there.
    fn store_directly(&mut self, ctx: &BatchContext, stored: Vec<u8>, refusal: &CopyFailure) {
        ctx.pool.forbid_rename(&self.id);
        ctx.warn(format!(
            "{} refuses to rename ({}): files are stored under their final names, also while they \
             are unfinished",
            self.id, refusal.message
        ));
        self.aside = None;
        self.kept = Some(stored);
        self.standing.have = RangeSet::new();
        self.marked = Arc::default();
        self.standing.resumed = false;
    }
}

/// Adds to a refusal that `old`, an earlier copy's, keeps what has the name from being moved out of the way.
fn in_the_way(mut refusal: RenameFailure, old: &[u8]) -> RenameFailure {
    let old = printable(old);
    refusal.failure.message += &format!(
        "; {old}, which an earlier copy moved out of the way, is there: look at it, and remove or rename it"
    );
    refusal
}

/// Whether the server's file system has no room for such a name.
fn is_impossible(failure: &CopyFailure) -> bool {
    failure.message.to_lowercase().contains("name too long")
}
