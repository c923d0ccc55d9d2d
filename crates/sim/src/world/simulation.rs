//! The run: takes events in the order of time and hands them to whom they concern.

use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::cross::CrossSource;
use super::events::{Event, Events};
use super::flow::{Connection, Flow};
use super::packets::{Body, Packet, PacketId, Packets, Stage};
use super::pool::{Pool, PoolId};
use super::stats::Queueing;
use super::{FlowId, FlowSpec, FlowStats, Scenario, Source};
use crate::link::{Counters, Fate, Link};

/// Before a connection request is repeated the first time (RFC 6298 section 2.1); then twice as long.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// A scenario on its way through time.
#[derive(Debug)]
pub struct Simulation {
    now: Duration,
    events: Events,
    packets: Packets,
    flows: Vec<Flow>,
    pools: Vec<Pool>,
    cross: Vec<CrossSource>,
    forward: Link,
    reverse: Link,
    queueing: Queueing,
    /// When the latest packet left the forward bottleneck.
    departed: Duration,
    /// Gives each part of the network its own seed.
    seeds: Pcg64Mcg,
}

impl Simulation {
    /// A simulation at time zero.
    pub fn new(scenario: &Scenario) -> Self {
        let mut seeds = Pcg64Mcg::seed_from_u64(scenario.seed);
        let mut simulation = Self {
            now: Duration::ZERO,
            events: Events::default(),
            packets: Packets::default(),
            flows: Vec::with_capacity(scenario.flows.len()),
            pools: Vec::new(),
            cross: Vec::with_capacity(scenario.cross.len()),
            forward: Link::new(scenario.forward.clone(), seeds.next_u64()),
            reverse: Link::new(scenario.reverse.clone(), seeds.next_u64()),
            queueing: Queueing::default(),
            departed: Duration::ZERO,
            seeds,
        };
        for (index, spec) in (0..).zip(&scenario.cross) {
            let seed = simulation.seeds.next_u64();
            let mut source = CrossSource::new(*spec, seed);
            let first = source.first();
            simulation.events.push(first, Event::Cross(index));
            simulation.cross.push(source);
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
        let index = u32::try_from(id).unwrap_or(u32::MAX);
        self.flows.push(Flow::new(spec, seed));
        self.events
            .push(spec.start.max(self.now), Event::Start(index));
        if let Some(stop) = spec.stop {
            self.events.push(stop.max(self.now), Event::Stop(index));
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
        state.sender.set_buffer(&state.spec.tcp);
        state.receiver.set_window(&state.spec.tcp);
        self.pump(flow);
    }

    /// A pool of `bytes` that flows take in blocks of `block` bytes (at least 1).
    pub fn add_pool(&mut self, bytes: u64, block: u64) -> PoolId {
        self.pools.push(Pool::new(self.now, bytes, block));
        PoolId(self.pools.len() - 1)
    }

    /// Puts more bytes into a pool; flows that had found it empty go on.
    pub fn refill(&mut self, pool: PoolId, bytes: u64) {
        self.pools[pool.0].add(bytes);
        for flow in 0..self.flows.len() {
            let state = &mut self.flows[flow];
            if state.spec.source == Source::Pool(pool) {
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
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// What a flow did until now.
    pub fn flow(&self, flow: FlowId) -> FlowStats {
        self.flows[flow].stats(self.now)
    }

    /// What the forward bottleneck did, cross traffic included.
    pub fn bottleneck(&self) -> Counters {
        self.forward.counters()
    }

    /// What the way back did.
    pub fn reverse(&self) -> Counters {
        self.reverse.counters()
    }

    /// How long packets waited for the forward bottleneck.
    pub fn queueing(&self) -> Queueing {
        self.queueing
    }

    /// Packets that are on their way now, cross traffic not counted.
    pub fn packets_in_flight(&self) -> usize {
        self.packets.in_flight()
    }

    /// Events handled or due.
    pub fn events(&self) -> u64 {
        self.events.made()
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Hop(id) => self.hop(id),
            Event::Start(flow) => self.start(flow as FlowId),
            Event::Stop(flow) => self.stop_flow(flow as FlowId),
            Event::Write(flow) => self.make(flow as FlowId),
            Event::SenderTimer(flow) => self.sender_timer(flow as FlowId),
            Event::ReceiverTimer(flow) => self.receiver_timer(flow as FlowId),
            Event::Cross(source) => self.send_cross(source),
        }
    }

    fn hop(&mut self, id: PacketId) {
        match self.packets.get(id).stage {
            Stage::Bottleneck => self.cross_bottleneck(id),
            Stage::Access => self.cross_access(id),
            Stage::Host => self.arrive(id),
        }
    }

    fn cross_bottleneck(&mut self, id: PacketId) {
        let packet = *self.packets.get(id);
        let forward = packet.body.is_forward();
        let fate = if forward {
            self.offer_forward(packet.bytes)
        } else {
            self.reverse.offer(self.now, packet.bytes)
        };
        let flow = &mut self.flows[packet.flow as usize];
        match fate {
            Fate::Dropped => flow.drops += 1,
            Fate::Lost => flow.losses += 1,
            Fate::Arrives { at, again, .. } => {
                self.packets.get(id).stage = Stage::Access;
                self.events.push(at, Event::Hop(id));
                if let Some(again) = again {
                    let copy = self.packets.add(Packet {
                        stage: Stage::Access,
                        ..packet
                    });
                    self.events.push(again, Event::Hop(copy));
                }
                return;
            }
        }
        self.packets.remove(id);
    }

    /// Offers to the forward bottleneck and notes how long what lies before it takes.
    fn offer_forward(&mut self, bytes: u32) -> Fate {
        let fate = self.forward.offer(self.now, bytes);
        if let Fate::Arrives { departs, .. } = fate {
            self.queueing.note(self.departed.saturating_sub(self.now));
            self.departed = departs;
        }
        fate
    }

    fn cross_access(&mut self, id: PacketId) {
        let packet = self.packets.get(id);
        packet.stage = Stage::Host;
        let flow = &mut self.flows[packet.flow as usize];
        let (lane, access) = if packet.body.is_forward() {
            (&mut flow.lanes.to_receiver, &flow.spec.receiver_access)
        } else {
            (&mut flow.lanes.to_sender, &flow.spec.sender_access)
        };
        let at = lane.carry(access, self.now, packet.bytes);
        self.events.push(at, Event::Hop(id));
    }

    fn arrive(&mut self, id: PacketId) {
        let packet = self.packets.remove(id);
        let flow = packet.flow as FlowId;
        match packet.body {
            Body::Open => self.answer(flow, Body::Opened),
            Body::Opened => self.opened(flow),
            Body::Segment(segment) => {
                let state = &mut self.flows[flow];
                let before = state.receiver.delivered_bytes();
                let (number, bytes) = (segment.number, segment.bytes);
                let ack = state.receiver.on_segment(self.now, number, bytes);
                let fresh = state.receiver.delivered_bytes() - before;
                if let Source::Pool(pool) = state.spec.source {
                    self.pools[pool.0].deliver(self.now, fresh);
                }
                match ack {
                    Some(ack) => self.answer(flow, Body::Ack(ack)),
                    None => self.arm_receiver(flow),
                }
            }
            Body::Ack(ack) => {
                self.flows[flow].sender.on_ack(self.now, &ack);
                self.pump(flow);
            }
        }
    }

    fn start(&mut self, flow: FlowId) {
        if let Source::Paced(_) = self.flows[flow].spec.source {
            self.make(flow);
        }
        if self.flows[flow].spec.tcp.handshake {
            self.request(flow, 1);
        } else {
            self.opened(flow);
        }
    }

    fn request(&mut self, flow: FlowId, tries: u32) {
        let retry = self.now + FIRST_RETRY * (1 << (tries - 1).min(6));
        let state = &mut self.flows[flow];
        state.connection = Connection::Opening { tries, retry };
        state.sender_alarm = Some(retry);
        let bytes = state.spec.tcp.headers;
        let index = u32::try_from(flow).unwrap_or(u32::MAX);
        self.events.push(retry, Event::SenderTimer(index));
        self.emit(flow, bytes, Body::Open);
    }

    fn opened(&mut self, flow: FlowId) {
        let state = &mut self.flows[flow];
        if state.connection != Connection::Open {
            state.connection = Connection::Open;
            state.sender_alarm = None;
            self.pump(flow);
        }
    }

    fn make(&mut self, flow: FlowId) {
        if let Some(next) = self.flows[flow].make(self.now) {
            let index = u32::try_from(flow).unwrap_or(u32::MAX);
            self.events.push(next, Event::Write(index));
            self.pump(flow);
        }
    }

    /// Lets the application write and TCP send until neither can.
    fn pump(&mut self, flow: FlowId) {
        if self.flows[flow].connection != Connection::Open {
            return;
        }
        let more = loop {
            let state = &mut self.flows[flow];
            let more = state.write(&mut self.pools);
            let Some(segment) = state.sender.poll(self.now) else {
                break more;
            };
            let bytes = state.packet_bytes(&segment);
            self.emit(flow, bytes, Body::Segment(segment));
        };
        let state = &mut self.flows[flow];
        state.sender.rest(self.now, more);
        if state.finished.is_none() && state.is_over(&self.pools) {
            state.finished = Some(self.now);
        }
        self.arm_sender(flow);
    }

    /// Sends a packet from the sending host.
    fn emit(&mut self, flow: FlowId, bytes: u32, body: Body) {
        let state = &mut self.flows[flow];
        let leaves = state.leaves_host(self.now);
        let access = &state.spec.sender_access;
        let at = state.lanes.from_sender.carry(access, leaves, bytes);
        self.launch(flow, bytes, body, at);
    }

    /// Sends a packet without payload from the receiving host.
    fn answer(&mut self, flow: FlowId, body: Body) {
        let state = &mut self.flows[flow];
        let bytes = state.spec.tcp.headers;
        let access = &state.spec.receiver_access;
        let at = state.lanes.from_receiver.carry(access, self.now, bytes);
        self.launch(flow, bytes, body, at);
    }

    fn launch(&mut self, flow: FlowId, bytes: u32, body: Body, at: Duration) {
        let id = self.packets.add(Packet {
            flow: u32::try_from(flow).unwrap_or(u32::MAX),
            bytes,
            stage: Stage::Bottleneck,
            body,
        });
        self.events.push(at, Event::Hop(id));
    }

    /// Sees to it that an event comes no later than the sender's timer; it may come earlier, since
    /// every acknowledgement moves the timer.
    fn arm_sender(&mut self, flow: FlowId) {
        let state = &mut self.flows[flow];
        let Some(deadline) = state.sender.deadline() else {
            return;
        };
        if state.sender_alarm.is_none_or(|alarm| alarm > deadline) {
            state.sender_alarm = Some(deadline);
            let index = u32::try_from(flow).unwrap_or(u32::MAX);
            self.events.push(deadline, Event::SenderTimer(index));
        }
    }

    fn sender_timer(&mut self, flow: FlowId) {
        let state = &mut self.flows[flow];
        if state.sender_alarm != Some(self.now) {
            return;
        }
        state.sender_alarm = None;
        if let Connection::Opening { tries, retry } = state.connection {
            if retry <= self.now {
                self.request(flow, tries + 1);
            }
            return;
        }
        if state.sender.deadline().is_some_and(|at| at <= self.now) {
            state.sender.on_timer(self.now);
            self.pump(flow);
        } else {
            self.arm_sender(flow);
        }
    }

    fn arm_receiver(&mut self, flow: FlowId) {
        let state = &mut self.flows[flow];
        let Some(deadline) = state.receiver.deadline() else {
            return;
        };
        if state.receiver_alarm.is_none() {
            state.receiver_alarm = Some(deadline);
            let index = u32::try_from(flow).unwrap_or(u32::MAX);
            self.events.push(deadline, Event::ReceiverTimer(index));
        }
    }

    fn receiver_timer(&mut self, flow: FlowId) {
        let state = &mut self.flows[flow];
        state.receiver_alarm = None;
        match state.receiver.deadline() {
            Some(at) if at <= self.now => {
                let ack = state.receiver.on_timer();
                self.answer(flow, Body::Ack(ack));
            }
            Some(_) => self.arm_receiver(flow),
            None => {}
        }
    }

    fn send_cross(&mut self, source: u32) {
        let (bytes, next) = self.cross[source as usize].send(self.now);
        self.offer_forward(bytes);
        if let Some(next) = next {
            self.events.push(next, Event::Cross(source));
        }
    }
}
