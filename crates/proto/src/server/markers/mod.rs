//! When 112 and 111 markers are due, and what they say (GFD.20 §3.8).
//!
//! 112 goes out at once with the first progress, then on its period and at the end; 111 on its
//! period and at the end, each time with what is new only. The clock comes with the progress.

use super::{TransferProgress, TransferRequest};
use crate::marker::{PerformanceMarker, range_marker_replies};
use crate::ranges::RangeSet;
use crate::reply::Reply;

/// The markers of one transfer.
#[derive(Debug)]
pub(super) struct MarkerSchedule {
    perf: Option<MarkerTimer>,
    range: Option<MarkerTimer>,
    /// A 112 was sent.
    sent_performance_marker: bool,
    /// Ranges told already.
    reported: RangeSet,
    /// Bytes moved, as last reported.
    bytes: u64,
    /// Ranges stored, as last reported; empty once told.
    stored: RangeSet,
}

/// Something to do every so many seconds.
#[derive(Debug)]
struct MarkerTimer {
    seconds: f64,
    /// Unknown until the clock was seen once.
    due: Option<f64>,
}

impl MarkerTimer {
    fn new(seconds: u32) -> Option<Self> {
        (seconds > 0).then(|| Self {
            seconds: f64::from(seconds),
            due: None,
        })
    }

    /// Whether it is time; the first call only starts the clock. Missed periods are not made up
    /// for, and a clock that was set back starts anew.
    fn is_due(&mut self, now: f64) -> bool {
        let next = now + self.seconds;
        match self.due {
            Some(due) if now < due && due <= next => false,
            Some(due) => {
                let on_time = now >= due;
                // Keep the beat when the tick was only a little late.
                let beat = due + self.seconds;
                self.due = Some(if on_time && beat > now { beat } else { next });
                on_time
            }
            None => {
                self.due = Some(next);
                false
            }
        }
    }
}

impl MarkerSchedule {
    /// Markers as a transfer asks for them.
    pub(super) fn new(request: &TransferRequest) -> Self {
        Self {
            perf: MarkerTimer::new(request.perf_marker_seconds),
            range: MarkerTimer::new(request.range_marker_seconds),
            sent_performance_marker: false,
            reported: RangeSet::new(),
            bytes: 0,
            stored: RangeSet::new(),
        }
    }

    /// Bytes moved, as last reported.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes a tick; returns what is due.
    pub(super) fn on_progress(&mut self, progress: TransferProgress) -> Vec<Reply> {
        let now = progress.now;
        self.bytes = progress.bytes;
        self.stored = progress.stored;
        let mut replies = Vec::new();
        let first = !self.sent_performance_marker;
        if let Some(perf) = &mut self.perf {
            self.sent_performance_marker = true;
            if perf.is_due(now) || first {
                replies.push(perf_reply(now, self.bytes));
            }
        }
        if self.range.as_mut().is_some_and(|range| range.is_due(now)) {
            replies.extend(self.report_ranges());
        }
        replies
    }

    /// The transfer is complete: a last 112 and what no 111 told yet.
    pub(super) fn on_complete(&mut self, last: TransferProgress) -> Vec<Reply> {
        self.bytes = last.bytes;
        self.stored = last.stored;
        let mut replies = Vec::new();
        if self.perf.is_some() {
            if !self.sent_performance_marker {
                replies.push(perf_reply(last.now, 0));
            }
            replies.push(perf_reply(last.now, last.bytes));
        }
        replies.extend(self.on_failure());
        replies
    }

    /// The transfer failed: what is safe and was not told yet, so that a restart need not send it
    /// again.
    pub(super) fn on_failure(&mut self) -> Vec<Reply> {
        match self.range {
            Some(_) => self.report_ranges(),
            None => Vec::new(),
        }
    }

    fn report_ranges(&mut self) -> Vec<Reply> {
        let new = difference(&self.stored, &self.reported);
        if new.is_empty() {
            return Vec::new();
        }
        self.reported = std::mem::take(&mut self.stored);
        range_marker_replies(&new)
    }
}

fn perf_reply(timestamp: f64, bytes: u64) -> Reply {
    PerformanceMarker {
        timestamp,
        stripe_index: 0,
        stripe_bytes: bytes,
        stripe_count: 1,
    }
    .to_reply()
}

/// The bytes of `all` that are not in `known`, in one pass over both: a store in many pieces has
/// tens of thousands of ranges.
fn difference(all: &RangeSet, known: &RangeSet) -> RangeSet {
    let mut new = RangeSet::new();
    let mut known = known.iter().peekable();
    for range in all.iter() {
        let mut start = range.start;
        while let Some(k) = known.peek().copied() {
            if k.start >= range.end {
                break;
            }
            if k.end > start {
                new.insert(start, k.start);
                start = k.end;
            }
            if k.end > range.end {
                break;
            }
            known.next();
        }
        new.insert(start, range.end);
    }
    new
}

#[cfg(test)]
mod tests;
