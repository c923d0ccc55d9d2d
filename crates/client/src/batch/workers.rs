//! The workers of a batch: as many as the policy of sessions says ([`tune::sessions`]).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use history::{PathHistory, PathKey};
use tokio::task::JoinSet;
use tune::limiter::Role;
use tune::sessions::{BatchFacts, ConcurrencyBounds, FileMovement, SessionRamp};

use super::bundle::{BatchWork, SmallFileServer};
use super::plan::PlannedFile;
use super::totals::BatchTotals;
use super::{BatchContext, lock, periodic_timer};
use crate::location::StorageId;

/// How often the number of sessions is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The work of all workers: one queue, so that large files do not hold up a fixed share of the batch.
struct SharedWork {
    queue: Mutex<VecDeque<BatchWork>>,
    /// Workers that have a session with every server of their first work.
    admitted: AtomicUsize,
    /// A server let no further session in.
    is_full: Mutex<Option<String>>,
}

/// Reads and records what servers allow.
#[derive(Debug, Default)]
pub(super) struct KnownSessionLimits(Vec<(PathHistory, PathKey, u16)>);

impl KnownSessionLimits {
    async fn record(&self, sessions: usize) {
        let servers = self.0.clone();
        let recording = tokio::task::spawn_blocking(move || {
            for (history, key, port) in servers {
                history.record_session_limit(key, port, sessions);
            }
        });
        // Memory is an aid: a limit that is not kept is met again.
        let _ = recording.await;
    }
}

/// Decides how many sessions the batch begins with, and how many it may have.
pub(super) async fn plan_sessions(
    ctx: &BatchContext,
    files: &[PlannedFile],
    servers: &[SmallFileServer],
) -> (SessionRamp, KnownSessionLimits) {
    let mut facts = BatchFacts {
        movement: FileMovement::Whole,
        files: files.len(),
        rtt: Duration::ZERO,
        rotating_disk: false,
    };
    let mut limits = ConcurrencyBounds {
        user: ctx.options.concurrency,
        ..ConcurrencyBounds::default()
    };
    let mut known = KnownSessionLimits::default();
    for server in servers {
        let Ok(session) = ctx.pool.acquire(&server.id).await else {
            continue;
        };
        let capabilities = session.capabilities();
        if !server.bundles {
            facts.rtt = facts.rtt.max(capabilities.rtt);
            facts.movement = match capabilities.parallel {
                true => FileMovement::SharedConnections,
                false => FileMovement::OwnConnections,
            };
        }
        if let (Some(history), Some((local, peer)), StorageId::Server(at)) =
            (&ctx.options.history, session.path_ends(), &server.id)
        {
            // Limits have no direction.
            let key = PathKey::new(local, peer, Role::Receiver);
            let limit = history.session_limit(&key, at.port);
            let is_source = files
                .first()
                .is_some_and(|file| file.source.storage_id() == server.id);
            match is_source {
                true => limits.source = limit,
                false => limits.destination = limit,
            }
            known.0.push((history.clone(), key, at.port));
        }
        ctx.pool.release(&server.id, session);
    }
    (SessionRamp::new(&facts, limits), known)
}

/// Runs workers until the queue is empty. `carry_out` does one piece of work. Returns the messages of those that ended
/// unexpectedly.
pub(super) async fn run<W, F>(
    ctx: &Arc<BatchContext>,
    queue: VecDeque<BatchWork>,
    (mut ramp, limits): (SessionRamp, KnownSessionLimits),
    totals: &Mutex<BatchTotals>,
    carry_out: W,
) -> Vec<String>
where
    W: Fn(BatchWork) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let shared = Arc::new(SharedWork {
        queue: Mutex::new(queue),
        admitted: AtomicUsize::new(0),
        is_full: Mutex::default(),
    });
    let mut running = JoinSet::new();
    let mut problems = Vec::new();
    let mut limited = false;
    let mut timer = periodic_timer(LOOK_EVERY);
    let mut last = (Instant::now(), lock(totals).files_and_bytes());
    loop {
        // More workers than work would only log in and leave.
        let wanted = ramp
            .sessions()
            .min(running.len() + lock(&shared.queue).len());
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
                    let now = lock(totals).files_and_bytes();
                    ramp.on_interval(now.0 - last.1.0, now.1 - last.1.1, elapsed);
                    last = (Instant::now(), now);
                }
            }
        }
        let full = lock(&shared.is_full).take();
        if let Some(reason) = full {
            let admitted = shared.admitted.load(Ordering::Relaxed).max(1);
            let is_first = !std::mem::replace(&mut limited, true);
            ramp.on_limit(admitted);
            if is_first {
                ctx.warn(format!("{reason} (going on with {admitted} sessions)"));
            }
            if names_limit(&reason) {
                limits.record(admitted).await;
            }
        }
    }
}

/// Whether a refused login says that there are too many sessions, by its code or its words.
fn names_limit(refusal: &str) -> bool {
    let refusal = refusal.to_ascii_lowercase();
    let words = ["421", "too many", "maximum", "limit", "already logged in"];
    words.iter().any(|word| refusal.contains(word))
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
        let Some(work) = lock(&shared.queue).pop_front() else {
            if is_admitted {
                shared.admitted.fetch_sub(1, Ordering::Relaxed);
            }
            return;
        };
        if !is_admitted {
            if let Err(reason) = admit(ctx, &work).await {
                // Not a failure: the other workers take it.
                lock(&shared.queue).push_front(work);
                *lock(&shared.is_full) = Some(reason);
                return;
            }
            shared.admitted.fetch_add(1, Ordering::Relaxed);
            is_admitted = true;
        }
        carry_out(work).await;
    }
}

/// Opens a session with each server of a piece of work, for a worker beside others.
async fn admit(ctx: &BatchContext, work: &BatchWork) -> Result<(), String> {
    let file = match work {
        BatchWork::File(file) => Some(&**file),
        BatchWork::Bundle(files) => files.first(),
    };
    let ends = file.map(|file| [file.source.storage_id(), file.destination.storage_id()]);
    let mut opened: Vec<(StorageId, _)> = Vec::new();
    let mut result = Ok(());
    for id in ends.into_iter().flatten().filter(StorageId::is_server) {
        match ctx.pool.acquire(&id).await {
            Ok(session) => opened.push((id, session)),
            Err(failure) => {
                result = Err(failure.message);
                break;
            }
        }
    }
    for (id, session) in opened {
        ctx.pool.release(&id, session);
    }
    result
}
