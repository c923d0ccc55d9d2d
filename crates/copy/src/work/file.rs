//! One file of a batch: waits for other copies, checks the existing destination, and makes as many
//! attempts as necessary.

use proto::listing::EntryKind;

use crate::batch::BatchContext;
use crate::batch::meter::FileMeter;
use crate::batch::retry::RetryBudget;
use crate::file::FileCopy;
use crate::file::FileOutcome;
use crate::options::FileOptions;
use crate::plan::PlannedFile;
use ftp::answers::SourceFacts;
use ftp::location::Location;
use ftp::{Failure, FailureKind};

/// Copies one file. A failure comes with the number of bytes that were moved. With `--wait`, each
/// retry starts from the beginning, because the other copy may have changed what is left to do.
pub(crate) async fn copy_file(
    ctx: &BatchContext,
    item: &PlannedFile,
) -> Result<FileOutcome, (u64, Failure)> {
    let meter = ctx.meter.begin_file(
        item.source.display(),
        part_size(&ctx.options.file, item.facts.size),
    );
    let mut waited = 0;
    loop {
        // Checked in every round: the copy that was waited for may have created the destination.
        if ctx.options.file.keep_existing
            && let Some(outcome) = keep_existing(ctx, item).await.map_err(|f| (0, f))?
        {
            return Ok(outcome);
        }
        let mut copy = FileCopy::new(ctx, item, &meter);
        match copy_with_retries(ctx, &item.source.display(), &meter, &mut copy).await {
            Err(failure)
                if failure.kind() == FailureKind::DestinationBusy && ctx.options.file.wait =>
            {
                ctx.wait_for_other_copy(&failure, waited).await;
                waited += 1;
            }
            result => return result.map_err(|failure| (meter.moved(), failure)),
        }
    }
}

/// Bytes to copy of a source of `size` bytes.
pub(crate) fn part_size(options: &FileOptions, size: Option<u64>) -> Option<u64> {
    let rest = size.map(|size| size.saturating_sub(options.offset.unwrap_or(0)));
    match (rest, options.length) {
        (Some(rest), Some(length)) => Some(rest.min(length)),
        _ => rest,
    }
}

/// Makes attempts until success or a permanent failure. A checksum mismatch that an attempt could not
/// repair restarts the file once if it was resumed, or if nothing shows which of its bytes are wrong.
pub(crate) async fn copy_with_retries(
    ctx: &BatchContext,
    source: &str,
    meter: &FileMeter,
    copy: &mut FileCopy<'_>,
) -> Result<FileOutcome, Failure> {
    let mut retries = RetryBudget::new(ctx.options.retry, ctx.seed);
    loop {
        let before = meter.moved();
        let failure = match copy.attempt().await {
            Ok(outcome) => return Ok(outcome),
            Err(failure) => failure,
        };
        if failure.kind() == FailureKind::Integrity && copy.start_over() {
            // Starting over is no retry: it does not count against --retries.
            ctx.warn(format!("{failure}; starting over"));
            continue;
        }
        // After a lost connection, the other writer may be our own last session, which the server
        // has not closed yet.
        let other_writer = failure.kind() == FailureKind::DestinationBusy && !retries.is_retry();
        if !copy.is_repeatable() || other_writer {
            return Err(failure);
        }
        let moved = match copy.attempt_was_wasted() {
            true => 0,
            false => meter.moved().saturating_sub(before),
        };
        let storages = copy.waits_for();
        ctx.wait_for_retry(source, &storages, &mut retries, moved, failure)
            .await?;
    }
}

/// `--keep-existing`: leaves any existing destination alone. Warns if it does not match the source.
async fn keep_existing(
    ctx: &BatchContext,
    item: &PlannedFile,
) -> Result<Option<FileOutcome>, Failure> {
    if item.destination == Location::StandardStreams {
        return Ok(None);
    }
    let (id, path) = (item.destination.storage_id(), item.destination.path());
    let existing = match ctx.stat(&id, path).await {
        Ok(entry) => match entry.kind {
            EntryKind::File => Some(SourceFacts::from_entry(&entry)),
            // On this machine this is a dangling link, which a copy would replace.
            EntryKind::SymLink => Some(SourceFacts::default()),
            // On a server, anything that exists is kept. A local device or pipe is not kept: data
            // is written to it.
            _ => id.is_server().then(SourceFacts::default),
        },
        Err(failure) if failure.is_missing() => None,
        // A file that may exist is not replaced.
        Err(failure) => return Err(failure),
    };
    let Some(existing) = existing else {
        return Ok(None);
    };
    if let Some(difference) = difference(item.facts, existing) {
        ctx.warn(format!(
            "{} exists and {difference} {}; it was left alone",
            item.destination.display(),
            item.source.display()
        ));
    }
    Ok(Some(FileOutcome::Kept))
}

/// The difference between a destination and a source with these facts, as far as both are known.
fn difference(source: SourceFacts, existing: SourceFacts) -> Option<&'static str> {
    let differ = |(a, b): (u64, u64)| a != b;
    if source.size.zip(existing.size).is_some_and(differ) {
        return Some("has another size than");
    }
    let older = source.modified.zip(existing.modified);
    let older = older.is_some_and(|(source, existing)| existing.0 < source.0);
    older.then_some("is older than")
}

#[cfg(test)]
mod tests {
    use proto::timestamp::Timestamp;

    use super::*;

    #[test]
    fn a_warning_names_existing_files_of_another_size_or_older_time() {
        let facts = |size, modified| SourceFacts {
            size,
            modified: modified_at(modified),
            ..SourceFacts::default()
        };
        let source = facts(Some(5), Some(100));
        for same in [
            source,
            facts(Some(5), Some(200)),
            facts(Some(5), None),
            facts(None, None),
        ] {
            assert_eq!(difference(source, same), None);
        }
        assert!(difference(source, facts(Some(6), Some(100))).is_some());
        assert!(difference(source, facts(Some(5), Some(99))).is_some());
    }

    fn modified_at(seconds: Option<i64>) -> Option<Timestamp> {
        seconds.map(Timestamp)
    }
}
