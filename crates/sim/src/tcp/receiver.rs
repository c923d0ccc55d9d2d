//! The receiving end: which segments have arrived, and when to acknowledge them.

use std::time::Duration;

use super::right_sizing::ReceiveWindow;
use super::segment_set::{SegmentRange, SegmentSet};
use super::{Ack, SACK_BLOCKS, TcpConfig};

/// Number of recently reported SACK blocks that a receiver remembers. It is larger than the number in
/// one acknowledgement, because a new segment may merge some of them.
const RECENT: usize = 2 * SACK_BLOCKS;

/// The receiver of one connection. Its application reads at once, so that the buffer is always empty.
#[derive(Debug)]
pub(crate) struct TcpReceiver {
    next: u64,
    out_of_order: SegmentSet,
    /// One segment of each recently reported block, the latest first (RFC 2018 section 4).
    recent: [Option<u64>; RECENT],
    window: ReceiveWindow,
    delayed_ack: Option<Duration>,
    /// Time at which a delayed acknowledgement is due.
    deadline: Option<Duration>,
    delivered_bytes: u64,
    duplicates: u64,
}

impl TcpReceiver {
    pub(crate) fn new(config: &TcpConfig) -> Self {
        Self {
            next: 0,
            out_of_order: SegmentSet::default(),
            recent: [None; RECENT],
            window: ReceiveWindow::new(config),
            delayed_ack: config.delayed_ack,
            deadline: None,
            delivered_bytes: 0,
            duplicates: 0,
        }
    }

    /// Processes a segment with `bytes` of payload; returns the acknowledgement to send now, if any. It is
    /// sent at once if the segment is out of order or fills a gap, else for every second segment (RFC
    /// 5681 section 4.2).
    pub(crate) fn on_segment(&mut self, now: Duration, segment: u64, bytes: u32) -> Option<Ack> {
        if segment < self.next || self.out_of_order.range_containing(segment).is_some() {
            self.duplicates += 1;
            return Some(self.acknowledge());
        }
        self.delivered_bytes += u64::from(bytes);
        self.window.on_segment(now, segment, self.next);
        // Read before the segment is added: a segment that fills a gap is acknowledged at once.
        let gaps = !self.out_of_order.is_empty();
        if segment > self.next {
            let end = segment + 1;
            let span = SegmentRange {
                start: segment,
                end,
            };
            self.out_of_order.insert(span, |_| {});
            self.remember(segment);
            return Some(self.acknowledge());
        }
        self.next += 1;
        if let Some(span) = self.out_of_order.take_front(self.next) {
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

    /// Sends the delayed acknowledgement.
    pub(crate) fn on_timer(&mut self) -> Ack {
        self.acknowledge()
    }

    /// Time at which [`Self::on_timer`] must be called.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// Sets the receive buffer. A smaller one does not shrink the window (RFC 9293 section 3.8.6): the
    /// sender keeps the furthest right edge that was advertised.
    pub(crate) fn set_window(&mut self, config: &TcpConfig) {
        self.window.set_buffer(config);
    }

    /// Takes a round trip that the timestamp of a segment has measured.
    pub(crate) fn on_round_trip(&mut self, sample: Duration) {
        self.window.on_round_trip(sample);
    }

    /// The window that is advertised now, segments.
    pub(crate) fn window(&self) -> u64 {
        self.window.size()
    }

    /// Payload that has arrived, without duplicates, bytes.
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
            right_edge: self.next + self.window.size(),
            sacks: if self.out_of_order.is_empty() {
                // Without gaps no block remains, and old ones must not be reported again.
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

    /// The SACK blocks of the latest segments, each once.
    fn sacks(&mut self) -> [SegmentRange; SACK_BLOCKS] {
        let mut blocks = [SegmentRange::default(); RECENT];
        let mut kept = [None; RECENT];
        let mut count = 0;
        for segment in self.recent.into_iter().flatten() {
            if let Some(block) = self.out_of_order.range_containing(segment)
                && !blocks[..count].contains(&block)
            {
                blocks[count] = block;
                kept[count] = Some(segment);
                count += 1;
            }
        }
        self.recent = kept;
        let mut reported = [SegmentRange::default(); SACK_BLOCKS];
        reported.copy_from_slice(&blocks[..SACK_BLOCKS]);
        reported
    }
}
