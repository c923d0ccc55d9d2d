//! Repair of a copy that differs from its source: only the bytes that differ are moved again.

use proto::ranges::RangeSet;

use super::{CopyState, FileCopy, StorageSessions};
use crate::file::checksums::{ChecksumEndpoint, common_range_algorithm};
use crate::file::destination::CopyDestination;
use crate::file::wrong_ranges::wrong_ranges;
use crate::storage::capabilities::AvailableChecksums;
use ftp::{Failure, FailureKind};
use units::show;

/// Most repairs of a copy. At one wrong packet in 100 000, each leaves one block in 500 to the next.
const MAX_REPAIRS: u32 = 4;

/// Most ranges of one transfer: a REST command names those between them, and lines are limited.
const MAX_RANGES: usize = 150;

/// Repairs of one copy, over all its attempts.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    made: u32,
    /// Ranges that differ, for the transfers after the next one.
    waiting: RangeSet,
    /// The copy differs, or may differ, and nothing shows where.
    unlocated: bool,
    /// A copy of this source was in doubt.
    was_in_doubt: bool,
}

impl Repairs {
    /// Takes note that the copy may differ from its source, and nothing shows where. Returns whether it has to be made again:
    /// for the first time, also of a pipe (`is_sequential`), which cannot take back what it has received.
    pub(super) fn doubt(&mut self, is_sequential: bool) -> bool {
        let is_first = !std::mem::replace(&mut self.was_in_doubt, true);
        self.unlocated = is_first && !is_sequential;
        is_first
    }

    /// Whether the copy differs, or may differ, and nothing shows where. Answers `true` once.
    pub(super) fn take_unlocated(&mut self) -> bool {
        std::mem::take(&mut self.unlocated)
    }
}

impl FileCopy<'_> {
    /// After a checksum mismatch: finds the bytes that differ and takes them out of the safe ranges, so that the next
    /// transfer moves them again. If all ranges agree, nothing is moved and the copy is compared once more: a checksum
    /// that is wrong by itself (a damaged reply, say) is no reason to fail.
    ///
    /// # Errors
    /// The mismatch, if it cannot be repaired or was repaired too often. A disk error that explains it. A lost
    /// connection.
    pub(super) async fn repair(
        &mut self,
        state: &mut CopyState<'_>,
        sessions: &mut StorageSessions,
        source_checksums: &AvailableChecksums,
        mismatch: Failure,
    ) -> Result<(), Failure> {
        if state.is_sequential() || self.pipe_consumed {
            return Err(mismatch);
        }
        let mismatch = match &mut state.destination {
            CopyDestination::Local(download) => download.explain_mismatch(mismatch).await,
            CopyDestination::Storage(_) => mismatch,
        };
        if mismatch.kind() != FailureKind::Integrity {
            return Err(mismatch);
        }
        if self.repairs.made >= MAX_REPAIRS {
            return Err(repaired_too_often(mismatch));
        }
        let Some(wrong) = self.find_wrong(state, sessions, source_checksums).await? else {
            self.repairs.unlocated = true;
            return Err(mismatch);
        };
        self.repairs.made += 1;
        self.send_again(state, sessions, &wrong);
        Ok(())
    }

    /// Has the next transfer move ranges that differ and did not fit into the last one. Returns `false` if there are none.
    pub(super) fn take_waiting(&mut self, state: &mut CopyState<'_>) -> bool {
        let mut portion = RangeSet::new();
        for range in self.repairs.waiting.iter().take(MAX_RANGES) {
            portion.insert(range.start, range.end);
        }
        for range in portion.iter() {
            self.repairs.waiting.remove(range.start, range.end);
        }
        state.destination.remove_wrong(&portion);
        !portion.is_empty()
    }

    /// The ranges that differ. `None` if the ends cannot compare ranges, or a transfer cannot move single ones.
    async fn find_wrong(
        &self,
        state: &CopyState<'_>,
        sessions: &mut StorageSessions,
        source_checksums: &AvailableChecksums,
    ) -> Result<Option<RangeSet>, Failure> {
        let StorageSessions { from, to } = sessions;
        let copy_checksums = state.destination.available_checksums(&mut **to).await?;
        let algorithm = common_range_algorithm(&[source_checksums, &copy_checksums]);
        let (Some(size), Some(algorithm)) = (state.range.size, algorithm) else {
            return Ok(None);
        };
        let store_path;
        let mut copy = match &state.destination {
            CopyDestination::Local(download) => match download.reader() {
                Some(source) => ChecksumEndpoint::Open { source, origin: 0 },
                None => return Ok(None),
            },
            CopyDestination::Storage(upload) if !upload.can_resume() => return Ok(None),
            CopyDestination::Storage(upload) => {
                store_path = upload.store_path();
                ChecksumEndpoint::Named {
                    storage: &mut **to,
                    path: &store_path,
                    origin: 0,
                }
            }
        };
        let mut source = state.source_endpoint(&mut **from, self.item.source.path());
        wrong_ranges(size, algorithm, &mut source, &mut copy).await
    }

    /// Has the next transfer move the ranges `wrong`.
    fn send_again(
        &mut self,
        state: &mut CopyState<'_>,
        sessions: &StorageSessions,
        wrong: &RangeSet,
    ) {
        let name = state.destination.display_name(self.item);
        if wrong.is_empty() {
            self.ctx.warn(format!(
                "{name}: the checksum differs, but all its ranges have the right one; comparing again"
            ));
            return;
        }
        let bytes = wrong.byte_count();
        self.ctx.warn(format!(
            "{name}: some bytes arrived wrong; sending {bytes} bytes in {} again (repair {} of at most {MAX_REPAIRS})",
            show::count(wrong.range_count(), "range"),
            self.repairs.made,
        ));
        self.ctx.meter.add_resent(bytes);
        self.repairs.waiting = wrong.clone();
        self.take_waiting(state);
        let ends = [sessions.from.capabilities(), sessions.to.capabilities()];
        self.stream_plan = self.stream_plan.map(|plan| plan.for_repair(ends));
    }
}

fn repaired_too_often(mismatch: Failure) -> Failure {
    mismatch.retried(false).remark(format!(
        "bytes that differed were sent again {MAX_REPAIRS} times, so the path, a disk or the memory of an end is bad"
    ))
}
