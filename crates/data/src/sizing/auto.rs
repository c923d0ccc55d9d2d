//! `auto`: each stream by itself, each end by itself.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::Duration;

use tune::limiter::Role;
use tune::sizing::StreamId;
use tune::sizing::auto::Auto;
use tune::sizing::caps::Caps;

use super::apply::{Reach, carry_out};
use super::policy::{Policy, Scene};
use crate::os::caps::caps;
use crate::os::sockopt::{self, Buffer};
use crate::stream::Stream;

/// The kernel's autotuning, watched on every stream.
pub(super) struct AutoPolicy {
    role: Role,
    /// Read at the first look: this thread has the time, the streams have not.
    caps: Option<Caps>,
    streams: BTreeMap<StreamId, Auto>,
    /// Another policy has pinned the send buffers of streams that join.
    unlocks: bool,
    remark: Option<String>,
}

impl AutoPolicy {
    pub(super) fn new(role: Role) -> Self {
        Self {
            role,
            caps: None,
            streams: BTreeMap::new(),
            unlocks: false,
            remark: None,
        }
    }

    /// For a sender whose buffers begin small and pinned because the peer was to size them.
    pub(super) fn instead_of_peer() -> Self {
        Self {
            unlocks: true,
            ..Self::new(Role::Sender)
        }
    }

    fn forget(&mut self, gone: impl Fn(StreamId) -> bool) {
        let remark = &mut self.remark;
        self.streams.retain(|id, auto| {
            let gone = gone(*id);
            if gone && remark.is_none() {
                *remark = auto.remark();
            }
            !gone
        });
    }
}

impl Policy for AutoPolicy {
    fn on_look(&mut self, scene: &Scene<'_>) {
        self.forget(|id| !scene.has(id));
        let (role, unlocks) = (self.role, self.unlocks);
        let caps = *self.caps.get_or_insert_with(caps);
        for seen in &scene.seen {
            let auto = self.streams.entry(seen.look.stream).or_insert_with(|| {
                if unlocks {
                    unlock_sender(&seen.stream);
                }
                Auto::new(role, caps)
            });
            if let Some(decision) = auto.on_look(&seen.look) {
                carry_out(scene.board, &seen.stream, decision, Reach::Forced);
            }
        }
    }

    fn due(&self) -> Duration {
        let due = self.streams.values().map(Auto::due).min();
        due.unwrap_or(Duration::ZERO)
    }

    fn remark(&mut self) -> Option<String> {
        self.forget(|_| true);
        self.remark.take()
    }
}

fn unlock_sender(stream: &Stream) {
    if let Err(error) = sockopt::unlock_buffer(stream.as_fd(), Buffer::Send) {
        tracing::debug!(%error, "send buffer stays pinned");
    }
}
