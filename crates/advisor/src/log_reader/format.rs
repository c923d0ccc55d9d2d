//! The formats of the logs of data servers: which of them a line has, and the transfer that it tells.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::Deserialize;

use super::client_names::LogSurroundings;
use super::entry::{LogDirection, LogEntry, LogProtocol};

/// A log format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransferLogFormat {
    /// `longhaul`: the transfer log of `longhaul serve`.
    Longhaul,
    /// `gridftp`: the transfer log of globus-gridftp-server.
    #[serde(rename = "gridftp")]
    FtpInfo,
    /// `xferlog`: xferlog(5), as vsftpd, proftpd and pure-ftpd write it.
    Xferlog,
    /// `vsftpd`: vsftpd's own.
    Vsftpd,
    /// `pure-ftpd`: its `stats` and `w3c`.
    PureFtpd,
    /// `combined`: the common and the combined log of Apache and nginx.
    #[serde(rename = "combined")]
    Web,
}

impl TransferLogFormat {
    /// Every format.
    pub const ALL: [Self; 6] = [
        Self::Longhaul,
        Self::FtpInfo,
        Self::Xferlog,
        Self::Vsftpd,
        Self::PureFtpd,
        Self::Web,
    ];

    /// Parses one line of this format without its end. `None`: it is no finished transfer of this format, or its
    /// client has no known address.
    pub fn parse(self, line: &[u8], surroundings: &mut LogSurroundings<'_>) -> Option<LogEntry> {
        let line = &String::from_utf8_lossy(line);
        match self {
            Self::Longhaul => longhaul(line),
            Self::FtpInfo => ftp_info(line),
            Self::Xferlog => xferlog(line, surroundings),
            Self::Vsftpd => vsftpd(line, surroundings),
            Self::PureFtpd => pure_ftpd(line, surroundings),
            Self::Web => web(line, surroundings),
        }
    }

    /// The format whose transfers look like this line. No name is looked up.
    pub fn of_line(line: &[u8]) -> Option<Self> {
        let mut any_name = |_: &str| Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let mut surroundings = LogSurroundings {
            zone: &TimeZone::UTC,
            resolve: &mut any_name,
        };
        Self::ALL
            .into_iter()
            .find(|format| format.parse(line, &mut surroundings).is_some())
    }
}

/// The zone of this host, from /etc/localtime (tzfile(5)); UTC if that cannot be read, as on hosts without one.
pub fn host_zone() -> TimeZone {
    std::fs::read("/etc/localtime")
        .ok()
        .and_then(|bytes| TimeZone::tzif("local", &bytes).ok())
        .unwrap_or(TimeZone::UTC)
}

/// A record of `longhaul serve --transfer-log`: one JSON object a line (docs/server.md). Fields that are not used are
/// ignored, so that a newer server's log is readable.
#[derive(Deserialize)]
struct LonghaulRecord {
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

/// Listings are `None`: they say who is a client, but so do its transfers.
fn longhaul(line: &str) -> Option<LogEntry> {
    let record: LonghaulRecord = serde_json::from_str(line).ok()?;
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
    let client = client.unwrap_or(record.client.ip());
    let mut entry = LogEntry::new(client, record.end.parse().ok()?, direction, protocol);
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

/// The transfer log of globus-gridftp-server (`-Z`), which `longhaul serve --ftp-info-log` writes, too: `NAME=value`
/// pairs separated by blanks, with `NL.EVNT=FTP_INFO`. Listings are `None`, and so are lines without a usable DEST (old
/// servers write `0.0.0.0`).
fn ftp_info(line: &str) -> Option<LogEntry> {
    // File names may contain blanks and anything that looks like a field. The fields before FILE are found from the
    // front, those behind it from the back.
    let (before, rest) = line.split_once(" FILE=")?;
    let behind = &rest[rest.rfind(" BUFFER=")?..];
    let (front, back) = (|name| field(before, name), |name| field(behind, name));
    if front("NL.EVNT")? != "FTP_INFO" {
        return None;
    }
    let (start, end) = (
        compact_time(front("START")?)?,
        compact_time(front("DATE")?)?,
    );
    let direction = match back("TYPE")? {
        "RETR" | "ERET" => LogDirection::Sent,
        "STOR" | "ESTO" | "APPE" => LogDirection::Received,
        _ => return None,
    };
    // `[a,b]`; old servers put a number before the bracket.
    let dest = back("DEST")?;
    let peers = dest.split_once('[').map_or(dest, |(_, list)| list);
    let mut peers = peers
        .split([',', '[', ']'])
        .filter_map(|address| address.parse::<IpAddr>().ok())
        .map(|address| address.to_canonical())
        .filter(|address| !address.is_unspecified());
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
        // One number per stream.
        entry.retransmits = back("retrans").and_then(|list| {
            let mut counts = list.split(',').map(|count| count.parse::<u64>().ok());
            counts.try_fold(0_u64, |sum, count| sum.checked_add(count?))
        });
    }
    Some(entry)
}

/// The value of a field among words `NAME=value`.
fn field<'a>(words: &'a str, name: &str) -> Option<&'a str> {
    let mut words = words.split(' ');
    words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// The xferlog of wu-ftpd, as vsftpd, proftpd and pure-ftpd write it (xferlog(5)). Blanks in file names are underscores
/// there; proftpd and pure-ftpd write the client's name where they can resolve it; times are those of the server's zone,
/// in whole seconds. Deletions (direction `d`) and clients whose name cannot be resolved are `None`.
fn xferlog(line: &str, surroundings: &mut LogSurroundings<'_>) -> Option<LogEntry> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, month, day, time, year, seconds, host, bytes, rest @ ..] = words.as_slice() else {
        return None;
    };
    // The file name is at least one word. Behind it: transfer type, special action, direction, access mode, user, service,
    // authentication method, authenticated user, completion.
    let [_, .., kind, _, direction, _, _, _, _, _, completion] = rest else {
        return None;
    };
    let at = ctime(&[month, day, time, year], surroundings.zone)?;
    let (seconds, bytes) = (seconds.parse::<u32>().ok()?, bytes.parse().ok()?);
    let direction = match *direction {
        "o" => LogDirection::Sent,
        "i" => LogDirection::Received,
        _ => return None,
    };
    if !matches!(*kind, "a" | "b") || !matches!(*completion, "c" | "i") {
        return None;
    }
    let mut entry = one_stream(surroundings.client(host)?, at, direction, bytes);
    entry.seconds = positive(f64::from(seconds));
    entry.whole_seconds = true;
    entry.complete = *completion == "c";
    Some(entry)
}

/// vsftpd's own log, which it writes unless `xferlog_std_format` or `dual_log_enable` asks for an xferlog:
/// `Mon Nov 23 02:29:43 2026 [pid 7] [user] OK DOWNLOAD: Client "ADDRESS", "FILE", N bytes, RKbyte/sec`. Logins and
/// refused commands are `None`.
fn vsftpd(line: &str, surroundings: &mut LogSurroundings<'_>) -> Option<LogEntry> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let date = [words.next()?, words.next()?, words.next()?, words.next()?];
    let at = ctime(&date, surroundings.zone)?;
    // A user's name stands before, a file's name behind.
    let (front, rest) = line.split_once(": Client \"")?;
    let (front, direction) = match front.strip_suffix(" DOWNLOAD") {
        Some(front) => (front, LogDirection::Sent),
        None => (front.strip_suffix(" UPLOAD")?, LogDirection::Received),
    };
    let (host, rest) = rest.split_once('"')?;
    let (rest, rate) = rest.rsplit_once(", ")?;
    let (_, bytes) = rest.rsplit_once("\", ")?;
    let bytes = bytes.strip_suffix(" bytes")?;
    let rate: f64 = rate.trim_end().strip_suffix("Kbyte/sec")?.parse().ok()?;
    let client = surroundings.client(host)?;
    let mut entry = one_stream(client, at, direction, bytes.parse().ok()?);
    entry.seconds = positive(bytes.parse::<f64>().ok()? / (rate * 1024.0));
    entry.complete = front.ends_with(" OK");
    Some(entry)
}

/// The own formats of pure-ftpd, whose `clf` is a common log. An aborted transfer looks like another one.
///
/// - `-O stats:FILE`: `TIME SESSION USER CLIENT D|U BYTES SECONDS FILE`
/// - `-O w3c:FILE`: `DATE TIME CLIENT []sent|[]created FILE 226 USER BYTES`, UTC; there is no duration.
fn pure_ftpd(line: &str, surroundings: &mut LogSurroundings<'_>) -> Option<LogEntry> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    match words.as_slice() {
        [
            date,
            time,
            host,
            method @ ("[]sent" | "[]created"),
            _,
            ..,
            bytes,
        ] => {
            let at = format!("{date}T{time}Z").parse().ok()?;
            let direction = match *method {
                "[]sent" => LogDirection::Sent,
                _ => LogDirection::Received,
            };
            let bytes = bytes.parse().ok()?;
            Some(one_stream(surroundings.client(host)?, at, direction, bytes))
        }
        [
            time,
            session,
            _,
            host,
            way @ ("D" | "U"),
            bytes,
            seconds,
            _,
            ..,
        ] => {
            let at = Timestamp::from_second(time.parse().ok()?).ok()?;
            let (left, right) = session.split_once('.')?;
            let is_hex =
                |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
            if !is_hex(left) || !is_hex(right) {
                return None;
            }
            let direction = match *way {
                "D" => LogDirection::Sent,
                _ => LogDirection::Received,
            };
            let (bytes, seconds) = (bytes.parse().ok()?, seconds.parse::<u32>().ok()?);
            let mut entry = one_stream(surroundings.client(host)?, at, direction, bytes);
            entry.seconds = positive(f64::from(seconds));
            entry.whole_seconds = true;
            Some(entry)
        }
        _ => None,
    }
}

/// The common and the combined log of Apache and nginx, and pure-ftpd's `-O clf:FILE`:
/// `CLIENT - USER [TIME] "REQUEST" STATUS BYTES`, and anything behind. They have no duration: an entry says who the
/// clients are, when, and how much they got.
fn web(line: &str, surroundings: &mut LogSurroundings<'_>) -> Option<LogEntry> {
    // A user's name may hold blanks and brackets, so the time is found by the quote that follows it.
    let (front, rest) = line.split_once("] \"")?;
    let (who, time) = front.rsplit_once(" [")?;
    let at = common_log_time(time)?;
    let host = who.split(' ').next()?;
    let end = closing_quote(rest)?;
    let (request, rest) = (rest.get(..end)?, rest.get(end + 1..)?);
    let mut words = rest.split_ascii_whitespace();
    let status: u16 = words.next()?.parse().ok()?;
    // Apache writes `-` for no body.
    let bytes = match words.next()? {
        "-" => 0,
        bytes => bytes.parse::<u64>().ok()?,
    };
    let (method, target) = request.split_once(' ').unwrap_or((request, ""));
    let is_http = target.rsplit_once(" HTTP/").is_some();
    let is_upload = matches!(method, "PUT" | "POST");
    // pure-ftpd writes requests without a protocol, and the size of the file whatever moved.
    let (protocol, bytes) = match (is_http, is_upload) {
        (false, _) => (LogProtocol::Ftp, Some(bytes)),
        (true, false) => (LogProtocol::Http, Some(bytes)),
        // The answer's bytes, which are not those that came in.
        (true, true) => (LogProtocol::Http, None),
    };
    let direction = match is_upload {
        true => LogDirection::Received,
        false => LogDirection::Sent,
    };
    let mut entry = LogEntry::new(surroundings.client(host)?, at, direction, protocol);
    entry.bytes = bytes;
    entry.complete = (200..300).contains(&status);
    Some(entry)
}

/// Position of the first quote that no backslash escapes.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    })
}

/// A whole transfer of an FTP server that knows one data connection.
fn one_stream(client: IpAddr, at: Timestamp, direction: LogDirection, bytes: u64) -> LogEntry {
    let mut entry = LogEntry::new(client, at, direction, LogProtocol::Ftp);
    entry.bytes = Some(bytes);
    entry.streams = Some(1);
    entry
}

/// The seconds if they are a finite number above zero.
fn positive(seconds: f64) -> Option<f64> {
    (seconds.is_finite() && seconds > 0.0).then_some(seconds)
}

/// `YYYYMMDDhhmmss.ffffff`, UTC, as globus-gridftp-server writes it; the fraction may have fewer digits, or be missing.
fn compact_time(text: &str) -> Option<Timestamp> {
    let time = DateTime::strptime("%Y%m%d%H%M%S%.f", text).ok()?;
    TimeZone::UTC.to_timestamp(time).ok()
}

/// Month, day, time and year of ctime(3), `Nov 23 02:27:20 2026`, in this zone.
fn ctime(words: &[&str; 4], zone: &TimeZone) -> Option<Timestamp> {
    let time = DateTime::strptime("%b %d %T %Y", words.join(" ")).ok()?;
    let zoned = time.to_zoned(zone.clone()).ok()?;
    Some(zoned.timestamp())
}

/// The time of the common log format, `23/Nov/2026:02:27:23 +0000`. pure-ftpd writes `-0000`.
fn common_log_time(text: &str) -> Option<Timestamp> {
    Timestamp::strptime("%d/%b/%Y:%T %z", text).ok()
}

#[cfg(test)]
mod tests {
    use jiff::tz::Offset;
    use proptest::prelude::*;

    use super::*;
    use crate::log_reader::client_names::tests::with_names;

    /// Parses a line in a zone of UTC, where these names are known.
    fn parsed(format: TransferLogFormat, line: &str) -> Option<LogEntry> {
        let names = [("c.example", "192.0.2.3"), ("client.example", "192.0.2.3")];
        with_names(&names, |s| format.parse(line.as_bytes(), s))
    }

    const LINES: [&str; 7] = [
        "Mon Nov 23 02:29:43 2026 3 127.0.0.1 3000000 /pub/a_b.dat b _ o a <no_password> ftp 0 * c",
        "Mon Nov 23 02:29:43 2026 [pid 9] [ftp] OK UPLOAD: Client \"127.0.0.1\", \"/up\", 500000 bytes, 935.22Kbyte/sec",
        "127.0.0.1 - - [23/Nov/2026:02:27:23 +0000] \"GET /a%20b.dat HTTP/1.1\" 200 3000000 \"-\" \"curl/7.88.1\"",
        "1795400841 6b03a489.14a6 alice 127.0.0.1 D 3000000 0 /srv/pub/a b.dat",
        "2026-11-23 02:27:22 127.0.0.1 []sent /srv/pub/a%20b.dat 226 alice 3000000",
        "DATE=20261123022723.450169 HOST=vm PROG=x NL.EVNT=FTP_INFO START=20261123022723.437704 USER=a FILE=/a b BUFFER=1 BLOCK=2 NBYTES=3 VOLUME=/ STREAMS=1 STRIPES=1 DEST=[127.0.0.1] TYPE=RETR CODE=226 TASKID=none retrans=0",
        "{\"end\":\"2026-11-20T11:03:55Z\",\"seconds\":1e400,\"bytes\":1,\"direction\":\"store\",\"client\":\"127.0.0.1:4711\"}",
    ];

    fn parse_with_all(line: &[u8]) {
        for format in TransferLogFormat::ALL {
            with_names(&[], |surroundings| {
                if let Some(entry) = format.parse(line, surroundings) {
                    assert!(entry.seconds.is_none_or(|seconds| seconds > 0.0));
                    let _ = entry.measurement();
                }
            });
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_parser_panic(line in proptest::collection::vec(any::<u8>(), 0..300)) {
            parse_with_all(&line);
        }

        #[test]
        fn no_change_of_a_line_makes_a_parser_panic(
            which in 0..LINES.len(),
            cut in 0..300_usize,
            at in 0..300_usize,
            piece in "[0-9a-zé\\[\\]\"\\\\ .,:=/+-]{0,12}",
        ) {
            let line = LINES[which];
            let mut bytes = line.as_bytes().to_vec();
            let from = at.min(bytes.len());
            let to = (from + cut % 20).min(bytes.len());
            bytes.splice(from..to, piece.bytes());
            parse_with_all(&bytes);
            bytes.truncate(cut);
            parse_with_all(&bytes);
        }
    }

    const LONGHAUL_LINE: &str = r#"{"start":"2026-11-20T11:03:45.195241Z","end":"2026-11-20T11:03:55.195241Z","seconds":10.0,"bytes":1000000,"direction":"retrieve","user":"ann","client":"[::ffff:192.0.2.9]:4711","data_peers":["192.0.2.7"],"family":"ipv4","root":"/srv","path":"/f","path_hex":null,"stored_as":null,"mode":"E","streams":4,"block":262144,"buffer":131072,"sizing":"auto","memory_bytes":65536,"min_rtt_us":31000,"retransmits":2,"decision":null,"limiter":"receive window","congestion":"bbr","checksum":null,"protection":"private","identity":null,"code":226,"result":"ok","error":null,"task":null,"application":null}"#;

    #[test]
    fn a_record_of_the_server_is_read() {
        let entry = parsed(TransferLogFormat::Longhaul, LONGHAUL_LINE).unwrap();
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
        let none = LONGHAUL_LINE.replace(r#"["192.0.2.7"]"#, "[]");
        let entry = parsed(TransferLogFormat::Longhaul, &none).unwrap();
        assert_eq!(entry.client.to_string(), "192.0.2.9");
        let two = LONGHAUL_LINE.replace(r#"["192.0.2.7"]"#, r#"["192.0.2.7","192.0.2.8"]"#);
        let entry = parsed(TransferLogFormat::Longhaul, &two).unwrap();
        assert_eq!((entry.seconds, entry.min_rtt), (None, None));
        let list = LONGHAUL_LINE.replace("retrieve", "list");
        assert_eq!(parsed(TransferLogFormat::Longhaul, &list), None);
    }

    const FTP_INFO_LINE: &str = "DATE=20260107092754.223249 HOST=data1 PROG=globus-gridftp-server NL.EVNT=FTP_INFO \
    START=20260107092753.658868 USER=ann FILE=/a b BUFFER=235104 BLOCK=4194304 NBYTES=218103808 VOLUME=/ STREAMS=4 \
    STRIPES=1 DEST=[192.0.2.174] TYPE=RETR CODE=226 TASKID=none";

    #[test]
    fn a_line_of_globus_is_read() {
        let entry = parsed(TransferLogFormat::FtpInfo, FTP_INFO_LINE).unwrap();
        assert_eq!(entry.client.to_string(), "192.0.2.174");
        assert_eq!(entry.bytes, Some(218_103_808));
        assert!((entry.seconds.unwrap() - 0.564_381).abs() < 1e-6);
        assert_eq!((entry.streams, entry.buffer), (Some(4), Some(235_104)));
        assert_eq!(entry.retransmits, None);
        let line = format!("{FTP_INFO_LINE} retrans=1,2,0,4");
        assert_eq!(
            parsed(TransferLogFormat::FtpInfo, &line)
                .unwrap()
                .retransmits,
            Some(7)
        );
    }

    #[test]
    fn file_names_forge_no_fields() {
        let line = FTP_INFO_LINE.replace(
            "/a b",
            "/a TYPE=STOR NBYTES=5 DEST=[192.0.2.66] BUFFER=1 CODE=500",
        );
        let entry = parsed(TransferLogFormat::FtpInfo, &line).unwrap();
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
            let line = FTP_INFO_LINE.replace("[192.0.2.174]", dest);
            let found =
                parsed(TransferLogFormat::FtpInfo, &line).map(|entry| entry.client.to_string());
            assert_eq!(found.as_deref(), client, "{dest}");
        }
        let striped = FTP_INFO_LINE.replace("[192.0.2.174]", "[192.0.2.1,192.0.2.2]");
        assert_eq!(
            parsed(TransferLogFormat::FtpInfo, &striped)
                .unwrap()
                .seconds,
            None
        );
    }

    #[test]
    fn the_lines_of_three_servers_are_read() {
        let vsftpd = "Mon Nov  2 02:29:43 2026 13 ::ffff:192.0.2.1 3000000 /pub/a_b.dat b _ o a <no_password> ftp 0 * c";
        let entry = parsed(TransferLogFormat::Xferlog, vsftpd).unwrap();
        assert_eq!(entry.client.to_string(), "192.0.2.1");
        assert_eq!(entry.at, "2026-11-02T02:29:43Z".parse().unwrap());
        assert_eq!((entry.bytes, entry.seconds), (Some(3_000_000), Some(13.0)));
        let proftpd = "Mon Nov 23 02:27:20 2026 0 client.example 500000 /a b _ i a x ftp 0 * c";
        let entry = parsed(TransferLogFormat::Xferlog, proftpd).unwrap();
        assert_eq!(entry.client.to_string(), "192.0.2.3");
        assert_eq!(
            (entry.direction, entry.seconds),
            (LogDirection::Received, None)
        );
        let pure = "Mon Nov 23 02:27:23 2026 1 2001:db8::1 131072 /a_b.dat b _ o r alice ftp 1 * i";
        assert!(!parsed(TransferLogFormat::Xferlog, pure).unwrap().complete);
    }

    #[test]
    fn lines_that_are_no_transfer_of_an_xferlog_are_none() {
        for line in [
            "Mon Nov 23 02:27:20 2026 0 unknown.example 500000 /a b _ i a x ftp 0 * c",
            "Mon Nov 23 02:27:20 2026 0 192.0.2.1 0 /a b _ d a x ftp 0 * c",
            "Mon Nov 23 02:27:20 2026 0 192.0.2.1 500000 b _ i a x ftp 0 * c",
            "Mon Nov 23 02:27:20 2026 0 192.0.2.1 -1 /a b _ i a x ftp 0 * c",
            "Mon Nov 23 02:27:20 2026 0 192.0.2.1 500000 /a b _ i a x ftp 0",
        ] {
            assert_eq!(parsed(TransferLogFormat::Xferlog, line), None, "{line}");
        }
    }

    #[test]
    fn transfers_are_read_and_other_lines_are_none() {
        let line = "Mon Nov 23 02:29:43 2026 [pid 9546] [daemon] OK DOWNLOAD: Client \"::ffff:192.0.2.1\", \
                \"/pub/a \", 5 bytes, b.dat\", 3000000 bytes, 960.97Kbyte/sec";
        let entry = parsed(TransferLogFormat::Vsftpd, line).unwrap();
        assert_eq!(entry.client.to_string(), "192.0.2.1");
        assert_eq!(entry.bytes, Some(3_000_000));
        assert!((entry.seconds.unwrap() - 3.0487).abs() < 1e-3);
        assert!(entry.complete);
        let failed = line.replace("OK DOWNLOAD", "FAIL UPLOAD");
        let entry = parsed(TransferLogFormat::Vsftpd, &failed).unwrap();
        assert_eq!(
            (entry.complete, entry.direction),
            (false, LogDirection::Received)
        );
        let login = "Mon Nov 23 02:29:40 2026 [pid 9539] [daemon] OK LOGIN: Client \"192.0.2.1\", anon password \"x\"";
        assert_eq!(parsed(TransferLogFormat::Vsftpd, login), None);
        assert_eq!(
            parsed(TransferLogFormat::Vsftpd, &line.replace("960.97", "0.00"))
                .unwrap()
                .seconds,
            None
        );
    }

    #[test]
    fn both_formats_are_read() {
        let entry = parsed(
            TransferLogFormat::PureFtpd,
            "1795400841 6b03a489.14a6 alice c.example D 3000000 12 /pub/a b.dat",
        )
        .unwrap();
        assert_eq!(entry.client.to_string(), "192.0.2.3");
        assert_eq!((entry.bytes, entry.seconds), (Some(3_000_000), Some(12.0)));
        assert_eq!(entry.at, "2026-11-23T02:27:21Z".parse().unwrap());
        let entry = parsed(
            TransferLogFormat::PureFtpd,
            "2026-11-23 02:27:22 192.0.2.1 []created /pub/up.dat 226 alice 500000",
        )
        .unwrap();
        assert_eq!((entry.bytes, entry.seconds), (Some(500_000), None));
        assert_eq!(entry.direction, LogDirection::Received);
    }

    #[test]
    fn lines_that_are_no_transfer_of_pure_ftpd_are_none() {
        for line in [
            "#Fields: date time c-ip cs-method cs-uri-stem sc-status cs-username sc-bytes",
            "1795400841 nohex alice 192.0.2.1 D 3000000 12 /a",
            "1795400841 6b03a489.14a6 alice 192.0.2.1 D 3000000",
            "99999999999999999 6b03a489.14a6 alice 192.0.2.1 D 3000000 12 /a",
        ] {
            assert_eq!(parsed(TransferLogFormat::PureFtpd, line), None, "{line}");
        }
    }

    #[test]
    fn lines_of_web_servers_and_pure_ftpd_are_read() {
        let nginx = r#"192.0.2.1 - - [23/Nov/2026:02:27:23 +0000] "GET /a%20b HTTP/1.1" 200 3000000 "-" "curl/7.88.1""#;
        let entry = parsed(TransferLogFormat::Web, nginx).unwrap();
        assert_eq!(
            (entry.bytes, entry.protocol),
            (Some(3_000_000), LogProtocol::Http)
        );
        assert_eq!(entry.seconds, None);
        let apache =
            r#"c.example - ann lee [23/Nov/2026:02:27:23 +0100] "PUT /\"x\\" y HTTP/1.1" 201 -"#;
        assert_eq!(
            parsed(TransferLogFormat::Web, apache),
            None,
            "the request ends at its quote"
        );
        let apache =
            r#"c.example - ann lee [23/Nov/2026:02:27:23 +0100] "PUT /\"x\" y HTTP/1.1" 201 -"#;
        let entry = parsed(TransferLogFormat::Web, apache).unwrap();
        assert_eq!(
            (entry.bytes, entry.direction),
            (None, LogDirection::Received)
        );
        let pure = r#"2001:db8::1 - alice [23/Nov/2026:02:27:21 -0000] "PUT /up.dat" 200 500000"#;
        let entry = parsed(TransferLogFormat::Web, pure).unwrap();
        assert_eq!(
            (entry.bytes, entry.protocol),
            (Some(500_000), LogProtocol::Ftp)
        );
        let binary = r#"192.0.2.1 - - [23/Nov/2026:02:27:23 +0000] "\x16\x03\x01" 400 166 "-" "-""#;
        assert!(!parsed(TransferLogFormat::Web, binary).unwrap().complete);
    }

    #[test]
    fn each_form_gives_the_same_moment() {
        let expected: Timestamp = "2026-11-23T02:27:23Z".parse().unwrap();
        let zone = TimeZone::fixed(Offset::constant(1));
        assert_eq!(compact_time("20261123022723"), Some(expected));
        assert_eq!(
            ctime(&["Nov", "23", "03:27:23", "2026"], &zone),
            Some(expected)
        );
        assert_eq!(
            common_log_time("23/Nov/2026:02:27:23 -0000"),
            Some(expected)
        );
        assert_eq!(
            common_log_time("23/Nov/2026:07:57:23 +0530"),
            Some(expected)
        );
        assert_eq!(
            compact_time("20261123022723.25"),
            "2026-11-23T02:27:23.25Z".parse().ok()
        );
    }

    #[test]
    fn impossible_times_are_none() {
        for text in [
            "20261323022723",
            "2026",
            "2026112302272x",
            "20261123022723.x",
            "é0261123022723",
        ] {
            assert_eq!(compact_time(text), None, "{text}");
        }
        for text in [
            "23/Nov/2026:02:27:23",
            "23/Nov/2026:02:27 +0000",
            "31/Feb/2026:02:27:23 +0000",
            "1/Nov/2026:0:0:0 +99",
        ] {
            assert_eq!(common_log_time(text), None, "{text}");
        }
    }
}
