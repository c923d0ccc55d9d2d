//! The keys that describe a direction of a path, from a table or the command line, and their precedence.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use link::trace::{BUILT_IN_TRACES, PathTrace, TracePoint};
use link::{Conditions, Loss, Reorder};
use toml::Spanned;
use units::{Rate, UnitError, show};

use super::error::TopologyError;
use super::file::{BurstTable, OptionalQuantity, PathTable, QuantityText, ReorderTable, read_text};
use super::queue::{self, QueueLength};
use crate::LabError;

/// Maximum round-trip time. For comparison: over a geostationary satellite it is about 0.6 s.
const LONGEST_RTT: Duration = Duration::from_secs(60);

/// The keys that one source gives; `None` leaves a key to a more general source.
#[derive(Debug, Clone, Default)]
pub(super) struct DirectionKeys {
    /// One-way delay.
    delay: Option<Duration>,
    rate: Option<Rate>,
    queue: Option<QueueLength>,
    loss: Option<Loss>,
    reorder: Option<Reorder>,
    duplicate: Option<f64>,
    corrupt: Option<f64>,
    trace: Option<Arc<PathTrace>>,
}

impl DirectionKeys {
    /// Parses a table. Relative paths of traces are relative to `base`.
    pub(super) fn read(table: &PathTable, base: &Path) -> Result<Self, TopologyError> {
        let keys = Self {
            delay: delay(table)?,
            rate: parse_optional("rate", &table.rate, rate)?,
            queue: parse_optional("queue", &table.queue, QueueLength::parse)?,
            loss: loss(table)?,
            reorder: table.reorder.as_ref().map(reorder).transpose()?,
            duplicate: parse_optional("duplicate", &table.duplicate, probability)?,
            corrupt: parse_optional("corrupt", &table.corrupt, probability)?,
            trace: start_trace(table, base)?,
        };
        Ok(keys)
    }

    /// These keys, and those of `general` where a key is missing.
    pub(super) fn with_fallback(self, general: &Self) -> Result<Self, TopologyError> {
        let trace = self.trace.or_else(|| general.trace.clone());
        let replaced = KeysFromTrace::of_trace(trace.as_deref());
        for (key, both) in [
            ("rate", self.rate.is_some() && replaced.rate),
            ("rtt", self.delay.is_some() && replaced.delay),
            ("loss", self.loss.is_some() && replaced.loss),
        ] {
            if both {
                return Err(TopologyError::new(format!(
                    "{key}: the trace sets the {key}; remove one of the two"
                )));
            }
        }
        Ok(Self {
            delay: self.delay.or(general.delay),
            rate: self.rate.or(general.rate),
            queue: self.queue.or(general.queue),
            loss: self.loss.or(general.loss),
            reorder: self.reorder.or(general.reorder),
            duplicate: self.duplicate.or(general.duplicate),
            corrupt: self.corrupt.or(general.corrupt),
            trace,
        })
    }

    /// Mean one-way delay.
    pub(super) fn mean_delay(&self) -> Duration {
        let of_trace = self.trace.as_ref().and_then(|trace| trace.mean_rtt());
        of_trace.map_or(self.delay.unwrap_or_default(), |rtt| rtt / 2)
    }

    /// The conditions of a direction on a path with this mean round-trip time. Values that a trace
    /// replaces keep their defaults, so that equal conditions compare equal.
    pub(super) fn conditions(self, rtt: Duration, mtu: u16) -> Result<Conditions, TopologyError> {
        let replaced = KeysFromTrace::of_trace(self.trace.as_deref());
        // The queue is sized by the mean rate and RTT of the trace and keeps that size, as the
        // buffer of a router does.
        let of_trace = self.trace.as_ref().and_then(|trace| trace.mean_rate());
        let rate = of_trace.or(self.rate);
        let sometimes = |trace: &Arc<PathTrace>| trace.points().iter().any(|p| p.rate.is_some());
        if rate.is_none() && self.queue.is_none() && self.trace.as_ref().is_some_and(sometimes) {
            return Err(TopologyError::new(
                "rate: the trace has no rate at some times; give the path a rate or a queue as well",
            ));
        }
        let queue = match self.queue {
            None => queue::default_queue(rate, rtt),
            Some(length) => length
                .resolve(rate, rtt, mtu)
                .map_err(|f| f.within("queue"))?,
        };
        let own_loss = self.loss.filter(|_| !replaced.loss);
        Ok(Conditions {
            rate: self.rate.filter(|_| !replaced.rate),
            delay: self.delay.filter(|_| !replaced.delay).unwrap_or_default(),
            queue,
            loss: own_loss.unwrap_or(Loss::Never),
            reorder: self.reorder,
            duplicate: self.duplicate.unwrap_or(0.0),
            corrupt: self.corrupt.unwrap_or(0.0),
            trace: self.trace,
        })
    }
}

/// The keys that a trace sets at all times.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KeysFromTrace {
    pub(super) rate: bool,
    pub(super) delay: bool,
    pub(super) loss: bool,
}

impl KeysFromTrace {
    pub(super) fn of_trace(trace: Option<&PathTrace>) -> Self {
        trace.map_or(Self::default(), |trace| {
            let points = trace.points();
            Self {
                rate: points.iter().all(|point| point.rate.is_some()),
                delay: points.iter().all(|point| point.rtt.is_some()),
                loss: points.iter().all(|point| point.loss.is_some()),
            }
        })
    }
}

/// Parses an optional value. An error names the key and its position.
pub(super) fn parse_optional<T, E: Into<TopologyError>>(
    key: &str,
    field: &OptionalQuantity,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<Option<T>, TopologyError> {
    field
        .as_ref()
        .map(|value| parse_required(key, value, parse))
        .transpose()
}

fn parse_required<T, E: Into<TopologyError>>(
    key: &str,
    value: &Spanned<QuantityText>,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<T, TopologyError> {
    parse(&value.get_ref().0).map_err(|error| error.into().within(key).at(value.span()))
}

impl From<UnitError> for TopologyError {
    fn from(error: UnitError) -> Self {
        Self::new(error.to_string())
    }
}

fn delay(table: &PathTable) -> Result<Option<Duration>, TopologyError> {
    let rtt = parse_optional("rtt", &table.rtt, round_trip)?;
    let delay = parse_optional("delay", &table.delay, |text| {
        let delay = units::milliseconds(text)?;
        // Two delays make a round trip.
        at_most(delay, LONGEST_RTT / 2).map(|()| delay)
    })?;
    match (&table.rtt, delay) {
        (Some(rtt), Some(_)) => Err(TopologyError::new(
            "rtt: delay is set as well; remove one of the two",
        )
        .at(rtt.span())),
        _ => Ok(delay.or(rtt.map(|rtt| rtt / 2))),
    }
}

fn round_trip(text: &str) -> Result<Duration, TopologyError> {
    let rtt = units::milliseconds(text)?;
    at_most(rtt, LONGEST_RTT)?;
    Ok(rtt)
}

fn at_most(time: Duration, most: Duration) -> Result<(), TopologyError> {
    if time > most {
        return Err(TopologyError::new(format!(
            "{} is too long; the maximum is {}",
            show::time(time),
            show::time(most)
        )));
    }
    Ok(())
}

fn rate(text: &str) -> Result<Rate, TopologyError> {
    match units::rate(text)? {
        rate if rate.as_bits_per_second() == 0 => Err(TopologyError::new(
            "a rate of 0 would pass no packets; omit the rate for no limit",
        )),
        rate => Ok(rate),
    }
}

fn probability(text: &str) -> Result<f64, TopologyError> {
    Ok(units::probability(text)?)
}

fn loss(table: &PathTable) -> Result<Option<Loss>, TopologyError> {
    let independent = parse_optional("loss", &table.loss, probability)?;
    match (independent, &table.burst_loss) {
        (Some(_), Some(bursts)) => Err(TopologyError::new(
            "burst_loss: loss is set as well; remove one of the two",
        )
        .at(bursts.span())),
        (None, Some(bursts)) => bursty(bursts.get_ref()).map(Some),
        // A loss of 0 is not "no loss given": it overrides a more general loss.
        (Some(share), None) if share > 0.0 => Ok(Some(Loss::Independent(share))),
        (Some(_), None) => Ok(Some(Loss::Never)),
        (None, None) => Ok(None),
    }
}

fn bursty(table: &BurstTable) -> Result<Loss, TopologyError> {
    let part =
        |key, value| parse_required(key, value, probability).map_err(|f| f.within("burst_loss"));
    Ok(Loss::Bursty {
        to_bad: part("to_bad", &table.to_bad)?,
        to_good: part("to_good", &table.to_good)?,
        in_good: part("in_good", &table.in_good)?,
        in_bad: part("in_bad", &table.in_bad)?,
    })
}

fn reorder(table: &ReorderTable) -> Result<Reorder, TopologyError> {
    let within = |fault: TopologyError| fault.within("reorder");
    Ok(Reorder {
        probability: parse_required("probability", &table.probability, probability)
            .map_err(within)?,
        extra: parse_required("extra", &table.extra, round_trip).map_err(within)?,
    })
}

/// The trace of a table, rotated to its start time.
fn start_trace(table: &PathTable, base: &Path) -> Result<Option<Arc<PathTrace>>, TopologyError> {
    let start = parse_optional("trace_start", &table.trace_start, seconds)?;
    match (&table.trace, start) {
        (Some(name), None) => trace(name, base).map(Some),
        (Some(name), Some(start)) => Ok(Some(Arc::new(rotate(&*trace(name, base)?, start)?))),
        (None, Some(_)) => Err(TopologyError::new(
            "trace_start: there is no trace in this table",
        )),
        (None, None) => Ok(None),
    }
}

fn seconds(text: &str) -> Result<u64, TopologyError> {
    // Traces repeat, so a start may be any number, such as a seed: most are longer than the longest time.
    if let Ok(start) = text.strip_suffix('s').unwrap_or(text).parse() {
        return Ok(start);
    }
    let time = units::seconds(text).ok();
    let whole = time.filter(|time| time.subsec_nanos() == 0);
    whole.map(|time| time.as_secs()).ok_or_else(|| {
        TopologyError::new(format!(
            "'{}' is not a whole number of seconds; write it like 90s",
            text.escape_debug()
        ))
    })
}

/// A trace that starts with the point that is valid `begin` seconds after its start. Traces repeat, so
/// `begin` may exceed the period.
fn rotate(trace: &PathTrace, start: u64) -> Result<PathTrace, TopologyError> {
    let (points, period) = (trace.points(), trace.period());
    let nanoseconds = Duration::from_secs(start).as_nanos() % period.as_nanos().max(1);
    // A point applies until the next one, so the trace starts within this point's time.
    let first = points.iter().rposition(|p| p.at.as_nanos() <= nanoseconds);
    let first = first.unwrap_or(0);
    let origin = points[first].at;
    let later = points[first..].iter().map(|p| (p, p.at - origin));
    let before = points[..first].iter();
    let before = before.map(|p| (p, p.at + period.saturating_sub(origin)));
    let rotated = later
        .chain(before)
        .map(|(point, at)| TracePoint { at, ..*point });
    PathTrace::new(rotated.collect()).map_err(|error| TopologyError::new(error.to_string()))
}

/// A built-in trace, a file relative to `base`, or, if the value has several lines, the CSV text
/// itself.
fn trace(name: &Spanned<String>, base: &Path) -> Result<Arc<PathTrace>, TopologyError> {
    let text = name.get_ref();
    let found = match link::trace::built_in_trace(text) {
        Some(trace) => Ok(trace),
        // A file name has no line break, a CSV text has at least one.
        None if text.contains('\n') => parse_trace(text).map(Arc::new),
        None => read_trace(text, base).map(Arc::new),
    };
    found.map_err(|fault| fault.within("trace").at(name.span()))
}

fn parse_trace(text: &str) -> Result<PathTrace, TopologyError> {
    let trace = PathTrace::from_csv(text).map_err(|error| TopologyError::new(error.to_string()))?;
    let longest = trace.points().iter().filter_map(|point| point.rtt).max();
    at_most(longest.unwrap_or_default(), LONGEST_RTT).map_err(|f| f.within("rtt"))?;
    Ok(trace)
}

fn read_trace(file: &str, base: &Path) -> Result<PathTrace, TopologyError> {
    let path = base.join(file);
    let text = read_text(&path).map_err(|error| match error {
        LabError::NotFound(message) => {
            let names = BUILT_IN_TRACES.map(|(name, _)| name).join(" and ");
            TopologyError::missing(format!("{message}; {names} need no file"))
        }
        other => TopologyError::new(other.to_string()),
    })?;
    parse_trace(&text).map_err(|fault| fault.within(&path.display().to_string()))
}
