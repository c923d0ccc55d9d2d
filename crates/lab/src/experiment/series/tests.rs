use proptest::prelude::*;

use super::*;

const CHARTS: &str = r#"
[[series]]
title = "Window and flight size"
unit = "kB"
scale = 0.001
where = { sample = "stream", stream = 0 }
lines = { window = "window", "flight size" = "in_flight" }
[[series]]
title = "Buffer"
unit = "B"
x = "at.seconds"
lines = { buffer = "at.buffer" }
programs = ["drs"]
"#;

fn charts(text: &str) -> Vec<SeriesDefinition> {
    #[derive(Deserialize)]
    struct File {
        series: Vec<SeriesDefinition>,
    }
    toml::from_str::<File>(text).unwrap().series
}

fn read_text(program: &str, trace: &str) -> Vec<TimeSeries> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace");
    std::fs::write(&file, trace).unwrap();
    read(&charts(CHARTS), program, &file)
}

#[test]
fn lines_are_the_fields_of_the_samples_that_are_meant() {
    let trace = r#"{"sample":"stream","stream":0,"time":0.2,"window":64000,"in_flight":32000}
{"sample":"stream","stream":1,"time":0.2,"window":1,"in_flight":1}
{"sample":"transfer","time":0.2,"window":1}
no sample at all
{"sample":"stream","stream":0,"time":0.4,"window":128000}
{"at":{"seconds":1,"buffer":7}}
"#;
    let found = read_text("drs", trace);
    let shown: Vec<(usize, &str, &[f64], &[f64])> = found
        .iter()
        .map(|s| (s.chart, &*s.line, &*s.times, &*s.values))
        .collect();
    assert_eq!(
        shown,
        [
            (0, "flight size", &[0.2][..], &[32.0][..]),
            (0, "window", &[0.2, 0.4], &[64.0, 128.0]),
            (1, "buffer", &[1.0], &[7.0]),
        ]
    );
    assert_eq!(read_text("stock", trace).len(), 2, "not its chart");
}

#[test]
fn without_a_trace_there_is_nothing() {
    assert!(read(&charts(CHARTS), "drs", Path::new("/no/such/trace")).is_empty());
    assert!(read_text("drs", "").is_empty());
}

#[test]
fn mistakes_name_their_key() {
    for (from, to, named) in [
        ("{ buffer = \"at.buffer\" }", "{}", "series.1.lines"),
        ("[\"drs\"]", "[\"drs\"]\nruns = 0", "series.1.runs"),
        ("[\"drs\"]", "[\"curl\"]", "'curl' takes no part"),
        ("scale = 0.001", "scale = inf", "series.0.scale"),
    ] {
        let text = CHARTS.replace(from, to);
        let drs = "drs".to_owned();
        let all = charts(&text);
        let mut checks = all.iter().enumerate();
        let message = checks
            .find_map(|(index, series)| series.check("x.toml", index, &[&drs]).err())
            .unwrap()
            .to_string();
        assert!(message.contains(named), "{message}");
    }
}

fn series(values: Vec<f64>) -> TimeSeries {
    TimeSeries {
        chart: 0,
        line: "x".into(),
        run: 0,
        times: (0..values.len()).map(|i| i as f64 * 0.2).collect(),
        values,
    }
}

#[test]
fn a_peak_survives_thinning() {
    let mut values = vec![10.0; 5000];
    values[3333] = 77.0;
    values[4444] = -3.0;
    let thin = thinned(series(values));
    assert!(thin.times.len() <= MOST_POINTS);
    assert!(thin.values.contains(&77.0) && thin.values.contains(&-3.0));
    assert_eq!(rounded(123_456.0), 123_460.0);
}

proptest! {
    #[test]
    fn thinning_keeps_order_bounds_and_short_lines(
        values in prop::collection::vec(-1000..1000_i32, 0..2000),
    ) {
        let whole = series(values.iter().copied().map(f64::from).collect());
        let thin = thinned(whole.clone());
        prop_assert!(thin.times.len() <= MOST_POINTS);
        prop_assert_eq!(thin.times.len(), thin.values.len());
        prop_assert!(thin.times.windows(2).all(|pair| pair[0] < pair[1]));
        if whole.times.len() <= MOST_POINTS {
            prop_assert_eq!(thin.values, whole.values);
        } else {
            let highest = |s: &TimeSeries| s.values.iter().copied().fold(f64::MIN, f64::max);
            prop_assert_eq!(highest(&thin), highest(&whole));
        }
    }

    #[test]
    fn any_trace_is_answered(trace in ".{0,200}") {
        let _ = read_text("drs", &trace);
    }
}
