//! One direction of a path at work: its link, and what came of it.

use std::time::Duration;

use sim::link::{Conditions, Fate, Link};
use units::splitmix;

use super::runs::{Arrival, Runs, quantum};
use super::schedule::{Delivery, Schedule};
use crate::net::packet::{Framing, Packet, corrupt};
use crate::net::report::DirectionReport;
use crate::net::validity::{HandOver, Lateness};
use crate::topology::Topology;

/// One direction of one path.
#[derive(Debug)]
pub(super) struct Direction {
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
    lateness: Option<Lateness>,
    delivered: u64,
    delivered_bytes: u64,
    corrupted: u64,
    /// Packets that the receiving host's kernel did not take.
    untaken: u64,
}

/// Every direction of the topology, paths in order, each forward and back.
pub(super) fn all(topology: &Topology) -> Vec<Direction> {
    let ends = topology.paths.iter().flat_map(|path| {
        let (one, other) = path.between;
        [(one, other, &path.forward), (other, one, &path.back)]
    });
    ends.zip(0..)
        .map(|((from, to, conditions), index)| {
            let delay = shortest_delay(conditions);
            let name = |host: usize| topology.hosts.get(host).map(|host| host.name.clone());
            Direction {
                from,
                to,
                names: (name(from).unwrap_or_default(), name(to).unwrap_or_default()),
                // A seed of its own, so that directions do not all lose the same packets.
                link: Link::new(conditions.clone(), splitmix::nth(topology.seed, index)),
                delay,
                quantum: quantum(delay),
                lateness: None,
                delivered: 0,
                delivered_bytes: 0,
                corrupted: 0,
                untaken: 0,
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

impl Direction {
    /// Sends a packet's segments into the link, each by itself, and schedules what arrives of them.
    /// `index`: this direction's; `runs`: scratch space.
    pub(super) fn send(
        &mut self,
        now: Duration,
        packet: &Packet<'_>,
        framing: Framing,
        index: usize,
        runs: &mut Runs,
        schedule: &mut Schedule,
    ) {
        runs.begin(self.quantum);
        for segment in 0..packet.segments() {
            let held = self.link.counters().reordered;
            let fate = self.link.offer(now, packet.segment_bytes(segment));
            if let Fate::Arrives {
                at, again, corrupt, ..
            } = fate
            {
                runs.push(Arrival {
                    index: segment,
                    at,
                    again,
                    corrupt,
                    is_held: self.link.counters().reordered != held,
                });
            }
        }
        for run in runs.all() {
            let mut frame = packet.piece(run.segments.clone());
            if let Some(choice) = run.corrupt
                && corrupt(&mut frame, framing, choice)
                && !run.is_copy
            {
                self.corrupted += 1;
            }
            let bytes = run.segments.clone();
            schedule.push(Delivery {
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
    pub(super) fn delivered(&mut self, delivery: &Delivery, at: Duration) {
        if !delivery.is_copy {
            self.delivered += u64::from(delivery.packets);
            self.delivered_bytes += delivery.bytes;
        }
        if self.lateness.is_none() {
            self.lateness = Lateness::new(self.delay).ok();
        }
        if let Some(lateness) = &mut self.lateness {
            lateness.note(HandOver {
                first: delivery.first,
                last: delivery.due,
                at,
                packets: delivery.packets,
                bytes: delivery.bytes,
            });
        }
    }

    /// The receiving host did not take a delivery.
    pub(super) fn refused(&mut self, delivery: &Delivery) {
        self.untaken += u64::from(delivery.packets);
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
            late_max_us: self.lateness.as_ref().map_or(0.0, Lateness::max),
        })
    }

    /// Why its lateness spoils the run.
    pub(super) fn objections(&self) -> Vec<String> {
        let (from, to) = &self.names;
        let lateness = self.lateness.iter();
        lateness
            .flat_map(|lateness| lateness.objections(&format!("{from} to {to}")))
            .collect()
    }

    /// Note worth reading.
    pub(super) fn note(&self) -> Option<String> {
        let (from, to) = &self.names;
        (self.untaken > 0).then(|| {
            format!(
                "{from} to {to}: {} packets were not taken by {to}, whose interface was down or out of memory",
                self.untaken
            )
        })
    }
}

#[cfg(test)]
mod tests;
