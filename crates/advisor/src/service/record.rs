//! Records of what happens: questions, clients, measurements. Memory first, then the database and those who
//! listen.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use tune::path::SeriesEvent;

use super::AdvisorEvent;
use super::Core;
use super::answer::FoundFacts;
use super::state::ServiceState;
use crate::clock::{Moment, WallAnchor};
use crate::hosts::{HostSource, MonitoredHost, canonical};
use crate::measurement::Measurement;
use crate::store::writer::StoreQueue;
use crate::store::{StoreEntry, StoredClient};

impl Core {
    pub(super) fn state(&self) -> MutexGuard<'_, ServiceState> {
        self.state.lock()
    }

    /// Notes a question, and finds the facts for its answer.
    pub(super) fn ask(&self, client: IpAddr, bytes: Option<u64>) -> FoundFacts {
        self.questions.fetch_add(1, Ordering::Relaxed);
        let admitted = self.admit(client, HostSource::Asked).is_some();
        let now = self.clock.moment();
        let mut state = self.state();
        state.hosts.asked(client, now, bytes);
        state.schedule.questioned(client, bytes, now);
        let mut found = state.facts(client, now);
        if found.facts.is_none() {
            let names = ["ping", "bottleneck"].iter();
            let numbers: Vec<usize> = names
                .filter_map(|n| state.schedule.test_number(n))
                .collect();
            let first = numbers
                .iter()
                .any(|number| state.schedule.due(client, *number).is_some());
            let mut asked = false;
            for number in numbers {
                asked |= state.schedule.request(client, number);
            }
            found.remedy = match (admitted, asked || first) {
                (false, _) => "it is no address of a host, or there is no room for it",
                (true, true) => "a test of it is scheduled, ask again in some seconds",
                (true, false) => "no test can be scheduled now",
            };
        }
        let is_measured_here = state.table.newest(client).is_some();
        drop(state);
        if admitted && !is_measured_here {
            self.want_shared(client);
        }
        if found.facts.is_none() {
            self.unknown.fetch_add(1, Ordering::Relaxed);
            self.wake.notify_one();
        }
        found
    }

    /// Finds the facts of a client, and leaves nothing behind of one that is not known.
    pub(super) fn look_up(&self, client: IpAddr) -> FoundFacts {
        let now = self.clock.moment();
        let state = self.state();
        let found = state.facts(client, now);
        self.questions.fetch_add(1, Ordering::Relaxed);
        self.unknown
            .fetch_add(u64::from(found.facts.is_none()), Ordering::Relaxed);
        let is_unmeasured =
            state.hosts.get(client).is_some() && state.table.newest(client).is_none();
        drop(state);
        if is_unmeasured {
            self.want_shared(client);
        }
        found
    }

    /// Adds a client; `None`: it is refused.
    pub(super) fn admit(&self, client: IpAddr, source: HostSource) -> Option<bool> {
        let client = canonical(client);
        let (now, wall) = (self.clock.moment(), self.clock.wall());
        let admission = self.state().admit(client, source, now, wall)?;
        if let Some(evicted) = admission.evicted {
            self.forgotten(evicted);
        }
        if admission.is_new {
            self.tell(AdvisorEvent::HostAdded(client, source));
            self.save(client);
            self.wake.notify_one();
        }
        Some(admission.is_new)
    }

    /// Takes in a checked measurement; returns whether it changed the path, and how.
    pub(super) fn record(&self, measurement: Measurement, at: Moment) -> Vec<SeriesEvent> {
        let anomalies = self.state().record(&measurement, at);
        self.measurements.fetch_add(1, Ordering::Relaxed);
        let mut found = Vec::with_capacity(anomalies.len());
        for anomaly in anomalies {
            self.anomalies.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                client = %anomaly.client,
                test = anomaly.test,
                quantity = anomaly.quantity.name(),
                event = ?anomaly.event,
                "a path behaves otherwise"
            );
            found.push(anomaly.event);
            self.tell(AdvisorEvent::Anomaly(anomaly, measurement.at));
        }
        self.push(StoreEntry::Measured(measurement.clone()));
        self.tell(AdvisorEvent::Measured(measurement));
        found
    }

    pub(super) fn forgotten(&self, client: IpAddr) {
        self.push(StoreEntry::Forget(client));
        self.tell(AdvisorEvent::HostForgotten(client));
    }

    pub(super) fn tell(&self, event: AdvisorEvent) {
        // Nobody listens: nothing to do.
        let _ = self.events.send(event);
    }

    pub(super) fn push(&self, entry: StoreEntry) {
        if let Some(queue) = self.queue.get() {
            queue.push(entry);
        }
    }

    /// Hands a client to the database.
    pub(super) fn save(&self, client: IpAddr) {
        let stored = {
            let mut state = self.state();
            state.changed.remove(&client);
            state
                .hosts
                .get(client)
                .map(|host| self.stored(client, host))
        };
        if let Some(stored) = stored {
            self.push(StoreEntry::Client(stored));
        }
    }

    /// Hands the clients that changed to the database, as far as half of its queue has room: measurements need
    /// the rest. The others follow in the next round.
    pub(super) fn save_changed(&self) {
        let room = self.queue.get().map_or(0, StoreQueue::room) / 2;
        let changed: Vec<IpAddr> = self.state().changed.iter().take(room).copied().collect();
        for client in changed {
            self.save(client);
        }
    }

    pub(super) fn stored(&self, client: IpAddr, host: &MonitoredHost) -> StoredClient {
        let anchor = WallAnchor::now(&*self.clock);
        StoredClient {
            client,
            source: host.source.name().to_owned(),
            added: host.added,
            seen: anchor.wall_of(host.seen),
            asked: host.asked.map(|asked| anchor.wall_of(asked)),
            asked_bytes: host.asked_bytes,
            tests: host.tests.as_deref().cloned(),
        }
    }
}
