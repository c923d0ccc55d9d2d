//! A run from the outside: build it, let time pass, change it on the way, look at it.

use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::cross::CrossTrafficSource;
use super::event_handlers::flow_index;
use super::events::{EventQueue, SimEvent};
use super::flow::SimFlow;
use super::packets::PacketPool;
use super::pool::{BytePool, PoolId};
use super::stats::QueueingDelay;
use super::{FlowId, FlowSpec, FlowStats, Scenario, TrafficSource};
use crate::link::{Link, LinkCounters};

/// A scenario on its way through time.
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
    pub(super) queueing: QueueingDelay,
    /// When the latest packet left the forward bottleneck.
    pub(super) departed: Duration,
    /// Gives each part of the network its own seed.
    pub(super) seeds: Pcg64Mcg,
}

impl Simulation {
    /// A simulation at time zero.
    pub fn new(scenario: &Scenario) -> Self {
        let mut seeds = Pcg64Mcg::seed_from_u64(scenario.seed);
        let mut simulation = Self {
            now: Duration::ZERO,
            events: EventQueue::default(),
            packets: PacketPool::default(),
            flows: Vec::with_capacity(scenario.flows.len()),
            pools: Vec::new(),
            cross_traffic: Vec::with_capacity(scenario.cross_traffic.len()),
            forward: Link::new(scenario.forward.clone(), seeds.next_u64()),
            reverse: Link::new(scenario.reverse.clone(), seeds.next_u64()),
            queueing: QueueingDelay::default(),
            departed: Duration::ZERO,
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

    /// The time that the simulation has come to.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Runs until `until`.
    pub fn run_until(&mut self, until: Duration) {
        while let Some((at, event)) = self.events.pop(until) {
            self.now = at;
            self.handle(event);
        }
        self.now = self.now.max(until);
    }

    /// Runs until `done` says so, which is asked after every event, at most until `until`; whether
    /// it did.
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

    /// Adds a flow, which begins at its start or now, whichever is later.
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

    /// Stops a flow's application now; what it wrote is still delivered, and the block of a pool
    /// that it has begun is still written.
    pub fn stop_flow(&mut self, flow: FlowId) {
        self.flows[flow].stop();
        self.pump(flow);
    }

    /// Sets a flow's buffers, bytes, from now on; at least one segment each. A smaller receive
    /// buffer does not take back what was promised.
    pub fn set_buffers(&mut self, flow: FlowId, send: u64, receive: u64) {
        let state = &mut self.flows[flow];
        let tcp = &mut state.spec.tcp;
        (tcp.send_buffer, tcp.receive_buffer) = (send, receive);
        state.sender.set_send_buffer(&state.spec.tcp);
        state.receiver.set_window(&state.spec.tcp);
        self.pump(flow);
    }

    /// Holds a flow to `rate` from now on, bytes of payload per second; `None`: as its windows allow.
    pub fn set_pacing(&mut self, flow: FlowId, rate: Option<u64>) {
        self.flows[flow].sender.set_pace(self.now, rate);
        self.pump(flow);
    }

    /// A pool of `bytes` that flows take in blocks of `block` bytes (at least 1).
    pub fn add_pool(&mut self, bytes: u64, block: u64) -> PoolId {
        self.pools.push(BytePool::new(self.now, bytes, block));
        PoolId(self.pools.len() - 1)
    }

    /// Puts more bytes into a pool; flows that had found it empty go on.
    pub fn refill(&mut self, pool: PoolId, bytes: u64) {
        self.pools[pool.0].add(bytes);
        for flow in 0..self.flows.len() {
            let state = &mut self.flows[flow];
            if state.spec.source == TrafficSource::Pool(pool) {
                state.finished = None;
                self.pump(flow);
            }
        }
    }

    /// Bytes of a pool that no flow has taken yet.
    pub fn pool_left(&self, pool: PoolId) -> u64 {
        self.pools[pool.0].left()
    }

    /// Bytes of a pool that have arrived.
    pub fn pool_delivered(&self, pool: PoolId) -> u64 {
        self.pools[pool.0].delivered()
    }

    /// When all bytes of a pool had arrived; `None`: not yet, or not since it was refilled.
    pub fn pool_delivered_at(&self, pool: PoolId) -> Option<Duration> {
        self.pools[pool.0].delivered_at()
    }

    /// How many flows there are; the next one gets this number.
    pub fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// Statistics of a flow until now.
    pub fn flow(&self, flow: FlowId) -> FlowStats {
        self.flows[flow].stats(self.now)
    }

    /// Counts of the forward bottleneck, cross traffic included.
    pub fn forward_counters(&self) -> LinkCounters {
        self.forward.counters()
    }

    /// Counts of the way back.
    pub fn reverse_counters(&self) -> LinkCounters {
        self.reverse.counters()
    }

    /// How long packets waited for the forward bottleneck.
    pub fn queueing_delay(&self) -> QueueingDelay {
        self.queueing
    }

    /// Packets that are on their way now, cross traffic not counted.
    pub fn packets_in_flight(&self) -> usize {
        self.packets.in_flight()
    }

    /// Events handled or due.
    pub fn event_count(&self) -> u64 {
        self.events.made()
    }
}
