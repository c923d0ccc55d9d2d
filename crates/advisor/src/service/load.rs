//! The history goes into memory when the database is first reached.

use std::net::IpAddr;

use async_trait::async_trait;
use jiff::Timestamp;

use super::Core;
use crate::clock::WallAnchor;
use crate::hosts::{HostSource, MonitoredHost};
use crate::measurement::Quantity;
use crate::store::writer::StoreOwner;
use crate::store::{DatabaseError, HistoryPoint, Store};

/// Clients that are read at one time.
const CLIENTS_AT_ONCE: u32 = 500;

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
        let clients = store.clients().await?;
        let mut order: Vec<String> = Vec::with_capacity(clients.len());
        let mut restored = Vec::with_capacity(clients.len());
        for client in clients {
            let address = client.client.to_canonical();
            order.push(client.client.to_string());
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
                tests: client.tests,
            };
            self.state().restore(address, host);
        }
        self.read_paths(store, &order, &anchor).await?;
        let now = self.clock.moment();
        for client in restored {
            let mut state = self.state();
            if state.hosts.get(client).is_some() {
                state.place(client);
                if let Some(measured) = state.table.newest(client) {
                    state.groups.measured(client, measured);
                }
                state.plan_tests(client, now);
            }
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
    async fn read_paths(
        &self,
        store: &Store,
        order: &[String],
        anchor: &WallAnchor,
    ) -> Result<(), DatabaseError> {
        let values = u32::try_from(self.config.values).unwrap_or(u32::MAX);
        let now = self.clock.wall();
        let (mut after, mut future) = (String::new(), 0_usize);
        let mut sorted = order.to_vec();
        // Databases order texts by their own rules: the pages follow the order in which the clients came.
        sorted.dedup();
        for page in sorted.chunks(CLIENTS_AT_ONCE as usize) {
            let points = store.latest(&after, CLIENTS_AT_ONCE, values, now).await?;
            future += points
                .iter()
                .filter(|point| anchor.is_future(point.at))
                .count();
            self.restore_points(&points, anchor);
            for (client, detail) in store.details_after(&after, CLIENTS_AT_ONCE).await? {
                let mut state = self.state();
                if state.hosts.get(client).is_some() {
                    state.table.learn_route(client, &detail);
                }
            }
            after = page.last().cloned().unwrap_or_default();
        }
        if future > 0 {
            tracing::warn!(
                measurements = future,
                "measurements are dated in the future: a clock is or was wrong; they count as a day old"
            );
        }
        Ok(())
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
            let values: Vec<f64> = quantity.iter().map(|point| point.value).collect();
            let mut state = self.state();
            if state.hosts.get(client).is_some() {
                let newest = anchor.moment_of(last.at);
                state.table.restore(client, name, &values, newest);
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
