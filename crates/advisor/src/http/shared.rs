//! State that all requests share.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::HeaderMap;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use super::limits::{PeerShares, ServerLimits};
use super::names::NameResolver;
use super::token::{TokenRefused, WriteToken, may_write};
use crate::service::Advisor;

/// The address that a request came from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller(pub(super) IpAddr);

/// State of the HTTP server.
pub(super) struct Shared {
    pub(super) advisor: Advisor,
    pub(super) limits: ServerLimits,
    pub(super) names: NameResolver,
    pub(super) peers: Arc<PeerShares>,
    /// Places of listeners to live updates.
    pub(super) subscribers: Arc<Semaphore>,
    pub(super) stopping: watch::Receiver<bool>,
    pub(super) requests: RequestCounters,
    token: Option<WriteToken>,
}

impl Shared {
    pub(super) fn new(
        advisor: Advisor,
        token: Option<WriteToken>,
        limits: ServerLimits,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        Self {
            advisor,
            names: NameResolver::new(limits.name_time),
            peers: Arc::new(PeerShares::new(limits.clone())),
            subscribers: Arc::new(Semaphore::new(limits.subscribers)),
            stopping,
            requests: RequestCounters::default(),
            token,
            limits,
        }
    }

    /// Whether a request with this header may change something.
    pub(super) fn may_write(&self, headers: &HeaderMap) -> Result<(), TokenRefused> {
        may_write(self.token.as_ref(), headers)
    }
}

/// Numbers of requests since the start. The routes and the methods bound the number of names.
#[derive(Debug, Default)]
pub(super) struct RequestCounters {
    routes: Mutex<BTreeMap<(String, u16), u64>>,
    calls: Mutex<BTreeMap<&'static str, u64>>,
    refused_connections: AtomicU64,
    refused_requests: AtomicU64,
}

impl RequestCounters {
    /// Counts an answered request, by method and route.
    pub(super) fn route(&self, route: String, status: u16) {
        let mut routes = self.routes.lock();
        *routes.entry((route, status)).or_default() += 1;
    }

    /// Counts a call of XML-RPC.
    pub(super) fn call(&self, method: &'static str) {
        let mut calls = self.calls.lock();
        *calls.entry(method).or_default() += 1;
    }

    pub(super) fn refused_connection(&self) {
        self.refused_connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refused_request(&self) {
        self.refused_requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn routes(&self) -> BTreeMap<(String, u16), u64> {
        let routes = self.routes.lock();
        routes.clone()
    }

    pub(super) fn calls(&self) -> BTreeMap<&'static str, u64> {
        let calls = self.calls.lock();
        calls.clone()
    }

    /// Connections and requests that were refused because of a limit.
    pub(super) fn refused(&self) -> (u64, u64) {
        (
            self.refused_connections.load(Ordering::Relaxed),
            self.refused_requests.load(Ordering::Relaxed),
        )
    }
}

/// Returns when the server stops. If its handle is gone, it never does.
pub(super) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    if stopping.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}
