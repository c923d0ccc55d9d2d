//! `--trace`: JSON Lines, several times a second one line per stream and one per transfer, and one
//! line for each decision about buffers or streams.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use data::store::write_lock::{WriteLockKind, WriteLockStatus, take_write_lock};
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use tune::sample::TcpSample;
use tune::sizing::BufferDecision;
use tune::streams::auto;

use crate::local::partial::local_failure;
use ftp::Failure;

mod lines;

pub(crate) use lines::{describe_buffer_setting, describe_transfer_setting};

/// An open trace file.
#[derive(Debug)]
pub(crate) struct TraceFile {
    writer: Mutex<BufWriter<File>>,
}

/// One sample of a transfer and its streams.
#[derive(Debug)]
pub(crate) struct TraceSample<'a> {
    /// Time since the run began.
    pub(crate) time: Duration,
    /// Time since the previous sample.
    pub(crate) since_previous: Duration,
    /// Source.
    pub(crate) file: &'a str,
    /// Bytes moved so far.
    pub(crate) bytes: u64,
    /// Bytes moved since the previous sample.
    pub(crate) new_bytes: u64,
    /// Requested buffer size, bytes.
    pub(crate) buffer_set: Option<u64>,
    /// Samples of the streams.
    pub(crate) streams: &'a [TcpSample],
}

impl TraceFile {
    /// Creates the file, or truncates it if no other run is writing it.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let open = || {
            let mut options = OpenOptions::new();
            let file = options
                .write(true)
                .create(true)
                // Truncated below, once the lock shows that no other run writes it.
                .truncate(false)
                .open(path)?;
            // A pipe or /dev/stderr cannot be locked or truncated.
            if file.metadata()?.is_file() {
                // Checked before truncating: another run's trace must stay intact.
                if take_write_lock(&file, WriteLockKind::Exclusive)? == WriteLockStatus::Busy {
                    return Err(io::Error::other("another run is writing this trace"));
                }
                file.set_len(0)?;
            }
            Ok(file)
        };
        let file = open().map_err(|e| local_failure(path, e))?;
        Ok(Self {
            writer: Mutex::new(BufWriter::new(file)),
        })
    }

    /// Writes the lines of one sample. A write error does not stop a transfer.
    pub(crate) fn write_sample(&self, snapshot: &TraceSample<'_>) {
        let mut writer = self.writer();
        for sample in snapshot.streams {
            write_line(&mut *writer, &lines::stream_line(snapshot, sample));
        }
        write_line(&mut *writer, &lines::transfer_line(snapshot));
        flush(&mut *writer);
    }

    /// Writes a decision about the buffers of `file`, made at `time` since the run began.
    pub(crate) fn write_buffer_decision(
        &self,
        time: Duration,
        file: &str,
        decision: &BufferDecision,
    ) {
        let mut writer = self.writer();
        write_line(
            &mut *writer,
            &lines::buffer_decision_line(time, file, decision),
        );
        flush(&mut *writer);
    }

    /// Writes a decision about the streams of `file`, made at `time` since the run began.
    pub(crate) fn write_transfer_decision(
        &self,
        time: Duration,
        file: &str,
        decision: &auto::TransferDecision,
    ) {
        let mut writer = self.writer();
        write_line(
            &mut *writer,
            &lines::transfer_decision_line(time, file, decision),
        );
        flush(&mut *writer);
    }

    fn writer(&self) -> MutexGuard<'_, BufWriter<File>> {
        self.writer.lock()
    }
}

fn write_line(writer: &mut impl Write, value: &impl Serialize) {
    let written = serde_json::to_writer(&mut *writer, value).map_err(io::Error::from);
    if let Err(e) = written.and_then(|()| writer.write_all(b"\n")) {
        tracing::debug!("trace: {e}");
    }
}

fn flush(writer: &mut impl Write) {
    if let Err(e) = writer.flush() {
        tracing::debug!("trace: {e}");
    }
}

#[cfg(test)]
mod tests;
