//! Results of perfSONAR's pscheduler: a run as its archivers and its REST interface write it, or the bare result of
//! one test (`pscheduler result --format=json`).

use std::net::IpAddr;

use jiff::Timestamp;
use serde_json::Value;

use super::json_fields::{count, duration, items, number, text, whole};
use super::{ImportOptions, UnusableResult, min_rtt, udp_value};
use crate::log_reader::client_names::LogSurroundings;
use crate::log_reader::entry::{LogDirection, LogEntry, LogProtocol};
use crate::measurement::{Measurement, Quantity};

/// The kinds of tests that are understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Throughput,
    Rtt,
    Latency,
    Trace,
}

/// The document looks like a run or a result of pscheduler.
pub fn is_perfsonar(document: &Value) -> bool {
    result_of(document).and_then(kind_of_result).is_some()
        || (document.pointer("/test/type").is_some() && document.get("result").is_some())
}

/// The measurements of one document; none if the test says nothing of the path.
///
/// # Errors
/// Why the document is no result of a test of this host's path to a client.
pub fn measurements(
    document: &Value,
    options: &ImportOptions,
    surroundings: &mut LogSurroundings<'_>,
) -> Result<Vec<Measurement>, UnusableResult> {
    let result = result_of(document).ok_or("it has no result")?;
    if result.get("succeeded").and_then(Value::as_bool) == Some(false) {
        let error = text(result, "/error").unwrap_or("no reason given");
        return Err(UnusableResult::TestFailed(error.to_owned()));
    }
    let kind = match text(document, "/test/type") {
        Some("throughput") => Kind::Throughput,
        Some("rtt") => Kind::Rtt,
        Some("latency" | "latencybg") => Kind::Latency,
        Some("trace") => Kind::Trace,
        Some(other) => return Err(format!("tests of type {other:?} are not understood").into()),
        None => kind_of_result(result).ok_or("its kind of test is unknown")?,
    };
    let (client, direction) = ends(document, options, surroundings)?;
    let at = [
        "/run/end-time",
        "/end-time",
        "/schedule/start",
        "/start-time",
    ]
    .into_iter()
    .find_map(|pointer| text(document, pointer)?.parse::<Timestamp>().ok())
    .or(options.at)
    .ok_or("it has no time: /run/end-time")?;
    let (values, detail) = match kind {
        Kind::Throughput => (throughput(document, result, client, direction, at), None),
        Kind::Rtt => (rtt(result), None),
        Kind::Latency => (one_way(result, direction), None),
        Kind::Trace => trace(result, client),
    };
    if values.is_empty() {
        return Ok(Vec::new());
    }
    Ok(vec![Measurement {
        client,
        test: match kind {
            Kind::Throughput => "perfsonar-throughput",
            Kind::Rtt => "perfsonar-rtt",
            Kind::Latency => "perfsonar-latency",
            Kind::Trace => "perfsonar-trace",
        }
        .to_owned(),
        at,
        values,
        detail: Some(serde_json::json!({
            "imported_from": "perfsonar",
            "tool": text(document, "/tool/name").or_else(|| text(document, "/tool")),
            "hops": detail,
        })),
        cost_bytes: 0,
    }])
}

/// The result in a run, in the answer of a tool, or alone.
fn result_of(document: &Value) -> Option<&Value> {
    let mut result = document;
    // A run has a result, which may be a tool's answer, which has one, too.
    for _ in 0..2 {
        let inner = ["result-merged", "result"]
            .into_iter()
            .find_map(|name| result.get(name).filter(|inner| inner.is_object()));
        result = inner.unwrap_or(result);
    }
    result.is_object().then_some(result)
}

fn kind_of_result(result: &Value) -> Option<Kind> {
    if result.pointer("/summary/summary/throughput-bits").is_some() {
        Some(Kind::Throughput)
    } else if result.get("roundtrips").is_some() {
        Some(Kind::Rtt)
    } else if result.get("packets-sent").is_some() {
        Some(Kind::Latency)
    } else if result.get("paths").is_some() {
        Some(Kind::Trace)
    } else {
        None
    }
}

/// The client, and whether the test's packets went to it.
fn ends(
    document: &Value,
    options: &ImportOptions,
    surroundings: &mut LogSurroundings<'_>,
) -> Result<(IpAddr, LogDirection), UnusableResult> {
    let mut end = |name: &str, index: usize| {
        let host = text(document, &format!("/test/spec/{name}"))
            .or_else(|| text(document, &format!("/participants/{index}")))?;
        // An IPv6 address may stand in brackets.
        surroundings.client(host.trim_matches(['[', ']']))
    };
    let (source, dest) = (end("source", 0), end("dest", 1));
    let is_reverse = document
        .pointer("/test/spec/reverse")
        .and_then(Value::as_bool)
        == Some(true);
    let is_local = |address: Option<IpAddr>| {
        address.is_some_and(|address| {
            options
                .local
                .iter()
                .any(|local| local.to_canonical() == address)
        })
    };
    let (client, to_client) = if is_local(dest) && !is_local(source) {
        (source, false)
    } else if is_local(source) || options.local.is_empty() {
        (dest, true)
    } else if source.is_some() && dest.is_some() {
        return Err("neither its source nor its destination is this host".into());
    } else {
        (dest, true)
    };
    let client = client
        .or(options.client)
        .ok_or("it names no client with a known address: /test/spec/dest")?;
    let direction = if to_client == is_reverse {
        LogDirection::Received
    } else {
        LogDirection::Sent
    };
    Ok((client.to_canonical(), direction))
}

fn throughput(
    document: &Value,
    result: &Value,
    client: IpAddr,
    direction: LogDirection,
    at: Timestamp,
) -> Vec<(Quantity, f64)> {
    let rate = number(result, "/summary/summary/receiver-throughput-bits")
        .filter(|&rate| rate > 0.0)
        .or_else(|| number(result, "/summary/summary/throughput-bits"));
    if document.pointer("/test/spec/udp").and_then(Value::as_bool) == Some(true) {
        // Without a rate it is no result.
        let loss = share(result, "/summary/summary/lost", "/summary/summary/sent");
        let value = loss
            .zip(rate)
            .and_then(|(loss, rate)| udp_value(loss, Some(rate), direction));
        return value.into_iter().collect();
    }
    let seconds = number(result, "/summary/summary/end")
        .map(|end| end - number(result, "/summary/summary/start").unwrap_or_default())
        .filter(|&seconds| seconds > 0.0);
    let mut entry = LogEntry::new(client, at, direction, LogProtocol::Ftp);
    entry.seconds = seconds;
    entry.bytes = rate
        .zip(seconds)
        .map(|(rate, seconds)| whole(rate * seconds / 8.0));
    entry.retransmits = count(result, "/summary/summary/retransmits");
    entry.streams = u32::try_from(items(result, "/summary/streams").len()).ok();
    entry.segment_bytes = count(result, "/mss");
    if document.pointer("/test/spec/bandwidth").is_some() {
        entry.limiter = Some("rate limit".to_owned());
    }
    let intervals = items(result, "/intervals").iter();
    let streams = intervals.flat_map(|interval| items(interval, "/streams"));
    entry.min_rtt = min_rtt(streams.filter_map(|stream| number(stream, "/rtt")));
    let measured = entry.measurement();
    measured.map_or_else(Vec::new, |measured| measured.values)
}

/// Mean of the round trips but the first, which may have waited for the address of the next hop; and the loss.
fn rtt(result: &Value) -> Vec<(Quantity, f64)> {
    let trips: Vec<f64> = items(result, "/roundtrips")
        .iter()
        .filter_map(|trip| duration(trip, "/rtt"))
        .collect();
    let later = trips.get(1..).filter(|later| !later.is_empty());
    let used = later.unwrap_or(&trips);
    let trips_count = f64::from(u32::try_from(used.len()).unwrap_or(u32::MAX));
    let mean = if used.is_empty() {
        duration(result, "/mean")
    } else {
        Some(used.iter().sum::<f64>() / trips_count)
    };
    let mut values: Vec<_> = mean.map(|mean| (Quantity::Rtt, mean)).into_iter().collect();
    if let Some(loss) = share(result, "/lost", "/sent") {
        values.push((Quantity::Loss, loss));
    }
    values
}

/// One-way delays need two clocks that agree, and are no round trips: only the loss is used.
fn one_way(result: &Value, direction: LogDirection) -> Vec<(Quantity, f64)> {
    let loss = share(result, "/packets-lost", "/packets-sent");
    match direction {
        LogDirection::Sent => loss
            .map(|loss| (Quantity::Loss, loss))
            .into_iter()
            .collect(),
        LogDirection::Received => Vec::new(),
    }
}

fn share(result: &Value, part: &str, all: &str) -> Option<f64> {
    let all = number(result, all).filter(|&all| all > 0.0)?;
    Some((number(result, part)? / all).min(1.0))
}

/// The routers before the client, if the trace reached it; and the hops.
fn trace(result: &Value, client: IpAddr) -> (Vec<(Quantity, f64)>, Option<Value>) {
    let hops = items(result, "/paths/0");
    let at = |hop: &Value| {
        let address: Option<IpAddr> = text(hop, "/ip").and_then(|ip| ip.parse().ok());
        address.is_some_and(|address| address.to_canonical() == client)
    };
    let mut values = Vec::new();
    if let Some((index, last)) = hops.iter().enumerate().find(|(_, hop)| at(hop)) {
        let routers = f64::from(u32::try_from(index).unwrap_or(u32::MAX));
        values.push((Quantity::Hops, routers));
        values.extend(duration(last, "/rtt").map(|rtt| (Quantity::Rtt, rtt)));
    }
    let shown: Vec<Value> = hops
        .iter()
        .take(64)
        .map(|hop| serde_json::json!({"address": text(hop, "/ip"), "rtt": duration(hop, "/rtt")}))
        .collect();
    (values, Some(Value::Array(shown)))
}
