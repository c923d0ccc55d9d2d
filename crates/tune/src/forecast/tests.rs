use super::*;

fn seconds(n: f64) -> Duration {
    Duration::from_secs_f64(n)
}

/// After `until` seconds at 100 bytes per second, of 100 000, and a file a second, of 1000.
fn moved(until: u32) -> Forecaster {
    let mut forecaster = Forecaster::default();
    for second in 1..=u64::from(until) {
        forecaster.add(ProgressSample {
            at: Duration::from_secs(second),
            bytes_moved: 100 * second,
            bytes_left: 100_000 - 100 * second,
            files_done: 2 * second,
            files_left: 1000 - 2 * second,
        });
    }
    forecaster
}

#[test]
fn nothing_is_known_before_three_seconds_unless_a_rate_is_expected() {
    assert_eq!(moved(3).forecast(), None);
    assert!(moved(5).forecast().is_some());
    let mut expecting = moved(1);
    expecting.expect(ExpectedRate {
        bytes_per_second: 99,
        spread_percent: 20,
    });
    let forecast = expecting.forecast().unwrap();
    assert!(forecast.earliest < forecast.expected && forecast.expected < forecast.latest);
    assert_eq!(forecast.expected.as_secs(), 99_900 / 99);
}

#[test]
fn the_later_end_of_bytes_and_files_counts() {
    let mut forecaster = moved(40);
    let last = forecaster.last;
    let of = |forecaster: &Forecaster| forecaster.forecast().unwrap().expected.as_secs();
    assert_eq!(of(&forecaster), 960);
    forecaster.add(ProgressSample {
        at: last.at + seconds(0.001),
        files_left: 4000,
        ..last
    });
    assert!(
        (1990..2010).contains(&of(&forecaster)),
        "{}",
        of(&forecaster)
    );
    forecaster.add(ProgressSample {
        at: last.at + seconds(0.002),
        bytes_left: 0,
        files_left: 0,
        ..last
    });
    assert_eq!(forecaster.forecast(), Some(Forecast::NOW));
}

#[test]
fn the_time_goes_on_between_two_reports() {
    let mut forecaster = moved(40);
    let before = forecaster.forecast().unwrap();
    let last = forecaster.last;
    forecaster.add(ProgressSample {
        at: last.at + seconds(4.0),
        ..last
    });
    let after = forecaster.forecast().unwrap();
    assert_eq!(before.expected - after.expected, seconds(4.0));
}

#[test]
fn a_pause_makes_the_end_later() {
    let mut forecaster = moved(40);
    let before = forecaster.forecast().unwrap();
    let last = forecaster.last;
    for second in 1..40 {
        forecaster.add(ProgressSample {
            at: last.at + seconds(f64::from(second)),
            ..last
        });
    }
    assert!(forecaster.forecast().unwrap().latest > before.latest + seconds(100.0));
}

#[test]
fn a_long_copy_needs_bounded_memory() {
    let mut forecaster = Forecaster::default();
    for tick in 1..200_000_u64 {
        forecaster.add(ProgressSample {
            at: Duration::from_millis(200 * tick),
            bytes_moved: 1000 * tick,
            bytes_left: 1_000_000_000,
            ..ProgressSample::default()
        });
    }
    let forecast = forecaster.forecast().unwrap();
    assert!(
        (199_000..201_000).contains(&forecast.expected.as_secs()),
        "{forecast:?}"
    );
    let json = format!("{forecaster:?}");
    assert!(json.len() < 100_000, "{}", json.len());
}

#[test]
fn a_plan_has_the_spread_of_the_rate_and_the_time_of_the_login() {
    let rate = |spread_percent| ExpectedRate {
        bytes_per_second: 1000,
        spread_percent,
    };
    let narrow = Forecast::before_start(100_000, rate(5), seconds(1.0)).unwrap();
    assert_eq!(narrow.expected, seconds(101.0));
    let wide = Forecast::before_start(100_000, rate(30), seconds(1.0)).unwrap();
    assert!(wide.earliest < narrow.earliest && narrow.latest < wide.latest);
    assert_eq!(
        Forecast::before_start(1, ExpectedRate::of_one_transfer(0), seconds(1.0)),
        None
    );
    assert_eq!(narrow.then(narrow).expected, seconds(202.0));
}

#[test]
fn the_spread_follows_the_differences_from_one_transfer_to_the_next() {
    let mut known = ExpectedRate::of_one_transfer(1000);
    for _ in 0..20 {
        known = known.after(ExpectedRate::of_one_transfer(1000));
    }
    assert_eq!(known.spread_percent, 5);
    known = known.after(ExpectedRate::of_one_transfer(2000));
    assert_eq!((known.bytes_per_second, known.spread_percent), (2000, 40));
    let absurd = known.after(ExpectedRate::of_one_transfer(u64::MAX));
    assert_eq!(absurd.spread_percent, 300);
}
