//! `auto`: each stream by itself, each end by itself.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tune::limiter::{Limiter, Role};
use tune::look::StreamId;
use tune::sizing::auto::Auto;
use tune::sizing::caps::Caps;
use tune::sizing::{Change, Decision};

use super::apply::{Reach, carry_out, undo};
use super::policy::{Policy, Scene, Seen};
use crate::board::Board;
use crate::os::caps::caps;
use crate::os::sockopt::{self, Buffer};
use crate::stream::Stream;

/// The kernel's autotuning, watched on every stream.
pub(super) struct AutoPolicy {
    role: Role,
    /// Read at the first look: this thread has the time, the streams have not.
    caps: Option<Caps>,
    streams: BTreeMap<StreamId, Watched>,
    /// Another policy has pinned the send buffers of streams that join.
    unlocks: bool,
    remark: Option<String>,
    /// A send buffer that is known to be right, bytes as reported.
    known: Option<u64>,
}

/// One stream. Its connection may be closed, or go on in another transfer.
struct Watched {
    auto: Auto,
    stream: Weak<Stream>,
}

impl AutoPolicy {
    pub(super) fn new(role: Role) -> Self {
        Self {
            role,
            caps: None,
            streams: BTreeMap::new(),
            unlocks: false,
            remark: None,
            known: None,
        }
    }

    /// Streams whose send buffers are known to be right at this size, bytes as reported.
    pub(super) fn knowing(mut self, buffer: Option<u64>) -> Self {
        self.known = buffer;
        self
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
        self.streams.retain(|id, watched| {
            let gone = gone(*id);
            if gone {
                watched.leave();
                *remark = remark.take().or_else(|| watched.auto.remark());
            }
            !gone
        });
    }
}

impl Watched {
    fn leave(&mut self) {
        if let (Some(change), Some(stream)) = (self.auto.release(), self.stream.upgrade()) {
            undo(&stream, change);
        }
    }
}

impl Policy for AutoPolicy {
    fn on_look(&mut self, scene: &Scene<'_>) {
        self.forget(|id| !scene.has(id));
        let (role, unlocks, known) = (self.role, self.unlocks, self.known);
        let caps = *self.caps.get_or_insert_with(caps);
        for seen in &scene.seen {
            let watched = self.streams.entry(seen.look.stream).or_insert_with(|| {
                if unlocks {
                    give_back(scene.board, seen, &caps);
                }
                Watched {
                    auto: Auto::new(role, caps).knowing(known),
                    stream: Arc::downgrade(&seen.stream),
                }
            });
            if let Some(decision) = watched.auto.on_look(&seen.look) {
                carry_out(scene.board, &seen.stream, decision, Reach::Forced);
            }
        }
        let bounds = self.streams.values().filter_map(|w| w.auto.bound());
        let bound = bounds.max_by_key(|bound| bound.stream_bps);
        scene.board.note_bound(bound);
    }

    fn due(&self) -> Duration {
        let due = self.streams.values().map(|w| w.auto.due()).min();
        due.unwrap_or(Duration::ZERO)
    }

    fn end(&mut self) -> Option<String> {
        self.forget(|_| true);
        self.remark.take()
    }
}

/// Gives a send buffer back to autotuning, unless that would shrink it. A kernel that knows no way
/// back gives all that it allows, at once.
fn give_back(board: &Board, seen: &Seen, caps: &Caps) {
    let has = seen.look.send_buffer;
    if has >= caps.send_autotuned {
        return;
    }
    let Err(error) = sockopt::unlock_buffer(seen.stream.as_fd(), Buffer::Send) else {
        return;
    };
    let decision = Decision {
        stream: seen.look.stream,
        at: seen.look.at,
        change: Some(Change::SendBuffer(has.max(caps.send_settable) / 2)),
        limiter: Limiter::Unknown,
        reason: format!("nobody tells a size, and autotuning does not take it back: {error}"),
    };
    carry_out(board, &seen.stream, decision, Reach::Forced);
}

#[cfg(test)]
mod tests {
    use proto::sizing::Sizing;
    use tune::look::Look;

    use super::*;
    use crate::control::Control;
    use crate::os::sockopt::set_window_clamp;
    use crate::sizing::fixtures::{connected, scene};

    const MB: u64 = 1 << 20;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// A receiver of a host that lets nothing be set.
    fn receiver() -> AutoPolicy {
        AutoPolicy {
            caps: Some(Caps::default()),
            ..AutoPolicy::new(Role::Receiver)
        }
    }

    #[test]
    fn a_send_buffer_that_is_known_to_be_right_is_set_at_the_first_look() {
        let caps = Caps {
            send_autotuned: 40_000,
            send_settable: 2 * MB,
            ..Caps::default()
        };
        let (stream, _far) = connected(Sizing::Auto);
        // What a host of today lets everybody set.
        let size = 400_000;
        let board = Board::default();
        let mut policy = AutoPolicy {
            caps: Some(caps),
            ..AutoPolicy::new(Role::Sender)
        }
        .knowing(Some(size));
        let look = Look {
            send_buffer: 30_000,
            ..Look::default()
        };
        policy.on_look(&scene(ms(1), &stream, look, &board));
        let now = sockopt::buffer_size(stream.as_fd(), Buffer::Send).unwrap();
        assert_eq!(now, size);
    }

    /// A window of 4 MB that comes in every 100 ms.
    fn full(at: Duration) -> Look {
        Look {
            bytes: 40_000 * u64::try_from(at.as_millis()).unwrap(),
            rtt: ms(100),
            min_rtt: ms(100),
            receive_buffer: 6 * MB,
            window: 4_000_000,
            window_ceiling: 65_535 << 7,
            ..Look::default()
        }
    }

    #[test]
    fn a_limit_of_this_host_is_told_while_it_holds() {
        let (stream, _far) = connected(Sizing::Auto);
        let control = Control::new();
        let mut policy = receiver();
        let mut look = |n: u64, look: Look| {
            let at = ms(25 * n);
            policy.on_look(&scene(at, &stream, look, control.board()));
            control.bound()
        };
        assert_eq!(look(0, full(ms(0))), None);
        let mut bound = None;
        for n in 1..=40 {
            bound = look(n, full(ms(25 * n)));
        }
        let bound = bound.unwrap();
        assert_eq!(bound.limiter, Limiter::ReceiveWindow);
        assert_eq!(bound.in_flight, 4_000_000);
        assert!((310_000_000..330_000_000).contains(&bound.stream_bps));
        // The path becomes slower.
        let slow = |n: u64| Look {
            bytes: full(ms(1000)).bytes + 1000 * n,
            ..full(ms(0))
        };
        let mut bound = Some(bound);
        for n in 41..=80 {
            bound = look(n, slow(n));
        }
        assert_eq!(bound, None);
    }

    fn clamp(stream: &Stream) -> i32 {
        let mut out = [0; 4];
        let (level, name) = (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP);
        sockopt::get(stream.as_fd(), level, name, &mut out).unwrap();
        i32::from_ne_bytes(out)
    }

    #[test]
    fn a_small_window_does_not_outlive_its_transfer() {
        let (stream, _far) = connected(Sizing::Auto);
        set_window_clamp(stream.as_fd(), 1 << 30).unwrap();
        let board = Board::default();
        let mut policy = receiver();
        for n in 0..200 {
            let at = ms(25 * n);
            // A program that reads 1 MB/s.
            let look = Look {
                bytes: 1000 * 25 * n,
                receive_queued: 5 * MB,
                receive_readable: 4 * MB,
                ..full(at)
            };
            policy.on_look(&scene(at, &stream, look, &board));
        }
        assert!(clamp(&stream) < 1 << 20, "{}", clamp(&stream));
        policy.end();
        assert!(clamp(&stream) > 4 << 20, "{}", clamp(&stream));
    }
}
