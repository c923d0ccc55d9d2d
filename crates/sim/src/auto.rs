//! A simulated transfer that `tune::streams::auto` leads. It samples its flows as the crate `data` does, and applies the
//! decisions: number of streams and pacing rate. Their congestion control stays.

use std::time::Duration;

use tune::Prior;
use tune::sample::TcpSample;
use tune::streams::auto::{
    AutoLimits, AutoTuner, TransferDecision, TransferSample, TransferSetting,
};

use crate::sessions::SimSession;
use crate::tcp::{CongestionAlgorithm, TcpConfig};
use crate::world::{FlowId, FlowSpec, FlowStats, PoolId, Simulation, TrafficSource};

/// Block of the file that a stream takes at a time, bytes.
const BLOCK: u64 = 256 << 10;

/// One stream.
#[derive(Debug)]
struct AutoStream {
    flow: FlowId,
    before: FlowStats,
    rtt: Duration,
    /// The stream ends with its current block.
    closed: bool,
}

/// A transfer.
#[derive(Debug)]
pub struct AutoTransfer {
    auto: AutoTuner,
    pool: PoolId,
    spec: FlowSpec,
    streams: Vec<AutoStream>,
    pace: Option<u64>,
    /// Bytes moved by streams that have ended.
    finished_bytes: u64,
    due: Duration,
    started_at: Duration,
    decisions: Vec<TransferDecision>,
}

/// Limits of a transfer that may have up to `most` streams and may pace them, with the system's congestion control.
pub fn stream_limits(most: u32) -> AutoLimits {
    AutoLimits {
        min_streams: 1,
        max_streams: most,
        congestion_controls: Vec::new(),
        may_pace: true,
    }
}

impl AutoTransfer {
    /// Starts to send `bytes` over flows with the properties of `spec`, with what is known of the path: one flow
    /// if no number is known.
    pub fn begin(
        simulation: &mut Simulation,
        limits: AutoLimits,
        prior: Prior,
        bytes: u64,
        spec: FlowSpec,
    ) -> Self {
        let streams = prior.streams.unwrap_or(1);
        let pool = simulation.add_pool(bytes, BLOCK);
        let mut transfer = Self {
            auto: AutoTuner::from_prior(limits, prior),
            pool,
            spec: FlowSpec {
                tcp: TcpConfig {
                    handshake: true,
                    ..spec.tcp
                },
                source: TrafficSource::Pool(pool),
                ..spec
            },
            streams: Vec::new(),
            pace: None,
            finished_bytes: 0,
            due: simulation.now(),
            started_at: simulation.now(),
            decisions: Vec::new(),
        };
        transfer.set_streams(simulation, streams as usize);
        transfer
    }

    /// Number of streams that still take blocks.
    pub fn open(&self) -> usize {
        self.streams.iter().filter(|s| !s.closed).count()
    }

    /// The decisions of `auto`, in order.
    pub fn decisions(&self) -> &[TransferDecision] {
        &self.decisions
    }

    /// Takes a sample and applies the decisions of `auto`.
    fn tick(&mut self, simulation: &mut Simulation) {
        let at = simulation.now().saturating_sub(self.started_at);
        let receive_buffer = self.spec.tcp.receive_buffer;
        let mut samples = Vec::new();
        let mut moved = self.finished_bytes;
        self.streams.retain_mut(|stream| {
            let stats = simulation.flow(stream.flow);
            if stats.finished.is_some() {
                self.finished_bytes += stats.sender.acked_bytes;
            } else {
                samples.push(stream.sample(at, &stats, receive_buffer));
            }
            moved += stats.sender.acked_bytes;
            stats.finished.is_none()
        });
        self.share_pace(simulation);
        let decisions = self.auto.on_sample(&TransferSample {
            at,
            bytes_moved: moved,
            bytes_left: Some(simulation.pool_left(self.pool)),
            streams: &samples,
            streams_opening: 0,
            congestion_control: match self.spec.tcp.congestion {
                CongestionAlgorithm::NewReno => "reno",
                CongestionAlgorithm::Cubic => "cubic",
            },
            rate_limit: None,
        });
        for decision in &decisions {
            match decision.setting {
                Some(TransferSetting::Streams(streams)) => {
                    self.set_streams(simulation, streams as usize);
                }
                Some(TransferSetting::PacingRate(pace)) => self.pace = pace,
                Some(
                    TransferSetting::CongestionControl(_)
                    | TransferSetting::StreamCongestionControl { .. },
                )
                | None => {}
            }
        }
        if decisions.iter().any(|d| d.setting.is_some()) {
            self.share_pace(simulation);
        }
        self.decisions.extend(decisions);
        self.due = simulation.now() + self.auto.next_sample_in();
    }

    fn set_streams(&mut self, simulation: &mut Simulation, streams: usize) {
        while self.open() < streams {
            let spec = FlowSpec {
                start: simulation.now(),
                ..self.spec
            };
            self.streams.push(AutoStream {
                flow: simulation.add_flow(spec),
                before: FlowStats::default(),
                rtt: Duration::ZERO,
                closed: false,
            });
        }
        let surplus = self.open() - streams;
        let newest = self.streams.iter_mut().rev().filter(|s| !s.closed);
        for stream in newest.take(surplus) {
            stream.closed = true;
            simulation.stop_flow(stream.flow);
        }
    }

    /// Divides the pacing rate among all streams, including those being closed.
    fn share_pace(&self, simulation: &mut Simulation) {
        let open = self.streams.len().max(1) as u64;
        for stream in &self.streams {
            simulation.set_pacing(stream.flow, self.pace.map(|pace| pace / open));
        }
    }
}

impl AutoStream {
    fn sample(&mut self, at: Duration, stats: &FlowStats, receive_buffer: u64) -> TcpSample {
        let mss = 1460;
        let sender = &stats.sender;
        if let Some(rtt) = stats.since(&self.before).mean_rtt() {
            self.rtt = rtt;
        }
        self.before = *stats;
        let sent = (sender.segments - sender.retransmits) * mss;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a window of segments"
        )]
        let congestion_window = stats.cwnd as u64 * mss;
        TcpSample {
            stream: self.flow as u64,
            at,
            bytes_acked: sender.acked_bytes,
            smoothed_rtt: self.rtt,
            min_rtt: sender.rtt_min,
            send_buffer: 64 << 20,
            send_queue_memory: 1 << 20,
            unsent: 1 << 20,
            in_flight: sent.saturating_sub(sender.acked_bytes),
            cwnd: congestion_window,
            in_slow_start: stats.ssthresh.is_infinite(),
            peer_window: receive_buffer.min(1 << 30),
            busy_time: sender.limited_times.busy,
            rwnd_limited: sender.limited_times.rwnd_limited,
            retransmits: sender.retransmits,
            mss,
            ..TcpSample::default()
        }
    }
}

impl SimSession for AutoTransfer {
    fn wake_at(&self) -> Duration {
        self.due
    }

    fn is_ready(&self, _: &Simulation) -> bool {
        false
    }

    fn advance(&mut self, simulation: &mut Simulation) {
        self.tick(simulation);
    }

    fn delivered(&self, simulation: &Simulation) -> u64 {
        simulation.pool_delivered(self.pool)
    }

    fn streams(&self) -> u32 {
        u32::try_from(self.open()).unwrap_or(u32::MAX)
    }
}
