//! The state that all sessions of a server share.

use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use data::budget::StreamBudget;
use data::rate::RateLimit;
use history::PathHistory;
use proto::server::AnnouncementMemory;
use tokio::sync::watch;

use crate::config::{ServerConfig, SiteTerms};
use crate::limits::{BandwidthBudgets, BudgetHolder, FairQueue, HandshakeLimits, SessionLimits};
use crate::login::{Authenticator, Login};
use crate::secure::SecurityMaterial;
use crate::stripes::{LoadMeter, NodeAccess, NodeDirectory};
use crate::transfer_log::TransferLog;

mod lost_process;
mod metrics;

pub(crate) use lost_process::{LostProcess, lost_process};
pub(crate) use metrics::{CountedTransfer, ServerMetrics, TransferOutcome};

/// The phase of a server's life. It only advances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ServerPhase {
    /// Sessions are accepted and served.
    Serving,
    /// No new transfers: a session ends after its transfer and the commands that belong to it.
    Draining,
    /// The drain time is over: running transfers are cut.
    Terminating,
}

/// Settings, limits and shared services. A reload makes a new value with new settings and the same
/// counters for the sessions to come; running sessions keep the value that they began with.
#[derive(Debug)]
pub(crate) struct ServerState {
    /// The settings.
    pub(crate) config: ServerConfig,
    /// Checks logins.
    pub(crate) authenticator: Arc<Authenticator>,
    /// Counters of sessions.
    pub(crate) session_limits: Arc<SessionLimits>,
    /// The log with one record per transfer.
    pub(crate) transfer_log: Arc<TransferLog>,
    /// The congestion controls that OPTS TUNE offers.
    pub(crate) congestion: Arc<[String]>,
    /// Budget of data streams, whether in use or kept for the next transfer.
    pub(crate) stream_budget: StreamBudget,
    /// Bandwidth of the server, of addresses and of users.
    pub(crate) bandwidth: Arc<BandwidthBudgets>,
    /// Memory for announced bundles.
    pub(crate) announcement_memory: AnnouncementMemory,
    /// Messages, and modes of new files.
    pub(crate) site: Arc<SiteTerms>,
    /// One permit per transfer.
    pub(crate) transfer_queue: Arc<FairQueue>,
    /// One permit per checksum being computed. More of them than processors would only slow each other
    /// down, and would take the blocking threads that quick requests need.
    pub(crate) checksum_queue: Arc<FairQueue>,
    /// One permit per listing in a reply or removal of a tree. These may take long and must not take all
    /// the blocking threads that quick requests need.
    pub(crate) listing_queue: Arc<FairQueue>,
    /// One permit per listener being opened.
    pub(crate) listener_queue: Arc<FairQueue>,
    /// The server's certificate, authorities and gridmap.
    pub(crate) material: Arc<SecurityMaterial>,
    /// The memory of paths.
    pub(crate) history: Option<PathHistory>,
    /// Numbers for monitoring.
    pub(crate) metrics: Arc<ServerMetrics>,
    /// Security handshakes that are not complete.
    pub(crate) handshakes: Arc<HandshakeLimits>,
    /// One permit per step of a GSI exchange: each takes up to a second of processor time.
    pub(crate) exchange_queue: Arc<FairQueue>,
    /// The data nodes of a front end.
    pub(crate) node_directory: Arc<NodeDirectory>,
    /// The work of this server as a data node.
    pub(crate) load_meter: Arc<LoadMeter>,
    phase: Arc<watch::Sender<ServerPhase>>,
    lost_process: Arc<OnceLock<LostProcess>>,
    /// The material of the last reload.
    newest_material: Arc<watch::Sender<Arc<SecurityMaterial>>>,
}

impl ServerState {
    /// The state at the start of a server; `congestion` is the offer of OPTS TUNE.
    pub(crate) fn new(
        config: ServerConfig,
        congestion: Arc<[String]>,
        logins: Authenticator,
        log: TransferLog,
    ) -> Self {
        let node_directory = NodeDirectory::default();
        node_directory.set_nodes(&config.node_addresses(|_| true));
        Self {
            session_limits: SessionLimits::new(config.session_bounds()),
            congestion,
            stream_budget: StreamBudget::new(config.max_streams),
            bandwidth: Arc::default(),
            announcement_memory: AnnouncementMemory::default(),
            site: Arc::default(),
            transfer_queue: FairQueue::new(config.transfer_queue()),
            checksum_queue: FairQueue::new(config.checksum_queue()),
            listing_queue: FairQueue::new(config.listing_queue()),
            listener_queue: FairQueue::new(config.listener_queue()),
            material: Arc::default(),
            history: None,
            metrics: Arc::new(ServerMetrics::new()),
            handshakes: Arc::default(),
            exchange_queue: FairQueue::new(config.exchange_queue()),
            node_directory: Arc::new(node_directory),
            load_meter: Arc::new(LoadMeter::new(Instant::now())),
            phase: Arc::new(watch::Sender::new(ServerPhase::Serving)),
            lost_process: Arc::default(),
            newest_material: Arc::new(watch::Sender::new(Arc::default())),
            config,
            authenticator: Arc::new(logins),
            transfer_log: Arc::new(log),
        }
    }

    /// The same state with certificates, authorities and gridmap.
    pub(crate) fn with_material(self, material: Arc<SecurityMaterial>) -> Self {
        self.newest_material.send_replace(Arc::clone(&material));
        Self { material, ..self }
    }

    /// The same state with messages and modes of new files.
    pub(crate) fn with_site(self, site: Arc<SiteTerms>) -> Self {
        Self { site, ..self }
    }

    /// The same state with a memory of paths.
    pub(crate) fn with_history(self, history: Option<PathHistory>) -> Self {
        Self { history, ..self }
    }

    /// The same server with other settings and files. New limits apply at once, to all sessions.
    pub(crate) fn with_settings(
        &self,
        config: ServerConfig,
        congestion: Arc<[String]>,
        material: Arc<SecurityMaterial>,
        site: Arc<SiteTerms>,
    ) -> Self {
        self.session_limits.set_bounds(config.session_bounds());
        self.stream_budget.set_limit(config.max_streams);
        self.transfer_queue.set_bounds(config.transfer_queue());
        self.checksum_queue.set_bounds(config.checksum_queue());
        self.listing_queue.set_bounds(config.listing_queue());
        self.listener_queue.set_bounds(config.listener_queue());
        self.exchange_queue.set_bounds(config.exchange_queue());
        self.newest_material.send_replace(Arc::clone(&material));
        self.node_directory
            .set_nodes(&config.node_addresses(|_| true));
        Self {
            // Shared with the sessions that run: limits count old and new sessions together.
            session_limits: Arc::clone(&self.session_limits),
            congestion,
            stream_budget: self.stream_budget.clone(),
            bandwidth: Arc::clone(&self.bandwidth),
            announcement_memory: self.announcement_memory.clone(),
            site,
            transfer_queue: Arc::clone(&self.transfer_queue),
            checksum_queue: Arc::clone(&self.checksum_queue),
            listing_queue: Arc::clone(&self.listing_queue),
            listener_queue: Arc::clone(&self.listener_queue),
            material,
            history: self.history.clone(),
            metrics: Arc::clone(&self.metrics),
            handshakes: Arc::clone(&self.handshakes),
            exchange_queue: Arc::clone(&self.exchange_queue),
            node_directory: Arc::clone(&self.node_directory),
            load_meter: Arc::clone(&self.load_meter),
            phase: Arc::clone(&self.phase),
            lost_process: Arc::clone(&self.lost_process),
            newest_material: Arc::clone(&self.newest_material),
            config,
            authenticator: Arc::clone(&self.authenticator),
            transfer_log: Arc::clone(&self.transfer_log),
        }
    }

    /// Access to the data nodes that have what is at `path`, relative to the root; `None`: there are none.
    pub(crate) fn node_access(&self, path: &Path) -> Option<NodeAccess> {
        let nodes = self.config.node_addresses(|node| node.has(path));
        (!nodes.is_empty()).then(|| NodeAccess {
            nodes,
            directory: Arc::clone(&self.node_directory),
            material: Arc::clone(&self.material),
        })
    }

    /// The stream budget of one client.
    pub(crate) fn client_stream_budget(&self, client: IpAddr) -> StreamBudget {
        self.stream_budget.for_client(client.into())
    }

    /// The bandwidth budget of a transfer of the client at `client`.
    pub(crate) fn transfer_rate(&self, client: IpAddr, login: &Login) -> Option<RateLimit> {
        let shares = &self.config.shares;
        let rate = match login.is_anonymous() {
            // As for the number of sessions: anonymous clients have nothing in common but their name.
            true => shares.own_rate_of(&login.account),
            false => shares.rate_of(&login.account),
        };
        let user = rate.map(|rate| (BudgetHolder::User(login.account.clone()), rate));
        let address = shares.rate_per_address;
        let address = address.map(|rate| (BudgetHolder::Address(client.into()), rate));
        let server = shares.rate.map(|rate| (BudgetHolder::Server, rate));
        let holders = [user, address, server].into_iter().flatten();
        let embedded = self.config.transfer.rate.clone();
        match (self.bandwidth.share(holders), embedded) {
            (Some(own), Some(outer)) => Some(own.within(outer)),
            (own, outer) => own.or(outer),
        }
    }

    /// Enters a phase and notifies all sessions.
    pub(crate) fn set_phase(&self, phase: ServerPhase) {
        // `send` would fail without receivers; the phase must be set even if there is no session.
        self.phase.send_replace(phase);
    }

    /// Notes that a process has ended without which the server cannot go on.
    pub(crate) fn note_lost_process(&self, lost: LostProcess) {
        let _ = self.lost_process.set(lost);
    }

    /// The process that has ended, if one has.
    pub(crate) fn lost_process(&self) -> Option<LostProcess> {
        self.lost_process.get().copied()
    }

    /// A receiver of the material of this and of later reloads.
    pub(crate) fn subscribe_material(&self) -> watch::Receiver<Arc<SecurityMaterial>> {
        self.newest_material.subscribe()
    }

    /// A receiver of later phases.
    pub(crate) fn subscribe_phase(&self) -> watch::Receiver<ServerPhase> {
        self.phase.subscribe()
    }
}
