//! Reads the lines of one listing: which are entries, which are none, and which are not understood.

use super::ls::{ListedRow, parse_row};
use super::row_date::{YearAfterTime, number, words};
use super::{EntryKind, ListedEntry, parse_mlsx, without_ending};
use crate::timestamp::Timestamp;

/// Form of the lines of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListingFormat {
    /// MLSD and MLSR.
    Facts,
    /// LIST.
    Rows,
    /// `LIST -a`: the rows count only if one of them is that of the directory itself, or of its parent. Otherwise the server
    /// may have listed something with the name `-a`.
    AllRows,
    /// NLST: a name, with or without the path of its directory.
    Names,
}

/// Most rows that wait until it is known how they are read, and their bytes.
const MAX_UNDECIDED: usize = 4096;
const MAX_UNDECIDED_BYTES: usize = 1 << 20;
/// Most entries that wait until the directory itself is shown. Beyond, none of them counts.
const MAX_HELD: usize = 1 << 16;

/// Most bytes of a line that is kept to be shown.
const MAX_SHOWN: usize = 200;

/// Reads the lines of one listing.
#[derive(Debug, Clone)]
pub struct ListingReader {
    format: ListingFormat,
    /// The present, by which dates without a year are read.
    now: Timestamp,
    year_after: Option<YearAfterTime>,
    /// Rows that can be read in two ways.
    undecided: Vec<Vec<u8>>,
    undecided_bytes: usize,
    /// Entries that count once the directory itself is shown.
    held: Vec<ListedEntry>,
    lines: u64,
    entries: u64,
    not_understood: u64,
    first_not_understood: Vec<u8>,
    shows_hidden: bool,
    shows_itself: bool,
    hides_entries: bool,
}

impl ListingReader {
    /// Reads a listing of a format.
    pub fn new(format: ListingFormat, now: Timestamp) -> Self {
        Self {
            format,
            now,
            year_after: None,
            undecided: Vec::new(),
            undecided_bytes: 0,
            held: Vec::new(),
            lines: 0,
            entries: 0,
            not_understood: 0,
            first_not_understood: Vec::new(),
            shows_hidden: false,
            shows_itself: false,
            hides_entries: false,
        }
    }

    /// Reads a line. Appends its entry to `found`, except `.` and `..`, and those of earlier lines that could not be read
    /// before.
    pub fn read(&mut self, line: &[u8], found: &mut Vec<ListedEntry>) {
        let line = without_ending(line);
        if line.is_empty() {
            return;
        }
        self.lines += 1;
        let entry = match self.format {
            ListingFormat::Facts => parse_mlsx(line),
            ListingFormat::Names => parse_name(line),
            ListingFormat::Rows | ListingFormat::AllRows => return self.read_row(line, found),
        };
        match entry {
            Some(entry) => self.take(entry, found),
            None => self.miss(line),
        }
    }

    /// Ends the listing: lines that could still be read in two ways are not understood.
    pub fn finish(&mut self) {
        for row in std::mem::take(&mut self.undecided) {
            self.miss(&row);
        }
    }

    /// Number of lines that are not empty.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Number of entries without `.` and `..`.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Number of lines that are not understood, and the beginning of the first one.
    pub fn not_understood(&self) -> (u64, &[u8]) {
        (self.not_understood, &self.first_not_understood)
    }

    /// Whether names are shown that begin with a dot, which some servers hide.
    pub fn shows_hidden(&self) -> bool {
        self.shows_hidden
    }

    /// Whether the directory itself or its parent is shown: it could be read.
    pub fn shows_itself(&self) -> bool {
        self.shows_itself
    }

    /// Whether the entry of the directory itself says that this login may not list all of it (RFC 3659 section 7.5.5).
    pub fn hides_entries(&self) -> bool {
        self.hides_entries
    }

    fn read_row(&mut self, line: &[u8], found: &mut Vec<ListedEntry>) {
        let year_after = self.year_after.unwrap_or(YearAfterTime::InName);
        let Some(row) = parse_row(line, self.now, year_after) else {
            match self.is_known_remark(line) {
                true => self.lines -= 1,
                false => self.miss(line),
            }
            return;
        };
        if self.year_after.is_none() && row.is_timed {
            self.year_after = decide(&row);
            match self.year_after {
                None => return self.wait(line),
                Some(year_after) => {
                    for earlier in std::mem::take(&mut self.undecided) {
                        self.read_decided(&earlier, year_after, found);
                    }
                    return self.read_decided(line, year_after, found);
                }
            }
        }
        self.take(row.entry, found);
    }

    fn read_decided(
        &mut self,
        line: &[u8],
        year_after: YearAfterTime,
        found: &mut Vec<ListedEntry>,
    ) {
        match parse_row(line, self.now, year_after) {
            Some(row) => self.take(row.entry, found),
            None => self.miss(line),
        }
    }

    /// Keeps a row until another one shows how it is read.
    fn wait(&mut self, line: &[u8]) {
        self.undecided_bytes += line.len();
        match self.undecided.len() < MAX_UNDECIDED && self.undecided_bytes <= MAX_UNDECIDED_BYTES {
            true => self.undecided.push(line.to_vec()),
            false => self.miss(line),
        }
    }

    fn take(&mut self, entry: ListedEntry, found: &mut Vec<ListedEntry>) {
        let is_itself = matches!(entry.kind, EntryKind::CurrentDir | EntryKind::ParentDir)
            || entry.name == b"."
            || entry.name == b"..";
        self.shows_hidden |= entry.name.starts_with(b".");
        if is_itself {
            self.shows_itself = true;
            self.release(found);
            let is_of_directory = entry.kind == EntryKind::CurrentDir || entry.name == b".";
            self.hides_entries |= is_of_directory && entry.may_list == Some(false);
            return;
        }
        let must_wait = self.format == ListingFormat::AllRows && !self.shows_itself;
        match must_wait {
            true if self.held.len() <= MAX_HELD => self.held.push(entry),
            true => {}
            false => {
                self.entries += 1;
                found.push(entry);
            }
        }
    }

    /// The directory itself is shown.
    fn release(&mut self, found: &mut Vec<ListedEntry>) {
        let held = std::mem::take(&mut self.held);
        match held.len() <= MAX_HELD {
            true => {
                self.entries += held.len() as u64;
                found.extend(held);
            }
            false => self.miss(b"more entries than fit"),
        }
    }

    fn miss(&mut self, line: &[u8]) {
        if self.not_understood == 0 {
            self.first_not_understood = line[..line.len().min(MAX_SHOWN)].to_vec();
        }
        self.not_understood += 1;
    }

    /// Lines of LIST that are known to be no entries.
    fn is_known_remark(&self, line: &[u8]) -> bool {
        let words = words(line);
        let word = |at: usize| words.get(at).map_or(&b""[..], |word| word.0);
        // ls(1) begins with `total 12`, in its language.
        let is_total = self.lines == 1
            && words.len() == 2
            && word(0)
                .iter()
                .all(|b| b.is_ascii_alphabetic() || !b.is_ascii())
            && number(word(1)).is_some();
        // `DIR`: `3 File(s)  1,234 bytes`
        let is_sum = line.starts_with(b" ") && number(word(0)).is_some() && word(1).contains(&b'(');
        let text = line.trim_ascii_start();
        let starts = [
            "Volume in drive ",
            "Volume Serial Number is ",
            "Directory of ",
        ];
        is_total
            || is_sum
            || starts
                .iter()
                .any(|start| text.starts_with(start.as_bytes()))
    }
}

/// How the years behind times are read, if a row shows it.
fn decide(row: &ListedRow) -> Option<YearAfterTime> {
    let name = &row.entry.name;
    match row.may_begin_with_year {
        false => Some(YearAfterTime::InName),
        // The directory itself.
        true if name.ends_with(b" .") || name.ends_with(b" ..") => Some(YearAfterTime::InDate),
        true => None,
    }
}

/// Parses a line of NLST.
fn parse_name(line: &[u8]) -> Option<ListedEntry> {
    let line = line.strip_suffix(b"/").unwrap_or(line);
    let name = line.rsplit(|b| *b == b'/').next().unwrap_or(line);
    (!name.is_empty()).then(|| ListedEntry::new(name, EntryKind::File))
}
