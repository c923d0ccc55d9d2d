//! Copies the pairs of a file (`--from`): they are examined some at a time and copied while the file is still read.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle, JoinSet};

use super::failed_list::FailedList;
use super::journal_place::JournalOpening;
use super::records::BatchRecords;
use super::{ending, execute, request};
use crate::batch::BatchContext;
use crate::batch::totals::BatchTotals;
use crate::events::{CopyObserver, CopySummary};
use crate::file::preserve;
use crate::options::BatchJournalLocation;
use crate::options::CopyOptions;
use crate::plan;
use crate::plan::pairs::{PairSource, UrlPair};
use crate::plan::{FoundSource, NewEntry, PlanFiller, PlannedDestination};
use ftp::answers::SourceFacts;
use ftp::location::Location;
use ftp::{Failure, FailureKind};

/// The name of the list in reports.
const FROM: &str = "--from";
/// Pairs that are examined together.
const PAIRS_AT_A_TIME: usize = 256;
/// Sessions that examine pairs, unless the user says how many.
const EXAMINERS: usize = 8;
/// Batches of pairs between the file and those who examine them.
const QUEUED_BATCHES: usize = 2;

/// Copies the pairs of a list, each as [`copy`](crate::copy()) does; a source that is a directory is copied with its content if
/// [`TreeOptions::recursive`](crate::TreeOptions::recursive) is set. A destination that ends in `/` is a directory, which is created.
pub async fn copy_pairs(
    pairs: &PairSource,
    options: &CopyOptions,
    observer: Arc<dyn CopyObserver>,
) -> CopySummary {
    let started = Instant::now();
    let totals = Arc::new(Mutex::new(BatchTotals::new(
        options.streams.transfer.buffers,
    )));
    let copying = read_and_copy(pairs, options, &observer, &totals);
    let source = || FROM.to_owned();
    ending::run_to_end(Box::pin(copying), source, options, &observer, &totals).await;
    ending::summary(&totals, options, started.elapsed())
}

async fn read_and_copy(
    pairs: &PairSource,
    options: &CopyOptions,
    observer: &Arc<dyn CopyObserver>,
    totals: &Arc<Mutex<BatchTotals>>,
) -> Result<(), Failure> {
    request::check_pairs(pairs, options)?;
    let mut options = options.clone();
    if *pairs == PairSource::StandardInput {
        // Nothing says whether a later run reads the same pairs.
        options.journal = BatchJournalLocation::Off;
    }
    let ctx = Arc::new(BatchContext::new(options, Arc::clone(observer))?);
    ctx.warn_of_netrc();
    let opening = JournalOpening::of_pairs(&ctx.options, pairs)?;
    let earlier = match opening.may_continue(&ctx) {
        true => {
            let opening = opening.knowing(storages_of(&ctx, pairs).await?);
            opening.open_earlier(&ctx).await?.map(Arc::new)
        }
        false => None,
    };
    let plan = match earlier {
        Some(plan) => plan,
        None => Arc::new(opening.open_new(&ctx, true).await?),
    };
    let _failed_list = FailedList::of(&ctx, &plan);
    // Pairs have no destination that names would be below.
    let records = Arc::new(BatchRecords::default());
    for (source, destination) in plan.earlier_trees() {
        ctx.name_tree(&source, &destination);
    }
    if plan.has_complete_listing() {
        super::report_size(&ctx, &plan);
        Box::pin(execute::execute(&ctx, &plan, None, &records, totals)).await?;
    } else {
        let filler = Arc::new(PlanFiller::new(&ctx, &plan, totals, true));
        let listing = Box::pin(list_pairs(&ctx, &filler, pairs));
        let copying = Box::pin(execute::execute(&ctx, &plan, None, &records, totals));
        let ((), copied) = tokio::join!(listing, copying);
        copied?;
    }
    preserve::finish_directories(&ctx, &plan).await;
    ctx.pool.close().await;
    Ok(())
}

/// A pair whose words are locations, or why it is none.
type LocatedPair = Result<(Location, Location), Failure>;

/// Reads the file on a thread for blocking calls. All pairs were read if that ends without an error.
fn read_pairs(
    ctx: &Arc<BatchContext>,
    pairs: &PairSource,
) -> Result<(mpsc::Receiver<Vec<LocatedPair>>, JoinHandle<()>), Failure> {
    let mut reader = pairs.open()?;
    let ctx = Arc::clone(ctx);
    let (sender, receiver) = mpsc::channel(QUEUED_BATCHES);
    let reading = tokio::task::spawn_blocking(move || {
        let mut batch = Vec::new();
        while let Some(pair) = reader.next() {
            let is_last = pair
                .as_ref()
                .is_err_and(|failure| failure.kind() == FailureKind::Local);
            batch.push(pair.and_then(|pair| locate(&ctx, &pair)));
            if is_last {
                break;
            }
            if batch.len() >= PAIRS_AT_A_TIME
                && sender.blocking_send(std::mem::take(&mut batch)).is_err()
            {
                return;
            }
        }
        let _ = sender.blocking_send(batch);
    });
    Ok((receiver, reading))
}

fn locate(ctx: &BatchContext, pair: &UrlPair) -> LocatedPair {
    let options = &ctx.options;
    let parse = |text: &str| {
        let at = Location::parse_secured(text, &options.security)?;
        let servers: Vec<_> = at.server().into_iter().collect();
        options.security.check_use(&servers)?;
        match at {
            Location::StandardStreams => Err(Failure::usage(
                "standard input and output cannot be in a list of pairs",
            )),
            at => Ok(at),
        }
    };
    let (source, destination) = (parse(&pair.source)?, parse(&pair.destination)?);
    request::check_rate_limit(ctx, &[&source], &destination)?;
    Ok((source, destination))
}

/// One location of each storage that the pairs name.
async fn storages_of(
    ctx: &Arc<BatchContext>,
    pairs: &PairSource,
) -> Result<Vec<Location>, Failure> {
    let mut found: Vec<Location> = Vec::new();
    let (mut batches, reading) = read_pairs(ctx, pairs)?;
    while let Some(batch) = batches.recv().await {
        for at in batch.into_iter().flatten().flat_map(<[Location; 2]>::from) {
            let root = at.with_path(b"/".to_vec());
            if !found.contains(&root) {
                found.push(root);
            }
        }
    }
    reading.await.map_err(|error| unexpected_end(&error))?;
    Ok(found)
}

/// Adds the pairs to the plan, up to its end.
async fn list_pairs(ctx: &Arc<BatchContext>, filler: &Arc<PlanFiller>, pairs: &PairSource) {
    let mut parents = KnownParents::default();
    let (mut batches, reading) = match read_pairs(ctx, pairs) {
        Ok(reading) => reading,
        Err(failure) => {
            filler.report(FROM.to_owned(), failure);
            filler.end().await;
            return;
        }
    };
    while let Some(batch) = batches.recv().await {
        let looking = Arc::clone(ctx);
        let look = move |pair| look_at(Arc::clone(&looking), pair);
        let examiners = ctx.options.concurrency.unwrap_or(EXAMINERS);
        let (examined, failures) = examine(examiners, batch, look).await;
        // Their pairs are lost: the list counts as incomplete.
        for failure in failures {
            filler.report(FROM.to_owned(), failure);
        }
        for (pair, found) in examined {
            match found {
                Ok(found) => add_pair(filler, &mut parents, found, pair).await,
                Err(failure) => match pair {
                    Some((source, destination)) => {
                        let top = filler.add_top(&source, &destination);
                        filler.fail(&top, (b"", b""), failure);
                    }
                    None => filler.report(String::new(), failure),
                },
            }
        }
    }
    if let Err(error) = reading.await {
        filler.report(FROM.to_owned(), unexpected_end(&error));
    }
    filler.end().await;
}

/// A panic must not be mistaken for the end of the list.
fn unexpected_end(error: &JoinError) -> Failure {
    Failure::local(format!("the list of pairs ended unexpectedly: {error}"))
}

/// A pair, and its source if that exists.
type ExaminedPair = (Option<(Location, Location)>, Result<FoundSource, Failure>);

/// Looks at the source of a pair.
async fn look_at(ctx: Arc<BatchContext>, pair: LocatedPair) -> ExaminedPair {
    match pair {
        Ok((source, destination)) => {
            let found = plan::examine_source(&ctx, &source).await;
            (Some((source, destination)), found)
        }
        Err(failure) => (None, Err(failure)),
    }
}

/// Looks at the sources of a batch, several at a time; returns them in order, and the failures that ended an examiner early.
async fn examine<L, F>(
    examiners: usize,
    batch: Vec<LocatedPair>,
    look: L,
) -> (Vec<ExaminedPair>, Vec<Failure>)
where
    L: Fn(LocatedPair) -> F + Clone + Send + 'static,
    F: Future<Output = ExaminedPair> + Send,
{
    let waiting = Arc::new(Mutex::new(batch.into_iter().enumerate()));
    let done = Arc::new(Mutex::new(Vec::new()));
    let mut running = JoinSet::new();
    for _ in 0..examiners {
        let (waiting, done, look) = (Arc::clone(&waiting), Arc::clone(&done), look.clone());
        running.spawn(async move {
            loop {
                let next = waiting.lock().next();
                let Some((position, pair)) = next else { return };
                let examined = look(pair).await;
                done.lock().push((position, examined));
            }
        });
    }
    let mut failures = Vec::new();
    while let Some(ended) = running.join_next().await {
        failures.extend(ended.err().map(|error| unexpected_end(&error)));
    }
    let mut done = std::mem::take(&mut *done.lock());
    done.sort_by_key(|(position, _)| *position);
    let examined = done.into_iter().map(|(_, examined)| examined).collect();
    (examined, failures)
}

async fn add_pair(
    filler: &Arc<PlanFiller>,
    parents: &mut KnownParents,
    found: FoundSource,
    pair: Option<(Location, Location)>,
) {
    let Some((source, at)) = pair else { return };
    let destination = match at.path().ends_with(b"/") {
        true => PlannedDestination::Directory {
            at: at.clone(),
            make: true,
        },
        false => PlannedDestination::File {
            at: at.clone(),
            exists: false,
        },
    };
    filler.name_one_of_many(&at);
    if let Some(parent) = parents.new_parent(&at) {
        filler.name_one_of_many(&parent);
        let top = filler.add_top(&source, &parent);
        // A file of the same name was added before: the copy of this file shows that.
        let _ = filler.add(&top, b"", b"", NewEntry::Directory(SourceFacts::default()));
    }
    if let Err(failure) = plan::list_source(filler, found, &destination).await {
        let top = filler.add_top(&source, &at);
        filler.fail(&top, (b"", b""), failure);
    }
}

/// The directories of destinations that were added.
#[derive(Default)]
struct KnownParents {
    hashes: HashSet<u64>,
    hasher: RandomState,
}

impl KnownParents {
    /// The directory of a destination, if it is a new one. A destination that ends with a slash is its own directory.
    fn new_parent(&mut self, at: &Location) -> Option<Location> {
        let path = at.path();
        let slash = path.iter().rposition(|byte| *byte == b'/')?;
        let parent = path.get(..slash).filter(|parent| !parent.is_empty())?;
        let parent = at.with_path(parent.to_vec());
        let is_new = self
            .hashes
            .insert(self.hasher.hash_one(parent.identity_key()));
        is_new.then_some(parent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_while_pairs_are_examined_is_a_failure_and_the_other_pairs_are_kept() {
        let usage = |text: &str| Err(Failure::usage(text));
        let batch = vec![usage("a"), usage("panics"), usage("b")];
        let look = |pair: LocatedPair| async move {
            let failure = pair.unwrap_err();
            assert_ne!(failure.to_string(), "panics");
            (None, Err(failure))
        };
        let (examined, failures) = examine(2, batch, look).await;
        let kept = examined
            .into_iter()
            .map(|(_, found)| found.unwrap_err().to_string());
        assert_eq!(kept.collect::<Vec<_>>(), ["a", "b"]);
        let [failure] = failures.as_slice() else {
            panic!("{failures:?}");
        };
        assert_eq!(failure.kind(), FailureKind::Local);
    }
}
