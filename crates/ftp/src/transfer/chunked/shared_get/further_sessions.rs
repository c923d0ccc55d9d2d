//! The sessions that join the first one, as the policy and the server permit.

use std::sync::Arc;
use std::time::Duration;

use proto::command::TransferMode;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tune::limiter::Limiter;
use tune::streams::auto::{TransferDecision, TransferSetting};
use tune::streams::sessions::SessionPolicy;

use super::fetch::{SessionStreams, SharedFetch};
use crate::Failure;
use crate::session::SessionOpener;

/// How often the policy gets a sample.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// Most sessions of one file, the first one included. Servers limit the connections of an address.
const MAX_SESSIONS: u32 = 16;

/// The further sessions of one file. Dropping ends them.
pub(super) struct FurtherSessions {
    fetch: Arc<SharedFetch>,
    opener: SessionOpener,
    policy: SessionPolicy,
    running: JoinSet<Result<(), Failure>>,
    /// Sessions opened so far, the first one included.
    opened: u32,
}

impl FurtherSessions {
    pub(super) fn new(fetch: &Arc<SharedFetch>, opener: SessionOpener, max_streams: u32) -> Self {
        Self {
            policy: SessionPolicy::new(max_streams, fetch.rtt()),
            fetch: Arc::clone(fetch),
            opener,
            running: JoinSet::new(),
            opened: 1,
        }
    }

    /// Opens sessions that together have so many streams.
    pub(super) fn open(&mut self, streams: u32) {
        let left = MAX_SESSIONS.saturating_sub(self.opened);
        let each = match self.fetch.mode() {
            TransferMode::Extended => vec![streams; usize::from(streams > 0 && left > 0)],
            TransferMode::Stream => vec![1; streams.min(left) as usize],
        };
        for streams in each {
            let number = self.opened;
            self.opened += 1;
            self.fetch.expect_session();
            let (fetch, opener) = (Arc::clone(&self.fetch), self.opener.clone());
            self.running.spawn(async move {
                join(&fetch, opener, SessionStreams { number, streams }).await
            });
        }
    }

    /// Waits for `first`, the first session's work, and for the others, and opens more meanwhile.
    pub(super) async fn run_beside(
        &mut self,
        first: impl Future<Output = Result<(), Failure>>,
    ) -> Result<(), Failure> {
        let mut ticks = tokio::time::interval(SAMPLE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tokio::pin!(first);
        let mut first_runs = true;
        // Sessions that are still logging in when everything is fetched are not waited for.
        while first_runs || (!self.running.is_empty() && self.fetch.has_running()) {
            tokio::select! {
                ended = &mut first, if first_runs => {
                    first_runs = false;
                    ended?;
                }
                Some(ended) = self.running.join_next(), if !self.running.is_empty() => {
                    let lost = |_| Failure::local("a thread of the transfer ended unexpectedly");
                    ended.map_err(lost)??;
                }
                _ = ticks.tick() => self.sample(),
            }
        }
        Ok(())
    }

    fn sample(&mut self) {
        if self.fetch.was_refused() || self.opened >= MAX_SESSIONS {
            self.policy.on_refused();
        }
        let sample = self.fetch.sample();
        let Some(decision) = self.policy.on_sample(sample) else {
            return;
        };
        let total = sample.streams + decision.streams;
        self.fetch.control().note_stream_decision(TransferDecision {
            at: sample.at,
            setting: (decision.streams > 0).then_some(TransferSetting::Streams(total)),
            limiter: Limiter::Unknown,
            reason: decision.reason,
        });
        self.open(decision.streams);
    }
}

/// One further session: logs in, fetches ranges, and leaves.
async fn join(
    fetch: &SharedFetch,
    opener: SessionOpener,
    streams: SessionStreams,
) -> Result<(), Failure> {
    let opened = opener.open().await;
    fetch.session_opened(opened.as_ref().err());
    let Ok(mut session) = opened else {
        // Most likely the server is at its limit: the others have to do.
        return Ok(());
    };
    let ended = fetch.fetch_ranges(&mut session, streams).await;
    // The reply to QUIT is not waited for.
    tokio::spawn(session.close());
    ended
}
