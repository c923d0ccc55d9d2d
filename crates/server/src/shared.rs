//! State that all sessions of a server share.

use std::net::IpAddr;
use std::sync::Arc;

use data::budget::StreamBudget;
use tokio::sync::watch;

use crate::config::ServerConfig;
use crate::limits::{FairQueue, Limits, client_key};
use crate::login::Logins;
use crate::transfer_log::TransferLog;

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

/// Settings and bounds that hold over all sessions. Sessions that begin after a reload get one with
/// other settings and the same counts; those that run keep the settings they began with.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The settings.
    pub(crate) config: ServerConfig,
    /// Who may log in.
    pub(crate) logins: Arc<Logins>,
    /// Counts sessions.
    pub(crate) limits: Arc<Limits>,
    /// One record per transfer.
    pub(crate) log: Arc<TransferLog>,
    /// The offer of OPTS TUNE.
    pub(crate) congestion: Arc<[String]>,
    /// Bound on data streams, at work or kept.
    pub(crate) streams: StreamBudget,
    /// One place per transfer.
    pub(crate) transfers: Arc<FairQueue>,
    /// One place per checksum being computed: more than there are processors only slow each
    /// other down, and would take the blocking threads that quick requests need.
    pub(crate) sums: Arc<FairQueue>,
    /// One place per listing for a reply or removal of a tree: these may take long, and must not
    /// take all the blocking threads that quick requests need.
    pub(crate) walks: Arc<FairQueue>,
    /// One place per listener being made.
    pub(crate) listens: Arc<FairQueue>,
    phase: Arc<watch::Sender<Phase>>,
}

impl Shared {
    /// At the start of serving; `congestion` is what OPTS TUNE offers.
    pub(crate) fn new(
        config: ServerConfig,
        congestion: Arc<[String]>,
        logins: Logins,
        log: TransferLog,
    ) -> Self {
        Self {
            limits: Limits::new(config.bounds()),
            congestion,
            streams: StreamBudget::new(config.max_streams),
            transfers: FairQueue::new(config.transfers()),
            sums: FairQueue::new(config.checksums()),
            walks: FairQueue::new(config.listings()),
            listens: FairQueue::new(config.listeners()),
            phase: Arc::new(watch::Sender::new(Phase::Serving)),
            config,
            logins: Arc::new(logins),
            log: Arc::new(log),
        }
    }

    /// The same server with other settings. Bounds hold at once, for all sessions.
    pub(crate) fn with_settings(&self, config: ServerConfig, congestion: Arc<[String]>) -> Self {
        self.limits.resize(config.bounds());
        self.streams.set_limit(config.max_streams);
        self.transfers.resize(config.transfers());
        self.sums.resize(config.checksums());
        self.walks.resize(config.listings());
        self.listens.resize(config.listeners());
        Self {
            limits: Arc::clone(&self.limits),
            congestion,
            streams: self.streams.clone(),
            transfers: Arc::clone(&self.transfers),
            sums: Arc::clone(&self.sums),
            walks: Arc::clone(&self.walks),
            listens: Arc::clone(&self.listens),
            phase: Arc::clone(&self.phase),
            config,
            logins: Arc::clone(&self.logins),
            log: Arc::clone(&self.log),
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
