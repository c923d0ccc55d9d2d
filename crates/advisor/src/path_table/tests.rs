use jiff::Timestamp;

use super::*;

fn client(n: u32) -> IpAddr {
    std::net::Ipv4Addr::from(0x0a00_0000 + n).into()
}

fn measurement(n: u32, values: &[(Quantity, f64)]) -> Measurement {
    Measurement {
        client: client(n),
        test: "ping".to_owned(),
        at: Timestamp::UNIX_EPOCH,
        values: values.to_vec(),
        detail: None,
        cost_bytes: 0,
    }
}

fn at(seconds: i64) -> Moment {
    Moment::from_millis(seconds * 1000)
}

#[test]
fn facts_are_trimmed_means_with_the_age_of_the_newest() {
    let mut table = MeasuredPaths::new(10);
    for second in 0..10 {
        let rtt = if second == 4 { 0.5 } else { 0.1 };
        table.record(&measurement(1, &[(Quantity::Rtt, rtt)]), at(second));
    }
    table.record(&measurement(1, &[(Quantity::Bandwidth, 45e6)]), at(20));
    let facts = table.facts(client(1), at(50)).unwrap();
    assert_eq!(facts.rtt, Some(Duration::from_millis(100)));
    assert_eq!(facts.bandwidth_bps, Some(45_000_000));
    assert_eq!(
        (facts.measurements, facts.age),
        (1, Some(Duration::from_secs(30)))
    );
    assert!(!facts.is_asymmetric() && facts.goodput.is_none());
    let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
    assert_eq!(table.facts(mapped, at(50)), Some(facts));
    assert_eq!(table.facts(client(2), at(50)), None);
    table.forget(mapped);
    assert!(table.is_empty());
}

#[test]
fn one_outlier_changes_nothing_and_three_changed_values_are_a_shift() {
    let mut table = MeasuredPaths::new(10);
    let mut push = |rate: f64| table.record(&measurement(1, &[(Quantity::Bandwidth, rate)]), at(1));
    for n in 0..10 {
        assert!(push(100e6 + f64::from(n) * 1e5).is_empty());
    }
    let outlier = push(25e6);
    assert!(matches!(outlier[0].event, SeriesEvent::Outlier { .. }));
    assert!(push(100e6).is_empty());
    push(25e6);
    push(25e6);
    let shift = push(25e6);
    assert!(
        matches!(shift[0].event, SeriesEvent::Shift { .. }),
        "{shift:?}"
    );
    let facts = table.facts(client(1), at(2)).unwrap();
    assert_eq!(facts.bandwidth_bps, Some(25_000_000));
}

#[test]
fn single_losses_are_no_anomaly() {
    let mut table = MeasuredPaths::new(10);
    for _ in 0..10 {
        assert!(
            table
                .record(&measurement(1, &[(Quantity::Loss, 0.0)]), at(1))
                .is_empty()
        );
    }
    assert!(
        table
            .record(&measurement(1, &[(Quantity::Loss, 0.2)]), at(1))
            .is_empty()
    );
}

#[test]
fn impossible_values_and_names_are_refused() {
    for (quantity, value) in [
        (Quantity::Rtt, f64::NAN),
        (Quantity::Rtt, -0.1),
        (Quantity::Loss, 1.1),
        (Quantity::Bandwidth, f64::INFINITY),
        (Quantity::Goodput, 1e16),
        (Quantity::Streams, 1e9),
    ] {
        let wrong = measurement(1, &[(quantity, value)]);
        assert!(
            MeasuredPaths::check(&wrong).is_err(),
            "{quantity:?} {value}"
        );
        let mut table = MeasuredPaths::new(10);
        table.record(&wrong, at(1));
        assert_eq!(table.facts(client(1), at(1)), None);
    }
    let mut named = measurement(1, &[(Quantity::Rtt, 0.1)]);
    assert_eq!(MeasuredPaths::check(&named), Ok(()));
    named.test = "a\u{0}".to_owned();
    assert_eq!(
        MeasuredPaths::check(&named),
        Err(InvalidMeasurement::TestName)
    );
}

#[test]
fn restored_values_go_before_those_that_are_known() {
    let mut table = MeasuredPaths::new(6);
    table.record(&measurement(1, &[(Quantity::Goodput, 9.0)]), at(5));
    table.restore(
        client(1),
        Quantity::Goodput,
        &[8.7, 8.8, 8.9, f64::NAN].map(|value| (at(-60), value)),
    );
    let summary = table.summary(client(1), at(6));
    assert_eq!((summary[0].count, summary[0].latest), (4, 9.0));
    assert_eq!(summary[0].age, Duration::from_secs(1));
    table.restore(client(2), Quantity::Rtt, &[(at(-60), 0.1)]);
    assert_eq!(table.newest(client(2)), Some(at(-60)));
}

#[test]
fn directions_that_differ_by_rate_or_route_are_told() {
    let mut table = MeasuredPaths::new(10);
    let rates = [
        (Quantity::Bandwidth, 10e6),
        (Quantity::ReverseBandwidth, 50e6),
    ];
    table.record(&measurement(1, &rates), at(1));
    assert!(table.facts(client(1), at(1)).unwrap().is_asymmetric());
    let mut route = measurement(2, &[(Quantity::Rtt, 0.1)]);
    route.detail = Some(serde_json::json!({"hops": ["10.1.0.1"], "is_asymmetric": true}));
    table.record(&route, at(1));
    assert!(table.facts(client(2), at(1)).unwrap().routes_differ);
    assert_eq!(table.route(client(2)).unwrap().hops.len(), 1);
}

/// A bandwidth that rises and falls with the day tells more of the next hour than one at random does, before and after a
/// restart.
#[test]
fn the_correlation_of_a_path_is_that_of_its_fastest_quantity_and_outlives_a_restart() {
    let mut table = MeasuredPaths::new(24);
    let mut earlier = Vec::new();
    for hour in 0..24_u32 {
        let of_day = (f64::from(hour) / 24.0 * std::f64::consts::TAU).sin();
        let values = [
            (Quantity::Rtt, 0.1 + f64::from(hour % 2) / 1000.0),
            (Quantity::Loss, f64::from(hour % 2) / 10.0),
            (Quantity::Bandwidth, 1e8 * (1.0 + 0.3 * of_day)),
        ];
        let time = at(3600 * i64::from(hour));
        table.record(&measurement(1, &values), time);
        earlier.push((time, values[2].1));
    }
    let of = |table: &MeasuredPaths, last, quantities: &[Quantity]| {
        table.correlation(client(last), quantities)
    };
    let all = [Quantity::Rtt, Quantity::Loss, Quantity::Bandwidth];
    assert_eq!(of(&table, 1, &all[..2]), ValueCorrelation::Constant);
    let ValueCorrelation::Until(time) = of(&table, 1, &all) else {
        panic!("{:?}", of(&table, 1, &all));
    };
    let hours = time.as_secs_f64() / 3600.0;
    assert!((2.0..7.0).contains(&hours), "{hours}");
    let (first, rest) = earlier.split_at(20);
    for (moment, value) in rest {
        table.record(&measurement(2, &[(Quantity::Bandwidth, *value)]), *moment);
    }
    table.restore(client(2), Quantity::Bandwidth, first);
    assert_eq!(of(&table, 2, &all[2..]), of(&table, 1, &all[2..]));
    assert_eq!(of(&table, 3, &all), ValueCorrelation::Unknown);
}
