//! One direction of a path: its link and its counters.

use std::time::Duration;

use link::{Conditions, Link, PacketFate};
use units::splitmix;

use super::batching::{SegmentArrival, SegmentBatcher, batching_interval};
use super::delivery_queue::{DeliveryQueue, PendingDelivery};
use super::route::{DirectionRoute, StopAtRouter};
use crate::packet::{RawPacket, TunFraming, corrupt_payload, lower_ttl};
use crate::report::DirectionReport;
use crate::topology::Topology;
use crate::validity::{DeliveredBatch, LatenessStats};

/// One direction of one path.
#[derive(Debug)]
pub(super) struct PathDirection {
    /// Index of the sending host.
    pub(super) from: usize,
    /// Index of the receiving host.
    pub(super) to: usize,
    /// Names of the sending and the receiving host.
    names: (String, String),
    link: Link,
    /// The routers between the hosts.
    pub(super) route: DirectionRoute,
    /// The shortest propagation delay during the run.
    delay: Duration,
    /// How long segments may wait for each other to be delivered together.
    batching_interval: Duration,
    /// Created at the first delivery: with many hosts most pairs never communicate.
    lateness: Option<LatenessStats>,
    delivered: u64,
    delivered_bytes: u64,
    corrupted: u64,
    /// Packets that the receiving host's kernel refused.
    refused_by_receiver: u64,
}

/// All directions of the topology: paths in order, each with forward and back.
pub(super) fn all_directions(topology: &Topology) -> Vec<PathDirection> {
    let ends = topology.paths.iter().flat_map(|path| {
        let (one, other) = path.between;
        let (forward, back) = (
            DirectionRoute::new(path, false),
            DirectionRoute::new(path, true),
        );
        [
            (one, other, &path.forward, forward),
            (other, one, &path.back, back),
        ]
    });
    ends.zip(0..)
        .map(|((from, to, conditions, route), index)| {
            let delay = shortest_delay(conditions);
            let name = |host: usize| topology.hosts.get(host).map(|host| host.name.clone());
            PathDirection {
                from,
                to,
                names: (name(from).unwrap_or_default(), name(to).unwrap_or_default()),
                // Each direction has its own seed; otherwise all would lose the same packets.
                link: Link::new(conditions.clone(), splitmix::nth(topology.seed, index)),
                route,
                delay,
                batching_interval: batching_interval(delay),
                lateness: None,
                delivered: 0,
                delivered_bytes: 0,
                corrupted: 0,
                refused_by_receiver: 0,
            }
        })
        .collect()
}

/// The shortest propagation delay during the run.
fn shortest_delay(conditions: &Conditions) -> Duration {
    let points = conditions.trace.iter().flat_map(|trace| trace.points());
    points
        .map(|point| point.rtt.map_or(conditions.delay, |rtt| rtt / 2))
        .min()
        .unwrap_or(conditions.delay)
}

impl PathDirection {
    /// Sends each segment of a packet into the link separately, and schedules those that arrive.
    /// `index` is the index of this direction; `batcher` is reused to avoid allocations.
    pub(super) fn send(
        &mut self,
        now: Duration,
        packet: &RawPacket<'_>,
        framing: TunFraming,
        index: usize,
        batcher: &mut SegmentBatcher,
        queue: &mut DeliveryQueue,
    ) {
        batcher.begin(self.batching_interval);
        for segment in 0..packet.segments() {
            // The fate does not tell whether the link held the segment back; its counter does.
            let reordered_before = self.link.counters().reordered;
            let fate = self.link.offer(now, packet.segment_bytes(segment));
            if let PacketFate::Delivered {
                arrives_at: at,
                duplicate_at: again,
                corrupt,
                ..
            } = fate
            {
                batcher.push(SegmentArrival {
                    index: segment,
                    at,
                    again,
                    corrupt,
                    is_held: self.link.counters().reordered != reordered_before,
                });
            }
        }
        let hops = self.route.hops();
        for batch in batcher.batches() {
            let mut frame = packet.frame_of_segments(batch.segments.clone());
            if hops > 0 {
                lower_ttl(&mut frame, framing, hops);
            }
            if let Some(choice) = batch.corrupt
                && corrupt_payload(&mut frame, framing, choice)
                && !batch.is_copy
            {
                self.corrupted += 1;
            }
            let bytes = batch.segments.clone();
            queue.push(PendingDelivery {
                direction: index,
                first: batch.first,
                due: batch.last,
                packets: u32::try_from(batch.segments.len()).unwrap_or(u32::MAX),
                bytes: bytes.map(|s| u64::from(packet.segment_bytes(s))).sum(),
                is_copy: batch.is_copy,
                stop: None,
                frame,
            });
        }
    }

    /// Sends a packet that ends at a router: over the bottleneck if that lies before the router. `index` is the
    /// index of this direction.
    pub(super) fn send_to_router(
        &mut self,
        now: Duration,
        packet: &RawPacket<'_>,
        stop: StopAtRouter,
        index: usize,
        queue: &mut DeliveryQueue,
    ) {
        let is_in_link = self.route.is_bottleneck_before(stop.router);
        for segment in 0..packet.segments() {
            let bytes = packet.segment_bytes(segment);
            let travel = self.travel(now, bytes, is_in_link);
            let Some((departs, delay)) = travel else {
                continue;
            };
            let due = departs + self.route.delay_before(stop.router, delay);
            let frame = packet.frame_of_segments(segment..segment + 1);
            queue.push(single_delivery(
                index,
                due,
                (bytes, is_in_link),
                Some(stop),
                frame,
            ));
        }
    }

    /// Sends the answer of a router that joins this direction behind `skips` of its routers.
    pub(super) fn send_from_router(
        &mut self,
        now: Duration,
        frame: Vec<u8>,
        bytes: u32,
        skips: usize,
        index: usize,
        queue: &mut DeliveryQueue,
    ) {
        let is_in_link = self.route.is_bottleneck_after(skips);
        if let Some((departs, delay)) = self.travel(now, bytes, is_in_link) {
            let due = departs + self.route.delay_after(skips, delay);
            queue.push(single_delivery(
                index,
                due,
                (bytes, is_in_link),
                None,
                frame,
            ));
        }
    }

    /// The time at which a packet has passed the bottleneck, if that is on its way, and the propagation delay of
    /// the whole direction. `None`: it is dropped or lost.
    fn travel(
        &mut self,
        now: Duration,
        bytes: u32,
        is_in_link: bool,
    ) -> Option<(Duration, Duration)> {
        if !is_in_link {
            return Some((now, self.delay));
        }
        match self.link.offer(now, bytes) {
            PacketFate::Delivered {
                arrives_at,
                departs_at,
                ..
            } => Some((departs_at, arrives_at.saturating_sub(departs_at))),
            PacketFate::Dropped | PacketFate::Lost => None,
        }
    }

    /// Records a delivery to the receiving host.
    pub(super) fn record_delivery(&mut self, delivery: &PendingDelivery, at: Duration) {
        // Duplicates are not counted as delivered, so that delivered never exceeds sent.
        if !delivery.is_copy {
            self.delivered += u64::from(delivery.packets);
            self.delivered_bytes += delivery.bytes;
        }
        if self.lateness.is_none() {
            self.lateness = LatenessStats::new(self.delay).ok();
        }
        if let Some(lateness) = &mut self.lateness {
            lateness.record(DeliveredBatch {
                first: delivery.first,
                last: delivery.due,
                at,
                packets: delivery.packets,
                bytes: delivery.bytes,
            });
        }
    }

    /// Records a delivery that the receiving host refused.
    pub(super) fn record_refusal(&mut self, delivery: &PendingDelivery) {
        self.refused_by_receiver += u64::from(delivery.packets);
    }

    /// Report so far; `None` if no packet was sent.
    pub(super) fn report(&self) -> Option<DirectionReport> {
        let link = self.link.counters();
        let quantile = |part| self.lateness.as_ref().map_or(0.0, |l| l.quantile(part));
        // Directions without traffic are left out: a lab of 26 hosts has 650 directions.
        (link.packets > 0).then(|| DirectionReport {
            from: self.names.0.clone(),
            to: self.names.1.clone(),
            packets: link.packets,
            bytes: link.bytes,
            queue_drops: link.queue_drops,
            losses: link.losses,
            delivered: self.delivered,
            delivered_bytes: self.delivered_bytes,
            duplicated: link.duplicated,
            corrupted: self.corrupted,
            reordered: link.reordered,
            peak_queue_packets: link.peak_queue_packets,
            peak_queue_bytes: link.peak_queue_bytes,
            late_p50_us: quantile(0.5),
            late_p99_us: quantile(0.99),
            late_max_us: self.lateness.as_ref().map_or(0.0, LatenessStats::max),
        })
    }

    /// Reasons why the lateness makes the run invalid.
    pub(super) fn invalid_reasons(&self) -> Vec<String> {
        let (from, to) = &self.names;
        let lateness = self.lateness.iter();
        lateness
            .flat_map(|lateness| lateness.invalid_reasons(&format!("{from} to {to}")))
            .collect()
    }

    /// A note about refused packets.
    pub(super) fn refusal_note(&self) -> Option<String> {
        let (from, to) = &self.names;
        (self.refused_by_receiver > 0).then(|| {
            format!(
                "{from} to {to}: {to} refused {} packets; its interface was down or out of memory",
                self.refused_by_receiver
            )
        })
    }
}

/// A delivery of one packet, which counts only if it passed the link.
fn single_delivery(
    direction: usize,
    due: Duration,
    (bytes, is_in_link): (u32, bool),
    stop: Option<StopAtRouter>,
    frame: Vec<u8>,
) -> PendingDelivery {
    PendingDelivery {
        direction,
        first: due,
        due,
        packets: u32::from(is_in_link),
        bytes: if is_in_link { u64::from(bytes) } else { 0 },
        is_copy: false,
        stop,
        frame,
    }
}

#[cfg(test)]
mod tests;
