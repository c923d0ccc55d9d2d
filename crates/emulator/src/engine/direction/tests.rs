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
