//! Samples over time as a program writes them: JSON objects, one a line.

use std::collections::BTreeMap;

use serde_json::Value;

/// Field → value that a sample must have in it; empty: all samples are meant.
pub(crate) type Only = BTreeMap<String, toml::Value>;

/// The field with the time, seconds, unless a file says another one.
pub(crate) fn time() -> String {
    "time".to_owned()
}

/// Whether `sample` is one of those that `only` means.
pub(crate) fn meant(sample: &Value, only: &Only) -> bool {
    only.iter()
        .all(|(field, wanted)| at(sample, field).is_some_and(|value| same(value, wanted)))
}

/// The number in a field; dots lead into objects.
pub(crate) fn number(sample: &Value, field: &str) -> Option<f64> {
    at(sample, field)?.as_f64()
}

/// Time and value of the samples that have both, `x` and `of`; what is no such sample is passed over.
pub(crate) fn points(samples: &str, of: &str, x: &str, only: &Only) -> Vec<(f64, f64)> {
    let point = |line: &str| {
        let sample = serde_json::from_str(line).ok()?;
        let meant = meant(&sample, only);
        meant.then_some((number(&sample, x)?, number(&sample, of)?))
    };
    samples.lines().filter_map(point).collect()
}

fn at<'a>(sample: &'a Value, field: &str) -> Option<&'a Value> {
    field
        .split('.')
        .try_fold(sample, |value, key| value.get(key))
}

fn same(value: &Value, wanted: &toml::Value) -> bool {
    match wanted {
        toml::Value::String(text) => value.as_str() == Some(text),
        toml::Value::Integer(number) => value.as_i64() == Some(*number),
        toml::Value::Float(number) => value.as_f64() == Some(*number),
        toml::Value::Boolean(yes) => value.as_bool() == Some(*yes),
        _ => false,
    }
}
