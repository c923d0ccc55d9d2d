//! The thread: waits for news and for the next look, and does nothing in between.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::time::{ClockId, clock_gettime};
use tune::limiter::Role;
use tune::sizing::StreamId;

use super::End;
use super::look::look;
use super::policy::{News, Policy, Scene, Seen};
use crate::os::wake;
use crate::transfer::Transfer;

/// Longest sleep: a channel may have deadlines of its own.
const NAP: Duration = Duration::from_millis(250);

/// Looking may cost this part of a processor's time ...
const SHARE: u32 = 100;

/// ... beyond what it may always cost: a short transfer's few looks.
const ALLOWANCE: Duration = Duration::from_millis(2);

/// One transfer's sizing.
pub(super) struct Watch<'t> {
    transfer: &'t Transfer,
    role: Role,
    policy: Box<dyn Policy>,
    end: &'t End<'t>,
    /// Streams of the last look.
    known: Vec<StreamId>,
    /// When the next look is due; `None` while there is no stream.
    next: Option<Instant>,
}

impl<'t> Watch<'t> {
    pub(super) fn new(
        transfer: &'t Transfer,
        role: Role,
        policy: Box<dyn Policy>,
        end: &'t End<'t>,
    ) -> Self {
        Self {
            transfer,
            role,
            policy,
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
            self.policy.on_news(&News {
                at: self.now(),
                control: self.transfer.control(),
            });
            self.look_if_due();
        }
        if let Some(remark) = self.policy.end() {
            self.transfer.note_remark(remark);
        }
    }

    fn now(&self) -> Duration {
        self.transfer.begin().elapsed()
    }

    fn wait(&self) -> std::io::Result<()> {
        let mut fds = vec![PollFd::new(self.end.bell, PollFlags::IN)];
        for (fd, events) in self.policy.watch() {
            fds.push(PollFd::from_borrowed_fd(fd, events));
        }
        let left = self
            .next
            .map_or(NAP, |next| next.saturating_duration_since(Instant::now()));
        wake::wait_any(&mut fds, left.min(NAP))?;
        self.end.bell.quiet();
        Ok(())
    }

    /// Looks when it is time to, and at once when a stream has joined.
    fn look_if_due(&mut self) {
        let streams = self.transfer.control().live();
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
        let at = self.now();
        let mut held = 0;
        let mut seen = Vec::with_capacity(streams.len());
        self.known.clear();
        for stream in streams {
            self.known.push(stream.id());
            if let Ok(sample) = stream.sample() {
                held += sample.memory.held();
                let readable = match self.role {
                    Role::Receiver => stream.readable().unwrap_or_default(),
                    Role::Sender => 0,
                };
                let look = look(self.role, at, &sample, readable);
                seen.push(Seen { stream, look });
            }
        }
        self.transfer.note_memory(held);
        if !seen.is_empty() {
            let board = self.transfer.control().board();
            self.policy.on_look(&Scene { at, seen, board });
        }
        self.next = Some(Instant::now() + self.policy.due().max(rest(self.now())));
    }
}

/// How long the thread has to rest until what it used is its share of `elapsed`.
fn rest(elapsed: Duration) -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    let used = Duration::try_from(used).unwrap_or_default();
    (used.saturating_sub(ALLOWANCE) * SHARE).saturating_sub(elapsed)
}
