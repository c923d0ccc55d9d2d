//! The tuning thread of a transfer: waits for input and for the next sample, and drives both tuners.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::time::{ClockId, clock_gettime};
use tune::diagnosis::has_long_round_trip;
use tune::limiter::Role;
use tune::sample::StreamId;
use tune::sizing::BufferBounds;

use super::buffer_choice::buffer_policy;
use super::buffers::{BufferInput, BufferPolicy};
use super::streams::StreamTuning;
use crate::error::DataError;
use crate::os::wake::{self, WakeEvent};
use crate::settings::TransferSettings;
use crate::stream::DataStream;
use crate::transfer::ActiveTransfer;
use crate::tuning_sample::{SampledStream, TuningSample};

/// Longest wait: a DRS channel has deadlines of its own.
const MAX_WAIT: Duration = Duration::from_millis(250);

/// Sampling may take one part in this many of a processor's time ...
const CPU_DIVISOR: u32 = 100;

/// ... beyond this allowance for the few samples of a short transfer.
const CPU_ALLOWANCE: Duration = Duration::from_millis(2);

/// Runs `work` (the streams) with its buffers sized as `settings.options.buffers` says. `max_bytes`
/// is the most that it will move, if that is known. No failure here fails the transfer: its
/// buffers then stay as they are.
pub(crate) fn run_with_tuning<T>(
    transfer: &ActiveTransfer,
    settings: &TransferSettings,
    role: Role,
    max_bytes: Option<u64>,
    work: impl FnOnce() -> Result<T, DataError>,
) -> Result<T, DataError> {
    // A DRS channel must be served for any size, because the peer may not know the size.
    let done = if is_worth_a_thread(max_bytes) || settings.drs.is_some() {
        let tuning = match role {
            Role::Sender => StreamTuning::for_transfer(transfer, settings, max_bytes),
            Role::Receiver => None,
        };
        run_with_policy(transfer, role, buffer_policy(settings, role), tuning, work)
    } else {
        work()
    };
    transfer.control().notices().on_transfer_end();
    done
}

/// Whether a transfer of at most `max_bytes` needs the tuning thread: data within the initial
/// window needs neither larger buffers nor more streams.
pub(crate) fn is_worth_a_thread(max_bytes: Option<u64>) -> bool {
    max_bytes.is_none_or(|bytes| bytes > BufferBounds::default().initial)
}

/// Runs `work` with a thread that drives `policy` and `tuning`.
fn run_with_policy<T>(
    transfer: &ActiveTransfer,
    role: Role,
    policy: Box<dyn BufferPolicy>,
    tuning: Option<StreamTuning<'_>>,
    work: impl FnOnce() -> Result<T, DataError>,
) -> Result<T, DataError> {
    let wake_event = match WakeEvent::new() {
        Ok(wake_event) => Arc::new(wake_event),
        Err(error) => {
            tracing::warn!(%error, "cannot create an event descriptor: buffers are not sized");
            return work();
        }
    };
    transfer.control().notices().on_transfer_start(&wake_event);
    let is_over = AtomicBool::new(false);
    let stop = TuningStop {
        is_over: &is_over,
        wake_event: &wake_event,
    };
    std::thread::scope(|scope| {
        let watch = TuningThread::new(transfer, role, policy, tuning, &stop);
        let spawned = std::thread::Builder::new()
            .name("tuning".to_owned())
            .spawn_scoped(scope, || watch.run());
        let done = {
            // The thread must end also when the work panics.
            let _stop_guard = TuningStopGuard(&stop);
            work()
        };
        let ended = spawned.map(std::thread::ScopedJoinHandle::join);
        if !matches!(ended, Ok(Ok(()))) {
            tracing::warn!("the tuning thread failed: buffers were not sized to the end");
        }
        done
    })
}

/// The tuning of one transfer.
struct TuningThread<'t> {
    transfer: &'t ActiveTransfer,
    role: Role,
    policy: Box<dyn BufferPolicy>,
    tuning: Option<StreamTuning<'t>>,
    stop: &'t TuningStop<'t>,
    /// Streams of the last sample, and its time.
    known: Vec<StreamId>,
    sampled_at: Duration,
    /// When the next sample is due; `None` without a stream.
    next: Option<Instant>,
}

impl<'t> TuningThread<'t> {
    fn new(
        transfer: &'t ActiveTransfer,
        role: Role,
        policy: Box<dyn BufferPolicy>,
        tuning: Option<StreamTuning<'t>>,
        stop: &'t TuningStop<'t>,
    ) -> Self {
        Self {
            transfer,
            role,
            policy,
            tuning,
            stop,
            known: Vec::new(),
            sampled_at: Duration::ZERO,
            next: None,
        }
    }

    /// Runs until the streams have ended.
    fn run(mut self) {
        while !self.stop.is_over.load(Ordering::SeqCst) {
            if let Err(error) = self.wait() {
                tracing::warn!(%error, "buffers are no longer sized");
                break;
            }
            self.policy.on_input(&BufferInput {
                at: self.now(),
                control: self.transfer.control(),
            });
            self.sample_if_due();
        }
        if let Some(remark) = self.policy.finish() {
            self.transfer.note_remark(remark);
        }
        if let Some(tuning) = &mut self.tuning {
            tuning.end();
        }
    }

    fn now(&self) -> Duration {
        self.transfer.begin().elapsed()
    }

    fn wait(&self) -> std::io::Result<()> {
        let mut fds = vec![PollFd::new(self.stop.wake_event, PollFlags::IN)];
        for (fd, events) in self.policy.poll_fds() {
            fds.push(PollFd::from_borrowed_fd(fd, events));
        }
        let left = self.next.map_or(MAX_WAIT, |next| {
            next.saturating_duration_since(Instant::now())
        });
        wake::wait_any(&mut fds, left.min(MAX_WAIT))?;
        self.stop.wake_event.clear();
        Ok(())
    }

    /// Samples when it is due, and at once when a stream has joined.
    fn sample_if_due(&mut self) {
        // Read before the streams: one that ends in between must not be counted twice.
        let acknowledged_before = self.transfer.acknowledged_before();
        let streams = self.transfer.control().live_streams();
        let joined = streams.iter().any(|s| !self.known.contains(&s.id()));
        let due =
            self.policy.needs_sample() || self.next.is_some_and(|next| next <= Instant::now());
        if streams.is_empty() {
            self.known.clear();
            self.next = None;
            self.sampled_at = self.now();
            return;
        }
        // Known settings are applied at a stream's first sample, so a new stream does not wait.
        if !joined && !due {
            return;
        }
        self.known = streams.iter().map(|s| s.id()).collect();
        let sample = self.sample(streams);
        if self.role == Role::Receiver {
            // Since the sample before, most probably.
            let long = sample
                .streams
                .iter()
                .filter(|s| has_long_round_trip(&s.sample));
            let streams = u32::try_from(long.count()).unwrap_or(u32::MAX);
            let time = sample.at.saturating_sub(self.sampled_at);
            self.transfer
                .add_long_rtt_time(time.saturating_mul(streams));
            self.sampled_at = sample.at;
        }
        let mut due = MAX_WAIT;
        if !sample.streams.is_empty() {
            self.policy.on_sample(&sample);
            due = self.policy.next_due();
            if let Some(tuning) = &mut self.tuning {
                tuning.on_sample(&sample, acknowledged_before);
                due = due.min(tuning.due());
            }
        }
        // With many streams one sample may cost more than the policy's interval allows.
        self.next = Some(Instant::now() + due.max(required_pause(self.now())));
    }

    /// Samples every stream once.
    fn sample(&self, streams: Vec<Arc<DataStream>>) -> TuningSample<'t> {
        let at = self.now();
        let mut memory = 0;
        let mut sampled = Vec::with_capacity(streams.len());
        let active = streams.len();
        for stream in streams.into_iter().filter(|stream| !stream.is_carried()) {
            if let Ok(mut sample) = stream.sample() {
                memory += sample.socket_memory();
                sample.at = at;
                // A sender has nothing to read: the system call is saved.
                if self.role == Role::Receiver {
                    sample.readable = stream.readable_bytes().unwrap_or_default();
                    sample.largest_read = stream.take_largest_read();
                }
                sampled.push(SampledStream { stream, sample });
            }
        }
        self.transfer.note_memory(memory);
        if self.role == Role::Receiver {
            self.transfer.note_streams(active);
        }
        let notices = self.transfer.control().notices();
        TuningSample {
            at,
            streams: sampled,
            notices,
        }
    }
}

/// Tells the tuning thread that the work has ended. The event is set then, and when there is
/// something new.
struct TuningStop<'e> {
    is_over: &'e AtomicBool,
    wake_event: &'e WakeEvent,
}

/// Ends the tuning thread when it is dropped.
struct TuningStopGuard<'e>(&'e TuningStop<'e>);

impl Drop for TuningStopGuard<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
        self.0.wake_event.wake();
    }
}

/// How long the thread must pause until its processor time is within its share of `elapsed`.
fn required_pause(elapsed: Duration) -> Duration {
    let cpu_time = clock_gettime(ClockId::ThreadCPUTime);
    let cpu_time = Duration::try_from(cpu_time).unwrap_or_default();
    (cpu_time.saturating_sub(CPU_ALLOWANCE) * CPU_DIVISOR).saturating_sub(elapsed)
}
