//! A sender whose receiver decides: every stream's send buffer gets the size that the peer told.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tune::limiter::Limiter;
use tune::look::StreamId;
use tune::sizing::{Bounds, Change, Decision};

use super::apply::{Reach, carry_out};
use super::policy::{LOOK, News, Policy, Scene};
use crate::board::Board;
use crate::stream::Stream;

/// The size in force, and which streams have it.
#[derive(Default)]
pub(super) struct Followed {
    /// The send buffer is pinned: what the peer tells is heard and not set.
    pinned: bool,
    size: Option<u64>,
    given: HashMap<StreamId, u64>,
}

impl Followed {
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
        self.size = Some(size.min(Bounds::default().largest));
    }

    /// Gives all of `streams` the size that they have not got yet.
    pub(super) fn apply(&mut self, at: Duration, board: &Board, streams: &[Arc<Stream>]) {
        let Some(size) = self.size.filter(|_| !self.pinned) else {
            return;
        };
        self.given
            .retain(|id, _| streams.iter().any(|stream| stream.id() == *id));
        for stream in streams {
            if self.given.insert(stream.id(), size) == Some(size) {
                continue;
            }
            let decision = Decision {
                stream: stream.id(),
                at,
                change: Some(Change::SendBuffer(size)),
                limiter: Limiter::Unknown,
                reason: "the receiver's buffer has this size".to_owned(),
            };
            carry_out(board, stream, decision, Reach::Allowed);
        }
    }
}

/// `drs1` at the sender: sizes come on the control channel (2003 paper, §4.2).
pub(super) struct Drs1Sender(Followed);

impl Drs1Sender {
    pub(super) fn new(pinned: bool) -> Self {
        Self(Followed::new(pinned))
    }
}

impl Policy for Drs1Sender {
    fn on_look(&mut self, scene: &Scene<'_>) {
        self.0.apply(scene.at, scene.board, &scene.streams());
    }

    fn due(&self) -> Duration {
        LOOK
    }

    fn on_news(&mut self, news: &News<'_>) {
        if let Some(size) = news.board().followed() {
            self.0.set(size);
            self.0.apply(news.at, news.board(), &news.streams());
        }
    }
}
