//! The handlers of all events: packets move from hop to hop, timers expire, hosts reply.

use std::time::Duration;

use super::events::SimEvent;
use super::flow::ConnectionState;
use super::packets::{NextHop, PacketBody, PacketId, SimPacket};
use super::{FlowId, Simulation, TrafficSource};
use link::PacketFate;

/// Timeout of the first connection request (RFC 6298 section 2.1); it doubles with each repetition.
const FIRST_RETRY: Duration = Duration::from_secs(1);

impl Simulation {
    pub(super) fn handle(&mut self, event: SimEvent) {
        match event {
            SimEvent::Hop(id) => self.hop(id),
            SimEvent::Start(flow) => self.start(flow as FlowId),
            SimEvent::Stop(flow) => self.stop_flow(flow as FlowId),
            SimEvent::AppWrite(flow) => self.produce_segment(flow as FlowId),
            SimEvent::SenderTimer(flow) => self.sender_timer(flow as FlowId),
            SimEvent::PacingTimer(flow) => self.pacing_timer(flow as FlowId),
            SimEvent::ReceiverTimer(flow) => self.receiver_timer(flow as FlowId),
            SimEvent::CrossTraffic(source) => self.send_cross_traffic(source),
        }
    }

    fn hop(&mut self, id: PacketId) {
        match self.packets.get(id).stage {
            NextHop::SharedAccess => self.leave_shared_host(id),
            NextHop::Bottleneck => self.cross_bottleneck(id),
            NextHop::Access => self.cross_access(id),
            NextHop::Host => self.arrive(id),
        }
    }

    fn cross_bottleneck(&mut self, id: PacketId) {
        let packet = *self.packets.get(id);
        let forward = packet.body.is_forward();
        let fate = if forward {
            self.offer_forward(packet.bytes)
        } else {
            // Queueing delay is measured only in the direction of the data.
            self.reverse.offer(self.now, packet.bytes)
        };
        let flow = &mut self.flows[packet.flow as usize];
        match fate {
            PacketFate::Dropped => flow.drops += 1,
            PacketFate::Lost => flow.losses += 1,
            PacketFate::Delivered {
                arrives_at: at,
                duplicate_at,
                ..
            } => {
                self.packets.get(id).stage = NextHop::Access;
                self.events.push(at, SimEvent::Hop(id));
                if let Some(duplicate_at) = duplicate_at {
                    let copy = self.packets.add(SimPacket {
                        stage: NextHop::Access,
                        ..packet
                    });
                    self.events.push(duplicate_at, SimEvent::Hop(copy));
                }
                return;
            }
        }
        // Reached only by packets that were dropped or lost.
        self.packets.remove(id);
    }

    /// Offers a packet to the forward link and records its queueing delay.
    fn offer_forward(&mut self, bytes: u32) -> PacketFate {
        let fate = self.forward.offer(self.now, bytes);
        if let PacketFate::Delivered {
            departs_at: departs,
            ..
        } = fate
        {
            self.queueing
                .record(self.last_departure.saturating_sub(self.now));
            self.last_departure = departs;
        }
        fate
    }

    fn cross_access(&mut self, id: PacketId) {
        let packet = self.packets.get(id);
        packet.stage = NextHop::Host;
        let flow = &mut self.flows[packet.flow as usize];
        let forward = packet.body.is_forward();
        let access = if forward {
            flow.spec.receiver_access
        } else {
            flow.spec.sender_access
        };
        let queues = if access.shared {
            &mut self.shared_access
        } else {
            &mut flow.access_queues
        };
        let lane = if forward {
            &mut queues.to_receiver
        } else {
            &mut queues.to_sender
        };
        let at = lane.carry(&access, self.now, packet.bytes);
        self.events.push(at, SimEvent::Hop(id));
    }

    fn arrive(&mut self, id: PacketId) {
        let packet = self.packets.remove(id);
        let flow = packet.flow as FlowId;
        match packet.body {
            PacketBody::Syn => self.answer(flow, PacketBody::SynAck),
            PacketBody::SynAck => {
                self.flows[flow].echo = packet.timestamp;
                self.opened(flow);
            }
            PacketBody::Segment(segment) => {
                let state = &mut self.flows[flow];
                if let Some(sent_at) = packet.timestamp {
                    state
                        .receiver
                        .on_round_trip(self.now.saturating_sub(sent_at));
                }
                let before = state.receiver.delivered_bytes();
                let (number, bytes) = (segment.number, segment.bytes);
                let ack = state.receiver.on_segment(self.now, number, bytes);
                // Duplicates must not count for the pool.
                let new_bytes = state.receiver.delivered_bytes() - before;
                if let TrafficSource::Pool(pool) = state.spec.source {
                    self.pools[pool.0].deliver(self.now, new_bytes);
                }
                match ack {
                    Some(ack) => self.answer(flow, PacketBody::Ack(ack)),
                    None => self.arm_receiver(flow),
                }
            }
            PacketBody::Ack(ack) => {
                self.flows[flow].echo = packet.timestamp;
                self.flows[flow].sender.on_ack(self.now, &ack);
                self.pump(flow);
            }
        }
    }

    fn start(&mut self, flow: FlowId) {
        if let TrafficSource::Paced(_) = self.flows[flow].spec.source {
            self.produce_segment(flow);
        }
        if self.flows[flow].spec.tcp.handshake {
            self.request(flow, 1);
        } else {
            self.opened(flow);
        }
    }

    fn request(&mut self, flow: FlowId, tries: u32) {
        // Linux doubles the SYN timeout in the same way (tcp_syn_retries, tcp(7)).
        let retry = self.now + FIRST_RETRY * (1 << (tries - 1).min(6));
        let state = &mut self.flows[flow];
        state.connection = ConnectionState::Opening { tries, retry };
        state.sender_timer_at = Some(retry);
        let bytes = state.spec.tcp.headers;
        self.events
            .push(retry, SimEvent::SenderTimer(flow_index(flow)));
        self.emit(flow, bytes, PacketBody::Syn);
    }

    fn opened(&mut self, flow: FlowId) {
        let state = &mut self.flows[flow];
        if state.connection != ConnectionState::Open {
            state.connection = ConnectionState::Open;
            state.sender_timer_at = None;
            self.pump(flow);
        }
    }

    fn produce_segment(&mut self, flow: FlowId) {
        if let Some(next) = self.flows[flow].produce_segment(self.now) {
            self.events.push(next, SimEvent::AppWrite(flow_index(flow)));
            self.pump(flow);
        }
    }

    /// Lets the application write and TCP send until neither can continue.
    pub(super) fn pump(&mut self, flow: FlowId) {
        if self.flows[flow].connection != ConnectionState::Open {
            return;
        }
        let more = loop {
            let state = &mut self.flows[flow];
            let more = state.write(&mut self.pools);
            let Some(segment) = state.sender.next_segment(self.now) else {
                break more;
            };
            let bytes = state.packet_bytes(&segment);
            self.emit(flow, bytes, PacketBody::Segment(segment));
        };
        let state = &mut self.flows[flow];
        state.sender.account_wait(self.now, more);
        if state.finished.is_none() && state.is_over(&self.pools) {
            state.finished = Some(self.now);
        }
        self.arm_pacing_timer(flow);
        self.arm_sender(flow);
    }

    /// Schedules the next send time of a paced sender. If that time moves to later, the event that is
    /// already scheduled checks it again.
    fn arm_pacing_timer(&mut self, flow: FlowId) {
        let state = &mut self.flows[flow];
        let Some(turn) = state.sender.next_pacing_time() else {
            return;
        };
        if state.pacing_timer_at.is_none_or(|alarm| alarm > turn) {
            state.pacing_timer_at = Some(turn);
            self.events
                .push(turn, SimEvent::PacingTimer(flow_index(flow)));
        }
    }

    fn pacing_timer(&mut self, flow: FlowId) {
        let state = &mut self.flows[flow];
        if state.pacing_timer_at == Some(self.now) {
            state.pacing_timer_at = None;
            self.pump(flow);
        }
    }

    /// Sends a packet from the sender's host.
    fn emit(&mut self, flow: FlowId, bytes: u32, body: PacketBody) {
        let state = &mut self.flows[flow];
        let leaves = state.leaves_host(self.now);
        let access = &state.spec.sender_access;
        if access.shared {
            // Another connection may be delayed less and use the link before.
            self.launch(flow, bytes, body, NextHop::SharedAccess, leaves);
            return;
        }
        let at = state.access_queues.from_sender.carry(access, leaves, bytes);
        self.launch(flow, bytes, body, NextHop::Bottleneck, at);
    }

    /// Sends a packet of the data's direction over the access link that the senders share.
    fn leave_shared_host(&mut self, id: PacketId) {
        let packet = self.packets.get(id);
        packet.stage = NextHop::Bottleneck;
        let access = &self.flows[packet.flow as usize].spec.sender_access;
        let lane = &mut self.shared_access.from_sender;
        let at = lane.carry(access, self.now, packet.bytes);
        self.events.push(at, SimEvent::Hop(id));
    }

    /// Sends a packet without payload from the receiver's host.
    fn answer(&mut self, flow: FlowId, body: PacketBody) {
        let state = &mut self.flows[flow];
        let bytes = state.spec.tcp.headers;
        let access = &state.spec.receiver_access;
        let queues = if access.shared {
            &mut self.shared_access
        } else {
            &mut state.access_queues
        };
        let at = queues.from_receiver.carry(access, self.now, bytes);
        self.launch(flow, bytes, body, NextHop::Bottleneck, at);
    }

    /// Adds a packet that reaches the hop `stage` at the time `at`.
    fn launch(&mut self, flow: FlowId, bytes: u32, body: PacketBody, stage: NextHop, at: Duration) {
        let timestamp = match body {
            PacketBody::Syn => None,
            PacketBody::SynAck | PacketBody::Ack(_) => Some(self.now),
            PacketBody::Segment(_) => self.flows[flow].echo,
        };
        let id = self.packets.add(SimPacket {
            flow: flow_index(flow),
            bytes,
            stage,
            timestamp,
            body,
        });
        self.events.push(at, SimEvent::Hop(id));
    }

    /// Makes sure that an event is scheduled no later than the retransmission timer. The event may come
    /// too early, because every acknowledgement postpones the timer; rescheduling it each time would be
    /// more expensive.
    fn arm_sender(&mut self, flow: FlowId) {
        let state = &mut self.flows[flow];
        let Some(deadline) = state.sender.deadline() else {
            return;
        };
        if state.sender_timer_at.is_none_or(|alarm| alarm > deadline) {
            state.sender_timer_at = Some(deadline);
            self.events
                .push(deadline, SimEvent::SenderTimer(flow_index(flow)));
        }
    }

    fn sender_timer(&mut self, flow: FlowId) {
        let state = &mut self.flows[flow];
        // An outdated event: the timer was scheduled again at another time.
        if state.sender_timer_at != Some(self.now) {
            return;
        }
        state.sender_timer_at = None;
        if let ConnectionState::Opening { tries, retry } = state.connection {
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
        // One event is enough: it checks the deadline again when it fires.
        if state.receiver_timer_at.is_none() {
            state.receiver_timer_at = Some(deadline);
            self.events
                .push(deadline, SimEvent::ReceiverTimer(flow_index(flow)));
        }
    }

    fn receiver_timer(&mut self, flow: FlowId) {
        let state = &mut self.flows[flow];
        state.receiver_timer_at = None;
        match state.receiver.deadline() {
            Some(at) if at <= self.now => {
                let ack = state.receiver.on_timer();
                self.answer(flow, PacketBody::Ack(ack));
            }
            Some(_) => self.arm_receiver(flow),
            None => {}
        }
    }

    fn send_cross_traffic(&mut self, source: u32) {
        let (bytes, next) = self.cross_traffic[source as usize].send(self.now);
        self.offer_forward(bytes);
        if let Some(next) = next {
            self.events.push(next, SimEvent::CrossTraffic(source));
        }
    }
}

/// The number of a flow in the form of events and packets.
pub(super) fn flow_index(flow: FlowId) -> u32 {
    u32::try_from(flow).unwrap_or(u32::MAX)
}
