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
mod tests {
    use link::{Loss, Queue, Reorder};
    use proptest::prelude::*;
    use units::Rate;

    use super::*;
    use crate::topology::{LabHost, LabPath, LabRoute};

    /// Payload bytes of a segment. A segment's number is its TCP sequence number divided by this.
    const SEGMENT: u32 = 1000;

    /// A TCP super-packet with the segments `first`, `first + 1`, ...
    fn super_packet(first: u32, segments: u32) -> Vec<u8> {
        let length = u16::try_from(40 + segments * SEGMENT).unwrap();
        // Virtio-net: needs a checksum, TCP over IPv4; header length, segment size, checksum start and offset.
        let mut frame = vec![1, 1];
        for number in [40, 1000, 20, 16_u16] {
            frame.extend(number.to_ne_bytes());
        }
        frame.extend([0x45, 0]);
        frame.extend(length.to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 99, 0, 1, 10, 99, 0, 2]);
        frame.extend([0, 1, 0, 2]);
        frame.extend((first * SEGMENT).to_be_bytes());
        frame.extend([0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        frame.resize(frame.len() + (segments * SEGMENT) as usize, 7);
        frame
    }

    /// The numbers of the segments in a frame.
    fn numbers(frame: &[u8]) -> std::ops::Range<u32> {
        let sequence = frame[34..38].try_into().unwrap();
        let first = u32::from_be_bytes(sequence) / SEGMENT;
        let packet = RawPacket::parse(frame, TunFraming::Offloaded).unwrap();
        first..first + u32::try_from(packet.segments()).unwrap()
    }

    fn direction(conditions: &Conditions) -> PathDirection {
        let host = |name: &str| LabHost {
            name: name.to_owned(),
            sysctls: Vec::new(),
            congestion_control: None,
        };
        let topology = Topology {
            hosts: vec![host("a"), host("b")],
            routers: Vec::new(),
            paths: vec![LabPath {
                between: (0, 1),
                forward: conditions.clone(),
                back: conditions.clone(),
                forward_route: LabRoute::DIRECT,
                back_route: LabRoute::DIRECT,
            }],
            seed: 5,
            offload: true,
            mtu: 1500,
        };
        all_directions(&topology).swap_remove(0)
    }

    fn conditions() -> impl Strategy<Value = Conditions> {
        let rate = prop::sample::select(vec![0, 100, 1000, 10_000]);
        let chance = || prop::sample::select(vec![0.0, 0.02, 0.3]);
        (rate, chance(), chance(), chance(), chance(), 0_u64..3000).prop_map(
            |(rate, loss, duplicate, corrupt, held, extra)| Conditions {
                rate: (rate > 0).then(|| Rate::bits_per_second(rate * 1_000_000)),
                delay: Duration::from_millis(2),
                queue: Queue::Packets(60),
                loss: Loss::Independent(loss),
                reorder: Some(Reorder {
                    probability: held,
                    extra: Duration::from_micros(extra),
                }),
                duplicate,
                corrupt,
                trace: None,
            },
        )
    }

    /// Arrival of one segment, as the link computed it.
    #[derive(Debug, Clone, Copy)]
    struct ExpectedArrival {
        at: Duration,
        is_copied: bool,
        is_held: bool,
    }

    /// Offers the same packets to a link with the same seed.
    fn expected_arrivals(
        conditions: &Conditions,
        sizes: &[(u64, u32)],
    ) -> Vec<Option<ExpectedArrival>> {
        let mut link = Link::new(conditions.clone(), splitmix::nth(5, 0));
        let mut now = Duration::ZERO;
        let mut expected = Vec::new();
        for (gap, segments) in sizes {
            now += Duration::from_micros(*gap);
            for _ in 0..*segments {
                let held = link.counters().reordered;
                expected.push(match link.offer(now, 40 + SEGMENT) {
                    PacketFate::Delivered {
                        arrives_at: at,
                        duplicate_at: again,
                        ..
                    } => Some(ExpectedArrival {
                        at,
                        is_copied: again.is_some(),
                        is_held: link.counters().reordered > held,
                    }),
                    _ => None,
                });
            }
        }
        expected
    }

    proptest! {
        /// Delivery in batches does not change what the link does with each segment.
        #[test]
        fn each_segment_arrives_as_the_link_says(
            conditions in conditions(),
            sizes in prop::collection::vec((0_u64..2000, 1_u32..45), 1..12),
        ) {
            let mut direction = direction(&conditions);
            let (mut batcher, mut queue) = (SegmentBatcher::default(), DeliveryQueue::new(usize::MAX));
            let (mut now, mut next) = (Duration::ZERO, 0);
            for (gap, segments) in &sizes {
                now += Duration::from_micros(*gap);
                let frame = super_packet(next, *segments);
                next += segments;
                let packet = RawPacket::parse(&frame, TunFraming::Offloaded).unwrap();
                direction.send(now, &packet, TunFraming::Offloaded, 0, &mut batcher, &mut queue);
            }
            let expected = expected_arrivals(&conditions, &sizes);
            let mut times = vec![0; expected.len()];
            let mut in_turn = Vec::new();
            let mut before = Duration::ZERO;
            while let Some(entry) = queue.pop_due(Duration::MAX) {
                let delivery = entry.delivery;
                let segments = numbers(&delivery.frame);
                prop_assert_eq!(delivery.packets as usize, segments.len());
                prop_assert_eq!(delivery.bytes, u64::from(delivery.packets * (40 + SEGMENT)));
                prop_assert!(delivery.due >= before);
                before = delivery.due;
                for number in segments {
                    times[number as usize] += 1;
                    let arrival = expected[number as usize].expect("it was lost");
                    prop_assert!(delivery.due >= arrival.at, "early");
                    prop_assert!(delivery.due - arrival.at <= batching_interval(conditions.delay), "late");
                    if !arrival.is_held && !delivery.is_copy {
                        in_turn.push(number);
                    }
                }
                direction.record_delivery(&delivery, delivery.due);
            }
            prop_assert!(in_turn.is_sorted());
            let expected_times = expected.iter().map(|p| p.map_or(0, |p| 1 + i32::from(p.is_copied)));
            prop_assert_eq!(times, expected_times.collect::<Vec<_>>());
            let report = direction.report().unwrap();
            let arrived = expected.iter().flatten().count() as u64;
            prop_assert_eq!(report.delivered, arrived);
            prop_assert_eq!(report.packets, arrived + report.losses + report.queue_drops);
            prop_assert_eq!(direction.invalid_reasons(), Vec::<String>::new());
        }
    }

    #[test]
    fn directions_have_different_seeds() {
        let seeds: std::collections::BTreeSet<_> =
            (0..650).map(|index| splitmix::nth(1, index)).collect();
        assert_eq!(seeds.len(), 650);
        assert_ne!(splitmix::nth(1, 0), splitmix::nth(2, 0));
    }

    fn conditions_of_loss(loss: f64) -> Conditions {
        Conditions {
            delay: Duration::from_millis(1),
            loss: Loss::Independent(loss),
            ..Conditions::default()
        }
    }

    #[test]
    fn packets_that_the_receiver_refuses_do_not_count_as_delivered() {
        let mut direction = direction(&conditions_of_loss(0.0));
        let (mut batcher, mut queue) = (SegmentBatcher::default(), DeliveryQueue::new(usize::MAX));
        let frame = super_packet(0, 3);
        let packet = RawPacket::parse(&frame, TunFraming::Offloaded).unwrap();
        let now = Duration::ZERO;
        direction.send(
            now,
            &packet,
            TunFraming::Offloaded,
            0,
            &mut batcher,
            &mut queue,
        );
        assert_eq!(direction.refusal_note(), None);
        let entry = queue.pop_due(Duration::MAX).unwrap();
        direction.record_refusal(&entry.delivery);
        let report = direction.report().unwrap();
        assert_eq!((report.packets, report.delivered), (3, 0));
        assert!(
            direction
                .refusal_note()
                .unwrap()
                .starts_with("a to b: b refused 3 packets")
        );
    }
}
