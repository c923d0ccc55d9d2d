//! The part of a file that is at the server before an attempt begins.

use std::sync::Arc;

use proto::ranges::RangeSet;

use super::super::block_proof::{leave_end, prove};
use super::super::checksums::{ChecksumEndpoint, partial_algorithm, spots_agree};
use super::super::resume::{PartialLeftover, is_all, usable};
use super::super::{BatchContext, PlannedFile, disk};
use super::{RESUMABLE, StorageDestination, facts};
use crate::CopyFailure;
use crate::journal::{self, CopyIdentity, StoredRanges};
use crate::partial::upload_journal_path;
use crate::storage::contract::{AvailableChecksums, Storage};
use crate::transfer::TransferConfirmation;
use crate::verify::Verification;

impl StorageDestination<'_> {
    /// Before each attempt: finds out what is safe. The first time that is what an earlier run
    /// left, if `--resume` asks for it; then what this run has stored.
    pub(in super::super) async fn prepare(
        &mut self,
        (ctx, item, check): (&BatchContext, &PlannedFile, Verification),
        mut identity: CopyIdentity,
        source: (&mut ChecksumEndpoint<'_>, &AvailableChecksums),
        session: &mut dyn Storage,
    ) -> Result<(), CopyFailure> {
        session.check_path(self.path)?;
        self.has_sum = check.algorithm().is_some();
        if self.prepared {
            return self
                .take_stock(identity.copy_length(), source, session)
                .await;
        }
        let wanted =
            ctx.options.resume && !self.standing.distrust && self.aside.is_some() && self.goes_on;
        let size = identity.copy_length();
        let journal = upload_journal_path(&identity.source, &identity.destination);
        let mut length = None;
        let before = journal.as_deref().and_then(journal::load);
        self.refused |= wanted && before.is_some_and(|found| found.refused);
        if wanted {
            length = self.partial_length(session).await?;
            self.standing.have = self
                .leftover(
                    ctx,
                    &identity,
                    (length, journal.as_deref()),
                    source,
                    session,
                )
                .await?;
        }
        self.standing.resumed = !self.standing.have.is_empty();
        self.refused &= self.standing.resumed;
        identity.in_order &= !self.standing.resumed || is_all(&self.standing.have, length);
        self.in_order = identity.in_order;
        let from = self
            .standing
            .resumed
            .then(|| StoredRanges::safe_only(self.standing.have.clone()));
        // Without a place for it, the copy goes on without a journal.
        self.standing.journal = match journal.filter(|_| self.goes_on) {
            Some(path) => disk::journal_of_upload(path, identity, from).await?,
            None => None,
        };
        if let Some(journal) = self.standing.journal.as_mut().filter(|_| self.refused) {
            journal.mark_server_refused();
        }
        if !self.standing.resumed {
            self.clear_way(session, size).await?;
        }
        self.prepared = true;
        ctx.started(item, size, self.standing.have.byte_count());
        Ok(())
    }

    /// A leftover that is not used must not be mistaken later for what this run has stored: where
    /// no checksum can tell them apart, it goes.
    async fn clear_way(
        &self,
        session: &mut dyn Storage,
        size: Option<u64>,
    ) -> Result<(), CopyFailure> {
        let large = size.is_none_or(|size| size >= RESUMABLE);
        let Some(aside) = self.aside.as_ref().filter(|_| large && self.in_order) else {
            return Ok(());
        };
        if !self.sums(session).await?.parts.is_empty() {
            return Ok(());
        }
        match session.remove(aside).await {
            Err(failure) if failure.transient => Err(failure),
            // Mostly there is none.
            _ => Ok(()),
        }
    }

    /// After a failed attempt of this run: what the server said it stored, or in order, how far
    /// the file has come. An attempt that moved nothing changes nothing.
    async fn take_stock(
        &mut self,
        size: Option<u64>,
        (source, sums): (&mut ChecksumEndpoint<'_>, &AvailableChecksums),
        session: &mut dyn Storage,
    ) -> Result<(), CopyFailure> {
        self.standing.have = self.safe()();
        self.marked = Arc::default();
        if !self.goes_on {
            self.standing.have = RangeSet::new();
            return Ok(());
        }
        let moved = self.control.take().map_or(0, |control| control.bytes());
        if std::mem::take(&mut self.cut) && !self.in_order {
            return self.prove_rest(size, (source, sums), session).await;
        }
        if !self.in_order || moved == 0 {
            return Ok(());
        }
        let before = self.standing.have.prefix_len();
        let path = self.store_path();
        let there = match session.stat(&path).await {
            Ok(entry) => entry.size.unwrap_or(0),
            Err(failure) if failure.transient => return Err(failure),
            Err(_) => 0,
        };
        // Anything else is not the file that this run was writing.
        self.standing.have = RangeSet::new();
        if there < RESUMABLE.max(before) || there > before.saturating_add(moved) {
            return Ok(());
        }
        let mut stored = RangeSet::new();
        stored.insert(0, there);
        let own = self.sums(session).await?;
        let mut destination = ChecksumEndpoint::Named {
            storage: session,
            path: &path,
            origin: 0,
        };
        let same = match partial_algorithm(&[sums, &own]) {
            Some(algorithm) => spots_agree(source, &mut destination, algorithm, &stored).await?,
            None => true,
        };
        if same {
            self.standing.have.insert(0, before);
            self.weigh(&stored, &TransferConfirmation::default(), size);
        }
        Ok(())
    }

    /// Out of order, the markers of a server tell less than it has stored: looks for the rest.
    async fn prove_rest(
        &mut self,
        size: Option<u64>,
        (source, sums): (&mut ChecksumEndpoint<'_>, &AvailableChecksums),
        session: &mut dyn Storage,
    ) -> Result<(), CopyFailure> {
        if self.aside.is_none() || self.refused {
            return Ok(());
        }
        let own = self.sums(session).await?;
        let Some(algorithm) = partial_algorithm(&[sums, &own]) else {
            return Ok(());
        };
        let length = self.partial_length(session).await?.unwrap_or(0);
        // What is longer is not the file that this run was writing.
        if length < RESUMABLE || size.is_none_or(|size| length > size) {
            return Ok(());
        }
        let path = self.store_path();
        let mut destination = ChecksumEndpoint::Named {
            storage: session,
            path: &path,
            origin: 0,
        };
        let told = self.standing.have.clone();
        let mut all = prove(told, length, algorithm, source, &mut destination).await?;
        if all != self.standing.have {
            leave_end(&mut all, size);
            self.standing.have.extend(&all);
        }
        Ok(())
    }

    async fn leftover(
        &self,
        ctx: &BatchContext,
        identity: &CopyIdentity,
        (length, journal): (Option<u64>, Option<&std::path::Path>),
        (source, sums): (&mut ChecksumEndpoint<'_>, &AvailableChecksums),
        session: &mut dyn Storage,
    ) -> Result<RangeSet, CopyFailure> {
        let Some(length) = length else {
            return Ok(RangeSet::new());
        };
        let path = self.store_path();
        let leftover = PartialLeftover {
            identity,
            length,
            journal,
            shown: &self.shown,
            judged: self.has_sum,
        };
        let own = self.sums(session).await?;
        let mut destination = ChecksumEndpoint::Named {
            storage: session,
            path: &path,
            origin: 0,
        };
        let mut safe = usable(ctx, &leftover, &[sums, &own], source, &mut destination).await?;
        leave_end(&mut safe, identity.copy_length());
        Ok(safe)
    }

    /// Length of what is there under the partial name, if anything is.
    async fn partial_length(&self, session: &mut dyn Storage) -> Result<Option<u64>, CopyFailure> {
        let there = facts(session, &self.store_path()).await?;
        Ok(there.and_then(|facts| facts.size).filter(|n| *n > 0))
    }
}
