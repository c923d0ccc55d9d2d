//! Lines of LIST and `STAT path`, as Unix-like servers show them.

use super::dos::parse_dos;
use super::eplf::parse_eplf;
use super::row_date::{
    RowDate, RowWord, YearAfterTime, begins_with_year, date_at, grouped_number, is_blank, number,
    words,
};
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

/// Parses a row of LIST: `ls -l` of a Unix-like server, `DIR` of a Windows server, or EPLF. `now` decides in which year a
/// date without one lies. Returns `None` for other lines, such as `total 12`. Names may contain spaces; the name in
/// `a -> b` is `a`.
pub fn parse_ls(line: &[u8], now: Timestamp) -> Option<ListedEntry> {
    parse_row(line, now, YearAfterTime::InName).map(|row| row.entry)
}

/// A row of LIST.
pub(super) struct ListedRow {
    pub(super) entry: ListedEntry,
    /// Whether it shows a time of day and no year.
    pub(super) is_timed: bool,
    /// Whether the name begins with a number that may be the year of such a time.
    pub(super) may_begin_with_year: bool,
}

/// As [`parse_ls`].
pub(super) fn parse_row(
    line: &[u8],
    now: Timestamp,
    year_after: YearAfterTime,
) -> Option<ListedRow> {
    let line = without_ending(line);
    if let Some(row) = parse_unix(line, now, year_after) {
        return Some(row);
    }
    let entry = parse_dos(line, now).or_else(|| parse_eplf(line))?;
    Some(ListedRow {
        entry,
        is_timed: false,
        may_begin_with_year: false,
    })
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

fn parse_unix(line: &[u8], now: Timestamp, year_after: YearAfterTime) -> Option<ListedRow> {
    let words = words(line);
    let (kind, mode) = parse_mode(words.first()?.0)?;
    // Columns: mode, [links], [owner], [group], size, date of one to three words, name. The usual column of the date is
    // tried first, since an owner may be called `May`. Some servers omit the number of links, the owner or the group, and
    // accounts may contain spaces.
    let (columns, size, date) = [false, true].into_iter().find_map(|numeric| {
        [5, 4, 3, 2, 6, 7, 8].into_iter().find_map(|at| {
            let date = date_at(&words, at, numeric, year_after)?;
            let size = size_in(words.get(at - 1)?.0, kind)?;
            Some((words.get(1..at - 1)?, size, date))
        })
    })?;
    let shown = name_after(line, &date)?;
    let (name, kind, link_target) = match kind {
        EntryKind::SymLink => parse_symlink(shown, size),
        // As `ls -p` shows it.
        EntryKind::Dir => {
            let name = shown.strip_suffix(b"/").unwrap_or(shown);
            (name, directory_kind(name), None)
        }
        _ => (shown, kind, None),
    };
    let (owner, group) = owner_and_group(columns);
    let (modified, coarse_time) = date.time.resolve(now);
    let is_timed = date.time.time.is_some() && date.time.year.is_none();
    let entry = ListedEntry {
        size: size.filter(|_| kind != EntryKind::Other),
        modified,
        coarse_time,
        modified_fraction: None,
        mode: Some(mode),
        owner,
        group,
        link_target,
        ..ListedEntry::new(name, kind)
    };
    Some(ListedRow {
        entry,
        is_timed,
        may_begin_with_year: is_timed && begins_with_year(shown),
    })
}

/// The name of a row, after its date.
fn name_after<'l>(line: &'l [u8], date: &RowDate) -> Option<&'l [u8]> {
    // One space separates; further ones belong to the name.
    let rest = line.get(date.end + 1..)?;
    let padding = match date.is_padded {
        true => rest.iter().take_while(|b| is_blank(**b)).count(),
        false => 0,
    };
    Some(&rest[padding..]).filter(|name| !name.is_empty())
}

/// The size in a column; `Some(None)` if it is not shown in bytes. `None`: the column does not hold a size.
fn size_in(word: &[u8], kind: EntryKind) -> Option<Option<u64>> {
    if let Some(size) = grouped_number(word) {
        return Some(Some(size));
    }
    // Devices have major and minor numbers there, and directories often nothing.
    let is_free = kind == EntryKind::Other || (kind == EntryKind::Dir && word == b"-");
    // `ls -h`
    let is_rounded = word.split_last().is_some_and(|(unit, figures)| {
        unit.is_ascii_alphabetic()
            && figures
                .iter()
                .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b','))
            && figures.first().is_some_and(u8::is_ascii_digit)
    });
    (is_free || is_rounded).then_some(None)
}

/// Owner and group from the columns between mode and size: `[links] [owner] [group]`.
fn owner_and_group(columns: &[RowWord<'_>]) -> (Option<String>, Option<String>) {
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

/// Splits `name -> target` into name, kind and target. The size of a link is the length of its target.
fn parse_symlink(shown: &[u8], size: Option<u64>) -> (&[u8], EntryKind, Option<Vec<u8>>) {
    const ARROW: &[u8] = b" -> ";
    let arrows = || {
        let all = shown.windows(ARROW.len()).enumerate();
        all.filter(|(at, four)| *at > 0 && *four == ARROW)
            .map(|(at, _)| (&shown[..at], &shown[at + ARROW.len()..]))
    };
    // Without a target of that length, the first arrow is taken: names with one are rarer than targets.
    let fits = |(_, target): &(&[u8], &[u8])| size == Some(target.len() as u64);
    match arrows().find(fits).or_else(|| arrows().next()) {
        Some((name, target)) => (name, EntryKind::SymLink, Some(target.to_vec())),
        None => (shown, EntryKind::SymLink, None),
    }
}
