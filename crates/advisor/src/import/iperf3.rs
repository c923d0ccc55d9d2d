//! The output of `iperf3 --json`, of its client or its server on this host.

use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::json_fields::{count, items, number, text};
use super::{ImportOptions, UnusableResult};
use crate::log_reader::entry::{LogDirection, LogEntry, LogProtocol};
use crate::measurement::{Measurement, Quantity};

/// Name of the test in the measurements.
const TEST: &str = "iperf3";

/// Loss from which a UDP test is taken to have filled the path, percent: then the rate that arrived is the
/// bottleneck's, and the loss is the test's own doing.
const FULL_PATH_PERCENT: f64 = 1.0;

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
    let forward = if is_server == is_reverse {
        LogDirection::Sent
    } else {
        LogDirection::Received
    };
    let is_udp = text(document, "/start/test_start/protocol") == Some("UDP");
    let sums = [("", forward), ("_bidir_reverse", opposite(forward))];
    let mut found = Vec::new();
    for (suffix, direction) in sums {
        if document
            .pointer(&format!("/end/sum_sent{suffix}"))
            .is_none()
        {
            continue;
        }
        let measured = if is_udp {
            udp(document, suffix, direction).map(|values| Measurement {
                client: client.to_canonical(),
                test: TEST.to_owned(),
                at: end_of(document, suffix, begin),
                values,
                detail: None,
                cost_bytes: 0,
            })
        } else {
            let at = end_of(document, suffix, begin);
            let mut entry = LogEntry::new(client, at, direction, LogProtocol::Ftp);
            tcp(document, suffix, &mut entry);
            entry.measurement()
        };
        found.extend(measured.map(|measured| Measurement {
            test: TEST.to_owned(),
            detail: Some(serde_json::json!({
                "imported_from": "iperf3",
                "version": text(document, "/start/version"),
                "congestion": text(document, "/end/sender_tcp_congestion"),
                "seconds": number(document, &format!("/end/sum_sent{suffix}/seconds")),
            })),
            ..measured
        }));
    }
    Ok(found)
}

fn opposite(direction: LogDirection) -> LogDirection {
    match direction {
        LogDirection::Sent => LogDirection::Received,
        LogDirection::Received => LogDirection::Sent,
    }
}

fn end_of(document: &Value, suffix: &str, begin: Timestamp) -> Timestamp {
    let seconds = number(document, &format!("/end/sum_sent{suffix}/seconds"));
    seconds
        .and_then(|seconds| SignedDuration::try_from_secs_f64(seconds).ok())
        .and_then(|seconds| begin.checked_add(seconds).ok())
        .unwrap_or(begin)
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
    // Only a sender knows its round trips, and one that does not writes 0.
    entry.min_rtt = items(document, "/end/streams")
        .iter()
        .filter_map(|stream| number(stream, "/sender/min_rtt"))
        .filter(|&micros| micros > 0.0)
        .min_by(f64::total_cmp)
        .map(|micros| micros / 1e6);
}

fn udp(document: &Value, suffix: &str, direction: LogDirection) -> Option<Vec<(Quantity, f64)>> {
    let sum = if suffix.is_empty() {
        "/end/sum".to_owned()
    } else {
        format!("/end/sum{suffix}")
    };
    let lost = number(document, &format!("{sum}/lost_percent"))?;
    let arrived = number(
        document,
        &format!("/end/sum_received{suffix}/bits_per_second"),
    )
    .or_else(|| {
        let sent = number(document, &format!("{sum}/bits_per_second"))?;
        Some(sent * (1.0 - lost / 100.0))
    })
    .filter(|&rate| rate > 0.0);
    match (lost >= FULL_PATH_PERCENT, direction) {
        (true, LogDirection::Sent) => Some(vec![(Quantity::Bandwidth, arrived?)]),
        (true, LogDirection::Received) => Some(vec![(Quantity::ReverseBandwidth, arrived?)]),
        (false, LogDirection::Sent) => Some(vec![(Quantity::Loss, lost / 100.0)]),
        (false, LogDirection::Received) => None,
    }
}
