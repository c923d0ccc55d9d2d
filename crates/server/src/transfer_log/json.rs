//! A record as one JSON object.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use proto::printable::printable_json;
use serde::Serialize;

use super::{TransferMode, TransferRecord};

/// The fields of the object. Unknown values are null, never left out.
#[derive(Serialize)]
struct JsonRecord<'a> {
    /// RFC 3339, UTC, microseconds.
    start: String,
    end: String,
    seconds: f64,
    bytes: u64,
    direction: &'static str,
    user: &'a str,
    client: SocketAddr,
    data_peers: &'a [IpAddr],
    family: &'static str,
    root: String,
    /// Bytes that are not UTF-8 become U+FFFD; then `path_hex` has the exact bytes.
    path: String,
    path_hex: Option<String>,
    /// Null unless the file was stored under a partial name. Encoded like `path`.
    stored_as: Option<String>,
    mode: &'static str,
    streams: u64,
    block: usize,
    buffer: u64,
    sizing: &'static str,
    /// Null if the streams were not sampled while data moved.
    memory_bytes: Option<u64>,
    min_rtt_us: Option<u64>,
    retransmits: u64,
    decision: Option<&'a str>,
    limiter: Option<&'static str>,
    congestion: Option<&'a str>,
    checksum: Option<JsonChecksum<'a>>,
    protection: &'static str,
    identity: Option<&'a str>,
    code: u16,
    result: &'static str,
    error: Option<&'a str>,
    task: Option<&'a str>,
    application: Option<&'a str>,
}

#[derive(Serialize)]
struct JsonChecksum<'a> {
    algorithm: &'static str,
    hex: &'a str,
}

/// Formats the line with its end.
pub(super) fn line(record: &TransferRecord) -> serde_json::Result<Vec<u8>> {
    let exact = std::str::from_utf8(&record.path).is_ok();
    let evidence = &record.evidence;
    let line = JsonRecord {
        start: time(record.start),
        end: time(record.start + record.elapsed),
        seconds: record.elapsed.as_secs_f64(),
        bytes: evidence.bytes,
        direction: record.direction.name(),
        user: &record.user,
        client: record.client,
        data_peers: &record.data_peers,
        family: match record.client.ip().to_canonical() {
            IpAddr::V4(_) => "ipv4",
            IpAddr::V6(_) => "ipv6",
        },
        root: lossy(record.root.as_os_str().as_bytes()),
        path: lossy(&record.path),
        path_hex: (!exact).then(|| hex(&record.path)),
        stored_as: record.stored_as.as_deref().map(lossy),
        // The letters of the MODE command (RFC 959 section 3.4, GFD.20).
        mode: match record.mode {
            TransferMode::Stream => "S",
            TransferMode::Extended => "E",
        },
        streams: record.streams_used(),
        block: record.block,
        buffer: evidence.buffer_bytes,
        sizing: record.sizing,
        memory_bytes: (evidence.socket_memory_bytes > 0).then_some(evidence.socket_memory_bytes),
        min_rtt_us: known_micros(evidence.min_rtt),
        retransmits: evidence.retransmits,
        decision: record.decision.as_deref(),
        limiter: record.limiter,
        congestion: record.congestion.as_deref(),
        checksum: record
            .checksum
            .as_ref()
            .map(|(algorithm, hex)| JsonChecksum {
                algorithm: algorithm.name(),
                hex,
            }),
        protection: record.protection,
        identity: record.identity.as_deref(),
        code: record.code,
        result: if record.error.is_none() {
            "ok"
        } else {
            "error"
        },
        error: record.error.as_deref(),
        task: record.task.as_deref(),
        application: record.application.as_deref(),
    };
    // Escapes characters that terminals or line readers would act on, even inside of strings.
    let mut line = printable_json(&serde_json::to_string(&line)?).into_bytes();
    line.push(b'\n');
    Ok(line)
}

/// Text with U+FFFD in place of bytes that are not UTF-8.
fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Formats a time as RFC 3339. Times out of range (beyond the year 9999) are shown as the epoch.
fn time(time: SystemTime) -> String {
    let time = jiff::Timestamp::try_from(time).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// Whole microseconds; `None` if the time is zero.
fn known_micros(time: Duration) -> Option<u64> {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    (micros > 0).then_some(micros)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
