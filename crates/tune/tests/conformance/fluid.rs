//! A transfer over a path on which streams are fluids: no packets, no slow start, only limits.

use std::time::Duration;

use tune::sample::TcpSample;
use tune::streams::auto::{
    AutoLimits, AutoTuner, TransferDecision, TransferSample, TransferSetting,
};

use crate::limits_checker::LimitsChecker;

/// A fluid model of a path and its streams.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FluidModel {
    /// Bytes per second.
    pub(crate) bandwidth: f64,
    /// Window of each stream, bytes.
    pub(crate) window: f64,
    /// Seconds.
    pub(crate) rtt: f64,
    /// Loss ratio of segments.
    pub(crate) loss: f64,
    /// Read rate of the sender's store, bytes per second.
    pub(crate) store: f64,
}

/// Counters of a stream since it was opened.
#[derive(Debug, Clone, Copy, Default)]
struct FluidStream {
    id: u64,
    bytes: f64,
    /// Seconds.
    busy: f64,
    window_full: f64,
    /// Segments.
    retransmits: f64,
}

/// Runs `auto` on a fluid path as crate `data` does on sockets.
pub(crate) struct FluidDrive {
    pub(crate) auto: AutoTuner,
    pub(crate) checker: LimitsChecker,
    pub(crate) streams: u32,
    next_id: u64,
    open: Vec<FluidStream>,
    closed_bytes: f64,
    pacing: f64,
    now: f64,
    /// Times at which the number of streams changed, seconds.
    pub(crate) changes: Vec<f64>,
}

impl FluidDrive {
    pub(crate) fn new(limits: AutoLimits, streams: u32) -> Self {
        let checker = LimitsChecker::of(&limits, streams);
        let mut drive = Self {
            streams: checker.streams,
            checker,
            auto: AutoTuner::new(limits, streams),
            next_id: 0,
            open: Vec::new(),
            closed_bytes: 0.0,
            pacing: f64::INFINITY,
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
            self.closed_bytes += stream.bytes;
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
        // Congestion window of a connection under loss: Mathis and others, 1997.
        let loss_window = if path.loss > 0.0 {
            1460.0 * 1.22 / path.loss.sqrt()
        } else {
            f64::INFINITY
        };
        let windows = n * path.window.min(loss_window);
        let free = path.store.min(self.pacing);
        let wanted = (windows / path.rtt).min(free);
        let rate = wanted.min(path.bandwidth);
        let queued = if wanted > path.bandwidth {
            (windows - path.bandwidth * path.rtt).max(0.0)
        } else {
            0.0
        };
        let rtt = path.rtt + queued.min(path.bandwidth * 0.2) / path.bandwidth;
        let window_full = path.window < loss_window && free > windows / path.rtt;
        let samples = self.samples(path, rate / n, passed, rtt, window_full);
        let bytes_moved = self.closed_bytes + self.open.iter().map(|s| s.bytes).sum::<f64>();
        let decisions = self.auto.on_sample(&TransferSample {
            at: Duration::from_secs_f64(self.now),
            bytes_moved: bytes_moved as u64,
            bytes_left: Some(1 << 50),
            streams: &samples,
            streams_opening: 0,
            congestion_control: "cubic",
            rate_limit: None,
        });
        self.checker.check(&decisions);
        self.apply(&decisions);
    }

    fn samples(
        &mut self,
        path: FluidModel,
        rate: f64,
        passed: f64,
        rtt: f64,
        window_full: bool,
    ) -> Vec<TcpSample> {
        let at = Duration::from_secs_f64(self.now);
        let share = |part: f64| if window_full { part } else { 0.0 };
        let each = self.open.iter_mut().map(|stream| {
            stream.bytes += rate * passed;
            stream.busy += passed;
            stream.window_full += share(passed);
            stream.retransmits += rate * passed / 1460.0 * path.loss;
            TcpSample {
                stream: stream.id,
                at,
                bytes_acked: stream.bytes as u64,
                smoothed_rtt: Duration::from_secs_f64(rtt),
                min_rtt: Duration::from_secs_f64(path.rtt),
                send_buffer: 8 << 20,
                send_queue_memory: (rate * rtt * 2.0) as u64,
                in_flight: (rate * rtt) as u64,
                cwnd: (rate * rtt * 1.2) as u64,
                peer_window: path.window as u64,
                busy_time: Duration::from_secs_f64(stream.busy),
                rwnd_limited: Duration::from_secs_f64(stream.window_full),
                retransmits: stream.retransmits as u64,
                mss: 1460,
                delivery_rate: rate as u64,
                ..TcpSample::default()
            }
        });
        each.collect()
    }

    fn apply(&mut self, decisions: &[TransferDecision]) {
        for decision in decisions {
            match decision.setting.clone() {
                Some(TransferSetting::Streams(n)) => {
                    self.streams = n;
                    self.changes.push(self.now);
                    self.adjust();
                }
                Some(TransferSetting::PacingRate(pacing)) => {
                    self.pacing = pacing.map_or(f64::INFINITY, |rate| rate as f64);
                }
                Some(
                    TransferSetting::CongestionControl(_)
                    | TransferSetting::StreamCongestionControl { .. },
                )
                | None => {}
            }
        }
    }
}
