//! The receiving end: what has arrived, and when to say so.

use std::time::Duration;

use super::segment_set::{SegmentRange, SegmentSet};
use super::{Ack, SACK_BLOCKS, TcpConfig};

/// Blocks that a receiver remembers to have reported: more than it can tell at once, since the next
/// segment may join some of them.
const RECENT: usize = 2 * SACK_BLOCKS;

/// One connection's receiver. Its application reads at once, so the window is always open.
#[derive(Debug)]
pub(crate) struct TcpReceiver {
    next: u64,
    beyond: SegmentSet,
    /// A segment of each block that was reported lately, the latest first (RFC 2018 section 4).
    recent: [Option<u64>; RECENT],
    window: u64,
    delayed_ack: Option<Duration>,
    /// A segment waits for its acknowledgement until then.
    deadline: Option<Duration>,
    delivered_bytes: u64,
    duplicates: u64,
}

impl TcpReceiver {
    pub(crate) fn new(config: &TcpConfig) -> Self {
        Self {
            next: 0,
            beyond: SegmentSet::default(),
            recent: [None; RECENT],
            window: config.whole_segments(config.receive_buffer),
            delayed_ack: config.delayed_ack,
            deadline: None,
            delivered_bytes: 0,
            duplicates: 0,
        }
    }

    /// Takes a segment of `bytes` payload; the acknowledgement to send now, if any. RFC 5681
    /// section 4.2: at once when it is out of order or fills a gap, else every second segment.
    pub(crate) fn on_segment(&mut self, now: Duration, segment: u64, bytes: u32) -> Option<Ack> {
        if segment < self.next || self.beyond.range_containing(segment).is_some() {
            self.duplicates += 1;
            return Some(self.acknowledge());
        }
        self.delivered_bytes += u64::from(bytes);
        let gaps = !self.beyond.is_empty();
        if segment > self.next {
            let end = segment + 1;
            let span = SegmentRange {
                start: segment,
                end,
            };
            self.beyond.insert(span, |_| {});
            self.remember(segment);
            return Some(self.acknowledge());
        }
        self.next += 1;
        if let Some(span) = self.beyond.take_front(self.next) {
            self.next = span.end;
        }
        match self.delayed_ack {
            Some(wait) if !gaps && self.deadline.is_none() => {
                self.deadline = Some(now + wait);
                None
            }
            _ => Some(self.acknowledge()),
        }
    }

    /// The wait for a second segment is over.
    pub(crate) fn on_timer(&mut self) -> Ack {
        self.acknowledge()
    }

    /// When [`Self::on_timer`] is to be called.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// Sets the buffer. A smaller one takes nothing back that was promised: the sender keeps the
    /// furthest right edge it was told.
    pub(crate) fn set_window(&mut self, config: &TcpConfig) {
        self.window = config.whole_segments(config.receive_buffer);
    }

    /// Payload that has arrived, copies not counted.
    pub(crate) fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes
    }

    /// Segments that arrived more than once.
    pub(crate) fn duplicates(&self) -> u64 {
        self.duplicates
    }

    fn acknowledge(&mut self) -> Ack {
        self.deadline = None;
        Ack {
            next: self.next,
            right_edge: self.next + self.window,
            sacks: if self.beyond.is_empty() {
                self.recent = [None; RECENT];
                [SegmentRange::default(); SACK_BLOCKS]
            } else {
                self.sacks()
            },
        }
    }

    fn remember(&mut self, segment: u64) {
        self.recent.rotate_right(1);
        self.recent[0] = Some(segment);
    }

    /// The blocks of the latest segments, each once.
    fn sacks(&mut self) -> [SegmentRange; SACK_BLOCKS] {
        let mut blocks = [SegmentRange::default(); RECENT];
        let mut kept = [None; RECENT];
        let mut count = 0;
        for segment in self.recent.into_iter().flatten() {
            if let Some(block) = self.beyond.range_containing(segment)
                && !blocks[..count].contains(&block)
            {
                blocks[count] = block;
                kept[count] = Some(segment);
                count += 1;
            }
        }
        self.recent = kept;
        let mut told = [SegmentRange::default(); SACK_BLOCKS];
        told.copy_from_slice(&blocks[..SACK_BLOCKS]);
        told
    }
}
