//! Decides whether a resumed copy may build on what an earlier run left behind.
//!
//! A journal must describe the same copy of a source with unchanged size and time, and the checksums of the stored bytes must
//! equal the source's. Where both ends have no checksum in common, the source must be the same version
//! ([`CopyIdentity::is_same_version`]); without `--resume`, bytes are never appended to a file that may be a different one.
//! With it, equal size and time are enough, which a warning says. A copy that starts over says so.
//! Bytes that nothing confirms are compared block by block ([`super::block_proof`]).

use proto::checksum::ChecksumAlgorithm;
use proto::ranges::{ByteRange, RangeSet};

use super::block_proof::prove_blocks;
use super::checksums::{ChecksumEndpoint, common_range_algorithm, range_agrees, range_ends_agree};
use crate::batch::BatchContext;
use crate::file::verify::Verification;
use crate::local::journal;
use crate::local::journal::{CopyIdentity, JournalLocation};
use crate::local::local_name::LocalName;
use crate::options::VerifyMode;
use crate::storage::capabilities::AvailableChecksums;
use ftp::Failure;
use ftp::answers::SourceFacts;
use units::show;

/// Remains of an earlier run at the destination.
pub(crate) struct PartialLeftover<'a> {
    /// Identity of this run's copy.
    pub(crate) identity: &'a CopyIdentity,
    /// Length of the partial file, bytes.
    pub(crate) length: u64,
    /// The journal, which may not exist, and whose it must be.
    pub(crate) journal: Option<(&'a LocalName, u32)>,
    /// Name for warnings.
    pub(crate) display_name: &'a str,
    /// A checksum of the whole file will be compared at the end.
    pub(crate) has_checksum: bool,
}

/// The bytes of the partial file that may be kept. None in case of doubt. Errors are those of the
/// sessions that were queried.
pub(crate) async fn usable_ranges(
    ctx: &BatchContext,
    leftover: &PartialLeftover<'_>,
    checksums: &[&AvailableChecksums],
    source: &mut ChecksumEndpoint<'_>,
    destination: &mut ChecksumEndpoint<'_>,
) -> Result<RangeSet, Failure> {
    let mut claim = match claimed_ranges(leftover) {
        Ok(claim) => claim,
        Err(reason) => return Ok(warn_starting_over(ctx, leftover, reason)),
    };
    let copied = leftover.identity.copy_length();
    let is_complete = copied.is_some_and(|size| claim.safe.contains(0, size));
    // A complete file that was not confirmed looks the same as one that the server refused at the
    // end.
    if is_complete && !leftover.has_checksum {
        let reason = "it is unknown whether the server confirmed the complete file";
        return Ok(warn_starting_over(ctx, leftover, reason));
    }
    let algorithm = common_range_algorithm(checksums);
    let Some(algorithm) = algorithm else {
        if claim.safe.is_empty() && claim.has_no_doubtful_ranges() {
            return Ok(claim.safe);
        }
        return Ok(without_checksums(ctx, leftover, claim));
    };
    // Nothing is compared at the end, and the server may have lost power since it reported these bytes.
    let may_be_lost = claim.from_server && ctx.options.file.verify == VerifyMode::None;
    let may_have_changed = !leftover.has_checksum && !claim.is_same_version;
    if claim.has_journal && (may_be_lost || may_have_changed) {
        claim.doubtful.push(std::mem::take(&mut claim.safe));
    }
    let claims_nothing = claim.safe.is_empty() && claim.has_no_doubtful_ranges();
    // A file longer than the source cannot be the beginning of it.
    let end = Some(leftover.length).filter(|length| copied.is_none_or(|size| *length <= size));
    // A checksum of bytes in the server's page cache proves nothing about its disk.
    let end = end.filter(|_| !claim.server_refused);
    let kept = match safe_ranges_agree(&claim, algorithm, source, destination).await {
        Ok(true) => {
            let safe = prove_doubtful_ranges(claim, algorithm, source, destination).await?;
            let proved = prove_blocks(safe, end.unwrap_or(0), algorithm, source, destination);
            let proved = proved.await?;
            if claims_nothing || !proved.is_empty() {
                return Ok(proved);
            }
            proved
        }
        Ok(false) if claim.has_journal => RangeSet::new(),
        Ok(false) => {
            // Without a journal the prefix is only a guess, so every block must prove itself.
            let nothing = RangeSet::new();
            prove_blocks(nothing, end.unwrap_or(0), algorithm, source, destination).await?
        }
        Err(failure) if failure.may_retry() => return Err(failure),
        Err(failure) => return Ok(warn_starting_over(ctx, leftover, &failure.to_string())),
    };
    if kept.is_empty() {
        let reason = "no checksum of it equals the source's";
        return Ok(warn_starting_over(ctx, leftover, reason));
    }
    Ok(kept)
}

/// Whether the claimed ranges have the source's checksums: at the ends of the ranges if a journal
/// names them, otherwise over all of them.
async fn safe_ranges_agree(
    claim: &ClaimedRanges,
    algorithm: ChecksumAlgorithm,
    source: &mut ChecksumEndpoint<'_>,
    destination: &mut ChecksumEndpoint<'_>,
) -> Result<bool, Failure> {
    if claim.has_journal {
        return range_ends_agree(source, destination, algorithm, &claim.safe).await;
    }
    let range = ByteRange {
        start: 0,
        end: claim.safe.end(),
    };
    range_agrees(source, destination, algorithm, range).await
}

/// The bytes that may be kept if both ends have no checksums of ranges in common.
fn without_checksums(
    ctx: &BatchContext,
    leftover: &PartialLeftover<'_>,
    claim: ClaimedRanges,
) -> RangeSet {
    let reason = if claim.server_lost {
        "the connection was lost while the server stored it, and the server has no checksums"
    } else if claim.safe.is_empty() {
        "this machine was restarted before any of it was written to disk"
    } else if claim.has_journal && claim.is_same_version {
        return claim.safe;
    } else if !claim.has_journal || leftover.identity.modified.is_none() {
        "nothing shows that it belongs to this file"
    } else if leftover.has_checksum {
        // A checksum of the whole file is compared at the end.
        return claim.safe;
    } else if !ctx.options.file.resume {
        "its source has the same size and time, and nothing shows that its content is the same; \
         --resume continues such a copy by size and time alone"
    } else {
        ctx.warn(format!(
            "{}: resumed by size and time alone, because the server cannot checksum",
            leftover.display_name
        ));
        return claim.safe;
    };
    warn_starting_over(ctx, leftover, reason)
}

/// Checks the doubtful ranges. Each is kept if its checksum is right.
async fn prove_doubtful_ranges(
    claim: ClaimedRanges,
    algorithm: ChecksumAlgorithm,
    source: &mut ChecksumEndpoint<'_>,
    destination: &mut ChecksumEndpoint<'_>,
) -> Result<RangeSet, Failure> {
    let mut safe = claim.safe;
    for range in claim.doubtful.iter().flat_map(RangeSet::iter) {
        match range_agrees(source, destination, algorithm, range).await {
            Ok(true) => {
                safe.insert(range.start, range.end);
            }
            Err(failure) if failure.may_retry() => return Err(failure),
            Ok(false) | Err(_) => {}
        }
    }
    Ok(safe)
}

/// The ranges that are at the destination according to the partial file and its journal.
#[derive(Debug, PartialEq, Eq)]
struct ClaimedRanges {
    safe: RangeSet,
    /// Ranges that only their checksums can prove: those handed to the kernel before the last boot of this machine, and not
    /// synced, and those that may be of another version of the source.
    doubtful: Vec<RangeSet>,
    /// The ranges were reported by a server.
    from_server: bool,
    /// The connection to the server was lost while it stored.
    server_lost: bool,
    /// The server refused to store bytes. Its page cache may show what its disk does not hold.
    server_refused: bool,
    has_journal: bool,
    /// The journal is of the version that the source has now.
    is_same_version: bool,
}

impl ClaimedRanges {
    fn has_no_doubtful_ranges(&self) -> bool {
        self.doubtful.iter().all(RangeSet::is_empty)
    }
}

fn claimed_ranges(leftover: &PartialLeftover<'_>) -> Result<ClaimedRanges, &'static str> {
    let prefix = |length| {
        let mut set = RangeSet::new();
        set.insert(0, length);
        set
    };
    let size = leftover.identity.copy_length().unwrap_or(u64::MAX);
    let load = |(journal, owner): (&LocalName, u32)| journal::load(journal, owner);
    match leftover.journal.and_then(load) {
        Some(loaded) if !loaded.identity.is_same_copy(leftover.identity) => {
            Err("the source changed since, or another part was copied")
        }
        // A checksum of the whole file would show whether these bytes are those of the source now.
        Some(loaded)
            if !leftover.has_checksum
                && loaded.identity.is_same_version(leftover.identity) == Some(false) =>
        {
            Err("the source may have changed since, and no checksum shows that it has not")
        }
        Some(loaded) => {
            let is_same_version = loaded.identity.is_same_version(leftover.identity) == Some(true);
            // With bytes in order, the file's length counts, which may be ahead of the last marker.
            let safe_now = if loaded.identity.in_order {
                prefix(leftover.length)
            } else {
                loaded.ranges.safe
            };
            let (safe, unproved_ranges) = if loaded.rebooted {
                let synced = loaded.ranges.synced;
                // After a reboot the page cache is gone: only synced bytes are known to exist.
                let unsynced = subtract(&safe_now, &synced, leftover.length.min(size));
                (synced, unsynced)
            } else {
                (safe_now, RangeSet::new())
            };
            if safe.end() > leftover.length || safe.end() > size {
                return Err("it does not fit its journal");
            }
            Ok(ClaimedRanges {
                safe,
                doubtful: vec![unproved_ranges],
                from_server: loaded.location == JournalLocation::Server,
                server_lost: loaded.server_lost,
                server_refused: loaded.server_refused,
                has_journal: true,
                is_same_version,
            })
        }
        None if leftover.length > size => Err("it is longer than the source"),
        None => Ok(ClaimedRanges {
            safe: prefix(leftover.length),
            doubtful: Vec::new(),
            from_server: false,
            server_lost: false,
            server_refused: false,
            has_journal: false,
            is_same_version: false,
        }),
    }
}

/// The bytes below `end` that are in `set` and not in `excluded`.
fn subtract(set: &RangeSet, excluded: &RangeSet, end: u64) -> RangeSet {
    let mut difference = RangeSet::new();
    for range in set.iter() {
        difference.extend(&excluded.gaps(range.start, range.end.min(end)));
    }
    difference
}

/// A destination that has its final name and the source's size, from a run that was killed after the rename or, with
/// `--resume`, from an earlier copy. It is compared, not moved again.
pub(crate) struct ExistingDestination {
    /// Size of the copied part and time of the source.
    pub(crate) wanted: SourceFacts,
    /// Facts of the destination.
    pub(crate) existing: SourceFacts,
    /// Length of the copied part. `None`: the whole source.
    pub(crate) part: Option<u64>,
    /// Equal size and time are enough where both ends have no checksum in common.
    pub(crate) by_time: bool,
}

impl ExistingDestination {
    /// Returns the name of the comparison if both are the same: by checksum if possible, otherwise
    /// by size and time if that is enough. `None` if they differ or cannot be compared.
    pub(crate) async fn compare(
        &self,
        check: Verification,
        source: &mut ChecksumEndpoint<'_>,
        destination: &mut ChecksumEndpoint<'_>,
    ) -> Result<Option<String>, Failure> {
        if self.wanted.size.is_none() || self.wanted.size != self.existing.size {
            return Ok(None);
        }
        let Some(algorithm) = check.algorithm() else {
            let known = self.by_time && self.wanted.modified.is_some();
            // Without checksums, equal times are the only evidence that both are the same file.
            let same = known && self.wanted.modified == self.existing.modified;
            return Ok(same.then(|| check.size_label(true)));
        };
        let (source, copy) = tokio::join!(
            source.whole_checksum(algorithm, self.part),
            destination.whole_checksum(algorithm, None)
        );
        match (source, copy) {
            (Ok(source), Ok(copy)) => {
                let same = source.eq_ignore_ascii_case(&copy);
                Ok(same.then(|| check.label()))
            }
            (Err(failure), _) | (_, Err(failure)) if failure.may_retry() => Err(failure),
            _ => Ok(None),
        }
    }
}

/// Whether `safe` is exactly the whole partial file of this length, so that after appending in
/// order the length still shows which bytes are there.
pub(crate) fn is_whole_file(safe: &RangeSet, length: Option<u64>) -> bool {
    safe.range_count() == 1 && Some(safe.prefix_len()) == length
}

fn warn_starting_over(
    ctx: &BatchContext,
    leftover: &PartialLeftover<'_>,
    reason: &str,
) -> RangeSet {
    let discarded = discarded(leftover.display_name, leftover.length);
    ctx.warn(format!("{discarded}: {reason}"));
    RangeSet::new()
}

/// Says that a copy starts over, and what that discards.
pub(crate) fn discarded(name: &str, length: u64) -> String {
    let length = show::bytes(length);
    format!("{name}: starting over, without the {length} of an unfinished copy")
}

#[cfg(test)]
mod tests;
