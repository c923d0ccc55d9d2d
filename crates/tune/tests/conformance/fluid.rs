//! A transfer over a path on which streams are fluids: no packets, no slow start, only limits.

use std::time::Duration;

use tune::look::Look;
use tune::streams::auto::{Auto, Decision, Limits, Scene, Step};

use crate::watch::Watch;

/// A path on which streams behave as fluids.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fluid {
    /// Bytes per second.
    pub(crate) bandwidth: f64,
    /// Each stream's, bytes.
    pub(crate) window: f64,
    /// Seconds.
    pub(crate) rtt: f64,
    /// Share of segments that is lost.
    pub(crate) loss: f64,
    /// Rate that the sender's store gives, bytes per second.
    pub(crate) store: f64,
}

/// A stream since it was opened.
#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    id: u64,
    bytes: f64,
    /// Seconds.
    busy: f64,
    limited: f64,
    /// Segments.
    again: f64,
}

/// Drives `auto` over a fluid path as the data room does, for a time.
pub(crate) struct Drive {
    pub(crate) auto: Auto,
    pub(crate) watch: Watch,
    pub(crate) streams: u32,
    next_id: u64,
    open: Vec<Stream>,
    ended: f64,
    pace: f64,
    now: f64,
    /// When the number of streams was changed, seconds.
    pub(crate) changes: Vec<f64>,
}

impl Drive {
    pub(crate) fn new(limits: Limits, streams: u32) -> Self {
        let watch = Watch::of(&limits, streams);
        let mut drive = Self {
            streams: watch.streams,
            watch,
            auto: Auto::new(limits, streams),
            next_id: 0,
            open: Vec::new(),
            ended: 0.0,
            pace: f64::INFINITY,
            now: 0.0,
            changes: Vec::new(),
        };
        drive.adjust();
        drive
    }

    pub(crate) fn adjust(&mut self) {
        while self.open.len() < self.streams as usize {
            self.open.push(Stream {
                id: self.next_id,
                ..Stream::default()
            });
            self.next_id += 1;
        }
        for stream in self.open.drain(self.streams as usize..) {
            self.ended += stream.bytes;
        }
    }

    pub(crate) fn run(&mut self, seconds: f64, path: Fluid) {
        let end = self.now + seconds;
        while self.now < end {
            self.step(path);
        }
    }

    fn step(&mut self, path: Fluid) {
        let passed = self.auto.due().as_secs_f64();
        self.now += passed;
        let n = f64::from(self.streams);
        // A connection's window under loss: Mathis and others, 1997.
        let lossy = if path.loss > 0.0 {
            1460.0 * 1.22 / path.loss.sqrt()
        } else {
            f64::INFINITY
        };
        let windows = n * path.window.min(lossy);
        let free = path.store.min(self.pace);
        let wanted = (windows / path.rtt).min(free);
        let rate = wanted.min(path.bandwidth);
        let queued = if wanted > path.bandwidth {
            (windows - path.bandwidth * path.rtt).max(0.0)
        } else {
            0.0
        };
        let rtt = path.rtt + queued.min(path.bandwidth * 0.2) / path.bandwidth;
        let limited = path.window < lossy && free > windows / path.rtt;
        let looks = self.looks(path, rate / n, passed, rtt, limited);
        let moved = self.ended + self.open.iter().map(|s| s.bytes).sum::<f64>();
        let decisions = self.auto.on_scene(&Scene {
            at: Duration::from_secs_f64(self.now),
            moved: moved as u64,
            left: Some(1 << 50),
            looks: &looks,
            opening: 0,
            congestion: "cubic",
            rate_limit: None,
        });
        self.watch.check(&decisions);
        self.carry_out(&decisions);
    }

    fn looks(&mut self, path: Fluid, rate: f64, passed: f64, rtt: f64, limited: bool) -> Vec<Look> {
        let at = Duration::from_secs_f64(self.now);
        let share = |part: f64| if limited { part } else { 0.0 };
        let each = self.open.iter_mut().map(|stream| {
            stream.bytes += rate * passed;
            stream.busy += passed;
            stream.limited += share(passed);
            stream.again += rate * passed / 1460.0 * path.loss;
            Look {
                stream: stream.id,
                at,
                bytes: stream.bytes as u64,
                rtt: Duration::from_secs_f64(rtt),
                min_rtt: Duration::from_secs_f64(path.rtt),
                send_buffer: 8 << 20,
                send_queued: (rate * rtt * 2.0) as u64,
                in_flight: (rate * rtt) as u64,
                congestion_window: (rate * rtt * 1.2) as u64,
                peer_window: path.window as u64,
                busy: Duration::from_secs_f64(stream.busy),
                rwnd_limited: Duration::from_secs_f64(stream.limited),
                retransmits: stream.again as u64,
                segment: 1460,
                delivery_rate: rate as u64,
                ..Look::default()
            }
        });
        each.collect()
    }

    fn carry_out(&mut self, decisions: &[Decision]) {
        for decision in decisions {
            match decision.step {
                Some(Step::Streams(n)) => {
                    self.streams = n;
                    self.changes.push(self.now);
                    self.adjust();
                }
                Some(Step::Pace(pace)) => {
                    self.pace = pace.map_or(f64::INFINITY, |rate| rate as f64);
                }
                Some(Step::Congestion(_)) | None => {}
            }
        }
    }
}
