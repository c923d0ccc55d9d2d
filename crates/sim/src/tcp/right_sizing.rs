//! The window that a receiver advertises: its whole buffer, or a part that follows the data.

use std::collections::VecDeque;
use std::time::Duration;

use super::TcpConfig;

/// How a receiver sizes its window while data arrives. No window shrinks, and none exceeds
/// [`TcpConfig::receive_buffer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WindowGrowth {
    /// The whole buffer from the start.
    #[default]
    Fixed,
    /// Dynamic right-sizing in the kernel as published in 2003 (section 3): twice the data that arrived within a round
    /// trip. A receiver that only acknowledges knows the round trip as an upper bound: the time from an
    /// acknowledgement to the arrival of data one window beyond it. The smallest one counts. It begins with twice the
    /// sender's initial window.
    RightSizing,
    /// Linux (`tcp_rcv_space_adjust`, 4.18 to 6.14): twice the data of a round trip and 16 segments, and more while that
    /// grows. The round trip is a running average by timestamps, so that it includes the queue. It begins with 64 KiB.
    LinuxAutotuning,
}

/// First window of Linux, bytes: half of the second value of `tcp_rmem`.
const LINUX_FIRST_WINDOW: u64 = 64 << 10;
/// Segments that Linux takes for the data of a round trip before it has measured any (`TCP_INIT_CWND`).
const LINUX_FIRST_SPACE: u64 = 10;

/// The window of a receiver, in segments, and the measurements that size it.
#[derive(Debug)]
pub(super) struct ReceiveWindow {
    growth: WindowGrowth,
    size: u64,
    largest: u64,
    /// Linux: a running average; right-sizing: the smallest upper bound.
    rtt: Option<Duration>,
    /// Right-sizing: the time of an acknowledgement, and the first segment beyond its window.
    pending: Option<(Duration, u64)>,
    /// Right-sizing: when the segments of the latest round trip arrived, in order or not.
    recent: VecDeque<Duration>,
    /// Linux: begin of the current interval, and the segments that have arrived in it.
    interval: Option<(Duration, u64)>,
    /// Linux: the most segments of an interval until now (`rcvq_space.space`).
    space: u64,
}

impl ReceiveWindow {
    pub(super) fn new(config: &TcpConfig) -> Self {
        Self {
            growth: config.window_growth,
            size: first_window(config),
            largest: config.whole_segments(config.receive_buffer),
            rtt: None,
            pending: None,
            recent: VecDeque::new(),
            interval: None,
            space: LINUX_FIRST_SPACE,
        }
    }

    /// The window, segments.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Sets the buffer. A smaller one does not shrink a window that has grown.
    pub(super) fn set_buffer(&mut self, config: &TcpConfig) {
        self.largest = config.whole_segments(config.receive_buffer);
        if self.growth == WindowGrowth::Fixed {
            self.size = self.largest;
        }
    }

    /// Takes a round trip that a timestamp has measured.
    pub(super) fn on_round_trip(&mut self, sample: Duration) {
        if self.growth == WindowGrowth::LinuxAutotuning {
            self.rtt = Some(self.rtt.map_or(sample, |rtt| (rtt * 7 + sample) / 8));
        }
    }

    /// Takes a segment that had not arrived before; all before `next` had.
    pub(super) fn on_segment(&mut self, now: Duration, segment: u64, next: u64) {
        let wanted = match self.growth {
            WindowGrowth::Fixed => return,
            WindowGrowth::RightSizing => {
                self.bound_round_trip(now, segment, next);
                self.right_size(now)
            }
            WindowGrowth::LinuxAutotuning => self.autotune(now),
        };
        self.size = self.size.max(wanted.min(self.largest));
    }

    fn bound_round_trip(&mut self, now: Duration, segment: u64, next: u64) {
        match self.pending {
            // The sender had the acknowledgement when it sent this segment.
            Some((acknowledged, beyond)) if segment >= beyond => {
                let bound = now.saturating_sub(acknowledged);
                self.rtt = Some(self.rtt.map_or(bound, |rtt| rtt.min(bound)));
                self.pending = None;
            }
            Some(_) => return,
            None => {}
        }
        if segment == next {
            self.pending = Some((now, next + 1 + self.size));
        }
    }

    /// Twice the segments of the latest round trip; 0 before one is known.
    fn right_size(&mut self, now: Duration) -> u64 {
        self.recent.push_back(now);
        let Some(rtt) = self.rtt else {
            return 0;
        };
        // In a shorter time than a round trip no more arrives than the sender's window.
        while self
            .recent
            .front()
            .is_some_and(|at| now.saturating_sub(*at) >= rtt)
        {
            self.recent.pop_front();
        }
        2 * self.recent.len() as u64
    }

    /// The window that Linux computes once in a round trip; 0 else, or if no more has arrived than in an earlier one.
    fn autotune(&mut self, now: Duration) -> u64 {
        let (began, arrived) = self.interval.unwrap_or((now, 0));
        let is_over = self.rtt.is_some_and(|rtt| now.saturating_sub(began) >= rtt);
        if !is_over {
            self.interval = Some((began, arrived + 1));
            return 0;
        }
        self.interval = Some((now, 1));
        if arrived <= self.space {
            return 0;
        }
        let wanted = 2 * arrived + 16;
        let more = wanted * (arrived - self.space) / self.space;
        self.space = arrived;
        wanted + 2 * more
    }
}

/// The window that a receiver advertises first, segments.
pub(super) fn first_window(config: &TcpConfig) -> u64 {
    let largest = config.whole_segments(config.receive_buffer);
    let first = match config.window_growth {
        WindowGrowth::Fixed => largest,
        WindowGrowth::RightSizing => 2 * u64::from(config.initial_window.max(1)),
        WindowGrowth::LinuxAutotuning => config.whole_segments(LINUX_FIRST_WINDOW),
    };
    first.min(largest)
}
