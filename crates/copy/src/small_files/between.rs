//! A bundle from one server to another. Its bytes do not pass through this machine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use data::job::TransferControl;
use proto::bundle::{BundleEntry, BundleFailure, BundleProof};

use super::super::plan::PlannedFile;
use super::compare::{proof_without, still_wrong, wrong_files};
use crate::batch::BatchContext;
use crate::batch::meter::{FileMeter, SafeByteCount};
use crate::storage::contract::Storage;
use ftp::Failure;
use ftp::transfer::{TransferAttempt, TransferSpec};

/// Moves the files, which the servers name as in `entries`: first the source, then the destination. What the source could
/// not send gets no name at the destination. Returns the files that were not moved.
///
/// # Errors
/// As [`Bundles::pass_bundle_to`].
///
/// [`Bundles::pass_bundle_to`]: crate::storage::optional::Bundles::pass_bundle_to
pub(crate) async fn pass(
    ctx: &BatchContext,
    files: &[PlannedFile],
    meter: &FileMeter,
    source: &mut dyn Storage,
    destination: &mut dyn Storage,
    [from, to]: &[Vec<BundleEntry>; 2],
    spec: &TransferSpec,
) -> Result<((TransferAttempt, Duration), Vec<BundleFailure>), Failure> {
    let started = Instant::now();
    let control = Arc::new(TransferControl::new());
    meter.begin_attempt(control, SafeByteCount::default());
    let progress = |bytes| meter.report_bytes(bytes);
    let (attempt, sent) = source
        .bundle_mover()?
        .pass_bundle_to(from, destination, to, spec, &progress)
        .await?;
    let elapsed = started.elapsed();
    let Some((algorithm, checksum)) = sent.checksum else {
        let message = format!("{} sent a bundle without a checksum", source.name());
        return Err(Failure::protocol(message));
    };
    let proof = BundleProof {
        algorithm,
        checksum,
        without: sent.failures.iter().map(|failure| failure.index).collect(),
    };
    let mut stored = destination
        .bundle_mover()?
        .end_bundle(proof.clone(), to.len())
        .await?;
    if let Some((algorithm, arrived)) = stored.checksum.clone().filter(|_| !stored.sums.is_empty())
    {
        let wrong_proof = BundleProof {
            algorithm,
            checksum: arrived,
            without: Vec::new(),
        };
        let sums = source
            .bundle_mover()?
            .end_bundle(wrong_proof, from.len())
            .await?
            .sums;
        // The source may have sent just these bytes: then its first reply, or the proof, was damaged on its way.
        let wrong = match sums.is_empty() {
            true => Vec::new(),
            false => wrong_files(ctx, files, [&sums, &stored.sums]),
        };
        let proof = proof_without(proof, &stored, &wrong);
        stored = destination
            .bundle_mover()?
            .end_bundle(proof, to.len())
            .await?;
    }
    if !stored.sums.is_empty() {
        return Err(still_wrong(to.len()));
    }
    meter.report_bytes(attempt.report.evidence.bytes);
    meter.confirm_attempt();
    Ok(((attempt, elapsed), stored.failures))
}
