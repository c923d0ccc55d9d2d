//! One file of a batch: its turn, what is there already, and as many attempts as it takes.

use proto::listing::EntryKind;

use super::copying::FileCopy;
use super::meter::FileMeter;
use super::plan::PlannedFile;
use super::{BatchContext, FileOutcome};
use crate::answers::SourceFacts;
use crate::location::Location;
use crate::retry::RetryBudget;
use crate::{CopyEvent, CopyFailure, Exit};

/// Copies one file. A failure comes with the bytes that were moved in vain. With `--wait`, each look at
/// whether another copy is still at it begins anew: what there is to do may have changed meanwhile.
pub(super) async fn copy(
    ctx: &BatchContext,
    item: &PlannedFile,
) -> Result<FileOutcome, (u64, CopyFailure)> {
    let meter = ctx.meter.begin(item.source.display());
    let mut waited = 0;
    loop {
        if ctx.options.keep_existing
            && let Some(outcome) = existing(ctx, item).await.map_err(|f| (0, f))?
        {
            return Ok(outcome);
        }
        let mut copy = FileCopy::new(ctx, item, &meter);
        match persist(ctx, &item.source.display(), &meter, &mut copy).await {
            Err(failure) if failure.is_occupied() && ctx.options.wait => {
                ctx.wait_for_turn(&failure, waited).await;
                waited += 1;
            }
            result => return result.map_err(|failure| (meter.moved(), failure)),
        }
    }
}

/// Attempts until success or a final failure. A checksum mismatch of a file that builds upon an
/// earlier run is started over once; of one that was moved whole in this run, it is final.
pub(super) async fn persist(
    ctx: &BatchContext,
    source: &str,
    meter: &FileMeter,
    copy: &mut FileCopy<'_>,
) -> Result<FileOutcome, CopyFailure> {
    let mut retries = RetryBudget::new(ctx.options.retries, ctx.seed);
    loop {
        let before = meter.moved();
        let failure = match copy.attempt().await {
            Ok(outcome) => return Ok(outcome),
            Err(failure) => failure,
        };
        if failure.exit == Exit::Integrity && copy.forget_resumed() {
            ctx.warn(format!("{}; starting over", failure.message));
            continue;
        }
        // After a cut, the one who is at it may be our own last session, which the server has not
        // given up yet.
        let others = failure.is_occupied() && !retries.is_retry();
        if !copy.repeatable() || others {
            return Err(failure);
        }
        let moved = match copy.in_vain() {
            true => 0,
            false => meter.moved().saturating_sub(before),
        };
        let Some((attempt, after)) = retries.next_attempt(&failure, moved) else {
            return Err(failure);
        };
        ctx.observer.on_event(CopyEvent::Retrying {
            source: source.to_owned(),
            reason: failure.message,
            attempt,
            after,
        });
        tokio::time::sleep(after).await;
    }
}

/// `--keep-existing`: a destination that exists is left alone, whatever it holds. One that does not
/// look like the source is named in a warning.
async fn existing(
    ctx: &BatchContext,
    item: &PlannedFile,
) -> Result<Option<FileOutcome>, CopyFailure> {
    if item.destination == Location::StandardStreams {
        return Ok(None);
    }
    let (id, path) = (item.destination.storage_id(), item.destination.path());
    let mut session = ctx.session_for(&id, Some(path)).await?;
    let result = session.stat(path).await;
    ctx.give_back(&id, session, &result);
    let there = match result {
        Ok(entry) => match entry.kind {
            EntryKind::File => Some(SourceFacts::from_entry(&entry)),
            // Here it leads nowhere, and a copy would replace it.
            EntryKind::SymLink => Some(SourceFacts::default()),
            // Whatever a server calls it; a device or pipe of this machine is written to and stays.
            _ => id.is_server().then(SourceFacts::default),
        },
        Err(failure) if failure.transient => return Err(failure),
        Err(_) => None,
    };
    let Some(there) = there else {
        return Ok(None);
    };
    if let Some(difference) = difference(item.facts, there) {
        ctx.warn(format!(
            "{} exists and {difference} {}; it was left alone",
            item.destination.display(),
            item.source.display()
        ));
    }
    Ok(Some(FileOutcome::Kept))
}

/// Why `there` is no copy of a source with these facts, as far as both are known.
fn difference(source: SourceFacts, there: SourceFacts) -> Option<&'static str> {
    let differ = |(a, b): (u64, u64)| a != b;
    if source.size.zip(there.size).is_some_and(differ) {
        return Some("has another size than");
    }
    let older = source.modified.zip(there.modified);
    let older = older.is_some_and(|(source, there)| there.0 < source.0);
    older.then_some("is older than")
}

#[cfg(test)]
mod tests {
    use proto::timestamp::Timestamp;

    use super::*;

    #[test]
    fn a_kept_file_differs_by_size_or_by_being_older() {
        let facts = |size, modified| SourceFacts {
            size,
            modified: modified_at(modified),
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
