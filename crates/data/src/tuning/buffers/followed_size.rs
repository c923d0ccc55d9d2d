//! A sender whose receiver decides: every stream's send buffer gets the size that the peer
//! announced.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tune::limiter::Limiter;
use tune::sample::StreamId;
use tune::sizing::{BufferBounds, BufferDecision, BufferSetting};

use super::socket_options::{BufferLimit, apply_decision};
use crate::stream::DataStream;
use crate::tuning_notices::TuningNotices;

/// The present size, and the streams that have it.
#[derive(Default)]
pub(super) struct FollowedSize {
    /// The send buffer is pinned: the peer's size is received but not set.
    pinned: bool,
    size: Option<u64>,
    applied: HashMap<StreamId, u64>,
}

impl FollowedSize {
    pub(super) fn new(pinned: bool) -> Self {
        Self {
            pinned,
            ..Self::default()
        }
    }

    pub(super) fn pinned(&self) -> bool {
        self.pinned
    }

    pub(super) fn has_size(&self) -> bool {
        self.size.is_some()
    }

    /// Forgets the peer's size.
    pub(super) fn forget(&mut self) {
        self.size = None;
        self.applied.clear();
    }

    /// Sets the peer's size, at most the largest one that this end would request itself.
    pub(super) fn set(&mut self, size: u64) {
        // The peer must not decide how much memory this host uses.
        self.size = Some(size.min(BufferBounds::default().largest));
    }

    /// Sets the size on all `streams` that do not have it yet.
    pub(super) fn apply(
        &mut self,
        at: Duration,
        notices: &TuningNotices,
        streams: &[Arc<DataStream>],
    ) {
        let Some(size) = self.size.filter(|_| !self.pinned) else {
            return;
        };
        // An ended stream keeps no entry, so that the map stays small.
        self.applied
            .retain(|id, _| streams.iter().any(|stream| stream.id() == *id));
        for stream in streams {
            if self.applied.insert(stream.id(), size) == Some(size) {
                continue;
            }
            let decision = BufferDecision {
                stream: stream.id(),
                at,
                setting: Some(BufferSetting::SendBuffer(size)),
                limiter: Limiter::Unknown,
                reason: "the receiver's buffer has this size".to_owned(),
                measured: None,
            };
            apply_decision(notices, stream, decision, BufferLimit::Allowed);
        }
    }
}
