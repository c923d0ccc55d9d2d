//! State that the streams of one transfer share: the reason to stop, the stall clock, the rate
//! limit, and the statistics that become the report.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::PollFlags;
use tune::limiter::{LimiterVerdict, Role};
use tune::{Evidence, PathRate};

use crate::control::TransferControl;
use crate::error::DataError;
use crate::job::TransferReport;
use crate::os::wake::{self, WakeEvent};
use crate::rate::RateLimit;
use crate::settings::TransferSettings;
use crate::stall_clock::StallClock;
use crate::stream_set::StreamSet;

/// Most bytes that one system call moves: enough to make calls cheap, and few enough for smooth
/// progress figures.
pub(crate) const MAX_STEP: usize = 1 << 20;

/// One transfer while it runs.
#[derive(Debug)]
pub(crate) struct ActiveTransfer {
    control: Arc<TransferControl>,
    clock: StallClock,
    begin: Instant,
    rate: Option<RateLimit>,
    step: usize,
    moved: AtomicU64,
    /// Time that streams slept for the rate limit, nanoseconds.
    throttled: AtomicU64,
    stop: Arc<WakeEvent>,
    stopped: AtomicBool,
    /// Everything up to the early end is stored.
    ended_early: AtomicBool,
    failure: Mutex<Option<DataError>>,
    evidence: Mutex<Evidence>,
    /// The streams of a MODE E sender.
    stream_set: StreamSet,
    /// Streams in use now.
    streams: AtomicU64,
    /// Bytes of this transfer that the peers of ended streams had acknowledged.
    acknowledged_before: AtomicU64,
    /// The most memory that the streams' sockets held at one moment, bytes.
    peak_memory: AtomicU64,
    remark: Mutex<Option<String>>,
    prior_use: Mutex<Option<String>>,
    first_connection: Mutex<Option<Instant>>,
}

impl ActiveTransfer {
    pub(crate) fn new(
        role: Role,
        settings: &TransferSettings,
        control: &Arc<TransferControl>,
    ) -> Result<Self, DataError> {
        let stop = WakeEvent::new().map_err(|e| DataError::setup("an event descriptor", e))?;
        let stop = Arc::new(stop);
        control.wake_on_cancel(&stop);
        let begin = Instant::now();
        control.note_begin(begin);
        Ok(Self {
            control: Arc::clone(control),
            clock: StallClock::new(settings.options.stall),
            begin,
            // With a rate limit, steps stay below the burst, so that pauses are short.
            step: settings
                .options
                .rate
                .as_ref()
                .map_or(MAX_STEP, |r| r.step().min(MAX_STEP)),
            rate: settings.options.rate.clone(),
            moved: AtomicU64::new(0),
            throttled: AtomicU64::new(0),
            stop,
            stopped: AtomicBool::new(false),
            ended_early: AtomicBool::new(false),
            failure: Mutex::new(None),
            evidence: Mutex::new(Evidence::for_role(role)),
            stream_set: StreamSet::default(),
            streams: AtomicU64::new(0),
            acknowledged_before: AtomicU64::new(0),
            peak_memory: AtomicU64::new(0),
            remark: Mutex::new(None),
            prior_use: Mutex::new(None),
            first_connection: Mutex::new(None),
        })
    }

    pub(crate) fn control(&self) -> &TransferControl {
        &self.control
    }

    pub(crate) fn clock(&self) -> &StallClock {
        &self.clock
    }

    /// Set when the transfer must stop.
    pub(crate) fn stop_wake(&self) -> &Arc<WakeEvent> {
        &self.stop
    }

    /// When the transfer began to make or accept connections.
    pub(crate) fn begin(&self) -> Instant {
        self.begin
    }

    /// Most bytes to move in one step.
    pub(crate) fn step(&self) -> usize {
        self.step
    }

    /// Fails with [`DataError::Aborted`] when the transfer was cancelled or another stream failed.
    pub(crate) fn check(&self) -> Result<(), DataError> {
        if self.stopped.load(Ordering::SeqCst) || self.control.is_cancelled() {
            return Err(DataError::Aborted);
        }
        Ok(())
    }

    /// Stops all streams with success: everything up to the early end is stored
    /// ([`TransferControl::end_at`]).
    pub(crate) fn end_early(&self) {
        // In the same order as `fail`: errors that follow are consequences of the end.
        if self.failure.lock().is_none() {
            self.ended_early.store(true, Ordering::SeqCst);
        }
        self.stopped.store(true, Ordering::SeqCst);
        self.stop.wake();
    }

    /// Whether the transfer has ended by [`ActiveTransfer::end_early`].
    pub(crate) fn has_ended_early(&self) -> bool {
        self.ended_early.load(Ordering::SeqCst)
    }

    /// Stops all streams. The first error is the transfer's error.
    pub(crate) fn fail(&self, error: DataError) {
        if self.has_ended_early() {
            return;
        }
        // Later errors are consequences of the first.
        self.failure.lock().get_or_insert(error);
        self.stopped.store(true, Ordering::SeqCst);
        self.stop.wake();
    }

    /// Records `n` payload bytes that passed the wire.
    pub(crate) fn add_moved(&self, n: u64) {
        self.moved.fetch_add(n, Ordering::Relaxed);
        self.control.add_bytes(n);
    }

    /// Takes `n` bytes from the rate limit and sleeps as long as it requires.
    pub(crate) fn throttle(&self, n: usize) -> Result<(), DataError> {
        let Some(rate) = &self.rate else {
            return Ok(());
        };
        let begin = Instant::now();
        let slept = self.sleep(rate.take(n as u64));
        let time = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.throttled.fetch_add(time, Ordering::Relaxed);
        slept
    }

    /// Sleeps without counting as stalled. Ends early when the transfer must stop.
    fn sleep(&self, duration: Duration) -> Result<(), DataError> {
        // The pause is this end's own, so the stall clock stops.
        let _hold = self.clock.pause();
        let until = Instant::now() + duration;
        loop {
            self.check()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            wake::wait([(self.stop.as_fd(), PollFlags::IN)], left)
                .map_err(|e| DataError::setup("poll(2)", e))?;
        }
    }

    /// Records that a stream starts.
    pub(crate) fn on_stream_start(&self) {
        self.note_connection();
        let active = self.streams.fetch_add(1, Ordering::Relaxed) + 1;
        let mut evidence = self.evidence.lock();
        evidence.streams += 1;
        evidence.peak_streams = evidence.peak_streams.max(active);
    }

    /// Records a connection. Only the first one is progress: a peer that connects repeatedly and
    /// sends nothing stalls the transfer.
    pub(crate) fn note_connection(&self) {
        self.first_connection.lock().get_or_insert_with(|| {
            self.clock.note_progress();
            Instant::now()
        });
    }

    /// Records that a stream ends, whose peer acknowledged so many bytes of this transfer.
    pub(crate) fn on_stream_end(&self, acknowledged: u64) {
        self.acknowledged_before
            .fetch_add(acknowledged, Ordering::Relaxed);
        self.streams.fetch_sub(1, Ordering::Relaxed);
    }

    /// Payload bytes handed to the kernel or taken from it so far.
    pub(crate) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// Bytes of this transfer that the peers of ended streams had acknowledged.
    pub(crate) fn acknowledged_before(&self) -> u64 {
        self.acknowledged_before.load(Ordering::Relaxed)
    }

    /// See [`StreamSet`].
    pub(crate) fn stream_set(&self) -> &StreamSet {
        &self.stream_set
    }

    /// Records the number of active streams towards the end.
    pub(crate) fn note_streams(&self, streams: usize) {
        self.evidence.lock().final_streams = streams as u64;
    }

    /// See [`ActiveTransfer::note_streams`]; `None` if it was never recorded.
    pub(crate) fn final_stream_count(&self) -> Option<u32> {
        let last = self.evidence.lock().final_streams;
        u32::try_from(last).ok().filter(|last| *last > 0)
    }

    /// Records the congestion control of a stream at its end.
    pub(crate) fn note_congestion(&self, name: Option<String>) {
        self.evidence.lock().congestion_control = name;
    }

    /// Records the memory of all streams' sockets at this moment, bytes.
    pub(crate) fn note_memory(&self, bytes: u64) {
        self.peak_memory.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Sets the report's remark about host limits. The first one is kept.
    pub(crate) fn note_remark(&self, remark: String) {
        self.remark.lock().get_or_insert(remark);
    }

    /// Sets the report's verdict on the limiter.
    pub(crate) fn note_verdict(&self, verdict: LimiterVerdict) {
        self.evidence.lock().verdict = Some(verdict);
    }

    /// Notes what the tuner knows of the path at the end: its pacing rate, bytes per second, and the rate that the path carried.
    pub(crate) fn note_path(&self, pacing_rate: Option<u64>, path_rate: Option<PathRate>) {
        let mut evidence = self.evidence.lock();
        (evidence.pacing_rate, evidence.path_rate) = (pacing_rate, path_rate);
    }

    /// Sets the report's account of the prior knowledge.
    pub(crate) fn note_prior_use(&self, text: String) {
        *self.prior_use.lock() = Some(text);
    }

    /// Adds time in which round trips of streams were long, summed over the streams.
    pub(crate) fn add_long_rtt_time(&self, time: Duration) {
        self.evidence.lock().long_rtt_time += time;
    }

    /// Adds the evidence of one stream.
    pub(crate) fn add_stream(&self, one: &Evidence) {
        self.evidence.lock().add_stream(one);
    }

    /// The result of the transfer, once all streams have ended with `result`.
    pub(crate) fn finish(
        self,
        result: Result<Option<String>, DataError>,
    ) -> Result<TransferReport, DataError> {
        let mut evidence = self.evidence.into_inner();
        evidence.bytes = self.moved.into_inner();
        evidence.throttle_time = Duration::from_nanos(self.throttled.into_inner());
        // The time without a connection says nothing about the path.
        evidence.elapsed = self
            .first_connection
            .lock()
            .map_or(Duration::ZERO, |first| first.elapsed());
        evidence.socket_memory_bytes = self.peak_memory.into_inner();
        if evidence.final_streams == 0 {
            // Nobody recorded the last number: assume all streams.
            evidence.final_streams = evidence.peak_streams;
        }
        self.control.note_evidence(&evidence);
        // A cancel hides the errors that it caused.
        match (self.failure.into_inner(), result) {
            (Some(_), _) | (_, Err(_)) if self.control.is_cancelled() => Err(DataError::Aborted),
            (Some(first), _) => Err(first),
            (None, Err(error)) => Err(error),
            (None, Ok(checksum)) => Ok(TransferReport {
                stored: self.control.stored(),
                checksum,
                shares_blocks: false,
                ended_early: self.ended_early.into_inner(),
                evidence,
                remark: self.remark.lock().take(),
                prior_use: self.prior_use.lock().take(),
            }),
        }
    }
}
