//! The estimator over a simulated link: a FIFO of one rate, then a host that delivers late or in batches.

use super::*;
use proptest::prelude::*;
use units::splitmix::SplitMix64;

/// How the receiving host delivers packets.
#[derive(Debug, Clone, Copy)]
enum Delivery {
    /// Each at its arrival.
    Single,
    /// Together at multiples of this many microseconds (an emulator's tick).
    Ticks(u64),
    /// Together, this many microseconds after the first of them (interrupt coalescing).
    Coalesced(u64),
}

/// A FIFO with this rate and queue.
#[derive(Debug, Clone, Copy)]
struct TestLink {
    bps: u64,
    /// Packets that wait at most.
    queue: u64,
    /// Part of the packets that are lost, per thousand.
    loss: u64,
    delivery: Delivery,
    /// Largest error of a timestamp, microseconds.
    jitter: u64,
    /// Bit rate at which the sender emits packets.
    sender_bps: u64,
    /// The sender waits so many microseconds before the packet in the middle of the train.
    sender_waits: u64,
    /// The receiver delivers nothing for so many microseconds from the arrival of the packet in the middle.
    receiver_waits: u64,
}

impl TestLink {
    fn new(bps: u64) -> Self {
        Self {
            bps,
            queue: 100_000,
            loss: 0,
            delivery: Delivery::Single,
            jitter: 0,
            sender_bps: bps.saturating_mul(10),
            sender_waits: 0,
            receiver_waits: 0,
        }
    }

    fn send(&self, train: TrainShape, start_us: u64, random: &mut SplitMix64) -> Vec<Arrival> {
        let nanos = |bps: u64| u64::from(train.packet_bytes) * 8_000_000_000 / bps;
        let mut free_at = start_us * 1000;
        let mut leaving = Vec::new();
        for sequence in 0..train.packets {
            let is_later = u64::from(sequence >= train.packets / 2);
            let sent = start_us * 1000
                + nanos(self.sender_bps) * u64::from(sequence)
                + self.sender_waits * 1000 * is_later;
            let waiting = free_at.saturating_sub(sent) / nanos(self.bps);
            if waiting > self.queue || random.next_u64() % 1000 < self.loss {
                continue;
            }
            free_at = free_at.max(sent) + nanos(self.bps);
            leaving.push((sequence, sent, free_at));
        }
        let mut batch_until = 0;
        let wait_from = leaving.get(leaving.len() / 2).map_or(0, |(_, _, at)| *at);
        let wait_until = wait_from + self.receiver_waits * 1000;
        let deliver = |(sequence, sent, at): (u32, u64, u64)| {
            let at = match at {
                at if at < wait_from => at,
                at => at.max(wait_until),
            };
            let at = match self.delivery {
                Delivery::Single => at,
                Delivery::Ticks(us) => at.next_multiple_of(us * 1000),
                Delivery::Coalesced(us) => {
                    if at > batch_until {
                        batch_until = at + us * 1000;
                    }
                    batch_until
                }
            };
            let late = random.next_u64() % (self.jitter * 1000 + 1);
            Arrival {
                sequence,
                sent: Some(Duration::from_nanos(sent)),
                at: Duration::from_nanos(20_000_000 + at + late),
            }
        };
        leaving.into_iter().map(deliver).collect()
    }

    /// A measurement of a path whose bandwidth was another, or this one, before.
    fn confirm(&self, known_bps: u64) -> (Option<BandwidthEstimate>, TrainPlan) {
        let mut plan = TrainPlan::new(1500, TrainLimits::default()).confirming(known_bps);
        let mut random = SplitMix64::new(1);
        while let Some(train) = plan.next_train() {
            plan.on_train(&self.send(train, 1000, &mut random));
        }
        (plan.estimate(), plan)
    }

    fn measure(&self, seed: u64) -> (Option<BandwidthEstimate>, TrainPlan) {
        let mut random = SplitMix64::new(seed);
        let mut plan = TrainPlan::new(1500, TrainLimits::default());
        let mut trains = 0;
        while let Some(train) = plan.next_train() {
            trains += 1;
            assert!(trains < 50);
            let start_us = random.next_u64() % 5000;
            plan.on_train(&self.send(train, start_us, &mut random));
        }
        (plan.estimate(), plan)
    }
}

fn deliveries() -> impl Strategy<Value = Delivery> {
    prop_oneof![
        Just(Delivery::Single),
        (50_u64..=1000).prop_map(Delivery::Ticks),
        (50_u64..=1000).prop_map(Delivery::Coalesced),
    ]
}

#[test]
fn an_even_train_gives_the_exact_rate() {
    for bps in [10_000_000, 100_000_000, 1_000_000_000] {
        let (estimate, plan) = TestLink::new(bps).measure(1);
        let found = estimate.unwrap().bps;
        assert!(found.abs_diff(bps) < bps / 100, "{found} {bps}");
        assert!(plan.sent_bytes() <= TrainLimits::default().max_bytes);
    }
}

#[test]
fn the_train_doubles_until_it_is_long_enough() {
    let lengths = |bps| {
        let mut plan = TrainPlan::new(1500, TrainLimits::default());
        let mut lengths = Vec::new();
        while let Some(train) = plan.next_train() {
            lengths.push(train.packets);
            let mut random = SplitMix64::new(1);
            plan.on_train(&TestLink::new(bps).send(train, 0, &mut random));
        }
        lengths
    };
    assert_eq!(lengths(10_000_000), [10, 20, 20, 20]);
    assert_eq!(
        lengths(1_000_000_000),
        [10, 20, 40, 80, 160, 320, 640, 1280, 1280, 1280]
    );
}

#[test]
fn a_train_that_overflows_the_queue_is_not_made_longer() {
    let link = TestLink {
        queue: 100,
        sender_bps: 2_000_000_000,
        ..TestLink::new(100_000_000)
    };
    let (estimate, plan) = link.measure(3);
    let found = estimate.unwrap().bps;
    assert!(found.abs_diff(link.bps) < link.bps / 5, "{found}");
    assert!(plan.packets <= 160, "{}", plan.packets);
}

#[test]
fn a_known_bandwidth_is_confirmed_by_one_train_and_a_changed_one_measured_anew() {
    for bps in [10_000_000, 100_000_000, 1_000_000_000] {
        let link = TestLink::new(bps);
        let (found, new) = link.measure(1);
        let (again, confirmed) = link.confirm(found.unwrap().bps);
        assert!(again.unwrap().bps.abs_diff(bps) < bps / 50);
        assert!(
            confirmed.sent_bytes() * 3 < new.sent_bytes(),
            "{bps}: {} of {}",
            confirmed.sent_bytes(),
            new.sent_bytes()
        );
        for known in [bps / 4, bps * 4] {
            let (found, plan) = link.confirm(known);
            let found = found.unwrap();
            assert!(found.bps.abs_diff(bps) < bps / 50, "{found:?}");
            assert!(found.trains >= 3, "{found:?}");
            assert!(plan.sent_bytes() <= TrainLimits::default().max_bytes);
        }
    }
}

#[test]
fn a_slow_sender_gives_a_lower_bound() {
    let mut plan = TrainPlan::new(1500, TrainLimits::default());
    let link = TestLink {
        sender_bps: 100_000_000,
        ..TestLink::new(1_000_000_000)
    };
    while let Some(train) = plan.next_train() {
        let arrivals = link.send(train, 0, &mut SplitMix64::new(1));
        plan.on_train(&arrivals);
    }
    assert!(plan.estimate().unwrap().is_lower_bound);
}

#[test]
fn a_host_that_waits_once_for_its_processor_measures_the_path() {
    for bps in [10_000_000, 100_000_000, 1_000_000_000] {
        let link = TestLink::new(bps);
        let sender = TestLink {
            sender_waits: 30_000,
            ..link
        };
        let receiver = TestLink {
            receiver_waits: 6000,
            delivery: Delivery::Coalesced(100),
            ..link
        };
        for link in [sender, receiver] {
            let estimate = link.measure(5).0.unwrap();
            let found = estimate.bps;
            assert!(found.abs_diff(bps) < bps / 20, "{found} {link:?}");
            assert!(!estimate.is_lower_bound, "{link:?}");
        }
    }
}

#[test]
fn trains_that_were_sent_too_slowly_do_not_count_beside_others() {
    let path = TestLink::new(1_000_000_000);
    let slow = TestLink {
        sender_bps: 300_000_000,
        ..path
    };
    let mut plan = TrainPlan::new(1500, TrainLimits::default());
    let mut trains = 0;
    while let Some(train) = plan.next_train() {
        // The two long trains that come first are slow, and the plan sends more.
        let link = if (7..9).contains(&trains) { slow } else { path };
        plan.on_train(&link.send(train, 0, &mut SplitMix64::new(1)));
        trains += 1;
    }
    let estimate = plan.estimate().unwrap();
    assert!(!estimate.is_lower_bound && trains > 10, "{trains}");
    assert!(
        estimate.bps.abs_diff(path.bps) < path.bps / 50,
        "{estimate:?}"
    );
}

#[test]
fn trains_of_no_use_give_no_estimate_and_end() {
    for arrivals in [
        vec![],
        vec![
            Arrival {
                sequence: 0,
                sent: Some(Duration::MAX),
                at: Duration::MAX
            };
            40
        ],
    ] {
        let mut plan = TrainPlan::new(
            0,
            TrainLimits {
                max_packets: u32::MAX,
                max_bytes: u64::MAX,
                trains: u32::MAX,
            },
        );
        let mut trains = 0;
        while plan.next_train().is_some() {
            plan.on_train(&arrivals);
            trains += 1;
        }
        assert!(trains <= 120);
        assert_eq!(plan.estimate(), None);
    }
    assert_eq!(estimate([], 1500), None);
    let broke = TrainLimits {
        max_bytes: 0,
        ..TrainLimits::default()
    };
    assert_eq!(TrainPlan::new(1500, broke).next_train(), None);
}

#[test]
fn a_host_that_does_not_answer_is_sent_three_short_trains() {
    let mut plan = TrainPlan::new(1500, TrainLimits::default());
    while plan.next_train().is_some() {
        plan.on_train(&[]);
    }
    assert_eq!(plan.sent_bytes(), (10 + 20 + 40) * 1500);
}

#[test]
fn packets_that_all_arrive_together_give_no_estimate() {
    let together: Vec<Arrival> = (0..40)
        .map(|sequence| Arrival {
            sequence,
            sent: None,
            at: Duration::from_millis(5),
        })
        .collect();
    assert_eq!(estimate([&together[..]], 1500), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// On an idle path the estimate is within 20 %, and so is the interval that it gives.
    #[test]
    fn the_estimate_is_within_a_fifth_on_an_idle_path(
        mbit in prop_oneof![10_u64..100, 100_u64..=1000],
        delivery in deliveries(),
        jitter in 0_u64..100,
        loss in 0_u64..=10,
        seed in any::<u64>(),
    ) {
        let bps = mbit * 1_000_000;
        let link = TestLink { delivery, jitter, loss, ..TestLink::new(bps) };
        let estimate = link.measure(seed).0.unwrap();
        prop_assert!(estimate.bps.abs_diff(bps) <= bps / 5, "{:?}", estimate);
        let (low, high) = estimate.spread;
        prop_assert!(low <= estimate.bps && estimate.bps <= high);
        // A loss after the bottleneck leaves a gap, which is not part of the interval.
        prop_assert!(low <= bps && high.saturating_add(high / 50) >= bps, "{:?}", estimate);
    }

    /// No arrivals, however absurd, cause more than a wrong number within bounds.
    #[test]
    fn absurd_arrivals_are_survived(
        arrivals in prop::collection::vec((any::<u32>(), any::<u64>()), 0..40),
        bytes in any::<u32>(),
    ) {
        let arrivals: Vec<Arrival> = arrivals
            .into_iter()
            .map(|(sequence, nanos)| Arrival {
                sequence: sequence % 64,
                sent: (sequence % 3 > 0).then(|| Duration::from_nanos(nanos / 7)),
                at: Duration::from_nanos(nanos),
            })
            .collect();
        if let Some(estimate) = estimate([&arrivals[..]], bytes) {
            prop_assert!(estimate.spread.0 <= estimate.bps && estimate.bps <= estimate.spread.1);
            prop_assert!(estimate.relative_error().is_finite());
        }
    }
}
