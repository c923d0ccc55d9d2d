//! The thread: waits for news and for the next look, and does nothing in between.

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
use super::tcp_sample::look;
use crate::os::wake;
use crate::stream::DataStream;
use crate::transfer::ActiveTransfer;

/// Longest sleep: a channel may have deadlines of its own.
const NAP: Duration = Duration::from_millis(250);

/// Looking may cost this part of a processor's time ...
const SHARE: u32 = 100;

/// ... beyond what it may always cost: a short transfer's few looks.
const ALLOWANCE: Duration = Duration::from_millis(2);

/// One transfer's sizing.
pub(super) struct SizingThread<'t> {
    transfer: &'t ActiveTransfer,
    role: Role,
    policy: Box<dyn BufferPolicy>,
    steering: Option<StreamTuning<'t>>,
    end: &'t SizingStop<'t>,
    /// Streams of the last look.
    known: Vec<StreamId>,
    /// When the next look is due; `None` while there is no stream.
    next: Option<Instant>,
}

impl<'t> SizingThread<'t> {
    pub(super) fn new(
        transfer: &'t ActiveTransfer,
        role: Role,
        policy: Box<dyn BufferPolicy>,
        steering: Option<StreamTuning<'t>>,
        end: &'t SizingStop<'t>,
    ) -> Self {
        Self {
            transfer,
            role,
            policy,
            steering,
            end,
            known: Vec::new(),
            next: None,
        }
    }

    /// Until the streams' work is over.
    pub(super) fn run(mut self) {
        while !self.end.over.load(Ordering::SeqCst) {
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
        if let Some(steering) = &mut self.steering {
            steering.end();
        }
    }

    fn now(&self) -> Duration {
        self.transfer.begin().elapsed()
    }

    fn wait(&self) -> std::io::Result<()> {
        let mut fds = vec![PollFd::new(self.end.bell, PollFlags::IN)];
        for (fd, events) in self.policy.poll_fds() {
            fds.push(PollFd::from_borrowed_fd(fd, events));
        }
        let left = self
            .next
            .map_or(NAP, |next| next.saturating_duration_since(Instant::now()));
        wake::wait_any(&mut fds, left.min(NAP))?;
        self.end.bell.clear();
        Ok(())
    }

    /// Looks when it is time to, and at once when a stream has joined.
    fn sample_if_due(&mut self) {
        // Before the streams: one that leaves in between must not be counted twice.
        let before = self.transfer.acknowledged_before();
        let streams = self.transfer.control().live_streams();
        let joined = streams.iter().any(|s| !self.known.contains(&s.id()));
        let due = self.next.is_some_and(|next| next <= Instant::now());
        if streams.is_empty() {
            self.known.clear();
            self.next = None;
            return;
        }
        if !joined && !due {
            return;
        }
        self.known = streams.iter().map(|s| s.id()).collect();
        let scene = self.scene(streams);
        let mut due = NAP;
        if !scene.streams.is_empty() {
            self.policy.on_sample(&scene);
            due = self.policy.next_due();
            if let Some(steering) = &mut self.steering {
                steering.on_look(&scene, before);
                due = due.min(steering.due());
            }
        }
        self.next = Some(Instant::now() + due.max(rest(self.now())));
    }

    /// One sample of each stream.
    fn scene(&self, streams: Vec<Arc<DataStream>>) -> SizingSample<'t> {
        let at = self.now();
        let mut held = 0;
        let mut seen = Vec::with_capacity(streams.len());
        for stream in streams {
            if let Ok(sample) = stream.sample() {
                held += sample.memory.held();
                let readable = match self.role {
                    Role::Receiver => stream.readable_bytes().unwrap_or_default(),
                    Role::Sender => 0,
                };
                let look = look(self.role, at, &sample, readable);
                seen.push(SampledStream {
                    stream,
                    sample: look,
                });
            }
        }
        self.transfer.note_memory(held);
        if self.role == Role::Receiver {
            self.transfer.note_streams(seen.len());
        }
        let board = self.transfer.control().notices();
        SizingSample {
            at,
            streams: seen,
            board,
        }
    }
}

/// How long the thread has to rest until what it used is its share of `elapsed`.
fn rest(elapsed: Duration) -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    let used = Duration::try_from(used).unwrap_or_default();
    (used.saturating_sub(ALLOWANCE) * SHARE).saturating_sub(elapsed)
}
