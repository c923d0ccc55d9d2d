use proptest::prelude::*;

use super::*;

fn growth(between: &str) -> Growth {
    let text = format!("of = 'bytes'\nbetween = {between}\nwhere = {{ sample = 'transfer' }}\n");
    toml::from_str(&text).unwrap()
}

/// A sample each 0.1 s.
fn samples(values: impl IntoIterator<Item = f64>) -> String {
    let line = |(i, value): (usize, f64)| {
        let time = i as f64 / 10.0;
        format!("{{\"sample\":\"stream\",\"time\":{time},\"bytes\":7}}\n")
            + &format!("{{\"sample\":\"transfer\",\"time\":{time},\"bytes\":{value}}}\n")
    };
    values.into_iter().enumerate().map(line).collect()
}

/// Slow for 4 s, then 1000 a second for 6 s, then nothing for 1 s but the last bytes.
fn slow_fast_slow() -> String {
    samples((0..=110).map(|i| match f64::from(i) / 10.0 {
        t if t < 4.0 => t * 100.0,
        t if t < 10.0 => 400.0 + (t - 4.0) * 1000.0,
        11.0 => 6500.0,
        _ => 6400.0,
    }))
}

#[test]
fn the_part_between_the_shares_counts() {
    let close = |between: &str, want: f64| {
        let got = growth(between).per_second(&slow_fast_slow()).unwrap();
        assert!((got / want - 1.0).abs() < 1e-9, "{between}: {got}");
    };
    close("[0.5, 0.95]", 1000.0);
    // From 0.65 s to the end.
    close("[0.01, 1]", (6500.0 - 65.0) / (11.0 - 0.65));
}

#[test]
fn too_few_samples_are_no_measurement() {
    let steady = |count: u32| samples((0..=count).map(f64::from));
    let half = growth("[0.5, 1]");
    assert_eq!(half.per_second(&steady(16)), None);
    assert!((half.per_second(&steady(30)).unwrap() - 10.0).abs() < 1e-9);
    for nothing in ["", "no sample", "{\"sample\":\"transfer\",\"bytes\":9}"] {
        assert_eq!(half.per_second(nothing), None, "{nothing}");
    }
    assert_eq!(half.per_second(&samples([0.0; 30])), None);
}

#[test]
fn shares_are_in_order() {
    assert!(growth("[0.5, 1]").mistake().is_none());
    for odd in [
        "[0, 1]",
        "[0.5, 0.5]",
        "[0.9, 0.1]",
        "[0.5, 1.1]",
        "[nan, 1]",
    ] {
        assert!(growth(odd).mistake().is_some(), "{odd}");
    }
}

proptest! {
    #[test]
    fn a_steady_rate_is_found(rate in 1.0..1e9_f64, count in 40..400_u32) {
        let trace = samples((0..=count).map(|i| f64::from(i) / 10.0 * rate));
        let got = growth("[0.5, 0.95]").per_second(&trace).unwrap();
        prop_assert!((got / rate - 1.0).abs() < 1e-6, "{got}");
    }

    #[test]
    fn any_values_are_answered(values in prop::collection::vec(-9.0..1e12_f64, 0..60)) {
        if let Some(rate) = growth("[0.5, 0.95]").per_second(&samples(values)) {
            prop_assert!(rate.is_finite() && rate > 0.0);
        }
    }
}
