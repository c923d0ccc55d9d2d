//! Whole files of results.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{ImportOptions, UnusableResult, iperf3, perfsonar};
use crate::log_reader::client_names::LogSurroundings;
use crate::log_reader::format::TransferLogFormat;
use crate::measurement::Measurement;

/// The largest file of JSON documents: all of it is in memory.
const MOST_JSON_BYTES: u64 = 64 << 20;
/// The longest line of a log.
const MOST_LINE_BYTES: u64 = 64 << 10;
/// Most measurements of one file, some hundred bytes each.
const MOST_MEASUREMENTS: usize = 1_000_000;

/// Most documents without measurements that are named.
const MOST_SKIPPED: usize = 100;

/// A file that cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The system cannot read it.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is larger than what is imported at once.
    #[error("{path} has more than {most} {unit}: split it")]
    TooMuch {
        /// The file.
        path: PathBuf,
        /// The bound.
        most: u64,
        /// Of what.
        unit: &'static str,
    },
    /// No line of the file is a transfer.
    #[error("{path}: no line looks like perfSONAR, iperf3, or a transfer log that is known")]
    Unknown {
        /// The file.
        path: PathBuf,
    },
}

/// A place in a file, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportPosition {
    /// The line.
    pub line: usize,
    /// The byte in the line.
    pub column: usize,
}

impl fmt::Display for ImportPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// The content of a file.
#[derive(Debug, Default)]
pub struct ImportedFile {
    /// The measurements, in the order of the file.
    pub measurements: Vec<Measurement>,
    /// Results and transfers that say nothing of a path, as short ones.
    pub without_value: u64,
    /// Documents that are in the file already. Some programs write theirs twice.
    pub repeated: u64,
    /// Lines that are neither part of a document nor transfers of a log.
    pub other_lines: u64,
    /// The first documents that give no measurements.
    pub skipped: Vec<SkippedResult>,
    /// Documents of tests that failed.
    pub failed_tests: u64,
    /// Documents that are not understood.
    pub not_understood: u64,
}

/// A document that gives no measurements.
#[derive(Debug)]
pub struct SkippedResult {
    /// Where it begins, or where it cannot be read.
    pub position: ImportPosition,
    /// Its number in a list, from 1.
    pub item: Option<usize>,
    /// The reason.
    pub reason: UnusableResult,
}

impl fmt::Display for SkippedResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.item {
            Some(item) => write!(f, "{}: item {item}: {}", self.position, self.reason),
            None => write!(f, "{}: {}", self.position, self.reason),
        }
    }
}

/// Reads one file of any known kind, recognised by its content. JSON files hold one document, a list, or one after the
/// other, and programs write messages between them. A document that gives no measurements takes no other with it.
///
/// # Errors
/// The file cannot be read, is too large, or is of no known kind.
pub fn import_file(
    path: &Path,
    options: &ImportOptions,
    surroundings: &mut LogSurroundings<'_>,
) -> Result<ImportedFile, ImportError> {
    let failed = |source| ImportError::Read {
        path: path.to_owned(),
        source,
    };
    let mut file = BufReader::new(File::open(path).map_err(failed)?);
    let begin = file.fill_buf().map_err(failed)?.trim_ascii_start();
    // Lines of logs never begin like this, but those of our own.
    let is_json = |line: &&[u8]| line.starts_with(b"{");
    let document = begin.split(|&b| b == b'\n').find(is_json);
    if begin.starts_with(b"[") || document.is_some_and(|line| !is_own_record(line)) {
        documents(path, file, options, surroundings)
    } else {
        log(path, file, surroundings)
    }
}

/// A record of `longhaul serve`, a listing or a failed transfer as well.
fn is_own_record(line: &[u8]) -> bool {
    let record: Option<Value> = serde_json::from_slice(line).ok();
    record.is_some_and(|record| {
        record.get("direction").is_some() && record.get("data_peers").is_some()
    })
}

fn documents(
    path: &Path,
    file: impl Read,
    options: &ImportOptions,
    surroundings: &mut LogSurroundings<'_>,
) -> Result<ImportedFile, ImportError> {
    let mut bytes = Vec::new();
    file.take(MOST_JSON_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| ImportError::Read {
            path: path.to_owned(),
            source,
        })?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MOST_JSON_BYTES {
        return Err(ImportError::TooMuch {
            path: path.to_owned(),
            most: MOST_JSON_BYTES,
            unit: "bytes",
        });
    }
    let mut reader = DocumentReader {
        options,
        surroundings,
        seen: HashSet::new(),
        hasher: RandomState::new(),
        place: CountedLines::default(),
        imported: ImportedFile::default(),
    };
    let mut rest = ContentRest::Text(0);
    loop {
        let (from, is_text) = match rest {
            ContentRest::Text(from) => (from, true),
            ContentRest::Damaged(from) => (from, false),
        };
        let next = match is_text && starts_document(&bytes, from) {
            true => Some(from),
            false => next_document(&bytes, from),
        };
        if is_text {
            let text = bytes.get(from..next.unwrap_or(bytes.len()));
            reader.imported.other_lines += lines_of_text(text.unwrap_or_default());
        }
        match next {
            Some(begin) => rest = reader.read_documents(path, &bytes, begin)?,
            None => return Ok(reader.imported),
        }
    }
}

/// The text behind the documents that were read, from an offset on.
enum ContentRest {
    /// Text.
    Text(usize),
    /// The content of a document that cannot be read.
    Damaged(usize),
}

/// Where the next document begins: a later line with `{` or `[` first. Within a document, such lines are indented.
fn next_document(bytes: &[u8], from: usize) -> Option<usize> {
    let mut begin = from;
    for line in bytes.get(from..)?.split_inclusive(|&b| b == b'\n') {
        if begin > from && matches!(line, [b'{' | b'[', ..]) {
            return Some(begin);
        }
        begin += line.len();
    }
    None
}

fn lines_of_text(bytes: &[u8]) -> u64 {
    let lines = bytes.split(|&b| b == b'\n');
    let lines = lines.filter(|line| !line.trim_ascii().is_empty()).count();
    u64::try_from(lines).unwrap_or(u64::MAX)
}

/// Takes the documents of a file in.
struct DocumentReader<'a, 'b> {
    options: &'a ImportOptions,
    surroundings: &'a mut LogSurroundings<'b>,
    /// Hashes of the documents so far.
    seen: HashSet<u64>,
    hasher: RandomState,
    place: CountedLines,
    imported: ImportedFile,
}

/// The lines of a text up to a place that only moves on.
#[derive(Default)]
struct CountedLines {
    offset: usize,
    /// Lines that have ended.
    lines: usize,
    line_begin: usize,
}

impl CountedLines {
    /// The place of the first byte at or behind the offset that is no blank.
    fn position(&mut self, bytes: &[u8], offset: usize) -> ImportPosition {
        let rest = bytes.get(offset..).unwrap_or_default();
        let offset = bytes.len() - rest.trim_ascii_start().len();
        let passed = bytes.get(self.offset..offset).unwrap_or_default();
        self.lines += passed.iter().filter(|&&b| b == b'\n').count();
        if let Some(at) = passed.iter().rposition(|&b| b == b'\n') {
            self.line_begin = self.offset + at + 1;
        }
        self.offset = self.offset.max(offset);
        ImportPosition {
            line: self.lines + 1,
            column: self.offset - self.line_begin + 1,
        }
    }
}

impl DocumentReader<'_, '_> {
    /// Takes in documents that follow one another from `begin` on.
    fn read_documents(
        &mut self,
        path: &Path,
        bytes: &[u8],
        begin: usize,
    ) -> Result<ContentRest, ImportError> {
        let text = bytes.get(begin..).unwrap_or_default();
        // Blanks may precede the first document.
        let start = self.place.position(bytes, begin);
        let text = text.trim_ascii_start();
        let begin = bytes.len() - text.len();
        let mut stream = serde_json::Deserializer::from_slice(text).into_iter::<Value>();
        loop {
            let at = begin + stream.byte_offset();
            match stream.next() {
                None => return Ok(ContentRest::Text(bytes.len())),
                Some(Ok(document)) => {
                    let position = self.place.position(bytes, at);
                    self.take(path, document, position)?;
                }
                // Text behind a document, which may have others behind it.
                Some(Err(_)) if !starts_document(bytes, at) => return Ok(ContentRest::Text(at)),
                Some(Err(error)) => {
                    let position = ImportPosition {
                        line: start.line - 1 + error.line(),
                        column: match error.line() {
                            1 => start.column - 1 + error.column(),
                            _ => error.column(),
                        },
                    };
                    let reason = error.to_string();
                    // It ends with the place, counted from the first document on.
                    let reason = reason.split(" at line ").next().unwrap_or_default();
                    self.skip(position, None, reason.into());
                    let damaged = bytes.get(at..).unwrap_or_default();
                    return Ok(ContentRest::Damaged(
                        bytes.len() - damaged.trim_ascii_start().len(),
                    ));
                }
            }
        }
    }

    fn take(
        &mut self,
        path: &Path,
        document: Value,
        at: ImportPosition,
    ) -> Result<(), ImportError> {
        let list = match document {
            Value::Array(list) => list,
            one => vec![one],
        };
        for (index, document) in list.iter().enumerate() {
            let hash = self.hasher.hash_one(document.to_string());
            if !self.seen.insert(hash) {
                self.imported.repeated += 1;
                continue;
            }
            match document_measurements(document, self.options, self.surroundings) {
                Ok(found) => add(path, &mut self.imported, found)?,
                Err(reason) => self.skip(at, (list.len() > 1).then_some(index + 1), reason),
            }
        }
        Ok(())
    }

    fn skip(&mut self, position: ImportPosition, item: Option<usize>, reason: UnusableResult) {
        match reason {
            UnusableResult::TestFailed(_) => self.imported.failed_tests += 1,
            UnusableResult::NotUnderstood(_) => self.imported.not_understood += 1,
        }
        if self.imported.skipped.len() < MOST_SKIPPED {
            let skipped = SkippedResult {
                position,
                item,
                reason,
            };
            self.imported.skipped.push(skipped);
        }
    }
}

/// Whether the text at an offset, behind blanks, is a document at least at its begin.
fn starts_document(bytes: &[u8], at: usize) -> bool {
    let text = bytes.get(at..).unwrap_or_default();
    matches!(text.trim_ascii_start(), [b'{' | b'[', ..])
}

fn document_measurements(
    document: &Value,
    options: &ImportOptions,
    surroundings: &mut LogSurroundings<'_>,
) -> Result<Vec<Measurement>, UnusableResult> {
    if iperf3::is_iperf3(document) {
        iperf3::measurements(document, options)
    } else if perfsonar::is_perfsonar(document) {
        perfsonar::measurements(document, options, surroundings)
    } else {
        Err("this is neither a result of perfSONAR nor of iperf3".into())
    }
}

fn add(
    path: &Path,
    imported: &mut ImportedFile,
    found: impl IntoIterator<Item = Measurement>,
) -> Result<(), ImportError> {
    let before = imported.measurements.len();
    imported.measurements.extend(found);
    if imported.measurements.len() == before {
        imported.without_value += 1;
    }
    if imported.measurements.len() > MOST_MEASUREMENTS {
        return Err(ImportError::TooMuch {
            path: path.to_owned(),
            most: u64::try_from(MOST_MEASUREMENTS).unwrap_or(u64::MAX),
            unit: "results",
        });
    }
    Ok(())
}

fn log(
    path: &Path,
    mut file: impl BufRead,
    surroundings: &mut LogSurroundings<'_>,
) -> Result<ImportedFile, ImportError> {
    let mut imported = ImportedFile::default();
    let (mut line, mut format, mut skipping) = (Vec::new(), None, false);
    loop {
        line.clear();
        let read = (&mut file)
            .take(MOST_LINE_BYTES)
            .read_until(b'\n', &mut line)
            .map_err(|source| ImportError::Read {
                path: path.to_owned(),
                source,
            })?;
        if read == 0 {
            break;
        }
        let is_whole = line.ends_with(b"\n");
        let was_skipping = std::mem::replace(
            &mut skipping,
            !is_whole && u64::try_from(read).unwrap_or_default() == MOST_LINE_BYTES,
        );
        if skipping || was_skipping {
            imported.other_lines += u64::from(!skipping);
            continue;
        }
        let text = line.trim_ascii_end();
        let mut parse = |format: Option<TransferLogFormat>| format?.parse(text, surroundings);
        let entry = parse(format).or_else(|| {
            format = TransferLogFormat::of_line(text).or(format);
            parse(format)
        });
        match entry {
            Some(entry) => add(path, &mut imported, entry.measurement())?,
            None => imported.other_lines += 1,
        }
    }
    if format.is_none() && imported.other_lines > 0 {
        return Err(ImportError::Unknown {
            path: path.to_owned(),
        });
    }
    Ok(imported)
}
