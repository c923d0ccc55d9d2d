//! The transfer log of `longhaul serve --transfer-log`: one JSON object a line (docs/server.md).

use std::net::{IpAddr, SocketAddr};

use serde::Deserialize;

use super::entry::{LogDirection, LogEntry, LogProtocol, positive};

/// The fields that are used. Others are ignored, so that a newer server's log is readable.
#[derive(Deserialize)]
struct Record {
    end: String,
    seconds: Option<f64>,
    bytes: Option<u64>,
    direction: String,
    client: SocketAddr,
    #[serde(default)]
    data_peers: Vec<IpAddr>,
    mode: Option<String>,
    streams: Option<u32>,
    buffer: Option<u64>,
    min_rtt_us: Option<f64>,
    retransmits: Option<u64>,
    limiter: Option<String>,
    congestion: Option<String>,
    result: Option<String>,
}

/// Parses one line. Listings are `None`: they say who is a client, but so do its transfers.
pub fn parse(line: &[u8]) -> Option<LogEntry> {
    let record: Record = serde_json::from_slice(line).ok()?;
    let direction = match record.direction.as_str() {
        "retrieve" => LogDirection::Sent,
        "store" => LogDirection::Received,
        _ => return None,
    };
    let protocol = match record.mode.as_deref() {
        Some("E") => LogProtocol::GridFtp,
        _ => LogProtocol::Ftp,
    };
    let mut peers = record.data_peers.iter().map(IpAddr::to_canonical);
    let client = peers.next();
    // Data that went to several hosts says nothing of the path to one of them.
    let one_path = peers.all(|peer| Some(peer) == client);
    let mut entry = LogEntry::new(
        client.unwrap_or(record.client.ip()),
        record.end.parse().ok()?,
        direction,
        protocol,
    );
    entry.bytes = record.bytes;
    entry.complete = record.result.as_deref() == Some("ok");
    entry.limiter = record.limiter;
    entry.congestion = record.congestion;
    if one_path {
        entry.seconds = record.seconds.and_then(positive);
        entry.streams = record.streams;
        entry.buffer = record.buffer;
        entry.retransmits = record.retransmits;
        entry.min_rtt = record.min_rtt_us.and_then(|us| positive(us / 1e6));
    }
    Some(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"start":"2026-11-20T11:03:45.195241Z","end":"2026-11-20T11:03:55.195241Z","seconds":10.0,"bytes":1000000,"direction":"retrieve","user":"ann","client":"[::ffff:192.0.2.9]:4711","data_peers":["192.0.2.7"],"family":"ipv4","root":"/srv","path":"/f","path_hex":null,"stored_as":null,"mode":"E","streams":4,"block":262144,"buffer":131072,"sizing":"auto","memory_bytes":65536,"min_rtt_us":31000,"retransmits":2,"decision":null,"limiter":"receive window","congestion":"bbr","checksum":null,"protection":"private","identity":null,"code":226,"result":"ok","error":null,"task":null,"application":null}"#;

    #[test]
    fn a_record_of_the_server_is_read() {
        let entry = parse(LINE.as_bytes()).unwrap();
        assert_eq!(entry.client.to_string(), "192.0.2.7", "the data's peer");
        assert_eq!(entry.at, "2026-11-20T11:03:55.195241Z".parse().unwrap());
        assert_eq!((entry.bytes, entry.seconds), (Some(1_000_000), Some(10.0)));
        assert_eq!((entry.streams, entry.buffer), (Some(4), Some(131_072)));
        assert_eq!((entry.retransmits, entry.min_rtt), (Some(2), Some(0.031)));
        assert_eq!(entry.protocol, LogProtocol::GridFtp);
        assert!(entry.complete);
    }

    #[test]
    fn without_one_data_peer_the_transfer_measures_no_path() {
        let none = LINE.replace(r#"["192.0.2.7"]"#, "[]");
        let entry = parse(none.as_bytes()).unwrap();
        assert_eq!(entry.client.to_string(), "192.0.2.9");
        let two = LINE.replace(r#"["192.0.2.7"]"#, r#"["192.0.2.7","192.0.2.8"]"#);
        let entry = parse(two.as_bytes()).unwrap();
        assert_eq!((entry.seconds, entry.min_rtt), (None, None));
        let list = LINE.replace("retrieve", "list");
        assert_eq!(parse(list.as_bytes()), None);
    }
}
