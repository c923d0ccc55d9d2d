//! A record as the `NL.EVNT=FTP_INFO` line of globus-gridftp-server's `-Z` log.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::time::SystemTime;

use proto::printable::needs_escape;

use super::{LoggedTransferKind, TransferRecord};

/// The line with its end: `NAME=value` pairs separated by blanks, in the order of the original.
pub(super) fn line(record: &TransferRecord, host: &str) -> Vec<u8> {
    let mut line = format!(
        "DATE={} HOST={} PROG=longhaul NL.EVNT=FTP_INFO START={} USER={} FILE=",
        time(record.start + record.elapsed),
        host,
        time(record.start),
        word(record.user.as_bytes()),
    );
    escape_host_path(&mut line, record, &record.path, "");
    let peers: Vec<String> = match record.data_peers.as_slice() {
        // No connection was made, and any host could have made one: the client is named instead.
        [] => vec![record.client.ip().to_canonical().to_string()],
        peers => peers.iter().map(ToString::to_string).collect(),
    };
    let task = record.task.as_deref().unwrap_or("none");
    // STRIPES is 1, since the server has a single data node. Writing to a String cannot fail.
    let _ = write!(
        line,
        " BUFFER={} BLOCK={} NBYTES={} VOLUME=/ STREAMS={} STRIPES=1 DEST=[{}] TYPE={} CODE={} \
         TASKID={} retrans={}",
        record.evidence.buffer_bytes,
        record.block,
        record.evidence.bytes,
        record.streams_used(),
        peers.join(","),
        match record.direction {
            LoggedTransferKind::Retrieve => "RETR",
            LoggedTransferKind::Store => "STOR",
            LoggedTransferKind::List => "LIST",
        },
        record.code,
        word(task.as_bytes()),
        record.evidence.retransmits,
    );
    if let Some(stored_as) = &record.stored_as {
        line.push_str(" stored_as=");
        escape_host_path(&mut line, record, stored_as, " ");
    }
    line.push('\n');
    line.into_bytes()
}

/// Adds a path on the host, as the original does; parsers look up files by it.
fn escape_host_path(line: &mut String, record: &TransferRecord, path: &[u8], also: &str) {
    let root = record.root.as_os_str().as_bytes();
    escape(line, root.strip_suffix(b"/").unwrap_or(root), also);
    escape(line, path, also);
}

/// A value without blanks.
fn word(bytes: &[u8]) -> String {
    let mut text = String::new();
    escape(&mut text, bytes, " ");
    text
}

/// Adds text so that it cannot end the line, control a terminal or look like another field: control
/// characters, marks of text direction, bytes that are not UTF-8, `"`, `\` and `=` become `\xHH`, and
/// so do the characters in `also`. Blanks in file names stay, as in the original.
fn escape(line: &mut String, bytes: &[u8], also: &str) {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if needs_escape(c) || matches!(c, '"' | '\\' | '=') || also.contains(c) {
                let mut buffer = [0; 4];
                c.encode_utf8(&mut buffer)
                    .bytes()
                    .for_each(|b| escape_byte(line, b));
            } else {
                line.push(c);
            }
        }
        chunk.invalid().iter().for_each(|&b| escape_byte(line, b));
    }
}

fn escape_byte(line: &mut String, byte: u8) {
    // Writing to a String cannot fail.
    let _ = write!(line, "\\x{byte:02x}");
}

/// `YYYYMMDDhhmmss.uuuuuu`, UTC. Times out of range are shown as the epoch.
fn time(time: SystemTime) -> String {
    let time = jiff::Timestamp::try_from(time).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    time.strftime("%Y%m%d%H%M%S%.6f").to_string()
}
