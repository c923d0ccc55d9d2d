//! Easily Parsed LIST Format (<https://cr.yp.to/ftp/list/eplf.html>): facts, a tab, the name.

use super::row_date::number;
use super::{EntryKind, ListedEntry, directory_kind};
use crate::timestamp::Timestamp;

/// Parses `+i8388621.44468,m839956783,r,s10376,\tname`.
pub(super) fn parse_eplf(line: &[u8]) -> Option<ListedEntry> {
    let rest = line.strip_prefix(b"+")?;
    let tab = rest.iter().position(|b| *b == b'\t')?;
    let (facts, name) = (&rest[..tab], &rest[tab + 1..]);
    if name.is_empty() {
        return None;
    }
    // Without a fact that it can be retrieved or entered.
    let mut entry = ListedEntry::new(name, EntryKind::Other);
    for fact in facts.split(|b| *b == b',') {
        match fact.split_first() {
            Some((b'/', b"")) => entry.kind = directory_kind(name),
            Some((b'r', b"")) => entry.kind = EntryKind::File,
            Some((b's', size)) => entry.size = number(size),
            Some((b'm', time)) => {
                let seconds = number(time).and_then(|time| i64::try_from(time).ok());
                entry.modified = seconds.map(Timestamp);
            }
            Some((b'i', identity)) => {
                entry.unique = Some(String::from_utf8_lossy(identity).into_owned());
            }
            Some((b'u', [b'p', mode @ ..])) => {
                let mode = number(mode).and_then(|_| str::from_utf8(mode).ok());
                let mode = mode.and_then(|mode| u32::from_str_radix(mode, 8).ok());
                entry.mode = mode.map(|mode| mode & 0o7777);
            }
            _ => {}
        }
    }
    Some(entry)
}
