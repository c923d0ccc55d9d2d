//! Parses the text of a listing line by line as it arrives.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use data::store::Sink;
use proto::listing::{EntryKind, ListedEntry};
use tokio::sync::mpsc;

use super::inflate::InflatedText;

/// Parses one line; `None` if the line names no entry.
pub(super) type ListingLineParser = fn(&[u8]) -> Option<ListedEntry>;

/// Longest line, bytes. A name of 4096 bytes (PATH_MAX) and many facts fit.
const MAX_LINE: usize = 64 << 10;
/// Entries passed on at a time.
const BATCH_ENTRIES: usize = 512;

/// Limits of a listing. A caller that keeps the entries needs about 300 bytes for each.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListingLimits {
    /// Bytes of text.
    pub(super) bytes: u64,
    /// Lines of text.
    pub(super) lines: usize,
}

/// Sink for the text of a listing. It passes the entries on, without `.` and `..`. A slow receiver
/// of entries slows the sender down; a closed receiver ends the transfer.
#[derive(Debug)]
pub(super) struct EntrySink {
    parse: ListingLineParser,
    limits: ListingLimits,
    entries: mpsc::Sender<Vec<ListedEntry>>,
    state: Mutex<EntrySinkState>,
}

#[derive(Debug, Default)]
struct EntrySinkState {
    offset: u64,
    text_bytes: u64,
    /// The line that is not complete yet.
    line: Vec<u8>,
    batch: Vec<ListedEntry>,
    counts: ListingLineCounts,
    excess: Option<String>,
    /// Reads a compressed text.
    inflated: Option<InflatedText>,
}

/// Counts of the lines of a listing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ListingLineCounts {
    /// Lines that are not empty.
    pub(super) lines: usize,
    /// Lines that are entries.
    pub(super) entries: usize,
    /// Lines that are neither entries nor `total` lines.
    pub(super) unrecognized: usize,
    /// The last line has no line end.
    pub(super) ends_within_line: bool,
}

impl EntrySink {
    /// Passes entries on to `entries`.
    pub(super) fn new(
        parse: ListingLineParser,
        limits: ListingLimits,
        entries: mpsc::Sender<Vec<ListedEntry>>,
        is_deflated: bool,
    ) -> Self {
        let state = EntrySinkState {
            inflated: is_deflated.then(InflatedText::new),
            ..EntrySinkState::default()
        };
        Self {
            parse,
            limits,
            entries,
            state: Mutex::new(state),
        }
    }

    /// Call after the end of the text. Returns the entries that were not passed on yet, and the
    /// counts. `None`: the end of a compressed text is missing.
    pub(super) fn finish(&self) -> Option<(Vec<ListedEntry>, ListingLineCounts)> {
        let mut state = self.state();
        if state
            .inflated
            .as_ref()
            .is_some_and(|text| !text.has_ended())
        {
            return None;
        }
        let last = std::mem::take(&mut state.line);
        state.counts.ends_within_line = !last.is_empty();
        self.take_line(&mut state, &last);
        Some((std::mem::take(&mut state.batch), state.counts))
    }

    /// Reads a part of the text.
    fn take_text(&self, state: &mut EntrySinkState, text: &[u8]) -> io::Result<()> {
        state.text_bytes += text.len() as u64;
        if state.text_bytes > self.limits.bytes {
            let bytes = self.limits.bytes;
            return Err(record_excess(state, format!("more than {bytes} bytes")));
        }
        self.parse_bytes(state, text)
    }

    /// The limit that was exceeded, in words.
    pub(super) fn exceeded_limit(&self) -> Option<String> {
        self.state().excess.clone()
    }

    fn parse_bytes(&self, state: &mut EntrySinkState, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            // A line without an end would otherwise fill the memory.
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
            // Lines, not entries: a listing of unparsable lines is bounded, too.
            if state.counts.lines > self.limits.lines {
                let lines = self.limits.lines;
                return Err(record_excess(state, format!("more than {lines} entries")));
            }
            if state.batch.len() >= BATCH_ENTRIES {
                let batch = std::mem::take(&mut state.batch);
                // Blocks the receiving thread, and TCP then slows the server down. The queue is
                // bounded.
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
            // ls(1) prints a `total` line first.
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
        // Listings are received in order over one MODE S connection.
        if offset != state.offset {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        state.offset += buf.len() as u64;
        match state.inflated.take() {
            Some(mut inflated) => {
                let read = inflated.read(buf, |text| self.take_text(&mut state, text));
                state.inflated = Some(inflated);
                read
            }
            None => self.take_text(&mut state, buf),
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn is_seekable(&self) -> bool {
        false
    }
}

fn record_excess(state: &mut EntrySinkState, limit: String) -> io::Error {
    state.excess = Some(limit);
    io::ErrorKind::FileTooLarge.into()
}

/// Removes the line ending: CR LF, LF, or CR CR LF (globus in TYPE A).
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

    const NO_LIMITS: ListingLimits = ListingLimits {
        bytes: 1 << 30,
        lines: 1 << 20,
    };

    fn sink(limits: ListingLimits) -> (EntrySink, mpsc::Receiver<Vec<ListedEntry>>) {
        let (sender, receiver) = mpsc::channel(1);
        (EntrySink::new(parse_mlsx, limits, sender, false), receiver)
    }

    #[test]
    fn lines_are_parsed_across_chunk_and_line_ending_variants() {
        let text = b"type=cdir; .\r\ntype=file; a\r\ntotal 3\n\r\ntype=dir; b c\r\r\nnonsense\ntype=file; \xffd";
        for size in [1, 2, 7, text.len()] {
            let (sink, _entries) = sink(NO_LIMITS);
            let mut offset = 0;
            for piece in text.chunks(size) {
                sink.write_at(offset, piece).unwrap();
                offset += piece.len() as u64;
            }
            let (entries, counts) = sink.finish().unwrap();
            let names: Vec<&[u8]> = entries.iter().map(|e| e.name.as_slice()).collect();
            assert_eq!(names, [&b"a"[..], b"b c", b"\xffd"]);
            assert_eq!(
                (counts.lines, counts.entries, counts.unrecognized),
                (6, 3, 1)
            );
            assert!(counts.ends_within_line);
        }
    }

    #[test]
    fn listings_are_limited_in_lines_bytes_and_line_length() {
        let cases: [(ListingLimits, Vec<u8>, &str); 3] = [
            (
                ListingLimits {
                    lines: 3,
                    ..NO_LIMITS
                },
                b"type=file; x\n".repeat(9),
                "more than 3 entries",
            ),
            (
                ListingLimits {
                    bytes: 5,
                    ..NO_LIMITS
                },
                b"\n".repeat(6),
                "more than 5 bytes",
            ),
            (
                NO_LIMITS,
                vec![b'x'; MAX_LINE + 1],
                "a line of more than 65536 bytes",
            ),
        ];
        for (limits, text, message) in cases {
            let (sink, _entries) = sink(limits);
            sink.write_at(0, &text).unwrap_err();
            assert_eq!(sink.exceeded_limit().as_deref(), Some(message));
        }
    }

    #[test]
    fn a_large_listing_waits_for_its_reader() {
        let (sink, mut entries) = sink(NO_LIMITS);
        let writer = std::thread::spawn(move || {
            let lines = b"type=file; name\n".repeat(1000);
            for n in 0..1000 {
                sink.write_at(n * lines.len() as u64, &lines).unwrap();
            }
            sink.finish().unwrap().0.len()
        });
        let mut taken = 0;
        while let Some(batch) = entries.blocking_recv() {
            assert!(batch.len() <= BATCH_ENTRIES);
            taken += batch.len();
        }
        assert_eq!(taken + writer.join().unwrap(), 1_000_000);
    }

    #[test]
    fn a_closed_receiver_ends_the_transfer() {
        let (sink, entries) = sink(NO_LIMITS);
        drop(entries);
        let error = sink
            .write_at(0, &b"type=file; x\n".repeat(BATCH_ENTRIES))
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
