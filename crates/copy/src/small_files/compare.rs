//! Which files of a bundle arrived wrong. They are copied again alone; the others are kept.

use proto::bundle::{BundleFailure, BundleOutcome, BundleProof};

use super::super::plan::PlannedFile;
use crate::batch::BatchContext;
use ftp::{Failure, FailureKind};

/// The files whose checksums at both ends are not the same, or not both known. Warns of them, unless there are none.
pub(crate) fn wrong_files(
    ctx: &BatchContext,
    files: &[PlannedFile],
    [source, copy]: [&[Option<String>]; 2],
) -> Vec<BundleFailure> {
    let is_right = |index: usize| {
        let sums = source.get(index).zip(copy.get(index));
        sums.is_some_and(|(a, b)| a.is_some() && a == b)
    };
    let wrong: Vec<usize> = (0..files.len()).filter(|index| !is_right(*index)).collect();
    let bytes = wrong.iter().filter_map(|index| files[*index].facts.size);
    let bytes: u64 = bytes.sum();
    if let Some(first) = wrong.first() {
        ctx.meter.add_resent(bytes);
        ctx.warn(format!(
            "{}: {} of {} files that moved together arrived wrong; copying these {bytes} bytes again",
            files[*first].source.display(),
            wrong.len(),
            files.len()
        ));
    }
    let failure = |index| BundleFailure {
        index,
        reason: "it arrived wrong".to_owned(),
    };
    wrong.into_iter().map(failure).collect()
}

/// The proof of the bundle as it is at the server, without the files that are wrong there.
pub(crate) fn proof_without(
    proof: BundleProof,
    at_server: &BundleOutcome,
    wrong: &[BundleFailure],
) -> BundleProof {
    let checksum = at_server.checksum.as_ref().map(|(_, hex)| hex.clone());
    let mut without = proof.without;
    without.extend(wrong.iter().map(|failure| failure.index));
    without.sort_unstable();
    without.dedup();
    BundleProof {
        checksum: checksum.unwrap_or(proof.checksum),
        without,
        ..proof
    }
}

/// Both ends cannot agree on a checksum.
pub(crate) fn still_wrong(count: usize) -> Failure {
    let message = format!("the checksum of {count} files that moved together is wrong");
    Failure::new(FailureKind::Integrity, message)
}
