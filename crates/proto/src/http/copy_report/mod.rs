//! The report of a server that copies a file from or to another one: the body of its response to COPY (WLCG HTTP-TPC).
//!
//! Lines of text: performance markers as those of GridFTP, from `Perf Marker` to `End`, and at the end one line that begins with
//! `success:` or `failure:`.

use crate::marker::{PerformanceMarker, StripeProgress};

/// Longest line that is read, bytes. The rest of a longer one is dropped: RemoteConnections names every connection.
const MAX_LINE: usize = 4096;
/// Most lines of a marker that are kept.
const MAX_MARKER_LINES: usize = 16;
/// Longest report, bytes: that of a copy of two months with a marker every five seconds is shorter.
const MAX_REPORT: u64 = 256 << 20;

/// A report that is being read.
#[derive(Debug, Default)]
pub struct CopyReport {
    /// The last line, as far as it has come.
    line: Vec<u8>,
    /// Lines of the marker that has begun.
    marker: Option<Vec<Vec<u8>>>,
    progress: StripeProgress,
    end: Option<CopyEnd>,
    received: u64,
}

/// How a copy ended, as its report says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyEnd {
    /// All is copied.
    Success,
    /// It is not; the reason, in the bytes of the server.
    Failure(Vec<u8>),
}

/// A report is too long to be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is longer than {} MiB", MAX_REPORT >> 20)]
pub struct EndlessReport;

impl CopyReport {
    /// Takes the next bytes of the body.
    ///
    /// # Errors
    /// [`EndlessReport`]
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), EndlessReport> {
        self.received = self.received.saturating_add(bytes.len() as u64);
        if self.received > MAX_REPORT {
            return Err(EndlessReport);
        }
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, is_whole) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            let room = MAX_LINE - self.line.len();
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            if is_whole {
                self.take_line();
            }
        }
        Ok(())
    }

    /// Bytes that the copy has moved so far, as the markers say; `None` before the first one.
    pub fn bytes(&self) -> Option<u64> {
        self.progress.bytes()
    }

    /// The end of the body. `is_whole`: it ended as HTTP says, and not with its connection. `None`: the report does not say how
    /// the copy ended, which is then unknown.
    pub fn finish(mut self, is_whole: bool) -> Option<CopyEnd> {
        // A line that was cut off may have been another one.
        if is_whole {
            self.take_line();
        }
        self.end
    }

    fn take_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = line.trim_ascii();
        if let Some(reason) = after(line, b"failure:") {
            // It counts whatever else the report says.
            self.end = Some(CopyEnd::Failure(reason.to_vec()));
            self.marker = None;
        } else if after(line, b"success:").is_some() {
            self.end.get_or_insert(CopyEnd::Success);
            self.marker = None;
        } else if line.eq_ignore_ascii_case(b"Perf Marker") {
            self.marker = Some(Vec::new());
        } else if line.eq_ignore_ascii_case(b"End") {
            let marker = self.marker.take();
            // A marker without all numbers shows that the server is alive, and nothing else.
            if let Some(marker) = marker.and_then(|lines| PerformanceMarker::from_lines(&lines)) {
                self.progress.take(marker);
            }
        } else if let Some(marker) = &mut self.marker
            && marker.len() < MAX_MARKER_LINES
        {
            marker.push(line.to_vec());
        }
    }
}

/// The rest of a line that begins with `word`, whatever its case.
fn after<'l>(line: &'l [u8], word: &[u8]) -> Option<&'l [u8]> {
    let (head, rest) = line.split_at_checked(word.len())?;
    head.eq_ignore_ascii_case(word).then(|| rest.trim_ascii())
}

#[cfg(test)]
mod tests;
