use super::super::facts::{ProcessorCapacity, Spread};
use super::*;
use proptest::prelude::*;

const MB: u64 = 1 << 20;
const GBIT: u64 = 1_000_000_000;

fn path(rtt_ms: u64, bps: u64) -> PathFacts {
    PathFacts {
        rtt: Some(Duration::from_millis(rtt_ms)),
        bandwidth_bps: Some(bps),
        congestion_controls: ["reno", "cubic"].map(str::to_owned).into(),
        measurements: 10,
        age: Some(Duration::from_secs(60)),
        ..PathFacts::default()
    }
}

fn sender(autotuned: u64, settable: u64) -> SendingEnd {
    SendingEnd {
        buffers: HostBufferLimits {
            max_autotuned_send: autotuned,
            max_settable_send: settable,
            ..HostBufferLimits::default()
        },
        processor: None,
    }
}

fn plain(facts: &PathFacts) -> PathAdvice {
    let limits = SendingEnd::default();
    advise(facts, &ClientLimits::default(), &limits, None)
}

/// The four paths of the paper's table 4.
#[test]
fn the_product_is_round_trip_times_bandwidth() {
    for (rtt, mbit, bdp) in [
        (180, 45, 1_012_500),
        (80, 1000, 10_000_000),
        (60, 45, 337_500),
        (50, 45, 281_250),
    ] {
        let advice = plain(&path(rtt, mbit * 1_000_000));
        assert_eq!(advice.bdp_bytes, Some(bdp));
        assert_eq!(advice.set_buffer_bytes, None, "{}", advice.why);
        assert_eq!(advice.limited_by, Some(Limiter::CongestionWindow));
        assert!(advice.expected_bps.unwrap() >= mbit * 900_000, "{advice:?}");
    }
}

/// From loopback, where less than a packet is in flight, to a local network.
#[test]
fn a_path_that_holds_few_packets_is_filled() {
    let paths = [
        (Duration::from_nanos(3_110), 1_840_000_000),
        (Duration::from_micros(12), GBIT),
        (Duration::from_micros(50), GBIT),
        (Duration::from_millis(1), 10_000_000),
    ];
    for (rtt, bps) in paths {
        let facts = PathFacts {
            rtt: Some(rtt),
            ..path(0, bps)
        };
        let advice = plain(&facts);
        let expected = advice.expected_bps.unwrap();
        assert!(expected >= bps / 10 * 7, "{rtt:?}: {}", advice.why);
        assert!(expected <= bps, "{rtt:?}: {}", advice.why);
    }
}

#[test]
fn autotuning_is_left_alone_where_it_reaches_the_share_of_a_stream() {
    let advice = plain(&path(100, GBIT));
    assert_eq!((advice.set_buffer_bytes, advice.streams), (None, Some(8)));
    assert_eq!(
        advice.why,
        "100 ms at 1.00 Gbit/s are 12.5 MB in flight; the kernels' autotuning reaches 2.80 MB, which is \
         enough for 1.56 MB in each of 8 streams; 965 Mbit/s are computed from that."
    );
}

#[test]
fn a_buffer_is_set_only_where_it_wins_over_autotuning() {
    let facts = path(15, 10 * GBIT);
    let client = ClientLimits::default();
    // Each of two streams needs 9.4 MB; autotuning reaches 2.8 MB.
    let raised = advise(&facts, &client, &sender(4 * MB, 64 * MB), None);
    assert_eq!(raised.set_buffer_bytes, Some(9_375_000), "{}", raised.why);
    assert_eq!(raised.streams, Some(2));
    let low = advise(&facts, &client, &sender(4 * MB, MB), None);
    assert_eq!(low.set_buffer_bytes, None);
    assert_eq!(low.streams, Some(7), "{}", low.why);
    let enough = advise(&facts, &client, &sender(32 * MB, 64 * MB), None);
    assert_eq!((enough.set_buffer_bytes, enough.streams), (None, Some(2)));
}

#[test]
fn a_client_that_must_set_its_buffer_gets_one() {
    let client = ClientLimits {
        must_set_buffer: true,
        max_set_buffer: Some(400_000),
        ..ClientLimits::default()
    };
    let limits = sender(4 * MB, 64 * MB);
    let advice = advise(&path(100, GBIT), &client, &limits, None);
    assert_eq!(advice.set_buffer_bytes, Some(400_000));
    // 528 KB in flight of 12.5 MB.
    assert_eq!(advice.streams, Some(24), "{}", advice.why);
    let near = advise(&path(1, 1_000_000), &client, &limits, None);
    assert_eq!(near.set_buffer_bytes, Some(MIN_BUFFER));
}

#[test]
fn a_client_with_one_stream_gets_the_whole_product() {
    let client = ClientLimits {
        must_set_buffer: true,
        max_streams: Some(1),
        ..ClientLimits::default()
    };
    let limits = sender(4 * MB, 64 * MB);
    let advice = advise(&path(100, GBIT), &client, &limits, None);
    assert_eq!(
        (advice.set_buffer_bytes, advice.streams),
        (Some(12_500_000), Some(1))
    );
    let lossy = PathFacts {
        loss: Some(0.05),
        loss_tests: 10,
        ..path(100, GBIT)
    };
    let advice = advise(&lossy, &client, &limits, None);
    assert_eq!(advice.streams, Some(1), "{}", advice.why);
}

#[test]
fn a_small_window_of_the_client_asks_for_more_streams() {
    let with_window = |bytes| {
        let client = ClientLimits {
            max_receive_buffer: Some(bytes),
            max_set_buffer: Some(bytes / 2),
            ..ClientLimits::default()
        };
        advise(&path(100, GBIT), &client, &sender(64 * MB, 64 * MB), None)
    };
    assert_eq!(with_window(64 * MB).streams, Some(8));
    let small = with_window(MB);
    assert_eq!(small.streams, Some(19), "{}", small.why);
    let tiny = with_window(64 << 10);
    assert_eq!(tiny.streams, Some(MAX_STREAMS));
    assert_eq!(tiny.limited_by, Some(Limiter::ReceiveWindow));
    assert!(tiny.expected_bps.unwrap() < 300_000_000);
}

#[test]
fn the_clients_rate_bounds_the_advice() {
    let client = ClientLimits {
        rate_bps: Some(100_000_000),
        ..ClientLimits::default()
    };
    let limits = SendingEnd::default();
    let advice = advise(&path(100, GBIT), &client, &limits, None);
    assert_eq!(advice.bdp_bytes, Some(1_250_000));
    assert_eq!(advice.pace_bps, Some(100_000_000));
    assert_eq!(advice.limited_by, Some(Limiter::ReceiverCpu));
    assert!(advice.expected_bps.unwrap() <= 100_000_000);
}

#[test]
fn persistent_losses_ask_for_a_loss_tolerant_control_or_many_streams() {
    let lossy = |controls: &[&str], loss_tests| PathFacts {
        loss: Some(0.01),
        loss_tests,
        congestion_controls: controls.iter().map(|name| (*name).to_owned()).collect(),
        ..path(100, GBIT)
    };
    let tolerant = plain(&lossy(&["cubic", "bbr"], 10));
    assert_eq!(tolerant.congestion_control.as_deref(), Some("bbr"));
    assert!(tolerant.expected_bps.unwrap() > 850_000_000);
    let cubic = plain(&lossy(&["cubic"], 10));
    assert_eq!(cubic.congestion_control, None);
    assert_eq!(cubic.streams, Some(MAX_STREAMS));
    assert_eq!(cubic.limited_by, Some(Limiter::Loss));
    assert!(cubic.expected_bps.unwrap() < 200_000_000, "{}", cubic.why);
    assert_eq!(plain(&lossy(&["bbr"], 1)).congestion_control, None);
    // On a short path a single stream outruns these losses.
    let short = PathFacts {
        rtt: Some(Duration::from_micros(100)),
        ..lossy(&["bbr"], 10)
    };
    assert_eq!(plain(&short).congestion_control, None);
}

fn spread(p10: u64, median: u64, p90: u64, count: u32) -> Option<Spread> {
    Some(Spread {
        p10_bps: p10 * 1_000_000,
        median_bps: median * 1_000_000,
        p90_bps: p90 * 1_000_000,
        count,
    })
}

#[test]
fn enough_real_transfers_count_more_than_the_model() {
    let with = |goodput| {
        plain(&PathFacts {
            goodput,
            ..path(100, GBIT)
        })
    };
    let seen = with(spread(300, 500, 700, 5));
    assert_eq!(seen.expected_bps, Some(500_000_000));
    assert_eq!(
        (seen.p10_bps, seen.p90_bps),
        (Some(300_000_000), Some(700_000_000))
    );
    assert_eq!(seen.pace_bps, None);
    let few = with(spread(300, 500, 700, 2));
    assert!(few.expected_bps.unwrap() > 900_000_000 && few.p10_bps.is_none());
    let full = with(spread(900, 930, 940, 5));
    assert_eq!(full.pace_bps, Some(973_756_906));
    // Transfers that are faster than the estimated bandwidth correct it.
    let wrong = plain(&PathFacts {
        goodput: spread(300, 500, 700, 5),
        ..path(100, 100_000_000)
    });
    assert_eq!(wrong.bdp_bytes, Some(6_250_000));
}

#[test]
fn a_small_file_gets_few_streams() {
    let limits = SendingEnd::default();
    let streams = |bytes| {
        advise(
            &path(100, GBIT),
            &ClientLimits::default(),
            &limits,
            Some(bytes),
        )
        .streams
    };
    assert_eq!([0, 1 << 20, 1 << 40].map(streams), [1, 4, 8].map(Some));
}

#[test]
fn little_knowledge_gives_little_advice() {
    let nothing = plain(&PathFacts::default());
    assert_eq!((nothing.confidence, nothing.streams), (0.0, None));
    assert_eq!(
        nothing.why,
        "nothing is known of this path yet: leave the buffers to the kernel."
    );
    let rtt_only = plain(&PathFacts {
        bandwidth_bps: None,
        ..path(30, 0)
    });
    assert_eq!(
        (rtt_only.streams, rtt_only.set_buffer_bytes),
        (Some(4), None)
    );
    assert!(rtt_only.confidence > 0.0 && rtt_only.confidence < 0.3);
    assert_eq!(plain(&path(0, 0)).bdp_bytes, None);
    assert_eq!(
        plain(&path(0, 45_000_000)).why,
        "the bottleneck carries 45.0 Mbit/s, but the round trip is not known yet: leave the buffers to the kernel."
    );
}

#[test]
fn confidence_grows_with_number_and_falls_with_age_and_spread() {
    let confidence = |measurements, hours: u64, goodput| {
        plain(&PathFacts {
            measurements,
            age: Some(Duration::from_secs(3600 * hours)),
            goodput,
            ..path(100, GBIT)
        })
        .confidence
    };
    assert!(confidence(1, 0, None) < confidence(10, 0, None));
    assert!(confidence(10, 24, None) < confidence(10, 1, None));
    let (even, uneven) = (spread(490, 500, 510, 5), spread(100, 500, 900, 5));
    assert!(confidence(10, 1, uneven) < confidence(10, 1, even));
}

fn limits() -> impl Strategy<Value = SendingEnd> {
    let buffers = any::<[u64; 5]>().prop_map(|[a, b, c, d, e]| HostBufferLimits {
        max_autotuned_send: a,
        max_settable_send: b,
        max_autotuned_receive: c,
        max_settable_receive: d,
        max_unforced_receive: e,
        ..HostBufferLimits::default()
    });
    (buffers, processors()).prop_map(|(buffers, processor)| SendingEnd { buffers, processor })
}

fn processors() -> impl Strategy<Value = Option<ProcessorCapacity>> {
    let capacity = any::<(u64, u32)>().prop_map(|(bps, cores)| ProcessorCapacity { bps, cores });
    proptest::option::of(capacity)
}

proptest! {
    /// Whatever is claimed of a path and its ends, the advice stays within its bounds.
    #[test]
    fn advice_is_bounded(
        rtt in proptest::option::of(any::<u64>()),
        rates in any::<[Option<u64>; 4]>(),
        ratios in any::<[Option<f64>; 2]>(),
        counts in any::<[u32; 3]>(),
        client in any::<[Option<u64>; 3]>(),
        (must_set_buffer, max_streams) in any::<(bool, Option<u32>)>(),
        sender in limits(),
        processor in processors(),
        bytes in any::<Option<u64>>(),
    ) {
        let [bandwidth_bps, p10, median, p90] = rates;
        let facts = PathFacts {
            rtt: rtt.map(Duration::from_nanos),
            bandwidth_bps,
            loss: ratios[0],
            retransmits: ratios[1],
            goodput: median.map(|median_bps| Spread {
                p10_bps: p10.unwrap_or(0),
                median_bps,
                p90_bps: p90.unwrap_or(0),
                count: counts[0],
            }),
            streams: Some(counts[1]),
            loss_tests: counts[2],
            measurements: counts[2],
            congestion_controls: vec!["bbr".to_owned()],
            ..PathFacts::default()
        };
        let facts = if must_set_buffer { facts.reversed() } else { facts };
        let client = ClientLimits {
            max_receive_buffer: client[0],
            max_set_buffer: client[1],
            rate_bps: client[2],
            processor,
            must_set_buffer,
            max_streams,
        };
        let advice = advise(&facts, &client, &sender, bytes);
        prop_assert!((0.0..=1.0).contains(&advice.confidence));
        prop_assert!(advice.streams.is_none_or(|streams| (1..=MAX_STREAMS).contains(&streams)));
        prop_assert!(!advice.why.is_empty());
        if let (Some(set), Some(most)) = (advice.set_buffer_bytes, client.max_set_buffer) {
            prop_assert!(set <= most.max(1));
        }
        if let (Some(expected), Some(most)) = (advice.expected_bps, client.rate_bps.filter(|bps| *bps > 0)) {
            prop_assert!(advice.bdp_bytes.is_none() || expected <= most);
        }
    }
}

/// A digital subscriber line: 100 Mbit/s down, 10 Mbit/s up.
fn subscriber_line() -> PathFacts {
    PathFacts {
        reverse_bandwidth_bps: Some(10_000_000),
        ..path(40, 100_000_000)
    }
}

#[test]
fn advice_for_a_direction_uses_the_rate_of_that_direction() {
    let down = plain(&subscriber_line());
    let up = plain(&subscriber_line().reversed());
    assert_eq!(
        (down.bdp_bytes, up.bdp_bytes),
        (Some(500_000), Some(50_000))
    );
    assert!(down.expected_bps.unwrap() > 90_000_000 && up.expected_bps.unwrap() < 10_000_001);
    assert!(down.streams.unwrap() > up.streams.unwrap(), "{}", up.why);
    let carries = "this direction of the path carries 10.0 Mbit/s and the other one 100 Mbit/s";
    assert!(up.why.contains(carries), "{}", up.why);
}

#[test]
fn directions_differ_from_twice_the_rate_on_or_by_their_routes() {
    let with = |reverse| PathFacts {
        reverse_bandwidth_bps: reverse,
        ..path(40, 100_000_000)
    };
    assert_eq!(with(Some(51_000_000)).different_rates(), None);
    let rates = Some((100_000_000, 50_000_000));
    assert_eq!(with(Some(50_000_000)).different_rates(), rates);
    assert!(with(Some(200_000_000)).is_asymmetric());
    assert!(!with(None).is_asymmetric());
    let by_route = PathFacts {
        routes_differ: true,
        ..with(None)
    };
    assert!(by_route.is_asymmetric());
    assert!(plain(&by_route).why.contains("different routes"));
    // A train of echo requests sees the slower direction alone; three transfers show the rate of the other one.
    let goodput = |bps, count| Spread {
        p10_bps: bps,
        median_bps: bps,
        p90_bps: bps,
        count,
    };
    let transfers = |count| PathFacts {
        reverse_goodput: Some(goodput(300_000_000, count)),
        ..with(Some(100_000_000))
    };
    assert!(!transfers(2).is_asymmetric());
    let shown = Some((300_000_000, 100_000_000));
    assert_eq!(transfers(3).reversed().different_rates(), shown);
}

#[test]
fn a_direction_that_was_never_measured_takes_the_rate_of_the_other_one_with_less_confidence() {
    let there = path(40, 100_000_000);
    let back = there.clone().reversed();
    let (advice, of_other) = (plain(&there), plain(&back));
    assert_eq!(advice.bdp_bytes, of_other.bdp_bytes);
    assert!(of_other.confidence <= advice.confidence / 2.0);
    assert!(of_other.why.contains("never measured"), "{}", of_other.why);
    assert_eq!((back.rate_bps(), back.is_asymmetric()), (None, false));
    let other_route = PathFacts {
        routes_differ: true,
        ..there
    };
    assert_eq!(plain(&other_route.reversed()).bdp_bytes, None);
}

fn with_processors(receiver: (u64, u32), sender: (u64, u32)) -> PathAdvice {
    let capacity = |(bps, cores)| Some(ProcessorCapacity { bps, cores });
    let client = ClientLimits {
        processor: capacity(receiver),
        ..ClientLimits::default()
    };
    let sender = SendingEnd {
        processor: capacity(sender),
        ..SendingEnd::default()
    };
    advise(&path(20, 622_000_000), &client, &sender, None)
}

/// Table 2 of the paper: a Pentium II of 450 MHz on OC-12, whose processor is busy with one stream.
#[test]
fn a_processor_that_one_stream_keeps_busy_gets_one_stream() {
    const FAST: (u64, u32) = (100 * GBIT, 8);
    let usual = with_processors(FAST, FAST);
    assert!(usual.streams.unwrap() > 1, "{}", usual.why);
    assert_eq!(usual.limited_by, Some(Limiter::CongestionWindow));
    let slow = with_processors((250_000_000, 1), FAST);
    assert_eq!(slow.streams, Some(1), "{}", slow.why);
    assert_eq!(slow.limited_by, Some(Limiter::ReceiverCpu));
    assert_eq!(slow.expected_bps, Some(250_000_000));
    assert_eq!(slow.pace_bps, None, "an estimate limits no rate");
    assert_eq!(slow.bdp_bytes, usual.bdp_bytes);
    assert!(
        slow.why
            .contains("the receiver moves 250 Mbit/s with 1 core,"),
        "{}",
        slow.why
    );
    let busy_sender = with_processors(FAST, (100_000_000, 2));
    assert_eq!(busy_sender.limited_by, Some(Limiter::SenderCpu));
    assert!(busy_sender.streams.unwrap() <= 2, "{}", busy_sender.why);
}

#[test]
fn a_path_that_needs_several_cores_gets_a_stream_for_each() {
    // 622 Mbit/s, of which a core moves 100.
    let advice = with_processors((1_600_000_000, 16), (100 * GBIT, 1));
    assert_eq!(advice.streams, Some(7), "{}", advice.why);
}
