//! A sender whose receiver decides: every stream's send buffer gets the size that the peer told.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tune::limiter::Limiter;
use tune::sample::StreamId;
use tune::sizing::{BufferBounds, BufferDecision, BufferSetting};

use super::change_options::{BufferLimit, apply_decision};
use super::policy::{BufferPolicy, SAMPLE_INTERVAL, SizingInput, SizingSample};
use crate::stream::DataStream;
use crate::tuning_notices::TuningNotices;

/// The size in force, and which streams have it.
#[derive(Default)]
pub(super) struct FollowedSize {
    /// The send buffer is pinned: what the peer tells is heard and not set.
    pinned: bool,
    size: Option<u64>,
    given: HashMap<StreamId, u64>,
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

    /// The peer's size no longer holds.
    pub(super) fn forget(&mut self) {
        self.size = None;
        self.given.clear();
    }

    /// The peer's size, however large: never more than a loop of this end would ask for.
    pub(super) fn set(&mut self, size: u64) {
        self.size = Some(size.min(BufferBounds::default().largest));
    }

    /// Gives all of `streams` the size that they have not got yet.
    pub(super) fn apply(
        &mut self,
        at: Duration,
        board: &TuningNotices,
        streams: &[Arc<DataStream>],
    ) {
        let Some(size) = self.size.filter(|_| !self.pinned) else {
            return;
        };
        self.given
            .retain(|id, _| streams.iter().any(|stream| stream.id() == *id));
        for stream in streams {
            if self.given.insert(stream.id(), size) == Some(size) {
                continue;
            }
            let decision = BufferDecision {
                stream: stream.id(),
                at,
                setting: Some(BufferSetting::SendBuffer(size)),
                limiter: Limiter::Unknown,
                reason: "the receiver's buffer has this size".to_owned(),
            };
            apply_decision(board, stream, decision, BufferLimit::Allowed);
        }
    }
}

/// `drs1` at the sender: sizes come on the control channel (2003 paper, §4.2).
pub(super) struct Drs1Sender(FollowedSize);

impl Drs1Sender {
    pub(super) fn new(pinned: bool) -> Self {
        Self(FollowedSize::new(pinned))
    }
}

impl BufferPolicy for Drs1Sender {
    fn on_sample(&mut self, scene: &SizingSample<'_>) {
        self.0.apply(scene.at, scene.board, &scene.streams());
    }

    fn next_due(&self) -> Duration {
        SAMPLE_INTERVAL
    }

    fn on_input(&mut self, news: &SizingInput<'_>) {
        if let Some(size) = news.board().peer_size() {
            self.0.set(size);
            self.0.apply(news.at, news.board(), &news.streams());
        }
    }
}
