//! Finds out which bytes are at the server before an attempt begins.

use std::sync::Arc;

use proto::ranges::RangeSet;

use super::super::block_proof::{exclude_tail, prove_blocks};
use super::super::checksums::{ChecksumEndpoint, common_range_algorithm, range_ends_agree};
use super::super::resume::{PartialLeftover, discarded, is_whole_file, usable_ranges};
use super::super::{BatchContext, PlannedFile, disk};
use super::{MIN_RESUMABLE, StorageDestination, remote_file_facts};
use crate::CopyFailure;
use crate::journal::{self, CopyIdentity, StoredRanges};
use crate::local_name::{LocalName, own_user};
use crate::partial::upload_journal;
use crate::storage::capabilities::AvailableChecksums;
use crate::storage::contract::Storage;
use crate::transfer::TransferConfirmation;
use crate::verify::Verification;

impl StorageDestination<'_> {
    /// Before each attempt: finds the safe bytes. The first time these are the bytes of an earlier
    /// run, if there is a journal of it, or `--resume` asks for them; later those that this run has stored.
    pub(in super::super) async fn prepare(
        &mut self,
        (ctx, item, check): (&BatchContext, &PlannedFile, Verification),
        mut identity: CopyIdentity,
        source: (&mut ChecksumEndpoint<'_>, &AvailableChecksums),
        session: &mut dyn Storage,
    ) -> Result<(), CopyFailure> {
        // Refused here, before bytes are moved, rather than at the rename.
        session.check_path(self.path)?;
        self.has_checksum = check.algorithm().is_some();
        if self.prepared {
            return self
                .find_stored_bytes(identity.copy_length(), source, session)
                .await;
        }
        self.choose_name(ctx, session).await?;
        let size = identity.copy_length();
        let name = upload_journal(&identity.source, &identity.destination);
        let mut partial_length = None;
        let journal = name.as_ref().map(|name| (name, own_user()));
        let earlier = journal.and_then(|(name, owner)| journal::load(name, owner));
        let may_resume =
            !self.state.ignore_leftovers && self.partial_path.is_some() && self.can_resume;
        let resumes = may_resume
            && !ctx.options.restart
            // Without a journal, the question for the file would cost each copy a round trip.
            && (ctx.options.resume || earlier.is_some());
        if may_resume
            && ctx.options.restart
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
                .usable_leftover(ctx, &identity, (partial_length, journal), source, session)
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
        ctx.report_started(item, size, self.state.safe.byte_count());
        Ok(())
    }

    /// Removes a leftover that is not used, if no checksum could later distinguish it from bytes
    /// that this run has stored.
    async fn remove_unused_leftover(
        &self,
        session: &mut dyn Storage,
        size: Option<u64>,
    ) -> Result<(), CopyFailure> {
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
        (source, checksums): (&mut ChecksumEndpoint<'_>, &AvailableChecksums),
        session: &mut dyn Storage,
    ) -> Result<(), CopyFailure> {
        self.state.safe = self.safe_ranges()();
        self.stored_ranges = Arc::default();
        if !self.can_resume {
            self.state.safe = RangeSet::new();
            return Ok(());
        }
        let moved = self.control.take().map_or(0, |control| control.bytes());
        if std::mem::take(&mut self.connection_lost) && !self.in_order {
            return self
                .prove_unmarked_bytes(size, (source, checksums), session)
                .await;
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
        let matches = match common_range_algorithm(&[checksums, &destination_checksums]) {
            Some(algorithm) => {
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
        (source, checksums): (&mut ChecksumEndpoint<'_>, &AvailableChecksums),
        session: &mut dyn Storage,
    ) -> Result<(), CopyFailure> {
        if self.partial_path.is_none() || self.server_refused {
            return Ok(());
        }
        let destination_checksums = self.available_checksums(session).await?;
        let Some(algorithm) = common_range_algorithm(&[checksums, &destination_checksums]) else {
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
            source,
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
        (partial_length, journal): (Option<u64>, Option<(&LocalName, u32)>),
        (source, checksums): (&mut ChecksumEndpoint<'_>, &AvailableChecksums),
        session: &mut dyn Storage,
    ) -> Result<RangeSet, CopyFailure> {
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
            &[checksums, &destination_checksums],
            source,
            &mut destination,
        )
        .await?;
        exclude_tail(&mut safe, identity.copy_length());
        Ok(safe)
    }

    /// Length of the partial file, if it exists and is not empty.
    async fn partial_length(&self, session: &mut dyn Storage) -> Result<Option<u64>, CopyFailure> {
        let facts = remote_file_facts(session, &self.store_path()).await?;
        Ok(facts.and_then(|facts| facts.size).filter(|n| *n > 0))
    }
}
