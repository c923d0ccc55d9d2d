//! A part of a file that this process stores for another one, which has begun the upload of the file and completes it.

use std::sync::Arc;

use data::job::TransferControl;
use tune::Prior;

use super::FileOutcome;
use super::stream_plan::{CopyRange, StreamPlan, new_transfer_spec};
use crate::batch::BatchContext;
use crate::batch::measurement::TransferMeasurement;
use crate::batch::meter::SafeByteCount;
use crate::plan::{PartInPlace, PlannedFile};
use crate::storage::contract::Storage;
use crate::storage::optional::SharedUpload;
use ftp::Failure;
use proto::ranges::RangeSet;

/// Stores a part, once. A failure comes with the number of bytes that were moved; the other process tries again.
pub(crate) async fn store_part(
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
    let Some(uploads) = to.unfinished_uploads() else {
        return Err(unmoved(Failure::protocol(
            "the destination keeps no uploads",
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
