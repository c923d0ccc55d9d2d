//! The readings of a run: numbers and series that are read from what the client printed, or from files.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::template::{self, Variables};
use crate::experiment::results::statistics::median;
use crate::experiment::results::{TimeChart, TimeSeries};

/// The place of a value in the output of a client, or in files: exactly one of `json`, `after` and `trace`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutputReading {
    /// The path of the value, keys and indices joined by dots, in the JSON of the whole output or, if that is
    /// not JSON, of its last line.
    #[serde(default)]
    json: Option<String>,
    /// The text directly before the number. If it occurs several times, the median of the numbers counts.
    #[serde(default)]
    after: Option<String>,
    /// A field of samples over time, which `take` reduces to one number.
    #[serde(default)]
    trace: Option<String>,
    #[serde(default)]
    take: TraceStatistic,
    /// The interval that counts, as two shares: for `rate` and `ninety` of the field's last value, for
    /// `median` of the time in which the field is not 0.
    #[serde(default)]
    between: Option<(f64, f64)>,
    /// The interval that counts in seconds, in place of `between`.
    #[serde(default)]
    seconds: Option<(f64, f64)>,
    /// For `ninety`: the growth per second of which nine tenths are to be reached, in place of the `rate`; a
    /// template.
    #[serde(default)]
    target: Option<String>,
    /// For `ninety`: the time over which the growth is averaged, seconds.
    #[serde(default = "half")]
    hold: f64,
    /// A file in `{scratch}` that is read in place of the client's output; `NAME*`: all files with this prefix.
    #[serde(default)]
    file: Option<String>,
    /// How the values of several files are combined.
    #[serde(default)]
    of_files: FileStatistic,
    /// The factor by which the number is multiplied.
    #[serde(default = "one")]
    scale: f64,
}

/// How a field over time is reduced to one number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TraceStatistic {
    /// The growth per second within the interval.
    Rate,
    /// Seconds until the field first grows at nine tenths of its rate within the interval, averaged over
    /// `hold`. They count from the field's last 0, or from the beginning of the interval in `seconds`.
    Ninety,
    /// The median of the samples within the interval. Zeros are ignored: nothing was measured then.
    #[default]
    Median,
}

/// How the values of several files are combined.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FileStatistic {
    #[default]
    Mean,
    Sum,
    /// Jain's fairness index, (Σx)² / (n·Σx²): 1 when all are equal (Jain, Chiu and Hawe, 1984).
    Jain,
}

fn one() -> f64 {
    1.0
}

fn half() -> f64 {
    0.5
}

/// The smallest number of samples within an interval. With fewer, the rate would depend on when they were taken.
const MIN_SAMPLES: usize = 10;

impl OutputReading {
    /// Returns what is wrong with this reading. `None`: nothing.
    pub(crate) fn find_mistake(&self) -> Option<&'static str> {
        let places = [&self.json, &self.after, &self.trace];
        if places.into_iter().flatten().count() != 1 {
            return Some("give one of 'json', 'after' and 'trace'");
        }
        if self.file.as_ref().is_some_and(|name| name.contains('/')) {
            return Some("'file' is the name of a file in {scratch}, not a path");
        }
        let part = self.between.or(self.seconds);
        if part.is_some_and(|(from, to)| !(0.0 <= from && from < to)) {
            return Some("'between' and 'seconds' have two numbers, the smaller one first");
        }
        if self.between.is_some_and(|(_, to)| to > 1.0) {
            return Some("'between' has two shares, at most 1");
        }
        let needed = self.trace.is_some() && part.is_none();
        needed.then_some("'trace' needs 'between' or 'seconds'")
    }

    /// Sets `file` for a reading of a trace that names none.
    pub(crate) fn read_trace_of(&mut self, file: &str) {
        if self.trace.is_some() && self.file.is_none() {
            self.file = Some(file.to_owned());
        }
    }

    /// Reads the number from what the client `printed`, or from files in `directory`. `None`: it is not there.
    pub(crate) fn read_number(
        &self,
        printed: &str,
        directory: &Path,
        variables: &Variables,
    ) -> Option<f64> {
        let value = match &self.file {
            None => self.number_in(printed, variables)?,
            Some(name) => {
                let texts = read_files(directory, name);
                let values = texts.iter().map(|text| self.number_in(text, variables));
                // A file without a value is from a flow that failed: a sum over the others would be wrong.
                self.of_files.of(&values.collect::<Option<Vec<f64>>>()?)?
            }
        };
        Some(value * self.scale)
    }

    /// Reads a text at a JSON path from what the client printed. `None`: it is not there.
    pub(crate) fn read_text(&self, printed: &str) -> Option<String> {
        let value = json_value(printed, self.json.as_deref()?)?;
        value.as_str().map(str::to_owned)
    }

    /// Reads the number, before it is scaled, from one text.
    fn number_in(&self, text: &str, variables: &Variables) -> Option<f64> {
        if let Some(path) = &self.json {
            return json_value(text, path)?.as_f64();
        }
        if let Some(marker) = &self.after {
            return median(&numbers_after(text, marker));
        }
        let points = samples(text, "transfer", self.trace.as_ref()?);
        match self.take {
            TraceStatistic::Rate => self.rate(&points),
            TraceStatistic::Ninety => {
                let target = self
                    .target
                    .as_ref()
                    .map(|text| template::expand(text, variables));
                let target = target.map(|text| text.ok()?.parse().ok());
                self.time_to_ninety_percent(&points, target.unwrap_or_else(|| self.rate(&points))?)
            }
            TraceStatistic::Median => self.median(points),
        }
    }

    /// Returns the beginning and the end of the interval of a field that only grows, seconds.
    fn interval(&self, points: &[(f64, f64)]) -> Option<(f64, f64)> {
        if self.seconds.is_some() {
            return self.seconds;
        }
        let ((from, to), last) = (self.between?, points.last()?.1);
        Some((
            time_when_reached(points, from * last)?,
            time_when_reached(points, to * last)?,
        ))
    }

    /// Returns the growth per second within the interval. `None`: it has too few samples.
    fn rate(&self, points: &[(f64, f64)]) -> Option<f64> {
        let (begin, end) = self.interval(points)?;
        let within = points.iter().filter(|(t, _)| (begin..=end).contains(t));
        let growth = value_at(points, end)? - value_at(points, begin)?;
        let rate = growth / (end - begin);
        (within.count() >= MIN_SAMPLES && rate.is_finite()).then_some(rate)
    }

    /// Returns the seconds until the field first grows at 90 % of `rate`. `None`: it never does.
    fn time_to_ninety_percent(&self, points: &[(f64, f64)], rate: f64) -> Option<f64> {
        let begin = match self.seconds {
            Some((begin, _)) => begin,
            None => {
                // The field is 0 until the first bytes arrive: the last 0 is the start of the transfer.
                let last_zero = points.iter().rposition(|(_, value)| *value == 0.0);
                points.get(last_zero.unwrap_or(0))?.0
            }
        };
        let end = self.seconds.map_or(f64::INFINITY, |(_, end)| end);
        let mut later = points.iter().filter(|(t, _)| (begin..end).contains(t));
        let is_fast = |(time, value): &&(f64, f64)| {
            let later = value_at(points, time + self.hold);
            later.is_some_and(|later| later - value >= 0.9 * rate * self.hold)
        };
        later.find(is_fast).map(|(time, _)| time - begin)
    }

    /// Returns the median of the samples within the interval, without zeros.
    fn median(&self, mut points: Vec<(f64, f64)>) -> Option<f64> {
        points.retain(|(_, value)| *value != 0.0);
        let (first, last) = (points.first()?.0, points.last()?.0);
        let at = |share: f64| first + (last - first) * share;
        let between = || self.between.map(|(from, to)| (at(from), at(to)));
        let (begin, end) = self.seconds.or_else(between)?;
        let within = points.iter().filter(|(t, _)| (begin..=end).contains(t));
        median(&within.map(|(_, value)| *value).collect::<Vec<f64>>())
    }
}

impl FileStatistic {
    fn of(self, values: &[f64]) -> Option<f64> {
        #[allow(clippy::cast_precision_loss, reason = "a count of files")]
        let count = values.len() as f64;
        let sum: f64 = values.iter().sum();
        let squares: f64 = values.iter().map(|value| value * value).sum();
        let combined = match self {
            Self::Mean => sum / count,
            Self::Sum => sum,
            Self::Jain => sum * sum / (count * squares),
        };
        (!values.is_empty() && combined.is_finite()).then_some(combined)
    }
}

/// Reads the files in `directory` that match `name`. Files that cannot be read are omitted.
fn read_files(directory: &Path, name: &str) -> Vec<String> {
    let text = |path: &Path| {
        let bytes = std::fs::read(path).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    let Some(begin) = name.strip_suffix('*') else {
        return text(&directory.join(name)).into_iter().collect();
    };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let meant = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(begin));
    meant.filter_map(|entry| text(&entry.path())).collect()
}

/// Finds the value at `path` in the output as one JSON document, else in its last line.
fn json_value(output: &str, path: &str) -> Option<Value> {
    let last = || output.lines().rfind(|line| !line.trim().is_empty());
    let document: Option<Value> = serde_json::from_str(output).ok();
    let document = document.or_else(|| serde_json::from_str(last()?).ok())?;
    document
        .pointer(&format!("/{}", path.replace('.', "/")))
        .cloned()
}

/// Finds the numbers that directly follow `marker`.
fn numbers_after(output: &str, marker: &str) -> Vec<f64> {
    let number = |rest: &str| {
        let rest = rest.trim_start();
        let end = rest.find(|c: char| !c.is_ascii_digit() && !"+-.eE".contains(c));
        // "12-15" and "3e" begin with a number, too.
        (1..=end.unwrap_or(rest.len())).rev().find_map(|end| {
            let number = rest[..end].parse().ok();
            number.filter(|number: &f64| number.is_finite())
        })
    };
    output.split(marker).skip(1).filter_map(number).collect()
}

/// Reads time and value of the samples (one JSON object per line) of kind `sample` that have `field`. Other
/// lines are ignored.
fn samples(text: &str, sample: &str, field: &str) -> Vec<(f64, f64)> {
    let point = |line: &str| {
        let value: Value = serde_json::from_str(line).ok()?;
        let meant = value.get("sample").is_none_or(|name| name == sample);
        meant.then_some((value.get("time")?.as_f64()?, value.get(field)?.as_f64()?))
    };
    text.lines().filter_map(point).collect()
}

/// Returns the time at which `value` is reached, interpolated between two samples. `None`: it is never
/// reached, or already at the first sample.
fn time_when_reached(points: &[(f64, f64)], value: f64) -> Option<f64> {
    let after = points.iter().position(|(_, v)| *v >= value)?;
    let (t0, v0) = points[after.checked_sub(1)?];
    let (t1, v1) = points[after];
    Some(t0 + (value - v0) / (v1 - v0) * (t1 - t0))
}

/// Returns the value at `time`, interpolated between two samples. `None`: it is outside of the samples.
fn value_at(points: &[(f64, f64)], time: f64) -> Option<f64> {
    let after = points.iter().position(|(t, _)| *t >= time)?;
    let (t1, v1) = points[after];
    let (t0, v0) = points[after.checked_sub(1)?];
    Some(match t1 > t0 {
        true => v0 + (v1 - v0) * (time - t0) / (t1 - t0),
        false => v1,
    })
}

/// A chart over time for each cell: the samples of a trace and their fields that it shows.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SeriesDefinition {
    /// The title shown to people: `Window and flight size`.
    title: String,
    /// The unit of the drawn values.
    unit: String,
    /// The factor by which the fields are multiplied.
    #[serde(default = "one")]
    scale: f64,
    /// The kind of samples: `stream`, `transfer` or `decision`.
    #[serde(default)]
    sample: String,
    /// The name of a line in the chart → the field.
    pub(crate) lines: BTreeMap<String, String>,
    /// The number of runs of each cell whose series are saved: the first valid ones.
    #[serde(default = "one_run")]
    pub(crate) runs: usize,
    /// The keys of the programs or variants that have this chart; empty: all.
    #[serde(default)]
    pub(crate) programs: Vec<String>,
}

fn one_run() -> usize {
    1
}

impl SeriesDefinition {
    /// Returns the form that is saved with the results.
    pub(crate) fn to_chart(&self) -> TimeChart {
        TimeChart {
            title: self.title.clone(),
            unit: self.unit.clone(),
        }
    }
}

/// The largest number of points of a line that is saved.
const MAX_POINTS: usize = 240;

/// Reads the series of `program` for the charts of `definitions` from its trace, which is in order of time.
pub(crate) fn read_series(
    definitions: &[SeriesDefinition],
    program: &str,
    trace: &str,
) -> Vec<TimeSeries> {
    let mut all = Vec::new();
    for (chart, definition) in definitions.iter().enumerate() {
        let named = &definition.programs;
        if !named.is_empty() && !named.iter().any(|key| key == program) {
            continue;
        }
        for (line, field) in &definition.lines {
            let mut points = samples(trace, &definition.sample, field);
            points
                .iter_mut()
                .for_each(|(_, value)| *value *= definition.scale);
            let kept = thin(&points);
            let rounded = kept
                .into_iter()
                .map(|(time, value)| (rounded(time), rounded(value)));
            let (times, values): (Vec<f64>, Vec<f64>) = rounded.unzip();
            if !times.is_empty() {
                all.push(TimeSeries {
                    chart,
                    line: line.clone(),
                    run: 0,
                    times,
                    values,
                });
            }
        }
    }
    all
}

/// Selects at most [`MAX_POINTS`] points of a line. The line is cut into slices of equal length, and the
/// lowest and the highest point of each are kept, so that no peak is lost.
fn thin(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= MAX_POINTS {
        return points.to_vec();
    }
    let mut kept = Vec::new();
    for slice in points.chunks((2 * points.len()).div_ceil(MAX_POINTS)) {
        let value = |index: &usize| slice[*index].1;
        let by_value = |a: &usize, b: &usize| value(a).total_cmp(&value(b));
        let low = (0..slice.len()).min_by(by_value).unwrap_or_default();
        let high = (0..slice.len()).max_by(by_value).unwrap_or_default();
        kept.push(slice[low.min(high)]);
        kept.extend((low != high).then(|| slice[low.max(high)]));
    }
    kept
}

/// Rounds to five significant digits, which is more than a chart can show.
fn rounded(number: f64) -> f64 {
    format!("{number:.4e}").parse().unwrap_or(number)
}

#[cfg(test)]
mod tests {
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
        let median =
            |between: &str| number(&format!("trace = 'streams'\nbetween = {between}"), &trace);
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
}
