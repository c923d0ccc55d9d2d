//! Whether what an earlier run left behind may be built upon.
//!
//! A journal must be about the same copy of a source whose size and time have not changed, and what
//! is there must have the same checksum as the source, where the servers can tell. Anything else
//! starts over, with a warning: bytes are never appended to a file that may be another one. What of
//! the file nobody vouches for is looked at block by block ([`super::block_proof`]).

use std::path::Path;

use proto::checksum::ChecksumAlgorithm;
use proto::ranges::{ByteRange, RangeSet};

use super::BatchContext;
use super::block_proof::prove;
use super::checksums::{ChecksumEndpoint, agree, partial_algorithm, spots_agree};
use crate::answers::SourceFacts;
use crate::journal::{self, CopyIdentity, JournalLocation};
use crate::storage::contract::AvailableChecksums;
use crate::verify::Verification;
use crate::{CopyFailure, VerifyMode};

/// What is there from an earlier run.
pub(super) struct PartialLeftover<'a> {
    /// Of this run's copy.
    pub(super) identity: &'a CopyIdentity,
    /// Length of the partial file.
    pub(super) length: u64,
    /// Where a journal may be.
    pub(super) journal: Option<&'a Path>,
    /// For warnings.
    pub(super) shown: &'a str,
    /// A checksum of the whole will be compared at the end.
    pub(super) judged: bool,
}

/// The bytes of the partial file that may be kept: none when in doubt. Errors are those of the
/// sessions that were asked.
pub(super) async fn usable(
    ctx: &BatchContext,
    leftover: &PartialLeftover<'_>,
    ends: &[&AvailableChecksums],
    source: &mut ChecksumEndpoint<'_>,
    destination: &mut ChecksumEndpoint<'_>,
) -> Result<RangeSet, CopyFailure> {
    let mut claim = match claim(leftover) {
        Ok(claim) => claim,
        Err(doubt) => return Ok(start_over(ctx, leftover, doubt)),
    };
    let copied = leftover.identity.copy_length();
    let whole = copied.is_some_and(|size| claim.safe.contains(0, size));
    if whole && !leftover.judged {
        let doubt = "nothing tells whether the server confirmed its end";
        return Ok(start_over(ctx, leftover, doubt));
    }
    let algorithm = partial_algorithm(ends);
    let Some(algorithm) = algorithm else {
        if claim.safe.is_empty() && claim.unproved.is_empty() {
            return Ok(claim.safe);
        }
        return Ok(without_checksums(ctx, leftover, claim));
    };
    if claim.told && ctx.options.verify == VerifyMode::None {
        // Nothing is compared at the end, and the server may have lost power since it told this.
        claim.unproved = std::mem::take(&mut claim.safe);
    }
    // A file that is longer than the source is no beginning of it.
    let end = Some(leftover.length).filter(|length| copied.is_none_or(|size| *length <= size));
    let end = end.filter(|_| !claim.refused);
    let found = match vouched(&claim, algorithm, source, destination).await {
        Ok(true) => {
            let safe = prove_ranges(claim, algorithm, source, destination).await?;
            return prove(safe, end.unwrap_or(0), algorithm, source, destination).await;
        }
        Ok(false) if claim.journalled => RangeSet::new(),
        Ok(false) => {
            let nothing = RangeSet::new();
            prove(nothing, end.unwrap_or(0), algorithm, source, destination).await?
        }
        Err(failure) if failure.transient => return Err(failure),
        Err(failure) => return Ok(start_over(ctx, leftover, &failure.message)),
    };
    if found.is_empty() {
        let why = "its checksum differs from the source's";
        return Ok(start_over(ctx, leftover, why));
    }
    Ok(found)
}

/// Whether the checksums of what the claim calls safe are the source's: at the ends of its ranges
/// where a journal tells them, else of all of it.
async fn vouched(
    claim: &ClaimedRanges,
    algorithm: ChecksumAlgorithm,
    source: &mut ChecksumEndpoint<'_>,
    destination: &mut ChecksumEndpoint<'_>,
) -> Result<bool, CopyFailure> {
    if claim.journalled {
        return spots_agree(source, destination, algorithm, &claim.safe).await;
    }
    let range = ByteRange {
        start: 0,
        end: claim.safe.end(),
    };
    agree(source, destination, algorithm, range).await
}

/// The bytes that may be kept where the server has no checksums.
fn without_checksums(
    ctx: &BatchContext,
    leftover: &PartialLeftover<'_>,
    claim: ClaimedRanges,
) -> RangeSet {
    let doubt = if claim.lost {
        "the server was lost while it stored it, and without checksums nothing tells what it kept"
    } else if claim.safe.is_empty() {
        "this machine was restarted before any of it was forced to disk"
    } else if !claim.journalled || leftover.identity.modified.is_none() {
        "nothing tells whether it is of this file"
    } else {
        ctx.warn(format!(
            "{}: resumed by size and time alone, because the server cannot checksum",
            leftover.shown
        ));
        return claim.safe;
    };
    start_over(ctx, leftover, doubt)
}

/// Tries the ranges that a power cut may have taken: each is kept if its checksum is right.
async fn prove_ranges(
    claim: ClaimedRanges,
    algorithm: ChecksumAlgorithm,
    source: &mut ChecksumEndpoint<'_>,
    destination: &mut ChecksumEndpoint<'_>,
) -> Result<RangeSet, CopyFailure> {
    let mut safe = claim.safe;
    for range in claim.unproved.iter() {
        match agree(source, destination, algorithm, range).await {
            Ok(true) => {
                safe.insert(range.start, range.end);
            }
            Err(failure) if failure.transient => return Err(failure),
            Ok(false) | Err(_) => {}
        }
    }
    Ok(safe)
}

/// The bytes that are there, as the partial file and its journal have it.
#[derive(Debug, PartialEq, Eq)]
struct ClaimedRanges {
    safe: RangeSet,
    /// Handed to the kernel before this machine was booted, and not forced to disk.
    unproved: RangeSet,
    /// A server told it.
    told: bool,
    /// The server was lost while it stored.
    lost: bool,
    /// The server refused what it had stored: its memory shows what its disk may not hold.
    refused: bool,
    journalled: bool,
}

fn claim(leftover: &PartialLeftover<'_>) -> Result<ClaimedRanges, &'static str> {
    let prefix = |length| {
        let mut set = RangeSet::new();
        set.insert(0, length);
        set
    };
    let size = leftover.identity.copy_length().unwrap_or(u64::MAX);
    match leftover.journal.and_then(journal::load) {
        Some(found) if !found.copy.same_copy(leftover.identity) => {
            Err("the source changed since, or another part was copied")
        }
        Some(found) => {
            // In order, the file's length says it all: it may be ahead of the last marker.
            let handed = if found.copy.in_order {
                prefix(leftover.length)
            } else {
                found.state.safe
            };
            let (safe, unproved) = if found.rebooted {
                let synced = found.state.synced;
                let rest = without(&handed, &synced, leftover.length.min(size));
                (synced, rest)
            } else {
                (handed, RangeSet::new())
            };
            if safe.end() > leftover.length || safe.end() > size {
                return Err("it does not fit its journal");
            }
            Ok(ClaimedRanges {
                safe,
                unproved,
                told: found.place == JournalLocation::Server,
                lost: found.lost,
                refused: found.refused,
                journalled: true,
            })
        }
        None if leftover.length > size => Err("it is longer than the source"),
        None => Ok(ClaimedRanges {
            safe: prefix(leftover.length),
            unproved: RangeSet::new(),
            told: false,
            lost: false,
            refused: false,
            journalled: false,
        }),
    }
}

/// The bytes below `end` that are in `set` and not in `less`.
fn without(set: &RangeSet, less: &RangeSet, end: u64) -> RangeSet {
    let mut rest = RangeSet::new();
    for range in set.iter() {
        rest.extend(&less.gaps(range.start, range.end.min(end)));
    }
    rest
}

/// A destination that has its final name and the source's size, with `--resume`: a run that was killed
/// after the rename, or a copy made before. It is compared, not moved again.
pub(super) struct ExistingDestination {
    /// Size of what is copied, time of the source.
    pub(super) wanted: SourceFacts,
    /// Of the destination.
    pub(super) there: SourceFacts,
    /// Length of the part that is copied; `None`: the whole source.
    pub(super) part: Option<u64>,
}

impl ExistingDestination {
    /// Name of the comparison when both are the same: checksums where they are to be had, else size and
    /// time. `None` when they differ or nothing tells.
    pub(super) async fn compare(
        &self,
        check: Verification,
        source: &mut ChecksumEndpoint<'_>,
        destination: &mut ChecksumEndpoint<'_>,
    ) -> Result<Option<String>, CopyFailure> {
        if self.wanted.size.is_none() || self.wanted.size != self.there.size {
            return Ok(None);
        }
        let Some(algorithm) = check.algorithm() else {
            let known = self.wanted.modified.is_some();
            let same = known && self.wanted.modified == self.there.modified;
            return Ok(same.then(|| check.size_label(true)));
        };
        let (source, copy) = tokio::join!(
            source.total(algorithm, self.part),
            destination.total(algorithm, None)
        );
        match (source, copy) {
            (Ok(source), Ok(copy)) => {
                let same = source.eq_ignore_ascii_case(&copy);
                Ok(same.then(|| check.label()))
            }
            (Err(failure), _) | (_, Err(failure)) if failure.transient => Err(failure),
            _ => Ok(None),
        }
    }
}

/// Whether `safe` is the whole of a partial file of this length, so that bytes that are appended
/// in order keep its length meaningful.
pub(super) fn is_all(safe: &RangeSet, length: Option<u64>) -> bool {
    safe.range_count() == 1 && Some(safe.prefix_len()) == length
}

fn start_over(ctx: &BatchContext, leftover: &PartialLeftover<'_>, why: &str) -> RangeSet {
    ctx.warn(format!("{}: starting over: {why}", leftover.shown));
    RangeSet::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Journal, StoredRanges};

    fn identity(in_order: bool) -> CopyIdentity {
        CopyIdentity {
            source: "s".to_owned(),
            destination: "d".to_owned(),
            size: Some(100),
            modified: Some(5),
            part: None,
            in_order,
        }
    }

    fn claimed(
        written: Option<(CopyIdentity, (u64, u64))>,
        length: u64,
    ) -> Result<ClaimedRanges, &'static str> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        if let Some((copy, (start, end))) = written {
            let mut safe = RangeSet::new();
            safe.insert(start, end);
            Journal::fresh(path.clone(), copy, JournalLocation::Here)
                .unwrap()
                .write(&StoredRanges::safe_only(safe))
                .unwrap();
        }
        claim(&PartialLeftover {
            identity: &identity(false),
            length,
            journal: Some(&path),
            shown: "x",
            judged: true,
        })
    }

    fn safe(claim: Result<ClaimedRanges, &'static str>) -> String {
        claim.unwrap().safe.to_string()
    }

    #[test]
    fn journal_of_the_same_copy_counts() {
        assert_eq!(
            safe(claimed(Some((identity(false), (10, 20))), 30)),
            "10-20"
        );
        // In order, the length counts.
        assert_eq!(safe(claimed(Some((identity(true), (0, 20))), 30)), "0-30");
    }

    #[test]
    fn changed_sources_do_not() {
        for change in [
            |i: &mut CopyIdentity| i.size = Some(101),
            |i: &mut CopyIdentity| i.modified = Some(6),
            |i: &mut CopyIdentity| i.part = Some((0, 50)),
            |i: &mut CopyIdentity| i.source = "t".to_owned(),
        ] {
            let mut other = identity(false);
            change(&mut other);
            assert!(claimed(Some((other, (0, 20))), 30).is_err());
        }
    }

    #[test]
    fn what_does_not_fit_is_not_used() {
        assert!(claimed(Some((identity(false), (0, 20))), 10).is_err());
        assert!(claimed(Some((identity(true), (0, 20))), 101).is_err());
        assert!(claimed(None, 101).is_err());
    }

    /// The claim of a journal that another boot of this machine wrote.
    fn claimed_after_a_reboot(in_order: bool, length: u64) -> Result<ClaimedRanges, &'static str> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let mut state = StoredRanges::default();
        state.safe.insert(0, 60);
        state.synced.insert(0, 20);
        Journal::fresh(path.clone(), identity(in_order), JournalLocation::Here)
            .unwrap()
            .write(&state)
            .unwrap();
        journal::of_another_boot(&path);
        claim(&PartialLeftover {
            identity: &identity(in_order),
            length,
            journal: Some(&path),
            shown: "x",
            judged: true,
        })
    }

    #[test]
    fn after_a_reboot_only_synced_bytes_count_and_the_rest_is_to_be_proved() {
        let ranges = |claim: &ClaimedRanges| (claim.safe.to_string(), claim.unproved.to_string());
        let claim = claimed_after_a_reboot(false, 90).unwrap();
        assert_eq!(ranges(&claim), ("0-20".to_owned(), "20-60".to_owned()));
        // What the disk has no place for any more needs no proof.
        let claim = claimed_after_a_reboot(false, 30).unwrap();
        assert_eq!(ranges(&claim), ("0-20".to_owned(), "20-30".to_owned()));
        // In order, the length is a claim only.
        let claim = claimed_after_a_reboot(true, 90).unwrap();
        assert_eq!(ranges(&claim), ("0-20".to_owned(), "20-90".to_owned()));
        // Synced bytes that are not there: it is another file.
        assert!(claimed_after_a_reboot(false, 10).is_err());
    }

    #[test]
    fn what_is_longer_than_the_part_is_no_part() {
        let part = CopyIdentity {
            part: Some((10, 20)),
            ..identity(false)
        };
        for (length, fits) in [(20, true), (21, false)] {
            let claim = claim(&PartialLeftover {
                identity: &part,
                length,
                journal: None,
                shown: "x",
                judged: true,
            });
            assert_eq!(claim.is_ok(), fits);
        }
    }

    #[test]
    fn without_journal_the_prefix_is_only_a_claim() {
        let claim = claimed(None, 30).unwrap();
        assert!(!claim.journalled);
        assert_eq!(claim.safe.to_string(), "0-30");
    }

    #[test]
    fn what_a_server_refused_is_not_proved_by_its_memory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        // Even if nothing was safe.
        let mut journal =
            Journal::fresh(path.clone(), identity(false), JournalLocation::Server).unwrap();
        journal.mark_server_refused();
        journal.retract_to(&StoredRanges::default()).unwrap();
        let claim = claim(&PartialLeftover {
            identity: &identity(false),
            length: 30,
            journal: Some(&path),
            shown: "x",
            judged: true,
        });
        let claim = claim.unwrap();
        assert!(claim.refused && claim.journalled && claim.safe.is_empty());
    }
}
