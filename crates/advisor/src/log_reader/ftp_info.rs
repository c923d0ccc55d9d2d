//! The transfer log of globus-gridftp-server (`-Z`), which `longhaul serve --ftp-info-log` writes, too:
//! `NAME=value` pairs separated by blanks, with `NL.EVNT=FTP_INFO`.

use std::net::IpAddr;

use super::entry::{LogDirection, LogEntry, LogProtocol, positive};
use super::log_time;

/// Parses one line. Listings are `None`, and so are lines without a usable DEST (old servers write `0.0.0.0`).
pub fn parse(line: &[u8]) -> Option<LogEntry> {
    let text = String::from_utf8_lossy(line);
    // File names may contain blanks and anything that looks like a field. The fields before FILE are found from the
    // front, those behind it from the back.
    let (front, rest) = text.split_once(" FILE=")?;
    if field(front.split(' '), "NL.EVNT")? != "FTP_INFO" {
        return None;
    }
    let behind = &rest[rest.rfind(" BUFFER=")?..];
    let back = |name| field(behind.split(' '), name);
    let end = log_time::compact(field(front.split(' '), "DATE")?)?;
    let start = log_time::compact(field(front.split(' '), "START")?)?;
    let direction = match back("TYPE")? {
        "RETR" | "ERET" => LogDirection::Sent,
        "STOR" | "ESTO" | "APPE" => LogDirection::Received,
        _ => return None,
    };
    let mut peers = addresses(back("DEST")?);
    let client = peers.next()?;
    let one_path = peers.all(|peer| peer == client);
    let mut entry = LogEntry::new(client, end, direction, LogProtocol::GridFtp);
    entry.bytes = back("NBYTES")?.parse().ok();
    entry.complete = back("CODE").is_some_and(|code| code.starts_with('2'));
    if one_path {
        entry.seconds = positive(end.duration_since(start).as_secs_f64());
        // STREAMS is per data node.
        entry.streams = back("STREAMS").and_then(|streams| streams.parse().ok());
        // 0: the server left the buffer to the kernel.
        entry.buffer = back("BUFFER")
            .and_then(|buffer| buffer.parse().ok())
            .filter(|&buffer| buffer > 0);
        entry.retransmits = back("retrans").and_then(sum);
    }
    Some(entry)
}

fn field<'a>(mut words: impl Iterator<Item = &'a str>, name: &str) -> Option<&'a str> {
    words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// The addresses of `[a,b]`; old servers put a number before the bracket.
fn addresses(dest: &str) -> impl Iterator<Item = IpAddr> {
    let list = dest.split_once('[').map_or(dest, |(_, list)| list);
    list.split([',', '[', ']'])
        .filter_map(|address| address.parse::<IpAddr>().ok())
        .map(|address| address.to_canonical())
        .filter(|address| !address.is_unspecified())
}

/// Retransmits are one number per stream.
fn sum(list: &str) -> Option<u64> {
    list.split(',')
        .map(|count| count.parse::<u64>().ok())
        .try_fold(0_u64, |sum, count| sum.checked_add(count?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "DATE=20260107092754.223249 HOST=data1 PROG=globus-gridftp-server NL.EVNT=FTP_INFO \
        START=20260107092753.658868 USER=ann FILE=/a b BUFFER=235104 BLOCK=4194304 NBYTES=218103808 VOLUME=/ STREAMS=4 \
        STRIPES=1 DEST=[192.0.2.174] TYPE=RETR CODE=226 TASKID=none";

    #[test]
    fn a_line_of_globus_is_read() {
        let entry = parse(LINE.as_bytes()).unwrap();
        assert_eq!(entry.client.to_string(), "192.0.2.174");
        assert_eq!(entry.bytes, Some(218_103_808));
        assert!((entry.seconds.unwrap() - 0.564_381).abs() < 1e-6);
        assert_eq!((entry.streams, entry.buffer), (Some(4), Some(235_104)));
        assert_eq!(entry.retransmits, None);
        let line = format!("{LINE} retrans=1,2,0,4");
        assert_eq!(parse(line.as_bytes()).unwrap().retransmits, Some(7));
    }

    #[test]
    fn file_names_forge_no_fields() {
        let line = LINE.replace(
            "/a b",
            "/a TYPE=STOR NBYTES=5 DEST=[192.0.2.66] BUFFER=1 CODE=500",
        );
        let entry = parse(line.as_bytes()).unwrap();
        assert_eq!(entry.client.to_string(), "192.0.2.174");
        assert_eq!(entry.direction, LogDirection::Sent);
        assert!(entry.complete);
    }

    #[test]
    fn the_destination_has_several_forms() {
        for (dest, client) in [
            ("1[192.0.2.5]", Some("192.0.2.5")),
            ("[[2001:db8::1]]", Some("2001:db8::1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("[0.0.0.0]", None),
            ("[]", None),
        ] {
            let line = LINE.replace("[192.0.2.174]", dest);
            let found = parse(line.as_bytes()).map(|entry| entry.client.to_string());
            assert_eq!(found.as_deref(), client, "{dest}");
        }
        let striped = LINE.replace("[192.0.2.174]", "[192.0.2.1,192.0.2.2]");
        assert_eq!(parse(striped.as_bytes()).unwrap().seconds, None);
    }
}
