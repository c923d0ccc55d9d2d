//! A simulated transfer that `auto` tunes: it looks at its flows as the data room does, and carries
//! out what comes back.

use std::time::Duration;

use sim::tcp::Config;
use sim::world::{FlowId, FlowSpec, FlowStats, PoolId, Simulation, Source};
use tune::look::Look;
use tune::streams::auto::{Auto, Decision, Limits, Scene, Step};

/// One block of the file, bytes.
const BLOCK: u64 = 256 << 10;

/// One stream.
struct Stream {
    flow: FlowId,
    before: FlowStats,
    rtt: Duration,
    /// It ends with its block.
    closed: bool,
}

/// A transfer.
pub(crate) struct Mover {
    auto: Auto,
    pool: PoolId,
    spec: FlowSpec,
    streams: Vec<Stream>,
    pace: Option<u64>,
    /// Bytes that streams which have ended moved.
    ended: u64,
    due: Duration,
    begun: Duration,
    pub(crate) decisions: Vec<Decision>,
}

pub(crate) fn limits(most: u32) -> Limits {
    Limits {
        least: 1,
        most,
        congestion: Vec::new(),
        pace: true,
    }
}

impl Mover {
    /// Begins now to send `bytes` over `streams` flows like `spec`.
    pub(crate) fn begin(
        simulation: &mut Simulation,
        limits: Limits,
        streams: u32,
        bytes: u64,
        spec: FlowSpec,
    ) -> Self {
        let pool = simulation.add_pool(bytes, BLOCK);
        let mut mover = Self {
            auto: Auto::new(limits, streams),
            pool,
            spec: FlowSpec {
                tcp: Config {
                    handshake: true,
                    ..spec.tcp
                },
                source: Source::Pool(pool),
                ..spec
            },
            streams: Vec::new(),
            pace: None,
            ended: 0,
            due: simulation.now(),
            begun: simulation.now(),
            decisions: Vec::new(),
        };
        mover.have(simulation, streams as usize);
        mover
    }

    /// When it wants to look.
    pub(crate) fn due(&self) -> Duration {
        self.due
    }

    /// Streams that take blocks.
    pub(crate) fn open(&self) -> usize {
        self.streams.iter().filter(|s| !s.closed).count()
    }

    /// Payload that has arrived, bytes.
    pub(crate) fn delivered(&self, simulation: &Simulation) -> u64 {
        simulation.pool_delivered(self.pool)
    }

    /// Looks, decides, acts.
    pub(crate) fn tick(&mut self, simulation: &mut Simulation) {
        let at = simulation.now().saturating_sub(self.begun);
        let mut looks = Vec::new();
        let mut moved = self.ended;
        self.streams.retain_mut(|stream| {
            let stats = simulation.flow(stream.flow);
            if stats.finished.is_some() {
                self.ended += stats.sender.acked_bytes;
            } else {
                looks.push(stream.look(at, &stats));
            }
            moved += stats.sender.acked_bytes;
            stats.finished.is_none()
        });
        self.share_pace(simulation);
        let decisions = self.auto.on_scene(&Scene {
            at,
            moved,
            left: Some(simulation.pool_left(self.pool)),
            looks: &looks,
            opening: 0,
            congestion: "cubic",
            rate_limit: None,
        });
        for decision in &decisions {
            match decision.step {
                Some(Step::Streams(streams)) => self.have(simulation, streams as usize),
                Some(Step::Pace(pace)) => self.pace = pace,
                Some(Step::Congestion(_)) | None => {}
            }
        }
        if decisions.iter().any(|d| d.step.is_some()) {
            self.share_pace(simulation);
        }
        self.decisions.extend(decisions);
        self.due = simulation.now() + self.auto.due();
    }

    fn have(&mut self, simulation: &mut Simulation, streams: usize) {
        while self.open() < streams {
            let spec = FlowSpec {
                start: simulation.now(),
                ..self.spec
            };
            self.streams.push(Stream {
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

    /// Streams that end still send what they have.
    fn share_pace(&self, simulation: &mut Simulation) {
        let open = self.streams.len().max(1) as u64;
        for stream in &self.streams {
            simulation.set_pacing(stream.flow, self.pace.map(|pace| pace / open));
        }
    }
}

impl Stream {
    fn look(&mut self, at: Duration, stats: &FlowStats) -> Look {
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
        Look {
            stream: self.flow as u64,
            at,
            bytes: sender.acked_bytes,
            rtt: self.rtt,
            min_rtt: sender.rtt_min,
            send_buffer: 64 << 20,
            send_queued: 1 << 20,
            unsent: 1 << 20,
            in_flight: sent.saturating_sub(sender.acked_bytes),
            congestion_window,
            slow_start: stats.threshold.is_infinite(),
            peer_window: 1 << 30,
            busy: sender.waits.busy,
            rwnd_limited: sender.waits.rwnd_limited,
            retransmits: sender.retransmits,
            segment: mss,
            ..Look::default()
        }
    }
}

/// Lets all of them run until `until`.
pub(crate) fn run(simulation: &mut Simulation, movers: &mut [Mover], until: Duration) {
    loop {
        let next = movers.iter().map(Mover::due).min().unwrap_or(until);
        if next >= until {
            simulation.run_until(until);
            return;
        }
        simulation.run_until(next);
        let now = simulation.now();
        for mover in movers.iter_mut().filter(|mover| mover.due() <= now) {
            mover.tick(simulation);
        }
    }
}
