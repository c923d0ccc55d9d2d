//! A part of a file that this process stores for another one, which has begun the upload of the file and completes it.

use std::sync::Arc;

use data::job::TransferControl;
use tune::Prior;

use super::FileOutcome;
use super::stream_plan::{CopyRange, StreamPlan, new_transfer_spec};
use super::verify::{ChecksumAbility, choose_verification};
use crate::batch::BatchContext;
use crate::batch::measurement::TransferMeasurement;
use crate::batch::meter::SafeByteCount;
use crate::batch::retry::RetryBudget;
use crate::plan::{PartInPlace, PlannedFile};
use crate::storage::capabilities::AvailableChecksums;
use crate::storage::contract::Storage;
use crate::storage::optional::SharedUpload;
use ftp::location::StorageId;
use ftp::{Failure, ModeChoice};
use proto::ranges::RangeSet;

/// Whether the destination of a file of this machine takes parts of it from several processes. One process stores it otherwise.
pub(crate) async fn takes_parts(ctx: &BatchContext, item: &PlannedFile) -> bool {
    let options = &ctx.options.file;
    if options.offset.is_some() || options.length.is_some() {
        return false;
    }
    let (from, to) = (item.source.storage_id(), item.destination.storage_id());
    if !to.is_server() {
        return true;
    }
    // Whoever stores the file as a whole tells of a server that is not there.
    let Ok([source, mut destination]) = ctx.pool.acquire_both(&from, &to).await else {
        return false;
    };
    let takes = can_share(ctx, item, (&to, &mut *destination)).await;
    ctx.pool.release(&from, source);
    ctx.pool.release(&to, destination);
    takes
}

async fn can_share(
    ctx: &BatchContext,
    item: &PlannedFile,
    (id, to): (&StorageId, &mut dyn Storage),
) -> bool {
    if !to
        .shared_uploads()
        .is_some_and(|uploads| uploads.takes_parts())
    {
        return false;
    }
    if to.capabilities().stores_whole {
        return true;
    }
    let path = item.destination.path();
    let refusal = ctx.renames.find_refusal(id, to, path).await;
    // Parts go to offsets of a file that does not have its final name yet.
    let options = &ctx.options;
    let is_set_otherwise = options.file.in_place || options.streams.mode == ModeChoice::Stream;
    if is_set_otherwise || !matches!(refusal, Ok(None)) {
        return false;
    }
    let theirs = to.available_checksums(path).await;
    let (ours, theirs) = (AvailableChecksums::all(), theirs.unwrap_or_default());
    let ends = [&ours, &theirs].map(|checksums| ChecksumAbility {
        checksums,
        is_whole_file: true,
    });
    choose_verification(options.file.verify, &ends).is_ok_and(|check| check.algorithm().is_some())
}

/// Stores a part. A failure comes with the number of bytes that were moved.
pub(crate) async fn store_part(
    ctx: &BatchContext,
    item: &PlannedFile,
    part: PartInPlace,
    upload: &SharedUpload,
) -> Result<FileOutcome, (u64, Failure)> {
    let storages = [item.source.storage_id(), item.destination.storage_id()];
    let name = item.source.display();
    let mut retries = RetryBudget::new(ctx.options.retry, ctx.seed);
    loop {
        let (moved, failure) = match store_once(ctx, item, part, upload).await {
            Err((moved, failure)) if failure.may_retry() => (moved, failure),
            ended => return ended,
        };
        // A part begins anew, so that its bytes are no reason to be patient.
        let waited = ctx.wait_for_retry(&name, &storages, &mut retries, 0, failure);
        waited.await.map_err(|failure| (moved, failure))?;
    }
}

async fn store_once(
    ctx: &BatchContext,
    item: &PlannedFile,
    part: PartInPlace,
    upload: &SharedUpload,
) -> Result<FileOutcome, (u64, Failure)> {
    let (from, to) = (item.source.storage_id(), item.destination.storage_id());
    let sessions = ctx.pool.acquire_both(&from, &to).await;
    let [mut source, mut destination] = sessions.map_err(|failure| (0, failure))?;
    let stored = store(ctx, item, part, upload, (&mut *source, &mut *destination)).await;
    ctx.pool.release(&from, source);
    ctx.pool.release(&to, destination);
    stored
}

async fn store(
    ctx: &BatchContext,
    item: &PlannedFile,
    part: PartInPlace,
    upload: &SharedUpload,
    (from, to): (&mut dyn Storage, &mut dyn Storage),
) -> Result<FileOutcome, (u64, Failure)> {
    let unmoved = |failure| (0, failure);
    let opened = from.open(item.source.path()).await.map_err(unmoved)?;
    let size = opened.as_ref().and_then(|opened| opened.facts?.size);
    let (Some(opened), Some(size)) = (opened, size.filter(|size| Some(*size) == item.facts.size))
    else {
        let name = item.source.display();
        let failure = Failure::local(format!(
            "{name} is not the file here that it is for the process with the plan of the copy"
        ));
        return Err(unmoved(failure));
    };
    let plan = StreamPlan::for_transfer(ctx, Some(part.length), false, &Prior::default(), from, to);
    let range = CopyRange {
        part: Some((part.offset, part.length)),
        size: Some(size),
    };
    let spec = new_transfer_spec(ctx, range, &RangeSet::new(), plan);
    let control = Arc::new(TransferControl::new());
    let meter = ctx
        .meter
        .begin_file(item.source.display(), Some(part.length));
    meter.begin_attempt(
        Arc::clone(&control),
        SafeByteCount::acknowledged(&control, 0),
    );
    let path = item.destination.path();
    let Some(uploads) = to.shared_uploads() else {
        return Err(unmoved(Failure::protocol(
            "the destination has one writer for a file",
        )));
    };
    match uploads
        .store_parts(opened.source, path, upload, &spec, &control)
        .await
    {
        Ok(attempt) => {
            meter.confirm_attempt();
            let measured = TransferMeasurement::of_sent(attempt);
            // Whoever completes the upload tells how the whole was compared.
            let verified = String::new();
            Ok(FileOutcome::done(part.length, verified, Some(measured)))
        }
        Err(failure) => Err((meter.moved(), failure)),
    }
}
