//! The history goes into memory when the database is first reached.

use std::net::IpAddr;

use async_trait::async_trait;
use jiff::Timestamp;

use super::Core;
use crate::clock::WallAnchor;
use crate::hosts::{HostSource, MonitoredHost};
use crate::measurement::Quantity;
use crate::store::writer::StoreOwner;
use crate::store::{DatabaseError, HistoryPoint, Store, StoredClient};

/// Clients that are read at one time. Rows of a database take far more room than what is kept of them.
const CLIENTS_AT_ONCE: u32 = 200;

#[async_trait]
impl StoreOwner for Core {
    async fn opened(&self, store: &Store) -> Result<(), DatabaseError> {
        if *self.history.borrow() {
            // The file was replaced: the new one learns the clients.
            let known: Vec<IpAddr> = self.state().hosts.iter().map(|(ip, _)| ip).collect();
            self.state().changed.extend(known);
            return Ok(());
        }
        let anchor = WallAnchor::now(&*self.clock);
        let (mut after, mut future) = (String::new(), 0);
        loop {
            let page = store.clients(&after, CLIENTS_AT_ONCE).await?;
            // Databases order texts by their own rules: the next page begins after the last one's end.
            let Some(last) = page.last().map(|client| client.client.to_string()) else {
                break;
            };
            let restored = self.restore_clients(page, &anchor);
            future += self.read_paths(store, &after, &anchor).await?;
            self.plan_restored(&restored);
            after = last;
        }
        if future > 0 {
            tracing::warn!(
                measurements = future,
                "measurements are dated in the future: a clock is or was wrong; they count as a day old"
            );
        }
        self.history.send_replace(true);
        self.wake.notify_one();
        Ok(())
    }

    fn cautious_now(&self) -> Timestamp {
        self.anchor.cautious_wall(&*self.clock)
    }
}

impl Core {
    /// Puts clients of an earlier run into the registry; returns their addresses.
    fn restore_clients(&self, clients: Vec<StoredClient>, anchor: &WallAnchor) -> Vec<IpAddr> {
        let mut state = self.state();
        let mut restored = Vec::with_capacity(clients.len());
        for client in clients {
            let address = client.client.to_canonical();
            restored.push(address);
            // A client of the settings is one only as long as they name it.
            let source = match HostSource::from_name(&client.source) {
                None | Some(HostSource::Config) => HostSource::Api,
                Some(source) => source,
            };
            let host = MonitoredHost {
                source,
                added: client.added,
                seen: anchor.moment_of(client.seen),
                asked: client.asked.map(|asked| anchor.moment_of(asked)),
                asked_bytes: client.asked_bytes,
                tests: client.tests.map(Box::new),
            };
            state.restore(address, host);
        }
        restored
    }

    /// Reads what is known of the paths to the clients of one page; returns the number of values from the
    /// future.
    async fn read_paths(
        &self,
        store: &Store,
        after: &str,
        anchor: &WallAnchor,
    ) -> Result<usize, DatabaseError> {
        let values = u32::try_from(self.config.values).unwrap_or(u32::MAX);
        let now = self.clock.wall();
        let points = store.latest(after, CLIENTS_AT_ONCE, values, now).await?;
        self.restore_points(&points, anchor);
        for (client, detail) in store.details_after(after, CLIENTS_AT_ONCE).await? {
            let mut state = self.state();
            if state.hosts.get(client).is_some() {
                state.table.learn_route(client, &detail);
            }
        }
        let is_future = |point: &&HistoryPoint| anchor.is_future(point.at);
        Ok(points.iter().filter(is_future).count())
    }

    /// Plans the tests of clients of an earlier run, by when they were last measured.
    fn plan_restored(&self, clients: &[IpAddr]) {
        let now = self.clock.moment();
        for client in clients {
            let mut state = self.state();
            if state.hosts.get(*client).is_some() {
                state.place(*client);
                if let Some(measured) = state.table.newest(*client) {
                    state.groups.measured(*client, measured);
                }
                state.plan_tests(*client, now);
            }
        }
    }

    /// Puts the points of whole quantities, one after the other, into the table.
    fn restore_points(&self, points: &[HistoryPoint], anchor: &WallAnchor) {
        let same = |one: &HistoryPoint, other: &HistoryPoint| {
            (one.client, one.quantity) == (other.client, other.quantity)
        };
        for quantity in points.chunk_by(same) {
            let Some(last) = quantity.last() else {
                continue;
            };
            let (client, name): (IpAddr, Quantity) = (last.client, last.quantity);
            let value = |point: &HistoryPoint| (anchor.moment_of(point.at), point.value);
            let values: Vec<_> = quantity.iter().map(value).collect();
            let mut state = self.state();
            if state.hosts.get(client).is_some() {
                state.table.restore(client, name, &values);
            }
        }
    }

    /// Forgets clients that were not seen for long.
    pub(super) fn purge(&self) {
        let now = self.clock.moment();
        let purged = {
            let mut state = self.state();
            let purged = state.hosts.purge(now, self.config.purge_after);
            for client in &purged {
                state.forget_path(*client);
            }
            purged
        };
        if !purged.is_empty() {
            tracing::info!(
                clients = purged.len(),
                "clients not seen for long are forgotten"
            );
        }
        for client in purged {
            self.forgotten(client);
        }
    }
}
