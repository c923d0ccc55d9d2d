//! Whole files of results.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{ImportOptions, iperf3, perfsonar};
use crate::log_reader::client_names::LogSurroundings;
use crate::log_reader::format::TransferLogFormat;
use crate::log_reader::transfer_measurement;
use crate::measurement::Measurement;

/// The largest file of JSON documents: all of it is in memory.
const MOST_JSON_BYTES: u64 = 64 << 20;
/// The longest line of a log.
const MOST_LINE_BYTES: u64 = 64 << 10;
/// Most measurements of one file, some hundred bytes each.
const MOST_MEASUREMENTS: usize = 1_000_000;

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
    /// Something in the file is not understood.
    #[error("{path}:{position}: {reason}")]
    Content {
        /// The file.
        path: PathBuf,
        /// Where.
        position: ImportPosition,
        /// The fault.
        reason: String,
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
    /// Lines of a log that are no transfers.
    pub other_lines: u64,
}

/// Reads one file of any known kind, recognised by its content. JSON files hold one document, a list, or one after the
/// other.
///
/// # Errors
/// The first thing that is not understood, with its place. Logs contain other lines by nature: those are counted.
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
    let first = file.fill_buf().map_err(failed)?.trim_ascii_start();
    // Our own log is JSON, too, but a log.
    let line = first.split(|&b| b == b'\n').next().unwrap_or_default();
    if first.starts_with(b"[") || (first.starts_with(b"{") && !is_own_record(line)) {
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
    let content = |position, reason| ImportError::Content {
        path: path.to_owned(),
        position,
        reason,
    };
    let mut imported = ImportedFile::default();
    let mut stream = serde_json::Deserializer::from_slice(&bytes).into_iter::<Value>();
    loop {
        let begin = stream.byte_offset();
        let Some(document) = stream.next() else {
            return Ok(imported);
        };
        let document = document.map_err(|error| {
            let position = ImportPosition {
                line: error.line(),
                column: error.column(),
            };
            content(position, error.to_string())
        })?;
        let list = match document {
            Value::Array(list) => list,
            one => vec![one],
        };
        for (index, document) in list.iter().enumerate() {
            let found =
                document_measurements(document, options, surroundings).map_err(|reason| {
                    let place = if list.len() > 1 {
                        format!("item {}: {reason}", index + 1)
                    } else {
                        reason
                    };
                    content(position_of(&bytes, begin), place)
                })?;
            add(path, &mut imported, found)?;
        }
    }
}

fn document_measurements(
    document: &Value,
    options: &ImportOptions,
    surroundings: &mut LogSurroundings<'_>,
) -> Result<Vec<Measurement>, String> {
    if iperf3::is_iperf3(document) {
        iperf3::measurements(document, options)
    } else if perfsonar::is_perfsonar(document) {
        perfsonar::measurements(document, options, surroundings)
    } else {
        Err("this is neither a result of perfSONAR nor of iperf3".to_owned())
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

/// The place of the first byte at or behind the offset that is no blank.
fn position_of(bytes: &[u8], offset: usize) -> ImportPosition {
    let rest = bytes.get(offset..).unwrap_or_default();
    let blanks = rest.iter().take_while(|b| b.is_ascii_whitespace()).count();
    let before = bytes.get(..offset + blanks).unwrap_or(bytes);
    let line_begin = before
        .iter()
        .rposition(|&b| b == b'\n')
        .map_or(0, |at| at + 1);
    ImportPosition {
        line: before.iter().filter(|&&b| b == b'\n').count() + 1,
        column: before.len() - line_begin + 1,
    }
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
            Some(entry) => add(
                path,
                &mut imported,
                transfer_measurement::measurement(&entry),
            )?,
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
