//! The sizing thread: waits for input and for the next sample.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::time::{ClockId, clock_gettime};
use tune::limiter::Role;
use tune::sample::StreamId;

use super::SizingStop;
use super::policy::{BufferPolicy, SampledStream, SizingInput, SizingSample};
use super::stream_tuning::StreamTuning;
use crate::os::wake;
use crate::stream::DataStream;
use crate::transfer::ActiveTransfer;

/// Longest wait: a DRS channel has deadlines of its own.
const MAX_WAIT: Duration = Duration::from_millis(250);

/// Sampling may take one part in this many of a processor's time ...
const CPU_DIVISOR: u32 = 100;

/// ... beyond this allowance for the few samples of a short transfer.
const CPU_ALLOWANCE: Duration = Duration::from_millis(2);

/// The sizing of one transfer.
pub(super) struct SizingThread<'t> {
    transfer: &'t ActiveTransfer,
    role: Role,
    policy: Box<dyn BufferPolicy>,
    tuning: Option<StreamTuning<'t>>,
    stop: &'t SizingStop<'t>,
    /// Streams of the last sample.
    known: Vec<StreamId>,
    /// When the next sample is due; `None` without a stream.
    next: Option<Instant>,
}

impl<'t> SizingThread<'t> {
    pub(super) fn new(
        transfer: &'t ActiveTransfer,
        role: Role,
        policy: Box<dyn BufferPolicy>,
        tuning: Option<StreamTuning<'t>>,
        stop: &'t SizingStop<'t>,
    ) -> Self {
        Self {
            transfer,
            role,
            policy,
            tuning,
            stop,
            known: Vec::new(),
            next: None,
        }
    }

    /// Runs until the streams have ended.
    pub(super) fn run(mut self) {
        while !self.stop.is_over.load(Ordering::SeqCst) {
            if let Err(error) = self.wait() {
                tracing::warn!(%error, "buffers are no longer sized");
                break;
            }
            self.policy.on_input(&SizingInput {
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
        let due = self.next.is_some_and(|next| next <= Instant::now());
        if streams.is_empty() {
            self.known.clear();
            self.next = None;
            return;
        }
        // Known settings are applied at a stream's first sample, so a new stream does not wait.
        if !joined && !due {
            return;
        }
        self.known = streams.iter().map(|s| s.id()).collect();
        let sample = self.sample(streams);
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
    fn sample(&self, streams: Vec<Arc<DataStream>>) -> SizingSample<'t> {
        let at = self.now();
        let mut memory = 0;
        let mut sampled = Vec::with_capacity(streams.len());
        for stream in streams {
            if let Ok(mut sample) = stream.sample() {
                memory += sample.socket_memory();
                sample.at = at;
                // A sender has nothing to read: the system call is saved.
                if self.role == Role::Receiver {
                    sample.readable = stream.readable_bytes().unwrap_or_default();
                }
                sampled.push(SampledStream { stream, sample });
            }
        }
        self.transfer.note_memory(memory);
        if self.role == Role::Receiver {
            self.transfer.note_streams(sampled.len());
        }
        let notices = self.transfer.control().notices();
        SizingSample {
            at,
            streams: sampled,
            notices,
        }
    }
}

/// How long the thread must pause until its processor time is within its share of `elapsed`.
fn required_pause(elapsed: Duration) -> Duration {
    let cpu_time = clock_gettime(ClockId::ThreadCPUTime);
    let cpu_time = Duration::try_from(cpu_time).unwrap_or_default();
    (cpu_time.saturating_sub(CPU_ALLOWANCE) * CPU_DIVISOR).saturating_sub(elapsed)
}
