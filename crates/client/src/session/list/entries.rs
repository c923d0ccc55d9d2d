//! The text of a listing, read line by line as it comes.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use data::store::Sink;
use proto::listing::{EntryKind, ListedEntry};
use tokio::sync::mpsc;

/// How a line is read; `None`: it names no entry.
pub(super) type ListingLineParser = fn(&[u8]) -> Option<ListedEntry>;

/// Longest line, bytes: a name of 4 096 bytes and many facts.
const MAX_LINE: usize = 64 << 10;
/// Entries handed on at a time.
const BATCH_ENTRIES: usize = 512;

/// Bounds on a listing. Who keeps the entries needs some 300 bytes for each.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListingLimits {
    /// Of text.
    pub(super) bytes: u64,
    /// Lines of it.
    pub(super) lines: usize,
}

/// Takes a listing's bytes in order and hands its entries on, `.` and `..` left out. A receiver that
/// is slow holds the sender back; one that is gone ends the transfer.
#[derive(Debug)]
pub(super) struct EntrySink {
    parse: ListingLineParser,
    bounds: ListingLimits,
    entries: mpsc::Sender<Vec<ListedEntry>>,
    state: Mutex<EntrySinkState>,
}

#[derive(Debug, Default)]
struct EntrySinkState {
    offset: u64,
    /// The line that has not ended yet.
    line: Vec<u8>,
    batch: Vec<ListedEntry>,
    counts: ListingLineCounts,
    excess: Option<String>,
}

/// The lines of a listing, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ListingLineCounts {
    /// Lines that are not empty.
    pub(super) lines: usize,
    /// Of them, entries.
    pub(super) entries: usize,
    /// Of them, neither entries nor `total` lines.
    pub(super) unrecognized: usize,
}

impl EntrySink {
    /// Hands entries on to `entries`.
    pub(super) fn new(
        parse: ListingLineParser,
        bounds: ListingLimits,
        entries: mpsc::Sender<Vec<ListedEntry>>,
    ) -> Self {
        Self {
            parse,
            bounds,
            entries,
            state: Mutex::default(),
        }
    }

    /// After the end of the text: the entries that were not handed on yet, and what came in all.
    pub(super) fn finish(&self) -> (Vec<ListedEntry>, ListingLineCounts) {
        let mut state = self.state();
        let last = std::mem::take(&mut state.line);
        self.take_line(&mut state, &last);
        (std::mem::take(&mut state.batch), state.counts)
    }

    /// Which bound was reached, in words.
    pub(super) fn exceeded_limit(&self) -> Option<String> {
        self.state().excess.clone()
    }

    fn parse_bytes(&self, state: &mut EntrySinkState, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            if state.line.len() + piece.len() > MAX_LINE {
                return Err(record_excess(
                    state,
                    format!("a line of more than {MAX_LINE} bytes"),
                ));
            }
            if !piece.ends_with(b"\n") {
                state.line.extend_from_slice(piece);
                continue;
            }
            if state.line.is_empty() {
                self.take_line(state, piece);
            } else {
                let mut line = std::mem::take(&mut state.line);
                line.extend_from_slice(piece);
                self.take_line(state, &line);
            }
            if state.counts.lines > self.bounds.lines {
                let lines = self.bounds.lines;
                return Err(record_excess(state, format!("more than {lines} entries")));
            }
            if state.batch.len() >= BATCH_ENTRIES {
                let batch = std::mem::take(&mut state.batch);
                let sent = self.entries.blocking_send(batch);
                sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
            }
        }
        Ok(())
    }

    fn take_line(&self, state: &mut EntrySinkState, line: &[u8]) {
        let line = trim_line_ending(line);
        if line.is_empty() {
            return;
        }
        state.counts.lines += 1;
        match (self.parse)(line) {
            None => state.counts.unrecognized += usize::from(!line.starts_with(b"total ")),
            Some(entry) if is_dot_entry(&entry) => {}
            Some(entry) => {
                state.counts.entries += 1;
                state.batch.push(entry);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, EntrySinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for EntrySink {
    fn name(&self) -> String {
        "the listing".to_owned()
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        if offset != state.offset {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        state.offset += buf.len() as u64;
        if state.offset > self.bounds.bytes {
            let bytes = self.bounds.bytes;
            return Err(record_excess(
                &mut state,
                format!("more than {bytes} bytes"),
            ));
        }
        self.parse_bytes(&mut state, buf)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn is_seekable(&self) -> bool {
        false
    }
}

fn record_excess(state: &mut EntrySinkState, what: String) -> io::Error {
    state.excess = Some(what);
    io::ErrorKind::FileTooLarge.into()
}

/// Lines end with CR LF, LF, or CR CR LF (globus in TYPE A).
fn trim_line_ending(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|b| !matches!(b, b'\r' | b'\n'));
    &line[..end.map_or(0, |at| at + 1)]
}

fn is_dot_entry(entry: &ListedEntry) -> bool {
    matches!(entry.kind, EntryKind::CurrentDir | EntryKind::ParentDir)
        || entry.name == b"."
        || entry.name == b".."
}

#[cfg(test)]
mod tests {
    use proto::listing::parse_mlsx;

    use super::*;

    const WIDE: ListingLimits = ListingLimits {
        bytes: 1 << 30,
        lines: 1 << 20,
    };

    fn sink(bounds: ListingLimits) -> (EntrySink, mpsc::Receiver<Vec<ListedEntry>>) {
        let (sender, receiver) = mpsc::channel(1);
        (EntrySink::new(parse_mlsx, bounds, sender), receiver)
    }

    #[test]
    fn lines_are_read_whatever_their_ends_and_pieces() {
        let text = b"type=cdir; .\r\ntype=file; a\r\ntotal 3\n\r\ntype=dir; b c\r\r\nnonsense\ntype=file; \xffd";
        for size in [1, 2, 7, text.len()] {
            let (sink, _entries) = sink(WIDE);
            let mut offset = 0;
            for piece in text.chunks(size) {
                sink.write_at(offset, piece).unwrap();
                offset += piece.len() as u64;
            }
            let (entries, seen) = sink.finish();
            let names: Vec<&[u8]> = entries.iter().map(|e| e.name.as_slice()).collect();
            assert_eq!(names, [&b"a"[..], b"b c", b"\xffd"]);
            assert_eq!((seen.lines, seen.entries, seen.unrecognized), (6, 3, 1));
        }
    }

    #[test]
    fn a_hostile_listing_is_bounded_by_lines_by_bytes_and_by_the_length_of_a_line() {
        let cases: [(ListingLimits, Vec<u8>, &str); 3] = [
            (
                ListingLimits { lines: 3, ..WIDE },
                b"type=file; x\n".repeat(9),
                "more than 3 entries",
            ),
            (
                ListingLimits { bytes: 5, ..WIDE },
                b"\n".repeat(6),
                "more than 5 bytes",
            ),
            (
                WIDE,
                vec![b'x'; MAX_LINE + 1],
                "a line of more than 65536 bytes",
            ),
        ];
        for (bounds, text, said) in cases {
            let (sink, _entries) = sink(bounds);
            sink.write_at(0, &text).unwrap_err();
            assert_eq!(sink.exceeded_limit().as_deref(), Some(said));
        }
    }

    #[test]
    fn a_listing_of_a_million_names_waits_for_who_reads_it() {
        let (sink, mut entries) = sink(WIDE);
        let writer = std::thread::spawn(move || {
            let lines = b"type=file; name\n".repeat(1000);
            for n in 0..1000 {
                sink.write_at(n * lines.len() as u64, &lines).unwrap();
            }
            sink.finish().0.len()
        });
        let mut taken = 0;
        while let Some(batch) = entries.blocking_recv() {
            assert!(batch.len() <= BATCH_ENTRIES);
            taken += batch.len();
        }
        assert_eq!(taken + writer.join().unwrap(), 1_000_000);
    }

    #[test]
    fn who_has_enough_ends_the_transfer() {
        let (sink, entries) = sink(WIDE);
        drop(entries);
        let error = sink
            .write_at(0, &b"type=file; x\n".repeat(BATCH_ENTRIES))
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
