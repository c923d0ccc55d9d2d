//! Progress of the files in flight: totals for progress events and samples for traces.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use data::job::TransferControl;
use parking_lot::Mutex;
use tune::forecast::ExpectedRate;
use tune::limiter::Limiter;
use tune::sample::TcpSample;
use tune::sizing;
use tune::streams::auto;

use crate::events::MovingFile;
use ftp::socket_stats;

/// Progress of all files of a batch.
#[derive(Debug, Default)]
pub(crate) struct BatchMeter {
    /// Bytes moved again because they arrived wrong.
    resent: AtomicU64,
    active: Mutex<Vec<Arc<FileMeter>>>,
    /// Bytes moved for files that are finished.
    moved: AtomicU64,
    /// Safe bytes of files that are finished.
    safe: AtomicU64,
    /// Bytes at the destinations of files that are finished.
    done: AtomicU64,
    /// Bytes of files that are finished which did not move: the file was left alone, or failed.
    left_out: AtomicU64,
    /// Tuning decisions about files that are finished.
    decided: Mutex<Vec<FileDecision>>,
    /// The rate to expect of the path, by what was known of it last.
    expected: Mutex<Option<ExpectedRate>>,
}

/// A tuning decision about one file's transfer.
#[derive(Debug)]
pub(crate) struct FileDecision {
    /// Name of the file, for traces.
    pub(crate) file: String,
    /// Time of the decision.
    pub(crate) at: Instant,
    /// The decision.
    pub(crate) decision: TuningDecision,
}

/// A tuning decision.
#[derive(Debug)]
pub(crate) enum TuningDecision {
    /// About a stream's buffers.
    Buffers(sizing::BufferDecision),
    /// About the streams: number, congestion control, pacing.
    Streams(auto::TransferDecision),
}

/// Totals at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ProgressTotals {
    /// Bytes moved in this run.
    pub(crate) moved: u64,
    /// Safe bytes, resumed ones included.
    pub(crate) safe: u64,
    /// Bytes at the destinations, as far as is known.
    pub(crate) done: u64,
    /// Bytes of files that ended without them.
    pub(crate) left_out: u64,
    /// Open streams.
    pub(crate) streams: u64,
}

/// Progress of one file in flight.
#[derive(Debug)]
pub(crate) struct FileMeter {
    /// Name of the file, for traces.
    pub(crate) name: String,
    /// Its size, if known.
    size: Option<u64>,
    /// Of files that move together: where the bytes of each one end. Ascending.
    ends: Vec<u64>,
    state: Mutex<FileMeterState>,
}

#[derive(Debug, Default)]
struct FileMeterState {
    /// Safe bytes at the destination.
    safe: SafeByteCount,
    /// Safe bytes when the running attempt began.
    base: u64,
    /// The running attempt succeeded: all its bytes are safe.
    confirmed: bool,
    /// Bytes moved by earlier attempts.
    earlier: u64,
    /// Control block of the running attempt.
    control: Option<Arc<TransferControl>>,
    /// Bytes that the servers of a third-party transfer reported.
    reported: u64,
    /// Decisions of earlier attempts.
    decided: Vec<(Instant, TuningDecision)>,
}

/// Counts the bytes that are safe at the destination, which `--resume` would build on.
#[derive(Default)]
pub(crate) struct SafeByteCount(Option<Box<dyn Fn() -> u64 + Send + Sync>>);

impl SafeByteCount {
    /// Counts by a function: bytes known here or reported by the server.
    pub(crate) fn from_fn(bytes: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(bytes)))
    }

    /// Counts a put in MODE S that continues after `before` bytes. The server reports nothing
    /// before the end, so bytes that its kernel acknowledged count as safe. A running server stores
    /// them whatever happens at this end.
    pub(crate) fn acknowledged(control: &Arc<TransferControl>, before: u64) -> Self {
        let (control, max_acknowledged) = (Arc::clone(control), AtomicU64::new(0));
        Self::from_fn(move || {
            let streams = control.sample_streams();
            // tcpi_bytes_acked counts the SYN of a connection that this end opened, which takes one
            // sequence number (RFC 9293 section 3.4).
            let payload = streams.iter().map(|s| s.bytes_acked.saturating_sub(1));
            let now = payload.sum::<u64>().min(control.bytes());
            // Closed connections are missing from the sample, so the count must not decrease.
            before + max_acknowledged.fetch_max(now, Ordering::Relaxed).max(now)
        })
    }

    fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |count| count())
    }
}

impl std::fmt::Debug for SafeByteCount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SafeByteCount").field(&self.bytes()).finish()
    }
}

impl BatchMeter {
    /// Begins a file of `size` bytes, if known. It counts in the totals until the guard is dropped.
    pub(crate) fn begin_file(self: &Arc<Self>, name: String, size: Option<u64>) -> FileMeterGuard {
        self.begin(name, size, Vec::new())
    }

    /// Begins files of these sizes that move together, one behind the other.
    pub(crate) fn begin_files(
        self: &Arc<Self>,
        name: String,
        sizes: impl Iterator<Item = u64>,
    ) -> FileMeterGuard {
        let ends = sizes.scan(0_u64, |end, size| {
            *end = end.saturating_add(size);
            Some(*end)
        });
        let ends: Vec<u64> = ends.collect();
        let total = ends.last().copied();
        self.begin(name, total, ends)
    }

    fn begin(self: &Arc<Self>, name: String, size: Option<u64>, ends: Vec<u64>) -> FileMeterGuard {
        let file = Arc::new(FileMeter {
            name,
            size,
            ends,
            state: Mutex::default(),
        });
        self.active.lock().push(Arc::clone(&file));
        FileMeterGuard {
            meter: Arc::clone(self),
            file,
        }
    }

    /// Notes the rate to expect of the path.
    pub(crate) fn expect(&self, rate: ExpectedRate) {
        *self.expected.lock() = Some(rate);
    }

    /// The rate to expect of the path.
    pub(crate) fn expected(&self) -> Option<ExpectedRate> {
        *self.expected.lock()
    }

    /// Counts bytes that are moved again because they arrived wrong.
    pub(crate) fn add_resent(&self, bytes: u64) {
        self.resent.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that were moved again because they arrived wrong.
    pub(crate) fn resent(&self) -> u64 {
        self.resent.load(Ordering::Relaxed)
    }

    /// Current totals.
    pub(crate) fn totals(&self) -> ProgressTotals {
        // A file that ends moves its bytes into the sums under this lock, so none is missed or
        // counted twice.
        let active = self.active.lock();
        let mut totals = ProgressTotals {
            moved: self.moved.load(Ordering::Relaxed),
            safe: self.safe.load(Ordering::Relaxed),
            done: self.done.load(Ordering::Relaxed),
            left_out: self.left_out.load(Ordering::Relaxed),
            streams: 0,
        };
        for file in active.iter() {
            totals.moved += file.moved();
            totals.safe += file.safe();
            totals.done += file.done();
            totals.streams += file.streams();
        }
        totals
    }

    /// Takes the decisions since the last call, in order within each file.
    pub(crate) fn take_decisions(&self) -> Vec<FileDecision> {
        let mut all = std::mem::take(&mut *self.decided.lock());
        for file in self.active.lock().iter() {
            file.drain_decisions(&mut all);
        }
        all
    }

    /// The files in flight.
    pub(crate) fn active(&self) -> Vec<Arc<FileMeter>> {
        self.active.lock().clone()
    }
}

/// Keeps a file in the totals. The file's final numbers stay in the totals after the drop.
#[derive(Debug)]
pub(crate) struct FileMeterGuard {
    meter: Arc<BatchMeter>,
    file: Arc<FileMeter>,
}

impl std::ops::Deref for FileMeterGuard {
    type Target = FileMeter;

    fn deref(&self) -> &FileMeter {
        &self.file
    }
}

impl Drop for FileMeterGuard {
    fn drop(&mut self) {
        let mut active = self.meter.active.lock();
        active.retain(|file| !Arc::ptr_eq(file, &self.file));
        self.file.drain_decisions(&mut self.meter.decided.lock());
        let relaxed = Ordering::Relaxed;
        self.meter.moved.fetch_add(self.file.moved(), relaxed);
        self.meter.safe.fetch_add(self.file.safe(), relaxed);
        let done = self.file.done();
        self.meter.done.fetch_add(done, relaxed);
        let left = self.file.size.unwrap_or(0).saturating_sub(done);
        self.meter.left_out.fetch_add(left, relaxed);
    }
}

impl FileMeter {
    /// Begins an attempt.
    pub(crate) fn begin_attempt(&self, control: Arc<TransferControl>, safe: SafeByteCount) {
        let mut state = self.state.lock();
        state.collect_decisions();
        state.earlier += state.current();
        state.reported = 0;
        state.confirmed = false;
        // Taken now, because the count may already include resumed bytes.
        state.base = safe.bytes();
        state.safe = safe;
        state.control = Some(control);
    }

    /// The running attempt succeeded: all bytes that it moved are safe.
    pub(crate) fn confirm_attempt(&self) {
        self.state.lock().confirmed = true;
    }

    /// The running attempt was refused before it began: bytes that it handed to the kernel were not
    /// stored.
    pub(crate) fn discard_attempt(&self) {
        let mut state = self.state.lock();
        state.collect_decisions();
        state.control = None;
        state.reported = 0;
    }

    /// Records the bytes that a third-party or local copy has moved in this attempt.
    pub(crate) fn report_bytes(&self, bytes: u64) {
        self.state.lock().reported = bytes;
    }

    /// Bytes moved by all attempts.
    pub(crate) fn moved(&self) -> u64 {
        let state = self.state.lock();
        state.earlier + state.current()
    }

    /// Bytes that a later run would find. Of files that move together, none before all are confirmed.
    fn safe(&self) -> u64 {
        let state = self.state.lock();
        match state.confirmed {
            true => state.base + state.current(),
            false if self.ends.is_empty() => state.safe.bytes(),
            false => 0,
        }
    }

    /// Bytes at the destination, as far as is known: safe ones, and those that servers reported.
    fn done(&self) -> u64 {
        let state = self.state.lock();
        match state.confirmed {
            true => state.base + state.current(),
            false => state.safe.bytes().max(state.base + state.reported),
        }
    }

    /// Of files that move together, those whose bytes have arrived, as far as their number tells.
    pub(crate) fn arrived_files(&self) -> u64 {
        match self.done() {
            0 => 0,
            done => self.ends.partition_point(|end| *end <= done) as u64,
        }
    }

    /// How far the file is, for people.
    pub(crate) fn shown(&self) -> MovingFile {
        MovingFile {
            source: self.name.clone(),
            bytes: self.size,
            done: self.done(),
        }
    }

    fn streams(&self) -> u64 {
        let state = self.state.lock();
        state.control.as_ref().map_or(0, |c| c.streams())
    }

    fn drain_decisions(&self, decisions: &mut Vec<FileDecision>) {
        let mut state = self.state.lock();
        state.collect_decisions();
        decisions.extend(state.decided.drain(..).map(|(at, decision)| FileDecision {
            file: self.name.clone(),
            at,
            decision,
        }));
    }

    /// The limiter of this file with these streams: as found by the tuning policy, otherwise
    /// derived from one sample.
    pub(crate) fn limiter(&self, streams: &[TcpSample]) -> Limiter {
        let policy_limiter = self.state.lock().control.as_ref().and_then(|c| c.limiter());
        policy_limiter.unwrap_or_else(|| socket_stats::limiter(streams))
    }

    /// TCP_INFO samples of this file's streams.
    pub(crate) fn sample(&self) -> Vec<TcpSample> {
        let control = self.state.lock().control.clone();
        control.map_or_else(Vec::new, |c| c.sample_streams())
    }
}

impl FileMeterState {
    fn current(&self) -> u64 {
        let local = self.control.as_ref().map_or(0, |c| c.bytes());
        // Third-party bytes do not pass the control block.
        local.max(self.reported)
    }

    /// Moves the decisions of the running attempt to the list.
    fn collect_decisions(&mut self) {
        let Some(control) = &self.control else {
            return;
        };
        let started_at = control.started_at().unwrap_or_else(Instant::now);
        let streams = control.take_stream_decisions().into_iter();
        let streams = streams.map(|d| (started_at + d.at, TuningDecision::Streams(d)));
        let buffers = control.take_decisions().into_iter();
        let buffers = buffers.map(|d| (started_at + d.at, TuningDecision::Buffers(d)));
        let first_new = self.decided.len();
        self.decided.extend(streams.chain(buffers));
        // The two lists are sorted by time each, but not relative to each other.
        self.decided[first_new..].sort_by_key(|(at, _)| *at);
    }
}

#[cfg(test)]
mod tests;
