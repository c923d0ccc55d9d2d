use proptest::prelude::*;

use super::*;

fn reading(text: &str) -> OutputReading {
    toml::from_str(text).unwrap()
}

fn number(text: &str, output: &str) -> Option<f64> {
    let variables = [("wanted".to_owned(), "1000".to_owned())].into();
    reading(text).read_number(output, Path::new("/no/such"), &variables)
}

/// A trace with a sample of the transfer and one of a stream every 0.1 s.
fn trace(field: &str, values: impl IntoIterator<Item = f64>) -> String {
    let line = |(index, value): (usize, f64)| {
        let time = index as f64 / 10.0;
        format!("{{\"sample\":\"stream\",\"time\":{time},\"{field}\":7}}\n")
            + &format!("{{\"sample\":\"transfer\",\"time\":{time},\"{field}\":{value}}}\n")
    };
    values.into_iter().enumerate().map(line).collect()
}

/// A trace of 11 s: nothing for 1 s, 100 bytes/s for 3 s, 1000 bytes/s for 6 s, then the last bytes.
fn slow_fast_slow() -> String {
    let value = |index| match f64::from(index) / 10.0 {
        t if t < 1.0 => 0.0,
        t if t < 4.0 => (t - 1.0) * 100.0,
        t if t < 10.0 => 300.0 + (t - 4.0) * 1000.0,
        11.0 => 6400.0,
        _ => 6300.0,
    };
    trace("bytes", (0..=110).map(value))
}

#[test]
fn json_is_read_from_the_whole_output_or_its_last_line() {
    let rate = "json = 'end.streams.0.rate'\nscale = 0.5";
    let document = "{\n \"end\": {\"streams\": [{\"rate\": 3}]}\n}\n";
    assert_eq!(number(rate, document), Some(1.5));
    let lines = "{\"end\": 1}\n{\"end\": {\"streams\": [{\"rate\": 4.0}]}}\n\n";
    assert_eq!(number(rate, lines), Some(2.0));
    for bad in ["", "no", "{}", "{\"end\": {\"streams\": []}}"] {
        assert_eq!(number(rate, bad), None, "{bad}");
    }
    let limit = reading("json = 'limited_by'");
    assert_eq!(
        limit.read_text("{\"limited_by\": \"loss\"}"),
        Some("loss".into())
    );
    assert_eq!(limit.read_text("{\"limited_by\": 3}"), None);
}

#[test]
fn the_median_of_the_numbers_after_a_text_is_read() {
    let output = "64 bytes: time=10.2 ms\n64 bytes: time=10.1 ms\ntime=99 ms\ntime=x";
    assert_eq!(number("after = 'time='", output), Some(10.2));
    assert_eq!(number("after = 'time='", "nothing"), None);
}

#[test]
fn a_number_after_a_text_may_be_negative_or_have_an_exponent() {
    for (output, expected) in [
        ("off=-0.00115 of it", Some(-0.00115)),
        ("off= 1.2e-05\n", Some(1.2e-5)),
        ("off=12-15", Some(12.0)),
        ("off=3e", Some(3.0)),
        ("off=+2.5.", Some(2.5)),
        ("off=-", None),
        ("off=e9", None),
    ] {
        assert_eq!(number("after = 'off='", output), expected, "{output}");
    }
}

#[test]
fn the_rate_and_the_time_to_it_are_measured_between_two_shares() {
    let steady = "trace = 'bytes'\nbetween = [0.5, 0.95]\ntake = ";
    let trace = slow_fast_slow();
    let rate = number(&format!("{steady}'rate'"), &trace).unwrap();
    assert!((rate - 1000.0).abs() < 1e-6, "{rate}");
    // The time counts from 1 s, the last 0, until 90 % of the following half second is fast.
    let ninety = number(&format!("{steady}'ninety'"), &trace).unwrap();
    assert!((2.9..3.2).contains(&ninety), "{ninety}");
    let few = "{\"sample\":\"transfer\",\"time\":1,\"bytes\":3}";
    for nothing in ["", "no sample", few] {
        assert_eq!(number(&format!("{steady}'rate'"), nothing), None);
        assert_eq!(number(&format!("{steady}'ninety'"), nothing), None);
    }
}

#[test]
fn an_interval_may_be_given_in_seconds_and_a_target_as_a_number() {
    let part = "trace = 'bytes'\nseconds = [2, 9]\ntake = ";
    let trace = slow_fast_slow();
    let rate = number(&format!("{part}'rate'"), &trace).unwrap();
    assert!((rate - (5300.0 - 100.0) / 7.0).abs() < 1e-6, "{rate}");
    let ninety = number(&format!("{part}'ninety'\ntarget = '{{wanted}}'"), &trace).unwrap();
    assert!((1.9..2.1).contains(&ninety), "{ninety}");
    assert_eq!(
        number(&format!("{part}'ninety'\ntarget = '9000'"), &trace),
        None
    );
}

#[test]
fn the_median_of_an_interval_ignores_zeros() {
    // Nothing for 2 s, one stream until 5 s, then four until 10 s.
    let streams = |index| match index {
        0..20 | 100.. => 0.0,
        20..50 => 1.0,
        _ => 4.0,
    };
    let trace = trace("streams", (0..=150).map(streams));
    let median = |between: &str| number(&format!("trace = 'streams'\nbetween = {between}"), &trace);
    assert_eq!(median("[0.8, 1]"), Some(4.0));
    assert_eq!(median("[0, 0.3]"), Some(1.0));
}

#[test]
fn several_files_are_combined_by_mean_sum_or_fairness_index() {
    let directory = tempfile::tempdir().unwrap();
    for (name, value) in [("flow-1", 3.0), ("flow-2", 1.0), ("other", 9.0)] {
        let text = format!("{{\"rate\": {value}}}");
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let number = |of: &str| {
        let text = format!("json = 'rate'\nfile = 'flow-*'\nof_files = '{of}'");
        reading(&text).read_number("", directory.path(), &Variables::new())
    };
    assert_eq!(
        [number("mean"), number("sum"), number("jain")],
        [Some(2.0), Some(4.0), Some(0.8)]
    );
    std::fs::write(directory.path().join("flow-3"), "failed").unwrap();
    assert_eq!(number("sum"), None);
}

#[test]
fn a_reading_needs_exactly_one_place_and_a_valid_interval() {
    for good in [
        "json = 'a'",
        "after = 'b'",
        "trace = 'a'\nbetween = [0.4, 1]",
    ] {
        assert_eq!(reading(good).find_mistake(), None);
    }
    for bad in [
        "scale = 2",
        "json = 'a'\nafter = 'b'",
        "json = 'a'\nfile = '../log'",
        "trace = 'a'",
        "trace = 'a'\nbetween = [0.5, 0.5]",
        "trace = 'a'\nbetween = [0.5, 1.1]",
        "trace = 'a'\nseconds = [nan, 1]",
    ] {
        assert!(reading(bad).find_mistake().is_some(), "{bad}");
    }
}

#[test]
fn series_hold_the_fields_of_one_kind_of_samples() {
    let text = "title = 'W'\nunit = 'kB'\nscale = 0.001\nsample = 'stream'\nprograms = ['drs']\n\
                lines = { window = 'window', 'flight size' = 'in_flight' }";
    let definitions = [toml::from_str(text).unwrap()];
    let trace = r#"{"sample":"stream","time":0.2,"window":64000,"in_flight":32000}
{"sample":"transfer","time":0.2,"window":1}
no sample at all
{"sample":"stream","time":0.4,"window":128000}"#;
    let found = read_series(&definitions, "drs", trace);
    let shown: Vec<_> = found
        .iter()
        .map(|s| (&*s.line, &*s.times, &*s.values))
        .collect();
    let window = ("window", &[0.2, 0.4][..], &[64.0, 128.0][..]);
    assert_eq!(shown, [("flight size", &[0.2][..], &[32.0][..]), window]);
    assert!(read_series(&definitions, "stock", trace).is_empty());
}

proptest! {
    #[test]
    fn thinning_keeps_order_bounds_and_peaks(
        values in prop::collection::vec(-1000..1000_i32, 1..2000),
    ) {
        let whole: Vec<(f64, f64)> =
            values.iter().enumerate().map(|(i, v)| (i as f64, f64::from(*v))).collect();
        let thin = thin(&whole);
        prop_assert!(thin.len() <= MAX_POINTS);
        prop_assert!(thin.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let highest = |p: &[(f64, f64)]| p.iter().map(|p| p.1).fold(f64::MIN, f64::max);
        prop_assert_eq!(highest(&thin), highest(&whole));
    }

    #[test]
    fn any_output_is_read_without_panic(values in prop::collection::vec(-9.0..1e12_f64, 0..60), text in ".{0,99}") {
        let trace = trace("bytes", values) + &text;
        for take in ["rate", "ninety", "median"] {
            let text = format!("trace = 'bytes'\nbetween = [0.5, 0.95]\ntake = '{take}'");
            if let Some(found) = number(&text, &trace) {
                prop_assert!(found.is_finite());
            }
        }
    }
}
