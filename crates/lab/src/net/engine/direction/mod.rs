//! One direction of a path at work: its link, and what came of it.

use std::time::Duration;

use sim::link::{Conditions, Link, PacketFate};
use units::splitmix;

use super::batching::{SegmentArrival, SegmentBatcher, batching_interval};
use super::delivery_queue::{DeliveryQueue, PendingDelivery};
use crate::net::packet::{RawPacket, TunFraming, corrupt_payload};
use crate::net::report::DirectionReport;
use crate::net::validity::{DeliveredBatch, LatenessStats};
use crate::topology::Topology;

/// One direction of one path.
#[derive(Debug)]
pub(super) struct PathDirection {
    /// Index of the sending host.
    pub(super) from: usize,
    /// Index of the receiving host.
    pub(super) to: usize,
    /// `a to b`, by the hosts' names.
    names: (String, String),
    link: Link,
    /// The shortest propagation delay there will be.
    delay: Duration,
    /// How long segments may wait for each other.
    quantum: Duration,
    /// Made with the first hand-over: most pairs of many hosts never talk.
    lateness: Option<LatenessStats>,
    delivered: u64,
    delivered_bytes: u64,
    corrupted: u64,
    /// Packets that the receiving host's kernel did not take.
    refused_by_receiver: u64,
}

/// Every direction of the topology, paths in order, each forward and back.
pub(super) fn all_directions(topology: &Topology) -> Vec<PathDirection> {
    let ends = topology.paths.iter().flat_map(|path| {
        let (one, other) = path.between;
        [(one, other, &path.forward), (other, one, &path.back)]
    });
    ends.zip(0..)
        .map(|((from, to, conditions), index)| {
            let delay = shortest_delay(conditions);
            let name = |host: usize| topology.hosts.get(host).map(|host| host.name.clone());
            PathDirection {
                from,
                to,
                names: (name(from).unwrap_or_default(), name(to).unwrap_or_default()),
                // A seed of its own, so that directions do not all lose the same packets.
                link: Link::new(conditions.clone(), splitmix::nth(topology.seed, index)),
                delay,
                quantum: batching_interval(delay),
                lateness: None,
                delivered: 0,
                delivered_bytes: 0,
                corrupted: 0,
                refused_by_receiver: 0,
            }
        })
        .collect()
}

/// The shortest propagation delay there will be.
fn shortest_delay(conditions: &Conditions) -> Duration {
    let points = conditions.trace.iter().flat_map(|trace| trace.points());
    points
        .map(|point| point.rtt.map_or(conditions.delay, |rtt| rtt / 2))
        .min()
        .unwrap_or(conditions.delay)
}

impl PathDirection {
    /// Sends a packet's segments into the link, each by itself, and schedules what arrives of them.
    /// `index`: this direction's; `runs`: scratch space.
    pub(super) fn send(
        &mut self,
        now: Duration,
        packet: &RawPacket<'_>,
        framing: TunFraming,
        index: usize,
        runs: &mut SegmentBatcher,
        schedule: &mut DeliveryQueue,
    ) {
        runs.begin(self.quantum);
        for segment in 0..packet.segments() {
            let held = self.link.counters().reordered;
            let fate = self.link.offer(now, packet.segment_bytes(segment));
            if let PacketFate::Delivered {
                arrives_at: at,
                duplicate_at: again,
                corrupt,
                ..
            } = fate
            {
                runs.push(SegmentArrival {
                    index: segment,
                    at,
                    again,
                    corrupt,
                    is_held: self.link.counters().reordered != held,
                });
            }
        }
        for run in runs.batches() {
            let mut frame = packet.frame_of_segments(run.segments.clone());
            if let Some(choice) = run.corrupt
                && corrupt_payload(&mut frame, framing, choice)
                && !run.is_copy
            {
                self.corrupted += 1;
            }
            let bytes = run.segments.clone();
            schedule.push(PendingDelivery {
                direction: index,
                first: run.first,
                due: run.last,
                packets: u32::try_from(run.segments.len()).unwrap_or(u32::MAX),
                bytes: bytes.map(|s| u64::from(packet.segment_bytes(s))).sum(),
                is_copy: run.is_copy,
                frame,
            });
        }
    }

    /// A delivery was handed over.
    pub(super) fn record_delivery(&mut self, delivery: &PendingDelivery, at: Duration) {
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

    /// The receiving host did not take a delivery.
    pub(super) fn record_refusal(&mut self, delivery: &PendingDelivery) {
        self.refused_by_receiver += u64::from(delivery.packets);
    }

    /// Report so far; `None`: nothing happened.
    pub(super) fn report(&self) -> Option<DirectionReport> {
        let link = self.link.counters();
        let quantile = |part| self.lateness.as_ref().map_or(0.0, |l| l.quantile(part));
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

    /// Why its lateness spoils the run.
    pub(super) fn invalid_reasons(&self) -> Vec<String> {
        let (from, to) = &self.names;
        let lateness = self.lateness.iter();
        lateness
            .flat_map(|lateness| lateness.invalid_reasons(&format!("{from} to {to}")))
            .collect()
    }

    /// Note worth reading.
    pub(super) fn untaken_note(&self) -> Option<String> {
        let (from, to) = &self.names;
        (self.refused_by_receiver > 0).then(|| {
            format!(
                "{from} to {to}: {} packets were not taken by {to}, whose interface was down or out of memory",
                self.refused_by_receiver
            )
        })
    }
}

#[cfg(test)]
mod tests;
