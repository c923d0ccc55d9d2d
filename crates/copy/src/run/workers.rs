//! The workers of a batch: as many as the policy of sessions says ([`tune::sessions`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tune::sessions::SessionRamp;

use crate::batch::totals::BatchTotals;
use crate::batch::{BatchContext, periodic_timer};
use crate::file::decisions;
use crate::small_files::BatchWork;
use crate::work::queue::WorkQueue;
use crate::work::session_plan::KnownSessionLimits;
use ftp::Failure;
use ftp::location::StorageId;
use units::show;

/// How often the number of sessions is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The work of all workers: one queue, so that large files do not hold up a fixed share of the batch.
struct SharedWork {
    queue: Arc<WorkQueue>,
    /// Workers that have a session with every server of their first work.
    admitted: AtomicUsize,
    /// Why a server let no further session in.
    refusal: Mutex<Option<Failure>>,
}

/// Runs workers until the queue is empty. `carry_out` does one piece of work. Returns the messages of those that ended
/// unexpectedly.
pub(crate) async fn run<W, F>(
    ctx: &Arc<BatchContext>,
    queue: &Arc<WorkQueue>,
    mut ramp: SessionRamp,
    limits: KnownSessionLimits,
    totals: &Mutex<BatchTotals>,
    carry_out: W,
) -> Vec<String>
where
    W: Fn(BatchWork) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let shared = Arc::new(SharedWork {
        queue: Arc::clone(queue),
        admitted: AtomicUsize::new(0),
        refusal: Mutex::default(),
    });
    let mut running = JoinSet::new();
    let mut problems = Vec::new();
    let mut limited = false;
    let mut timer = periodic_timer(LOOK_EVERY);
    let mut last = (Instant::now(), totals.lock().files_and_bytes());
    let mut reported = 0;
    loop {
        // More workers than work would only log in and leave.
        let wanted = ramp
            .sessions()
            .min(running.len().saturating_add(queue.waiting()));
        if wanted > reported {
            reported = wanted;
            decisions::report_sessions(ctx, wanted);
        }
        while running.len() < wanted {
            let (ctx, shared, carry_out) =
                (Arc::clone(ctx), Arc::clone(&shared), carry_out.clone());
            // Alone, it reports why a server lets nobody in.
            let is_first = running.is_empty();
            running.spawn(async move { work(&ctx, &shared, is_first, carry_out).await });
        }
        tokio::select! {
            ended = running.join_next() => match ended {
                None => return problems,
                Some(Err(error)) => problems.push(format!("a copy ended unexpectedly: {error}")),
                Some(Ok(())) => {}
            },
            _ = timer.tick() => {
                let elapsed = last.0.elapsed();
                if elapsed >= ramp.interval() {
                    let now = totals.lock().files_and_bytes();
                    let left = queue.bytes().map(|all| all.saturating_sub(now.1));
                    ramp.on_interval(now.0 - last.1.0, now.1 - last.1.1, elapsed, left);
                    last = (Instant::now(), now);
                }
            }
        }
        let refusal = shared.refusal.lock().take();
        if let Some(failure) = refusal {
            let admitted = shared.admitted.load(Ordering::Relaxed).max(1);
            let is_first = !std::mem::replace(&mut limited, true);
            ramp.on_limit(admitted);
            // Each file fails for a server that is not there, and nothing goes on.
            let is_there = failure.may_retry() || !failure.kind().is_unreachable();
            if is_first && is_there {
                ctx.warn(format!(
                    "{failure} (going on with {})",
                    show::count(admitted, "session")
                ));
            }
            if failure.kind().is_session_limit() {
                limits.record(admitted).await;
            }
        }
    }
}

/// One worker: does what is next in the queue until the queue is empty.
async fn work<W, F>(ctx: &BatchContext, shared: &SharedWork, is_first: bool, carry_out: W)
where
    W: Fn(BatchWork) -> F,
    F: Future<Output = ()>,
{
    let mut is_admitted = is_first;
    if is_first {
        shared.admitted.fetch_add(1, Ordering::Relaxed);
    }
    loop {
        let Some(work) = shared.queue.next().await else {
            if is_admitted {
                shared.admitted.fetch_sub(1, Ordering::Relaxed);
            }
            return;
        };
        if !is_admitted {
            if let Err(failure) = admit(ctx, &work).await {
                // Not a failure: the other workers take it.
                shared.queue.put_back(work).await;
                *shared.refusal.lock() = Some(failure);
                return;
            }
            shared.admitted.fetch_add(1, Ordering::Relaxed);
            is_admitted = true;
        }
        carry_out(work).await;
    }
}

/// Opens a session with each server of a piece of work, for a worker beside others.
async fn admit(ctx: &BatchContext, work: &BatchWork) -> Result<(), Failure> {
    let file = match work {
        BatchWork::File(file) => Some(&**file),
        BatchWork::Bundle(files) | BatchWork::Series(files) => files.first(),
    };
    let ends = file.map(|file| [file.source.storage_id(), file.destination.storage_id()]);
    let mut opened: Vec<(StorageId, _)> = Vec::new();
    let mut result = Ok(());
    for id in ends.into_iter().flatten().filter(StorageId::is_server) {
        match ctx.pool.acquire_further(&id).await {
            Ok(session) => opened.push((id, session)),
            Err(failure) => {
                result = Err(failure);
                break;
            }
        }
    }
    for (id, session) in opened {
        ctx.pool.release(&id, session);
    }
    result
}
