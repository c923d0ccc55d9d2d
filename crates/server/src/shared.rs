//! State that all sessions of a server share.

use std::net::IpAddr;
use std::sync::Arc;

use data::budget::StreamBudget;
use tokio::sync::watch;

use crate::config::ServerConfig;
use crate::limits::{FairQueue, SessionLimits, client_key};
use crate::login::Authenticator;
use crate::transfer_log::TransferLog;

/// How far the server's end has come. Only ever advances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ServerPhase {
    /// Serving.
    Serving,
    /// No new transfers: sessions end when theirs is done, and what belongs to it.
    Draining,
    /// Time is up: running transfers are cut.
    Terminating,
}

/// Settings and bounds that hold over all sessions. Sessions that begin after a reload get one with
/// other settings and the same counts; those that run keep the settings they began with.
#[derive(Debug)]
pub(crate) struct ServerState {
    /// The settings.
    pub(crate) config: ServerConfig,
    /// Who may log in.
    pub(crate) authenticator: Arc<Authenticator>,
    /// Counts sessions.
    pub(crate) session_limits: Arc<SessionLimits>,
    /// One record per transfer.
    pub(crate) transfer_log: Arc<TransferLog>,
    /// The offer of OPTS TUNE.
    pub(crate) congestion: Arc<[String]>,
    /// Bound on data streams, at work or kept.
    pub(crate) stream_budget: StreamBudget,
    /// One place per transfer.
    pub(crate) transfer_queue: Arc<FairQueue>,
    /// One place per checksum being computed: more than there are processors only slow each
    /// other down, and would take the blocking threads that quick requests need.
    pub(crate) checksum_queue: Arc<FairQueue>,
    /// One place per listing for a reply or removal of a tree: these may take long, and must not
    /// take all the blocking threads that quick requests need.
    pub(crate) listing_queue: Arc<FairQueue>,
    /// One place per listener being made.
    pub(crate) listener_queue: Arc<FairQueue>,
    phase: Arc<watch::Sender<ServerPhase>>,
}

impl ServerState {
    /// At the start of serving; `congestion` is what OPTS TUNE offers.
    pub(crate) fn new(
        config: ServerConfig,
        congestion: Arc<[String]>,
        logins: Authenticator,
        log: TransferLog,
    ) -> Self {
        Self {
            session_limits: SessionLimits::new(config.session_bounds()),
            congestion,
            stream_budget: StreamBudget::new(config.max_streams),
            transfer_queue: FairQueue::new(config.transfer_queue()),
            checksum_queue: FairQueue::new(config.checksum_queue()),
            listing_queue: FairQueue::new(config.listing_queue()),
            listener_queue: FairQueue::new(config.listener_queue()),
            phase: Arc::new(watch::Sender::new(ServerPhase::Serving)),
            config,
            authenticator: Arc::new(logins),
            transfer_log: Arc::new(log),
        }
    }

    /// The same server with other settings. Bounds hold at once, for all sessions.
    pub(crate) fn with_settings(&self, config: ServerConfig, congestion: Arc<[String]>) -> Self {
        self.session_limits.set_bounds(config.session_bounds());
        self.stream_budget.set_limit(config.max_streams);
        self.transfer_queue.set_bounds(config.transfer_queue());
        self.checksum_queue.set_bounds(config.checksum_queue());
        self.listing_queue.set_bounds(config.listing_queue());
        self.listener_queue.set_bounds(config.listener_queue());
        Self {
            session_limits: Arc::clone(&self.session_limits),
            congestion,
            stream_budget: self.stream_budget.clone(),
            transfer_queue: Arc::clone(&self.transfer_queue),
            checksum_queue: Arc::clone(&self.checksum_queue),
            listing_queue: Arc::clone(&self.listing_queue),
            listener_queue: Arc::clone(&self.listener_queue),
            phase: Arc::clone(&self.phase),
            config,
            authenticator: Arc::clone(&self.authenticator),
            transfer_log: Arc::clone(&self.transfer_log),
        }
    }

    /// The bound on data streams, for those of one client.
    pub(crate) fn client_stream_budget(&self, client: IpAddr) -> StreamBudget {
        self.stream_budget.for_client(client_key(client))
    }

    /// Tells all sessions.
    pub(crate) fn set_phase(&self, phase: ServerPhase) {
        self.phase.send_replace(phase);
    }

    /// To be told of phases to come.
    pub(crate) fn subscribe_phase(&self) -> watch::Receiver<ServerPhase> {
        self.phase.subscribe()
    }
}
