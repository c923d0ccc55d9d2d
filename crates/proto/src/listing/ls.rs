//! Lines of LIST and `STAT path`: `ls -l` of Unix-like servers and `DIR` of Windows servers.

use super::{DirectoryEntry, EntryKind, ListedEntry, directory_kind, push_name, without_ending};
use crate::timestamp::Timestamp;

/// Writes `-rw-r--r--   1 owner group 3000000 Nov 20 08:21 name` without line ending. A symbolic link is
/// always shown as a link, `lrwxrwxrwx ... name -> target`, so that a recursive client does not enter it
/// as a directory.
pub fn format_ls(entry: &DirectoryEntry, now: Timestamp) -> Vec<u8> {
    // As lstat(2): the size of a symbolic link is the length of its target.
    let (letter, mode, links, size) = match &entry.link_target {
        Some(target) => ('l', LINK_MODE, 1, target.len() as u64),
        None => (
            type_letter(entry.kind),
            entry.mode,
            entry.link_count,
            entry.size,
        ),
    };
    let mut line = format!(
        "{letter}{} {links:>3} {:<8} {:<8} {size:>12} {} ",
        mode_letters(mode),
        entry.owner_column(),
        entry.group_column(),
        entry.modified.format_ls(now),
    )
    .into_bytes();
    push_name(&entry.name, &mut line);
    if let Some(target) = &entry.link_target {
        line.extend_from_slice(b" -> ");
        push_name(target, &mut line);
    }
    line
}

/// Permission bits of every symbolic link on Linux.
const LINK_MODE: u32 = 0o777;

/// Parses one `ls -l` line of a Unix-like server, or one `DIR` line of a Windows server. Returns `None` for
/// other lines, such as `total 12`. Names may contain spaces; the name in `a -> b` is `a`.
pub fn parse_ls(line: &[u8]) -> Option<ListedEntry> {
    let line = without_ending(line);
    parse_unix(line).or_else(|| parse_dos(line))
}

fn type_letter(kind: EntryKind) -> char {
    match kind {
        EntryKind::File => '-',
        EntryKind::Dir | EntryKind::CurrentDir | EntryKind::ParentDir => 'd',
        EntryKind::SymLink => 'l',
        EntryKind::Other => 'p',
    }
}

fn mode_letters(mode: u32) -> String {
    let mut letters = String::with_capacity(9);
    for (shift, special, both, alone) in [
        (6, 0o4000, 's', 'S'),
        (3, 0o2000, 's', 'S'),
        (0, 0o1000, 't', 'T'),
    ] {
        let bits = mode >> shift;
        letters.push(if bits & 4 != 0 { 'r' } else { '-' });
        letters.push(if bits & 2 != 0 { 'w' } else { '-' });
        letters.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => both,
            (true, false) => alone,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    letters
}

/// Parses `drwxr-xr-x` into kind and permission bits. A mark for access control lists may follow.
fn parse_mode(word: &[u8]) -> Option<(EntryKind, u32)> {
    let (letter, rest) = word.split_first()?;
    let kind = match letter {
        b'-' => EntryKind::File,
        b'd' => EntryKind::Dir,
        b'l' => EntryKind::SymLink,
        b'b' | b'c' | b'p' | b's' | b'D' => EntryKind::Other,
        _ => return None,
    };
    let (letters, mark) = rest.split_at_checked(9)?;
    if !matches!(mark, b"" | b"+" | b"." | b"@") {
        return None;
    }
    let mut mode = 0;
    for (place, letter) in letters.iter().enumerate() {
        let bit = 1 << (8 - place);
        let special = 0o1000 << (2 - place / 3);
        mode |= match (place % 3, letter) {
            (_, b'-') => 0,
            (0, b'r') | (1, b'w') | (2, b'x') => bit,
            (2, b's' | b't') => bit | special,
            // `l` and `L` mark mandatory locking on System V.
            (2, b'S' | b'T' | b'l' | b'L') => special,
            _ => return None,
        };
    }
    Some((kind, mode))
}

/// A word of the line and the offset of its end.
type LsColumn<'a> = (&'a [u8], usize);

/// Most words that are split off. The columns before the name have fewer; the rest is the name.
const MAX_COLUMNS: usize = 12;

fn words(line: &[u8]) -> Vec<LsColumn<'_>> {
    let mut words = Vec::with_capacity(MAX_COLUMNS);
    let mut at = 0;
    while words.len() < MAX_COLUMNS {
        let Some(start) = line[at..].iter().position(|b| *b != b' ') else {
            break;
        };
        let start = at + start;
        let end = line[start..]
            .iter()
            .position(|b| *b == b' ')
            .map_or(line.len(), |n| start + n);
        words.push((&line[start..end], end));
        at = end;
    }
    words
}

fn parse_unix(line: &[u8]) -> Option<ListedEntry> {
    let words = words(line);
    let (kind, mode) = parse_mode(words.first()?.0)?;
    // Columns: mode, [links], [owner], [group], size, date of two or three words, name. The usual
    // column of the date is tried first, since an owner may be called `May`.
    // Some servers omit the number of links, the owner or the group.
    let (date, date_end) = [5, 4, 3, 2, 6, 7, 8]
        .into_iter()
        .find_map(|at| Some((at, date_end(&words, at)?)))?;
    let size = number(words.get(date.checked_sub(1)?)?.0);
    // Devices have major and minor numbers in the size column.
    if size.is_none() && kind != EntryKind::Other {
        return None;
    }
    let name = line.get(date_end + 1..).filter(|n| !n.is_empty())?;
    let (name, kind, link_target) = match kind {
        EntryKind::SymLink => parse_symlink(name),
        EntryKind::Dir => (name, directory_kind(name), None),
        _ => (name, kind, None),
    };
    let (owner, group) = owner_and_group(words.get(1..date - 1)?);
    Some(ListedEntry {
        name: name.to_vec(),
        kind,
        size: size.filter(|_| kind != EntryKind::Other),
        // `ls` dates lack seconds and often the year, and are in the server's time zone.
        modified: None,
        modified_fraction: None,
        mode: Some(mode),
        owner,
        group,
        link_target,
        unique: None,
        may_list: None,
        link_count: None,
    })
}

/// End offset of a date that starts at word `at`: `Nov 20 08:21`, `20 Nov 2024` or `2026-11-20 08:21`.
fn date_end(words: &[LsColumn<'_>], at: usize) -> Option<usize> {
    let word = |n: usize| words.get(at + n).map(|w| w.0);
    let end = |n: usize| words.get(at + n).map(|w| w.1);
    let (first, second) = (word(0)?, word(1)?);
    if is_iso_date(first) && is_time(second) {
        return end(1);
    }
    let third = word(2)?;
    let day_and_month = (is_month(first) && is_day(second)) || (is_day(first) && is_month(second));
    let is_year = third.len() == 4 && number(third).is_some();
    (day_and_month && (is_time(third) || is_year))
        .then(|| end(2))
        .flatten()
}

fn is_month(word: &[u8]) -> bool {
    const MONTHS: [&[u8]; 12] = [
        b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov",
        b"dec",
    ];
    MONTHS.iter().any(|m| m.eq_ignore_ascii_case(word))
}

fn is_day(word: &[u8]) -> bool {
    word.len() <= 2 && number(word).is_some_and(|day| (1..=31).contains(&day))
}

fn is_time(word: &[u8]) -> bool {
    let mut parts = word.split(|b| *b == b':');
    let hour = parts.next().and_then(number);
    let minute = parts.next().and_then(number);
    hour.is_some_and(|h| h < 24) && minute.is_some_and(|m| m < 60)
}

fn is_iso_date(word: &[u8]) -> bool {
    word.len() == 10 && word.split(|b| *b == b'-').filter_map(number).count() == 3
}

/// Owner and group from the columns between mode and size: `[links] [owner] [group]`.
fn owner_and_group(columns: &[LsColumn<'_>]) -> (Option<String>, Option<String>) {
    let names = match columns.split_first() {
        Some((links, names)) if number(links.0).is_some() => names,
        _ => columns,
    };
    let text = |n: usize| {
        names
            .get(n)
            .map(|w| String::from_utf8_lossy(w.0).into_owned())
    };
    (text(0), text(1))
}

/// Splits `name -> target` into name, kind and target.
fn parse_symlink(shown: &[u8]) -> (&[u8], EntryKind, Option<Vec<u8>>) {
    // The first arrow separates name and target; a name with an arrow is ambiguous.
    let arrow = shown.windows(4).position(|four| four == b" -> ");
    match arrow.filter(|at| *at > 0) {
        Some(at) => (
            &shown[..at],
            EntryKind::SymLink,
            Some(shown[at + 4..].to_vec()),
        ),
        None => (shown, EntryKind::SymLink, None),
    }
}

/// Parses `11-20-26  08:21AM       <DIR>          name` and `11-20-2026  08:21AM  3000000 name`.
fn parse_dos(line: &[u8]) -> Option<ListedEntry> {
    let words = words(line);
    let [(date, _), (time, _), (what, end), ..] = *words.as_slice() else {
        return None;
    };
    let is_date =
        matches!(date.len(), 8 | 10) && date.split(|b| *b == b'-').filter_map(number).count() == 3;
    let clock = time
        .strip_suffix(b"AM")
        .or_else(|| time.strip_suffix(b"PM"))
        .unwrap_or(time);
    if !is_date || !is_time(clock) {
        return None;
    }
    let is_dir = what == b"<DIR>";
    let size = number(what);
    if !is_dir && size.is_none() {
        return None;
    }
    // Only the separator is skipped: one space, and after `<DIR>` up to nine more that fill the size
    // column. Further spaces belong to the name.
    let after = line.get(end + 1..)?;
    let padding = match is_dir {
        true => after.iter().take(9).take_while(|b| **b == b' ').count(),
        false => 0,
    };
    let name = &after[padding..];
    if name.is_empty() {
        return None;
    }
    Some(ListedEntry {
        name: name.to_vec(),
        kind: if is_dir {
            directory_kind(name)
        } else {
            EntryKind::File
        },
        size,
        modified: None,
        modified_fraction: None,
        mode: None,
        owner: None,
        group: None,
        link_target: None,
        unique: None,
        may_list: None,
        link_count: None,
    })
}

fn number(word: &[u8]) -> Option<u64> {
    if word.is_empty() || !word.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(word).ok()?.parse().ok()
}
