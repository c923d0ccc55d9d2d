//! How many sessions a batch begins with: by what is known of its files and its servers ([`tune::sessions`]).

use std::time::Duration;

use history::{PathHistory, PathKey};
use tune::limiter::Role;
use tune::sessions::{BatchFacts, ConcurrencyBounds, FileMovement, SessionRamp};

use crate::batch::BatchContext;
use crate::plan::PlannedFile;
use crate::small_files::SmallFileServer;
use ftp::location::StorageId;

/// Reads and records what servers allow.
#[derive(Debug, Default)]
pub(crate) struct KnownSessionLimits(Vec<(PathHistory, PathKey, u16)>);

impl KnownSessionLimits {
    /// Remembers that the servers let `sessions` in, and no more.
    pub(crate) async fn record(&self, sessions: usize) {
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

/// Decides how many sessions the batch begins with, and how many it may have. `files` are the first of about `expected` ones.
pub(crate) async fn plan_sessions(
    ctx: &BatchContext,
    files: &[PlannedFile],
    expected: usize,
    servers: &[SmallFileServer],
) -> (SessionRamp, KnownSessionLimits) {
    let mut facts = BatchFacts {
        movement: FileMovement::Whole,
        files: expected,
        mean_size: mean_size(files),
        rtt: Duration::ZERO,
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
        facts.rtt = facts.rtt.max(capabilities.rtt);
        facts.movement = server.movement;
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

/// Mean size of files, bytes, as far as known.
fn mean_size(files: &[PlannedFile]) -> u64 {
    let known = files.iter().filter_map(|file| file.facts.size);
    let (bytes, count) = known.fold((0_u64, 0), |(bytes, count), size| {
        (bytes.saturating_add(size), count + 1)
    });
    bytes / u64::max(count, 1)
}
