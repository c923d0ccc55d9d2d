//! Small files, moved many at a time as the bytes of one transfer ([`proto::bundle`]), between this machine and a
//! server that offers it, or between two such servers.
//!
//! A bundle only saves round trips. Whatever it cannot move is copied file by file, which also finds out why.

use std::sync::Arc;

use data::job::TransferControl;
use data::store::Sink;
use data::store::bundle::{BundleSink, BundleSource};
use proto::bundle::{BundleEntry, BundleFailure, CHECKSUM};
use proto::ranges::RangeSet;
use tune::limiter::Role;
use tune::prior::MIN_BYTES_PER_STREAM;
use tune::sessions::SOON_DONE;

use super::plan::PlannedFile;
use crate::batch::BatchContext;
use crate::batch::measurement::TransferMeasurement;
use crate::batch::meter::{FileMeter, FileMeterGuard, SafeByteCount};
use crate::batch::path_knowledge::{PathKnowledge, RemotePath};
use crate::batch::retry::RetryBudget;
use crate::file::stream_plan::{CopyRange, StreamPlan, new_transfer_spec};
use crate::local::disk::run_blocking;
use crate::options::Parallelism;
use crate::storage::contract::Storage;
use ftp::location::StorageId;
use ftp::transfer::{TransferAttempt, TransferSpec};
use ftp::{Failure, FailureKind, ModeChoice};

mod arrange;
mod between;
mod compare;
mod local_files;
mod members;
mod series;

pub(crate) use arrange::{BatchWork, SmallFileServer, arrange, may_bundle, servers_to_ask, split};
use compare::wrong_files;
use local_files::LocalBundle;
pub(crate) use series::copy_series;

use members::{ServerEnd, members, modes, server_of, server_pair, servers};

/// Most streams of a bundle that ends within slow start: as many as those of several whole files at a time.
const SHORT_STREAMS: u32 = 32;

/// A bundle that was moved.
pub(crate) struct MovedBundle {
    /// Bytes moved.
    pub(crate) bytes: u64,
    /// Positions of files that were not moved.
    pub(crate) failed: Vec<usize>,
    /// Why they cannot be moved now at all: the server is lost.
    pub(crate) lost: Option<Failure>,
    /// Name of the comparison.
    pub(crate) verified: String,
    pub(crate) measured: TransferMeasurement,
}

/// Begins files that move together.
fn begin_together(ctx: &BatchContext, files: &[PlannedFile]) -> FileMeterGuard {
    let sizes = files.iter().map(|file| file.facts.size.unwrap_or(0));
    let name = format!("{} files", files.len());
    ctx.meter.begin_files(name, sizes)
}

/// Moves files of one server and of this machine, or of two servers, with retries. Comes back with the bytes that were moved.
pub(crate) async fn copy_bundle(
    ctx: &BatchContext,
    files: &[PlannedFile],
) -> Result<MovedBundle, (u64, Failure)> {
    let meter = begin_together(ctx, files);
    let mut retries = RetryBudget::new(ctx.options.retry, ctx.seed);
    loop {
        let before = meter.moved();
        let failure = match attempt(ctx, files, &meter).await {
            Ok((failed, attempt)) => {
                return Ok(MovedBundle {
                    bytes: meter.moved(),
                    failed,
                    lost: None,
                    verified: CHECKSUM.name().to_ascii_lowercase(),
                    measured: attempt,
                });
            }
            Err(failure) => failure,
        };
        let moved = meter.moved().saturating_sub(before);
        let source = format!("{} files", files.len());
        ctx.wait_for_retry(&source, &servers(files), &mut retries, moved, failure)
            .await
            .map_err(|failure| (meter.moved(), failure))?;
    }
}

/// One attempt. Returns the positions of files that were not moved.
async fn attempt(
    ctx: &BatchContext,
    files: &[PlannedFile],
    meter: &FileMeter,
) -> Result<(Vec<usize>, TransferMeasurement), Failure> {
    if let Some((from, to)) = server_pair(files) {
        return between_servers(ctx, files, meter, &from, &to).await;
    }
    let (id, end) = server_of(files)?;
    let mut session = ctx.pool.acquire(&id).await?;
    let result = over_session(ctx, files, meter, &mut session, end).await;
    ctx.return_session(&id, session, &result);
    result
}

async fn between_servers(
    ctx: &BatchContext,
    files: &[PlannedFile],
    meter: &FileMeter,
    from: &StorageId,
    to: &StorageId,
) -> Result<(Vec<usize>, TransferMeasurement), Failure> {
    let [mut source, mut destination] = ctx.pool.acquire_both(from, to).await?;
    let total = files.iter().filter_map(|file| file.facts.size).sum();
    let ends: (&dyn Storage, &dyn Storage) = (&*source, &*destination);
    if !ctx.apart.may_connect((from, ends.0), (to, ends.1)) {
        let failure = no_bundles(ends);
        ctx.pool.release(from, source);
        ctx.pool.release(to, destination);
        return Err(failure);
    }
    // Nothing is known here of the path between the servers.
    let path = PathKnowledge::default();
    let spec = specification(ctx, ends, total, &path, Role::Receiver);
    let entries = [
        entries(files.iter().map(|file| (file, file.source.path()))),
        entries(files.iter().map(|file| (file, file.destination.path()))),
    ];
    let passed = between::pass(
        ctx,
        files,
        meter,
        &mut *source,
        &mut *destination,
        &entries,
        &spec,
    )
    .await;
    if passed.is_err() {
        // One of the servers may still execute its half of the transfer.
        ctx.drop_session(from, &*source, &passed);
        ctx.drop_session(to, &*destination, &passed);
    } else {
        ctx.pool.release(from, source);
        ctx.pool.release(to, destination);
    }
    let ((attempt, elapsed), failures) = passed.map_err(|failure| match failure.kind() {
        FailureKind::Apart if ctx.apart.add(from, to, &failure) => {
            failure.of_kind(FailureKind::Protocol).retried(false)
        }
        _ => failure,
    })?;
    ctx.apart.note_connected(from, to);
    Ok((
        positions(files, failures),
        TransferMeasurement::of_third_party(attempt, elapsed),
    ))
}

/// The files are moved one by one then.
fn no_bundles((from, to): (&dyn Storage, &dyn Storage)) -> Failure {
    Failure::protocol(format!(
        "{} and {} move no bundles between them",
        from.name(),
        to.name()
    ))
}

async fn over_session(
    ctx: &BatchContext,
    files: &[PlannedFile],
    meter: &FileMeter,
    session: &mut Box<dyn Storage>,
    end: ServerEnd,
) -> Result<(Vec<usize>, TransferMeasurement), Failure> {
    let total = files.iter().filter_map(|file| file.facts.size).sum();
    let role = match end {
        ServerEnd::Source => Role::Receiver,
        ServerEnd::Destination => Role::Sender,
    };
    let mut path = PathKnowledge::default();
    let remote = RemotePath::of(ctx, &**session, role);
    path.recall(ctx, remote, Some(total)).await;
    let local = ctx.pool.acquire(&StorageId::LocalFiles).await?;
    let ends: (&dyn Storage, &dyn Storage) = match end {
        ServerEnd::Source => (&**session, &*local),
        ServerEnd::Destination => (&*local, &**session),
    };
    let spec = specification(ctx, ends, total, &path, role);
    drop(local);
    let control = Arc::new(TransferControl::new());
    let counted = Arc::clone(&control);
    meter.begin_attempt(
        Arc::clone(&control),
        SafeByteCount::from_fn(move || counted.safe().byte_count()),
    );
    let (mut attempt, failures) = match end {
        ServerEnd::Source => fetch(ctx, files, &mut **session, &spec, &control).await?,
        ServerEnd::Destination => store(ctx, files, &mut **session, &spec, &control).await?,
    };
    meter.confirm_attempt();
    ctx.warn_all(std::mem::take(&mut attempt.warnings));
    let fetched = end == ServerEnd::Source;
    path.learn(ctx, fetched, &mut attempt).await;
    let measured = match fetched {
        true => TransferMeasurement::of_received(attempt),
        false => TransferMeasurement::of_sent(attempt),
    };
    Ok((positions(files, failures), measured))
}

/// The positions of files that were not moved.
fn positions(files: &[PlannedFile], failures: Vec<BundleFailure>) -> Vec<usize> {
    let failed = failures.into_iter().map(|failure| {
        let name = files
            .get(failure.index)
            .map_or_else(String::new, |file| file.source.display());
        tracing::debug!(name, reason = failure.reason, "not moved with its bundle");
        failure.index
    });
    failed.collect()
}

fn specification(
    ctx: &BatchContext,
    ends: (&dyn Storage, &dyn Storage),
    total: u64,
    path: &PathKnowledge,
    role: Role,
) -> TransferSpec {
    let plan = StreamPlan::for_transfer(ctx, Some(total), false, path.known(), ends.0, ends.1);
    let range = CopyRange {
        part: None,
        size: Some(total),
    };
    let mut spec = new_transfer_spec(ctx, range, &RangeSet::new(), plan);
    spec.checksum = Some(CHECKSUM);
    spec.chunks = None;
    if ctx.options.streams.parallelism == Parallelism::Auto
        && spec.streams > 1
        && total <= SOON_DONE
    {
        // Such a bundle ends within slow start, which takes fewer round trips with more streams.
        let by_size = u32::try_from(total / MIN_BYTES_PER_STREAM).unwrap_or(u32::MAX);
        let most = SHORT_STREAMS.min(spec.max_streams);
        spec.streams = spec.streams.max(by_size.min(most));
    }
    if spec.mode == ModeChoice::Auto {
        // Its connections stay open for the next bundle.
        spec.mode = ModeChoice::Extended;
    }
    if role == Role::Sender {
        spec.prior = path.known().clone();
    }
    spec
}

async fn fetch(
    ctx: &BatchContext,
    files: &[PlannedFile],
    session: &mut dyn Storage,
    spec: &TransferSpec,
    control: &Arc<TransferControl>,
) -> Result<(TransferAttempt, Vec<BundleFailure>), Failure> {
    let target = LocalBundle::new(&ctx.trees, files.iter().map(|file| &file.destination))
        .with_modes(modes(ctx.options.file.preserve, files));
    let sink = BundleSink::new(members(files), target, ctx.options.file.sync_policy);
    let sink = Arc::new(sink);
    let shared = Arc::clone(&sink) as Arc<dyn Sink>;
    let entries = entries(files.iter().map(|file| (file, file.source.path())));
    let (attempt, outcome) = session
        .bundle_mover()?
        .fetch_bundle(&entries, shared, spec, control)
        .await?;
    sink.drop_members(&outcome.failures);
    if !outcome.sums.is_empty() {
        let read = Arc::clone(&sink);
        let copy = run_blocking(move || Ok(read.checksums())).await?;
        sink.drop_members(&wrong_files(ctx, files, [&outcome.sums, &copy]));
    }
    let finish = move || {
        let failed = |error| format!("the files of a bundle are not on disk: {error}");
        sink.finish().map_err(|error| Failure::local(failed(error)))
    };
    Ok((attempt, run_blocking(finish).await?))
}

async fn store(
    ctx: &BatchContext,
    files: &[PlannedFile],
    session: &mut dyn Storage,
    spec: &TransferSpec,
    control: &Arc<TransferControl>,
) -> Result<(TransferAttempt, Vec<BundleFailure>), Failure> {
    let opened = LocalBundle::new(&ctx.trees, files.iter().map(|file| &file.source));
    let source = Arc::new(BundleSource::new(members(files), move |index| {
        opened.open_source(index)
    }));
    let entries = entries(files.iter().map(|file| (file, file.destination.path())));
    let (attempt, proof, mut outcome) = session
        .bundle_mover()?
        .store_bundle(&entries, &source, spec, control)
        .await?;
    if !outcome.sums.is_empty() {
        let sums = run_blocking(move || Ok(source.checksums())).await?;
        let wrong = wrong_files(ctx, files, [&sums, &outcome.sums]);
        let proof = compare::proof_without(proof, &outcome, &wrong);
        outcome = session
            .bundle_mover()?
            .end_bundle(proof, files.len())
            .await?;
    }
    match outcome.sums.is_empty() {
        true => Ok((attempt, outcome.failures)),
        false => Err(compare::still_wrong(files.len())),
    }
}

/// The announcements for the server, with its own paths.
fn entries<'f>(files: impl Iterator<Item = (&'f PlannedFile, &'f [u8])>) -> Vec<BundleEntry> {
    let entry = |(file, path): (&PlannedFile, &[u8])| BundleEntry {
        path: path.to_vec(),
        size: file.facts.size.unwrap_or(0),
        modified: file.facts.modified,
    };
    files.map(entry).collect()
}
