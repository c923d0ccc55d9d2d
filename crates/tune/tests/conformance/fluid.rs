//! A transfer over a path on which streams are fluids: no packets, no slow start, only limits.

use std::time::Duration;

use tune::sample::TcpSample;
use tune::streams::auto::{
    AutoLimits, AutoTuner, TransferDecision, TransferSample, TransferSetting,
};

use crate::limits_checker::LimitsChecker;

/// A path on which streams behave as fluids.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FluidModel {
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
struct FluidStream {
    id: u64,
    bytes: f64,
    /// Seconds.
    busy: f64,
    limited: f64,
    /// Segments.
    again: f64,
}

/// Drives `auto` over a fluid path as the data room does, for a time.
pub(crate) struct FluidDrive {
    pub(crate) auto: AutoTuner,
    pub(crate) watch: LimitsChecker,
    pub(crate) streams: u32,
    next_id: u64,
    open: Vec<FluidStream>,
    ended: f64,
    pace: f64,
    now: f64,
    /// When the number of streams was changed, seconds.
    pub(crate) changes: Vec<f64>,
}

impl FluidDrive {
    pub(crate) fn new(limits: AutoLimits, streams: u32) -> Self {
        let watch = LimitsChecker::of(&limits, streams);
        let mut drive = Self {
            streams: watch.streams,
            watch,
            auto: AutoTuner::new(limits, streams),
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
            self.open.push(FluidStream {
                id: self.next_id,
                ..FluidStream::default()
            });
            self.next_id += 1;
        }
        for stream in self.open.drain(self.streams as usize..) {
            self.ended += stream.bytes;
        }
    }

    pub(crate) fn run(&mut self, seconds: f64, path: FluidModel) {
        let end = self.now + seconds;
        while self.now < end {
            self.step(path);
        }
    }

    fn step(&mut self, path: FluidModel) {
        let passed = self.auto.next_sample_in().as_secs_f64();
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
        let decisions = self.auto.on_sample(&TransferSample {
            at: Duration::from_secs_f64(self.now),
            bytes_moved: moved as u64,
            bytes_left: Some(1 << 50),
            streams: &looks,
            streams_opening: 0,
            congestion_control: "cubic",
            rate_limit: None,
        });
        self.watch.check(&decisions);
        self.carry_out(&decisions);
    }

    fn looks(
        &mut self,
        path: FluidModel,
        rate: f64,
        passed: f64,
        rtt: f64,
        limited: bool,
    ) -> Vec<TcpSample> {
        let at = Duration::from_secs_f64(self.now);
        let share = |part: f64| if limited { part } else { 0.0 };
        let each = self.open.iter_mut().map(|stream| {
            stream.bytes += rate * passed;
            stream.busy += passed;
            stream.limited += share(passed);
            stream.again += rate * passed / 1460.0 * path.loss;
            TcpSample {
                stream: stream.id,
                at,
                bytes: stream.bytes as u64,
                smoothed_rtt: Duration::from_secs_f64(rtt),
                min_rtt: Duration::from_secs_f64(path.rtt),
                send_buffer: 8 << 20,
                send_queue_memory: (rate * rtt * 2.0) as u64,
                in_flight: (rate * rtt) as u64,
                cwnd: (rate * rtt * 1.2) as u64,
                peer_window: path.window as u64,
                busy_time: Duration::from_secs_f64(stream.busy),
                rwnd_limited: Duration::from_secs_f64(stream.limited),
                retransmits: stream.again as u64,
                mss: 1460,
                delivery_rate: rate as u64,
                ..TcpSample::default()
            }
        });
        each.collect()
    }

    fn carry_out(&mut self, decisions: &[TransferDecision]) {
        for decision in decisions {
            match decision.setting {
                Some(TransferSetting::Streams(n)) => {
                    self.streams = n;
                    self.changes.push(self.now);
                    self.adjust();
                }
                Some(TransferSetting::PacingRate(pace)) => {
                    self.pace = pace.map_or(f64::INFINITY, |rate| rate as f64);
                }
                Some(TransferSetting::CongestionControl(_)) | None => {}
            }
        }
    }
}
