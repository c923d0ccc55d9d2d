use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;
use crate::trace::TracePoint;

fn plain(rate: Option<u64>) -> Conditions {
    Conditions {
        rate: rate.map(Rate::bits_per_second),
        ..Conditions::default()
    }
}

/// A trace from (nanoseconds, rate, RTT in nanoseconds).
fn trace(points: &[(u64, Option<u64>, Option<u64>)]) -> Option<Arc<PathTrace>> {
    let points = points.iter().map(|&(at, rate, rtt)| TracePoint {
        at: Duration::from_nanos(at),
        rate: rate.map(Rate::bits_per_second),
        rtt: rtt.map(Duration::from_nanos),
        loss: None,
    });
    Some(Arc::new(PathTrace::new(points.collect()).unwrap()))
}

fn departure(fate: PacketFate) -> u64 {
    match fate {
        PacketFate::Delivered {
            departs_at: departs,
            ..
        } => nanoseconds(departs),
        other => panic!("{other:?}"),
    }
}

fn arrival(fate: PacketFate) -> u64 {
    match fate {
        PacketFate::Delivered { arrives_at: at, .. } => nanoseconds(at),
        other => panic!("{other:?}"),
    }
}

/// Offers `count` packets of 1 000 bytes, one a microsecond.
fn offer_many(conditions: &Conditions, seed: u64, count: u64) -> (Vec<PacketFate>, LinkCounters) {
    let mut link = Link::new(conditions.clone(), seed);
    let fates = (0..count).map(|i| link.offer(Duration::from_micros(i), 1000));
    (fates.collect(), link.counters())
}

#[test]
fn the_arrival_is_serialization_plus_delay() {
    let mut conditions = plain(Some(8_000_000));
    conditions.delay = Duration::from_millis(50);
    let mut link = Link::new(conditions, 1);
    let ms = Duration::from_millis;
    let first = link.offer(ms(10), 1000);
    assert_eq!(
        first,
        PacketFate::Delivered {
            arrives_at: ms(61),
            departs_at: ms(11),
            duplicate_at: None,
            corrupt: None
        }
    );
    assert_eq!(arrival(link.offer(ms(10), 2000)), nanoseconds(ms(63)));
    assert_eq!(arrival(link.offer(ms(500), 1000)), nanoseconds(ms(551)));
}

#[test]
fn without_a_rate_there_is_no_queue() {
    let mut conditions = plain(None);
    conditions.queue = Queue::Packets(1);
    let mut link = Link::new(conditions, 1);
    for _ in 0..100 {
        assert_eq!(
            departure(link.offer(Duration::from_secs(1), 1500)),
            1_000_000_000
        );
    }
    assert_eq!(link.counters().peak_queue_packets, 0);
}

#[test]
fn a_billion_packets_accumulate_no_drift() {
    // At this rate no packet takes a whole number of nanoseconds.
    let (rate, count, sample) = (7_777_777_777_u64, 1_000_000_000_u64, 1_000);
    let mut link = Link::new(plain(Some(rate)), 1);
    // Full-size datagrams stand for many packets: the remainder is carried the same way.
    let bytes = 1500;
    let mut last = 0;
    for _ in 0..sample {
        last = departure(link.offer(Duration::ZERO, bytes));
    }
    let exact = |n: u64| (u128::from(n) * 1500 * 8 * 1_000_000_000).div_ceil(u128::from(rate));
    assert_eq!(u128::from(last), exact(sample));
    let jumbo = u32::try_from(1500 * (count / sample)).unwrap();
    let mut link = Link::new(plain(Some(rate)), 1);
    for _ in 0..sample {
        last = departure(link.offer(Duration::ZERO, jumbo));
    }
    assert_eq!(u128::from(last), exact(count));
}

#[test]
fn the_packet_being_serialized_counts_as_queued() {
    let mut conditions = plain(Some(8_000_000));
    conditions.queue = Queue::Packets(2);
    let mut link = Link::new(conditions, 1);
    let us = Duration::from_micros;
    link.offer(us(0), 1000);
    link.offer(us(0), 1000);
    assert_eq!(link.offer(us(999), 1000), PacketFate::Dropped);
    assert_eq!(
        link.backlog(us(999)),
        LinkBacklog {
            packets: 2,
            bytes: 2000
        }
    );
    assert_ne!(link.offer(us(1000), 1000), PacketFate::Dropped);
    assert_eq!(link.backlog(us(3000)), LinkBacklog::default());
    assert_eq!(link.counters().queue_drops, 1);
}

#[test]
fn a_link_at_rate_0_never_delivers_and_never_hangs() {
    let standing = trace(&[(0, Some(0), None), (10, None, None)]);
    for trace in [None, standing] {
        let mut conditions = plain(Some(0));
        conditions.trace = trace;
        let mut link = Link::new(conditions, 1);
        assert_eq!(departure(link.offer(Duration::ZERO, 1000)), u64::MAX);
        assert_eq!(
            departure(link.offer(Duration::from_secs(9), 1000)),
            u64::MAX
        );
        assert_eq!(link.backlog(Duration::from_secs(99)).packets, 2);
    }
}

#[test]
fn a_packet_waits_while_the_rate_is_0() {
    // 1 Gbit/s for 1 µs, then nothing for 1 µs, again and again: 125 bytes each 2 µs.
    let mut conditions = plain(None);
    conditions.trace = trace(&[(0, Some(1_000_000_000), None), (1000, Some(0), None)]);
    let mut link = Link::new(conditions, 1);
    assert_eq!(departure(link.offer(Duration::ZERO, 125)), 1000);
    assert_eq!(departure(link.offer(Duration::ZERO, 1)), 2008);
    assert_eq!(departure(link.offer(Duration::ZERO, 124)), 3000);
    assert_eq!(
        departure(link.offer(Duration::ZERO, 125_000_000)),
        1_999_999_000 + 4000
    );
    assert_eq!(
        departure(link.offer(Duration::from_secs(7), 1)),
        7_000_000_008
    );
}

#[test]
fn an_unlimited_interval_sends_the_rest_at_once() {
    let mut conditions = plain(None);
    conditions.trace = trace(&[(0, Some(1_000_000_000), None), (1000, None, None)]);
    let mut link = Link::new(conditions, 1);
    assert_eq!(departure(link.offer(Duration::ZERO, 1500)), 1000);
    assert_eq!(
        departure(link.offer(Duration::from_nanos(1500), 1500)),
        1500
    );
}

#[test]
fn a_delay_that_shrinks_does_not_reorder() {
    let mut conditions = plain(None);
    conditions.trace = trace(&[(0, None, Some(2000)), (100, None, Some(20))]);
    let mut link = Link::new(conditions, 1);
    let at = |link: &mut Link, ns| arrival(link.offer(Duration::from_nanos(ns), 100));
    assert_eq!(at(&mut link, 99), 1099);
    assert_eq!(at(&mut link, 100), 1099);
    assert_eq!(at(&mut link, 150), 1099);
    assert_eq!(at(&mut link, 200), 1200);
}

#[test]
fn reordered_packets_are_overtaken() {
    let mut conditions = plain(Some(8_000_000_000));
    conditions.delay = Duration::from_millis(1);
    conditions.reorder = Some(Reorder {
        probability: 0.1,
        extra: Duration::from_micros(10),
    });
    let (fates, counters) = offer_many(&conditions, 3, 10_000);
    let mut overtaken = 0;
    let mut latest = 0;
    for fate in fates {
        let at = arrival(fate);
        overtaken += u64::from(at == departure(fate) + 1_010_000);
        if at == departure(fate) + 1_000_000 {
            assert!(at >= latest);
            latest = at;
        }
    }
    assert_eq!(overtaken, counters.reordered);
    assert!((800..1200).contains(&overtaken), "{overtaken}");
}

#[test]
fn enabling_one_impairment_does_not_change_another() {
    let losing = Conditions {
        loss: Loss::Independent(0.1),
        ..plain(Some(1_000_000_000))
    };
    let everything = Conditions {
        duplicate: 0.1,
        corrupt: 0.2,
        reorder: Some(Reorder {
            probability: 0.3,
            extra: Duration::from_millis(1),
        }),
        ..losing.clone()
    };
    let corrupting = Conditions {
        corrupt: 0.2,
        ..plain(Some(1_000_000_000))
    };
    let (only_loss, _) = offer_many(&losing, 9, 5000);
    let (all, _) = offer_many(&everything, 9, 5000);
    let (only_corruption, _) = offer_many(&corrupting, 9, 5000);
    let place = |fate: &PacketFate| match fate {
        PacketFate::Delivered { corrupt, .. } => *corrupt,
        _ => None,
    };
    for ((loss, all), corruption) in only_loss.iter().zip(&all).zip(&only_corruption) {
        assert_eq!(*loss == PacketFate::Lost, *all == PacketFate::Lost);
        if *all != PacketFate::Lost {
            assert_eq!(place(all), place(corruption));
        }
    }
}

/// Whether `hits` of `trials` fits probability `p`: within the 99.99 % interval (3.891 standard
/// deviations of the binomial distribution).
fn fits(hits: u64, trials: u64, p: f64) -> bool {
    let (hits, trials) = (hits as f64, trials as f64);
    (hits - trials * p).abs() <= 3.891 * (trials * p * (1.0 - p)).sqrt()
}

#[test]
fn frequencies_fit_their_probabilities() {
    let count = 200_000;
    for (seed, p) in [(1, 0.001), (2, 0.01), (3, 0.1), (4, 0.5)] {
        let conditions = Conditions {
            loss: Loss::Independent(p),
            ..plain(None)
        };
        let losses = offer_many(&conditions, seed, count).1.losses;
        assert!(fits(losses, count, p), "{losses} at {p}");
        let conditions = Conditions {
            duplicate: p,
            corrupt: p,
            ..plain(None)
        };
        let counters = offer_many(&conditions, seed, count).1;
        assert!(fits(counters.duplicated, count, p), "{counters:?}");
        assert!(fits(counters.corrupted, count, p), "{counters:?}");
    }
}

#[test]
fn probabilities_0_and_1_are_exact() {
    for (p, hits) in [(0.0, 0), (1.0, 10_000)] {
        let conditions = Conditions {
            loss: Loss::Independent(p),
            ..plain(None)
        };
        assert_eq!(offer_many(&conditions, 1, 10_000).1.losses, hits);
    }
}

#[test]
fn loss_bursts_have_the_configured_frequency_and_length() {
    let conditions = Conditions {
        loss: Loss::Bursty {
            to_bad: 0.002,
            to_good: 0.1,
            in_good: 0.0,
            in_bad: 1.0,
        },
        ..plain(None)
    };
    let (fates, counters) = offer_many(&conditions, 5, 500_000);
    let mut bursts = 0_u32;
    for pair in fates.windows(2) {
        bursts += u32::from(pair[0] != PacketFate::Lost && pair[1] == PacketFate::Lost);
    }
    let mean_length = counters.losses as f64 / f64::from(bursts);
    assert!((mean_length - 10.0).abs() < 1.5, "{mean_length}");
    let share = counters.losses as f64 / 500_000.0;
    assert!((share - 0.002 / 0.102).abs() < 0.003, "{share}");
}

#[test]
fn a_trace_replaces_the_loss_of_the_link() {
    let points = [(0, 0.0), (100, 1.0)].map(|(at, loss)| TracePoint {
        at: Duration::from_micros(at),
        rate: None,
        rtt: None,
        loss: Some(loss),
    });
    let conditions = Conditions {
        loss: Loss::Independent(0.5),
        trace: Some(Arc::new(PathTrace::new(points.to_vec()).unwrap())),
        ..plain(None)
    };
    let (fates, _) = offer_many(&conditions, 1, 1000);
    for (i, fate) in fates.iter().enumerate() {
        assert_eq!(*fate == PacketFate::Lost, i / 100 % 2 == 1, "packet {i}");
    }
}

/// The expected behaviour of the link, computed nanosecond by nanosecond: the departures, and the queue
/// at each arrival, including the arriving packet.
fn brute_force(
    points: &[(u64, u64)],
    period: u64,
    packets: &[(u64, u32)],
) -> (Vec<u64>, Vec<(u64, u64)>) {
    let mut departures = Vec::new();
    let mut backlogs = Vec::new();
    let mut left: VecDeque<(u128, u32)> = VecDeque::new();
    let mut next = packets.iter().peekable();
    let mut now = 0;
    while next.peek().is_some() || !left.is_empty() {
        while let Some((_, bytes)) = next.next_if(|(at, _)| *at == now) {
            left.push_back((u128::from(*bytes) * 8_000_000_000, *bytes));
            let waiting = left.iter().map(|(_, bytes)| u64::from(*bytes)).sum();
            backlogs.push((left.len() as u64, waiting));
        }
        let current = points.iter().rev().find(|(at, _)| *at <= now % period);
        let mut budget = u128::from(current.unwrap().1);
        while let Some((need, _)) = left.front_mut() {
            let sent = budget.min(*need);
            budget -= sent;
            *need -= sent;
            if *need > 0 {
                break;
            }
            departures.push(now + 1);
            left.pop_front();
        }
        now += 1;
    }
    (departures, backlogs)
}

prop_compose! {
    /// Points of a trace (nanoseconds, bit/s), at least one of them with a rate above 0.
    fn any_points()(
        gaps in prop::collection::vec(1..60_u64, 1..6),
        rates in prop::collection::vec(prop_oneof![Just(0), 1..4_000_000_000_000_u64], 7),
    ) -> Vec<(u64, u64)> {
        let mut at = 0;
        let mut points = vec![(0, rates[0])];
        for (gap, rate) in gaps.iter().zip(&rates[1..]) {
            at += gap;
            points.push((at, *rate));
        }
        if points.iter().all(|(_, rate)| *rate < 100_000_000_000) {
            points[0].1 = 1_000_000_000_000;
        }
        points
    }
}

prop_compose! {
    /// Packets (nanosecond, bytes) in time order.
    fn any_packets()(
        gaps in prop::collection::vec((prop_oneof![Just(0), 0..200_u64], 1..3000_u32), 1..40)
    ) -> Vec<(u64, u32)> {
        let mut now = 0;
        gaps.iter().map(|(gap, bytes)| { now += gap; (now, *bytes) }).collect()
    }
}

proptest! {
    #[test]
    fn a_varying_rate_is_integrated_exactly(points in any_points(), packets in any_packets()) {
        let of_trace: Vec<_> = points.iter().map(|&(at, rate)| (at, Some(rate), None)).collect();
        let mut conditions = plain(None);
        conditions.trace = trace(&of_trace);
        let period = conditions.trace.as_ref().unwrap().period();
        let mut link = Link::new(conditions, 1);
        let (departures, backlogs) = brute_force(&points, nanoseconds(period), &packets);
        for ((&(at, bytes), departs), backlog) in packets.iter().zip(departures).zip(backlogs) {
            let now = Duration::from_nanos(at);
            prop_assert_eq!(departure(link.offer(now, bytes)), departs);
            let waiting = link.backlog(now);
            prop_assert_eq!((waiting.packets, waiting.bytes), backlog);
        }
    }

    #[test]
    fn the_rate_is_exact_for_any_sizes(
        rate in 1_000..100_000_000_000_u64,
        sizes in prop::collection::vec(1..65_536_u32, 1..200),
    ) {
        let mut link = Link::new(plain(Some(rate)), 1);
        let mut sum = 0_u128;
        for bytes in sizes {
            sum += u128::from(bytes) * 8_000_000_000;
            let exact = sum.div_ceil(u128::from(rate));
            prop_assert_eq!(u128::from(departure(link.offer(Duration::ZERO, bytes))), exact);
        }
    }

    #[test]
    fn packets_are_conserved_in_order_and_within_the_queue(
        seed in any::<u64>(),
        queue in prop_oneof![(1..20_u32).prop_map(Queue::Packets), (1..20_000_u64).prop_map(Queue::Bytes)],
        points in any_points(),
        rtts in prop::collection::vec(prop::option::of(0..500_u64), 7),
        loss in 0.0..0.5_f64,
    ) {
        let of_trace: Vec<_> = points.iter().zip(&rtts)
            .map(|(&(at, rate), rtt)| (at, Some(rate), *rtt)).collect();
        let conditions = Conditions {
            queue,
            loss: Loss::Independent(loss),
            duplicate: 0.1,
            trace: trace(&of_trace),
            ..plain(None)
        };
        let mut link = Link::new(conditions.clone(), seed);
        let mut again = Link::new(conditions, seed);
        let mut numbers = Pcg64Mcg::seed_from_u64(seed);
        let (mut now, mut latest) = (Duration::ZERO, Duration::ZERO);
        let (mut drops, mut losses, mut arrivals) = (0, 0, 0);
        for _ in 0..300 {
            now += Duration::from_nanos(numbers.random_range(0..40));
            let bytes = numbers.random_range(20..1500);
            let fate = link.offer(now, bytes);
            prop_assert_eq!(fate, again.offer(now, bytes));
            match fate {
                PacketFate::Dropped => drops += 1,
                PacketFate::Lost => losses += 1,
                PacketFate::Delivered { arrives_at, departs_at, .. } => {
                    prop_assert!(arrives_at >= latest && arrives_at >= departs_at && departs_at >= now);
                    latest = arrives_at;
                    arrivals += 1;
                }
            }
            let waiting = link.backlog(now);
            match queue {
                Queue::Packets(most) => prop_assert!(waiting.packets <= u64::from(most)),
                Queue::Bytes(most) => prop_assert!(waiting.bytes <= most),
                Queue::Unlimited => {}
            }
        }
        let counters = link.counters();
        prop_assert_eq!(counters.packets, 300);
        prop_assert_eq!((counters.queue_drops, counters.losses, counters.delivered),
                        (drops, losses, arrivals));
        prop_assert_eq!(drops + losses + arrivals, 300);
    }

    #[test]
    fn no_call_panics(
        rate in prop::option::of(any::<u64>()),
        delay in any::<u64>(),
        calls in prop::collection::vec((any::<u64>(), any::<u32>()), 1..50),
    ) {
        let mut conditions = plain(rate);
        conditions.delay = Duration::from_nanos(delay);
        let mut link = Link::new(conditions, 0);
        for (now, bytes) in calls {
            link.offer(Duration::from_nanos(now), bytes);
        }
    }
}
