use proptest::prelude::*;

use super::*;

fn rise(more: &str) -> Rise {
    let text = "of = 'bytes'\nto = 0.9\nbetween = [0.5, 0.95]\n";
    toml::from_str(&format!("{text}{more}")).unwrap()
}

/// A sample each 0.1 s.
fn samples(value: impl Fn(f64) -> f64, seconds: u32) -> String {
    let line = |i: u32| {
        let time = f64::from(i) / 10.0;
        format!("{{\"time\":{time},\"bytes\":{}}}\n", value(time))
    };
    (0..=seconds * 10).map(line).collect()
}

#[test]
fn the_time_from_the_first_byte_counts() {
    // Nothing for 2 s, 3 s at 100 a second, then 1000 a second.
    let slow_start = |t: f64| match t {
        t if t < 2.0 => 0.0,
        t if t < 5.0 => (t - 2.0) * 100.0,
        t => 300.0 + (t - 5.0) * 1000.0,
    };
    let found = rise("over = 0.5").seconds(&samples(slow_start, 15));
    // 2.95 s and later 90 % of the stretch are fast.
    assert!(found.is_some_and(|s| (2.9..3.2).contains(&s)), "{found:?}");
}

#[test]
fn a_burst_is_not_the_steady_rate() {
    let burst = |t: f64| match t {
        t if t < 0.15 => t * 1000.0,
        t if t < 3.0 => 150.0,
        t => 150.0 + (t - 3.0) * 1000.0,
    };
    let found = rise("over = 0.5").seconds(&samples(burst, 15));
    assert!(found.is_some_and(|s| s > 2.8), "{found:?}");
}

#[test]
fn nothing_steady_is_no_measurement() {
    for nothing in ["", "no sample", "{\"time\":1,\"bytes\":3}"] {
        assert_eq!(rise("over = 1").seconds(nothing), None, "{nothing}");
    }
    assert_eq!(rise("over = 1").seconds(&samples(|_| 0.0, 9)), None);
    assert_eq!(rise("over = 99").seconds(&samples(|t| t, 9)), None);
}

#[test]
fn mistakes_are_named() {
    assert!(rise("over = 1").mistake().is_none());
    for odd in ["over = 0", "over = nan", "over = inf"] {
        assert!(rise(odd).mistake().is_some(), "{odd}");
    }
    let mut odd = rise("over = 1");
    odd.to = 1.1;
    assert!(odd.mistake().is_some());
    odd.to = 0.9;
    odd.between = (0.9, 0.1);
    assert!(odd.mistake().is_some());
}

proptest! {
    #[test]
    fn any_values_are_answered(values in prop::collection::vec(0.0..1e12_f64, 0..60)) {
        let lines = values.iter().zip(0_u32..);
        let trace: String = lines
            .map(|(value, i)| format!("{{\"time\":{},\"bytes\":{value}}}\n", f64::from(i) / 10.0))
            .collect();
        if let Some(seconds) = rise("over = 0.5").seconds(&trace) {
            prop_assert!(seconds >= 0.0 && seconds.is_finite());
        }
    }
}
