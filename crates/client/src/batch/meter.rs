//! How far the files in flight are: totals for progress lines and samples for traces.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use data::job::{StreamSample, TransferControl};
use tune::limiter::Limiter;
use tune::sizing;
use tune::streams::auto;

use crate::socket_stats;

/// All files of a batch.
#[derive(Debug, Default)]
pub(crate) struct BatchMeter {
    active: Mutex<Vec<Arc<FileMeter>>>,
    /// Bytes moved for files that are no longer active.
    moved: AtomicU64,
    /// Safe bytes of files that are no longer active.
    safe: AtomicU64,
    /// What was decided about files that are no longer active.
    decided: Mutex<Vec<FileDecision>>,
}

/// A decision about a file's transfer.
#[derive(Debug)]
pub(crate) struct FileDecision {
    /// For traces.
    pub(crate) file: String,
    /// When it was made.
    pub(crate) at: Instant,
    /// What it is.
    pub(crate) decision: TuningDecision,
}

/// What was decided.
#[derive(Debug)]
pub(crate) enum TuningDecision {
    /// About a stream's buffers.
    Buffers(sizing::BufferDecision),
    /// About the streams themselves.
    Streams(auto::TransferDecision),
}

/// Totals at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ProgressTotals {
    /// Bytes moved in this run.
    pub(crate) moved: u64,
    /// Bytes safe in all.
    pub(crate) safe: u64,
    /// Streams open.
    pub(crate) streams: u64,
}

/// One file in flight.
#[derive(Debug)]
pub(crate) struct FileMeter {
    /// For traces.
    pub(crate) name: String,
    state: Mutex<FileMeterState>,
}

#[derive(Debug, Default)]
struct FileMeterState {
    /// Safe at the destination.
    safe: SafeByteCount,
    /// Safe when the running attempt began.
    base: u64,
    /// The running attempt ended well: everything is safe.
    confirmed: bool,
    /// Moved by earlier attempts.
    earlier: u64,
    /// The running attempt.
    control: Option<Arc<TransferControl>>,
    /// Bytes that the servers of a third-party transfer reported.
    reported: u64,
    /// Decisions of attempts that are over.
    decided: Vec<(Instant, TuningDecision)>,
}

/// How many bytes are safe at the destination: what `--resume` would build on.
#[derive(Default)]
pub(crate) struct SafeByteCount(Option<Box<dyn Fn() -> u64 + Send + Sync>>);

impl SafeByteCount {
    /// As known here or told by the server.
    pub(crate) fn told(bytes: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(bytes)))
    }

    /// A put in MODE S, `before` bytes on: its server tells nothing until the end, so that what
    /// its kernel has acknowledged has to do. A server that lives stores that, whatever happens
    /// here.
    pub(crate) fn acknowledged(control: &Arc<TransferControl>, before: u64) -> Self {
        let (control, most) = (Arc::clone(control), AtomicU64::new(0));
        Self::told(move || {
            let streams = control.sample_streams();
            // The kernel counts the connection's SYN as a byte.
            let payload = streams.iter().map(|s| s.info.bytes_acked.saturating_sub(1));
            let now = payload.sum::<u64>().min(control.bytes());
            // A connection that is closed is not in the sample any more.
            before + most.fetch_max(now, Ordering::Relaxed).max(now)
        })
    }

    fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |count| count())
    }
}

impl std::fmt::Debug for SafeByteCount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Safe").field(&self.bytes()).finish()
    }
}

impl BatchMeter {
    /// A file begins; it is in the totals until the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>, name: String) -> FileMeterGuard {
        let file = Arc::new(FileMeter {
            name,
            state: Mutex::default(),
        });
        lock(&self.active).push(Arc::clone(&file));
        FileMeterGuard {
            meter: Arc::clone(self),
            file,
        }
    }

    /// Totals now.
    pub(crate) fn totals(&self) -> ProgressTotals {
        let mut totals = ProgressTotals {
            moved: self.moved.load(Ordering::Relaxed),
            safe: self.safe.load(Ordering::Relaxed),
            streams: 0,
        };
        for file in lock(&self.active).iter() {
            totals.moved += file.moved();
            totals.safe += file.safe();
            totals.streams += file.streams();
        }
        totals
    }

    /// What was decided since the last call, by each file in its order.
    pub(crate) fn decisions(&self) -> Vec<FileDecision> {
        let mut all = std::mem::take(&mut *lock(&self.decided));
        for file in lock(&self.active).iter() {
            file.drain_decisions(&mut all);
        }
        all
    }

    /// The files in flight now.
    pub(crate) fn active(&self) -> Vec<Arc<FileMeter>> {
        lock(&self.active).clone()
    }
}

/// A file's place in the totals.
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
        let mut active = lock(&self.meter.active);
        active.retain(|file| !Arc::ptr_eq(file, &self.file));
        self.file.drain_decisions(&mut lock(&self.meter.decided));
        let relaxed = Ordering::Relaxed;
        self.meter.moved.fetch_add(self.file.moved(), relaxed);
        self.meter.safe.fetch_add(self.file.safe(), relaxed);
    }
}

impl FileMeter {
    /// An attempt begins.
    pub(crate) fn attempt(&self, control: Arc<TransferControl>, safe: SafeByteCount) {
        let mut state = lock(&self.state);
        state.collect_decisions();
        state.earlier += state.current();
        state.reported = 0;
        state.confirmed = false;
        state.base = safe.bytes();
        state.safe = safe;
        state.control = Some(control);
    }

    /// The running attempt ended well: all that it moved is safe.
    pub(crate) fn confirm(&self) {
        lock(&self.state).confirmed = true;
    }

    /// The running attempt was refused before it began: what it handed to the kernel went nowhere.
    pub(crate) fn discard(&self) {
        let mut state = lock(&self.state);
        state.collect_decisions();
        state.control = None;
        state.reported = 0;
    }

    /// A third-party or local copy has moved so much in this attempt.
    pub(crate) fn report(&self, bytes: u64) {
        lock(&self.state).reported = bytes;
    }

    /// Bytes moved by all attempts.
    pub(crate) fn moved(&self) -> u64 {
        let state = lock(&self.state);
        state.earlier + state.current()
    }

    fn safe(&self) -> u64 {
        let state = lock(&self.state);
        match state.confirmed {
            true => state.base + state.current(),
            false => state.safe.bytes(),
        }
    }

    fn streams(&self) -> u64 {
        let state = lock(&self.state);
        state.control.as_ref().map_or(0, |c| c.streams())
    }

    fn drain_decisions(&self, into: &mut Vec<FileDecision>) {
        let mut state = lock(&self.state);
        state.collect_decisions();
        into.extend(state.decided.drain(..).map(|(at, decision)| FileDecision {
            file: self.name.clone(),
            at,
            decision,
        }));
    }

    /// What limits this file, whose streams are these: what the policy that watches them found, or else
    /// what a look at them tells.
    pub(crate) fn limiter(&self, streams: &[StreamSample]) -> Limiter {
        let watched = lock(&self.state).control.as_ref().and_then(|c| c.limiter());
        watched.unwrap_or_else(|| socket_stats::limiter(streams))
    }

    /// The kernel's view of this file's streams.
    pub(crate) fn sample(&self) -> Vec<StreamSample> {
        let control = lock(&self.state).control.clone();
        control.map_or_else(Vec::new, |c| c.sample_streams())
    }
}

impl FileMeterState {
    fn current(&self) -> u64 {
        let local = self.control.as_ref().map_or(0, |c| c.bytes());
        local.max(self.reported)
    }

    /// Takes the running attempt's decisions.
    fn collect_decisions(&mut self) {
        let Some(control) = &self.control else {
            return;
        };
        let begun = control.started_at().unwrap_or_else(Instant::now);
        let streams = control.take_stream_decisions().into_iter();
        let streams = streams.map(|d| (begun + d.at, TuningDecision::Streams(d)));
        let buffers = control.take_decisions().into_iter();
        let buffers = buffers.map(|d| (begun + d.at, TuningDecision::Buffers(d)));
        let fresh = self.decided.len();
        self.decided.extend(streams.chain(buffers));
        self.decided[fresh..].sort_by_key(|(at, _)| *at);
    }
}

/// Counters are whole after every statement, so a panic elsewhere does not spoil them.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_outlive_files_and_count_every_attempt() {
        let meter = Arc::new(BatchMeter::default());
        let one = meter.begin("one".to_owned());
        let told = Arc::new(AtomicU64::new(100));
        let safe = || {
            let told = Arc::clone(&told);
            SafeByteCount::told(move || told.load(Ordering::Relaxed))
        };
        one.attempt(Arc::new(TransferControl::new()), safe());
        one.report(30);
        let totals = meter.totals();
        // Moved is not safe.
        assert_eq!((totals.moved, totals.safe), (30, 100));
        told.store(120, Ordering::Relaxed);
        assert_eq!(meter.totals().safe, 120);
        one.attempt(Arc::new(TransferControl::new()), safe());
        one.report(5);
        assert_eq!(meter.totals().safe, 120);
        one.confirm();
        let totals = meter.totals();
        assert_eq!((totals.moved, totals.safe), (35, 125));
        drop(one);
        assert_eq!(meter.totals(), totals);
        assert!(meter.active().is_empty());
    }

    #[test]
    fn what_was_refused_before_it_began_moved_nothing() {
        let meter = Arc::new(BatchMeter::default());
        let one = meter.begin("one".to_owned());
        one.attempt(Arc::new(TransferControl::new()), SafeByteCount::told(|| 7));
        one.report(30);
        one.discard();
        assert_eq!(meter.totals().moved, 0);
    }

    #[test]
    fn what_was_decided_about_streams_outlives_the_attempt_and_the_file() {
        let meter = Arc::new(BatchMeter::default());
        let one = meter.begin("one".to_owned());
        let reasons = || -> Vec<String> {
            let decided = meter.decisions().into_iter();
            let reasons = decided.map(|d| match d.decision {
                TuningDecision::Streams(decision) => decision.reason,
                TuningDecision::Buffers(decision) => decision.reason,
            });
            reasons.collect()
        };
        for reason in ["first", "second", "third"] {
            let control = Arc::new(TransferControl::new());
            control.note_stream_decision(auto::TransferDecision {
                at: std::time::Duration::ZERO,
                setting: Some(auto::TransferSetting::Streams(2)),
                limiter: Limiter::Loss,
                reason: reason.to_owned(),
            });
            one.attempt(control, SafeByteCount::default());
            if reason == "second" {
                assert_eq!(reasons(), ["first", "second"]);
            }
        }
        drop(one);
        assert_eq!(reasons(), ["third"]);
        assert!(reasons().is_empty());
    }
}
