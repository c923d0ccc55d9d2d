//! What all sessions of a server share.

use std::net::IpAddr;
use std::sync::Arc;

use data::budget::StreamBudget;
use tokio::sync::{Semaphore, watch};

use crate::config::ServerConfig;
use crate::limits::{Limits, client_key};
use crate::login::Logins;
use crate::transfer_log::TransferLog;

/// Listings for replies and removals of trees that run at once.
const WALKS_AT_ONCE: usize = 16;

/// How far the server's end has come. Only ever advances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Serving.
    Serving,
    /// No new transfers: sessions end when theirs is done, and what belongs to it.
    Draining,
    /// Time is up: running transfers are cut.
    Ending,
}

/// Settings and bounds that hold over all sessions.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The settings.
    pub(crate) config: ServerConfig,
    /// Who may log in.
    pub(crate) logins: Logins,
    /// Counts sessions.
    pub(crate) limits: Arc<Limits>,
    /// One record per transfer.
    pub(crate) log: TransferLog,
    /// What OPTS TUNE offers.
    pub(crate) congestion: Arc<[String]>,
    /// Bound on data streams, at work or kept.
    pub(crate) streams: StreamBudget,
    /// One permit per transfer. A transfer has a thread of its own from its first moment, streams
    /// or not, so there are as many places as streams; at the bound a transfer is refused (450).
    pub(crate) transfers: Arc<Semaphore>,
    /// One permit per checksum being computed: more than there are processors only slow each
    /// other down, and would take the blocking threads that quick requests need.
    pub(crate) sums: Arc<Semaphore>,
    /// One permit per listing or removal of a tree: these may take long, and must not take all the
    /// blocking threads that quick requests need.
    pub(crate) walks: Arc<Semaphore>,
    /// One permit per listener being made: quick, but a range of taken ports is tried through, and
    /// a burst of PASV must not become a burst of threads.
    pub(crate) listens: Arc<Semaphore>,
    phase: watch::Sender<Phase>,
}

impl Shared {
    /// At the start of serving; `congestion` is what OPTS TUNE offers.
    pub(crate) fn new(
        config: ServerConfig,
        congestion: Arc<[String]>,
        logins: Logins,
        log: TransferLog,
    ) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            limits: Limits::new(
                config.max_sessions,
                config.max_sessions_per_address,
                config.max_sessions_per_user,
            ),
            congestion,
            streams: StreamBudget::new(config.max_streams),
            transfers: Arc::new(Semaphore::new(
                config.max_streams.min(Semaphore::MAX_PERMITS),
            )),
            sums: Arc::new(Semaphore::new(processors)),
            walks: Arc::new(Semaphore::new(WALKS_AT_ONCE)),
            listens: Arc::new(Semaphore::new(processors)),
            phase: watch::Sender::new(Phase::Serving),
            config,
            logins,
            log,
        }
    }

    /// The bound on data streams, for those of one client.
    pub(crate) fn streams_of(&self, client: IpAddr) -> StreamBudget {
        self.streams.share_of(client_key(client))
    }

    /// Tells all sessions.
    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    /// To be told of phases to come.
    pub(crate) fn phases(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }
}
