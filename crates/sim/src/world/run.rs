//! Handling of each event: packets hop from stage to stage, timers expire, hosts answer.

use std::time::Duration;

use super::events::Event;
use super::flow::Connection;
use super::packets::{Body, Packet, PacketId, Stage};
use super::{FlowId, Simulation, Source};
use crate::link::Fate;

/// Before a connection request is repeated the first time (RFC 6298 section 2.1); then twice as long.
const FIRST_RETRY: Duration = Duration::from_secs(1);

impl Simulation {
    pub(super) fn handle(&mut self, event: Event) {
        match event {
            Event::Hop(id) => self.hop(id),
            Event::Start(flow) => self.start(flow as FlowId),
            Event::Stop(flow) => self.stop_flow(flow as FlowId),
            Event::Write(flow) => self.make(flow as FlowId),
            Event::SenderTimer(flow) => self.sender_timer(flow as FlowId),
            Event::Turn(flow) => self.turn(flow as FlowId),
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
        self.events.push(retry, Event::SenderTimer(short(flow)));
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
            self.events.push(next, Event::Write(short(flow)));
            self.pump(flow);
        }
    }

    /// Lets the application write and TCP send until neither can.
    pub(super) fn pump(&mut self, flow: FlowId) {
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
        self.arm_turn(flow);
        self.arm_sender(flow);
    }

    /// Sees to it that a paced sender goes on in its turn; a turn that was moved comes later.
    fn arm_turn(&mut self, flow: FlowId) {
        let state = &mut self.flows[flow];
        let Some(turn) = state.sender.turn() else {
            return;
        };
        if state.turn_alarm.is_none_or(|alarm| alarm > turn) {
            state.turn_alarm = Some(turn);
            self.events.push(turn, Event::Turn(short(flow)));
        }
    }

    fn turn(&mut self, flow: FlowId) {
        let state = &mut self.flows[flow];
        if state.turn_alarm == Some(self.now) {
            state.turn_alarm = None;
            self.pump(flow);
        }
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
            flow: short(flow),
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
            self.events.push(deadline, Event::SenderTimer(short(flow)));
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
            self.events
                .push(deadline, Event::ReceiverTimer(short(flow)));
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

/// A flow's number as events and packets carry it.
pub(super) fn short(flow: FlowId) -> u32 {
    u32::try_from(flow).unwrap_or(u32::MAX)
}
