//! `drs1` at the receiver: one loop a stream, and its sizes told to the sender.

use std::collections::HashMap;
use std::time::Duration;

use tune::limiter::Limiter;
use tune::sample::{StreamId, TcpSample};
use tune::sizing::drs1::Drs1ReceiverTuner;
use tune::sizing::{BufferBounds, BufferDecision, BufferSetting};

use super::change_options::{BufferLimit, apply_decision};
use super::policy::{BufferPolicy, SAMPLE_INTERVAL, SizingSample};
use crate::tuning_notices::TuningNotices;

/// The first drsFTP's receiving end (2003 paper, §4.1 and §4.2).
#[derive(Default)]
pub(super) struct Drs1Receiver {
    streams: HashMap<StreamId, Drs1ReceiverTuner>,
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

    /// Tells the sender of a size, bytes, unless it knows a larger one.
    fn tell(&mut self, board: &TuningNotices, size: u64) {
        if size > self.told {
            self.told = size;
            board.report_resize(size);
        }
    }
}

impl BufferPolicy for Drs1Receiver {
    fn on_sample(&mut self, scene: &SizingSample<'_>) {
        self.streams.retain(|id, _| scene.has(*id));
        for seen in &scene.streams {
            let (id, look) = (seen.sample.stream, &seen.sample);
            let has = look.receive_buffer / 2;
            if self.pinned {
                self.tell(scene.board, has);
                continue;
            }
            if !self.streams.contains_key(&id) && has > BufferBounds::default().initial {
                // Of an earlier transfer, whose last size its sender may not have heard.
                self.tell(scene.board, has);
            }
            let controller = self
                .streams
                .entry(id)
                .or_insert_with(|| Drs1ReceiverTuner::new(from_where_it_is(look)));
            let Some(size) = controller.on_sample(look) else {
                continue;
            };
            let decision = BufferDecision {
                stream: id,
                at: scene.at,
                setting: Some(BufferSetting::ReceiveBuffer(size)),
                limiter: Limiter::ReceiveWindow,
                reason: "more than half of the buffer came within a round trip".to_owned(),
            };
            let reported =
                apply_decision(scene.board, &seen.stream, decision, BufferLimit::Allowed);
            let granted = reported.map_or(size, |reported| reported / 2);
            self.tell(scene.board, granted);
        }
    }

    fn next_due(&self) -> Duration {
        let due = self
            .streams
            .values()
            .map(Drs1ReceiverTuner::next_sample_in)
            .min();
        due.unwrap_or(SAMPLE_INTERVAL)
    }
}

/// A connection of an earlier transfer goes on with the size that it has.
fn from_where_it_is(look: &TcpSample) -> BufferBounds {
    let bounds = BufferBounds::default();
    let has = look.receive_buffer / 2;
    BufferBounds {
        initial: has.clamp(bounds.initial, bounds.largest),
        ..bounds
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use proto::sizing::BufferSizing;

    use super::*;
    use crate::sizing::fixtures::{connected, scene};

    /// Sizes that a sender is told of a stream that has this buffer from the start, bytes, while so many
    /// bytes arrive every round trip.
    fn told(pinned: bool, buffer: u64, arrive: u64) -> Vec<u64> {
        let (stream, _far) = connected(BufferSizing::Drs1);
        let board = TuningNotices::default();
        let told = Arc::new(Mutex::new(Vec::new()));
        let ear = Arc::clone(&told);
        board.on_resize(move |size| ear.lock().unwrap().push(size));
        let mut policy = Drs1Receiver::new(pinned);
        for n in 0..8 {
            let look = TcpSample {
                bytes: n * arrive,
                min_rtt: Duration::from_millis(100),
                receive_buffer: 2 * buffer,
                ..TcpSample::default()
            };
            let at = Duration::from_millis(100) * u32::try_from(n).unwrap();
            policy.on_sample(&scene(at, &stream, look, &board));
        }
        let told = told.lock().unwrap();
        told.clone()
    }

    #[test]
    fn the_size_of_an_earlier_transfer_is_told_again() {
        assert_eq!(told(false, 64 << 10, 1000), []);
        assert_eq!(told(false, 1 << 20, 1000), [1 << 20]);
    }

    #[test]
    fn a_pinned_size_is_told_once_whatever_arrives() {
        assert_eq!(told(true, 100_000, 1000), [100_000]);
        assert_eq!(told(true, 100_000, 10 << 20), [100_000]);
    }
}
