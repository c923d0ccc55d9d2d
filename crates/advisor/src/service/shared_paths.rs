//! Paths that other servers of the database measured: answers for clients of which this server has no
//! measurements of its own.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tune::path::PathFacts;

use super::Core;
use crate::clock::{Moment, WallAnchor};
use crate::path_table::{KnownRoute, MeasuredPaths, QuantitySummary};
use crate::store::writer::StoreQueue;
use crate::store::{DatabaseError, HistoryPoint, SharedPath, Store};

/// Most clients that wait to be looked up. Those beyond it are looked up when they are asked about again.
const MOST_WAITING: usize = 64;
/// Time after which a client is looked up again.
const READ_AGAIN: Duration = Duration::from_secs(600);

/// Measurements of other servers, for clients that this one has not measured yet.
#[derive(Debug)]
pub(super) struct SharedPaths {
    table: MeasuredPaths,
    /// The server that measured, if any did, and when the database was asked.
    servers: HashMap<IpAddr, (Option<Box<str>>, Moment)>,
}

impl SharedPaths {
    /// Nothing, of so many values of each quantity.
    pub(super) fn new(values: usize) -> Self {
        Self {
            table: MeasuredPaths::new(values),
            servers: HashMap::new(),
        }
    }

    /// Facts of the path to a client, and the server that measured them.
    pub(super) fn facts(&self, client: IpAddr, now: Moment) -> Option<(PathFacts, &str)> {
        let (server, _) = self.servers.get(&client)?;
        let facts = self.table.facts(client, now)?;
        Some((facts, server.as_deref()?))
    }

    /// Statistics of every quantity of the path to a client.
    pub(super) fn summary(&self, client: IpAddr, now: Moment) -> Vec<QuantitySummary> {
        self.table.summary(client, now)
    }

    /// The route to a client.
    pub(super) fn route(&self, client: IpAddr) -> Option<&KnownRoute> {
        self.table.route(client)
    }

    /// Forgets a client: this server has measured it, or forgets it.
    pub(super) fn forget(&mut self, client: IpAddr) {
        self.table.forget(client);
        self.servers.remove(&client);
    }

    /// Whether the database should be asked about a client.
    fn is_due(&self, client: IpAddr, now: Moment) -> bool {
        let read = self.servers.get(&client).map(|(_, read)| *read);
        read.is_none_or(|read| now.since(read) >= READ_AGAIN)
    }

    fn learn(
        &mut self,
        client: IpAddr,
        path: Option<SharedPath>,
        anchor: &WallAnchor,
        now: Moment,
    ) {
        self.forget(client);
        let Some(path) = path else {
            self.servers.insert(client, (None, now));
            return;
        };
        for points in path
            .points
            .chunk_by(|one, other| one.quantity == other.quantity)
        {
            let value = |point: &HistoryPoint| (anchor.moment_of(point.at), point.value);
            let values: Vec<_> = points.iter().map(value).collect();
            if let Some(last) = points.last() {
                self.table.restore(client, last.quantity, &values);
            }
        }
        for detail in &path.details {
            self.table.learn_route(client, detail);
        }
        let server = Some(path.server.into_boxed_str());
        self.servers.insert(client, (server, now));
    }
}

/// The clients that wait to be looked up.
pub(super) fn waiting() -> (mpsc::Sender<IpAddr>, mpsc::Receiver<IpAddr>) {
    mpsc::channel(MOST_WAITING)
}

/// Looks clients up until the service ends.
pub(super) async fn run(core: Arc<Core>, mut wanted: mpsc::Receiver<IpAddr>) {
    let mut stop = core.stop.subscribe();
    loop {
        let client = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            client = wanted.recv() => client,
        };
        let Some(client) = client else {
            return;
        };
        if let Some(store) = core.queue.get().and_then(StoreQueue::store)
            && let Err(error) = core.read_shared(&store, client).await
        {
            tracing::debug!(%error, "the measurements of other servers cannot be read");
        }
    }
}

impl Core {
    /// Learns what other servers measured of the path to a monitored client that this server has not measured.
    pub(super) async fn read_shared(
        &self,
        store: &Store,
        client: IpAddr,
    ) -> Result<(), DatabaseError> {
        let is_wanted = |now| {
            let state = self.state();
            state.hosts.get(client).is_some()
                && state.table.newest(client).is_none()
                && state.shared.is_due(client, now)
        };
        if !is_wanted(self.clock.moment()) {
            return Ok(());
        }
        let values = u32::try_from(self.config.values).unwrap_or(u32::MAX);
        let path = store.shared_path(client, values, self.clock.wall()).await?;
        let anchor = WallAnchor::now(&*self.clock);
        let now = self.clock.moment();
        // Meanwhile, this server may have measured it.
        if is_wanted(now) {
            self.state().shared.learn(client, path, &anchor, now);
        }
        Ok(())
    }

    /// Has a client looked up soon.
    pub(super) fn want_shared(&self, client: IpAddr) {
        // Without room, the next question asks again.
        let _ = self.shared_wanted.try_send(client);
    }
}
