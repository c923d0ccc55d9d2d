//! The round trip of the empty path, also after the path has changed.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::sample::{StreamId, TcpSample};

/// Slot of the memory of round trips: long enough in all that loss-based neighbours leave
/// the queue once, short enough to answer a longer path within 15 s.
const SLOT: Duration = Duration::from_secs(1);
const SLOTS: usize = 8;

/// The least and most of one slot.
#[derive(Debug, Clone, Copy)]
struct RttSlot {
    from: Duration,
    min: Duration,
    max: Duration,
}

/// The smallest round trip that the path has now. Linux keeps its own for five minutes
/// (`tcp_min_rtt_wlen`), in which a path that became longer looks like a full one.
#[derive(Debug, Clone, Default)]
pub(super) struct MinRttFilter {
    min: Option<Duration>,
    /// The kernel's smallest of each stream.
    streams: BTreeMap<StreamId, Duration>,
    slots: VecDeque<RttSlot>,
}

impl MinRttFilter {
    /// Zero: unknown.
    pub(super) fn get(&self) -> Duration {
        self.min.unwrap_or_default()
    }

    /// Takes what the kernel tells of each stream, and their round trip now; true: the path has
    /// become longer.
    pub(super) fn on_samples(&mut self, at: Duration, looks: &[TcpSample], now: Duration) -> bool {
        self.streams
            .retain(|id, _| looks.iter().any(|look| look.stream == *id));
        for look in looks.iter().filter(|look| !look.min_rtt.is_zero()) {
            let known = self.streams.insert(look.stream, look.min_rtt);
            // Only one that is new tells of the path as it is.
            if known.is_none_or(|known| look.min_rtt < known) {
                self.lower(look.min_rtt);
            }
        }
        if now.is_zero() {
            return false;
        }
        self.lower(now);
        self.record(at, now);
        self.adopt_longer_path()
    }

    fn lower(&mut self, rtt: Duration) {
        self.min = Some(self.min.map_or(rtt, |least| least.min(rtt)));
    }

    fn record(&mut self, at: Duration, now: Duration) {
        match self.slots.back_mut() {
            Some(slot) if at.saturating_sub(slot.from) < SLOT => {
                slot.min = slot.min.min(now);
                slot.max = slot.max.max(now);
            }
            _ => self.slots.push_back(RttSlot {
                from: at,
                min: now,
                max: now,
            }),
        }
        while self.slots.len() > SLOTS {
            self.slots.pop_front();
        }
    }

    /// A round trip that is longer by a quarter and has been even for all that is remembered is the
    /// path's: queues come and go.
    fn adopt_longer_path(&mut self) -> bool {
        let least = self.slots.iter().map(|slot| slot.min).min();
        let most = self.slots.iter().map(|slot| slot.max).max();
        let (Some(least), Some(most), true) = (least, most, self.slots.len() == SLOTS) else {
            return false;
        };
        let even = most <= least + least / 10 + Duration::from_millis(1);
        let longer = even && least > self.get() + self.get() / 4 + Duration::from_millis(1);
        if longer {
            self.min = Some(least);
        }
        longer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn look(stream: StreamId, min: u64) -> TcpSample {
        TcpSample {
            stream,
            min_rtt: ms(min),
            ..TcpSample::default()
        }
    }

    fn after(base: &mut MinRttFilter, from: u64, to: u64, rtt: impl Fn(u64) -> u64) -> Duration {
        for at in (from..to).step_by(100) {
            base.on_samples(ms(at), &[look(0, 24)], ms(rtt(at)));
        }
        base.get()
    }

    #[test]
    fn a_longer_path_is_learned_and_a_queue_is_not() {
        let mut base = MinRttFilter::default();
        assert_eq!(after(&mut base, 0, 5000, |_| 25), ms(24));
        assert_eq!(after(&mut base, 5000, 12_000, |_| 96), ms(24));
        assert_eq!(after(&mut base, 12_000, 14_100, |_| 96), ms(96));
        let mut queue = MinRttFilter::default();
        assert_eq!(
            after(&mut queue, 0, 60_000, |at| 70 + at / 100 % 30),
            ms(24)
        );
    }

    #[test]
    fn a_shorter_path_is_known_at_once() {
        let mut base = MinRttFilter::default();
        base.on_samples(ms(0), &[look(0, 100)], ms(104));
        base.on_samples(ms(100), &[look(0, 100)], ms(30));
        assert_eq!(base.get(), ms(30));
        // A new stream's smallest is news, too.
        base.on_samples(ms(200), &[look(0, 100), look(1, 25)], ms(30));
        assert_eq!(base.get(), ms(25));
    }
}
