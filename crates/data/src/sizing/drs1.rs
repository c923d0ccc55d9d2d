//! `drs1` at the receiver: one loop a stream, and its sizes told to the sender.

use std::collections::HashMap;
use std::time::Duration;

use tune::limiter::Limiter;
use tune::sizing::drs1::Drs1;
use tune::sizing::{Bounds, Change, Decision, Look, StreamId};

use super::apply::{Reach, carry_out};
use super::policy::{Policy, Scene};

/// The first drsFTP's receiving end (2003 paper, §4.1 and §4.2).
#[derive(Default)]
pub(super) struct Drs1Receiver {
    streams: HashMap<StreamId, Drs1>,
    /// The receive buffer is pinned: its size is told and not set.
    pinned: bool,
    /// The largest size that the sender was told of.
    told: u64,
}

impl Drs1Receiver {
    pub(super) fn new(pinned: bool) -> Self {
        Self {
            pinned,
            ..Self::default()
        }
    }
}

impl Policy for Drs1Receiver {
    fn on_look(&mut self, scene: &Scene<'_>) {
        self.streams.retain(|id, _| scene.has(*id));
        for seen in &scene.seen {
            let (id, look) = (seen.look.stream, &seen.look);
            let controller = self
                .streams
                .entry(id)
                .or_insert_with(|| Drs1::new(from_where_it_is(look)));
            let Some(size) = controller.on_look(look) else {
                continue;
            };
            let decision = Decision {
                stream: id,
                at: scene.at,
                change: (!self.pinned).then_some(Change::ReceiveBuffer(size)),
                limiter: Limiter::ReceiveWindow,
                reason: "more than half of the buffer came within a round trip".to_owned(),
            };
            let reported = carry_out(scene.board, &seen.stream, decision, Reach::Allowed);
            let granted = reported.map_or(size, |reported| reported / 2);
            if granted > self.told {
                self.told = granted;
                scene.board.tell(granted);
            }
        }
    }

    fn due(&self) -> Duration {
        let due = self.streams.values().map(Drs1::due).min();
        due.unwrap_or(Duration::ZERO)
    }
}

/// A connection of an earlier transfer goes on with the size that it has.
fn from_where_it_is(look: &Look) -> Bounds {
    let bounds = Bounds::default();
    let has = look.receive_buffer / 2;
    Bounds {
        initial: has.clamp(bounds.initial, bounds.largest),
        ..bounds
    }
}
