//! `--trace`: JSON Lines, several times a second one line per stream and one per transfer, and a
//! line for every decision about buffers and about streams.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use data::job::StreamSample;
use data::store::write_lock::{WriteLockKind, WriteLockStatus, take_write_lock};
use serde::Serialize;
use tune::sizing::BufferDecision;
use tune::streams::auto;

use crate::CopyFailure;
use crate::partial::local_failure;

mod lines;

/// An open trace file.
#[derive(Debug)]
pub(crate) struct TraceFile {
    out: Mutex<BufWriter<File>>,
}

/// One transfer at one moment.
#[derive(Debug)]
pub(crate) struct TraceSample<'a> {
    /// Since the run began.
    pub(crate) time: Duration,
    /// Since the previous sample.
    pub(crate) since: Duration,
    /// Source.
    pub(crate) file: &'a str,
    /// Bytes moved so far.
    pub(crate) bytes: u64,
    /// Bytes moved since the previous sample.
    pub(crate) fresh: u64,
    /// Pinned buffer, bytes.
    pub(crate) buffer_set: Option<u64>,
    /// The streams.
    pub(crate) streams: &'a [StreamSample],
}

impl TraceFile {
    /// Creates the file, or empties it when no other run is writing it.
    pub(crate) fn create(path: &Path) -> Result<Self, CopyFailure> {
        let open = || {
            let mut options = OpenOptions::new();
            let file = options
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)?;
            if file.metadata()?.is_file() {
                if take_write_lock(&file, WriteLockKind::Exclusive)? == WriteLockStatus::Busy {
                    return Err(io::Error::other("another run is writing this trace"));
                }
                file.set_len(0)?;
            }
            Ok(file)
        };
        let file = open().map_err(|e| local_failure(path, e))?;
        Ok(Self {
            out: Mutex::new(BufWriter::new(file)),
        })
    }

    /// Writes the lines of one moment. A trace that cannot be written does not stop a transfer.
    pub(crate) fn write(&self, snapshot: &TraceSample<'_>) {
        let mut out = self.out();
        for sample in snapshot.streams {
            line(&mut *out, &lines::stream(snapshot, sample));
        }
        line(&mut *out, &lines::transfer(snapshot));
        flush(&mut *out);
    }

    /// Writes what was decided about the buffers of `file` at `time` since the run began.
    pub(crate) fn decided(&self, time: Duration, file: &str, decision: &BufferDecision) {
        let mut out = self.out();
        line(&mut *out, &lines::decision(time, file, decision));
        flush(&mut *out);
    }

    /// Writes what was decided about the streams of `file` at `time` since the run began.
    pub(crate) fn streams_decided(
        &self,
        time: Duration,
        file: &str,
        decision: &auto::TransferDecision,
    ) {
        let mut out = self.out();
        line(&mut *out, &lines::stream_decision(time, file, decision));
        flush(&mut *out);
    }

    fn out(&self) -> MutexGuard<'_, BufWriter<File>> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn line(out: &mut impl Write, value: &impl Serialize) {
    let written = serde_json::to_writer(&mut *out, value).map_err(io::Error::from);
    if let Err(e) = written.and_then(|()| out.write_all(b"\n")) {
        tracing::debug!("trace: {e}");
    }
}

fn flush(out: &mut impl Write) {
    if let Err(e) = out.flush() {
        tracing::debug!("trace: {e}");
    }
}

#[cfg(test)]
mod tests;
