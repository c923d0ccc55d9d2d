//! Lines of `DIR`, as Windows servers show them.

use super::row_date::{RowTime, TimeOfDay, grouped_number, is_blank, three_parts, words};
use super::{EntryKind, ListedEntry, directory_kind};
use crate::timestamp::Timestamp;

/// Parses `11-20-26  08:21AM       <DIR>          name` and `11/20/2026  08:21 PM  3,000,000 name`.
pub(super) fn parse_dos(line: &[u8], now: Timestamp) -> Option<ListedEntry> {
    let words = words(line);
    let [(date, _), (time, _), ..] = *words.as_slice() else {
        return None;
    };
    let separator = date
        .iter()
        .copied()
        .find(|b| matches!(b, b'-' | b'/' | b'.'))?;
    let parts: Vec<&[u8]> = date.split(|b| *b == separator).collect();
    let (year, day) = three_parts(&parts, separator)?;
    let (time, columns) = match words.get(2) {
        Some((half, _)) if is_half_of_day(half) => ([time, half].concat(), 3),
        _ => (time.to_vec(), 2),
    };
    let time = RowTime {
        year: Some(year),
        day,
        time: Some(time_of_day(&time)?),
        zone: None,
    };
    let (what, end) = *words.get(columns)?;
    let kind = match what {
        b"<DIR>" => EntryKind::Dir,
        b"<SYMLINK>" | b"<SYMLINKD>" | b"<JUNCTION>" => EntryKind::SymLink,
        _ => EntryKind::File,
    };
    let size = grouped_number(what).filter(|_| kind == EntryKind::File);
    if kind == EntryKind::File && size.is_none() {
        return None;
    }
    // Only the separator is skipped: one space, and after `<DIR>` up to nine more that fill the size
    // column. Further spaces belong to the name.
    let after = line.get(end + 1..)?;
    let padding = match kind {
        EntryKind::File => 0,
        _ => after.iter().take(9).take_while(|b| is_blank(**b)).count(),
    };
    let name = &after[padding..];
    let (name, link_target) = match kind {
        EntryKind::SymLink => split_target(name),
        _ => (name, None),
    };
    if name.is_empty() {
        return None;
    }
    let (modified, coarse_time) = time.resolve(now);
    Some(ListedEntry {
        size,
        modified,
        coarse_time,
        link_target,
        ..ListedEntry::new(
            name,
            if kind == EntryKind::Dir {
                directory_kind(name)
            } else {
                kind
            },
        )
    })
}

fn is_half_of_day(word: &[u8]) -> bool {
    ["AM", "PM"]
        .iter()
        .any(|half| half.as_bytes().eq_ignore_ascii_case(word))
}

/// Reads `08:21`, `08:21AM` and `08:21:03pm`.
fn time_of_day(word: &[u8]) -> Option<TimeOfDay> {
    let (clock, half) = word.split_at_checked(word.len().checked_sub(2)?)?;
    if !is_half_of_day(half) {
        return TimeOfDay::parse(word);
    }
    let time = TimeOfDay::parse(clock).filter(|time| time.hour < 24)?;
    let hour = match (half[0].to_ascii_uppercase(), time.hour) {
        (b'A', 12) => 0,
        (b'P', hour @ ..12) => hour + 12,
        (_, hour) => hour,
    };
    Some(TimeOfDay { hour, ..time })
}

/// Splits `name [target]`.
fn split_target(shown: &[u8]) -> (&[u8], Option<Vec<u8>>) {
    let start = shown.windows(2).rposition(|two| two == b" [");
    match start.filter(|_| shown.ends_with(b"]")) {
        Some(at) => (&shown[..at], Some(shown[at + 2..shown.len() - 1].to_vec())),
        None => (shown, None),
    }
}
