//! Numbers in what a run left.

use serde::Deserialize;

use super::growth::Growth;
use super::level::Level;
use super::rise::Rise;
use super::statistics::median;

/// Where a value is in what a client printed, or in a file: exactly one of `json`, `after`,
/// `growth`, `rise` and `level`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reading {
    /// Keys and indices joined by dots, in the whole output or its last line.
    #[serde(default)]
    json: Option<String>,
    /// A text that the number follows; with several, their median counts.
    #[serde(default)]
    after: Option<String>,
    /// A field of samples over time, of which the growth a second counts.
    #[serde(default)]
    growth: Option<Growth>,
    /// The same field, of which the time counts until it grows that fast.
    #[serde(default)]
    rise: Option<Rise>,
    /// A field of samples over time, of which the median counts.
    #[serde(default)]
    level: Option<Level>,
    /// Name of a file in `{scratch}` that is read in place of what the client printed.
    #[serde(default)]
    file: Option<String>,
    /// Factor for the number.
    #[serde(default = "one")]
    scale: f64,
}

fn one() -> f64 {
    1.0
}

impl Reading {
    /// The mistake in it.
    pub(crate) fn mistake(&self) -> Option<&'static str> {
        let places = [
            self.json.is_some(),
            self.after.is_some(),
            self.growth.is_some(),
            self.rise.is_some(),
            self.level.is_some(),
        ];
        if places.into_iter().filter(|given| *given).count() != 1 {
            return Some("give one of 'json', 'after', 'growth', 'rise' and 'level'");
        }
        if self.file.as_ref().is_some_and(|name| name.contains('/')) {
            return Some("'file' is the name of a file in {scratch}, not a path");
        }
        let growth = self.growth.as_ref().and_then(Growth::mistake);
        let rise = self.rise.as_ref().and_then(Rise::mistake);
        growth
            .or(rise)
            .or_else(|| self.level.as_ref().and_then(Level::mistake))
    }

    /// Name of the file in `{scratch}` that it is about; `None`: it is about what the client printed.
    pub(crate) fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    /// The number, multiplied.
    pub(crate) fn number(&self, output: &str) -> Option<f64> {
        let found = if let Some(path) = &self.json {
            json(output, path)?.as_f64()
        } else if let Some(marker) = &self.after {
            median(&numbers_after(output, marker))
        } else if let Some(growth) = &self.growth {
            growth.per_second(output)
        } else if let Some(rise) = &self.rise {
            rise.seconds(output)
        } else {
            self.level.as_ref()?.typical(output)
        };
        found.map(|number| number * self.scale)
    }

    /// The value as text.
    pub(crate) fn text(&self, output: &str) -> Option<String> {
        let value = json(output, self.json.as_deref()?)?;
        value.as_str().map(str::to_owned)
    }
}

/// The value at `path` of the output as one JSON document, else of its last line.
fn json(output: &str, path: &str) -> Option<serde_json::Value> {
    let last = || output.lines().rfind(|line| !line.trim().is_empty());
    let document: serde_json::Value = serde_json::from_str(output)
        .ok()
        .or_else(|| serde_json::from_str(last()?).ok())?;
    let pointer: String = path.split('.').map(|part| format!("/{part}")).collect();
    document.pointer(&pointer).cloned()
}

/// The numbers that directly follow `marker`.
fn numbers_after(output: &str, marker: &str) -> Vec<f64> {
    output
        .split(marker)
        .skip(1)
        .filter_map(|rest| {
            let rest = rest.trim_start();
            let end = rest
                .find(|c: char| !c.is_ascii_digit() && c != '.')
                .unwrap_or(rest.len());
            rest[..end].parse().ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reading(text: &str) -> Reading {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn json_is_the_whole_output_or_its_last_line() {
        let rate = reading("json = 'end.streams.0.rate'\nscale = 0.5");
        assert_eq!(
            rate.number("{\n \"end\": {\"streams\": [{\"rate\": 3}]}\n}\n"),
            Some(1.5)
        );
        let lines = "{\"end\": 1}\n{\"end\": {\"streams\": [{\"rate\": 4.0}]}}\n\n";
        assert_eq!(rate.number(lines), Some(2.0));
        for bad in ["", "no", "{}", "{\"end\": {\"streams\": []}}"] {
            assert_eq!(rate.number(bad), None, "{bad}");
        }
        let limit = reading("json = 'limited_by'");
        assert_eq!(
            limit.text("{\"limited_by\": \"loss\"}"),
            Some("loss".into())
        );
        assert_eq!(limit.text("{\"limited_by\": 3}"), None);
    }

    #[test]
    fn the_median_of_numbers_after_a_text() {
        let ping = reading("after = 'time='");
        let output = "64 bytes: time=10.2 ms\n64 bytes: time=10.1 ms\ntime=99 ms\ntime=x";
        assert_eq!(ping.number(output), Some(10.2));
        assert_eq!(ping.number("nothing"), None);
    }

    #[test]
    fn a_reading_has_one_place() {
        assert!(reading("json = 'a'").mistake().is_none());
        assert!(reading("scale = 2").mistake().is_some());
        assert!(reading("json = 'a'\nafter = 'b'").mistake().is_some());
        let growth = |between| format!("growth = {{ of = 'a', between = {between} }}\n");
        assert!(reading(&growth("[0.5, 1]")).mistake().is_none());
        assert!(reading(&growth("[1, 0.5]")).mistake().is_some());
        assert!(
            reading(&(growth("[0.5, 1]") + "after = 'b'"))
                .mistake()
                .is_some()
        );
        let rise =
            |over| format!("rise = {{ of = 'a', to = 1, between = [0.5, 1], over = {over} }}");
        assert!(reading(&rise("1")).mistake().is_none());
        assert!(reading(&rise("0")).mistake().is_some());
        let level = |to| format!("level = {{ of = 'a', between = [0, {to}] }}");
        assert!(reading(&level("1")).mistake().is_none());
        assert!(reading(&level("2")).mistake().is_some());
        let log = reading("json = 'a'\nfile = 'log'");
        assert_eq!((log.mistake(), log.file()), (None, Some("log")));
        assert!(reading("json = 'a'\nfile = '../log'").mistake().is_some());
    }

    proptest! {
        #[test]
        fn any_output_is_answered(output in ".{0,200}") {
            let _ = reading("json = 'a.b'").number(&output);
            let _ = reading("after = 'time='").number(&output);
        }
    }
}
