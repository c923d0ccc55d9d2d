//! The output of `iperf3 --json`, of its client or its server on this host.

use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::json_fields::{count, items, number, text};
use super::{ImportOptions, UnusableResult, min_rtt, udp_value};
use crate::log_reader::entry::{LogDirection, LogEntry, LogProtocol};
use crate::measurement::{Measurement, Quantity};

/// Name of the test in the measurements.
const TEST: &str = "iperf3";

/// The document looks like iperf3's.
pub fn is_iperf3(document: &Value) -> bool {
    document.pointer("/start/connected").is_some() && document.get("end").is_some()
}

/// The measurements of one document: one, or one per direction with `--bidir`. A test too short to say something of
/// the path gives none.
///
/// # Errors
/// Why the document is no result.
pub fn measurements(
    document: &Value,
    options: &ImportOptions,
) -> Result<Vec<Measurement>, UnusableResult> {
    if let Some(error) = text(document, "/error") {
        return Err(UnusableResult::TestFailed(format!("iperf3: {error}")));
    }
    let client = text(document, "/start/connected/0/remote_host")
        .and_then(|host| host.parse::<IpAddr>().ok())
        .or(options.client)
        .ok_or("it names no client: /start/connected/0/remote_host")?;
    let begin = count(document, "/start/timestamp/timesecs")
        .and_then(|seconds| Timestamp::from_second(i64::try_from(seconds).ok()?).ok())
        .or(options.at)
        .ok_or("it has no time: /start/timestamp/timesecs")?;
    let is_server = document.pointer("/start/accepted_connection").is_some();
    let is_reverse = number(document, "/start/test_start/reverse").is_some_and(|flag| flag > 0.0);
    // The client sends, unless it asked for the reverse.
    let (forward, backward) = match is_server == is_reverse {
        true => (LogDirection::Sent, LogDirection::Received),
        false => (LogDirection::Received, LogDirection::Sent),
    };
    let is_udp = text(document, "/start/test_start/protocol") == Some("UDP");
    let mut found = Vec::new();
    for (suffix, direction) in [("", forward), ("_bidir_reverse", backward)] {
        let sent = format!("/end/sum_sent{suffix}");
        if document.pointer(&sent).is_none() {
            continue;
        }
        let seconds = number(document, &format!("{sent}/seconds"));
        let at = seconds
            .and_then(|seconds| SignedDuration::try_from_secs_f64(seconds).ok())
            .and_then(|seconds| begin.checked_add(seconds).ok())
            .unwrap_or(begin);
        let values = if is_udp {
            udp(document, suffix, direction).map(|value| vec![value])
        } else {
            let mut entry = LogEntry::new(client, at, direction, LogProtocol::Ftp);
            tcp(document, suffix, &mut entry);
            entry.measurement().map(|measured| measured.values)
        };
        found.extend(values.map(|values| Measurement {
            client: client.to_canonical(),
            test: TEST.to_owned(),
            at,
            values,
            detail: Some(serde_json::json!({
                "imported_from": "iperf3",
                "version": text(document, "/start/version"),
                "congestion": text(document, "/end/sender_tcp_congestion"),
                "seconds": seconds,
            })),
            cost_bytes: 0,
        }));
    }
    Ok(found)
}

fn tcp(document: &Value, suffix: &str, entry: &mut LogEntry) {
    let (sent, received) = (
        format!("/end/sum_sent{suffix}"),
        format!("/end/sum_received{suffix}"),
    );
    // The server does not know how much the client received.
    let arrived = count(document, &format!("{received}/bytes")).filter(|&bytes| bytes > 0);
    let sum = if arrived.is_some() {
        received
    } else {
        sent.clone()
    };
    entry.bytes = count(document, &format!("{sum}/bytes"));
    entry.seconds = number(document, &format!("{sum}/seconds")).filter(|&seconds| seconds > 0.0);
    entry.retransmits = count(document, &format!("{sent}/retransmits"));
    entry.streams = count(document, "/start/test_start/num_streams")
        .and_then(|streams| u32::try_from(streams).ok());
    entry.segment_bytes = count(document, "/start/tcp_mss_default");
    if number(document, "/start/target_bitrate").is_some_and(|rate| rate > 0.0) {
        entry.limiter = Some("rate limit".to_owned());
    }
    let streams = items(document, "/end/streams").iter();
    entry.min_rtt = min_rtt(streams.filter_map(|stream| number(stream, "/sender/min_rtt")));
}

fn udp(document: &Value, suffix: &str, direction: LogDirection) -> Option<(Quantity, f64)> {
    let sum = format!("/end/sum{suffix}");
    let loss = number(document, &format!("{sum}/lost_percent"))? / 100.0;
    let received = format!("/end/sum_received{suffix}/bits_per_second");
    let arrived = number(document, &received)
        .or_else(|| Some(number(document, &format!("{sum}/bits_per_second"))? * (1.0 - loss)))
        .filter(|&rate| rate > 0.0);
    udp_value(loss, arrived, direction)
}
