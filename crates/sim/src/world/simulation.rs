//! The public interface of a simulation: create it, run it, change it while it runs, read its
//! statistics.

use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::cross::CrossTrafficSource;
use super::event_handlers::flow_index;
use super::events::{EventQueue, SimEvent};
use super::flow::{AccessQueues, SimFlow};
use super::packets::PacketPool;
use super::pool::{BytePool, PoolId};
use super::stats::QueueingDelay;
use super::{FlowId, FlowSpec, FlowStats, Scenario, TrafficSource};
use link::{Link, LinkCounters};

/// A running scenario.
#[derive(Debug)]
pub struct Simulation {
    pub(super) now: Duration,
    pub(super) events: EventQueue,
    pub(super) packets: PacketPool,
    pub(super) flows: Vec<SimFlow>,
    pub(super) pools: Vec<BytePool>,
    pub(super) cross_traffic: Vec<CrossTrafficSource>,
    pub(super) forward: Link,
    pub(super) reverse: Link,
    /// The access links that connections share.
    pub(super) shared_access: AccessQueues,
    pub(super) queueing: QueueingDelay,
    /// Departure of the latest packet from the forward bottleneck.
    pub(super) last_departure: Duration,
    /// Source of a separate seed for each part of the network.
    pub(super) seeds: Pcg64Mcg,
}

impl Simulation {
    /// A simulation at the time zero.
    pub fn new(scenario: &Scenario) -> Self {
        let mut seeds = Pcg64Mcg::seed_from_u64(scenario.seed);
        let mut simulation = Self {
            now: Duration::ZERO,
            events: EventQueue::default(),
            packets: PacketPool::default(),
            flows: Vec::with_capacity(scenario.flows.len()),
            pools: Vec::new(),
            cross_traffic: Vec::with_capacity(scenario.cross_traffic.len()),
            // The order of these draws is part of the results: changing it changes every run.
            forward: Link::new(scenario.forward.clone(), seeds.next_u64()),
            reverse: Link::new(scenario.reverse.clone(), seeds.next_u64()),
            shared_access: AccessQueues::default(),
            queueing: QueueingDelay::default(),
            last_departure: Duration::ZERO,
            seeds,
        };
        for (index, spec) in (0..).zip(&scenario.cross_traffic) {
            let seed = simulation.seeds.next_u64();
            let mut source = CrossTrafficSource::new(*spec, seed);
            let first = source.first();
            simulation.events.push(first, SimEvent::CrossTraffic(index));
            simulation.cross_traffic.push(source);
        }
        for spec in &scenario.flows {
            simulation.add_flow(*spec);
        }
        simulation
    }

    /// The current simulated time.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Runs until `until`.
    pub fn run_until(&mut self, until: Duration) {
        while let Some((at, event)) = self.events.pop(until) {
            self.now = at;
            self.handle(event);
        }
        // Without events the clock still reaches `until`.
        self.now = self.now.max(until);
    }

    /// Runs until `done` returns true, at most until `until`. `done` is called after every event. Returns
    /// whether `done` returned true.
    pub fn run_until_done(&mut self, until: Duration, mut done: impl FnMut(&Self) -> bool) -> bool {
        loop {
            if done(self) {
                return true;
            }
            let Some((at, event)) = self.events.pop(until) else {
                self.now = self.now.max(until);
                return false;
            };
            self.now = at;
            self.handle(event);
        }
    }

    /// Adds a flow. It begins at its start time or now, whichever is later.
    pub fn add_flow(&mut self, spec: FlowSpec) -> FlowId {
        let seed = self.seeds.next_u64();
        let id = self.flows.len();
        self.flows.push(SimFlow::new(spec, seed));
        self.events
            .push(spec.start.max(self.now), SimEvent::Start(flow_index(id)));
        if let Some(stop) = spec.stop {
            self.events
                .push(stop.max(self.now), SimEvent::Stop(flow_index(id)));
        }
        id
    }

    /// Stops a flow's application now. Data that it has written is still delivered, and a block that it
    /// has taken from a pool is still written.
    pub fn stop_flow(&mut self, flow: FlowId) {
        self.flows[flow].stop();
        self.pump(flow);
    }

    /// Sets a flow's buffers, bytes, at least one segment each. A smaller receive buffer does not shrink
    /// the window.
    pub fn set_buffers(&mut self, flow: FlowId, send: u64, receive: u64) {
        let state = &mut self.flows[flow];
        let tcp = &mut state.spec.tcp;
        (tcp.send_buffer, tcp.receive_buffer) = (send, receive);
        state.sender.set_send_buffer(&state.spec.tcp);
        state.receiver.set_window(&state.spec.tcp);
        self.pump(flow);
    }

    /// Sets a flow's pacing rate, bytes of payload per second, from now on; `None`: no pacing.
    pub fn set_pacing(&mut self, flow: FlowId, rate: Option<u64>) {
        self.flows[flow].sender.set_pace(self.now, rate);
        self.pump(flow);
    }

    /// Adds a pool of `bytes` that flows take in blocks of `block` bytes (at least 1).
    pub fn add_pool(&mut self, bytes: u64, block: u64) -> PoolId {
        self.pools.push(BytePool::new(self.now, bytes, block));
        PoolId(self.pools.len() - 1)
    }

    /// Adds bytes to a pool. Flows that had found it empty go on.
    pub fn refill(&mut self, pool: PoolId, bytes: u64) {
        self.pools[pool.0].add(bytes);
        for flow in 0..self.flows.len() {
            let state = &mut self.flows[flow];
            if state.spec.source == TrafficSource::Pool(pool) {
                // A refilled pool starts its flows again.
                state.finished = None;
                self.pump(flow);
            }
        }
    }

    /// Bytes in a pool that no flow has taken yet.
    pub fn pool_left(&self, pool: PoolId) -> u64 {
        self.pools[pool.0].left()
    }

    /// Bytes of a pool that have arrived.
    pub fn pool_delivered(&self, pool: PoolId) -> u64 {
        self.pools[pool.0].delivered()
    }

    /// Time at which all bytes of a pool had arrived; `None`: not yet, or not since the last refill.
    pub fn pool_delivered_at(&self, pool: PoolId) -> Option<Duration> {
        self.pools[pool.0].delivered_at()
    }

    /// Number of flows; the next flow gets this number.
    pub fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// Statistics of a flow until now.
    pub fn flow(&self, flow: FlowId) -> FlowStats {
        self.flows[flow].stats(self.now)
    }

    /// Counters of the forward link, including cross traffic.
    pub fn forward_counters(&self) -> LinkCounters {
        self.forward.counters()
    }

    /// Counters of the reverse link.
    pub fn reverse_counters(&self) -> LinkCounters {
        self.reverse.counters()
    }

    /// Queueing delay at the forward bottleneck.
    pub fn queueing_delay(&self) -> QueueingDelay {
        self.queueing
    }

    /// Number of packets in flight, without cross traffic.
    pub fn packets_in_flight(&self) -> usize {
        self.packets.in_flight()
    }

    /// Number of events that were scheduled so far.
    pub fn event_count(&self) -> u64 {
        self.events.scheduled()
    }
}
