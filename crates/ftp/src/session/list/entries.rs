//! Parses the text of a listing line by line as it arrives.

use std::io;
use std::os::fd::BorrowedFd;

use data::store::Sink;
use parking_lot::{Mutex, MutexGuard};
use proto::listing::{ListedEntry, ListingReader};
use tokio::sync::mpsc;

use super::inflate::InflatedText;
use crate::session::listing_limits::ListingLimits;

/// Longest line, bytes. A name of 4096 bytes (PATH_MAX) and many facts fit.
const MAX_LINE: usize = 64 << 10;
/// Entries passed on at a time.
const BATCH_ENTRIES: usize = 512;

/// Sink for the text of a listing. It passes the entries on, without `.` and `..`. A slow receiver
/// of entries slows the sender down; a closed receiver ends the transfer.
#[derive(Debug)]
pub(super) struct EntrySink {
    limits: ListingLimits,
    entries: mpsc::Sender<Vec<ListedEntry>>,
    state: Mutex<EntrySinkState>,
}

#[derive(Debug)]
struct EntrySinkState {
    offset: u64,
    text_bytes: u64,
    /// The line that is not complete yet.
    line: Vec<u8>,
    batch: Vec<ListedEntry>,
    reader: ListingReader,
    excess: Option<String>,
    /// Reads a compressed text.
    inflated: Option<InflatedText>,
}

/// The text of a listing that has arrived.
pub(super) struct ListingText {
    /// The entries that were not passed on yet.
    pub(super) rest: Vec<ListedEntry>,
    /// Its lines as they were read.
    pub(super) reader: ListingReader,
    /// Its last line has no end.
    pub(super) is_cut: bool,
    /// The end of its connection is no proof that this is all.
    pub(super) end_is_unproved: bool,
}

impl EntrySink {
    /// Passes entries on to `entries`.
    pub(super) fn new(
        reader: ListingReader,
        limits: ListingLimits,
        entries: mpsc::Sender<Vec<ListedEntry>>,
        is_deflated: bool,
    ) -> Self {
        let state = EntrySinkState {
            offset: 0,
            text_bytes: 0,
            line: Vec::new(),
            batch: Vec::new(),
            reader,
            excess: None,
            inflated: is_deflated.then(InflatedText::new),
        };
        Self {
            limits,
            entries,
            state: Mutex::new(state),
        }
    }

    /// Call after the end of the text. `None`: the end of a compressed text is missing.
    pub(super) fn finish(&self) -> Option<ListingText> {
        let mut state = self.state();
        let state = &mut *state;
        if state
            .inflated
            .as_ref()
            .is_some_and(|text| !text.has_ended())
        {
            return None;
        }
        let last = std::mem::take(&mut state.line);
        state.reader.read(&last, &mut state.batch);
        state.reader.finish();
        Some(ListingText {
            rest: std::mem::take(&mut state.batch),
            reader: state.reader.clone(),
            is_cut: !last.is_empty(),
            end_is_unproved: false,
        })
    }

    /// As [`EntrySink::finish`], of a text that somebody may have cut: its last line counts only with its end.
    pub(super) fn finish_unproved(&self) -> Option<ListingText> {
        self.state().line.clear();
        self.finish().map(|text| ListingText {
            end_is_unproved: true,
            ..text
        })
    }

    /// The entries of whole lines of a text that broke off, as far as they were not passed on.
    pub(super) fn take_rest(&self) -> Vec<ListedEntry> {
        std::mem::take(&mut self.state().batch)
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
                state.reader.read(piece, &mut state.batch);
            } else {
                state.line.extend_from_slice(piece);
                state.reader.read(&state.line, &mut state.batch);
                state.line.clear();
            }
            // Lines, not entries: a listing of unparsable lines is bounded, too.
            if state.reader.lines() > self.limits.lines {
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

    fn state(&self) -> MutexGuard<'_, EntrySinkState> {
        self.state.lock()
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

#[cfg(test)]
mod tests {
    use proto::listing::ListingFormat;
    use proto::timestamp::Timestamp;

    use super::*;

    const NO_LIMITS: ListingLimits = ListingLimits {
        bytes: 1 << 30,
        lines: 1 << 20,
    };

    fn sink(limits: ListingLimits) -> (EntrySink, mpsc::Receiver<Vec<ListedEntry>>) {
        let (sender, receiver) = mpsc::channel(1);
        let reader = ListingReader::new(ListingFormat::Facts, Timestamp(0));
        (EntrySink::new(reader, limits, sender, false), receiver)
    }

    #[test]
    fn lines_are_parsed_across_chunk_and_line_ending_variants() {
        let text =
            b"type=cdir; .\r\ntype=file; a\r\n\r\ntype=dir; b c\r\r\nnonsense\ntype=file; \xffd";
        for size in [1, 2, 7, text.len()] {
            let (sink, _entries) = sink(NO_LIMITS);
            let mut offset = 0;
            for piece in text.chunks(size) {
                sink.write_at(offset, piece).unwrap();
                offset += piece.len() as u64;
            }
            let text = sink.finish().unwrap();
            let names: Vec<&[u8]> = text.rest.iter().map(|e| e.name.as_slice()).collect();
            assert_eq!(names, [&b"a"[..], b"b c", b"\xffd"]);
            let reader = text.reader;
            assert_eq!((reader.lines(), reader.entries()), (5, 3));
            assert_eq!(reader.not_understood(), (1, &b"nonsense"[..]));
            assert!(text.is_cut);
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
            sink.finish().unwrap().rest.len()
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
